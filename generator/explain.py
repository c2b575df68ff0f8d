"""`kernwright explain`: an error code of the catalogue, or a program with everything that is derived for it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.errors import CATALOGUE
from kernwright.generator.passes.derive import derive
from kernwright.generator.pipeline import discover


def explain(subject: str, arch: str | None = None) -> str:
    """The text for a code (`KW0404`) or a program (`tiles_mma_tile`), the latter on `arch` or on each of its architectures.

    Raises ValueError, with the closest names, when there is neither.
    """
    if subject.upper() in CATALOGUE:
        entry = CATALOGUE[subject.upper()]
        return f"{entry.code} {entry.title}\n\n{entry.explanation}\n"
    programs = discover()
    if subject not in programs:
        near = difflib.get_close_matches(subject, [*programs, *CATALOGUE], n=3, cutoff=0.4)
        raise ValueError(f"no error code and no program {subject!r}; close: {', '.join(near) or ', '.join(programs)}")
    from kernwright.generator.emit.outline import print_outline

    description = programs[subject].trace()
    if arch is not None and arch not in description.archs:
        raise ValueError(f"{subject} is described for {', '.join(description.archs)}, not for {arch!r}")
    chosen = (arch,) if arch else description.archs
    return "\n".join(print_outline(derive(description, ARCHITECTURES[name])) for name in chosen)


def main(subjects: Sequence[str], arch: str | None = None) -> int:
    """Print the explanation of every subject; used by `kernwright explain`. Raises ValueError for an unknown one."""
    print("\n".join(explain(subject, arch) for subject in subjects), end="")
    return 0

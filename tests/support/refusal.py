"""A description that is refused: with a code, the author's line, the numbers and the remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.errors import KernelError
from kernwright.generator.ir.description import Description
from kernwright.generator.passes.derive import derive
from kernwright.generator.passes.lower import lower

Check = Callable[[Description], object]


def place_of(function: Callable[..., None]) -> str:
    """`tests/<file>:<line>` of the line that ends with `# fault`, or of the function's first one."""
    lines, first = inspect.getsourcelines(function)
    line = next((first + offset for offset, text in enumerate(lines) if text.rstrip().endswith("# fault")), first)
    return f"tests/{Path(function.__code__.co_filename).name}:{line}"


def derived(arch: str) -> Check:
    """Derive the description on `arch`."""
    return lambda description: derive(description, ARCHITECTURES[arch])


def lowered(arch: str) -> Check:
    """Lower the description for `arch`."""
    return lambda description: lower(description, ARCHITECTURES[arch])


def refuse(trace, function, code: str, *words: str, after: Check | None = None, **arguments) -> None:
    """Tracing `function`, or what comes `after` it, is refused with a code, the marked line and these words."""
    with pytest.raises(KernelError) as caught:
        description = trace(function, **arguments)
        assert after is not None, "the description was accepted"
        after(description)
    message = str(caught.value)
    assert caught.value.code == code and message.startswith(f"{code} "), message
    assert place_of(function) in message.splitlines()[1], message
    assert [word for word in words if word not in message] == [], message
    assert message.rstrip().endswith(f"kernwright explain {code}"), message
    assert (caught.value.__class__.__doc__ or "").startswith(code[:4]), "the class of the area"

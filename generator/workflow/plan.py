"""The plan of a run: each file that was generated, or is in the tree and looks generated, with its class.

| class       | the file on disk                                                              | a run      |
|-------------|-------------------------------------------------------------------------------|------------|
| unchanged   | is what would be generated                                                    | leaves it  |
| missing     | is not there: new, or lost                                                    | writes it  |
| stale       | is what the last run wrote, and something else would be generated now         | writes it  |
| hand-edited | is neither what would be generated nor what a run is known to have written    | refuses it |
| orphan      | is recorded in `build.json`, or carries our header, and is no longer generated | removes it |
| temporary   | was left behind by a run that was killed                                      | removes it |

Texts are compared with CRLF line ends and a byte order mark normalised, so a checkout may have either. Other files
below `generated/` belong to people: they are neither touched nor reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernwright.generator.ir.names import HEADER_MARK
from kernwright.generator.workflow.digest import bytes_sha256, lf_bytes
from kernwright.generator.workflow.record import (
    BUILD_JSON,
    WorkflowError,
    parse_record,
    read_record,
)

HEADER_LINES = 5

# `.<name>.<process>.regenerate.tmp`, next to the file it is to become.
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.regenerate\.tmp")


class FileClass(StrEnum):
    """What a run thinks of a file; the table is in the module's docstring."""

    UNCHANGED = "unchanged"
    MISSING = "missing"
    STALE = "stale"
    HAND_EDITED = "hand-edited"
    ORPHAN = "orphan"
    TEMPORARY = "temporary"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the plan.

    `current` are its bytes on disk (None: it is absent), `content` the LF bytes that it gets (None: it is removed).
    """

    path: str
    kind: FileClass
    reason: str
    current: bytes | None = field(repr=False)
    content: bytes | None = field(repr=False)

    @property
    def changes(self) -> bool:
        return self.kind is not FileClass.UNCHANGED


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do, sorted by path."""

    entries: tuple[Entry, ...]

    @property
    def changes(self) -> tuple[Entry, ...]:
        """The entries that are not `unchanged`."""
        return tuple(entry for entry in self.entries if entry.changes)

    @property
    def hand_edited(self) -> tuple[Entry, ...]:
        """The entries that a run refuses to write or remove without being forced."""
        return tuple(entry for entry in self.entries if entry.kind is FileClass.HAND_EDITED)

    def counts(self) -> dict[FileClass, int]:
        """How many entries each class has, classes without any left out."""
        kinds = [entry.kind for entry in self.entries]
        return {kind: kinds.count(kind) for kind in FileClass if kind in kinds}


def make_plan(root: Path, files: Mapping[str, str]) -> Plan:
    """Compares `files`, every generated text by path, with the tree at `root`.

    Writes nothing. Raises WorkflowError for a path outside `generated/` (only `build.json` may be) and for two paths
    that differ in case only, and OSError when a file cannot be read: a tree that cannot be read has no verdict.
    """
    check_paths(files)
    temporaries = sorted(find_temporaries(root))
    known = _written_hashes(root, temporaries)
    entries = [_compare(root, path, files[path], known.get(path)) for path in files]
    entries += _orphans(root, files, known)
    entries += [
        Entry(path, FileClass.TEMPORARY, "left behind by a run that was killed", b"", None) for path in temporaries
    ]
    return Plan(tuple(sorted(entries, key=lambda entry: entry.path)))


def check_paths(paths: Collection[str]) -> None:
    """Raises WorkflowError unless each path is `build.json` or a plain path below `generated/`, and differs from the
    others where case does not count."""
    folded: dict[str, str] = {}
    for path in sorted(paths):
        if path != BUILD_JSON and not _is_output_path(path):
            raise WorkflowError(f"the generator wants to write {path!r}, which is not a plain path below generated/")
        twin = folded.setdefault(path.casefold(), path)
        if twin != path:
            raise WorkflowError(f"{twin} and {path} differ in case only and would be one file on some systems")


def _is_output_path(path: str) -> bool:
    """Whether `path` is a plain path below `generated/`: writing or removing it cannot reach anything else."""
    folder, *parts = path.split("/")
    plain = (part not in ("", ".", "..") and "\\" not in part and "\0" not in part for part in parts)
    return folder == "generated" and bool(parts) and all(plain)


def temporary_name(path: str) -> str:
    """The path of this process's temporary for `path`: hidden, in the same folder, so that renaming it is atomic."""
    folder, _, name = path.rpartition("/")
    return (f"{folder}/" if folder else "") + f".{name}.{os.getpid()}.regenerate.tmp"


def find_temporaries(root: Path) -> Iterator[str]:
    """The temporaries that runs left at `root` and below `generated/`."""
    for path in sorted(root.glob(".*.regenerate.tmp")):
        match = _TEMPORARY.fullmatch(path.name)
        if match and match["name"] == BUILD_JSON:
            yield path.name
    for relative in _generated_files(root):
        if _TEMPORARY.fullmatch(_name(relative)):
            yield relative


def is_journal(path: str) -> bool:
    """Whether a temporary is of `build.json`: it tells the next run which hashes a killed run was about to write."""
    match = _TEMPORARY.fullmatch(path)
    return match is not None and match["name"] == BUILD_JSON


def carries_header(content: bytes) -> bool:
    """Whether a file says in its first lines that it was generated."""
    return any(HEADER_MARK.encode() in line for line in content.split(b"\n", HEADER_LINES)[:HEADER_LINES])


def _written_hashes(root: Path, temporaries: Iterable[str]) -> dict[str, frozenset[str]]:
    """The hashes recorded for each file, in `build.json` and in the one that a killed run had prepared.

    A path without any hash is recorded by entries that contradict themselves.
    """
    journals = (parse_record(lf_bytes((root / path).read_bytes())) for path in temporaries if is_journal(path))
    known: dict[str, frozenset[str]] = {}
    for record in (read_record(root), *journals):
        for path, hashes in record.hashes.items() if record else ():
            known[path] = known.get(path, frozenset()) | hashes
    return known


def _compare(root: Path, path: str, text: str, known: frozenset[str] | None) -> Entry:
    content = lf_bytes(text.encode())
    current = _read(root, path)
    if current is None:
        reason = "not written yet" if known is None else "recorded in build.json and gone"
        return Entry(path, FileClass.MISSING, reason, None, content)
    if lf_bytes(current) == content:
        return Entry(path, FileClass.UNCHANGED, "", current, content)
    if path == BUILD_JSON or (known and bytes_sha256(current) in known):
        return Entry(path, FileClass.STALE, "something else is generated now", current, content)
    return Entry(path, FileClass.HAND_EDITED, _edited(known), current, content)


def _orphans(root: Path, files: Collection[str], known: Mapping[str, frozenset[str]]) -> Iterator[Entry]:
    for path in _generated_files(root):
        if path in files or _TEMPORARY.fullmatch(_name(path)):
            continue
        current = _read(root, path)
        hashes = known.get(path)
        if current is None:
            continue
        if hashes is None:
            if carries_header(current):
                yield Entry(path, FileClass.ORPHAN, "carries our header, and is no longer generated", current, None)
        elif bytes_sha256(current) in hashes:
            yield Entry(path, FileClass.ORPHAN, "recorded in build.json, and no longer generated", current, None)
        else:
            yield Entry(path, FileClass.HAND_EDITED, f"{_edited(hashes)}, and no longer generated", current, None)


def _edited(known: frozenset[str] | None) -> str:
    if known is None:
        return "build.json does not record what was written here"
    return "not what build.json recorded" if known else "the hashes in build.json contradict each other"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _generated_files(root: Path) -> Iterator[str]:
    """Every file below `generated/`, by its path relative to `root`; links to folders are not followed."""
    for folder, folders, names in os.walk(root / "generated"):
        folders.sort()
        for name in sorted(names):
            yield (Path(folder) / name).relative_to(root).as_posix()


def _read(root: Path, path: str) -> bytes | None:
    try:
        return (root / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None

"""What `build.json` says about the files under `generated/`: who uses them, and which hashes the last run recorded.

The generator reads the old `build.json` leniently: it may be absent, empty, full of conflict markers or of another
schema, and a run must still be able to repair it. What is not understood counts as not recorded. (`runtime/` reads it
strictly.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernwright.generator.workflow.digest import closure_sha256, lf_bytes, text_sha256
from kernwright.runtime import manifest

BUILD_JSON = "build.json"


class WorkflowError(Exception):
    """The tree could not be checked or written. `str()` is the whole message; the command ends with exit code 2."""


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """A program on one architecture: the smallest thing that a run selects."""

    symbol: str
    arch: str

    def __str__(self) -> str:
        return f"{self.symbol} ({self.arch})"


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """A `build.json`, read.

    `data` is the JSON as it stands. `files` maps each unit to the paths of its files; units whose entry is malformed
    are left out. `hashes` maps each of these paths to its recorded hashes, leaving out those of a unit whose recorded
    closure contradicts them (someone changed a hash by hand).
    """

    data: Mapping[str, Any]
    files: Mapping[Unit, frozenset[str]]
    hashes: Mapping[str, frozenset[str]]

    @property
    def units(self) -> frozenset[Unit]:
        return frozenset(self.files)

    def owners(self) -> dict[str, set[Unit]]:
        """The units that use each file."""
        owners: dict[str, set[Unit]] = {}
        for unit, files in self.files.items():
            for path in files:
                owners.setdefault(path, set()).add(unit)
        return owners

    def program(self, symbol: str) -> Mapping[str, Any]:
        """The entry of a program without its architectures, empty when there is none."""
        entry = _mapping(_mapping(self.data.get("programs")).get(symbol))
        return {key: value for key, value in entry.items() if key != "architectures"}

    def unit(self, unit: Unit) -> Any:
        """The entry of a program on an architecture, None when there is none."""
        return _mapping(_mapping(_mapping(self.data.get("programs")).get(unit.symbol)).get("architectures")).get(
            unit.arch
        )


EMPTY = BuildRecord({}, {}, {})


def parse_record(content: bytes) -> BuildRecord | None:
    """Reads a `build.json`; None when it is no JSON object."""
    try:
        data = json.loads(content)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    files: dict[Unit, frozenset[str]] = {}
    hashes: dict[str, frozenset[str]] = {}
    for unit, entry in _unit_entries(data):
        recorded = _mapping(entry.get("files"))
        if not all(isinstance(value, str) for value in recorded.values()):
            continue
        files[unit] = frozenset(recorded)
        agrees = _closure_agrees(recorded, entry.get("closure"))
        for path, value in recorded.items():
            hashes[path] = hashes.get(path, frozenset()) | ({value} if agrees else set())
    return BuildRecord(data, files, hashes)


def read_record(root: Path) -> BuildRecord:
    """Reads `build.json` of the tree; an empty record when it is absent, empty or no JSON object."""
    try:
        content = (root / BUILD_JSON).read_bytes()
    except FileNotFoundError:
        return EMPTY
    return parse_record(lf_bytes(content)) or EMPTY


def generated_record(files: Mapping[str, str]) -> BuildRecord:
    """Reads the `build.json` among the generated texts and holds it against them.

    Raises WorkflowError when `runtime/` would refuse it, or when it records a file that was not generated, or another
    hash than the generated text has.
    """
    try:
        content = files[BUILD_JSON].encode()
        manifest.parse(json.loads(content), Path(BUILD_JSON))
    except (KeyError, ValueError) as error:
        raise WorkflowError(f"the generated build.json is wrong, and nothing was compared: {error}") from error
    record = parse_record(content)
    assert record is not None  # the manifest was read from the same text
    actual = {path: frozenset({text_sha256(text)}) for path, text in files.items()}
    for path, hashes in record.hashes.items():
        if actual.get(path) != hashes:
            raise WorkflowError(
                f"the generated build.json is wrong about {path}: it has another text, or there is none"
            )
    return record


def evidence_units(table: object) -> set[Unit]:
    """The units that `evidence.json` holds records of: `records` by symbol, then by architecture.

    Records of hand-written sources, whose keys are paths, are not about anything that is generated.

    Whether the rest of it is well formed is for `runtime/evidence.py` to say.
    """
    programs = _mapping(_mapping(table).get("records"))
    symbols = {symbol: program for symbol, program in programs.items() if not symbol.endswith(".cu")}
    return {Unit(symbol, arch) for symbol, program in symbols.items() for arch in _mapping(program)}


def _closure_agrees(files: Mapping[str, str], closure: object) -> bool:
    try:
        return closure is None or closure == closure_sha256(files)
    except ValueError:
        return False


def _unit_entries(data: Mapping[str, Any]) -> Iterator[tuple[Unit, Mapping[str, Any]]]:
    for symbol, program in _mapping(data.get("programs")).items():
        for arch, entry in _mapping(_mapping(program).get("architectures")).items():
            yield Unit(symbol, arch), _mapping(entry)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

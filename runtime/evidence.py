"""evidence.json: what was compiled and checked of every program and architecture, and whether that still holds.

A statement is bound to the machine code that it was made about (sha256 of the kernel's `.text`). It is fresh while the
library built from today's text has that machine code, stale when it has another, and unknown when no library is built.
Statements about a hand-written source (`docs/targets/*.cu`) are bound to that file and the headers it includes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernwright.runtime.build import records
from kernwright.runtime.build.ptxas import Resources
from kernwright.runtime.build.records import LibraryRecord
from kernwright.runtime.fields import Field, FieldError, read_json
from kernwright.runtime.locking import write_atomically
from kernwright.runtime.manifest import SHA256, Manifest, TargetRecord, text_digest

SCHEMA = 1
FAILED = "FAILED"  # how the result of a check that failed begins
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
RESOURCES = tuple(Resources.__dataclass_fields__)


class EvidenceError(FieldError):
    """evidence.json cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Check:
    """One statement: what was checked, on which device and date, about which machine code, with what result."""

    check: str
    device: str
    date: str
    text_sha256: str
    result: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one program on one architecture; `resources` is None when it was never compiled."""

    resources: Mapping[str, int] | None
    text_sha256: str
    toolchain: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report: `subject` is `resources` or a check's name, `state` fresh, failed, stale, missing or unknown."""

    symbol: str
    architecture: str
    subject: str
    state: str
    detail: str


Records = dict[tuple[str, str], Evidence]
NOTHING = Evidence(None, "", "", ())


def read(file: Path) -> Records:
    """Evidence by (symbol, architecture); a missing or empty file holds none. EvidenceError names file and field."""
    document = read_json(file, EvidenceError) if file.is_file() else None
    if document is None:
        return {}
    top = Field(document, file, "", EvidenceError)
    top.keys({"schema", "records"})
    if (schema := top["schema"].integer()) != SCHEMA:
        top["schema"].fail(f"is schema {schema}, this version of kernwright reads schema {SCHEMA}")
    found: Records = {}
    for symbol, program in top["records"].items():
        for arch, field in program.items():
            found[symbol, arch] = _evidence(field)
    return found


def _evidence(field: Field) -> Evidence:
    field.keys({"checks"}, {"resources"})
    checks = []
    for item in field["checks"].elements():
        item.keys(set(Check.__dataclass_fields__))
        values = [item[name].text() for name in Check.__dataclass_fields__]
        item["text_sha256"].text(SHA256)
        checks.append(Check(*values))
    used = field.optional("resources")
    if used is None:
        return Evidence(None, "", "", tuple(checks))
    used.keys({*RESOURCES, "text_sha256", "toolchain"})
    resources = {name: used[name].integer(low=0) for name in RESOURCES}
    return Evidence(resources, used["text_sha256"].text(SHA256), used["toolchain"].text(), tuple(checks))


def write(file: Path, found: Mapping[tuple[str, str], Evidence]) -> bool:
    """Write evidence.json, sorted, in one step; False when nothing changed."""
    document: dict[str, dict[str, object]] = {}
    for symbol, arch in sorted(found):
        item = found[symbol, arch]
        entry: dict[str, object] = {}
        if item.resources is not None:
            entry["resources"] = {**item.resources, "text_sha256": item.text_sha256, "toolchain": item.toolchain}
        entry["checks"] = [{name: getattr(check, name) for name in Check.__dataclass_fields__} for check in item.checks]
        document.setdefault(symbol, {})[arch] = entry
    return write_atomically(file, (json.dumps({"schema": SCHEMA, "records": document}, indent=2) + "\n").encode())


def built(manifest: Manifest, folder: Path) -> dict[tuple[str, str], LibraryRecord]:
    """Records of the libraries in `folder` that were built from what build.json records, by (symbol, architecture)."""
    libraries = records.read(folder)
    found = {}
    for target in _targets(manifest):
        record = libraries.get(target.library)
        if record is not None and record.closure == target.closure and record.flags == target.flags:
            found[target.symbol, target.architecture.name] = record
    return found


def _targets(manifest: Manifest) -> list[TargetRecord]:
    return [target for program in manifest.programs.values() for target in program.targets.values()]


def report(manifest: Manifest, found: Records, libraries: Mapping[tuple[str, str], LibraryRecord]) -> list[Row]:
    """A row for the resources and for every check of each program and architecture, in build.json's order."""
    rows = []
    for target in _targets(manifest):
        key = (target.symbol, target.architecture.name)
        library, item = libraries.get(key), found.get(key, NOTHING)
        text = library.text_sha256.get(target.symbol) if library else None
        if item.resources is None:
            rows.append(Row(*key, "resources", "missing", "never compiled for the record"))
        else:
            detail = f"{item.resources['registers']} registers, nvcc {item.toolchain}"
            if library is not None and text != item.text_sha256:
                detail += _changes(item.resources, library, target.symbol)
            if library is not None and library.toolchain != item.toolchain:
                detail += f"; the library is by nvcc {library.toolchain}"
            rows.append(Row(*key, "resources", _state(item.text_sha256, text), detail))
        rows += [_check_row(key, check, text) for check in item.checks]
        if not item.checks:
            rows.append(Row(*key, "checks", "missing", "nothing was run on a device"))
    for (source, arch), item in sorted(found.items()):
        if _is_source(source):
            digest = sources_digest(manifest.root, source)
            rows += [_check_row((source, arch), check, digest) for check in item.checks]
    return rows


def _check_row(key: tuple[str, str], check: Check, text: str | None) -> Row:
    state = _state(check.text_sha256, text)
    if state == "fresh" and check.result.startswith(FAILED):
        state = "failed"
    return Row(*key, check.check, state, f"{check.result} on {check.device}, {check.date}")


def _changes(recorded: Mapping[str, int], library: LibraryRecord, symbol: str) -> str:
    """What the built library uses where it differs from the record: `; now registers 32 -> 40`."""
    now = library.resources[symbol].as_json() if symbol in library.resources else {}
    moved = [
        f"{name} {recorded[name]} -> {now[name]}" for name in RESOURCES if name in now and now[name] != recorded[name]
    ]
    return f"; other machine code now, {', '.join(moved) or 'the same resources'}"


def _is_source(key: str) -> bool:
    """Whether a record speaks of a hand-written source file rather than of a program."""
    return key.endswith(".cu")


def sources_digest(root: Path, source: str) -> str | None:
    """sha256 over a source and the headers it includes by relative path, headers sorted; None when one is missing."""
    pending, reached = [source], {source}
    while pending:
        file = root / pending.pop()
        if not file.is_file():
            return None
        for name in INCLUDE.findall(file.read_text(encoding="utf-8")):
            path = (file.parent / name).relative_to(root).as_posix()
            if path not in reached:
                reached.add(path)
                pending.append(path)
    ordered = [source, *sorted(reached - {source})]
    return text_digest(b"".join((root / path).read_bytes() for path in ordered))


def record(found: Records, file: Path) -> Records:
    """The records with the results of a device run: a JSON list of checks with `program`, `arch` and the fields of Check.

    A result replaces an older one of the same check, a pass as well as a failure; a check whose result is bound to another
    machine code goes. A hand-written source is checked by one program: when that fails, nothing older of it stays.
    """
    top = Field(read_json(file, EvidenceError), file, "", EvidenceError)
    fresh = dict(found)
    names = set(Check.__dataclass_fields__)
    for item in top.elements():
        item.keys(names | {"program", "arch"})
        item["text_sha256"].text(SHA256)
        check = Check(*(item[name].text() for name in Check.__dataclass_fields__))
        key = (item["program"].text(), item["arch"].text())
        old = fresh.get(key, NOTHING)
        kept = [other for other in old.checks if other.check != check.check and other.text_sha256 == check.text_sha256]
        if _is_source(key[0]) and check.result.startswith(FAILED):
            kept = []
        fresh[key] = replace(old, checks=tuple(sorted([*kept, check], key=lambda one: one.check)))
    return fresh


def _state(about: str, text: str | None) -> str:
    if text is None:
        return "unknown"
    return "fresh" if about == text else "stale"


def update(manifest: Manifest, found: Records, libraries: Mapping[tuple[str, str], LibraryRecord]) -> Records:
    """The records with the resources of `libraries`; checks stay as they are, programs that are gone go."""
    fresh: Records = {key: item for key, item in found.items() if _is_source(key[0])}
    for target in _targets(manifest):
        key = (target.symbol, target.architecture.name)
        item, library = found.get(key), libraries.get(key)
        if library is not None and {target.symbol} <= library.resources.keys() & library.text_sha256.keys():
            used = library.resources[target.symbol].as_json()
            text = library.text_sha256[target.symbol]
            fresh[key] = Evidence(used, text, library.toolchain, item.checks if item else ())
        elif item is not None:
            fresh[key] = item
    return fresh

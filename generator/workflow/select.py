"""Runs for some programs or architectures only: which units they cover, and the `build.json` that is true afterwards.

The generator always generates everything, because the texts of one program can depend on the others (shared headers,
one text for several architectures). A selection then decides which of the texts are written. On disk each unit stays
wholly old or wholly new: a unit that shares a changing file with a selected one is pulled into the selection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kernwright.generator.workflow.digest import lf_bytes
from kernwright.generator.workflow.plan import Entry, FileClass, Plan, make_plan
from kernwright.generator.workflow.record import (
    BUILD_JSON,
    BuildRecord,
    Unit,
    WorkflowError,
    evidence_units,
    read_record,
)

EVIDENCE_JSON = "evidence.json"


@dataclass(frozen=True, slots=True)
class Selection:
    """The units that a run covers. `pulled` are those that nobody asked for, `generated` all units that exist now."""

    units: frozenset[Unit]
    generated: frozenset[Unit]
    pulled: tuple[Unit, ...] = ()


def select_plan(
    root: Path, files: Mapping[str, str], new: BuildRecord, wanted: frozenset[Unit], whole: bool
) -> tuple[Plan, Selection]:
    """The plan of a run over the units `wanted`, or over the whole tree, unrecorded orphans included."""
    plan = make_plan(root, files)
    if whole:
        return plan, Selection(wanted, new.units)
    old = read_record(root)
    selection = widen(wanted, plan, old, new)
    return narrow(plan, selection, old, new, files[BUILD_JSON]), selection


def match_units(known: Iterable[Unit], patterns: Sequence[str], archs: Sequence[str]) -> frozenset[Unit]:
    """The units whose symbol matches one of `patterns` (globs; none: all) and whose architecture is in `archs` (none:
    all).

    Raises WorkflowError for a pattern or an architecture that matches nothing, with the names that come close.
    """
    units = frozenset(known)
    symbols, all_archs = sorted({unit.symbol for unit in units}), sorted({unit.arch for unit in units})
    for arch in archs:
        if arch not in all_archs:
            raise WorkflowError(
                f"no program is generated for {arch!r}; architectures: {', '.join(all_archs) or 'none'}"
            )
    for pattern in patterns:
        matching = {unit for unit in units if fnmatchcase(unit.symbol, pattern)}
        if not matching:
            close = get_close_matches(pattern, symbols, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(close)}?" if close else "regenerate-kernels --list names them all"
            raise WorkflowError(f"no program matches {pattern!r}; {hint}")
        if archs and not any(unit.arch in archs for unit in matching):
            has = ", ".join(sorted({unit.arch for unit in matching}))
            raise WorkflowError(f"{pattern!r} is not generated for {', '.join(archs)}, only for {has}")
    wanted = (unit for unit in units if not patterns or any(fnmatchcase(unit.symbol, p) for p in patterns))
    return frozenset(unit for unit in wanted if not archs or unit.arch in archs)


def widen(wanted: frozenset[Unit], plan: Plan, old: BuildRecord, new: BuildRecord) -> Selection:
    """Pulls in the recorded units that share a changing file, or a changing program entry, with a unit of `wanted`."""
    changing = {entry.path for entry in plan.changes}
    owners, former = new.owners(), old.owners()
    units = set(wanted)
    queue = sorted(wanted)
    while queue:
        unit = queue.pop()
        touched = (new.files.get(unit, frozenset()) | old.files.get(unit, frozenset())) & changing
        related = {other for path in touched for users in (owners, former) for other in users.get(path, ())} & old.units
        if old.program(unit.symbol) != new.program(unit.symbol):
            related |= {other for other in old.units if other.symbol == unit.symbol}
        queue += sorted(related - units)
        units |= related
    return Selection(frozenset(units), new.units, tuple(sorted(units - wanted)))


def narrow(plan: Plan, selection: Selection, old: BuildRecord, new: BuildRecord, generated: str) -> Plan:
    """The part of `plan` that concerns the selection, with the merged `build.json`.

    `generated` is the text of the whole new `build.json`. Orphans are kept in the plan when all that recorded them
    are selected; orphans that nobody recorded and temporaries are left to a run without a selection.
    """
    owners, former = new.owners(), old.owners()
    entries = []
    for entry in plan.entries:
        if entry.path == BUILD_JSON:
            entries.append(_merged_entry(entry, selection, old, new, generated))
        elif entry.path in owners:
            if owners[entry.path] & selection.units:
                entries.append(entry)
        elif entry.path in former and former[entry.path] <= selection.units:
            entries.append(entry)
    return Plan(tuple(entries))


def merge_records(selection: Selection, old: BuildRecord, new: BuildRecord) -> dict[str, Any]:
    """The JSON that holds the new entries of the selected units and the old entries of all others.

    The digest of the generator and the tables of the architectures become the new ones only when no old entry is left
    that differs from its new one. Raises WorkflowError when the old file has another schema, which a part cannot be
    merged into.
    """
    if old.data and old.data.get("schema") != new.data.get("schema"):
        raise WorkflowError(
            "build.json has another schema, so a part of it cannot be replaced: run without a selection"
        )
    programs: dict[str, Any] = {}
    for unit in sorted(old.units | new.units):
        source = new if unit in selection.units else old
        entry = source.unit(unit)
        if entry is not None:
            program = programs.setdefault(unit.symbol, {**source.program(unit.symbol), "architectures": {}})
            program["architectures"][unit.arch] = entry
    merged = {**new.data, "programs": programs}
    if programs != new.data["programs"]:
        kept = {unit.arch for unit in old.units - selection.units}
        rows = {arch: row for arch, row in old.data.get("architectures", {}).items() if arch in kept}
        merged["architectures"] = {**new.data.get("architectures", {}), **rows}
        merged["generator"] = old.data.get("generator", new.data.get("generator"))
    return merged


def _merged_entry(entry: Entry, selection: Selection, old: BuildRecord, new: BuildRecord, generated: str) -> Entry:
    merged = merge_records(selection, old, new)
    if merged == old.data:
        return Entry(BUILD_JSON, FileClass.UNCHANGED, "", entry.current, entry.current)
    text = generated if merged == new.data else render(merged)
    kind = FileClass.MISSING if entry.current is None else FileClass.STALE
    return Entry(BUILD_JSON, kind, "other entries are generated now", entry.current, text.encode())


def render(data: Mapping[str, Any]) -> str:
    """The text of a `build.json`, in the form that the generator gives it: sorted, one fact a line."""
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def stale_evidence(root: Path, selection: Selection) -> list[Unit]:
    """The units of the selection that `evidence.json` names and that are no longer generated, and all others unheard
    of.

    Raises WorkflowError when the file is there and is no JSON.
    """
    try:
        content = lf_bytes((root / EVIDENCE_JSON).read_bytes())
        named = evidence_units(json.loads(content)) if content.strip() else set()
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise WorkflowError(f"{EVIDENCE_JSON} is no JSON: {error}") from error
    kept = read_record(root).units - selection.units
    return sorted(named - selection.generated - kept)

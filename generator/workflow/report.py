"""What a run says: lines for people, JSON for programs, annotations for GitHub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernwright.generator.workflow.plan import FileClass, Plan
from kernwright.generator.workflow.record import Unit

FORMATS = ("text", "json", "github")
REPORT_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a run over `plan`.

    `written` says that the tree was changed, `refused` that hand edits kept the run from doing so. `pulled` are units
    written beside the selected ones, `evidence` those that `evidence.json` still names, `diffs` the diff of each path
    if asked for.
    """

    plan: Plan
    written: bool
    refused: bool
    exit_code: int
    pulled: Sequence[Unit] = ()
    evidence: Sequence[Unit] = ()
    diffs: Mapping[str, str] | None = None


def report_text(report: Report) -> str:
    """One line a file, `<class> <path>`, then what else there is to know, then a summary."""
    lines = [f"{entry.kind:<12} {entry.path}" for entry in report.plan.changes]
    lines += [f"{'pulled':<12} {unit}: it shares a file that changes" for unit in report.pulled]
    lines += [f"{'evidence':<12} evidence.json names {unit}, which is not generated" for unit in report.evidence]
    return "\n".join([*lines, summary(report)]) + "\n"


def report_json(report: Report) -> str:
    """One JSON object; its fields are listed in docs/regenerate-kernels.md."""
    files = []
    for entry in report.plan.changes:
        files.append({"path": entry.path, "class": str(entry.kind), "reason": entry.reason})
        if report.diffs is not None:
            files[-1]["diff"] = report.diffs.get(entry.path, "")
    data = {
        "schema": REPORT_SCHEMA,
        "exit": report.exit_code,
        "written": report.written,
        "files": files,
        "counts": {str(kind): count for kind, count in report.plan.counts().items()},
        "pulled": [{"program": unit.symbol, "arch": unit.arch} for unit in report.pulled],
        "evidence": [{"program": unit.symbol, "arch": unit.arch} for unit in report.evidence],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def report_github(report: Report) -> str:
    """Workflow commands: an annotation at each file that is off, a notice where the run has put it right."""
    level = "notice" if report.written else "error"
    lines = [github_annotation(level, entry.path, 1, str(entry.kind), entry.reason) for entry in report.plan.changes]
    for unit in report.evidence:
        text = f"names {unit}, which is not generated"
        lines.append(github_annotation("warning", "evidence.json", 1, "evidence", text))
    return "\n".join([*lines, summary(report)]) + "\n"


def github_annotation(level: str, path: str, line: int, title: str, text: str) -> str:
    """`::error file=...,line=...,title=...::text` with the characters escaped that would end a part of it."""
    escapes = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
    for character, escape in escapes:
        text = text.replace(character, escape)
    for character, escape in (*escapes, (":", "%3A"), (",", "%2C")):
        path, title = path.replace(character, escape), title.replace(character, escape)
    return f"::{level} file={path},line={line},title={title}::{text}"


def report_error(style: str, message: str, code: int, place: tuple[str, int] | None = None) -> str:
    """What standard output gets of an error: nothing in text form (the message is on standard error), else data."""
    if style == "json":
        data = {"schema": REPORT_SCHEMA, "exit": code, "error": message}
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if style == "github":
        path, line = place or ("build.json", 1)
        return github_annotation("error", path, line, "regenerate-kernels", message) + "\n"
    return ""


def summary(report: Report) -> str:
    """One line: how many files of each class, and what was or could be done."""
    counts = report.plan.counts()
    unchanged = f"{counts.pop(FileClass.UNCHANGED, 0)} unchanged"
    if not counts:
        return f"{unchanged}, nothing to do"
    classes = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    if report.written:
        removed = sum(entry.content is None for entry in report.plan.changes)
        done = f"wrote {len(report.plan.changes) - removed}, removed {removed}"
        return f"{done} ({classes}), {unchanged}"
    state = "refused, nothing was written" if report.refused else "would change"
    return f"{sum(counts.values())} {state} ({classes}), {unchanged}"


def hand_edit_help(plan: Plan) -> str:
    """What to do about the files that were edited by hand."""
    lines = [f"{entry.path} was edited by hand: {entry.reason}" for entry in plan.hand_edited]
    lines += [
        "  To keep the edit, move it into the description under generator/kernels/ or the template under templates/.",
        "  To give it up, restore the file from version control or run again with --force.",
    ]
    return "\n".join(lines) + "\n"

"""The command `regenerate-kernels`: writes the texts under `generated/` and `build.json`, or says how they differ.

There is no cache: every run generates everything anew and compares texts, so neither times nor recorded hashes can
make it believe that a file is right. Standard output is data; messages and progress go to standard error.

Exit codes: 0 clean or written, 1 something would change or was refused, 2 no verdict (usage, description, file
system, build, any unexpected exception), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kernwright.generator.workflow.record import BuildRecord, Unit
    from kernwright.generator.workflow.report import Report
    from kernwright.generator.workflow.select import Selection

CLEAN, WOULD_CHANGE, ERROR, INTERRUPTED = 0, 1, 2, 130
SUPPORTED_PYTHON = ((3, 11), (3, 13))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; argparse itself raises SystemExit (2 on a usage error)."""
    options = _parser().parse_args(arguments)
    _check_options(options)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        output, code = _run(options)
    except KeyboardInterrupt:
        _message("interrupted")
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        output, code = _explain(error, options.format), ERROR
    return _deliver(output, code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regenerate-kernels",
        description="Write the CUDA text of the kernel descriptions under generated/, and build.json.",
        epilog="Exit codes: 0 clean or written, 1 would change or refused, 2 error, 130 interrupted.",
        allow_abbrev=False,
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="symbols or globs of symbols (default: all)")
    parser.add_argument("--arch", metavar="A[,B]", default=None, help="only these architectures")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    parser.add_argument("--diff", action="store_true", help="write nothing, print unified diffs; exit 1 if any")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, list what would change; exit 0")
    parser.add_argument("--list", action="store_true", help="list programs, architectures and kernel files; exit 0")
    parser.add_argument("--force", action="store_true", help="overwrite files that were edited by hand")
    parser.add_argument("--verify", choices=("build",), help="then build the libraries, check their code")
    parser.add_argument("-j", "--jobs", type=_positive, metavar="N", help="parallel compilers of --verify build")
    parser.add_argument("--format", choices=("text", "json", "github"), default="text", help="form of standard output")
    parser.add_argument(
        "--wait", type=_seconds, default=30.0, metavar="SECONDS", help="for another run that is writing"
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _check_options(options: argparse.Namespace) -> None:
    reading = [name for name in ("check", "diff", "dry_run", "list") if getattr(options, name)]
    if options.force and reading:
        _parser().error(f"--force writes and --{reading[0].replace('_', '-')} does not")
    if options.check and options.dry_run:
        _parser().error("--check and --dry-run differ in their exit code: choose one")
    if options.list and (len(reading) > 1 or options.verify):
        _parser().error("--list stands alone")


def _run(options: argparse.Namespace) -> tuple[str, int]:
    """The whole run: what to print, and the exit code."""
    _check_python()
    _progress("generating")
    from kernwright.generator.errors import repository_root
    from kernwright.generator.pipeline import generate
    from kernwright.generator.workflow import record, report, select, write

    root = repository_root()
    _check_place(root)
    files = generate().files
    new = record.generated_record(files)
    archs = tuple(arch.strip() for arch in options.arch.split(",")) if options.arch is not None else ()
    wanted = select.match_units(record.read_record(root).units | new.units, options.programs, archs)
    if options.list:
        return _listing(new, wanted, options.format), CLEAN
    reading = options.check or options.diff or options.dry_run
    with nullcontext() if reading else write.tree_lock(root, options.wait, _message):
        _progress("comparing")
        plan, selection = select.select_plan(root, files, new, wanted, whole=not options.programs and not archs)
        evidence = select.stale_evidence(root, selection)
        write_now = bool(plan.changes) and not reading and (options.force or not plan.hand_edited)
        if write_now:
            _progress("writing")
            write.apply_plan(root, plan)
    code = CLEAN if write_now or options.dry_run or not plan.changes else WOULD_CHANGE
    if options.verify:
        code = _build(root, selection, options) if write_now or not plan.changes else _not_built(code)
    refused = bool(plan.hand_edited) and not write_now and not reading
    outcome = report.Report(plan, write_now, refused, code, selection.pulled, evidence)
    return _render(outcome, options), code


def _render(outcome: Report, options: argparse.Namespace) -> str:
    """What standard output gets of a run that reached a verdict; hints go to standard error."""
    from dataclasses import replace

    from kernwright.generator.workflow import diff, report

    plan = outcome.plan
    colour = options.format == "text" and diff.wants_colour(sys.stdout)
    diffs = {entry.path: diff.unified_diff(entry, colour) for entry in plan.changes} if options.diff else None
    outcome = replace(outcome, diffs=diffs)
    if plan.hand_edited and not outcome.written:
        _message(report.hand_edit_help(plan))
    if options.format == "json":
        return report.report_json(outcome)
    lines = report.report_github(outcome) if options.format == "github" else report.report_text(outcome)
    if diffs is None:
        return lines
    if options.format == "github":
        return lines + "".join(diffs.values())
    _message(lines.rstrip("\n"))
    return "".join(diffs.values())


def _listing(record: BuildRecord, wanted: frozenset[Unit], style: str) -> str:
    rows = [(unit.symbol, unit.arch, record.unit(unit)["kernel"]) for unit in sorted(wanted & record.units)]
    if style == "json":
        import json

        return json.dumps([dict(zip(("program", "arch", "kernel"), row, strict=True)) for row in rows], indent=2) + "\n"
    return "".join(f"{symbol}\t{arch}\t{kernel}\n" for symbol, arch, kernel in rows)


def _build(root: Path, selection: Selection, options: argparse.Namespace) -> int:
    """Builds the libraries of the selected units in a process of its own, because this one never imports torch; then
    holds their machine code against the lowered programs."""
    import subprocess

    from kernwright.generator.workflow.machine_code import verify_units

    _progress("")
    symbols_by_arch: dict[str, list[str]] = {}
    for unit in sorted(selection.units & selection.generated):
        symbols_by_arch.setdefault(unit.arch, []).append(unit.symbol)
    jobs = ["-j", str(options.jobs)] if options.jobs else []
    for arch, symbols in symbols_by_arch.items():
        command = [sys.executable, "-m", "kernwright.cli", "build", *symbols, "--arch", arch, *jobs]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False)
        if result.returncode:
            _message(f"the build for {arch} ended with exit code {result.returncode}")
            return INTERRUPTED if result.returncode == INTERRUPTED else ERROR
    return CLEAN if verify_units(root, selection.units & selection.generated, _message) else ERROR


def _not_built(code: int) -> int:
    _message("nothing was built: the tree is not what would be generated")
    return code


def _check_python() -> None:
    found, (oldest, newest) = sys.version_info[:2], SUPPORTED_PYTHON
    if not oldest <= found <= newest:
        name, first, last = (f"{major}.{minor}" for major, minor in (found, oldest, newest))
        raise RuntimeError(f"Python {name} is not supported: the same text is promised for Python {first} to {last}")


def _check_place(root: Path) -> None:
    """Refuses to work on one tree from inside another: an installed copy would silently check or write its own files."""
    from pathlib import Path

    from kernwright.generator.workflow.record import WorkflowError

    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "build.json").is_file() and (folder / "generator" / "kernels").is_dir():
            if folder.resolve() != root:
                raise WorkflowError(f"this command works on {root}, not on {folder}: install that checkout with pip -e")
            return


def _explain(error: BaseException, style: str) -> str:
    """Says on standard error why there is no verdict; returns what standard output gets."""
    from kernwright.generator.errors import KernelError
    from kernwright.generator.workflow.record import WorkflowError
    from kernwright.generator.workflow.report import report_error

    place = None
    if isinstance(error, KernelError):
        text, place = str(error), (error.source.file, error.source.line)
    elif isinstance(error, (WorkflowError, OSError)):
        text = f"regenerate-kernels: {error}"
    else:
        import traceback

        text = "".join(traceback.format_exception(error)) + "regenerate-kernels: no verdict, because of this exception"
    _message(text)
    return report_error(style, str(error) or type(error).__name__, ERROR, place)


def _deliver(output: str, code: int) -> int:
    """Writes `output` to standard output. A reader that went away is no error; a full disk behind it is one."""
    _progress("")
    try:
        sys.stdout.write(output)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _message(f"regenerate-kernels: cannot write to standard output: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    return code


def _message(text: str) -> None:
    _progress("")
    sys.stderr.write(text.rstrip("\n") + "\n")


def _progress(text: str) -> None:
    """Shows what is going on, in one line that the next one replaces; only a terminal sees it."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

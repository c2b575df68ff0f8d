"""The `kernwright` command. Every subcommand imports what it needs when it runs; standard output is data.

Exit codes: 0 done, 1 something is stale or too old, 2 an error or wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kernwright.runtime.toolchain import command as toolchain_command

Action = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    action: Action = options.action_of_command
    try:
        return action(options)
    except KeyboardInterrupt:
        return 130
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernwright", description="Build, explain and account for GPU kernels.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    build = commands.add_parser("build", help="build libraries from the generated text")
    build.add_argument("programs", nargs="*", metavar="PROGRAM", help="symbols of build.json; default: all")
    build.add_argument("--all", action="store_true", help="all programs, which is also the default")
    _add_arch(build)
    _add_folder(build, "--out", "where the libraries go; default: build/libraries beside build.json")
    build.add_argument("-j", "--jobs", type=int, default=None, help="commands at a time; default: processors")
    build.set_defaults(action_of_command=_build)

    toolchain = commands.add_parser("toolchain", help="fetch or find the CUDA compiler")
    toolchain_command.add_arguments(toolchain)
    toolchain.set_defaults(action_of_command=lambda options: toolchain_command.run(options.action))

    explain = commands.add_parser("explain", help="explain an error code, or a program's layouts and schedule")
    explain.add_argument("subject", nargs="+", metavar="CODE|PROGRAM")
    explain.add_argument(
        "--arch", default=None, metavar="ARCH", help="for a program: one architecture; default: each of its own"
    )
    explain.set_defaults(action_of_command=_explain)

    evidence = commands.add_parser("evidence", help="what is proved of every program, and whether it still holds")
    evidence.add_argument("--update", action="store_true", help="write the resources of the built libraries")
    evidence.add_argument(
        "--record", type=Path, metavar="FILE", help="add the results that `python -m tests.gpu --out FILE` wrote"
    )
    evidence.add_argument(
        "--check", action="store_true", help="exit 1 unless all resources are recorded and fresh, and no check failed"
    )
    _add_folder(evidence, "--libraries", "folder of the built libraries; default: build/libraries beside build.json")
    evidence.set_defaults(action_of_command=_evidence)
    return parser


def _add_arch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", action="append", default=None, metavar="ARCH[,ARCH]", help="default: all")


def _add_folder(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    parser.add_argument(option, type=Path, default=None, metavar="FOLDER", help=text)


def _build(options: argparse.Namespace) -> int:
    from kernwright.runtime.build import build
    from kernwright.runtime.build.progress import Stderr

    if options.all and options.programs:
        raise ValueError("name programs or give --all, not both")
    archs = [name for text in options.arch for name in text.split(",") if name] if options.arch else None
    result = build(options.programs or None, archs, options.out, options.jobs, Stderr())
    for name, record in result.libraries.items():
        print(f"{result.folder / name}.so {record.sha256}")
    return 0


def _explain(options: argparse.Namespace) -> int:
    try:
        explain = importlib.import_module("kernwright.generator.explain")
    except ImportError as error:
        raise RuntimeError(f"explain needs the generator and its packages: {error}") from error
    code: int = explain.main(options.subject, options.arch)
    return code


def _evidence(options: argparse.Namespace) -> int:
    from kernwright.runtime import evidence, manifest
    from kernwright.runtime.paths import LIBRARIES

    programs = manifest.load()
    file = programs.root / "evidence.json"
    libraries = evidence.built(programs, options.libraries or programs.root / LIBRARIES)
    found = evidence.read(file)
    if options.update:
        found = evidence.update(programs, found, libraries)
    if options.record:
        found = evidence.record(found, options.record)
    if options.update or options.record:
        evidence.write(file, found)
    rows = evidence.report(programs, found, libraries)
    for row in rows:
        print(f"{row.symbol} {row.architecture} {row.subject}: {row.state} ({row.detail})")
    bad = [row for row in rows if row.state == "failed" or (row.subject == "resources" and row.state != "fresh")]
    return 1 if options.check and bad else 0


if __name__ == "__main__":
    sys.exit(main())

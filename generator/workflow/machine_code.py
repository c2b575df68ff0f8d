"""The part of `--verify build` that reads the machine code of what was built and holds it against the lowered programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kernwright.generator.workflow.record import Unit, WorkflowError
from kernwright.runtime.paths import LIBRARIES, WORK

if TYPE_CHECKING:
    from kernwright.generator.sass import Finding, Verdict

SHOWN = ("HGMMA", "UTCHMMA", "UTMALDG", "UTMASTG")
PLACES_SHOWN = 3


def verify_units(root: Path, units: Iterable[Unit], message: Callable[[str], None]) -> bool:
    """Check the machine code of `units` under `root`; says of each what was found and returns whether all of it is right.

    A unit whose build left no machine code is named and passes. Raises WorkflowError and ToolchainError where there is no verdict.
    """
    built = []
    for unit in sorted(units):
        path = root / LIBRARIES / WORK / f"{unit.symbol}.{unit.arch}.cubin"
        if path.is_file():
            built.append((unit, path))
        else:
            message(f"{unit}: no machine code at {path.relative_to(root)}, its order was not checked")
    if not built:
        return True
    from kernwright.generator.arch import ARCHITECTURES
    from kernwright.generator.passes.lower import lower
    from kernwright.generator.pipeline import discover
    from kernwright.generator.sass import SassError, check_program, disassemble, parse
    from kernwright.runtime.toolchain import discover as find_toolchain

    sources, toolchain = discover(), find_toolchain()
    right = True
    for unit, path in built:
        program = lower(sources[unit.symbol].trace(), ARCHITECTURES[unit.arch]).program
        try:
            verdict = check_program(program, parse(disassemble(path, toolchain)))
        except SassError as error:
            raise WorkflowError(f"{unit}: {error}") from error
        message("\n".join(report(verdict, root)))
        right &= not verdict.findings and not verdict.spills
    return right


def report(verdict: Verdict, root: Path) -> list[str]:
    """Lines on a verdict: a summary, or each fault with the author's lines that it concerns."""
    unit = f"{verdict.symbol} ({verdict.arch})"
    lines = []
    if verdict.spills:
        lines.append(f"{unit}: {verdict.spills} loads and stores of local memory")
    for finding in verdict.findings:
        lines.append(f"{unit}: {finding}")
        lines += [f"    {text}" for text in quoted(finding, root)]
    if not lines:
        words = ["machine code in order", f"{verdict.events} synchronising statements"]
        words += [f"{verdict.opcodes[opcode]} {opcode}" for opcode in SHOWN if opcode in verdict.opcodes]
        lines.append(f"{unit}: {', '.join(words)}")
    return lines


def quoted(finding: Finding, root: Path) -> list[str]:
    """`file:line: text` of the statements that a finding names."""
    found = []
    for source in dict.fromkeys(place.source for place in finding.places):
        path = root / source.file
        if source.line and path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            if source.line <= len(lines):
                found.append(f"{source}: {lines[source.line - 1].strip()}")
    return found[:PLACES_SHOWN]

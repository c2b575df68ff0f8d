"""The shared headers under generated/include: one wrapper an instruction, only those that some shipped program uses."""

from __future__ import annotations

from collections.abc import Iterable

from kernwright.generator.emit.templates import environment, header_line
from kernwright.generator.instructions import Instruction, lookup, table
from kernwright.generator.ir.program import LoweredProgram

INCLUDE_FOLDER = "generated/include"


def header_of(entry: Instruction) -> str | None:
    """The path of the header that holds an entry's wrapper; None for an intrinsic of CUDA."""
    return f"{INCLUDE_FOLDER}/{entry.header}.cuh" if entry.cuda else None


def headers_of(program: LoweredProgram) -> tuple[str, ...]:
    """Paths of the headers that a program includes, sorted."""
    return tuple(sorted({path for name in program.instructions if (path := header_of(lookup(name)))}))


def include_of(program: LoweredProgram) -> list[str]:
    """The `#include` operands of a kernel file, relative to its folder."""
    return [f"../include/{path.rpartition('/')[2]}" for path in headers_of(program)]


def print_headers(programs: Iterable[LoweredProgram]) -> dict[str, str]:
    """Path to text of every header, holding in the table's order what the programs use."""
    used = {name for program in programs for name in program.instructions}
    texts: dict[str, str] = {}
    for path in sorted({found for name in used if (found := header_of(lookup(name)))}):
        wrappers = [entry.cuda for entry in table() if entry.name in used and header_of(entry) == path]
        texts[path] = environment().get_template("header.cuh.j2").render(header=header_line(), wrappers=wrappers)
    return texts

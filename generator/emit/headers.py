"""The shared headers under generated/include: one wrapper an instruction, only those that some shipped program uses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.emit.templates import environment, header_line
from kernwright.generator.instructions import Instruction, lookup, table
from kernwright.generator.ir.program import LoweredProgram

INCLUDE_FOLDER = "generated/include"
COMMON = "common"
# A CUDA header, and a type of it that a wrapper may use.
CUDA_HEADERS = {"cuda.h": "CUtensorMap", "cuda_bf16.h": "__nv_bfloat16"}


def header_of(entry: Instruction) -> str | None:
    """The path of the header that holds an entry's wrapper; None for an intrinsic of CUDA."""
    return _path(entry.header) if entry.cuda else None


def headers_of(program: LoweredProgram) -> tuple[str, ...]:
    """Paths of the headers that a program is built from, sorted."""
    return tuple(sorted({path for entry in _entries(program) if (path := header_of(entry))}))


def include_of(program: LoweredProgram) -> list[str]:
    """The `#include` operands of a kernel file, relative to its folder; a machine's header includes the common one."""
    names = [path.rpartition("/")[2] for path in headers_of(program)]
    own = [name for name in names if name != f"{COMMON}.cuh"]
    return [f"../include/{name}" for name in own or names]


def print_headers(programs: Iterable[LoweredProgram]) -> dict[str, str]:
    """Path to text of every header, holding in the table's order what the programs use."""
    used = [entry for program in programs for entry in _entries(program) if entry.cuda]
    texts: dict[str, str] = {}
    for header in sorted({entry.header for entry in used}):
        wrappers = [entry.cuda for entry in table() if entry.header == header and entry in used]
        includes = [f"<{name}>" for name, word in CUDA_HEADERS.items() if any(word in text for text in wrappers)]
        if header != COMMON and any(entry.header == COMMON for entry in used):
            includes.append(f'"{COMMON}.cuh"')
        texts[_path(header)] = (
            environment()
            .get_template("header.cuh.j2")
            .render(header=header_line(), includes=includes, wrappers=wrappers)
        )
    return texts


def _entries(program: LoweredProgram) -> list[Instruction]:
    """The entries that a program uses, with those that their wrappers call."""
    arch = ARCHITECTURES[program.arch]
    names = {entry.name for entry in table()}
    pending, found = list(program.instructions), {}
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = lookup(name, arch)
            pending += names & set(re.findall(r"\w+", found[name].cuda)) - {name}
    return list(found.values())


def _path(header: str) -> str:
    return f"{INCLUDE_FOLDER}/{header}.cuh"

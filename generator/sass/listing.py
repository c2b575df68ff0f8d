"""Reads the text that `nvdisasm -c` prints of a cubin: functions, labels, and instructions with their predicate and operands."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernwright.runtime.toolchain import Toolchain

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[0-9T]+)\s+)?([A-Z][A-Za-z0-9_.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^([.$\w]+):\s*$")
SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
FUNCTION = re.compile(r"^\s*\.type\s+([^,\s]+),@function")
TARGET = re.compile(r"`\(([^)]+)\)")
TARGETS = re.compile(r"BRANCH_TARGETS\s+([^\"*]+)")


class SassError(RuntimeError):
    """A disassembly that cannot be had, read or followed: no verdict."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction. `guard` is its predicate (`P0`, `UP1`; "" for none), `negated` says `@!`.

    `targets` are the labels that it may go to. `text` is what the disassembler prints, blanks collapsed.
    """

    address: int
    guard: str
    negated: bool
    opcode: str
    operands: tuple[str, ...]
    targets: tuple[str, ...]
    text: str

    @property
    def root(self) -> str:
        """The opcode without its modifiers: `STS` of `STS.128`."""
        return self.opcode.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.address:#06x} {self.text}"


@dataclass(frozen=True, slots=True)
class SassFunction:
    """A function: its instructions in the order of the listing, and the position that each label stands before."""

    name: str
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]


@dataclass(frozen=True, slots=True)
class Listing:
    """The functions of a cubin by name; `kernel` of each section is the function that the section is named after."""

    functions: dict[str, SassFunction]


def disassemble(cubin: Path, toolchain: Toolchain) -> str:
    """What `nvdisasm -c` of `toolchain` prints of `cubin`. Raises SassError when it fails, ToolchainError when it is missing."""
    command = [str(toolchain.tool("nvdisasm")), "-c", str(cubin)]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        raise SassError(f"nvdisasm cannot read {cubin}: {result.stderr.strip() or result.returncode}")
    return result.stdout


def parse(text: str) -> Listing:
    """The functions of a disassembly. Raises SassError for a line with an address that is no instruction, and for no function."""
    functions: dict[str, SassFunction] = {}
    for name, lines in _sections(text):
        instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        starts: list[tuple[str, int]] = [(name, 0)]
        for line in lines:
            if match := FUNCTION.match(line):
                if match[1] != name:
                    starts.append((match[1], len(instructions)))
            elif match := LABEL.match(line):
                labels[match[1]] = len(instructions)
            elif match := INSTRUCTION.match(line):
                instructions.append(_instruction(match, line))
            elif re.match(r"^\s*/\*[0-9a-f]{4,}\*/\s+\S", line):
                raise SassError(f"not an instruction of a disassembly: {line.strip()!r}")
        ends = [start for _, start in starts[1:]] + [len(instructions)]
        for (function, start), end in zip(starts, ends, strict=True):
            inside = {label: at - start for label, at in labels.items() if start <= at <= end}
            functions[function] = SassFunction(function, tuple(instructions[start:end]), inside)
    if not functions:
        raise SassError("the disassembly holds no function")
    return Listing(functions)


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        if match := SECTION.match(line):
            if name:
                yield name, lines
            name, lines = match[1], []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def _instruction(match: re.Match[str], line: str) -> Instruction:
    address, guard, opcode, rest = match.groups()
    words = tuple(word.strip() for word in re.split(r",(?![^\[(]*[\])])", rest) if word.strip())
    targets = tuple(TARGET.findall(rest))
    if listed := TARGETS.search(line):
        targets = tuple(part.strip() for part in listed[1].split(",") if part.strip())
    predicate = (guard or "").lstrip("@")
    text = " ".join(f"{guard or ''} {opcode} {rest}".split())
    return Instruction(int(address, 16), predicate.lstrip("!"), predicate.startswith("!"), opcode, words, targets, text)

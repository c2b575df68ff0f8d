"""The verdict on one program: findings, spills, counts of opcodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kernwright.generator.ir.program import LoweredProgram
from kernwright.generator.sass.expected import expected
from kernwright.generator.sass.listing import Listing, SassError
from kernwright.generator.sass.order import Finding, Walk

SPILLS = ("STL", "LDL")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the machine code of a program says: `findings` are faults, `opcodes` counts opcodes without modifiers."""

    symbol: str
    arch: str
    findings: tuple[Finding, ...]
    opcodes: Mapping[str, int]
    events: int

    @property
    def spills(self) -> int:
        """Loads and stores of local memory."""
        return sum(self.opcodes.get(opcode, 0) for opcode in SPILLS)


def check_program(program: LoweredProgram, listing: Listing) -> Verdict:
    """Hold the kernel in `listing` against `program`. Raises SassError for code without the kernel, or that cannot be followed."""
    function = listing.functions.get(program.symbol)
    if function is None:
        raise SassError(f"the disassembly holds no {program.symbol}, only {', '.join(sorted(listing.functions))}")
    automaton = expected(program)
    walk = Walk(function, automaton, listing)
    walk.run()
    opcodes = Counter(instruction.root for instruction in function.instructions)
    findings = sorted(walk.findings.values(), key=lambda item: (item.address is None, item.address or 0, item.rule))
    return Verdict(
        program.symbol, program.arch, tuple(findings), dict(sorted(opcodes.items())), len(automaton.required)
    )

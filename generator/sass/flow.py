"""Control flow and predicates of a function: successors, basic blocks, predicates that are written and that are live."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernwright.generator.sass.listing import Instruction, SassError, SassFunction

PREDICATE = re.compile(r"^!?(U?P[0-6])$")
ANY_PREDICATE = re.compile(r"(?<![A-Z0-9_])U?P[0-6](?![A-Z0-9_])")
BRANCHES = ("BRA", "BRX", "JMP", "JMX", "BRXU")
ENDS = ("EXIT", "RET", "KILL")


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: positions `first` to `last` (inclusive), and the positions that control may go on to."""

    first: int
    last: int
    successors: tuple[int, ...]


def branch_targets(function: SassFunction, position: int) -> tuple[int, ...]:
    """The positions that a branch may go to. Raises SassError for an indirect branch whose targets the listing does not tell."""
    instruction = function.instructions[position]
    if not instruction.targets:
        raise SassError(f"{function.name}: {instruction}: the listing does not say where this goes")
    missing = [label for label in instruction.targets if label not in function.labels]
    if missing:
        raise SassError(f"{function.name}: {instruction}: no label {missing[0]} in this function")
    return tuple(function.labels[label] for label in instruction.targets)


def conditional(instruction: Instruction) -> tuple[str, bool]:
    """The predicate that decides whether an instruction takes effect, and whether it is negated; "" for always.

    A branch has it as its guard or as its operand (`BRA.U UP0`); never both.
    """
    if instruction.guard not in ("", "PT", "UPT"):
        return instruction.guard, instruction.negated
    if instruction.root in BRANCHES and instruction.operands and PREDICATE.match(instruction.operands[0]):
        word = instruction.operands[0]
        return word.lstrip("!"), word.startswith("!")
    return "", False


def by_register(instruction: Instruction) -> bool:
    """True for a branch that something beside its guard decides: a mask (`BRA.DIV UR4`), or a second predicate."""
    if instruction.root not in BRANCHES or instruction.root.startswith("BRX"):
        return False
    words = [word for word in instruction.operands if "`(" not in word]
    if not instruction.guard and words and PREDICATE.match(words[0]):
        words = words[1:]
    return bool(words)


def never(instruction: Instruction) -> bool:
    """True for a guard that is never true (`@!PT`)."""
    return instruction.guard in ("PT", "UPT") and instruction.negated


def successors(function: SassFunction, position: int) -> tuple[int, ...]:
    """The positions that control may go to after an instruction."""
    instruction = function.instructions[position]
    after = (position + 1,) if position + 1 < len(function.instructions) else ()
    if never(instruction):
        return after
    if instruction.root in BRANCHES:
        taken = branch_targets(function, position)
        return (*taken, *after) if conditional(instruction)[0] or by_register(instruction) else taken
    if instruction.root in ENDS:
        return after if conditional(instruction)[0] else ()
    return after


def blocks(function: SassFunction) -> tuple[Block, ...]:
    """The basic blocks in the order of the listing."""
    heads = {0} | {at for at in function.labels.values() if at < len(function.instructions)}
    for position, instruction in enumerate(function.instructions):
        if instruction.root in (*BRANCHES, *ENDS):
            heads.add(position + 1)
    ordered = sorted(head for head in heads if head < len(function.instructions))
    ends = [*(head - 1 for head in ordered[1:]), len(function.instructions) - 1]
    return tuple(Block(a, b, successors(function, b)) for a, b in zip(ordered, ends, strict=True))


def predicates_written(instruction: Instruction) -> tuple[str, ...]:
    """The predicate registers that an instruction may write; a few that it only reads may be among them."""
    if instruction.root in BRANCHES:
        return ()
    count = 2 if instruction.root.endswith("SETP") or "PLOP3" in instruction.root else 3
    found = (PREDICATE.match(word) for word in instruction.operands[:count] if not word.startswith("!"))
    return tuple(match[1] for match in found if match)


def predicates_read(instruction: Instruction) -> frozenset[str]:
    """The predicate registers that an instruction reads or may read."""
    named = set(ANY_PREDICATE.findall(" ".join(instruction.operands)))
    written = instruction.operands[: 2 if "PLOP3" in instruction.root or instruction.root.endswith("SETP") else 1]
    named -= {word for word in written if instruction.root not in BRANCHES}
    later = " ".join(instruction.operands[len(written) :])
    named |= set(ANY_PREDICATE.findall(later))
    return frozenset(named | ({instruction.guard} if instruction.guard else set()))


def live_predicates(function: SassFunction, parts: tuple[Block, ...]) -> dict[int, frozenset[str]]:
    """The predicates whose value may still be read, at the first instruction of each block."""
    live = {block.first: frozenset[str]() for block in parts}
    changed = True
    while changed:
        changed = False
        for block in reversed(parts):
            now = frozenset[str]().union(*(live[at] for at in block.successors))
            for position in range(block.last, block.first - 1, -1):
                instruction = function.instructions[position]
                if not instruction.guard:
                    now -= frozenset(predicates_written(instruction))
                now |= predicates_read(instruction)
            if now != live[block.first]:
                live[block.first], changed = now, True
    return live


def plop3(instruction: Instruction) -> tuple[str, int] | None:
    """(destination, value) of `PLOP3.LUT` as ("P0", 0 or 1) for a constant, ("P0=UP0", 2) for a copy; None for anything else."""
    words = instruction.operands
    if "PLOP3" not in instruction.root or len(words) < 6 or not PREDICATE.match(words[0]):
        return None
    sources, table = words[2:5], int(words[5], 16)
    unknown = [word for word in sources if word not in ("PT", "UPT", "!PT", "!UPT")]
    if len(unknown) > 1 or (unknown and unknown[0].startswith("!")):
        return None
    results = []
    for value in (0, 1):
        bits = [value if word in unknown else int(not word.startswith("!")) for word in sources]
        results.append(table >> (bits[0] << 2 | bits[1] << 1 | bits[2]) & 1)
    if results[0] == results[1]:
        return words[0], results[0]
    return (f"{words[0]}={unknown[0]}", 2) if results == [0, 1] else None

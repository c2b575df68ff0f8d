"""Products on wgmma machines: fence, instructions, group, and the wait behind which registers and stages are free again."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.instructions.descriptors import Descriptor
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Binary, Const, Expr, Var, integer
from kernwright.generator.ir.layout import MMA_K, MMA_ROWS, WgmmaAccumulator
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import ArrayOperand, Let, Repeat, Statement
from kernwright.generator.ir.types import boolean, i32, u64
from kernwright.generator.passes.derive import MmaFacts
from kernwright.generator.passes.roles.base import GROUP, RoleLowering
from kernwright.generator.passes.roles.context import plus, stage_of, times
from kernwright.generator.passes.roles.operands import (
    STEP,
    advanced,
    over_steps,
    row_offset,
    start_of,
    step_offset,
    view_name,
)

FRAGMENT = Var("fragment", i32)


@dataclass
class Group:
    """Products that are committed together: their positions, and the arrays that nobody may touch until they are done."""

    positions: set[int]
    arrays: list[str] = field(default_factory=list)


class WgmmaProducts(RoleLowering):
    """Issuing and waiting. `groups` are those that the text has committed and not waited for, oldest first."""

    groups: list[Group]
    open_group: Group | None
    dirty: set[str]  # arrays that ordinary code has written since the last pin
    named: dict[str, tuple[object, int]]  # descriptors by name: what they stand for, in which generation of its ring
    generation: dict[str, int]

    def start(self) -> None:
        self.groups, self.open_group, self.dirty = [], None, set()
        self.named, self.generation = {}, {}

    # ---- issue

    def issue(self, mma: ir.Mma, position: int) -> None:
        """The instructions of one product, in the open group or in a new one."""
        facts = self.context.product(mma)
        accumulator = self.accumulator_layout(mma.accumulator)
        array = self.array_of(mma.accumulator)
        operand = self.array_of(mma.a.name) if isinstance(mma.a, Var) else None
        starts = [start for side in ("a", "b") if (start := self._start(facts, side))]
        if self.open_group is None:
            touched = [name for name in (array, operand) if name in self.dirty]
            for name in touched:
                self.pin(name)
            self.add(*starts)
            self.execute("wgmma_fence", source=mma.source)
            self.open_group = Group(set())
        else:
            self.add(*starts)
        self.open_group.positions.add(position)
        self.open_group.arrays += [
            name for name in (array, operand) if name is not None and name not in self.open_group.arrays
        ]
        self.add(*self._instructions(facts, accumulator, array, operand))

    def _start(self, facts: MmaFacts, side: str) -> Let | None:
        """The descriptor at the operand's start as a value of its own, unless the scope has it already."""
        tile = facts.mma.a if side == "a" else facts.mma.b
        operand = facts.a if side == "a" else facts.b
        if not isinstance(tile, ir.SharedTile) or not isinstance(operand, Descriptor):
            return None
        name = view_name(tile, operand)
        key = (tile.pipeline, tile.name, operand.layout)
        now = self.generation.get(tile.pipeline or "", 0)
        if self.named.get(name) == (key, now):
            return None
        self.named[name] = (key, now)
        offset: Expr = integer(0)
        rows = operand.layout.rows // max(1, self.role.warpgroups)
        if side == "a" and self.role.warpgroups > 1:
            offset = times(GROUP, integer(row_offset(operand.layout, rows)))
        stage = stage_of(tile.pipeline) if tile.pipeline else self.copy_index(tile)
        return Let(Var(name, u64), start_of(self.context, tile, operand, stage, offset), source=facts.mma.source)

    def _instructions(
        self, facts: MmaFacts, layout: WgmmaAccumulator, array: str, operand: str | None
    ) -> tuple[Statement, ...]:
        mma = facts.mma
        depth = facts.b.layout.columns
        step: Expr = STEP if depth > MMA_K else integer(0)
        fragment: Expr | None = FRAGMENT if layout.fragments > 1 else None
        b = advanced(self.context, Var(view_name(mma.b, facts.b), u64), step_offset(self.context, mma.b, facts.b, step))
        accumulate = accumulate_flag(mma.accumulate, step)
        target = ArrayOperand(array, fragment)
        if operand is not None:
            registers = ArrayOperand(operand, fragment, times(integer(4), step))
            name = f"wgmma_m64n{layout.columns}k16_bf16_rs"
            turned = integer(int(facts.b.layout.major == "MN"))
            product = self.context.execute(name, turned, target, registers, b, accumulate, source=mma.source)
        else:
            assert isinstance(mma.a, ir.SharedTile) and isinstance(facts.a, Descriptor)
            offset = step_offset(self.context, mma.a, facts.a, step)
            if fragment is not None:
                offset = plus(times(integer(row_offset(facts.a.layout, MMA_ROWS)), fragment), offset)
            a = advanced(self.context, Var(view_name(mma.a, facts.a), u64), offset)
            turns = (integer(int(side.layout.major == "MN")) for side in (facts.a, facts.b))
            name = f"wgmma_m64n{layout.columns}k16_bf16_ss"
            product = self.context.execute(name, *turns, target, a, b, accumulate, source=mma.source)
        body: tuple[Statement, ...] = (product,)
        if fragment is not None:
            count = self.context.constant(
                f"{mma.accumulator}_fragments", layout.fragments, "of 64 rows, stacked in a thread's registers"
            )
            body = (Repeat(Var("fragment", i32, 0, layout.fragments - 1), count, body, source=mma.source),)
        return over_steps(self.context, depth, body, mma.source)

    def close(self) -> None:
        """Commit the products issued since the last fence as one group."""
        if self.open_group is None:
            return
        self.execute("wgmma_commit_group")
        self.groups.append(self.open_group)
        self.open_group = None

    # ---- wait

    def wait_until(self, positions: set[int], source: Source, why: str = "") -> None:
        """Wait until the products issued at these positions are done; younger groups may go on running."""
        self.close()
        last = max((number for number, group in enumerate(self.groups) if group.positions & positions), default=-1)
        if last < 0:
            return
        done, self.groups = self.groups[: last + 1], self.groups[last + 1 :]
        self.execute("wgmma_wait_group", integer(len(self.groups)), why=why, source=source)
        for name in dict.fromkeys(name for group in done for name in group.arrays):
            self.pin(name)

    def pin(self, array: str) -> None:
        """Keep the compiler from moving accesses to an array across this point."""
        self.dirty.discard(array)
        rows = self.array_rows(array)
        for row in range(rows):
            self.execute("pin_registers", ArrayOperand(array, integer(row) if rows > 1 else None))

    # ---- what subclasses know of arrays

    def array_of(self, name: str) -> str:
        """The array that holds an accumulator or an operand."""
        raise NotImplementedError

    def array_rows(self, array: str) -> int:
        """Fragments that an array stacks."""
        raise NotImplementedError

    def accumulator_layout(self, name: str) -> WgmmaAccumulator:
        """The fragment layout of an accumulator of this role."""
        facts = self.context.accumulator(name)
        assert isinstance(facts.layout, WgmmaAccumulator)
        return facts.layout


def accumulate_flag(flag: Expr, step: Expr) -> Expr:
    """Whether one instruction adds to what is there: the product's own flag for its first, always for the others."""
    first = isinstance(step, Const)
    later: Expr = Const(0, boolean) if first else Binary(">", step, integer(0))
    if isinstance(flag, Const):
        return Const(1, boolean) if flag.value else later
    return flag if first else Binary("||", flag, later)

"""What the threads of a role on a tcgen05 machine do: waits for results, arithmetic on rows, stores."""

from __future__ import annotations

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Var
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import AdvanceRing, Let, SharedOperand, Statement
from kernwright.generator.ir.types import f32
from kernwright.generator.ir.uses import names_of
from kernwright.generator.passes.roles.columns import ColumnTiles, Row
from kernwright.generator.passes.roles.context import phase_of, stage_of
from kernwright.generator.passes.roles.tcgen05_turns import Turns


class ThreadsRole(Turns, ColumnTiles):
    """Everything that the threads of a role do: waits for results, arithmetic on rows, stores."""

    def run(self) -> None:
        self.held: dict[str, Row] = {}
        self.pending: set[str] = set()
        self.taken: set[str] = set()
        self.last_uses = self._last_uses()
        super().run()

    def prologue(self) -> tuple[Statement, ...]:
        rings = [self.turn_ring(name, "consumer") for name in self.mine() if self.takes_turns(name)]
        return (*super().prologue(), *rings, *self.operand_rings("producer"))

    def finish(self) -> None:
        self.drain_stores()

    # ---- what is left to the issuer

    def operation(self, operation: ir.Operation) -> None:
        position = self.at
        if isinstance(operation, ir.Mma):
            self.pending.add(operation.accumulator)
            self.skip(operation)
        elif isinstance(operation, ir.Block) and not self._does_something(operation):
            for inner in ir.walk((operation,)):
                if isinstance(inner, ir.Mma):
                    self.pending.add(inner.accumulator)
            self.skip(operation)
        else:
            super().operation(operation)
        for name in self.last_uses.get(position, ()):
            self.give_back(name, operation.source)

    def _does_something(self, block: ir.Block) -> bool:
        inner = ir.walk((block,))
        waits = any(
            isinstance(op, ir.Consume) and self.reader(op.pipeline).by in ("warp", "thread", "warpgroup")
            for op in inner
        )
        return (
            waits
            or any(not isinstance(op, ir.Mma | ir.Block) for op in inner)
            or any(isinstance(op, ir.Produce) for op in inner)
        )

    def consume(self, block: ir.Consume, position: int) -> None:
        name = block.pipeline
        reader = self.reader(name)
        if block.after:
            raise self.context.refuse("after=", block.source, "It orders register operands of wgmma.")
        if reader.by == "none" and not reader.stores:
            self.block(block.body)
            return
        self.ring(name, "consumer")
        if block.relayed_by is None:
            self.wait(name, "full", block.source)
        self.block(block.body)
        self.release(block, stage_of(name))
        self.advance(name)

    # ---- turns of accumulators

    def take(self, name: str, source: Source) -> None:
        """Wait for the products into an accumulator, if there are any since the last time."""
        if name not in self.pending:
            return
        self.pending.discard(name)
        self.execute("mbarrier_wait", self.side(name, "full"), self.phase(name), source=source)
        self.execute("tcgen05_fence_after", source=source)
        self.taken.add(name)

    def give_back(self, name: str, source: Source) -> None:
        """The warp is done with the columns: one arrival, behind its loads and stores."""
        self.execute("tcgen05_fence_before", source=source)
        self.arrive_by_warp(self.side(name, "empty"), source)
        if name in self.taken:
            self.taken.discard(name)
            self.add(AdvanceRing(name))

    def _last_uses(self) -> dict[int, list[str]]:
        """Positions behind which an accumulator may be multiplied into again: the last use before the next product."""
        found: dict[int, list[str]] = {}
        for name in self.mine():
            if not self.takes_turns(name):
                continue
            last: int | None = None
            meaning: set[str] = set()
            for at, event in enumerate(self.timeline.events):
                operation = event.operation
                if event.is_end:
                    continue
                if isinstance(operation, ir.Mma) and operation.accumulator == name:
                    if last is not None:
                        found.setdefault(self._outside(last, name), []).append(name)
                    last = None
                elif _uses(operation, name, meaning):
                    last = at
            if last is not None:
                found.setdefault(self._outside(last, name), []).append(name)
        return found

    def _outside(self, position: int, name: str) -> int:
        """The outermost block around a use that has no product into the accumulator: the loop must have ended."""
        best = position
        for first, end in self.timeline.end_of.items():
            block = self.timeline.events[first].operation
            if not (first < position < end) or not isinstance(block, ir.Steps):
                continue
            if not any(isinstance(op, ir.Mma) and op.accumulator == name for op in ir.walk((block,))):
                best = min(best, first)
        return best

    # ---- operations

    def tile_operation(self, operation: ir.Operation, position: int) -> None:
        match operation:
            case ir.ReadAccumulator(name, accumulator):
                self.take(accumulator, operation.source)
                self.held[name] = Row(accumulator=accumulator)
            case ir.SetAccumulator(accumulator, _):
                self.take(accumulator, operation.source)
                self.held[accumulator] = Row(accumulator=accumulator)
                self.set_accumulator(operation)
            case ir.Elementwise(layout=Fragment(role="operand")):
                self._operand(operation)
            case ir.Elementwise(name, value, _, Extent.TILE):
                self.held[name] = Row(formula=value)
            case ir.Elementwise(name, value, _, Extent.ROWS):
                self.add(Let(Var(name, f32), value, source=operation.source))
            case ir.Elementwise(name, value):
                self.held[name] = Row(formula=value)
            case ir.ReadShared():
                self.fetch(operation)
            case ir.WriteShared():
                self._write(operation)
            case _:
                super().tile_operation(operation, position)

    def _operand(self, operation: ir.Elementwise) -> None:
        facts = self.operand_facts(operation.name)
        if facts.empty is not None:
            place = SharedOperand(f"{operation.name}_empty")
            self.execute("mbarrier_wait", place, phase_of(operation.name), source=operation.source)
            self.execute("tcgen05_fence_after", source=operation.source)
        self.operand(operation, facts.first_column)
        self.execute("tcgen05_fence_before", source=operation.source)
        self.arrive_by_warp(SharedOperand(f"{operation.name}_full"), operation.source, made="stores")
        self.add(AdvanceRing(operation.name))

    def _write(self, write: ir.WriteShared) -> None:
        if write.extent is not Extent.TILE:
            self.write_vector(write)
            return
        if write.target.pipeline is None:
            self.free(write)
        self.write_tile(write)
        if write.target.pipeline is None:
            self.hand_over_buffer(write)


def _uses(operation: ir.Operation, accumulator: str, meaning: set[str]) -> bool:
    """Whether an operation touches an accumulator's columns; `meaning` collects the names that stand for them."""
    match operation:
        case ir.ReadAccumulator(name, read):
            if read == accumulator:
                meaning.add(name)
            return read == accumulator
        case ir.SetAccumulator(accumulator=changed) if changed == accumulator:
            return True
        case ir.Elementwise(name, value):
            uses = bool(names_of(value) & meaning)
            if uses and not (isinstance(operation.layout, Fragment) and operation.layout.role == "operand"):
                meaning.add(name)
            return uses
        case ir.WriteShared(value=value) | ir.StoreTile(value=value) | ir.SetAccumulator(value=value):
            return bool(names_of(value) & meaning)
        case _:
            return False

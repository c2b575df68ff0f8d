"""The products of a role on a tcgen05 machine, by one thread."""

from __future__ import annotations

from kernwright.generator.instructions.descriptors import Descriptor, tcgen05_instruction_descriptor
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent
from kernwright.generator.ir.expr import Cast, Expr, Var, integer
from kernwright.generator.ir.layout import MMA_K
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import AdvanceRing, Let, SharedOperand, Statement
from kernwright.generator.ir.types import u32, u64
from kernwright.generator.passes.derive import MmaFacts
from kernwright.generator.passes.derive.readers import reads_stage
from kernwright.generator.passes.roles.columns import ADDRESS, MEMORY
from kernwright.generator.passes.roles.context import phase_of, plus, stage_of, times
from kernwright.generator.passes.roles.operands import STEP, advanced, over_steps, start_of, step_offset, view_name
from kernwright.generator.passes.roles.tcgen05_turns import Turns
from kernwright.generator.passes.roles.wgmma_products import accumulate_flag


class IssuerRole(Turns):
    """The products of a role, their waits and their commits, by one thread."""

    def run(self) -> None:
        self.one_thread = True
        self.acquired: set[str] = set()
        self.dirty: set[str] = set()
        super().run()

    def prologue(self) -> tuple[Statement, ...]:
        rings = [
            self.turn_ring(name, "consumer" if self.set_first(name) else "producer")
            for name in self.mine()
            if self.takes_turns(name)
        ]
        return (Let(MEMORY, ADDRESS), *rings, *self.operand_rings("consumer"))

    def operation(self, operation: ir.Operation) -> None:
        inside = ir.walk((operation,))
        products = [op for op in inside if isinstance(op, ir.Mma)]
        match operation:
            case ir.ReadAccumulator() | ir.SetAccumulator():
                self.hand_over(operation.accumulator, operation.source)
                self.skip(operation)
            case ir.Elementwise(extent=Extent.SCALAR):
                super().operation(operation)
            case ir.Consume() if products:
                self.at += 1
                self._consume(operation, products)
                self.at += 1
            case ir.Produce() if products:
                self.at += 1
                self.block(operation.body)
                self.at += 1
            case _ if products:
                super().operation(operation)
            case _:
                for op in inside:
                    if isinstance(op, ir.ReadAccumulator | ir.SetAccumulator):
                        self.hand_over(op.accumulator, op.source)
                self.skip(operation)

    def _consume(self, block: ir.Consume, products: list[ir.Mma]) -> None:
        name = block.pipeline
        mine = any(reads_stage(mma, name) for mma in products)
        if mine:
            self.ring(name, "consumer")
            self.wait(name, "full", block.source)
            self.execute("tcgen05_fence_after", source=block.source)
        self.block(block.body)
        if mine:
            why = "releases the stage when the products have read it"
            self.execute("tcgen05_commit", self.context.barrier(name, "empty"), why=why, source=block.source)
            self.advance(name)

    def steps(self, loop: ir.Steps, position: int) -> None:
        """Accumulators that the loop only multiplies into are taken before it."""
        inside = ir.walk(loop.body)
        read = {op.accumulator for op in inside if isinstance(op, ir.ReadAccumulator | ir.SetAccumulator)}
        for operation in inside:
            if isinstance(operation, ir.Mma) and operation.accumulator not in read:
                self.acquire(operation.accumulator, operation.source)
        before = (set(self.acquired), set(self.dirty))
        super().steps(loop, position)
        if self.acquired != before[0]:
            raise self.context.refuse(
                "an accumulator that a loop's step begins with and hands over in another",
                loop.source,
                "Read the result in the step that computes it.",
            )

    def acquire(self, name: str, source: Source) -> None:
        """Wait until the role's threads are done with the accumulator, or with this buffer of it."""
        if name in self.acquired:
            return
        self.acquired.add(name)
        if self.takes_turns(name):
            self.execute("mbarrier_wait", self.side(name, "empty"), self.phase(name), source=source)
            self.execute("tcgen05_fence_after", source=source)

    def hand_over(self, name: str, source: Source) -> None:
        """All products so far into an accumulator belong to its reader: one commit."""
        if name not in self.dirty:
            return
        self.dirty.discard(name)
        self.acquired.discard(name)
        self.execute("tcgen05_commit", self.side(name, "full"), source=source)
        if self.takes_turns(name):
            self.add(AdvanceRing(name))

    def tile_operation(self, operation: ir.Operation, position: int) -> None:
        if not isinstance(operation, ir.Mma):
            super().tile_operation(operation, position)
            return
        facts = self.context.product(operation)
        self.acquire(operation.accumulator, operation.source)
        if isinstance(operation.a, Var):
            name = operation.a.name
            self.execute("mbarrier_wait", SharedOperand(f"{name}_full"), phase_of(name), source=operation.source)
            self.execute("tcgen05_fence_after", source=operation.source)
        self._issue(facts)
        self.dirty.add(operation.accumulator)
        if isinstance(operation.a, Var):
            name = operation.a.name
            if self.operand_facts(name).empty is not None:
                self.execute("tcgen05_commit", SharedOperand(f"{name}_empty"), source=operation.source)
            self.add(AdvanceRing(name))

    def _issue(self, facts: MmaFacts) -> None:
        mma = facts.mma
        item = self.context.accumulator(mma.accumulator)
        depth = facts.b.layout.columns
        step: Expr = STEP if depth > MMA_K else integer(0)
        target = self.context.columns_of(mma.accumulator, MEMORY)
        a_major = facts.a.layout.major if isinstance(facts.a, Descriptor) else "K"
        word = tcgen05_instruction_descriptor(
            item.accumulator.rows, item.accumulator.columns, a_major == "MN", facts.b.layout.major == "MN"
        )
        shape = f"M = {item.accumulator.rows}, N = {item.accumulator.columns}, BF16 to FP32"
        turned = "".join(f"_{n}_turned" for n, major in (("a", a_major), ("b", facts.b.layout.major)) if major == "MN")
        instruction = self.context.constant(f"{mma.accumulator}{turned}_instruction", word, shape, dtype=u32)
        b_name = self._start(mma.b, facts.b)
        b = advanced(self.context, Var(b_name, u64), step_offset(self.context, mma.b, facts.b, step))
        flag = accumulate_flag(mma.accumulate, step)
        if isinstance(mma.a, Var):
            operand = self.operand_facts(mma.a.name)
            a = plus(plus(MEMORY, integer(operand.first_column, u32)), Cast(u32, times(integer(8), step)))
            name = "tcgen05_mma_f16_ts"
        else:
            assert isinstance(facts.a, Descriptor)
            a = advanced(
                self.context, Var(self._start(mma.a, facts.a), u64), step_offset(self.context, mma.a, facts.a, step)
            )
            name = "tcgen05_mma_f16_ss"
        product = self.context.execute(name, target, a, b, instruction, flag, source=mma.source)
        self.add(*over_steps(self.context, depth, (product,), mma.source))

    def _start(self, tile: ir.SharedTile, side: Descriptor) -> str:
        if tile.pipeline is None:
            raise self.context.refuse(
                f"a product of the buffer {tile.name!r}", tile.source, "Hand it over in a pipeline."
            )
        name = view_name(tile, side)
        if not any(isinstance(item, Let) and item.var.name == name for item in self.out):
            start = start_of(self.context, tile, side, stage_of(tile.pipeline), integer(0))
            self.add(Let(Var(name, u64), start))
        return name

"""A role on a tcgen05 machine, in two functions: one thread issues its products, its threads do everything else.

Both walk the same description; what one leaves out, the other has. They meet at the accumulators' barriers: a commit says that
products are complete, one arrival a warp that the columns have been read or set.
"""

from __future__ import annotations

from kernwright.generator.errors import PipelineFault
from kernwright.generator.instructions.descriptors import Descriptor, tcgen05_instruction_descriptor
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Cast, Expr, Var, children, integer
from kernwright.generator.ir.layout import MMA_K, WARPS_PER_GROUP, TmemLayout
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import AdvanceRing, DeclareRing, If, Let, Repeat, SharedOperand, Statement
from kernwright.generator.ir.types import f32, i32, u32, u64
from kernwright.generator.passes.derive import AccumulatorFacts, MmaFacts, OperandColumns
from kernwright.generator.passes.derive.readers import reads_stage
from kernwright.generator.passes.roles.base import LEADER, RoleLowering, lane_zero
from kernwright.generator.passes.roles.columns import ADDRESS, MEMORY, ColumnTiles, Row
from kernwright.generator.passes.roles.context import Context, phase_of, plus, stage_of, times
from kernwright.generator.passes.roles.operands import STEP, advanced, start_of, step_offset
from kernwright.generator.passes.roles.wgmma_products import accumulate_flag


def issues(body: ir.RoleBody) -> bool:
    """Whether a role has products."""
    return any(isinstance(op, ir.Mma) for op in ir.walk(body.body))


def placement(context: Context, body: ir.RoleBody) -> tuple[int, str]:
    """The warp whose elected thread issues a role's products, and why that one."""
    facts = next(item for item in context.derived.roles if item.role.name == body.role)
    if facts.role.replicas > 1:
        raise context.refuse("a role in copies", facts.role.source, "Give its accumulator buffers=2 instead.")
    waits = any(item.empty is not None for item in context.derived.accumulators if item.role == body.role)
    waits = waits or any(item.role == body.role for item in context.derived.operand_columns)
    if not waits:
        return facts.first_warp, "its products wait for none of the role's own threads"
    for host in context.derived.roles:
        alone = next(item.body for item in context.description.role_bodies if item.role == host.role.name)
        if host.role.shares is not None or not (len(alone) == 1 and isinstance(alone[0], ir.OneThread)):
            continue
        taken = {role.warp for role in context.description.roles if role.shares == host.role.name}
        taken |= {warp - host.first_warp for warp in context.issuers.values()}
        free = [warp for warp in range(1, WARPS_PER_GROUP) if warp not in taken]
        if free:
            context.issuers[body.role] = host.first_warp + free[0]
            return host.first_warp + free[0], "the role's threads read results while the next products run"
    raise PipelineFault(
        "KW0403",
        f"no warp is free to issue the products of role {body.role!r}",
        facts.role.source,
        where=f"on {context.arch.name}",
        detail="its products wait for the role's own threads, so that another warp issues them: one of a warpgroup whose role is "
        "one thread.",
        fix="Let a role of one thread, such as the one that loads, have its warpgroup for itself.",
    )


class Turns(RoleLowering):
    """What both functions know of the accumulators' barriers and rings."""

    def accumulator(self, name: str) -> AccumulatorFacts:
        return next(item for item in self.context.derived.accumulators if item.accumulator.name == name)

    def operand_facts(self, name: str) -> OperandColumns:
        found = self.context.derived.operand_columns
        return next(item for item in found if item.operand == name and item.role == self.role.name)

    def side(self, name: str, side: str) -> SharedOperand:
        """`shared.<accumulator>_<side>`, of the buffer whose turn it is."""
        return SharedOperand(f"{name}_{side}", stage_of(name) if self.accumulator(name).buffers > 1 else None)

    def turn_ring(self, name: str, side: str) -> Statement:
        count = self.context.accumulator_buffers(name)
        return DeclareRing(name, count if count is not None else integer(1), side)

    def takes_turns(self, name: str) -> bool:
        return self.accumulator(name).empty is not None

    def mine(self) -> list[str]:
        return [item.accumulator.name for item in self.context.derived.accumulators if item.role == self.role.name]

    def set_first(self, name: str) -> bool:
        """Whether the role's threads set an accumulator before the first product."""
        for operation in ir.walk(self.body.body):
            if isinstance(operation, ir.SetAccumulator | ir.ReadAccumulator | ir.Mma) and operation.accumulator == name:
                return isinstance(operation, ir.SetAccumulator)
        return False

    def phase(self, name: str) -> Expr:
        return phase_of(name) if self.takes_turns(name) else integer(0, u32)


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
        operands = [
            DeclareRing(item.operand, integer(1), "consumer")
            for item in self.context.derived.operand_columns
            if item.role == self.role.name
        ]
        return (Let(MEMORY, ADDRESS), *rings, *operands)

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
        facts = next(item for item in self.context.derived.products if item.mma is operation)
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
        item = self.accumulator(mma.accumulator)
        depth = facts.b.layout.columns
        steps = depth // MMA_K
        step: Expr = STEP if steps > 1 else integer(0)
        column = item.layout.first_column if isinstance(item.layout, TmemLayout) else 0
        target: Expr = plus(MEMORY, integer(column, u32)) if column else MEMORY
        if item.buffers > 1:
            target = plus(target, Cast(u32, times(integer(item.accumulator.columns), stage_of(mma.accumulator))))
        a_major = facts.a.layout.major if isinstance(facts.a, Descriptor) else "K"
        word = tcgen05_instruction_descriptor(
            item.accumulator.rows, item.accumulator.columns, a_major == "MN", facts.b.layout.major == "MN"
        )
        shape = f"M = {item.accumulator.rows}, N = {item.accumulator.columns}, BF16 to FP32"
        turned = "".join(f"_{n}_turned" for n, major in (("a", a_major), ("b", facts.b.layout.major)) if major == "MN")
        instruction = self.context.constant(f"{mma.accumulator}{turned}_instruction", word, shape, dtype=u32)
        b_name = self._start(mma.b, facts.b)
        b = advanced(self.context, Var(b_name, u64), step_offset(facts.b.layout, step))
        flag = accumulate_flag(mma.accumulate, step)
        if isinstance(mma.a, Var):
            operand = self.operand_facts(mma.a.name)
            a = plus(plus(MEMORY, integer(operand.first_column, u32)), Cast(u32, times(integer(8), step)))
            name = "tcgen05_mma_f16_ts"
        else:
            assert isinstance(facts.a, Descriptor)
            a = advanced(self.context, Var(self._start(mma.a, facts.a), u64), step_offset(facts.a.layout, step))
            name = "tcgen05_mma_f16_ss"
        product = self.context.execute(name, target, a, b, instruction, flag, source=mma.source)
        if steps == 1:
            self.add(product)
            return
        count = self.context.constant(
            f"steps_of_k_{depth}", steps, f"a product: an instruction takes {MMA_K} values of K"
        )
        if count.value != steps:
            count = integer(steps)
        self.add(Repeat(Var("step", i32, 0, steps - 1), count, (product,), source=mma.source))

    def _start(self, tile: ir.SharedTile, side: Descriptor) -> str:
        turned = side.layout.major != tile.layout.major or side.layout.rows != tile.layout.rows
        name = f"{tile.name}_{'transposed_' if turned else ''}descriptor"
        stage = stage_of(tile.pipeline) if tile.pipeline else None
        if tile.pipeline is None:
            raise self.context.refuse(
                f"a product of the buffer {tile.name!r}", tile.source, "Hand it over in a pipeline."
            )
        if not any(isinstance(item, Let) and item.var.name == name for item in self.out):
            self.add(Let(Var(name, u64), start_of(self.context, tile, side, stage, integer(0))))
        return name


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
        operands = [
            DeclareRing(item.operand, integer(1), "producer")
            for item in self.context.derived.operand_columns
            if item.role == self.role.name
        ]
        return (*super().prologue(), *rings, *operands)

    def finish(self) -> None:
        if any(isinstance(op, ir.CopyOut) and op.origin.pipeline is None for op in ir.walk(self.body.body)):
            wait = self.context.execute("bulk_wait_group_read", integer(0))
            self.add(If(LEADER, (wait,), why="shared memory must outlive the reads of the store"))

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
        arrive = self.context.execute("mbarrier_arrive", self.context.barrier(name, "empty"), source=block.source)
        if reader.stores:
            wait = self.context.execute("bulk_wait_group_read", integer(0), source=block.source)
            self.add(If(LEADER, (wait, arrive), source=block.source))
        if reader.by == "thread":
            self.add(arrive)
        elif reader.by == "warp":
            self.execute("sync_warp", why="the warp's accesses, before one lane arrives for it")
            self.add(If(lane_zero(), (arrive,), source=block.source))
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
        self.execute("sync_warp", why="the warp's accesses, before one lane arrives for it", source=source)
        arrive = self.context.execute("mbarrier_arrive", self.side(name, "empty"), source=source)
        self.add(If(lane_zero(), (arrive,), source=source))
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
        self.execute("sync_warp", why="the warp's stores, before one lane arrives for it", source=operation.source)
        arrive = self.context.execute(
            "mbarrier_arrive", SharedOperand(f"{operation.name}_full"), source=operation.source
        )
        self.add(If(lane_zero(), (arrive,), source=operation.source), AdvanceRing(operation.name))

    def _write(self, write: ir.WriteShared) -> None:
        if write.extent is not Extent.TILE:
            self.write_vector(write)
            return
        if write.target.pipeline is None:
            self.free_buffer(write)
        self.write_tile(write)
        if write.target.pipeline is None:
            self.hand_over(write)


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
            uses = bool(_names(value) & meaning)
            if uses and not (isinstance(operation.layout, Fragment) and operation.layout.role == "operand"):
                meaning.add(name)
            return uses
        case ir.WriteShared(value=value) | ir.StoreTile(value=value) | ir.SetAccumulator(value=value):
            return bool(_names(value) & meaning)
        case _:
            return False


def _names(value: Expr) -> set[str]:
    found = {value.name} if isinstance(value, Var) else set()
    return found.union(*(_names(child) for child in children(value)))

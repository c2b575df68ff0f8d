"""What the lowerings of all roles share: walking the operations in step with the timeline, loops, conditions, rings and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Binary, Const, Expr, Var, integer
from kernwright.generator.ir.layout import WARPS_PER_GROUP
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import (
    AdvanceRing,
    DeclareRing,
    Execute,
    If,
    Let,
    Repeat,
    SharedOperand,
    Statement,
)
from kernwright.generator.ir.types import boolean, i32, u32
from kernwright.generator.passes.derive import RoleFacts
from kernwright.generator.passes.derive.readers import Reader, readers_of
from kernwright.generator.passes.derive.timeline import Timeline
from kernwright.generator.passes.roles.context import ELECT, Context, both, phase_of, plus, stage_of, times
from kernwright.generator.passes.roles.copies import copy_in, copy_out

COPY = Var("copy", i32)
LANE = Var("lane", i32, 0, 31)
WARP = Var("warp", i32, 0, WARPS_PER_GROUP - 1)
GROUP = Var("warpgroup", i32)
LEADER = Var("leader", boolean)


class RoleLowering:
    """One function of the text. Subclasses say what products and register tiles become on their machine."""

    def __init__(self, context: Context, body: ir.RoleBody) -> None:
        self.context = context
        self.body = body
        self.facts: RoleFacts = context.role(body.role)
        self.role = self.facts.role
        self.timeline = Timeline(body)
        self.out: list[Statement] = []
        self.at = 0  # position in the timeline
        self.one_thread = False
        self.loops: list[ir.Steps] = []
        self.rings: dict[str, str] = {}

    # ---- the whole function

    def statements(self) -> tuple[Statement, ...]:
        """The body of the function, with the places of its threads and its rings in front."""
        self.at = 1
        inside = self.collect(self.run)
        return (*self.places(), *self.prologue(), *(DeclareRing(*ring) for ring in self._rings()), *inside)

    def run(self) -> None:
        """All operations of the role."""
        self.block(self.body.body)
        self.finish()

    def prologue(self) -> tuple[Statement, ...]:
        """Arrays that live as long as the function."""
        return ()

    def finish(self) -> None:
        """What stands at the function's end."""

    def places(self) -> tuple[Statement, ...]:
        """Who the executing thread is; what the body does not use is removed later."""
        first = self.facts.first_warp
        index = self.context.call("warp_index", i32)
        lane = Binary("%", Var("threadIdx.x", u32, 0, 1023), integer(32))
        group: Expr = Binary("/", index, integer(WARPS_PER_GROUP))
        if first // WARPS_PER_GROUP:
            group = Binary("-", group, integer(first // WARPS_PER_GROUP))
        leader = self.elected()
        if self.role.warpgroups > 1:
            leader = both(Binary("==", GROUP, integer(0)), leader)
        name, why = (GROUP, "of the role")
        if self.role.replicas > 1:
            name, why = COPY, "which copy of the role"
        copies = max(self.role.replicas, self.role.warpgroups, 1)  # the frame calls the role in these warpgroups alone
        return (
            Let(replace(name, low=0, high=copies - 1), group, why),
            Let(WARP, Binary("%", index, integer(WARPS_PER_GROUP)), "of the warpgroup"),
            Let(LANE, lane),
            Let(LEADER, leader, "always the same thread: bulk groups belong to a thread"),
        )

    def _rings(self) -> list[tuple[str, Const, str, Expr | None]]:
        first = COPY if self.role.replicas > 1 else None
        return [(name, self.context.stages(name), side, first) for name, side in self.rings.items()]

    # ---- emitting

    def add(self, *statements: Statement) -> None:
        self.out += statements

    def execute(self, name: str, *operands: Any, why: str = "", source: Source | None = None) -> None:
        """An instruction of the table, executed."""
        self.add(self.context.execute(name, *operands, why=why, source=source or self.body.source))

    def collect(self, emit: Any, *arguments: Any) -> tuple[Statement, ...]:
        """What `emit` adds, as a block of its own."""
        outer, self.out = self.out, []
        try:
            emit(*arguments)
            return tuple(self.out)
        finally:
            self.out = outer

    # ---- operations

    def block(self, operations: tuple[ir.Operation, ...]) -> None:
        for operation in operations:
            self.operation(operation)

    def operation(self, operation: ir.Operation) -> None:
        """Lower one operation and keep in step with the timeline."""
        position, self.at = self.at, self.at + 1
        self.before(operation, position)
        match operation:
            case ir.Steps():
                self.steps(operation, position)
            case ir.OneThread(body):
                self._one_thread(operation, body)
            case ir.When(condition, body):
                inner = self.collect(self.block, body)
                self.add(If(condition, inner, source=operation.source))
            case ir.WhenPresent(tensor, body):
                self.add(If(Var(tensor, boolean), self.collect(self.block, body), source=operation.source))
            case ir.Produce():
                self.produce(operation, position)
            case ir.Consume():
                self.consume(operation, position)
            case ir.CopyIn():
                if operation.target.pipeline is None:
                    raise self.context.refuse("a copy into a standing buffer", operation.source, "Use a pipeline.")
                self.add(*copy_in(self.context, operation))
            case ir.CopyOut():
                self.store_out(operation)
            case ir.Elementwise(extent=ir.Extent.SCALAR):
                self.add(Let(Var(operation.name, operation.dtype), operation.value, source=operation.source))
            case _:
                self.tile_operation(operation, position)
        if isinstance(operation, ir.Block):
            end, self.at = self.at, self.at + 1
            self.after(operation, end)

    def skip(self, operation: ir.Operation) -> None:
        """Leave an operation to another function, but keep in step with the timeline."""
        inner = ir.walk((operation,))
        self.at += len(inner) + sum(isinstance(item, ir.Block) for item in inner)

    def before(self, operation: ir.Operation, position: int) -> None:
        """Hook: an operation is about to be lowered."""

    def after(self, operation: ir.Block, position: int) -> None:
        """Hook: the end of a block has been reached."""

    def tile_operation(self, operation: ir.Operation, position: int) -> None:
        """Hook: register tiles and products."""
        raise self.context.refuse(f"{type(operation).__name__} in role {self.role.name!r}", operation.source)

    # ---- loops and threads

    def steps(self, loop: ir.Steps, position: int) -> None:
        first, step = self.turns(loop)
        self.loops.append(loop)
        inside = self.collect(self.loop_body, loop, position)
        self.loops.pop()
        self.add(Repeat(loop.index, loop.count, inside, False, first, step, loop.source))

    def turns(self, loop: ir.Steps) -> tuple[Expr, Expr]:
        """Where a loop begins and how it goes on; copies of a role take the steps of its outermost loop in turns."""
        if self.role.replicas == 1 or self.loops:
            return loop.first, loop.step
        copies = self.context.constant(f"{self.role.name}_copies", self.role.replicas, "of the role, in turns")
        return plus(loop.first, times(COPY, loop.step)), times(copies, loop.step)

    def loop_body(self, loop: ir.Steps, position: int) -> None:
        self.block(loop.body)

    def _one_thread(self, operation: ir.OneThread, body: tuple[ir.Operation, ...]) -> None:
        """The whole role is one thread's if it says nothing else: the kernel then elects it."""
        outer, self.one_thread = self.one_thread, True
        if self.body.body == (operation,):
            self.block(body)
        else:
            self.add(If(LEADER, self.collect(self.block, body), source=operation.source))
            self.execute("sync_warp")
        self.one_thread = outer

    # ---- pipelines

    def ring(self, pipeline: str, side: str) -> None:
        self.rings.setdefault(pipeline, side)

    def wait(self, pipeline: str, side: str, source: Source) -> None:
        self.execute("mbarrier_wait", self.context.barrier(pipeline, side), phase_of(pipeline), source=source)

    def advance(self, pipeline: str) -> None:
        """On to the next stage of this copy of the role."""
        copies = self.role.replicas
        steps = None
        if copies > 1:
            steps = self.context.constant(f"{self.role.name}_copies", copies, "of the role, in turns")
        self.add(AdvanceRing(pipeline, steps))

    def produce(self, block: ir.Produce, position: int) -> None:
        name = block.pipeline
        self.ring(name, "producer")
        if not block.ahead:
            self.wait(name, "empty", block.source)
        copies = [op for op in ir.walk(block.body) if isinstance(op, ir.CopyIn) and op.target.pipeline == name]
        writes = [op for op in ir.walk(block.body) if isinstance(op, ir.WriteShared) and op.target.pipeline == name]
        if copies and writes:
            raise self.context.refuse(
                f"a stage of {name!r} that copies and threads fill together", block.source, "Use two pipelines."
            )
        if copies:
            total: Expr = integer(0)
            for copy in copies:
                total = plus(total, self.context.bytes_of(copy.target))
            self.execute("mbarrier_arrive_expect_tx", self.context.barrier(name, "full"), total, source=block.source)
        self.block(block.body)
        if writes:
            self.publish(block)
        self.advance(name)

    def publish(self, block: ir.Produce) -> None:
        """Signal a stage that threads have written: a fence if an asynchronous reader follows, then one arrival a warp."""
        facts = self.context.pipeline(block.pipeline)
        if facts.fence != "none":
            self.execute(
                "fence_proxy_async", why="ordinary stores, read by the asynchronous proxy", source=block.source
            )
        full = self.context.barrier(block.pipeline, "full")
        if self.one_thread:
            self.execute("mbarrier_arrive", full, source=block.source)
            return
        self.arrive_by_warp(full, block.source, self.due_releases)

    def arrive_by_warp(
        self,
        barrier: SharedOperand,
        source: Source,
        others: Callable[[], list[Execute]] = list,
        made: str = "accesses",
    ) -> None:
        """One arrival for what all lanes of the warp have done, and with it `others` that are due."""
        self.execute("sync_warp", why=f"the warp's {made}, before one lane arrives for it", source=source)
        arrive = self.context.execute("mbarrier_arrive", barrier, source=source)
        self.add(If(lane_zero(), (arrive, *others()), source=source))

    def elected(self) -> Expr:
        """One thread of each warpgroup."""
        return both(Binary("==", WARP, integer(0)), ELECT)

    def release(self, block: ir.Consume, stage: Expr) -> None:
        """Give a stage back: one arrival a warp where threads read it, one a warpgroup where only its products did."""
        reader = self.reader(block.pipeline)
        empty = self.context.barrier(block.pipeline, "empty", stage)
        arrive = self.context.execute("mbarrier_arrive", empty, source=block.source)
        if reader.stores:
            wait = self.context.execute("bulk_wait_group_read", integer(0), source=block.source)
            self.add(If(LEADER, (wait, arrive), source=block.source))
        match reader.by:
            case "thread":
                self.add(arrive)
            case "warpgroup":
                self.add(If(self.elected(), (arrive,), source=block.source))
            case "warp":
                self.arrive_by_warp(empty, block.source)

    def due_releases(self) -> list[Execute]:
        """Hook: arrivals that may join those of a warp's first lane."""
        return []

    def consume(self, block: ir.Consume, position: int) -> None:
        raise NotImplementedError

    def reader(self, pipeline: str) -> Reader:
        """How this role releases the stages of a pipeline."""
        facts = self.context.pipeline(pipeline)
        readers = readers_of(self.context.description, facts.pipeline, self.context.arch)
        return next(reader for reader in readers if reader.role == self.role.name)

    # ---- stores

    def store_out(self, copy: ir.CopyOut) -> None:
        """A TMA store by the leader, whose bulk groups are its own; the stage or buffer is free once the group has read it."""
        stage = self.copy_index(copy.origin)
        stores = copy_out(self.context, copy, stage)
        commit = self.context.execute("bulk_commit_group", source=copy.source)
        if self.one_thread:
            self.add(*stores, commit)
        else:
            self.add(If(LEADER, (*stores, commit), source=copy.source))

    def copy_index(self, tile: ir.SharedTile) -> Expr | None:
        """The element of a standing buffer that belongs to this copy of the role."""
        if tile.pipeline is not None:
            return stage_of(tile.pipeline)
        return COPY if self.role.replicas > 1 else None

    # ---- named barriers

    def meet(self, source: Source) -> None:
        """All threads of the copy meet at its named barrier; a role of one warp needs less."""
        named = self.facts.barrier
        if named is None:
            self.execute("sync_warp", source=source)
            return
        threads = integer(named.threads)
        number = self.context.constant(f"{self.role.name}_barrier", named.first, "named barrier; 0 is __syncthreads")
        index = plus(number, COPY) if named.copies > 1 else number
        self.execute("named_barrier_sync", threads, index, source=source)


def lane_zero() -> Expr:
    return Binary("==", LANE, integer(0))

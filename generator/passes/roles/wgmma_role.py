"""A role on a wgmma machine: every thread of its warpgroups multiplies, and holds its part of every tile in registers."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Binary, Var, integer
from kernwright.generator.ir.statement import ArrayOperand, Assign, Declare, Execute, If, Let
from kernwright.generator.ir.types import i32
from kernwright.generator.passes.derive.products import depths_of
from kernwright.generator.passes.roles.context import both, phase_of, plus, stage_of
from kernwright.generator.passes.roles.staging import Staging
from kernwright.generator.passes.roles.values import Kind


@dataclass
class OpenStage:
    """A consume block that is being lowered: which stage it holds and up to which position something reads it."""

    block: ir.Consume
    last_reader: int
    stage: Var
    released: bool = False
    advanced: bool = False


class WgmmaRole(Staging):
    """Products, waits and releases in the order of the description, with early releases and fetches a step ahead."""

    def run(self) -> None:
        self.start()
        self.prepare()
        self.depths = depths_of(self.context.derived.pipelines, self.role.name)
        self.completions: dict[int, set[int]] = {}
        self.why: dict[int, str] = {}
        for position, _ in self.timeline.products():
            at, why = self.timeline.completion(position, self.depths)
            self.completions.setdefault(at, set()).add(position)
            self.why[at] = why
        self.stages: list[OpenStage] = []
        self.in_flight: list[str] = []
        self.pending: list[Execute] = []
        super().run()

    # ---- positions at which products must be complete

    def before(self, operation: ir.Operation, position: int) -> None:
        if not isinstance(operation, ir.Mma):
            self.close()
        if position in self.completions:
            self.before_wait(operation)
            self.wait_until(self.completions[position], operation.source)

    def after(self, operation: ir.Block, position: int) -> None:
        self.close()
        if position in self.completions:
            self.wait_until(self.completions[position], operation.source)

    def finish(self) -> None:
        self.wait_until({p for group in self.groups for p in group.positions}, self.body.source)
        self.drain_stores()

    # ---- loops

    def steps(self, loop: ir.Steps, position: int) -> None:
        flying = self._flying(loop)
        for pipeline in flying:
            self.add(Declare(previous(pipeline), integer(0), "the stage that the group in flight reads", loop.source))
        self.fetch_before(loop)
        outer_names, self.named = self.named, {}
        super().steps(loop, position)
        self.named = outer_names
        for pipeline in flying:
            self._drain(pipeline, loop)

    def loop_body(self, loop: ir.Steps, position: int) -> None:
        self.block(loop.body)
        self.close()

    def _flying(self, loop: ir.Steps) -> list[str]:
        """Pipelines whose stages are released a step late, because a group stays in flight over the back edge of this loop."""
        return [op.pipeline for op in loop.body if isinstance(op, ir.Consume) and self.depths.get(op.pipeline, 0) > 0]

    def _drain(self, pipeline: str, loop: ir.Steps) -> None:
        """Behind the loop: the last group is done, and its stage is released too."""
        positions = {p for group in self.groups for p in group.positions}
        self.wait_until(positions, loop.source)
        release = self.context.execute("mbarrier_arrive", self.context.barrier(pipeline, "empty", previous(pipeline)))
        self.add(If(self.elected(), (release,), why="drains the ring: each stage ends released", source=loop.source))

    # ---- pipelines

    def consume(self, block: ir.Consume, position: int) -> None:
        name = block.pipeline
        self.ring(name, "consumer")
        if block.relayed_by is None and name not in self.early_waits():
            self.wait_for_stage(block)
        end = self.timeline.end_of[position]
        stage = OpenStage(block, self.last_reader(block, position, end), stage_of(name))
        self.stages.append(stage)
        self.block(block.body)
        self.close()
        if self.ends_step(block):
            self.end_of_step()
        self.stages.pop()
        if self.depths.get(name, 0) > 0 and self.loops:
            self._release_late(block)
        else:
            if end in self.completions:
                self.wait_until(self.completions.pop(end), block.source)
            if not stage.released:
                self.release(block, stage.stage)
        if not stage.advanced:
            self.advance(name)
            self.generation[name] = self.generation.get(name, 0) + 1

    def wait_for_stage(self, block: ir.Consume) -> None:
        """Wait until the stage is full, but not before the values that are to be computed in the wait's shadow."""
        name = block.pipeline
        operands = [self.array_of(value) for value in block.after if value in self.held.held]
        if not operands:
            self.wait(name, "full", block.source)
            return
        self.need_arrays(block)
        for array in operands:
            self.pin(array)
        self.execute(
            "mbarrier_wait_after",
            ArrayOperand(operands[0]),
            self.context.barrier(name, "full"),
            phase_of(name),
            source=block.source,
        )

    def need_arrays(self, block: ir.Consume) -> None:
        """`after` names register operands: what ptxas would otherwise move below the wait."""
        for value in block.after:
            if self.held.held[value].kind is not Kind.PAIRS:
                raise self.context.refuse(f"after={value!r}, which is no operand", block.source, "Name an operand.")

    def last_reader(self, block: ir.Consume, begin: int, end: int) -> int:
        """The last position at which something reads the stage: threads where they fetch, products where they are waited for."""
        last = begin
        for at in range(begin, end):
            event = self.timeline.events[at]
            match event.operation:
                case ir.ReadShared(origin=tile, ahead=0) if tile.pipeline == block.pipeline and not event.is_end:
                    last = max(last, at)
                case ir.CopyOut(origin=tile) if tile.pipeline == block.pipeline:
                    last = end
                case ir.Mma(a=a, b=b) if any(
                    isinstance(side, ir.SharedTile) and side.pipeline == block.pipeline for side in (a, b)
                ):
                    last = max(last, self.timeline.completion(at, self.depths)[0])
                case _:
                    pass
        return last

    def due_releases(self) -> list[Execute]:
        """Stages that nobody in this warp reads any more: their arrivals join those of the stage that is published."""
        due: list[Execute] = []
        for stage in self.stages:
            flying = any(
                position in self.timeline_positions(stage.block)
                for group in self.groups
                for position in group.positions
            )
            reader = self.reader(stage.block.pipeline)
            if stage.released or reader.by != "warp" or reader.stores or stage.last_reader >= self.at or flying:
                continue
            stage.released = True
            due.append(
                self.context.execute(
                    "mbarrier_arrive",
                    self.context.barrier(stage.block.pipeline, "empty"),
                    source=stage.block.source,
                )
            )
        return due

    def timeline_positions(self, block: ir.Consume) -> set[int]:
        """Positions of products that read stages of a block's pipeline."""
        return {
            at
            for at, mma in self.timeline.products()
            if any(isinstance(side, ir.SharedTile) and side.pipeline == block.pipeline for side in (mma.a, mma.b))
        }

    def _release_late(self, block: ir.Consume) -> None:
        """All groups but the newest are done: the stage of the step before is free."""
        name = block.pipeline
        depth = self.depths[name]
        self.close()
        self.groups = self.groups[-1:]
        self.execute("wgmma_wait_group", integer(depth), why="all but the newest group: the stage before has been read")
        loop = self.loops[-1]
        started = Binary(">", loop.index, loop.first)
        arrive = self.context.execute("mbarrier_arrive", self.context.barrier(name, "empty", previous(name)))
        self.add(If(both(started, self.elected()), (arrive,), source=block.source))
        self.add(Assign(previous(name), stage_of(name), source=block.source))

    # ---- a step ahead

    def early_waits(self) -> dict[str, list[ir.ReadShared]]:
        """Rings of the running loop whose full barrier this role sees at the end of the step before."""
        return self.waits_of(self.loops[-1]) if self.loops else {}

    def waits_of(self, loop: ir.Steps) -> dict[str, list[ir.ReadShared]]:
        found: dict[str, list[ir.ReadShared]] = {}
        consumes = [op for op in ir.walk(loop.body) if isinstance(op, ir.Consume)]
        for operation in ir.walk(loop.body):
            if isinstance(operation, ir.ReadShared) and operation.ahead:
                block = next(op for op in consumes if op.pipeline == operation.origin.pipeline)
                found.setdefault(block.relayed_by or block.pipeline, []).append(operation)
        return found

    def fetch_before(self, loop: ir.Steps) -> None:
        """The first step's early values, before the loop."""
        for ring, fetches in self.waits_of(loop).items():
            self.ring(ring, "consumer")
            block = next(op for op in ir.walk(loop.body) if isinstance(op, ir.Consume) and op.pipeline == ring)
            self.wait(ring, "full", block.source)
            for fetch in fetches:
                self.ring(str(fetch.origin.pipeline), "consumer")
                self.declare_fetch(fetch)
                self.fetch(fetch)

    def ends_step(self, block: ir.Consume) -> bool:
        """Whether the end of this block, whose last operation is no block of its kind, is the end of the running loop's step."""
        if not self.loops or (block.body and isinstance(block.body[-1], ir.Consume)):
            return False
        last: tuple[ir.Operation, ...] = self.loops[-1].body
        while last and isinstance(last[-1], ir.Consume):
            if last[-1] is block:
                return True
            last = last[-1].body
        return False

    def end_of_step(self) -> None:
        """What belongs to the next step: rings move on, the next stages are waited for, early values are fetched."""
        loop = self.loops[-1]
        waits = self.waits_of(loop)
        ahead = [op for op in ir.walk(loop.body) if isinstance(op, ir.Produce) and op.ahead]
        if not waits and not ahead:
            return
        mine = [stage for stage in self.stages if any(op is stage.block for op in ir.walk(loop.body))]
        for stage in reversed(mine):
            name = stage.block.pipeline
            if not stage.released:
                stage.stage = Var(f"{name}_read", i32)
                self.add(Let(stage.stage, stage_of(name), "still read by a product", stage.block.source))
            self.advance(name)
            self.generation[name] = self.generation.get(name, 0) + 1
            stage.advanced = True
        for produce in ahead:
            self.wait(produce.pipeline, "empty", produce.source)
        if waits:
            inside = self.collect(self._fetch_next, loop, waits)
            more = Binary("<", plus(loop.index, loop.step), loop.count)
            self.add(If(more, inside, source=loop.source))

    def _fetch_next(self, loop: ir.Steps, waits: dict[str, list[ir.ReadShared]]) -> None:
        for ring, fetches in waits.items():
            self.wait(ring, "full", loop.source)
            for fetch in fetches:
                self.fetch(fetch)


def previous(pipeline: str) -> Var:
    return Var(f"{pipeline}_previous", i32)

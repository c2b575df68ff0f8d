"""Who fills a pipeline's stages and who reads them, and what that means for the arrivals that release a stage."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Var
from kernwright.generator.passes.derive.checks import nested
from kernwright.generator.passes.derive.roles import warps_of

Around = tuple[ir.Block, ...]
STORES = (
    "; its TMA stores: the elected thread that issues them arrives, once it has seen their reads done "
    "(cp.async.bulk.wait_group.read)"
)


@dataclass(frozen=True, slots=True)
class Reader:
    """One consuming role: how many arrivals release a stage, why, and how many MMA groups stay in flight meanwhile.

    `by` says whose arrivals they are: a "warp"'s first lane, a "warpgroup"'s elected thread, one "thread", or nobody's. The commit
    of tcgen05 products is one more, and so is the thread that issues TMA stores of the stage.
    """

    role: str
    arrivals: int
    reason: str
    in_flight: int
    why_in_flight: str
    by: str
    commit: bool
    stores: bool


@dataclass(frozen=True, slots=True)
class _Uses:
    """How a role uses the stages of one pipeline: its consume blocks with what is around them, and the accesses inside."""

    role: ir.Role
    blocks: tuple[tuple[ir.Consume, Around], ...]
    fetches: tuple[ir.ReadShared, ...]
    stores: tuple[ir.CopyOut, ...]
    products: tuple[ir.Mma, ...]

    @property
    def in_one_thread(self) -> bool:
        return all(any(isinstance(block, ir.OneThread) for block in around) for _, around in self.blocks)


def writer_of(description: Description, pipeline: ir.Pipeline) -> tuple[str, list[tuple[ir.Produce, Around]]]:
    """The one role that fills the stages, and its produce blocks with what is around each."""
    found = {
        body.role: [
            (operation, around)
            for operation, around in nested(body.body)
            if isinstance(operation, ir.Produce) and operation.pipeline == pipeline.name
        ]
        for body in description.role_bodies
    }
    writers = {role: blocks for role, blocks in found.items() if blocks}
    if len(writers) != 1:
        names = ", ".join(sorted(writers)) or "no role"
        raise PipelineFault(
            "KW0401",
            f"pipeline {pipeline.name!r} is filled by {names}",
            pipeline.source,
            detail="Exactly one role fills a stage; without one, its readers wait for ever.",
        )
    return next(iter(writers.items()))


def readers_of(description: Description, pipeline: ir.Pipeline, arch: Architecture) -> tuple[Reader, ...]:
    """Every consuming role in the order of the description."""
    readers: list[Reader] = []
    for body in description.role_bodies:
        uses = _uses(description, body, pipeline.name)
        if uses.blocks:
            depth, why = _depth(uses, pipeline, arch)
            arrivals, reason, by = _arrivals(description, uses, pipeline.name, arch)
            commit = bool(uses.products) and arch.machine is Machine.TCGEN05
            readers.append(Reader(body.role, arrivals, reason, depth, why, by, commit, bool(uses.stores)))
    if not readers:
        raise PipelineFault(
            "KW0401",
            f"pipeline {pipeline.name!r} is read by no role",
            pipeline.source,
            detail="Its producer would wait for ever for a free stage.",
        )
    return tuple(readers)


def _uses(description: Description, body: ir.RoleBody, name: str) -> _Uses:
    blocks = tuple(
        (operation, around)
        for operation, around in nested(body.body)
        if isinstance(operation, ir.Consume) and operation.pipeline == name
    )
    operations = [operation for block, _ in blocks for operation in ir.walk(block.body)]
    return _Uses(
        description.role(body.role),
        blocks,
        tuple(op for op in operations if isinstance(op, ir.ReadShared) and op.origin.pipeline == name),
        tuple(op for op in operations if isinstance(op, ir.CopyOut) and op.origin.pipeline == name),
        tuple(op for op in operations if isinstance(op, ir.Mma) and reads_stage(op, name)),
    )


def reads_stage(mma: ir.Mma, name: str) -> bool:
    """Whether a product has an operand in the stages of a pipeline."""
    return any(isinstance(side, ir.SharedTile) and side.pipeline == name for side in (mma.a, mma.b))


def reads_buffer(mma: ir.Mma, tile: ir.SharedTile) -> bool:
    """Whether `tile` is a standing buffer and an operand of a product."""
    return tile.pipeline is None and any(isinstance(side, ir.SharedTile) and side == tile for side in (mma.a, mma.b))


def _arrivals(description: Description, uses: _Uses, name: str, arch: Architecture) -> tuple[int, str, str]:
    """Arrivals of one role that release a stage: threads arrive by warps, wgmma by warpgroups, tcgen05 and stores by one each."""
    warps = 1 if uses.in_one_thread else warps_of(uses.role)
    stores = (STORES, 1) if uses.stores else ("", 0)
    commit = bool(uses.products) and arch.machine is Machine.TCGEN05
    if uses.fetches:
        reason = _by_threads(uses, warps)
        if uses.products and not commit:
            reason += " and the wait for its products"
        if commit:
            reason += "; the commit of its products is one more"
        by = "thread" if uses.in_one_thread else "warp"
        return warps + int(commit) + stores[1], reason + stores[0], by
    if commit:
        return 1 + stores[1], "read by tcgen05.mma alone: the commit is the arrival" + stores[0], "none"
    if uses.products:
        groups = uses.role.warpgroups
        return (
            groups + stores[1],
            (f"read by wgmma alone: one arrival for each warpgroup ({groups}), once its wait has proved the reads done")
            + stores[0],
            "warpgroup",
        )
    if uses.stores:
        return stores[1], stores[0].removeprefix("; "), "none"
    relayed = _vouched_reader(description, uses, name)
    if relayed is not None:
        return (
            0,
            (
                f"only vouches for it: role {relayed} releases the stage after it has seen this role's arrival, so none is needed"
            ),
            "none",
        )
    return (
        warps,
        f"waits, but reads no tile: one arrival for each of its warps ({warps})",
        ("thread" if uses.in_one_thread else "warp"),
    )


def _by_threads(uses: _Uses, warps: int) -> str:
    if uses.in_one_thread:
        return "one elected thread reads it: one arrival"
    if warps == 1:
        return "its warp reads it itself: one arrival, after __syncwarp"
    return f"its {warps} warps read it themselves: one arrival each, after __syncwarp"


def _vouched_reader(description: Description, uses: _Uses, name: str) -> str | None:
    """The role that reads a stage because this one, which only waits for it, vouches: its release comes after our wait."""
    relays = {
        operation.pipeline
        for block, _ in uses.blocks
        for operation in ir.walk(block.body)
        if isinstance(operation, ir.Produce)
    }
    for body in description.role_bodies:
        for operation in ir.walk(body.body):
            if isinstance(operation, ir.Consume) and operation.pipeline == name and operation.relayed_by in relays:
                return body.role
    return None


def _depth(uses: _Uses, pipeline: ir.Pipeline, arch: Architecture) -> tuple[int, str]:
    """A stage that only wgmma reads, in a block that does nothing else, is released one step late: the next group overlaps."""
    if not uses.products:
        return 0, "no product reads the stage"
    loops = [[block for block in around if isinstance(block, ir.Steps)] for _, around in uses.blocks]
    if not all(loops):
        return 0, "no loop: the stage is released once, behind the wait"
    step = [operation for around in loops for operation in ir.walk(around[-1].body)]
    written = {mma.accumulator for mma in uses.products}
    if any(isinstance(op, ir.ReadAccumulator | ir.SetAccumulator) and op.accumulator in written for op in step):
        return 0, "the result is read in the same step, so the wait comes before the release"
    operands = {mma.a.name for mma in uses.products if isinstance(mma.a, Var)}
    again = [op.target for op in step if isinstance(op, ir.WriteShared | ir.CopyIn)]
    buffers = {tile.name for tile in again if any(reads_buffer(mma, tile) for mma in uses.products)}
    if buffers:
        return (
            0,
            f"{' and '.join(sorted(buffers))}, which the product reads, is written again in each step, behind the wait",
        )
    if arch.machine is Machine.TCGEN05:
        if operands & {getattr(op, "name", None) for op in step}:
            return 0, "an operand in tensor memory is written again in each step, once its product is complete"
        return pipeline.stages, "the commit signals completion by itself: the issuer waits for none of its products"
    if operands:
        return 0, (
            "an operand in registers: a group in flight over the back edge would make ptxas serialise every wgmma (C7514)"
        )
    alone = all(isinstance(op, ir.Mma | ir.Consume) for block, _ in uses.blocks for op in ir.walk(block.body))
    if alone and not uses.fetches and not uses.stores:
        return 1, "one wgmma group stays in flight; stage k - 1 is released after the wait for all but the newest"
    return 0, "the block does more than multiply, so the wait comes before the release"

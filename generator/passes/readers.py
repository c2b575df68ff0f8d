"""Who fills a pipeline's stages and who reads them, and what that means for the arrivals that release a stage."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description

WARPS_PER_GROUP = 4


@dataclass(frozen=True, slots=True)
class Reader:
    """One consuming role: how many arrivals release a stage, why, and how many MMA groups stay in flight meanwhile."""

    role: str
    arrivals: int
    reason: str
    in_flight: int
    why_in_flight: str


def writer_of(description: Description, pipeline: ir.Pipeline) -> tuple[str, list[ir.Produce]]:
    """The one role that fills the stages, and its produce blocks."""
    found = {
        body.role: [op for op in ir.walk(body.body) if isinstance(op, ir.Produce) and op.pipeline == pipeline.name]
        for body in description.body
        if isinstance(body, ir.RoleBody)
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
    for body in description.body:
        if not isinstance(body, ir.RoleBody):
            continue
        blocks = [op for op in ir.walk(body.body) if isinstance(op, ir.Consume) and op.pipeline == pipeline.name]
        if blocks:
            role = next(role for role in description.roles if role.name == body.role)
            readers.append(_reader(role, blocks, pipeline, arch))
    if not readers:
        raise PipelineFault(
            "KW0401",
            f"pipeline {pipeline.name!r} is read by no role",
            pipeline.source,
            detail="Its producer would wait for ever for a free stage.",
        )
    return tuple(readers)


def check_relays(description: Description) -> None:
    """A relayed wait is legal when the relay's producer itself waits for the stage around its produce block, and this role waits
    for the relay first; anything else would read a stage that nobody has seen full."""
    for body in description.body:
        if not isinstance(body, ir.RoleBody):
            continue
        for consume in [op for op in ir.walk(body.body) if isinstance(op, ir.Consume) and op.relayed_by]:
            relay = next(pipeline for pipeline in description.pipelines if pipeline.name == consume.relayed_by)
            role, _ = writer_of(description, relay)
            theirs = next(op for op in description.body if isinstance(op, ir.RoleBody) and op.role == role)
            waits = any(
                isinstance(op, ir.Consume)
                and op.pipeline == consume.pipeline
                and any(isinstance(inner, ir.Produce) and inner.pipeline == relay.name for inner in ir.walk(op.body))
                for op in ir.walk(theirs.body)
            )
            inside = any(
                isinstance(op, ir.Consume) and op.pipeline == relay.name and consume in ir.walk(op.body)
                for op in ir.walk(body.body)
            )
            if not (waits and inside):
                raise PipelineFault(
                    "KW0406",
                    f"pipeline {relay.name!r} does not vouch for {consume.pipeline!r}",
                    consume.source,
                    where=f"in role {body.role!r}",
                    detail=f"role {role!r} must consume {consume.pipeline!r} around producing {relay.name!r}, and this role must "
                    f"consume {relay.name!r} around {consume.pipeline!r}.",
                    fix="Drop relayed_by: the role then waits itself.",
                )


def _reader(role: ir.Role, blocks: list[ir.Consume], pipeline: ir.Pipeline, arch: Architecture) -> Reader:
    operations = [op for block in blocks for op in ir.walk(block.body)]
    by_threads = [op for op in operations if isinstance(op, ir.ReadShared) and op.origin.pipeline == pipeline.name]
    by_products = [op for op in operations if isinstance(op, ir.Mma) and _reads(op, pipeline)]
    warps = WARPS_PER_GROUP * role.warpgroups or 1
    depth, why = _depth(blocks, by_products, bool(by_threads), pipeline, arch)
    if by_threads:
        who = (
            "its warp reads it itself: one arrival"
            if warps == 1
            else f"its {warps} warps read it themselves: one arrival each"
        )
        reason = f"{who}, after __syncwarp"
        return Reader(role.name, warps, reason + (" and the wait for its products" if by_products else ""), depth, why)
    if by_products and arch.machine is Machine.TCGEN05:
        return Reader(role.name, 1, "read by tcgen05.mma alone: the commit is the arrival", depth, why)
    if by_products:
        groups = role.warpgroups
        return Reader(
            role.name,
            groups,
            f"read by wgmma alone: one arrival for each warpgroup ({groups}), once its wait has proved the reads done",
            depth,
            why,
        )
    return Reader(
        role.name, warps, f"waits, but reads no tile: one arrival for each of its warps ({warps})", depth, why
    )


def _depth(
    blocks: list[ir.Consume], products: list[ir.Mma], by_threads: bool, pipeline: ir.Pipeline, arch: Architecture
) -> tuple[int, str]:
    """A stage that only wgmma reads, in a block that does nothing else, is released one step late: the next group overlaps."""
    if not products:
        return 0, "no product reads the stage"
    if arch.machine is Machine.TCGEN05:
        return pipeline.stages, "the commit signals completion by itself: the issuer waits for none of its products"
    alone = all(isinstance(op, ir.Mma) for block in blocks for op in block.body)
    if alone and not by_threads:
        return 1, "one wgmma group stays in flight; stage k - 1 is released after the wait for all but the newest"
    return 0, "the result is read in the same step, so the wait comes before the release"


def _reads(mma: ir.Mma, pipeline: ir.Pipeline) -> bool:
    return any(isinstance(side, ir.SharedTile) and side.pipeline == pipeline.name for side in (mma.a, mma.b))

"""The two barriers of a pipeline's stages: who arrives, how often, with which bytes, behind which fence, and where one waits."""

from __future__ import annotations

from kernwright.generator.arch import Architecture
from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.passes.derive.checks import nested
from kernwright.generator.passes.derive.facts import BarrierCount, FetchAhead, PipelineFacts
from kernwright.generator.passes.derive.readers import Around, readers_of, writer_of
from kernwright.generator.passes.derive.relays import check_relays
from kernwright.generator.passes.derive.roles import warps_of
from kernwright.generator.passes.derive.stages import check_stages
from kernwright.generator.passes.derive.turns import check_turns


def pipeline_facts(description: Description, pipeline: ir.Pipeline, arch: Architecture) -> PipelineFacts:
    """Derive the barriers of one pipeline."""
    check_relays(description)
    producer, blocks = writer_of(description, pipeline)
    readers = readers_of(description, pipeline, arch)
    ahead = tuple(_ahead(description, body, pipeline) for body in description.role_bodies)
    check_stages(description, pipeline, readers, arch)
    for block, _ in blocks:
        _check_filled(pipeline, producer, block)
        _check_alike(pipeline, producer, blocks[0][0], block)
    return PipelineFacts(
        pipeline,
        producer,
        full=_full(description, pipeline, producer, blocks),
        empty=BarrierCount(
            sum(reader.arrivals for reader in readers),
            0,
            "; ".join(f"role {reader.role}: {reader.reason}" for reader in readers),
        ),
        in_flight=tuple((reader.role, reader.in_flight, reader.why_in_flight) for reader in readers),
        fence=_fence(description, pipeline, blocks),
        acquire=_acquire(blocks),
        ahead=tuple(item for item in ahead if item is not None),
        not_compared=check_turns(description, pipeline),
    )


def _check_filled(pipeline: ir.Pipeline, producer: str, block: ir.Produce) -> None:
    names = sorted(
        op.target.name
        for op in ir.walk(block.body)
        if isinstance(op, ir.CopyIn | ir.WriteShared) and op.target.pipeline == pipeline.name
    )
    wanted = sorted(tile.name for tile in pipeline.tiles)
    if names != wanted:
        raise PipelineFault(
            "KW0402",
            f"stage of pipeline {pipeline.name!r} is filled incompletely",
            block.source,
            where=f"in role {producer!r}",
            detail=f"written: {', '.join(names) or 'nothing'}; the stage has {', '.join(wanted)}.",
            fix="Write every tile of the stage exactly once in each produce block.",
        )


def _check_alike(pipeline: ir.Pipeline, producer: str, first: ir.Produce, block: ir.Produce) -> None:
    """One count for all phases: a tile that is copied in one produce block is copied in each."""
    ways = [
        {type(op).__name__ + op.target.name for op in ir.walk(part.body) if isinstance(op, ir.CopyIn | ir.WriteShared)}
        for part in (first, block)
    ]
    if ways[0] != ways[1]:
        raise PipelineFault(
            "KW0402",
            f"stages of pipeline {pipeline.name!r} are filled in two ways",
            block.source,
            where=f"in role {producer!r}",
            detail=f"a tile is copied here and written by threads at {first.source}, or the other way round.",
            fix="Fill each tile the same way in each produce block: arrivals and bytes of a phase are fixed.",
        )


def _full(
    description: Description, pipeline: ir.Pipeline, producer: str, blocks: list[tuple[ir.Produce, Around]]
) -> BarrierCount:
    """Arrivals and bytes of the full barrier: copies count by their boxes, threads by warps, a single thread once."""
    block = blocks[0][0]
    copied = [op for op in ir.walk(block.body) if isinstance(op, ir.CopyIn) and op.target.pipeline == pipeline.name]
    size = sum(op.target.layout.bytes for op in copied)
    copies = f"the bytes of {len(copied)} copies" if len(copied) > 1 else "the bytes of its copy"
    if len(copied) == len(pipeline.tiles):
        return BarrierCount(1, size, f"role {producer}'s elected thread, and {copies}", "the elected thread")
    alone = all(_in_one_thread(block, around) for block, around in blocks)
    warps = 1 if alone else warps_of(description.role(producer))
    if alone:
        reason = f"role {producer}'s elected thread writes it alone: one arrival"
    else:
        reason = f"one per warp of role {producer}, after __syncwarp"
    if not copied:
        return BarrierCount(warps, 0, reason)
    carrier = "the elected thread" if alone else "the elected thread of the first warp, for that warp"
    return BarrierCount(
        warps, size, f"{reason}; {carrier} announces {copies} (expect_tx) before it issues them", carrier
    )


def _in_one_thread(block: ir.Produce, around: Around) -> bool:
    """Whether all ordinary writes of a produce block are one thread's."""
    if any(isinstance(outer, ir.OneThread) for outer in around):
        return True
    return all(
        any(isinstance(outer, ir.OneThread) for outer in inner)
        for operation, inner in nested(block.body)
        if isinstance(operation, ir.WriteShared)
    )


def _fence(description: Description, pipeline: ir.Pipeline, blocks: list[tuple[ir.Produce, Around]]) -> str:
    """Writers of ordinary stores fence if an asynchronous reader (a product, a TMA store) reads what they wrote."""
    written = {
        op.target.name
        for block, _ in blocks
        for op in ir.walk(block.body)
        if isinstance(op, ir.WriteShared) and op.target.pipeline == pipeline.name
    }
    sides = [
        side
        for op in ir.walk(description.body)
        for side in ((op.a, op.b) if isinstance(op, ir.Mma) else (op.origin,) if isinstance(op, ir.CopyOut) else ())
        if isinstance(side, ir.SharedTile) and side.pipeline == pipeline.name
    ]
    names = sorted(written & {side.name for side in sides})
    if not names:
        return "none"
    return f"fence.proxy.async by the writers, before they arrive: MMAs or TMA stores read {' and '.join(names)}"


def _acquire(blocks: list[tuple[ir.Produce, Around]]) -> str:
    if any(block.ahead for block, _ in blocks):
        return (
            "for the next stage at the end of each step, also of the last, so that at most one release is outstanding and a "
            "parity is not ambiguous; the first stage is empty by construction"
        )
    return "at the start of the block"


def _ahead(description: Description, body: ir.RoleBody, pipeline: ir.Pipeline) -> FetchAhead | None:
    """What a role reads a step early from this pipeline, or from one that this pipeline vouches for."""
    names: list[str] = []
    for operation, around in nested(body.body):
        if not isinstance(operation, ir.ReadShared) or not operation.ahead:
            continue
        held = [block for block in around if isinstance(block, ir.Consume)]
        own = [block for block in held if block.pipeline == operation.origin.pipeline]
        if pipeline.name in {block.pipeline for block in own} | {block.relayed_by for block in own}:
            names.append(operation.name)
        early = operation.ahead * description.role(body.role).replicas
        if pipeline.name in {block.pipeline for block in held} and pipeline.stages <= early:
            raise PipelineFault(
                "KW0405",
                f"pipeline {pipeline.name!r} has {pipeline.stages} stage{'s' if pipeline.stages > 1 else ''}",
                pipeline.source,
                where=f"role {body.role!r} fetches {operation.name!r} {operation.ahead} step ahead",
                detail="it holds the stage of this step while it waits for the next one.",
                fix=f"Use at least {early + 1} stages.",
            )
    return FetchAhead(body.role, tuple(names), 1) if names else None

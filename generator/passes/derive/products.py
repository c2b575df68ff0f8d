"""Matrix products: the instruction's shape, how many of them, the operands' descriptors, and where completion is waited for."""

from __future__ import annotations

from dataclasses import replace

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import LayoutFault
from kernwright.generator.instructions.descriptors import Descriptor, describe_operand
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.layout import MMA_K, MMA_ROWS, SharedLayout, WgmmaOperandA
from kernwright.generator.passes.derive.facts import MmaFacts, PipelineFacts
from kernwright.generator.passes.derive.timeline import Timeline


def product_facts(
    description: Description, pipelines: tuple[PipelineFacts, ...], arch: Architecture
) -> tuple[MmaFacts, ...]:
    """Every product of every role, in program order."""
    found: list[MmaFacts] = []
    for body in description.role_bodies:
        timeline = Timeline(body)
        depths = depths_of(pipelines, body.role)
        for position, mma in timeline.products():
            wait = timeline.completion(position, depths)[1]
            accumulator = next(item for item in description.accumulators if item.name == mma.accumulator)
            if arch.machine is Machine.WGMMA:
                found.append(
                    _wgmma(mma, accumulator, description.role(body.role), _wgmma_wait(mma, depths, wait), arch)
                )
            else:
                found.append(_tcgen05(mma, accumulator, body.role, arch))
    return tuple(found)


def depths_of(pipelines: tuple[PipelineFacts, ...], role: str) -> dict[str, int]:
    """Groups in flight of a role while a stage is released, by pipeline."""
    return {facts.pipeline.name: depth for facts in pipelines for name, depth, _ in facts.in_flight if name == role}


def _wgmma_wait(mma: ir.Mma, depths: dict[str, int], wait: str) -> str:
    rings = [side.pipeline for side in (mma.a, mma.b) if isinstance(side, ir.SharedTile) and side.pipeline]
    depth = max((depths.get(ring, 0) for ring in rings), default=0)
    return f"{wait}; in each step all groups but the newest {depth}" if depth else wait


def _wgmma(mma: ir.Mma, accumulator: ir.Accumulator, role: ir.Role, wait: str, arch: Architecture) -> MmaFacts:
    """One warpgroup's instructions: its own rows of the accumulator, 64 at a time, and 16 values of K each."""
    b = _operand_b(mma, arch)
    fragments = accumulator.rows // (MMA_ROWS * role.warpgroups)
    depth = b.layout.columns
    a: Descriptor | WgmmaOperandA
    if isinstance(mma.a, ir.SharedTile):
        a = describe_operand(_operand_a(mma.a, mma.a_transposed), arch)
    else:
        try:
            a = WgmmaOperandA(accumulator.rows, depth, role.warpgroups)
        except ValueError as error:
            raise LayoutFault(
                "KW0302", f"{mma.a.name!r} does not fit the instruction", mma.source, detail=str(error)
            ) from None
    return MmaFacts(
        mma,
        role.name,
        f"wgmma.mma_async.m{MMA_ROWS}n{accumulator.columns}k{MMA_K}.f32.bf16.bf16",
        depth // MMA_K * fragments,
        a,
        b,
        "all warps of the warpgroup",
        wait,
    )


def _tcgen05(mma: ir.Mma, accumulator: ir.Accumulator, role: str, arch: Architecture) -> MmaFacts:
    """One thread issues instructions for all rows."""
    b = _operand_b(mma, arch)
    a: Descriptor | str = "TMEM: element (m, k) at lane m, column k / 2"
    if isinstance(mma.a, ir.SharedTile):
        a = describe_operand(_operand_a(mma.a, mma.a_transposed), arch)
    return MmaFacts(
        mma,
        role,
        f"tcgen05.mma.kind::f16 m{accumulator.rows}n{accumulator.columns}k{MMA_K}",
        b.layout.columns // MMA_K,
        a,
        b,
        "one elected thread of the role's first warp",
        f"with the commit to {mma.accumulator}_full",
    )


def _operand_b(mma: ir.Mma, arch: Architecture) -> Descriptor:
    """B as [N, K]: a tile stored [N, K] is passed as `.T`, any other is read along its other dimension."""
    return describe_operand(mma.b.layout if mma.b_transposed else _turned(mma.b.layout), arch)


def _operand_a(tile: ir.SharedTile, transposed: bool) -> SharedLayout:
    """A as [M, K]: a tile stored [M, K] as it is, one stored [K, M] read along its other dimension."""
    return _turned(tile.layout) if transposed else tile.layout


def _turned(layout: SharedLayout) -> SharedLayout:
    """The same bytes as the transposed matrix: rows and columns change places, and so does the contiguous one."""
    return replace(layout, rows=layout.columns, columns=layout.rows, major="MN" if layout.major == "K" else "K")

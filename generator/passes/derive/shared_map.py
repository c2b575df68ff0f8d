"""The map of shared memory: tiles, factors, barriers and the tensor-memory address, in one dynamic block."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import LimitFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.passes.derive.facts import (
    AccumulatorFacts,
    BarrierCount,
    BufferFacts,
    OperandColumns,
    PipelineFacts,
    SharedSlot,
)

BARRIER_BYTES = 8
ADDRESS_BYTES = 4  # of tensor memory, as tcgen05.alloc writes it
RESERVED_BYTES = 1024  # of each block, by the system


@dataclass(frozen=True, slots=True)
class _Wanted:
    name: str
    count: int
    size: int
    alignment: int
    what: str

    @property
    def stride(self) -> int:
        return -(-self.size // self.alignment) * self.alignment if self.count > 1 else self.size


def shared_map(
    description: Description,
    pipelines: tuple[PipelineFacts, ...],
    buffers: tuple[BufferFacts, ...],
    accumulators: tuple[AccumulatorFacts, ...],
    operands: tuple[OperandColumns, ...],
    arch: Architecture,
) -> tuple[tuple[SharedSlot, ...], int]:
    """Slots in order and their end in bytes: tiles with the strictest alignment first, then factors, then barriers."""
    copies = {facts.buffer.name: facts.copies for facts in buffers}
    wanted = [
        _tile(f"{pipeline.name}.{tile.name}", pipeline.stages, tile, f"{pipeline.stages} x ")
        for pipeline in description.pipelines
        for tile in pipeline.tiles
    ]
    for tile in description.buffers:
        count = copies.get(tile.name, 1)
        wanted.append(_tile(tile.name, count, tile, f"{count} x, one a copy of the role: " if count > 1 else ""))
    wanted.sort(key=lambda row: -row.alignment)
    for facts in pipelines:
        for side, barrier in (("full", facts.full), ("empty", facts.empty)):
            wanted.append(_barrier(f"{facts.pipeline.name}_{side}", facts.pipeline.stages, barrier))
    for buffer in buffers:
        if buffer.full is not None:
            wanted.append(_barrier(f"{buffer.buffer.name}_full", buffer.copies, buffer.full))
    for item in accumulators:
        for side, count_or_none in (("full", item.full), ("empty", item.empty)):
            if count_or_none is not None:
                wanted.append(_barrier(f"{item.accumulator.name}_{side}", item.buffers, count_or_none))
    for operand in operands:
        for side, count_or_none in (("full", operand.full), ("empty", operand.empty)):
            if count_or_none is not None:
                wanted.append(_barrier(f"{operand.operand}_{side}", 1, count_or_none))
    if accumulators and arch.machine is Machine.TCGEN05:
        wanted.append(
            _Wanted(
                "tensor_memory", 1, ADDRESS_BYTES, ADDRESS_BYTES, "address of the columns, written by tcgen05.alloc"
            )
        )
    slots, end = _place(wanted)
    _check(description, slots, end, arch)
    return slots, end


def _tile(name: str, count: int, tile: ir.SharedTile, prefix: str) -> _Wanted:
    layout = tile.layout
    return _Wanted(name, count, layout.bytes, layout.alignment, prefix + layout.formula)


def _barrier(name: str, count: int, barrier: BarrierCount) -> _Wanted:
    amount = f"{barrier.arrivals} arrival{'' if barrier.arrivals == 1 else 's'}" + (
        f" + {barrier.bytes} bytes" if barrier.bytes else ""
    )
    what = f"{count} barrier{'' if count == 1 else 's'}: {amount}"
    return _Wanted(name, count, BARRIER_BYTES, BARRIER_BYTES, what)


def _place(wanted: list[_Wanted]) -> tuple[tuple[SharedSlot, ...], int]:
    slots: list[SharedSlot] = []
    end = 0
    for row in wanted:
        start = -(-end // row.alignment) * row.alignment
        slots.append(SharedSlot(row.name, start, row.stride * row.count, row.alignment, row.what, row.stride))
        end = start + row.stride * row.count
    return tuple(slots), end


def _check(description: Description, slots: tuple[SharedSlot, ...], end: int, arch: Architecture) -> None:
    limit = arch.oversized_shared_memory_per_block or arch.shared_memory_per_block
    blocks = description.blocks_per_sm or 1
    together = max(arch.shared_memory_per_sm, limit + RESERVED_BYTES)
    if end <= limit and blocks * (end + RESERVED_BYTES) <= together:
        return
    detail = f"the limit is {limit} bytes; "
    if end <= limit:
        detail = f"{blocks} x ({end} + {RESERVED_BYTES} reserved) bytes; an SM has {together}; "
    raise LimitFault(
        "KW0501",
        f"{description.symbol!r} needs {end} bytes of shared memory",
        description.source,
        where=f"on {arch.name}",
        detail=detail
        + "the largest tiles are "
        + ", ".join(f"{slot.name} ({slot.size})" for slot in sorted(slots, key=lambda slot: -slot.size)[:3])
        + ".",
        fix="Use fewer stages or smaller tiles."
        if blocks == 1
        else "Use fewer stages, smaller tiles or fewer blocks an SM.",
    )

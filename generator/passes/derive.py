"""What follows from a description and an architecture: layouts, arrival and byte counts, in-flight depth, budgets, memory maps.

The author writes none of these numbers. Each is derived here once, with its reason, and everything else (lowering, explain, checks)
reads it from here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import LayoutFault, LimitFault, PipelineFault
from kernwright.generator.instructions.descriptors import Descriptor, describe_operand
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Var
from kernwright.generator.ir.layout import SharedLayout, TmemLayout, TmemLoadRows, WgmmaAccumulator, WgmmaOperandA
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import bf16
from kernwright.generator.passes.readers import WARPS_PER_GROUP, Reader, check_relays, readers_of, writer_of

BARRIER_BYTES = 8


@dataclass(frozen=True, slots=True)
class BarrierCount:
    """How many arrivals (and transaction bytes) complete a phase of a barrier, and why."""

    arrivals: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """The derived half of a pipeline. `in_flight` is, per consuming role, how many MMA groups run while a stage is released."""

    pipeline: ir.Pipeline
    producer: str
    full: BarrierCount
    empty: BarrierCount
    in_flight: tuple[tuple[str, int, str], ...]
    fence: str


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """Warps and registers of a role. Threads are numbered through the warpgroups in the order of the roles."""

    role: ir.Role
    first_warp: int
    warps: int
    launch_registers: int
    change: str


@dataclass(frozen=True, slots=True)
class AccumulatorFacts:
    """Where an accumulator lives: registers of a role's threads, or columns of tensor memory read back through `readback`."""

    accumulator: ir.Accumulator
    role: str
    layout: WgmmaAccumulator | TmemLayout
    readback: TmemLoadRows | None


@dataclass(frozen=True, slots=True)
class MmaFacts:
    """One product: the instruction's shape, how many instructions, and its operands' descriptors or register layout."""

    mma: ir.Mma
    role: str
    instruction: str
    instructions: int
    a: Descriptor | WgmmaOperandA | str
    b: Descriptor
    issuer: str


@dataclass(frozen=True, slots=True)
class OperandRegisters:
    """Register operands of one role that take turns in the same `registers` registers, because their lifetimes are apart.

    ptxas gives every operand array of wgmma registers of its own, so arrays are shared here and not left to it.
    """

    role: str
    registers: int
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedSlot:
    """One row of the shared-memory map; sizes in bytes."""

    name: str
    offset: int
    size: int
    alignment: int
    what: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Everything derived for one description on one architecture."""

    description: Description
    arch: Architecture
    threads: int
    roles: tuple[RoleFacts, ...]
    pipelines: tuple[PipelineFacts, ...]
    accumulators: tuple[AccumulatorFacts, ...]
    products: tuple[MmaFacts, ...]
    operands: tuple[OperandRegisters, ...]
    shared: tuple[SharedSlot, ...]
    shared_bytes: int
    tmem_columns: int


def derive(description: Description, arch: Architecture) -> Derived:
    """Derive every count and layout of `description` on `arch`; raises the fault that the numbers show."""
    check_relays(description)
    roles = _roles(description, arch)
    pipelines = tuple(_pipeline(description, pipeline, arch) for pipeline in description.pipelines)
    accumulators = tuple(_accumulator(description, item, arch) for item in description.accumulators)
    products = tuple(
        _product(operation, body.role, arch)
        for body in description.body
        if isinstance(body, ir.RoleBody)
        for operation in ir.walk(body.body)
        if isinstance(operation, ir.Mma)
    )
    operands = _operand_registers(description) if arch.machine is Machine.WGMMA else ()
    slots, total = _shared_map(description, pipelines, arch)
    columns = sum(item.layout.allocated_columns for item in accumulators if isinstance(item.layout, TmemLayout))
    if columns > max(arch.tmem_columns, 0) and arch.machine is Machine.TCGEN05:
        raise LimitFault(
            "KW0503",
            f"{columns} columns of tensor memory",
            description.source,
            detail=f"{arch.name} has {arch.tmem_columns}.",
        )
    threads = description.threads or 128 * sum(role.all_warpgroups for role in description.roles)
    return Derived(
        description, arch, threads, roles, pipelines, accumulators, products, operands, slots, total, columns
    )


def _roles(description: Description, arch: Architecture) -> tuple[RoleFacts, ...]:
    groups = sum(role.all_warpgroups for role in description.roles)
    if not groups:
        return ()
    # A launch gives every thread the same registers; whole multiples of 8 are what setmaxnreg moves.
    blocks = description.blocks_per_sm or 1
    launch = min(arch.registers_per_thread + 1, arch.registers_per_sm // (128 * groups * blocks)) // 8 * 8
    budgets = [(role.registers or launch, role.all_warpgroups) for role in description.roles]
    spent = sum(budget * count for budget, count in budgets)
    if spent > launch * groups:
        raise PipelineFault(
            "KW0404",
            f"register budgets of {description.symbol!r} do not fit",
            description.source,
            detail=" + ".join(f"{count} x {budget}" for budget, count in budgets if count)
            + f" = {spent} registers a lane; with {blocks} block{'s' if blocks > 1 else ''} an SM "
            + f"there are {groups} x {launch} = {groups * launch}.",
            fix="Lower a budget; idle warps can go down to 24.",
        )
    facts: list[RoleFacts] = []
    warp = 0
    first_of: dict[str, int] = {}
    for role in description.roles:
        if role.shares is not None:
            facts.append(RoleFacts(role, first_of[role.shares] + role.warp, 1, launch, "as its warpgroup"))
            continue
        first_of[role.name] = warp
        budget = role.registers or launch
        if arch.machine is Machine.TCGEN05:
            change = "unchanged: accumulators are in tensor memory"
        else:
            change = (
                "unchanged" if budget == launch else f"setmaxnreg.{'inc' if budget > launch else 'dec'} to {budget}"
            )
        facts.append(RoleFacts(role, warp, WARPS_PER_GROUP * role.all_warpgroups, launch, change))
        warp += WARPS_PER_GROUP * role.all_warpgroups
    return tuple(facts)


def _pipeline(description: Description, pipeline: ir.Pipeline, arch: Architecture) -> PipelineFacts:
    producer, blocks = writer_of(description, pipeline)
    readers = readers_of(description, pipeline, arch)
    full, fence = _full(description, pipeline, producer, blocks)
    parts = [reader.arrivals for reader in readers]
    why = "; ".join(f"role {reader.role}: {reader.reason}" for reader in readers)
    for reader in readers:
        if arch.machine is Machine.WGMMA and reader.in_flight >= pipeline.stages:
            raise PipelineFault(
                "KW0405",
                f"pipeline {pipeline.name!r} has {pipeline.stages} stage{'s' if pipeline.stages > 1 else ''}",
                pipeline.source,
                where=f"role {reader.role!r} keeps {reader.in_flight} product in flight",
                detail=f"stage k - {reader.in_flight} is released while product k runs, so the producer would never find room.",
                fix=f"Use at least {reader.in_flight + 1} stages.",
            )
    depth = tuple((reader.role, reader.in_flight, reader.why_in_flight) for reader in readers)
    return PipelineFacts(pipeline, producer, full, BarrierCount(sum(parts), 0, why), depth, fence)


def _full(
    description: Description, pipeline: ir.Pipeline, producer: str, blocks: list[ir.Produce]
) -> tuple[BarrierCount, str]:
    """Arrivals and bytes of the full barrier, and the fence that the writers need."""
    written = [operation for operation in ir.walk(tuple(blocks)) if isinstance(operation, ir.CopyIn | ir.WriteShared)]
    for block in blocks:
        names = sorted(_target(op).name for op in ir.walk(block.body) if isinstance(op, ir.CopyIn | ir.WriteShared))
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
    copied = [op for op in written if isinstance(op, ir.CopyIn)]
    if len(copied) == len(written):
        size = sum(tile.layout.bytes for tile in pipeline.tiles)
        return BarrierCount(
            1, size, f"role {producer}'s elected thread, and the bytes of {len(pipeline.tiles)} copies"
        ), "none"
    role = next(role for role in description.roles if role.name == producer)
    warps = WARPS_PER_GROUP * role.warpgroups or 1
    async_readers = any(
        isinstance(op, ir.Mma) and any(_is_tile_of(side, pipeline) for side in (op.a, op.b))
        for op in ir.walk(description.body)
    )
    size = sum(op.target.layout.bytes for op in copied)
    count = BarrierCount(warps, size, f"one per warp of role {producer}, after __syncwarp")
    return (
        count,
        "fence.proxy.async by the writers, before they arrive: the tiles are read by MMAs" if async_readers else "none",
    )


def _target(operation: ir.CopyIn | ir.WriteShared) -> ir.SharedTile:
    return operation.target


def _is_tile_of(side: object, pipeline: ir.Pipeline) -> bool:
    return isinstance(side, ir.SharedTile) and side.pipeline == pipeline.name


def _accumulator(description: Description, item: ir.Accumulator, arch: Architecture) -> AccumulatorFacts:
    users = [
        body.role
        for body in description.body
        if isinstance(body, ir.RoleBody)
        and any(isinstance(op, ir.Mma) and op.accumulator == item.name for op in ir.walk(body.body))
    ]
    if len(set(users)) != 1:
        raise PipelineFault(
            "KW0401",
            f"accumulator {item.name!r} is written by {len(set(users))} roles",
            item.source,
            detail="It needs exactly one.",
        )
    role = next(role for role in description.roles if role.name == users[0])
    try:
        if arch.machine is Machine.WGMMA:
            return AccumulatorFacts(item, users[0], WgmmaAccumulator(item.rows, item.columns, role.warpgroups), None)
        return AccumulatorFacts(
            item, users[0], TmemLayout(item.rows, item.columns), TmemLoadRows(item.columns, item.rows)
        )
    except ValueError as error:
        raise _unfit(item.name, str(error), item.source, arch) from None


def _product(mma: ir.Mma, role: str, arch: Architecture) -> MmaFacts:
    rows_b = mma.b.layout
    columns = rows_b.rows if mma.b_transposed else rows_b.columns
    depth = rows_b.columns if mma.b_transposed else rows_b.rows
    # The MMA wants B as [N, K]; a tile stored [N, K] is passed as `.T`, any other is read along its other dimension.
    b = describe_operand(rows_b if mma.b_transposed else _turned(rows_b), arch)
    steps = depth // 16
    if arch.machine is Machine.WGMMA:
        rows = mma.a.layout.rows if isinstance(mma.a, ir.SharedTile) else 64
        fragments = max(1, rows // 64)
        a: Descriptor | WgmmaOperandA | str
        a = describe_operand(_operand_a(mma), arch) if isinstance(mma.a, ir.SharedTile) else WgmmaOperandA(64, depth)
        return MmaFacts(
            mma,
            role,
            f"wgmma.mma_async.m64n{columns}k16.f32.bf16.bf16",
            steps * fragments,
            a,
            b,
            "all warps of the warpgroup",
        )
    rows = mma.a.layout.rows if isinstance(mma.a, ir.SharedTile) else 128
    a = (
        describe_operand(_operand_a(mma), arch)
        if isinstance(mma.a, ir.SharedTile)
        else "TMEM: element (m, k) at lane m, column k / 2"
    )
    return MmaFacts(
        mma,
        role,
        f"tcgen05.mma.kind::f16 m{rows}n{columns}k16",
        steps,
        a,
        b,
        "one elected thread of the role's first warp",
    )


def _operand_registers(description: Description) -> tuple[OperandRegisters, ...]:
    """Register operands by role; one whose last reader is past gives its registers to the next of the same size."""
    groups: list[OperandRegisters] = []
    for body in description.body:
        if not isinstance(body, ir.RoleBody):
            continue
        operations = ir.walk(body.body)
        lives: list[tuple[str, int, int, int]] = []
        for start, operation in enumerate(operations):
            layout = getattr(operation, "layout", None)
            if (
                isinstance(operation, ir.Elementwise | ir.ReadShared)
                and isinstance(layout, ir.Fragment)
                and layout.role == "operand"
            ):
                reads = [
                    at
                    for at, op in enumerate(operations)
                    if isinstance(op, ir.Mma) and op.a == Var(operation.name, bf16)
                ]
                lives.append((operation.name, start, max(reads, default=start), layout.columns // 4))
        shared: list[tuple[int, int, list[str]]] = []
        for name, start, end, registers in lives:
            free = next((slot for slot in shared if slot[0] == registers and slot[1] < start), None)
            if free is None:
                shared.append((registers, end, [name]))
            else:
                shared[shared.index(free)] = (registers, end, [*free[2], name])
        groups += [OperandRegisters(body.role, registers, tuple(names)) for registers, _, names in shared]
    return tuple(groups)


def _operand_a(mma: ir.Mma) -> SharedLayout:
    """A as [M, K]: a tile stored [M, K] as it is, one stored [K, M] read along its other dimension."""
    assert isinstance(mma.a, ir.SharedTile)
    return _turned(mma.a.layout) if mma.a_transposed else mma.a.layout


def _turned(layout: SharedLayout) -> SharedLayout:
    """The same bytes as the transposed matrix: rows and columns change places, and so does the contiguous one."""
    return replace(layout, rows=layout.columns, columns=layout.rows, major="MN" if layout.major == "K" else "K")


def _shared_map(
    description: Description, pipelines: tuple[PipelineFacts, ...], arch: Architecture
) -> tuple[tuple[SharedSlot, ...], int]:
    """Tiles with the strictest alignment first, then factors, then barriers, all in one dynamic block."""
    wanted: list[tuple[str, int, int, str]] = []
    for pipeline in description.pipelines:
        for tile in pipeline.tiles:
            size = tile.layout.bytes * pipeline.stages
            wanted.append(
                (
                    f"{pipeline.name}.{tile.name}",
                    size,
                    tile.layout.alignment,
                    f"{pipeline.stages} x {tile.layout.formula}",
                )
            )
    wanted += [
        (tile.name, tile.layout.bytes, tile.layout.alignment, tile.layout.formula) for tile in description.buffers
    ]
    wanted.sort(key=lambda row: -row[2])
    for facts in pipelines:
        stages = facts.pipeline.stages
        for side, count in (("full", facts.full), ("empty", facts.empty)):
            amount = f"{count.arrivals} arrival{'s' if count.arrivals > 1 else ''}" + (
                f" + {count.bytes} bytes" if count.bytes else ""
            )
            wanted.append((f"{facts.pipeline.name}_{side}", BARRIER_BYTES * stages, 8, f"{stages} barriers: {amount}"))
    slots: list[SharedSlot] = []
    end = 0
    for name, size, alignment, what in wanted:
        start = -(-end // alignment) * alignment
        slots.append(SharedSlot(name, start, size, alignment, what))
        end = start + size
    limit = arch.oversized_shared_memory_per_block or arch.shared_memory_per_block
    if end > limit:
        raise LimitFault(
            "KW0501",
            f"{description.symbol!r} needs {end} bytes of shared memory",
            description.source,
            where=f"on {arch.name}",
            detail=f"the limit is {limit} bytes; the largest tiles are "
            + ", ".join(f"{slot.name} ({slot.size})" for slot in sorted(slots, key=lambda slot: -slot.size)[:3])
            + ".",
            fix="Use fewer stages or smaller tiles.",
        )
    return tuple(slots), end


def _unfit(name: str, why: str, source: Source, arch: Architecture) -> LayoutFault:
    return LayoutFault("KW0302", f"{name!r} does not fit the instruction", source, where=f"on {arch.name}", detail=why)


__all__ = ["Derived", "PipelineFacts", "Reader", "derive"]

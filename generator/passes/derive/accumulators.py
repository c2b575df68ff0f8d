"""Accumulators: fragments in registers, or columns of tensor memory with the barriers by which issuer and readers take turns."""

from __future__ import annotations

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import LayoutFault, LimitFault, PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Var
from kernwright.generator.ir.layout import TmemLayout, TmemLoadRows, WgmmaAccumulator, allocated_columns
from kernwright.generator.passes.derive.checks import nested
from kernwright.generator.passes.derive.facts import AccumulatorFacts, BarrierCount, OperandColumns
from kernwright.generator.passes.derive.roles import warps_of
from kernwright.generator.passes.derive.timeline import Timeline


def accumulator_facts(description: Description, arch: Architecture) -> tuple[AccumulatorFacts, ...]:
    """Place every accumulator; in tensor memory one after another in the columns of one allocation."""
    found: list[AccumulatorFacts] = []
    column = 0
    for item in description.accumulators:
        body = _owner(description, item)
        role = description.role(body.role)
        _check_warps(body, role, item.name, arch)
        try:
            if arch.machine is Machine.WGMMA:
                layout = WgmmaAccumulator(item.rows, item.columns, role.warpgroups)
                found.append(AccumulatorFacts(item, role.name, layout, None))
                continue
            columns = TmemLayout(item.rows, item.columns, column)
            readback = TmemLoadRows(item.columns, item.rows, role.warpgroups or 1)
        except ValueError as error:
            raise LayoutFault(
                "KW0302",
                f"{item.name!r} does not fit the instruction",
                item.source,
                where=f"on {arch.name}",
                detail=str(error),
            ) from None
        column += item.columns * role.replicas * item.buffers
        full = BarrierCount(1, 0, "one commit, behind the last product before the values are read or the columns freed")
        empty = _empty(body, role, item.name)
        found.append(AccumulatorFacts(item, role.name, columns, readback, full, empty, role.replicas))
    return tuple(found)


def _owner(description: Description, item: ir.Accumulator) -> ir.RoleBody:
    users = [
        body
        for body in description.role_bodies
        if any(isinstance(op, ir.Mma) and op.accumulator == item.name for op in ir.walk(body.body))
    ]
    if len(users) != 1:
        raise PipelineFault(
            "KW0401",
            f"accumulator {item.name!r} is written by {len(users)} roles",
            item.source,
            detail="It needs exactly one.",
        )
    for body in description.role_bodies:
        for op in ir.walk(body.body):
            reads = isinstance(op, ir.ReadAccumulator | ir.SetAccumulator) and op.accumulator == item.name
            if reads and body is not users[0]:
                raise PipelineFault(
                    "KW0401",
                    f"accumulator {item.name!r} of role {users[0].role!r} is used by role {body.role!r}",
                    op.source,
                    detail="its values reach the threads of the role alone that multiplies into it.",
                    fix="Read it there, and hand the values over in a pipeline.",
                )
    return users[0]


def _check_warps(body: ir.RoleBody, role: ir.Role, name: str, arch: Architecture) -> None:
    """wgmma is executed by whole warpgroups; a warp reaches a quarter of tensor memory, so only a warpgroup reads it all."""
    for operation, around in nested(body.body):
        alone = any(isinstance(block, ir.OneThread) for block in around)
        uses = isinstance(operation, ir.ReadAccumulator | ir.SetAccumulator) or (
            isinstance(operation, ir.Mma) and arch.machine is Machine.WGMMA
        )
        if uses and getattr(operation, "accumulator", None) == name and (alone or not role.warpgroups):
            raise LayoutFault(
                "KW0302",
                f"accumulator {name!r} needs a whole warpgroup",
                operation.source,
                where=f"on {arch.name}",
                detail=f"role {role.name!r} has {'one thread' if alone else 'one warp'} here.",
                fix="Give the role a warpgroup, and let all its threads do this.",
            )


def _empty(body: ir.RoleBody, role: ir.Role, name: str) -> BarrierCount | None:
    """Needed where a product may follow a read or a change of the accumulator by the role's threads."""
    timeline = Timeline(body)
    for position, event in enumerate(timeline.events):
        operation = event.operation
        if not isinstance(operation, ir.ReadAccumulator | ir.SetAccumulator) or operation.accumulator != name:
            continue
        if timeline.reaches(position, lambda later: isinstance(later, ir.Mma) and later.accumulator == name):
            warps = warps_of(role)
            return BarrierCount(
                warps,
                0,
                f"one per warp of role {role.name}, which reads or sets it between products: behind tcgen05.wait and "
                "fence::before_thread_sync",
            )
    return None


def operand_columns(
    description: Description, accumulators: tuple[AccumulatorFacts, ...], arch: Architecture
) -> tuple[OperandColumns, ...]:
    """A operands that are made from registers lie behind the accumulators in tensor memory, two values a column."""
    if arch.machine is Machine.WGMMA:
        return ()
    found: list[OperandColumns] = []
    first = sum(item.columns for item in accumulators)
    for body in description.role_bodies:
        depth = {
            op.a.name: (op.b.layout.columns if op.b_transposed else op.b.layout.rows)
            for op in ir.walk(body.body)
            if isinstance(op, ir.Mma) and isinstance(op.a, Var)
        }
        role = description.role(body.role)
        full = BarrierCount(warps_of(role), 0, f"one per warp of role {role.name}, behind tcgen05.wait of its stores")
        timeline = Timeline(body)
        for name, values in depth.items():
            columns = values // 2 * role.replicas
            again = _written_again(timeline, name)
            empty = BarrierCount(1, 0, "one commit, behind the products that read it") if again else None
            found.append(OperandColumns(body.role, name, first, columns, full, empty))
            first += columns
    return tuple(found)


def tensor_memory_columns(
    description: Description,
    accumulators: tuple[AccumulatorFacts, ...],
    operands: tuple[OperandColumns, ...],
    arch: Architecture,
) -> int:
    """Columns that a block allocates at once, a power of two; all blocks of an SM share its columns."""
    if arch.machine is Machine.WGMMA or not accumulators:
        return 0
    needed = sum(item.columns for item in accumulators) + sum(item.columns for item in operands)
    allocated = allocated_columns(needed)
    blocks = description.blocks_per_sm or 1
    if allocated * blocks > arch.tmem_columns:
        raise LimitFault(
            "KW0503",
            f"{needed} columns of tensor memory",
            description.source,
            where=f"on {arch.name}",
            detail=f"{allocated} are allocated, by {blocks} block{'s' if blocks > 1 else ''} an SM; {arch.name} has "
            f"{arch.tmem_columns}.",
            fix="Use narrower accumulators, or fewer blocks an SM.",
        )
    return allocated


def _written_again(timeline: Timeline, operand: str) -> bool:
    """Whether an operand in tensor memory is made once more after a product that reads it."""

    def makes(operation: ir.Operation) -> bool:
        return getattr(operation, "name", None) == operand

    return any(
        timeline.reaches(at, makes)
        for at, event in enumerate(timeline.events)
        if isinstance(event.operation, ir.Mma)
        and isinstance(event.operation.a, Var)
        and event.operation.a.name == operand
    )

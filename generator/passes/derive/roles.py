"""Warps, threads and registers of the roles, and the named barriers that some of them need."""

from __future__ import annotations

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import LimitFault, PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.layout import WARP, WARPGROUP, WARPS_PER_GROUP
from kernwright.generator.passes.derive.checks import nested, tiles_of
from kernwright.generator.passes.derive.facts import NamedBarrier, RoleFacts

LEAST_REGISTERS = 24  # of a thread, for setmaxnreg and for a launch that moves registers
REGISTER_STEP = 8  # setmaxnreg moves whole multiples of it
NAMED_BARRIERS = 15  # of a block, numbers 1 .. 15; number 0 is __syncthreads


def warps_of(role: ir.Role) -> int:
    """Warps of one copy of a role; a role inside another one's warpgroup is one warp."""
    return WARPS_PER_GROUP * role.warpgroups or 1


def check_threads(description: Description, threads: int, arch: Architecture) -> None:
    """Blocks and threads that an SM is to hold at once; the compiler drops a minimum that is too large without an error."""
    blocks = description.blocks_per_sm or 1
    if blocks <= arch.blocks_per_sm and blocks * threads <= arch.threads_per_sm:
        return
    raise LimitFault(
        "KW0502",
        f"{blocks} blocks of {threads} threads do not fit an SM",
        description.source,
        where=f"on {arch.name}",
        detail=f"{blocks} x {threads} = {blocks * threads} threads; an SM holds {arch.threads_per_sm} threads "
        f"and {arch.blocks_per_sm} blocks.",
        fix=f"Use k.occupancy({max(1, min(arch.blocks_per_sm, arch.threads_per_sm // threads))}) or less.",
    )


def role_facts(description: Description, arch: Architecture) -> tuple[RoleFacts, ...]:
    """Warps, budgets and named barriers, in the author's order."""
    if not sum(role.all_warpgroups for role in description.roles):
        return ()
    launch = _launch_registers(description, arch)
    if arch.machine is Machine.WGMMA:
        _check_budgets(description, launch)
    facts: list[RoleFacts] = []
    warp, barrier = 0, 1
    first_of: dict[str, int] = {}
    for role in description.roles:
        named = _named_barrier(description, role, barrier, arch)
        barrier += named.copies if named else 0
        if role.shares is not None:
            first = first_of[role.shares] + role.warp
            facts.append(RoleFacts(role, first, 1, launch, "as its warpgroup", named))
            continue
        first_of[role.name] = warp
        warps = WARPS_PER_GROUP * role.all_warpgroups
        facts.append(RoleFacts(role, warp, warps, launch, _change(role, launch, arch), named))
        warp += warps
    if barrier - 1 > NAMED_BARRIERS:
        raise LimitFault(
            "KW0504",
            f"{description.symbol!r} needs {barrier - 1} named barriers",
            description.source,
            detail=f"a block has {NAMED_BARRIERS} beside that of __syncthreads; they are needed by "
            + ", ".join(f"{f.role.name} ({f.barrier.copies})" for f in facts if f.barrier)
            + ".",
            fix="Use fewer copies of a role, or fewer roles that hand buffers over.",
        )
    return tuple(facts)


def _launch_registers(description: Description, arch: Architecture) -> int:
    """A launch gives every thread the same registers; what an SM may hold (check_threads) leaves at least LEAST_REGISTERS."""
    threads = WARPGROUP * sum(role.all_warpgroups for role in description.roles)
    share = arch.registers_per_sm // (threads * (description.blocks_per_sm or 1))
    return min(arch.registers_per_thread + 1, share) // REGISTER_STEP * REGISTER_STEP


def _check_budgets(description: Description, launch: int) -> None:
    groups = sum(role.all_warpgroups for role in description.roles)
    blocks = description.blocks_per_sm or 1
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
            fix=f"Lower a budget; idle warps can go down to {LEAST_REGISTERS}.",
        )


def _change(role: ir.Role, launch: int, arch: Architecture) -> str:
    budget = role.registers or launch
    if arch.machine is Machine.TCGEN05:
        return "unchanged: accumulators are in tensor memory"
    if budget == launch:
        return "unchanged"
    return f"setmaxnreg.{'inc' if budget > launch else 'dec'} to {budget}"


def meets(body: ir.RoleBody, buffer: str, arch: Architecture) -> bool:
    """Whether threads of a role meet between writing a standing buffer and reading it; not if one elected thread does both."""
    writers = [alone for operation, alone in _accesses(body, buffer) if isinstance(operation, ir.WriteShared)]
    readers = [
        isinstance(operation, ir.CopyOut)
        or (alone if isinstance(operation, ir.ReadShared) else arch.machine is Machine.TCGEN05)
        for operation, alone in _accesses(body, buffer)
        if isinstance(operation, ir.CopyOut | ir.ReadShared | ir.Mma)
    ]
    return bool(writers) and not all(writers + readers)


def _accesses(body: ir.RoleBody, buffer: str) -> list[tuple[ir.Operation, bool]]:
    """What uses a standing buffer, and whether it is inside a one-thread block."""
    return [
        (operation, any(isinstance(block, ir.OneThread) for block in around))
        for operation, around in nested(body.body)
        if any(tile.name == buffer and tile.pipeline is None for tile, _ in tiles_of(operation))
    ]


def _named_barrier(description: Description, role: ir.Role, first: int, arch: Architecture) -> NamedBarrier | None:
    """Several warps that write or read a standing buffer meet at a barrier in between; one warp needs __syncwarp alone."""
    if warps_of(role) == 1:
        return None
    body = next(body for body in description.role_bodies if body.role == role.name)
    names = [tile.name for tile in description.buffers if meets(body, tile.name, arch)]
    if not names:
        return None
    wide = [name for name in names if not _by_one_thread(body, name)]
    who = "all warps of a copy have" if wide else "one thread of a copy has"
    reason = f"{who} written {' and '.join(wide or names)}, before it is read"
    return NamedBarrier(first, role.replicas, WARP * warps_of(role), reason)


def _by_one_thread(body: ir.RoleBody, buffer: str) -> bool:
    return all(alone for operation, alone in _accesses(body, buffer) if isinstance(operation, ir.WriteShared))

"""Standing buffers: how the threads of a role hand one over to a TMA store or a product, and when they may write it again."""

from __future__ import annotations

from kernwright.generator.arch import Architecture
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.layout import WARP
from kernwright.generator.passes.derive.checks import nested, tiles_of
from kernwright.generator.passes.derive.facts import BarrierCount, BufferFacts, RoleFacts
from kernwright.generator.passes.derive.roles import meets, warps_of
from kernwright.generator.passes.derive.timeline import Timeline

ISSUER = (
    "one elected thread of the role's first warp, the same election for all its stores: bulk groups belong to a thread"
)


def buffer_facts(description: Description, roles: tuple[RoleFacts, ...], arch: Architecture) -> tuple[BufferFacts, ...]:
    """The hand-over of every buffer that a role uses."""
    found: list[BufferFacts] = []
    for buffer in description.buffers:
        for body in description.role_bodies:
            uses = [
                (operation, around)
                for operation, around in nested(body.body)
                if any(tile.name == buffer.name and tile.pipeline is None for tile, _ in tiles_of(operation))
            ]
            if uses:
                facts = next(item for item in roles if item.role.name == body.role)
                found.append(_hand_over(buffer, body, facts, uses, meets(body, buffer.name, arch)))
    return tuple(found)


def _hand_over(
    buffer: ir.SharedTile,
    body: ir.RoleBody,
    facts: RoleFacts,
    uses: list[tuple[ir.Operation, tuple[ir.Block, ...]]],
    meet: bool,
) -> BufferFacts:
    written = [around for operation, around in uses if isinstance(operation, ir.WriteShared)]
    copied = [operation for operation, _ in uses if isinstance(operation, ir.CopyIn)]
    stored = any(isinstance(operation, ir.CopyOut) for operation, _ in uses)
    multiplied = any(isinstance(operation, ir.Mma) for operation, _ in uses)
    alone = bool(written) and all(any(isinstance(block, ir.OneThread) for block in around) for around in written)
    asynchronous = " and ".join(["TMA"] * stored + ["the products"] * multiplied)
    return BufferFacts(
        buffer,
        body.role,
        facts.role.replicas,
        writers=_writers(facts.role, bool(written), alone, bool(copied)),
        fence=f"fence.proxy.async by each writer, before the barrier: ordinary stores, then reads by {asynchronous}"
        if written and asynchronous
        else "none",
        barrier=_barrier(facts, meet) if written else "none",
        issuer=ISSUER if stored else "the issuer of the products" if multiplied else "none",
        wait=_wait(body, buffer),
        again="before the buffer is written again" in _wait(body, buffer),
        full=BarrierCount(1, buffer.layout.bytes, "the elected thread, and the bytes of its copy", "the elected thread")
        if copied
        else None,
    )


def _writers(role: ir.Role, written: bool, alone: bool, copied: bool) -> str:
    parts = ["a copy"] if copied else []
    if written:
        parts.append("one elected thread" if alone else f"all {WARP * warps_of(role)} threads of a copy of the role")
    return " and ".join(parts) or "nobody"


def _barrier(facts: RoleFacts, meet: bool) -> str:
    if not meet:
        return "none: the writer is the issuer"
    named = facts.barrier
    if named is None:
        return "__syncwarp"
    numbers = (
        str(named.first) if named.copies == 1 else f"{named.first} .. {named.first + named.copies - 1}, one a copy"
    )
    return f"named barrier {numbers}, {named.threads} threads"


def _wait(body: ir.RoleBody, buffer: ir.SharedTile) -> str:
    """What must be over before the buffer is written again: its issuer alone can wait for a store's reads."""
    timeline = Timeline(body)
    parts: list[str] = []
    for kind, what in (
        (ir.CopyOut, "bulk_wait_group_read<0> by the issuer"),
        (ir.Mma, "the wait for the products"),
        (ir.ReadShared, "every thread's reads"),
    ):
        readers = [
            at
            for at, event in enumerate(timeline.events)
            if isinstance(event.operation, kind) and any(tile == buffer for tile, _ in tiles_of(event.operation))
        ]
        if any(timeline.reaches(at, lambda operation: _writes(operation, buffer.name)) for at in readers):
            parts.append(what)
    stored = any(isinstance(op, ir.CopyOut) and op.origin == buffer for op in ir.walk(body.body))
    again = f"{' and '.join(parts)}, then the barrier, before the buffer is written again" if parts else ""
    end = "bulk_wait_group_read<0> by the issuer at the role's end: shared memory outlives the reads" if stored else ""
    if again and stored and parts[0].startswith("bulk"):
        end = "and at the role's end"
    return "; ".join(part for part in (again, end) if part) or "none"


def _writes(operation: ir.Operation, name: str) -> bool:
    return any(tile.name == name and tile.pipeline is None and written for tile, written in tiles_of(operation))

"""A role on a tcgen05 machine, in two functions: one thread issues its products, its threads do everything else.

Both walk the same description; what one leaves out, the other has. They meet at the accumulators' barriers: a commit says that
products are complete, one arrival a warp that the columns have been read or set. Here is what both know of these turns.
"""

from __future__ import annotations

from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Expr, integer
from kernwright.generator.ir.layout import WARPS_PER_GROUP
from kernwright.generator.ir.statement import DeclareRing, SharedOperand, Statement
from kernwright.generator.ir.types import u32
from kernwright.generator.passes.derive import OperandColumns
from kernwright.generator.passes.roles.base import RoleLowering
from kernwright.generator.passes.roles.context import Context, phase_of, stage_of


def issues(body: ir.RoleBody) -> bool:
    """Whether a role has products."""
    return any(isinstance(op, ir.Mma) for op in ir.walk(body.body))


def placement(context: Context, body: ir.RoleBody) -> tuple[int, str]:
    """The warp whose elected thread issues a role's products, and why that one."""
    facts = context.role(body.role)
    if facts.role.replicas > 1:
        raise context.refuse("a role in copies", facts.role.source, "Give its accumulator buffers=2 instead.")
    waits = any(item.empty is not None for item in context.accumulators_of(body.role))
    waits = waits or any(item.role == body.role for item in context.derived.operand_columns)
    if not waits:
        return facts.first_warp, "its products wait for none of the role's own threads"
    for host in context.derived.roles:
        alone = next(item.body for item in context.description.role_bodies if item.role == host.role.name)
        if host.role.shares is not None or not (len(alone) == 1 and isinstance(alone[0], ir.OneThread)):
            continue
        taken = {role.warp for role in context.description.roles if role.shares == host.role.name}
        taken |= {warp - host.first_warp for warp in context.issuers.values()}
        free = [warp for warp in range(1, WARPS_PER_GROUP) if warp not in taken]
        if free:
            context.issuers[body.role] = host.first_warp + free[0]
            return host.first_warp + free[0], "the role's threads read results while the next products run"
    raise PipelineFault(
        "KW0403",
        f"no warp is free to issue the products of role {body.role!r}",
        facts.role.source,
        where=f"on {context.arch.name}",
        detail="its products wait for the role's own threads, so that another warp issues them: one of a warpgroup whose role is "
        "one thread.",
        fix="Let a role of one thread, such as the one that loads, have its warpgroup for itself.",
    )


class Turns(RoleLowering):
    """What both functions know of the accumulators' barriers and rings."""

    def operand_facts(self, name: str) -> OperandColumns:
        found = self.context.derived.operand_columns
        return next(item for item in found if item.operand == name and item.role == self.role.name)

    def side(self, name: str, side: str) -> SharedOperand:
        """`shared.<accumulator>_<side>`, of the buffer whose turn it is."""
        return SharedOperand(f"{name}_{side}", stage_of(name) if self.context.accumulator(name).buffers > 1 else None)

    def turn_ring(self, name: str, side: str) -> Statement:
        count = self.context.accumulator_buffers(name)
        return DeclareRing(name, count if count is not None else integer(1), side)

    def operand_rings(self, side: str) -> list[Statement]:
        """Where the function is in the phases of operands that lie in tensor memory."""
        found = self.context.derived.operand_columns
        return [DeclareRing(item.operand, integer(1), side) for item in found if item.role == self.role.name]

    def takes_turns(self, name: str) -> bool:
        return self.context.accumulator(name).empty is not None

    def mine(self) -> list[str]:
        return [item.accumulator.name for item in self.context.accumulators_of(self.role.name)]

    def set_first(self, name: str) -> bool:
        """Whether the role's threads set an accumulator before the first product."""
        for operation in ir.walk(self.body.body):
            if isinstance(operation, ir.SetAccumulator | ir.ReadAccumulator | ir.Mma) and operation.accumulator == name:
                return isinstance(operation, ir.SetAccumulator)
        return False

    def phase(self, name: str) -> Expr:
        return phase_of(name) if self.takes_turns(name) else integer(0, u32)

"""Registers of a role on a wgmma machine: which arrays may take turns, and the least that a thread needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description, Extent, Fragment
from kernwright.generator.ir.expr import Const, Expr, Var
from kernwright.generator.ir.layout import CELL_BYTES, MMA_ROWS, WARP, WARPGROUP, WgmmaAccumulator
from kernwright.generator.ir.uses import names_of
from kernwright.generator.passes.derive.facts import (
    AccumulatorFacts,
    AccumulatorRegisters,
    OperandRegisters,
    PipelineFacts,
    RegisterEstimate,
    RoleFacts,
)
from kernwright.generator.passes.derive.products import depths_of
from kernwright.generator.passes.derive.timeline import Timeline, live_positions

Facts = tuple[tuple[OperandRegisters, ...], tuple[AccumulatorRegisters, ...], tuple[RegisterEstimate, ...]]


def register_facts(
    description: Description,
    roles: tuple[RoleFacts, ...],
    accumulators: tuple[AccumulatorFacts, ...],
    pipelines: tuple[PipelineFacts, ...],
    arch: Architecture,
) -> Facts:
    """Shared arrays and estimates of all roles; nothing on a machine whose accumulators are in tensor memory."""
    if arch.machine is Machine.TCGEN05:
        return (), (), ()
    operands: list[OperandRegisters] = []
    shared: list[AccumulatorRegisters] = []
    estimates: list[RegisterEstimate] = []
    for body in description.role_bodies:
        facts = next(item for item in roles if item.role.name == body.role)
        mine = {
            item.accumulator.name: item.layout
            for item in accumulators
            if item.role == body.role and isinstance(item.layout, WgmmaAccumulator)
        }
        lives = _lives(body, facts.role, mine, depths_of(pipelines, body.role))
        turns_a = _take_turns(lives, [name for name in lives.sizes if name in mine])
        turns_o = _take_turns(lives, [name for name in lives.sizes if name in lives.operands])
        shared += [AccumulatorRegisters(body.role, size, names) for size, names in turns_a]
        operands += [OperandRegisters(body.role, size, names) for size, names in turns_o]
        tiles = [name for name in lives.sizes if name not in mine and name not in lives.operands]
        estimate = RegisterEstimate(
            body.role,
            sum(size for size, _ in turns_a),
            sum(size for size, _ in turns_o),
            lives.widest(tiles, lives.held),
            lives.widest(list(lives.sizes), lives.kept),
            _budget(description, facts),
        )
        _check(estimate, facts.role)
        estimates.append(estimate)
    return tuple(operands), tuple(shared), tuple(estimates)


def _budget(description: Description, facts: RoleFacts) -> int:
    """Registers a thread has: the role's own budget, that of the warpgroup it is a warp of, or what the launch gives."""
    role = description.role(facts.role.shares) if facts.role.shares else facts.role
    return role.registers or facts.launch_registers


def _check(estimate: RegisterEstimate, role: ir.Role) -> None:
    if estimate.live > estimate.budget:
        raise PipelineFault(
            "KW0407",
            f"role {role.name!r} needs at least {estimate.live} registers and has {estimate.budget}",
            role.source,
            detail=f"so many are live at once, of arrays of {estimate.accumulators} (accumulators), {estimate.operands} (operands) "
            f"and {estimate.tiles} (named tiles); addresses and counters come on top.",
            fix="Raise registers=, use more warpgroups, or shorten lifetimes.",
        )


def _take_turns(lives: _Lives, names: list[str]) -> list[tuple[int, tuple[str, ...]]]:
    """Arrays of one size whose lifetimes are apart share registers: the first that fits, in the order of the text."""
    groups: list[tuple[int, list[str]]] = []
    for name in sorted(names, key=lambda name: min(lives.held[name], default=0)):
        free = next(
            (
                group
                for size, group in groups
                if size == lives.sizes[name] and all(not lives.held[name] & lives.held[other] for other in group)
            ),
            None,
        )
        if free is None:
            groups.append((lives.sizes[name], [name]))
        else:
            free.append(name)
    return [(size, tuple(group)) for size, group in groups]


# ---- what is live where


@dataclass(slots=True)
class _Lives:
    """Arrays of a role: their registers, which are operands, and the positions at which each is held.

    `kept` leaves out positions of the last use: what is made there element by element may take the place of what is used up.
    """

    length: int
    sizes: dict[str, int] = field(default_factory=dict)
    operands: set[str] = field(default_factory=set)
    held: dict[str, frozenset[int]] = field(default_factory=dict)
    kept: dict[str, frozenset[int]] = field(default_factory=dict)

    def widest(self, names: list[str], positions: dict[str, frozenset[int]]) -> int:
        """The most registers that these arrays occupy at one position."""
        return max(
            (sum(self.sizes[name] for name in names if at in positions[name]) for at in range(self.length)), default=0
        )


def _lives(
    body: ir.RoleBody, role: ir.Role, accumulators: dict[str, WgmmaAccumulator], depths: dict[str, int]
) -> _Lives:
    timeline = Timeline(body)
    lives = _Lives(len(timeline.events))
    arrays = _Arrays(timeline, accumulators)
    uses: list[set[str]] = [set() for _ in timeline.events]
    defines: list[set[str]] = [set() for _ in timeline.events]
    for at, event in enumerate(timeline.events):
        if event.is_end:
            continue
        operation = event.operation
        uses[at] |= arrays.used_by(operation)
        name = arrays.defined_by(operation)
        if isinstance(operation, ir.Mma):
            done, _ = timeline.completion(at, depths)
            uses[done] |= arrays.used_by(operation) | {operation.accumulator}
        if name is None:
            continue
        if isinstance(operation, ir.Elementwise | ir.ReadShared | ir.LoadTile | ir.RowReduce):
            lives.sizes[name] = _registers(operation, role)
            if isinstance(operation.layout, Fragment) and operation.layout.role == "operand":
                lives.operands.add(name)
        _define(timeline, operation, name, at, defines)
    lives.sizes.update({name: layout.registers for name, layout in accumulators.items()})
    held, kept = live_positions(timeline, uses, defines)
    lives.held = {name: held.get(name, frozenset()) for name in lives.sizes}
    lives.kept = {name: kept.get(name, frozenset()) for name in lives.sizes}
    return lives


def _define(timeline: Timeline, operation: ir.Operation, name: str, at: int, defines: list[set[str]]) -> None:
    """Where an array gets its value: at the operation, or, one step ahead, before the loop and at the end of each step."""
    loop = timeline.loop_around(at)
    if isinstance(operation, ir.ReadShared) and operation.ahead and loop is not None:
        defines[loop].add(name)
        defines[timeline.end_of[loop]].add(name)
    else:
        defines[at].add(name)


def _registers(operation: ir.Elementwise | ir.ReadShared | ir.LoadTile | ir.RowReduce, role: ir.Role) -> int:
    """32-bit registers of a named value: 16-bit values lie in pairs, and what is fetched stays as it is stored until it is used."""
    layout = operation.layout
    extent = Extent.ROWS if isinstance(operation, ir.RowReduce) else operation.extent
    if layout is None or extent is Extent.SCALAR:
        return 1
    size = CELL_BYTES
    if isinstance(operation, ir.Elementwise):
        size = operation.dtype.bytes
    elif isinstance(operation, ir.ReadShared):
        size = min(operation.dtype.bytes, operation.origin.layout.dtype.bytes)
    return max(1, _elements(layout, extent, role) * size // CELL_BYTES)


def _elements(layout: ir.TileLayout, extent: Extent, role: ir.Role) -> int:
    """Values of a thread: of a fragment two rows of each 64 and two columns of each 8; one warp spreads a factor over its lanes."""
    if extent is Extent.TILE:
        return layout.rows * layout.columns // (WARPGROUP * role.warpgroups or WARP)
    if not role.warpgroups:
        return -(-(layout.rows if extent is Extent.ROWS else layout.columns) // WARP)
    return 2 * layout.rows // (MMA_ROWS * role.warpgroups) if extent is Extent.ROWS else layout.columns // 4


class _Arrays:
    """Which names are arrays of registers: read accumulators are other names of them, and a tile that one operation uses is
    computed there, element by element, unless one of its accumulators changes in between."""

    def __init__(self, timeline: Timeline, accumulators: dict[str, WgmmaAccumulator]) -> None:
        self.accumulators = accumulators
        self.meaning: dict[str, frozenset[str]] = {name: frozenset({name}) for name in accumulators}
        events = [event.operation for event in timeline.events if not event.is_end]
        for at, operation in enumerate(events):
            match operation:
                case ir.ReadAccumulator(name=name, accumulator=accumulator):
                    self.meaning[name] = frozenset({accumulator})
                case ir.Elementwise(name=name, value=value) if self._fused(operation, at, events):
                    self.meaning[name] = self.names_in(value)
                case ir.LoadTile(name=name) if _lands_in_accumulator(name, events):
                    self.meaning[name] = frozenset()
                case ir.Elementwise() | ir.ReadShared() | ir.LoadTile() | ir.RowReduce():
                    self.meaning[operation.name] = frozenset({operation.name})
                case _:
                    pass

    def _fused(self, operation: ir.Elementwise, at: int, events: list[ir.Operation]) -> bool:
        if operation.extent is not Extent.TILE or (
            isinstance(operation.layout, Fragment) and operation.layout.role == "operand"
        ):
            return False
        users = [number for number, other in enumerate(events) if operation.name in _variables(other)]
        if len(users) != 1:
            return not users
        written = {getattr(other, "accumulator", None) for other in events[at + 1 : users[0]] if not _only_reads(other)}
        return not written & self.names_in(operation.value)

    def names_in(self, value: Expr) -> frozenset[str]:
        """Arrays that an expression reads."""
        return frozenset().union(*(self.meaning.get(name, frozenset()) for name in names_of(value)))

    def used_by(self, operation: ir.Operation) -> set[str]:
        """Arrays that an operation reads while it is executed."""
        match operation:
            case ir.Elementwise(name=name) if name not in self.meaning.get(name, frozenset({name})):
                return set()
            case ir.Elementwise(value=value) | ir.WriteShared(value=value) | ir.StoreTile(value=value):
                return set(self.names_in(value))
            case ir.RowReduce(value=value) | ir.SetAccumulator(value=value):
                return set(self.names_in(value))
            case ir.ReadAccumulator(accumulator=accumulator):
                return {accumulator}
            case ir.Mma(a=a, accumulator=accumulator, accumulate=accumulate):
                kept = set() if isinstance(accumulate, Const) and not accumulate.value else {accumulator}
                return kept | (set(self.names_in(a)) if isinstance(a, Var) else set())
            case _:
                return set()

    def defined_by(self, operation: ir.Operation) -> str | None:
        """The array that an operation makes anew."""
        match operation:
            case ir.Elementwise(name=name) | ir.LoadTile(name=name) if name not in self.meaning.get(name, frozenset()):
                return None
            case ir.Elementwise() | ir.ReadShared() | ir.LoadTile() | ir.RowReduce():
                return operation.name
            case ir.Mma(accumulator=accumulator) | ir.SetAccumulator(accumulator=accumulator):
                return accumulator
            case _:
                return None


def fused_names(timeline: Timeline, accumulators: dict[str, WgmmaAccumulator]) -> frozenset[str]:
    """Named tiles that are computed where their one user needs them, so that they have no array."""
    arrays = _Arrays(timeline, accumulators)
    return frozenset(name for name, meaning in arrays.meaning.items() if name not in meaning)


def landing(body: ir.RoleBody) -> dict[str, str]:
    """Loaded tiles that only become an accumulator's value, and that accumulator: they are loaded into its registers."""
    events = ir.walk(body.body)
    return {
        op.value.name: op.accumulator
        for op in events
        if isinstance(op, ir.SetAccumulator)
        and isinstance(op.value, Var)
        and any(isinstance(load, ir.LoadTile) and load.name == op.value.name for load in events)
        and _lands_in_accumulator(op.value.name, events)
    }


def _lands_in_accumulator(name: str, events: list[ir.Operation]) -> bool:
    """Whether a loaded tile only becomes an accumulator's value: it is then loaded into those registers."""
    users = [operation for operation in events if name in _variables(operation)]
    return len(users) == 1 and isinstance(users[0], ir.SetAccumulator) and isinstance(users[0].value, Var)


def _only_reads(operation: ir.Operation) -> bool:
    return not isinstance(operation, ir.Mma | ir.SetAccumulator)


def _variables(operation: ir.Operation) -> set[str]:
    """Names in the expressions of an operation itself, not of a block's body."""
    match operation:
        case ir.Elementwise(value=value) | ir.WriteShared(value=value) | ir.StoreTile(value=value):
            return names_of(value)
        case ir.RowReduce(value=value) | ir.SetAccumulator(value=value):
            return names_of(value)
        case ir.Mma(a=Var() as operand):
            return {operand.name}
        case _:
            return set()

"""A role's operations in the order of its text: where control goes next, where a product is waited for, and what is live where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Var
from kernwright.generator.passes.derive.readers import reads_buffer, reads_stage


@dataclass(frozen=True, slots=True)
class Event:
    """An operation, or the end of a block. `first` is, for an end, the position where its block began."""

    operation: ir.Operation
    first: int | None = None

    @property
    def is_end(self) -> bool:
        return self.first is not None


class Timeline:
    """The events of a role's body, numbered. A loop goes back from its end; it, a `when_present` and a `when` may be
    skipped."""

    def __init__(self, body: ir.RoleBody) -> None:
        self.events: list[Event] = []
        self.end_of: dict[int, int] = {}
        self._append((body,))

    def _append(self, operations: tuple[ir.Operation, ...]) -> None:
        for operation in operations:
            position = len(self.events)
            self.events.append(Event(operation))
            if isinstance(operation, ir.Block):
                self._append(operation.body)
                self.end_of[position] = len(self.events)
                self.events.append(Event(operation, position))

    def after(self, position: int) -> list[int]:
        """Positions that control may reach next."""
        event = self.events[position]
        next_ones = [position + 1] if position + 1 < len(self.events) else []
        if event.is_end and isinstance(event.operation, ir.Steps) and event.first is not None:
            next_ones.append(event.first + 1)
        if not event.is_end and isinstance(event.operation, ir.Steps | ir.WhenPresent | ir.When):
            next_ones.append(self.end_of[position] + 1)
        return [number for number in next_ones if number < len(self.events)]

    def reaches(self, position: int, wanted: Callable[[ir.Operation], bool]) -> bool:
        """Whether control may come from `position` to an operation that is `wanted`."""
        seen: set[int] = set()
        waiting = self.after(position)
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            event = self.events[at]
            if not event.is_end and wanted(event.operation):
                return True
            waiting += self.after(at)
        return False

    def loop_around(self, position: int) -> int | None:
        """Where the innermost loop around a position begins."""
        around = [
            first
            for first, last in self.end_of.items()
            if first < position < last and isinstance(self.events[first].operation, ir.Steps)
        ]
        return max(around, default=None)

    def products(self) -> list[tuple[int, ir.Mma]]:
        """Positions of the products."""
        return [(at, event.operation) for at, event in enumerate(self.events) if isinstance(event.operation, ir.Mma)]

    def completion(self, position: int, depths: Mapping[str, int]) -> tuple[int, str]:
        """Where a wgmma that was issued at `position` is waited for, and for which reason; `depths` is by pipeline.

        Groups complete in order, so a wait for a later product covers an earlier one.
        """
        issued: list[ir.Mma] = []
        in_registers = False
        for at in range(position, len(self.events)):
            event = self.events[at]
            match event.operation:
                case ir.Mma() as mma:
                    issued.append(mma)
                    in_registers = in_registers or isinstance(mma.a, Var)
                case ir.ReadAccumulator(accumulator=name) if any(mma.accumulator == name for mma in issued):
                    return at, f"before {name} is read"
                case ir.SetAccumulator(accumulator=name) if any(mma.accumulator == name for mma in issued):
                    return at, f"before {name} is changed"
                case ir.Consume(pipeline=name) if event.is_end and (event.first or 0) < position:
                    if depths.get(name, 0) == 0 and any(reads_stage(mma, name) for mma in issued):
                        return at, f"before the stage of {name} is released"
                case ir.WriteShared(target=tile) | ir.CopyIn(target=tile) if any(
                    reads_buffer(mma, tile) for mma in issued
                ):
                    return at, f"before {tile.name} is written again"
                case ir.Steps() if event.is_end and in_registers and (event.first or 0) < position:
                    return at, "before the loop's back edge, since an operand is in registers"
                case ir.Steps(body=body) if event.is_end and (event.first or 0) < position:
                    again = [op.target for op in ir.walk(body) if isinstance(op, ir.WriteShared | ir.CopyIn)]
                    names = {tile.name for tile in again if any(reads_buffer(mma, tile) for mma in issued)}
                    if names:
                        return at, f"before the loop's back edge, since {' and '.join(sorted(names))} is written again"
                case _:
                    pass
        return len(self.events) - 1, "behind the loop, or at the end of the role"


Positions = dict[str, frozenset[int]]


def live_positions(timeline: Timeline, uses: list[set[str]], defines: list[set[str]]) -> tuple[Positions, Positions]:
    """Positions at which each name holds a value that is used there or later, or is being made; and without those of last uses.

    Backwards to a fixed point, since loops go back.
    """
    count = len(timeline.events)
    live_in: list[set[str]] = [set() for _ in range(count)]
    live_out: list[set[str]] = [set() for _ in range(count)]
    changed = True
    while changed:
        changed = False
        for at in reversed(range(count)):
            out: set[str] = set().union(*(live_in[after] for after in timeline.after(at)))
            into = uses[at] | (out - defines[at])
            if out != live_out[at] or into != live_in[at]:
                live_out[at], live_in[at], changed = out, into, True
    kept = [live_out[at] | defines[at] for at in range(count)]
    return _by_name([kept[at] | uses[at] for at in range(count)]), _by_name(kept)


def _by_name(sets: list[set[str]]) -> Positions:
    found: dict[str, set[int]] = {}
    for at, names in enumerate(sets):
        for name in names:
            found.setdefault(name, set()).add(at)
    return {name: frozenset(positions) for name, positions in found.items()}

"""Walks every path of a kernel's machine code and holds it against the automaton of its program.

A state of the walk is a position, the states of the automaton that the events so far allow, what is known of predicates, and the
accumulators of wgmma groups that may still run. Predicates are followed, so that two instructions under one predicate happen
together; a wait happens on the side of a branch on which its predicate is true.

Limits. Only accumulators of wgmma are followed, not their register operands. A path that predicates do not exclude counts as
possible, even if registers exclude it. Indirect branches and calls of functions with events cannot be followed and are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernwright.generator.sass.expected import (
    ACCESSES,
    AT_MOST,
    BULK_WAIT,
    COMMIT,
    GROUP_WAIT,
    HARMLESS,
    MEET,
    REGISTERS,
    WAIT,
    Automaton,
    Edge,
    Place,
    is_one_of,
)
from kernwright.generator.sass.flow import (
    BRANCHES,
    ENDS,
    Block,
    blocks,
    branch_targets,
    by_register,
    conditional,
    live_predicates,
    never,
    plop3,
    predicates_written,
)
from kernwright.generator.sass.listing import Instruction, Listing, SassError, SassFunction

REGISTER = re.compile(r"(?<![A-Za-z0-9_])R(\d+)(?![\d])")
SHAPE = re.compile(r"^HGMMA\.64x(\d+)x\d+\.(F\d+)")
WIDTH = {"64": 2, "128": 4, "256": 8, "2": 2, "4": 4}
STATE_LIMIT = 400_000
NUMBERED = (MEET, GROUP_WAIT, BULK_WAIT, REGISTERS)

Flight = tuple[tuple[tuple[int, int], ...], ...]
"""Accumulators (first register, one past the last) of the wgmma groups that may run, oldest first; the last group is open."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Machine code that the program's text does not allow.

    `rule` is "order", "exit", "access", "accumulator" or "missing"; `address` is None where no instruction is at fault.
    """

    rule: str
    roles: tuple[str, ...]
    address: int | None
    instruction: str
    message: str
    places: tuple[Place, ...] = ()
    before: str = ""

    def __str__(self) -> str:
        at = "" if self.address is None else f" at {self.address:#06x} `{self.instruction}`"
        return f"{'/'.join(self.roles) or 'kernel'}{at}: {self.message}" + (f"; {self.before}" if self.before else "")


@dataclass(frozen=True, slots=True)
class State:
    """Where a path is. `known` maps predicates to False, True or the position of the wait whose outcome they hold."""

    position: int
    states: frozenset[int]
    known: tuple[tuple[str, int | bool], ...]
    flight: Flight


@dataclass(slots=True)
class Walk:
    """What a walk found: `findings` in the order of the addresses, `met` the statements that some path executes."""

    function: SassFunction
    automaton: Automaton
    listing: Listing
    findings: dict[tuple[str, int], Finding] = field(default_factory=dict)
    met: set[Place] = field(default_factory=set)
    unknown: int = 0
    _parts: dict[int, Block] = field(default_factory=dict)
    _live: dict[int, frozenset[str]] = field(default_factory=dict)
    _steps: dict[tuple[frozenset[int], str, int | None], frozenset[int]] = field(default_factory=dict)
    _last: dict[State, tuple[int, tuple[Place, ...]]] = field(default_factory=dict)

    def run(self) -> None:
        """Walk every path from the entry. Raises SassError for code that cannot be followed."""
        parts = blocks(self.function)
        self._parts = {block.first: block for block in parts}
        self._live = live_predicates(self.function, parts)
        self._check_calls()
        start = State(0, self.automaton.closure((0,)), (), ((),))
        seen, pending = {start}, [start]
        while pending:
            state = pending.pop()
            for after in self._block(state):
                if after not in seen:
                    if len(seen) >= STATE_LIMIT:
                        raise SassError(f"{self.function.name}: more than {STATE_LIMIT} states of its paths")
                    seen.add(after)
                    pending.append(after)
        if not self.findings:
            self._missing()

    def _check_calls(self) -> None:
        """A called function is helper code of ptxas: it may hold no event and no access."""
        for instruction in self.function.instructions:
            if instruction.root not in ("CALL", "UCALL"):
                continue
            callee = self.listing.functions.get(next(iter(instruction.targets), ""))
            if callee is None or any(
                self.automaton.kind_of(inner.opcode) or inner.root in ACCESSES for inner in callee.instructions
            ):
                raise SassError(f"{self.function.name}: {instruction}: a call that cannot be followed")

    # ---- one block

    def _block(self, state: State) -> Iterator[State]:
        """The states at the heads of the blocks that follow."""
        last = self._parts[state.position].last
        pending = [state]
        while pending:
            now = pending.pop()
            instruction = self.function.instructions[now.position]
            for after, moved in self._instruction(now, instruction):
                if after.position in self._parts and (moved or now.position == last):
                    live = self._live[after.position]
                    known = tuple(item for item in after.known if item[0] in live)
                    head = State(after.position, after.states, known, after.flight)
                    self._last.setdefault(head, self._last.get(after) or self._last.get(state) or (-1, ()))
                    yield head
                elif after.position < len(self.function.instructions):
                    pending.append(after)

    def _instruction(self, state: State, instruction: Instruction) -> Iterator[tuple[State, bool]]:
        """The states behind an instruction, and whether control has moved there by a branch."""
        predicate, negated = conditional(instruction)
        matters = (
            instruction.root in (*BRANCHES, *ENDS)
            or instruction.root in ACCESSES
            or self._kind(instruction) is not None
        )
        if never(instruction):
            yield self._next(state), False
        elif not predicate:
            yield from self._effect(state, instruction)
        elif not matters:  # a guarded scalar instruction: what it writes is not known any more
            yield self._next(self._write(state, instruction)), False
        else:
            for value, side in self._sides(state, predicate):
                if value != negated:
                    yield from self._effect(side, instruction)
                else:
                    yield self._next(side), False

    def _sides(self, state: State, predicate: str) -> Iterator[tuple[bool, State]]:
        """Both values of a predicate, or the one that it is known to have; a true one may be the outcome of a wait."""
        known = dict(state.known)
        value = known.get(predicate)
        if isinstance(value, bool):
            yield value, state
            return
        copies = [name for name, other in known.items() if value is not None and other == value]
        for outcome in (False, True):
            after = {**known, predicate: outcome} | dict.fromkeys(copies, outcome)
            side = self._replace(state, known=tuple(sorted(after.items())))
            if outcome and value is not None:
                waited = self.function.instructions[value - WAIT_MARK]
                kind = self._kind(waited)
                assert kind is not None
                advanced = self._event(side, waited, kind, None)
                if advanced is None:
                    continue
                side = advanced
            yield outcome, side

    def _effect(self, state: State, instruction: Instruction) -> Iterator[tuple[State, bool]]:
        """An instruction that is executed."""
        now = self._registers(state, instruction)
        if instruction.root in BRANCHES:
            for target in branch_targets(self.function, state.position):
                yield self._at(now, target), True
            if by_register(instruction):
                yield self._next(now), False
            return
        if instruction.root in ENDS:
            self._ends(now, instruction)
            return
        if instruction.root in ACCESSES:
            kind = ACCESSES[instruction.root]
            states = self._allowed(now.states, kind)
            if not states:
                self._report("access", now, instruction, f"a {kind} that the text does not allow here")
                return
            now = self._replace(now, states=states)
        event = self._kind(instruction)
        if event is not None and is_one_of(event, (WAIT,)):
            now = self._write(now, instruction)
            outcome = next(iter(predicates_written(instruction)), "")
            if not outcome:
                raise SassError(f"{self.function.name}: {instruction}: a wait without a predicate")
            pending = {**dict(now.known), outcome: state.position + WAIT_MARK}
            yield self._next(self._replace(now, known=tuple(sorted(pending.items())))), False
            return
        if event is not None:
            advanced = self._event(now, instruction, event, _number(instruction, event))
            if advanced is not None and instruction.root == "HGMMA" and COMMIT in instruction.operands:
                advanced = self._event(advanced, instruction, COMMIT, None)
            if advanced is None:
                return
            now = advanced
        yield self._next(self._write(now, instruction)), False

    def _write(self, state: State, instruction: Instruction) -> State:
        """What is known once an instruction has written its predicates."""
        written = predicates_written(instruction)
        if not written:
            return state
        known = {name: value for name, value in state.known if name not in written}
        if (result := plop3(instruction)) is not None and not instruction.guard:
            name, value = result
            if value < 2:
                known[name] = bool(value)
            else:
                target, source = name.split("=")
                old = dict(state.known)
                if source in old:
                    known[target] = old[source]
        return self._replace(state, known=tuple(sorted(known.items())))

    # ---- events

    def _kind(self, instruction: Instruction) -> str | None:
        """The event of an instruction. `DEPBAR` of a scoreboard other than that of bulk groups is none."""
        if instruction.root == BULK_WAIT and instruction.operands[:1] != (BULK_BOARD,):
            return None
        return self.automaton.kind_of(instruction.opcode)

    def _event(self, state: State, instruction: Instruction, kind: str, number: int | None) -> State | None:
        """The state behind an event; None, and a finding, where the text does not allow it."""
        key = (state.states, kind, number)
        if key not in self._steps:
            ends: set[int] = set(state.states) if is_one_of(kind, HARMLESS) else set()
            for edge in self._edges(state.states):
                if _fits(edge, kind, number):
                    ends.add(edge.end)
                    self.met.add(edge.place)
            self._steps[key] = self.automaton.closure(ends)
        states = self._steps[key]
        if not states:
            what = "the end of a wgmma group" if kind == COMMIT else kind
            self._report("order", state, instruction, f"{what} does not follow here")
            return None
        after = self._replace(state, states=states)
        places = tuple(dict.fromkeys(edge.place for edge in self._edges(state.states) if _fits(edge, kind, number)))
        if places:
            self._last[after] = (instruction.address, places)
        return after

    def _edges(self, states: frozenset[int]) -> Iterator[Edge]:
        for state in sorted(states):
            yield from self.automaton.edges.get(state, ())

    def _allowed(self, states: frozenset[int], kind: str) -> frozenset[int]:
        key = (states, kind, None)
        if key not in self._steps:
            kept = [state for state in states if kind in self.automaton.allowed.get(state, ())]
            self._steps[key] = self.automaton.closure(kept)
        return self._steps[key]

    def _ends(self, state: State, instruction: Instruction) -> None:
        if instruction.root == "EXIT" and self.automaton.final not in state.states:
            self._report("exit", state, instruction, "a thread ends here and has more to do")

    def _missing(self) -> None:
        for place, kind in self.automaton.required.items():
            if place not in self.met:
                what = "no wgmma ends a group" if kind == COMMIT else f"no {kind} in the machine code"
                key = (f"missing {place}", -1)
                self.findings[key] = Finding("missing", (place.role,), None, "", f"{what} stands for {place}", (place,))

    def _report(self, rule: str, state: State, instruction: Instruction, message: str) -> None:
        key = (rule, instruction.address)
        if key in self.findings:
            return
        address, last = self._last.get(state, (-1, ()))
        before = f"before it, {address:#06x} was {last[0]}" if last else ""
        roles = self._roles(last, instruction)
        edges = sorted(self._edges(state.states), key=lambda edge: edge.place.role not in roles)
        places = tuple(dict.fromkeys(edge.place for edge in edges))
        wanted = list(dict.fromkeys(f"{edge.kind} for {edge.place}" for edge in edges)) or ["nothing more"]
        more = f" and {len(wanted) - SHOWN} more" if len(wanted) > SHOWN else ""
        text = f"{message}; the text goes on with {', '.join(wanted[:SHOWN])}{more}"
        self.findings[key] = Finding(rule, roles, instruction.address, instruction.text, text, places, before)

    def _roles(self, last: tuple[Place, ...], instruction: Instruction) -> tuple[str, ...]:
        """The role of the event before; where that is the kernel's own, the roles whose text has an instruction of this kind."""
        roles = tuple(dict.fromkeys(place.role for place in last if place.role != self.function.name))
        if roles:
            return roles
        kind = ACCESSES.get(instruction.root) or self._kind(instruction)
        having = [place for _, _, access, place in self.automaton.accesses if access == kind]
        having += [place for place, event in self.automaton.required.items() if event == kind]
        return tuple(dict.fromkeys(place.role for place in (*having, *last)))

    # ---- accumulators

    def _registers(self, state: State, instruction: Instruction) -> State:
        """Follow the accumulators of groups that run; nothing but a wgmma may touch them."""
        if instruction.root == "HGMMA":
            shape = SHAPE.match(instruction.opcode)
            first = REGISTER.match(instruction.operands[0])
            if shape is None or first is None:
                raise SassError(f"{self.function.name}: {instruction}: a wgmma of unknown shape")
            count = int(shape[1]) // (4 if shape[2] == "F16" else 2)
            piece = (int(first[1]), int(first[1]) + count)
            *groups, open_group = state.flight
            open_group = tuple(sorted({*open_group, piece}))
            flight = (*groups, open_group, ()) if COMMIT in instruction.operands else (*groups, open_group)
            if len(flight) > 8:  # a loop that never waits: the two oldest count as one
                flight = (tuple(sorted({*flight[0], *flight[1]})), *flight[2:])
            return self._replace(state, flight=flight)
        if is_one_of(instruction.opcode, (GROUP_WAIT,)):
            left = _number(instruction, GROUP_WAIT) or 0
            closed, open_group = state.flight[:-1], state.flight[-1]
            return self._replace(state, flight=(*closed[len(closed) - min(left, len(closed)) :], open_group))
        if any(state.flight):
            running = [piece for group in state.flight for piece in group]
            for lowest, past in _touched(instruction):
                if any(lowest < high and low < past for low, high in running):
                    self._report("accumulator", state, instruction, f"R{lowest} belongs to a wgmma that may still run")
                    break
        return state

    # ---- states

    def _replace(
        self,
        state: State,
        states: frozenset[int] | None = None,
        known: tuple[tuple[str, int | bool], ...] | None = None,
        flight: Flight | None = None,
    ) -> State:
        after = State(
            state.position,
            state.states if states is None else states,
            state.known if known is None else known,
            state.flight if flight is None else flight,
        )
        return self._keep(state, after)

    def _next(self, state: State) -> State:
        return self._at(state, state.position + 1)

    def _at(self, state: State, position: int) -> State:
        return self._keep(state, State(position, state.states, state.known, state.flight))

    def _keep(self, old: State, new: State) -> State:
        """The event before a state, for messages."""
        if new != old and old in self._last:
            self._last.setdefault(new, self._last[old])
        return new


BULK_BOARD = "SB0"
SHOWN = 4
WAIT_MARK = 16
"""Outcomes of waits are positions plus this, so that none of them equals False or True."""


def _fits(edge: Edge, kind: str, number: int | None) -> bool:
    if edge.kind != kind:
        return False
    if edge.number is None or number is None:
        return True
    return number <= edge.number if is_one_of(kind, AT_MOST) else number == edge.number


def _number(instruction: Instruction, kind: str) -> int | None:
    """The number of a barrier, of groups left or of registers; None for none or for one in a register."""
    if not is_one_of(kind, NUMBERED):
        return None
    words = instruction.operands
    word = words[0] if is_one_of(kind, (MEET,)) else words[-1]
    return int(word, 16) if word.startswith("0x") else None


def _touched(instruction: Instruction) -> Iterator[tuple[int, int]]:
    """The registers that an instruction names, vectors of memory accesses whole."""
    memory = instruction.root in ("LDS", "STS", "LDG", "STG", "LDSM", "STSM", "LD", "ST", "LDL", "STL")
    words = instruction.opcode.split(".")
    width = max((WIDTH.get(word, 1) for word in words[1:]), default=1) if memory else 1
    for word in instruction.operands:
        for match in REGISTER.finditer(word):
            number = int(match[1])
            yield number, number + (width if "[" not in word else 1)

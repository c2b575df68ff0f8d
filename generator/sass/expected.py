"""The event orders that a lowered program allows, as an automaton over its statements.

Events are instructions that synchronise, copy asynchronously or multiply. Their edges are taken in the order of the text: a branch
is either side, a loop with constant bounds is written out, any other loop runs zero or more times, a call is its function's body.
Ordinary accesses (loads and stores of shared memory and of tensor memory) are no edges: each is allowed in a zone of states around
its place, which ends at the events that order it. `RISES` and `SINKS` say which events do not: an access may rise over a release
and sink under an acquire, a store may rise over a proxy fence and never sink under one.

Limits. The two sides of a branch are both allowed, whatever its condition says, and so are zero turns of a loop. Events are told
apart by their opcode and, where both state it, their number, not by the barrier or the address that they use; where two entries
have the same pattern (the two arrivals) one may stand for the other. Entries without a pattern (`tcgen05` fences) and `__syncwarp`,
which ptxas drops where a warp cannot have parted, are not looked for. Accesses are known by kind, neither by address nor by count,
and accesses to global memory are not held against anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernwright.generator.arch import ARCHITECTURES, Architecture
from kernwright.generator.instructions import Instruction, lookup, table
from kernwright.generator.ir import names
from kernwright.generator.ir.evaluate import constant_value
from kernwright.generator.ir.expr import Call, Element, Expr, Var, children, integer, substitute
from kernwright.generator.ir.program import LoweredProgram
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import (
    Assign,
    CallFunction,
    Declare,
    Execute,
    If,
    Let,
    Repeat,
    Statement,
    expressions_of,
)

WAIT, ARRIVE, EXPECT = "SYNCS.PHASECHK", "SYNCS.ARRIVE", "SYNCS.EXCH"
FENCE, MEET, BULK_WAIT = "FENCE.VIEW.ASYNC", "BAR.SYNC", "DEPBAR"
GROUP_START, GROUP_WAIT, COMMIT = "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR", "gsb0"
REGISTERS, COLUMNS = "USETMAXREG", "UTCATOMSWS"
COPIES = ("UTMALDG", "UTMASTG", "UBLKCP", "UTMACMDFLUSH", "UTMACCTL")
PRODUCTS = ("HGMMA", COMMIT, GROUP_START)
TENSOR_PRODUCTS = ("UTCHMMA", "UTCBAR")

LOAD, STORE = "load of shared memory", "store to shared memory"
TENSOR_LOAD, TENSOR_STORE = "load of tensor memory", "store to tensor memory"
ACCESSES = {"LDS": LOAD, "LDSM": LOAD, "STS": STORE, "STSM": STORE, "LDTM": TENSOR_LOAD, "STTM": TENSOR_STORE}
"""Opcodes of ordinary accesses, without modifiers, and what they are here."""

_ALWAYS = (*PRODUCTS, *COPIES, REGISTERS, EXPECT)
RISES: Mapping[str, tuple[str, ...]] = {
    LOAD: (*_ALWAYS, *TENSOR_PRODUCTS, GROUP_WAIT, BULK_WAIT, ARRIVE, FENCE),
    STORE: (*_ALWAYS, *TENSOR_PRODUCTS, ARRIVE, FENCE),
    TENSOR_LOAD: (*COPIES, ARRIVE, FENCE),
    TENSOR_STORE: (*COPIES, ARRIVE, FENCE),
}
"""Events over which an access that follows them in the text may be executed earlier."""
SINKS: Mapping[str, tuple[str, ...]] = {
    LOAD: (*_ALWAYS, *TENSOR_PRODUCTS, GROUP_WAIT, BULK_WAIT, WAIT),
    STORE: (*PRODUCTS, REGISTERS, GROUP_WAIT, BULK_WAIT, WAIT),
    TENSOR_LOAD: (FENCE,),
    TENSOR_STORE: (FENCE,),
}
"""Events under which an access that precedes them in the text may be executed later."""

HARMLESS = (FENCE, BULK_WAIT, GROUP_START, GROUP_WAIT)
"""Events that ptxas may add anywhere: one more fence or wait orders more, never less."""
REPEATABLE = ("USETMAXREG.TRY_ALLOC", COLUMNS)
"""Events that ptxas puts into a retry loop."""
AT_MOST = (GROUP_WAIT, BULK_WAIT)
"""Events whose number is a limit: a smaller one waits for more."""
FAMILY = re.compile(r"U?SYNCSU?$|[A-Z]GMMA$|UTM[A-Z]|UTC[A-Z]*MMA|UTCBAR|UTCCP|UBLK|USETMAXREG$")
"""Opcodes that take part in the order, whether or not an entry of the table names them."""
UNROLL_LIMIT = 64


def is_one_of(kind: str, prefixes: Iterable[str]) -> bool:
    """Whether an event or opcode is one of `prefixes`, whole or up to a dot."""
    return any(kind == prefix or kind.startswith(prefix + ".") for prefix in prefixes)


@dataclass(frozen=True, slots=True)
class Place:
    """A statement of the program that is an event or an access: role, table entry, the author's line."""

    role: str
    entry: str
    source: Source

    def __str__(self) -> str:
        return f"{self.entry} of {self.role}" + (f" ({self.source})" if self.source.line else "")


@dataclass(frozen=True, slots=True)
class Edge:
    """An event of the text: from state to state, its kind (the SASS pattern of the entry), its number, its place."""

    start: int
    end: int
    kind: str
    number: int | None
    place: Place


@dataclass(slots=True)
class Automaton:
    """States are numbers from 0; `free` are edges without an event, `allowed` the accesses of each state with their places."""

    patterns: tuple[str, ...]
    count: int = 1
    final: int = 0
    edges: dict[int, list[Edge]] = field(default_factory=dict)
    free: dict[int, list[int]] = field(default_factory=dict)
    accesses: list[tuple[int, int, str, Place]] = field(default_factory=list)
    allowed: dict[int, dict[str, Place]] = field(default_factory=dict)
    required: dict[Place, str] = field(default_factory=dict)
    commits: list[Edge] = field(default_factory=list)

    def state(self) -> int:
        self.count += 1
        return self.count - 1

    def skip(self, start: int, end: int) -> None:
        self.free.setdefault(start, []).append(end)

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """The states and those that follow without an event."""
        found, pending = set(states), list(states)
        while pending:
            for state in self.free.get(pending.pop(), ()):
                if state not in found:
                    found.add(state)
                    pending.append(state)
        return frozenset(found)

    def kind_of(self, opcode: str) -> str | None:
        """The event that an opcode is: the longest pattern that it starts with; None for an opcode that is none.

        An opcode that synchronises, copies or multiplies is an event even if no pattern knows it; no text allows it then.
        `USYNCS` and `SYNCSU`, the forms of sm_107a with uniform operands, count as `SYNCS`.
        """
        root, dot, rest = opcode.partition(".")
        plain = f"SYNCS{dot}{rest}" if root in ("USYNCS", "SYNCSU") else opcode
        fitting = [pattern for pattern in self.patterns if is_one_of(plain, (pattern,))]
        if fitting:
            return max(fitting, key=len)
        return plain if FAMILY.match(root) else None


def expected(program: LoweredProgram) -> Automaton:
    """The automaton of a program: of its kernel, with the functions in place of their calls."""
    arch = ARCHITECTURES[program.arch]
    patterns = {pattern for entry in table() if _is_event(entry) for pattern in entry.sass if _is_spine(pattern)}
    automaton = Automaton((*sorted(patterns),))
    builder = _Builder(program, arch, automaton)
    automaton.final = builder.block(program.body, 0, program.symbol, {})
    for commit in automaton.commits:
        _close_early(automaton, commit)
    _allow(automaton)
    return automaton


def _is_event(entry: Instruction) -> bool:
    """Entries that order something or work asynchronously; expressions and plain accesses do not."""
    effects = entry.effects
    told = {"mbarrier", "named barrier", "register budget", "tensor memory columns", "allocation permit"}
    return not entry.pure and (bool(effects.orders) or effects.proxy == "async" or bool(told & set(effects.writes)))


def _is_spine(pattern: str) -> bool:
    """`WARPSYNC` is left out (ptxas drops it where a warp cannot have parted), and so are accesses."""
    root = pattern.partition(".")[0]
    return root not in ACCESSES and root != "WARPSYNC"


@dataclass(slots=True)
class _Builder:
    program: LoweredProgram
    arch: Architecture
    automaton: Automaton

    def block(self, statements: Iterable[Statement], state: int, role: str, known: Mapping[str, int]) -> int:
        """Append statements behind `state`; returns the state behind them. `known` are indices of loops that are written out."""
        for statement in statements:
            state = self.statement(statement, state, role, known)
        return state

    def statement(self, statement: Statement, state: int, role: str, known: Mapping[str, int]) -> int:
        match statement:
            case If(condition=condition, then=then, otherwise=otherwise):
                state = self._reads((condition,), state, role, statement.source)
                return self._branch(_value(condition, known), then, otherwise, state, role, known)
            case Repeat():
                return self._loop(statement, state, role, known)
            case CallFunction(name=name):
                (function,) = [item for item in self.program.functions if item.name == name]
                return self.block(function.body, state, name, {})
            case Execute():
                return self._execute(statement, state, role, known)
            case Let(value=value) | Declare(value=value):
                return self._reads((value,), state, role, statement.source)
            case Assign(target=target, value=value):
                state = self._reads((value,), state, role, statement.source)
                if isinstance(target, Element):
                    state = self._reads((target.index,), state, role, statement.source)
                    if _is_shared(target.array):
                        state = self._access(STORE, Place(role, target.array, statement.source), state)
                return state
            case _:
                return state

    def _branch(
        self,
        decided: int | None,
        then: tuple[Statement, ...],
        otherwise: tuple[Statement, ...],
        state: int,
        role: str,
        known: Mapping[str, int],
    ) -> int:
        if decided is not None:
            return self.block(then if decided else otherwise, state, role, known)
        end = self.automaton.state()
        for side in (then, otherwise):
            start = self.automaton.state()
            self.automaton.skip(state, start)
            self.automaton.skip(self.block(side, start, role, known), end)
        return end

    def _loop(self, loop: Repeat, state: int, role: str, known: Mapping[str, int]) -> int:
        state = self._reads((loop.first, loop.count, loop.step), state, role, loop.source)
        bounds = [_value(part, known) for part in (loop.first, loop.count, loop.step)]
        if None not in bounds and bounds[2]:
            first, count, step = (int(bound or 0) for bound in bounds)
            turns = range(first, count, step)
            if len(turns) <= UNROLL_LIMIT:
                for index in turns:
                    state = self.block(loop.body, state, role, {**known, loop.index.name: index})
                return state
        head, end = self.automaton.state(), self.automaton.state()
        self.automaton.skip(state, head)
        self.automaton.skip(head, end)
        inside = {name: value for name, value in known.items() if name != loop.index.name}
        self.automaton.skip(self.block(loop.body, head, role, inside), head)
        return end

    def _execute(self, statement: Execute, state: int, role: str, known: Mapping[str, int]) -> int:
        entry = lookup(statement.instruction, self.arch)
        place = Place(role, entry.name, statement.source)
        values = [expr for operand in statement.operands for expr in expressions_of(operand)]
        state = self._reads(values, state, role, statement.source)
        for kind in _accesses_of(entry):
            state = self._access(kind, place, state)
        if not _is_event(entry):
            return state
        if entry.effects.orders == "close wgmma group":
            return self._event(COMMIT, None, place, state)
        number = _number(entry, statement, known)
        for pattern in filter(_is_spine, entry.sass):
            state = self._event(pattern, number, place, state)
        return state

    def _event(self, kind: str, number: int | None, place: Place, state: int) -> int:
        end = self.automaton.state()
        edge = Edge(state, end, kind, number, place)
        self.automaton.edges.setdefault(state, []).append(edge)
        if kind == COMMIT:
            self.automaton.commits.append(edge)
        if is_one_of(kind, (COLUMNS,)):  # ptxas takes and gives columns by code of its own, with retries and checks
            self.automaton.skip(state, end)
        else:
            self.automaton.required[place] = kind
        if is_one_of(kind, REPEATABLE):
            self.automaton.edges.setdefault(end, []).append(Edge(end, end, kind, number, place))
        return end

    def _reads(self, values: Iterable[Expr], state: int, role: str, source: Source) -> int:
        """Loads of shared memory inside expressions."""
        for value in values:
            for expr in _walk(value):
                read = expr.array if isinstance(expr, Element) else expr.name if isinstance(expr, Var) else ""
                if isinstance(expr, Call):
                    try:
                        entry = lookup(expr.function, self.arch)
                    except KeyError:  # min, max
                        continue
                    for kind in _accesses_of(entry):
                        state = self._access(kind, Place(role, entry.name, source), state)
                elif _is_shared(read):
                    state = self._access(LOAD, Place(role, read, source), state)
        return state

    def _access(self, kind: str, place: Place, state: int) -> int:
        end = self.automaton.state()
        self.automaton.skip(state, end)
        self.automaton.accesses.append((state, end, kind, place))
        return end


def _accesses_of(entry: Instruction) -> tuple[str, ...]:
    """The ordinary accesses of an entry. Taking and giving tensor memory uses words of shared memory of ptxas's own."""
    effects = entry.effects
    if any(is_one_of(pattern, (COLUMNS,)) for pattern in entry.sass):
        return LOAD, STORE
    if effects.proxy == "async":
        return ()
    kinds = []
    for word, load, store in (("shared", LOAD, STORE), ("tensor memory", TENSOR_LOAD, TENSOR_STORE)):
        kinds += [load] if word in effects.reads else []
        kinds += [store] if word in effects.writes else []
    return tuple(kinds)


def _number(entry: Instruction, statement: Execute, known: Mapping[str, int]) -> int | None:
    """The number that the machine code states too: barrier, groups left, registers. None for none or one that varies."""
    if not entry.sass or not is_one_of(entry.sass[0], (MEET, GROUP_WAIT, BULK_WAIT, REGISTERS)):
        return None
    if is_one_of(entry.sass[0], (MEET,)) and not statement.operands:
        return 0
    position = 1 if is_one_of(entry.sass[0], (MEET,)) else 0
    operand: Any = statement.operands[position] if len(statement.operands) > position else None
    return None if operand is None or not expressions_of(operand) else _value(expressions_of(operand)[0], known)


def _is_shared(path: str) -> bool:
    return path.startswith(f"{names.SHARED}.")


def _walk(expr: Expr) -> Iterator[Expr]:
    for child in children(expr):
        yield from _walk(child)
    yield expr


def _value(expr: Expr, known: Mapping[str, int]) -> int | None:
    """The value of an expression once the indices in `known` are put in; None where it is not constant."""
    return constant_value(substitute(expr, {name: integer(value) for name, value in known.items()}))


def _backwards(automaton: Automaton) -> tuple[dict[int, list[int]], dict[int, list[Edge]]]:
    """Of each state, the states before it without an event, and the events that lead to it."""
    back: dict[int, list[int]] = {}
    for start, ends in automaton.free.items():
        for end in ends:
            back.setdefault(end, []).append(start)
    into: dict[int, list[Edge]] = {}
    for edges in automaton.edges.values():
        for edge in edges:
            into.setdefault(edge.end, []).append(edge)
    return back, into


def _close_early(automaton: Automaton, commit: Edge) -> None:
    """Let a group end anywhere between its last wgmma and its statement: ptxas marks the wgmma itself (`gsb0`).

    The states in between get copies, in which the group has ended; the commit leads from each to its copy.
    """
    back, into = _backwards(automaton)
    found, pending = {commit.start}, [commit.start]
    while pending:
        state = pending.pop()
        events = [edge.start for edge in into.get(state, ()) if not is_one_of(edge.kind, ("HGMMA", COMMIT))]
        for other in (*back.get(state, ()), *events):
            if other not in found:
                found.add(other)
                pending.append(other)
    copies = {state: commit.end if state == commit.start else automaton.state() for state in sorted(found)}
    for state, copy in copies.items():
        inner = [edge for edge in automaton.edges.get(state, ()) if edge.end in copies and edge.kind != COMMIT]
        for edge in inner:
            twin = Edge(copy, copies[edge.end], edge.kind, edge.number, edge.place)
            automaton.edges.setdefault(copy, []).append(twin)
        for end in [end for end in automaton.free.get(state, ()) if end in copies]:
            automaton.skip(copy, copies[end])
        if state != commit.start:
            automaton.edges.setdefault(state, []).append(Edge(state, copy, COMMIT, None, commit.place))
    automaton.accesses += [
        (copies[start], copies[end], kind, place)
        for start, end, kind, place in automaton.accesses
        if start in copies and end in copies
    ]


def _allow(automaton: Automaton) -> None:
    """Fill `allowed`: for each access the states from which, and at which, it may be executed."""
    back, into = _backwards(automaton)
    for start, end, kind, place in automaton.accesses:
        earlier, later = {start}, {end}
        pending = [start]
        while pending:
            state = pending.pop()
            over = [edge.start for edge in into.get(state, ()) if is_one_of(edge.kind, RISES[kind])]
            for other in (*back.get(state, ()), *over):
                if other not in earlier:
                    earlier.add(other)
                    pending.append(other)
        pending = [end]
        while pending:
            state = pending.pop()
            under = [edge.end for edge in automaton.edges.get(state, ()) if is_one_of(edge.kind, SINKS[kind])]
            for other in (*automaton.free.get(state, ()), *under):
                if other not in later:
                    later.add(other)
                    pending.append(other)
        for state in earlier | later:
            automaton.allowed.setdefault(state, {}).setdefault(kind, place)

"""Statements of a lowered program: what one thread does, in order. Scalar code over registers, memory and instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kernwright.generator.ir import names
from kernwright.generator.ir.expr import Const, Element, Expr, Var, integer
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.types import DType

ZERO = integer(0)
ONE = integer(1)


@dataclass(frozen=True, slots=True)
class Let:
    """`const <type> <name> = <value>;  // <why>`: a value that never changes."""

    var: Var
    value: Expr
    why: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Declare:
    """`<type> <name> = <value>;`: a scalar that later statements assign."""

    var: Var
    value: Expr
    why: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """`<type> <name>[<size>];`: a thread's part of a register tile, indexed by compile-time constants once unrolled.

    `zero` starts it at zero (`= {}`); `rows` makes it `<name>[<rows>][<size>]`; `alias` names the array whose registers it shares.
    """

    name: str
    dtype: DType
    size: Const
    why: str = ""
    zero: bool = False
    rows: Const | None = None
    alias: str | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Assign:
    """`<target> <op> <value>;` with op one of `=`, `+=`."""

    target: Var | Element
    value: Expr
    op: str = "="
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Repeat:
    """`for (int i = first; i < count; i += step)`, unrolled where `unroll` is set."""

    index: Var
    count: Expr
    body: tuple[Statement, ...]
    unroll: bool = True
    first: Expr = ZERO
    step: Expr = ONE
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class If:
    """`if (condition) { … } else { … }`."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()
    why: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address operand: `<array> + <offset>` in elements, or `<array>` where the offset is zero."""

    array: str
    offset: Expr
    dtype: DType
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ArrayOperand:
    """A register array as an operand of an instruction: the whole of it, row `row` of it, or what starts at element `offset`."""

    name: str
    row: Expr | None = None
    offset: Expr | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """A place in the block's shared memory: `member`, its element `index` (a stage or a copy), `offset` bytes into a tile."""

    member: str
    index: Expr | None = None
    offset: Expr | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MapOperand:
    """A tensor map of the kernel as an operand of a TMA copy."""

    name: str
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


Operand = Expr | Pointer | ArrayOperand | SharedOperand | MapOperand


@dataclass(frozen=True, slots=True)
class Execute:
    """One instruction of the table, executed for its effect: `<wrapper>(<operands>);`."""

    instruction: str
    operands: tuple[Operand, ...]
    why: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeclareRing:
    """`Ring<stages> name = Ring<stages>::side(first);`: where a role is in a pipeline; `name.stage` and `name.phase` are read."""

    name: str
    stages: Const
    side: str  # "producer" or "consumer"
    first: Expr | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AdvanceRing:
    """`name.advance(steps);`: on to the next stage, or to the copy's next one."""

    name: str
    steps: Const | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CallFunction:
    """`name(arguments);`: a function of the program."""

    name: str
    arguments: tuple[str, ...]
    why: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeclareShared:
    """The kernel's reference `shared` to its dynamic shared memory, whose start is aligned to `alignment` bytes."""

    alignment: int


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment line of the text: why, never what."""

    text: str
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Blank:
    """An empty line between paragraphs of the text."""


Statement = (
    Let
    | Declare
    | RegisterArray
    | Assign
    | Repeat
    | If
    | Execute
    | DeclareRing
    | AdvanceRing
    | CallFunction
    | DeclareShared
    | Remark
    | Blank
)


def expressions_of(operand: Operand) -> tuple[Expr, ...]:
    """The expressions inside an operand."""
    match operand:
        case Pointer(_, offset):
            return (offset,)
        case ArrayOperand(_, row, offset) | SharedOperand(_, row, offset):
            return tuple(expr for expr in (row, offset) if expr is not None)
        case MapOperand():
            return ()
        case _:
            return (operand,)


def map_operand(operand: Operand, change: Callable[[Expr], Expr]) -> Operand:
    """The operand over changed expressions."""
    match operand:
        case Pointer(_, offset):
            return replace(operand, offset=change(offset))
        case ArrayOperand(name, row, offset, source):
            return ArrayOperand(name, row and change(row), offset and change(offset), source)
        case SharedOperand(member, index, offset, source):
            return SharedOperand(member, index and change(index), offset and change(offset), source)
        case MapOperand():
            return operand
        case _:
            return change(operand)


def name_of(operand: Operand) -> str | None:
    """The array, tensor, map or member of shared memory that an operand stands for; None for a value."""
    match operand:
        case Pointer(name) | ArrayOperand(name) | MapOperand(name):
            return root(name)
        case SharedOperand():
            return names.SHARED
        case _:
            return None


def root(name: str) -> str:
    """The variable of a path: `ring` of `ring.stage`, `result` of `result[half]`."""
    return name.partition(".")[0].partition("[")[0]

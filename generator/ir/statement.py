"""Statements of a lowered program: what one thread does, in order. Scalar code over registers, memory and instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.ir.expr import Const, Element, Expr, Var
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.types import DType


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

    `zero` starts it at zero (`= {}`).
    """

    name: str
    dtype: DType
    size: Const
    why: str = ""
    zero: bool = False
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
    """`for (int i = 0; i < count; ++i)`, unrolled where `unroll` is set."""

    index: Var
    count: Expr
    body: tuple[Statement, ...]
    unroll: bool = True
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
    """A whole register array as an operand of an instruction."""

    name: str
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


Operand = Expr | Pointer | ArrayOperand


@dataclass(frozen=True, slots=True)
class Execute:
    """One instruction of the table, executed for its effect: `<wrapper>(<operands>);`."""

    instruction: str
    operands: tuple[Operand, ...]
    why: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment line of the text: why, never what."""

    text: str
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Blank:
    """An empty line between paragraphs of the text."""


Statement = Let | Declare | RegisterArray | Assign | Repeat | If | Execute | Remark | Blank

"""Scalar expressions, as C++ evaluates them.

A node keeps the author's order of terms and the author's source. Its type is the one C++ gives the printed text
(`unsigned + int` is unsigned, `short + short` is int), so that no pass can change a type by accident. Division and
remainder truncate, as in C. Nodes are immutable and compare by content; the source never takes part in a comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.types import DType, boolean, common, i32, promote

ARITHMETIC = ("+", "-", "*", "/", "%")
SHIFTS = ("<<", ">>")
BITWISE = ("&", "|", "^")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
LOGICAL = ("&&", "||")
BINARY_OPERATORS = ARITHMETIC + SHIFTS + BITWISE + COMPARISONS + LOGICAL
UNARY_OPERATORS = ("-", "~", "!")


@dataclass(frozen=True, slots=True)
class Const:
    """A literal, or a named constant of the program's table (`name` is then what the text prints)."""

    value: int | float
    dtype: DType
    name: str | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.dtype.is_integer and not (
            isinstance(self.value, int) and self.dtype.low <= self.value <= self.dtype.high
        ):
            raise ValueError(f"{self.value!r} is not a value of {self.dtype} ({self.dtype.low}..{self.dtype.high})")
        if self.dtype.is_float and not isinstance(self.value, float):
            raise ValueError(f"{self.value!r} is not a float; write {float(self.value)!r}")


@dataclass(frozen=True, slots=True)
class Var:
    """A parameter, a local or a hardware index. `low` and `high` are the declared facts about an integer, inclusive."""

    name: str
    dtype: DType
    low: int | None = None
    high: int | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `~x` or `!x`."""

    op: str
    operand: Expr
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def dtype(self) -> DType:
        return boolean if self.op == "!" else promote(self.operand.dtype)


@dataclass(frozen=True, slots=True)
class Binary:
    """`left op right` with C++'s meaning and C++'s type."""

    op: str
    left: Expr
    right: Expr
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.op not in BINARY_OPERATORS:
            raise ValueError(f"unknown operator {self.op!r}")
        if self.op in ("%", *SHIFTS, *BITWISE) and (self.left.dtype.is_float or self.right.dtype.is_float):
            raise TypeError(f"`{self.op}` needs integers, got {self.left.dtype} and {self.right.dtype}")
        if self.op in LOGICAL:
            return
        common(self.left.dtype, self.right.dtype)

    @property
    def dtype(self) -> DType:
        if self.op in COMPARISONS or self.op in LOGICAL:
            return boolean
        if self.op in SHIFTS:
            return promote(self.left.dtype)
        return common(self.left.dtype, self.right.dtype)


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion to `dtype`, printed where it changes the type."""

    dtype: DType
    operand: Expr
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Select:
    """`condition ? then : otherwise`; only the chosen side is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def dtype(self) -> DType:
        return (
            common(self.then.dtype, self.otherwise.dtype)
            if self.then.dtype != self.otherwise.dtype
            else self.then.dtype
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A pure function of its arguments: an entry of the instruction table, `min`, `max`. `function` is the table's name."""

    function: str
    args: tuple[Expr, ...]
    dtype: DType
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Element:
    """`array[index]`: one value of a register array or of memory."""

    array: str
    index: Expr
    dtype: DType
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


Expr = Const | Var | Unary | Binary | Cast | Select | Call | Element


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of a node, in the author's order."""
    match expr:
        case Const() | Var():
            return ()
        case Unary(_, operand) | Cast(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Select(condition, then, otherwise):
            return (condition, then, otherwise)
        case Call(_, args):
            return args
        case Element(_, index):
            return (index,)


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """The same node over other operands; source and everything else are kept."""
    match expr:
        case Const() | Var():
            return expr
        case Unary(op, _):
            return Unary(op, operands[0], expr.source)
        case Cast(dtype, _):
            return Cast(dtype, operands[0], expr.source)
        case Binary(op, _, _):
            return Binary(op, operands[0], operands[1], expr.source)
        case Select():
            return Select(operands[0], operands[1], operands[2], expr.source)
        case Call(function, _, dtype):
            return Call(function, operands, dtype, expr.source)
        case Element(array, _, dtype):
            return Element(array, operands[0], dtype, expr.source)


def integer(value: int, dtype: DType = i32) -> Const:
    """An unnamed integer constant."""
    return Const(value, dtype)


def without_names(expr: Expr, keep: frozenset[str] = frozenset()) -> Expr:
    """The expression with numbers in place of named constants, but for those in `keep`."""
    if isinstance(expr, Const):
        return expr if expr.name is None or expr.name in keep else Const(expr.value, expr.dtype, None, expr.source)
    return rebuild(expr, tuple(without_names(child, keep) for child in children(expr)))


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """`expr` with the variables that `values` names replaced."""
    if isinstance(expr, Var):
        return values.get(expr.name, expr)
    return rebuild(expr, tuple(substitute(child, values) for child in children(expr)))

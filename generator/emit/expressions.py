"""Expressions as C++ text, with the parentheses that the grammar or a reader needs and no others.

Two printers over one tree: `print_expression` gives the C++ of a kernel file, `annotate` an indented tree with types
and ranges for people who debug a pass. The printed text has exactly the node's C++ type and value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from kernwright.generator.ir.expr import (
    BITWISE,
    COMPARISONS,
    SHIFTS,
    Binary,
    Call,
    Cast,
    Const,
    Element,
    Expr,
    Select,
    Unary,
    Var,
    children,
)
from kernwright.generator.ir.types import DType, boolean, f32, f64, i32
from kernwright.generator.passes.ranges import Range, range_of

Spell = Callable[[str], str]
"""From a function of the instruction table to the name that the text prints; a `{}` in it takes a leading argument."""

LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""The binary operators of C++, from the loosest to the tightest. All of them associate to the left."""

CONDITIONAL = 1
PRECEDENCE = {op: level for level, ops in enumerate(LEVELS, CONDITIONAL + 1) for op in ops}
UNARY = CONDITIONAL + len(LEVELS) + 1
PRIMARY = UNARY + 1


def print_expression(expr: Expr, spell: Spell | None = None) -> str:
    """The C++ text of `expr`, on one line.

    `spell` turns the name of a called function into the printed one (identity when absent). A cast is printed where it
    changes the type. Raises ValueError for a float constant outside the range of its type.
    """
    return _print(expr, spell or str)[0]


def print_call(spelled: str, arguments: Sequence[str]) -> str:
    """A call: each `{}` of the spelling takes one leading argument (`sum<{}>` and `n, x` give `sum<n>(x)`)."""
    count = spelled.count("{}")
    return f"{spelled.format(*arguments[:count])}({', '.join(arguments[count:])})"


def _print(expr: Expr, spell: Spell) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    match expr:
        case Const():
            return _constant(expr)
        case Var(name):
            return name, PRIMARY
        case Unary(op, operand):
            text = _within(operand, UNARY, spell)
            return (f"{op}({text})" if op == "-" and text.startswith("-") else f"{op}{text}"), UNARY
        case Cast(dtype, operand):
            if dtype == operand.dtype:
                return _print(operand, spell)
            return f"({dtype.cpp}){_within(operand, UNARY, spell)}", UNARY
        case Binary(op, left, right):
            return f"{_left(op, left, spell)} {op} {_right(op, right, spell)}", PRECEDENCE[op]
        case Select(condition, then, otherwise):
            head, mid = _condition(condition, spell), _within(then, CONDITIONAL + 1, spell)
            return f"{head} ? {mid} : {_within(otherwise, CONDITIONAL, spell)}", CONDITIONAL
        case Call(function, args):
            return print_call(spell(function), [_print(arg, spell)[0] for arg in args]), PRIMARY
        case Element(array, index):
            return f"{array}[{_print(index, spell)[0]}]", PRIMARY


def _within(expr: Expr, least: int, spell: Spell) -> str:
    """The text of an operand in a place that takes operators binding at least as tightly as `least`."""
    text, binding = _print(expr, spell)
    return f"({text})" if binding < least else text


def _left(op: str, operand: Expr, spell: Spell) -> str:
    text, binding = _print(operand, spell)
    inner = _shown(operand)
    negated = isinstance(inner, Unary) and inner.op == "!" and op in COMPARISONS + BITWISE
    return f"({text})" if binding < PRECEDENCE[op] or negated or _surprising(op, inner) else text


def _right(op: str, operand: Expr, spell: Spell) -> str:
    text, binding = _print(operand, spell)
    glued = op in "+-" and text.startswith("-")  # `a - -b` is C++, `a - (-b)` is readable
    return f"({text})" if binding <= PRECEDENCE[op] or glued or _surprising(op, _shown(operand)) else text


def _condition(operand: Expr, spell: Spell) -> str:
    """The condition of `?:`; arithmetic in it is parenthesised, as clang's -Wparentheses asks."""
    text, binding = _print(operand, spell)
    arithmetic = isinstance(_shown(operand), Binary) and operand.dtype != boolean
    return f"({text})" if binding <= CONDITIONAL or arithmetic else text


def _shown(expr: Expr) -> Expr:
    """The node whose operator the text shows: casts to the same type are not printed."""
    while isinstance(expr, Cast) and expr.dtype == expr.operand.dtype:
        expr = expr.operand
    return expr


def _surprising(op: str, operand: Expr) -> bool:
    """True where C++ needs no parentheses but gcc or clang warn that a reader may not know (-Wparentheses)."""
    if not isinstance(operand, Binary):
        return False
    inner = operand.op
    if op == "||":
        return inner == "&&"
    if op in SHIFTS:
        return inner in ("+", "-")
    if op in BITWISE:
        return inner in COMPARISONS or inner in ("+", "-", *SHIFTS) or (inner in BITWISE and inner != op)
    return op in COMPARISONS and inner in COMPARISONS


def _constant(constant: Const) -> tuple[str, int]:
    if constant.name is not None:
        return constant.name, PRIMARY
    dtype, value = constant.dtype, constant.value
    if dtype == boolean:
        return ("true" if value else "false"), PRIMARY
    if isinstance(value, float):
        return _float(value, dtype)
    if dtype.bits < i32.bits:
        return f"({dtype.cpp}){int(value)}", UNARY
    if value == dtype.low and value < 0:  # the most negative number has no literal: its digits alone would be wider
        return f"({value + 1}{dtype.suffix} - 1)", PRIMARY
    return f"{int(value)}{dtype.suffix}", UNARY if value < 0 else PRIMARY


def _float(value: float, dtype: DType) -> tuple[str, int]:
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not math.isfinite(value):
        text = f"{'' if math.isnan(value) else sign}{'NAN' if math.isnan(value) else 'INFINITY'}"
        return (text, UNARY if sign else PRIMARY) if dtype == f32 else (f"({dtype.cpp}){text}", UNARY)
    if dtype == f64:
        return repr(value), UNARY if sign else PRIMARY
    text = f"{sign}{_shortest(abs(value))}f"
    return (text, UNARY if sign else PRIMARY) if dtype == f32 else (f"({dtype.cpp}){text}", UNARY)


def _shortest(value: float) -> str:
    """The shortest decimal that a C++ compiler reads as the float32 nearest to `value` (finite, not negative)."""
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        raise ValueError(f"{value!r} is outside float32: the largest finite value is 3.4028235e+38") from None
    exact = _float32(bits)
    below = (_float32(bits - 1) + exact) / 2 if bits else exact
    above = (exact + _float32(bits + 1)) / 2
    for digits in range(1, 10):
        text = f"{float(exact):.{digits}g}"
        if Fraction(text) == exact or below < Fraction(text) < above:
            break
    return text if "e" in text or "." in text else f"{text}.0"


def _float32(bits: int) -> Fraction:
    """The value with these bits, read as if the exponent had no infinities: the step above the largest float counts."""
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    if exponent == 0:
        return Fraction(mantissa) * Fraction(2) ** -149
    return (mantissa + (1 << 23)) * Fraction(2) ** (exponent - 150)


def annotate(expr: Expr, facts: Mapping[str, Range] | None = None) -> str:
    """The tree of `expr` for debugging: a node a line, operands indented, each with its type and its range.

    >>> print(annotate(Binary("+", Var("lane", i32, 0, 31), Const(1, i32))))
    +  i32 1..32
      lane  i32 0..31
      1  i32
    """
    return "\n".join(_annotated(expr, facts or {}, 0))


def _annotated(expr: Expr, facts: Mapping[str, Range], depth: int) -> list[str]:
    match expr:
        case Const() | Var():
            label = print_expression(expr)
        case Unary(op, _) | Binary(op, _, _):
            label = op
        case Cast(dtype, _):
            label = f"({dtype.cpp})"
        case Select():
            label = "?:"
        case Call(function, _):
            label = f"{function}()"
        case Element(array, _):
            label = f"{array}[]"
    literal = isinstance(expr, Const) and expr.name is None
    extent = f" {range_of(expr, facts)}" if expr.dtype.is_integer and not literal else ""
    lines = [f"{'  ' * depth}{label}  {expr.dtype}{extent}"]
    for operand in children(expr):
        lines += _annotated(operand, facts, depth + 1)
    return lines

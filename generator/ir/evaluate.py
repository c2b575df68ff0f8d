"""The value of an expression over constants, as C++ computes it; for conditions that are to hold when a program is generated."""

from __future__ import annotations

import operator
from collections.abc import Callable

from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Select, Unary


def quotient(a: int, b: int) -> int:
    """`a / b` as C++ computes it, truncating toward zero. Exact for integers of any size; `b` is not zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    """`a % b` as C++ computes it: it has the sign of `a`. `b` is not zero."""
    return a - b * quotient(a, b)


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "/": quotient,
    "%": remainder,
}


def constant_value(expr: Expr) -> int | None:
    """The integer (or 0 and 1 for a condition), or None when it is not constant, not an integer, or leaves its type."""
    value: int | None
    match expr:
        case Const(value=int(literal)):
            return literal
        case Unary(op, operand):
            inner = constant_value(operand)
            value = None if inner is None else {"-": -inner, "~": ~inner, "!": int(not inner)}[op]
        case Cast(_, operand):
            value = constant_value(operand)
        case Select(condition, then, otherwise):
            chosen = constant_value(condition)
            value = None if chosen is None else constant_value(then if chosen else otherwise)
        case Binary(op, left, right):
            value = _binary(op, constant_value(left), constant_value(right))
        case _:
            return None
    fits = value is not None and expr.dtype.is_integer and expr.dtype.low <= value <= expr.dtype.high
    return value if fits else None


def _binary(op: str, left: int | None, right: int | None) -> int | None:
    if op in ("&&", "||") and left is not None:
        decided = left == 0 if op == "&&" else left != 0
        return int(op == "||") if decided else None if right is None else int(right != 0)
    if (
        left is None
        or right is None
        or (op in ("/", "%") and right == 0)
        or (op in ("<<", ">>") and not 0 <= right < 32)
    ):
        return None
    return int(_OPERATORS[op](left, right))

"""What C++17 computes for an expression, written without the generator's analysis: value, type, what is undefined.

`evaluate` raises Undefined for signed overflow, division by zero, shifts out of range and shifts of negative values.
Conversions to a narrower integer are modular, as in every compiler that CUDA supports; `>>` of a negative value is
arithmetic. float is computed in double and rounded, which is exact for one operation.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var


class Undefined(Exception):
    """The expression has undefined behaviour at these inputs."""


INTEGERS = {
    "boolean": (1, False),
    "i8": (8, True),
    "i16": (16, True),
    "i32": (32, True),
    "i64": (64, True),
    "u8": (8, False),
    "u16": (16, False),
    "u32": (32, False),
    "u64": (64, False),
}
"""Width in bits and signedness of each integer type."""

Number = int | float


def promoted(name: str) -> str:
    return "i32" if name in ("boolean", "i8", "i16", "u8", "u16") else name


def usual(left: str, right: str) -> str:
    """The usual arithmetic conversions, from the table of the standard."""
    left, right = promoted(left), promoted(right)
    if "f32" in (left, right):
        return "f32"
    for name in ("u64", "i64", "u32"):
        if name in (left, right):
            return name
    return "i32"


def type_of(expr: Expr) -> str:
    """The C++ type of the printed text, by name."""
    match expr:
        case Const() | Var() | Call() | Element() | Cast():
            return expr.dtype.name
        case Unary(op, operand):
            return "boolean" if op == "!" else promoted(type_of(operand))
        case Binary(op, left, right):
            if op in ("<", "<=", ">", ">=", "==", "!=", "&&", "||"):
                return "boolean"
            return promoted(type_of(left)) if op in ("<<", ">>") else usual(type_of(left), type_of(right))
        case Select(_, then, otherwise):
            return type_of(then) if type_of(then) == type_of(otherwise) else usual(type_of(then), type_of(otherwise))


def converted(value: Number, name: str) -> Number:
    if name == "f32":
        try:
            return float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    if name == "boolean":
        return int(value != 0)
    bits, signed = INTEGERS[name]
    modular = int(value) % 2**bits
    return modular - 2**bits if signed and modular >= 2 ** (bits - 1) else modular


def _checked(value: int, name: str) -> int:
    bits, signed = INTEGERS[name]
    if not signed:
        return value % 2**bits
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Undefined(f"{value} does not fit {name}")
    return value


def evaluate(expr: Expr, inputs: Mapping[str, Number]) -> Number:
    """The value of `expr`; variables (and arrays, which are constant here) take their values from `inputs`."""
    match expr:
        case Const(value):
            return converted(value, expr.dtype.name)
        case Var(name) | Element(name):
            return inputs[name]
        case Cast(dtype, operand):
            return converted(evaluate(operand, inputs), dtype.name)
        case Unary("!", operand):
            return int(evaluate(operand, inputs) == 0)
        case Unary(op, operand):
            name = type_of(expr)
            value = converted(evaluate(operand, inputs), name)
            if name == "f32":
                return -value
            return _checked(-int(value) if op == "-" else -int(value) - 1, name)
        case Binary("&&", left, right):
            return int(evaluate(left, inputs) != 0 and evaluate(right, inputs) != 0)
        case Binary("||", left, right):
            return int(evaluate(left, inputs) != 0 or evaluate(right, inputs) != 0)
        case Binary("<<" | ">>" as op, left, right):
            return _shift(op, int(evaluate(left, inputs)), int(evaluate(right, inputs)), type_of(expr))
        case Binary(op, left, right):
            name = usual(type_of(left), type_of(right))
            a, b = converted(evaluate(left, inputs), name), converted(evaluate(right, inputs), name)
            if op in _COMPARED:
                return int(_COMPARED[op](a, b))
            return _float(op, a, b) if name == "f32" else _integer(op, int(a), int(b), name)
        case Select(condition, then, otherwise):
            return converted(evaluate(then if evaluate(condition, inputs) else otherwise, inputs), type_of(expr))
        case Call("min" | "max" as function, args):
            values = [converted(evaluate(arg, inputs), expr.dtype.name) for arg in args]
            return min(values) if function == "min" else max(values)
    raise TypeError(f"no semantics for {expr}")


_COMPARED = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _shift(op: str, value: int, by: int, name: str) -> int:
    value = int(converted(value, name))
    if not 0 <= by < INTEGERS[name][0] or (op == "<<" and value < 0):
        raise Undefined(f"{value} {op} {by} in {name}")
    return _checked(value * 2**by, name) if op == "<<" else value // 2**by


def _integer(op: str, a: int, b: int, name: str) -> int:
    match op:
        case "+":
            return _checked(a + b, name)
        case "-":
            return _checked(a - b, name)
        case "*":
            return _checked(a * b, name)
        case "/" | "%":
            if b == 0:
                raise Undefined("division by zero")
            rest = abs(a) % abs(b) * (-1 if a < 0 else 1)  # the remainder has the dividend's sign
            ratio = _checked((a - rest) // b, name)
            return ratio if op == "/" else rest
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
    raise ValueError(op)


def _float(op: str, a: float, b: float) -> float:
    if op == "/" and b == 0.0:
        return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return float(converted({"+": a + b, "-": a - b, "*": a * b}[op] if op != "/" else a / b, "f32"))

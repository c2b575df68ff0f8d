"""A parser of the C++ that the expression printer writes: for the round trip in the tests, and for nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var
from kernwright.generator.ir.types import ALL_DTYPES, DType, f32, f64, i32, i64, u32, u64

TOKEN = re.compile(
    r"\s*(\d+\.\d*(?:e[+-]?\d+)?f?|\d+e[+-]?\d+f?|\d+(?:ull|ll|u)?|[A-Za-z_]\w*|<<|>>|<=|>=|==|!=|&&|\|\||.)"
)
TYPES = {dtype.cpp: dtype for dtype in ALL_DTYPES}
BINDING = [
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
]


class Parser:
    """Recursive descent over the grammar of C++ expressions."""

    def __init__(self, text: str, names: Mapping[str, Expr]) -> None:
        self.tokens, self.place, self.names = TOKEN.findall(text.strip()), 0, names

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.place + ahead] if self.place + ahead < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        assert wanted is None or token == wanted, f"expected {wanted!r}, found {token!r} in {self.tokens}"
        self.place += 1
        return token

    def whole(self) -> Expr:
        found = self.conditional()
        assert self.place == len(self.tokens), f"text left over: {self.tokens[self.place :]}"
        return found

    def conditional(self) -> Expr:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take("?")
        then = self.conditional()
        self.take(":")
        return Select(condition, then, self.conditional())

    def binary(self, level: int) -> Expr:
        if level == len(BINDING):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in BINDING[level]:
            op = self.take()
            left = Binary(op, left, self.binary(level + 1))
        return left

    def unary(self) -> Expr:
        token = self.peek()
        if token in ("-", "~", "!"):
            self.take()
            return Unary(token, self.unary())
        if token == "(" and (dtype := self._cast_type()) is not None:
            return Cast(dtype, self.unary())
        return self.primary()

    def _cast_type(self) -> DType | None:
        """The type, when a parenthesised type name stands here; it is consumed then."""
        ahead, words = 1, []
        while re.fullmatch(r"[A-Za-z_]\w*", self.peek(ahead)):
            words.append(self.peek(ahead))
            ahead += 1
        dtype = TYPES.get(" ".join(words))
        if dtype is None or self.peek(ahead) != ")":
            return None
        self.place += ahead + 1
        return dtype

    def primary(self) -> Expr:
        token = self.take()
        if token == "(":
            inner = self.conditional()
            self.take(")")
            return inner
        if token[0].isdigit():
            return _number(token)
        if token in ("true", "false"):
            return Const(int(token == "true"), TYPES["bool"])
        if token in ("INFINITY", "NAN"):
            return Const(math.inf if token == "INFINITY" else math.nan, f32)
        known = self.names[token]
        if isinstance(known, Call):
            self.take("(")
            args = [self.conditional()]
            while self.peek() == ",":
                self.take()
                args.append(self.conditional())
            self.take(")")
            return Call(known.function, tuple(args), known.dtype)
        if isinstance(known, Element):
            self.take("[")
            index = self.conditional()
            self.take("]")
            return Element(known.array, index, known.dtype)
        return known


def _number(token: str) -> Const:
    if re.search(r"[.e]", token):
        return Const(float(token.rstrip("f")), f32 if token.endswith("f") else f64)
    digits = token.rstrip("ul")
    dtype = {"": i32, "u": u32, "ll": i64, "ull": u64}[token[len(digits) :]]
    return Const(int(digits), dtype)


def parse(text: str, names: Mapping[str, Expr]) -> Expr:
    """The tree of `text`; `names` gives the node of every name (a Call or Element stands for its function or array)."""
    return Parser(text, names).whole()


def normal(expr: Expr) -> Expr:
    """One tree for all trees with one text: signed literals as Unary, narrow ones as casts, no cast without effect."""
    match expr:
        case Const(value, dtype, None) if dtype.is_integer and value == dtype.low and value < 0 and dtype.bits >= 32:
            return Binary("-", normal(Const(value + 1, dtype)), Const(1, i32))
        case Const(value, dtype, None) if dtype.is_integer and 1 < dtype.bits < 32:
            return Cast(dtype, normal(Const(value, i32)))
        case Const(value, dtype, None) if dtype.bits > 1 and math.copysign(1.0, value) < 0:
            return Unary("-", Const(-value, dtype))
        case Const() | Var():
            return expr
        case Cast(dtype, operand):
            return normal(operand) if operand.dtype == dtype else Cast(dtype, normal(operand))
        case Unary(op, operand):
            return Unary(op, normal(operand))
        case Binary(op, left, right):
            return Binary(op, normal(left), normal(right))
        case Select(condition, then, otherwise):
            return Select(normal(condition), normal(then), normal(otherwise))
        case Call(function, args, dtype):
            return Call(function, tuple(normal(arg) for arg in args), dtype)
        case Element(array, index, dtype):
            return Element(array, normal(index), dtype)

"""The rules of the simplifier, as data: what matches, what replaces it, and what must be proved first.

`x` and `y` and `k` stand for integer expressions, `c` for constants (`c1` and `c2` merge, so they have no name), T for
the type in which C++ computes. Conditions are proved by range over unbounded integers. A rule deletes nodes or merges
two constants where the last one stood; none sorts, distributes or moves a term, and none computes with floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Select, Unary
from kernwright.generator.ir.types import boolean, i32
from kernwright.generator.passes.patterns import (
    ANY_TYPE,
    BITS,
    OTHER_TYPE,
    Anything,
    Literal,
    Opaque,
    Value,
    constant,
    fits,
    integer_type,
    keeps,
    same_type,
    truncates,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` becomes `replacement` where all `conditions` are proved. `name` is unique and stands in reports."""

    name: str
    pattern: Expr
    replacement: Expr
    conditions: tuple[Expr, ...] = ()


X, Y, K = Anything("x", i32), Anything("y", i32), Anything("k", i32)
ANY, THEN, OTHERWISE = Opaque("a", i32), Opaque("a", i32), Opaque("b", i32)
C, M = Value("c", i32), Value("m", i32)
C1, C2 = Literal("c1", i32), Literal("c2", i32)
ZERO, ONE = Const(0, i32), Const(1, i32)
FALSE, TRUE = Const(0, boolean), Const(1, boolean)


def _add(left: Expr, right: Expr) -> Binary:
    return Binary("+", left, right)


def _sub(left: Expr, right: Expr) -> Binary:
    return Binary("-", left, right)


def _mul(left: Expr, right: Expr) -> Binary:
    return Binary("*", left, right)


def _div(left: Expr, right: Expr) -> Binary:
    return Binary("/", left, right)


def _rem(left: Expr, right: Expr) -> Binary:
    return Binary("%", left, right)


def _is(left: Expr, op: str, right: Expr) -> Binary:
    return Binary(op, left, right)


IDENTITIES = (
    Rule("add-zero", _add(X, ZERO), X),
    Rule("zero-add", _add(ZERO, X), X),
    Rule("subtract-zero", _sub(X, ZERO), X),
    Rule("multiply-one", _mul(X, ONE), X),
    Rule("one-multiply", _mul(ONE, X), X),
    Rule("divide-one", _div(X, ONE), X),
    Rule("multiply-zero", _mul(X, ZERO), ZERO),
    Rule("zero-multiply", _mul(ZERO, X), ZERO),
    Rule("remainder-one", _rem(X, ONE), ZERO),
    Rule("zero-divide", _div(ZERO, X), ZERO, (_is(X, "!=", ZERO),)),
    Rule("zero-remainder", _rem(ZERO, X), ZERO, (_is(X, "!=", ZERO),)),
    Rule("negate-twice", Unary("-", Unary("-", X)), X),
    Rule("complement-twice", Unary("~", Unary("~", X)), X),
    Rule("not-twice", Unary("!", Unary("!", X)), X),
)

_IN_WIDTH = (_is(C1, ">=", ZERO), _is(C2, ">=", ZERO), _is(C2, "<", BITS))
FOLDS = (
    *(Rule(f"fold {op}", Binary(op, C1, C2), constant(Binary(op, C1, C2))) for op in ("+", "-", "*")),
    *(
        Rule(f"fold {op}", Binary(op, C1, C2), constant(Binary(op, C1, C2)), (_is(C2, "!=", ZERO), fits(_div(C1, C2))))
        for op in "/%"
    ),
    *(Rule(f"fold {op}", Binary(op, C1, C2), constant(Binary(op, C1, C2)), _IN_WIDTH) for op in ("<<", ">>")),
    *(Rule(f"fold unary {op}", Unary(op, C1), constant(Unary(op, C1))) for op in "-~"),
    Rule("fold cast", Cast(ANY_TYPE, C1), constant(C1), (keeps(Cast(ANY_TYPE, C1)),)),
)


def _shifted(name: str, pattern: Expr, plus: Expr) -> Iterator[Rule]:
    """`x + plus`, or `x - (-plus)` where that is the positive constant."""
    yield Rule(name, pattern, _add(X, constant(plus)), (_is(plus, ">=", ZERO),))
    minus = _sub(plus.right, plus.left) if isinstance(plus, Binary) and plus.op == "-" else Unary("-", plus)
    yield Rule(f"{name}, below zero", pattern, _sub(X, constant(minus)), (_is(plus, "<", ZERO),))


CHAINS = (
    *_shifted("add-add", _add(_add(X, C1), C2), _add(C1, C2)),
    *_shifted("add-subtract", _sub(_add(X, C1), C2), _sub(C1, C2)),
    *_shifted("subtract-add", _add(_sub(X, C1), C2), _sub(C2, C1)),
    *_shifted("constant-first add-add", _add(_add(C1, X), C2), _add(C1, C2)),
    *_shifted("constant-first add-subtract", _sub(_add(C1, X), C2), _sub(C1, C2)),
    *_shifted("add inner add", _add(C1, _add(X, C2)), _add(C1, C2)),
    *_shifted("add inner subtract", _add(C1, _sub(X, C2)), _sub(C1, C2)),
    Rule("subtract-subtract", _sub(_sub(X, C1), C2), _sub(X, constant(_add(C1, C2)))),
    Rule("add inner constant-first add", _add(C1, _add(C2, X)), _add(constant(_add(C1, C2)), X)),
    Rule("multiply-multiply", _mul(_mul(X, C1), C2), _mul(X, constant(_mul(C1, C2)))),
    Rule("constant-first multiply-multiply", _mul(_mul(C1, X), C2), _mul(X, constant(_mul(C1, C2)))),
    Rule("multiply inner multiply", _mul(C1, _mul(X, C2)), _mul(X, constant(_mul(C1, C2)))),
    Rule("multiply inner constant-first", _mul(C1, _mul(C2, X)), _mul(constant(_mul(C1, C2)), X)),
)


def _split(name: str, product: Expr) -> Iterator[Rule]:
    """Quotient and remainder of one division, put together again. Exact under truncation for every x."""
    rest, nonzero = _rem(X, C), (_is(C, "!=", ZERO),)
    yield Rule(f"{name} + rest", _add(product, rest), X, nonzero)
    yield Rule(f"rest + {name}", _add(rest, product), X, nonzero)
    yield Rule(f"y + {name} + rest", _add(_add(Y, product), rest), _add(Y, X), nonzero)
    yield Rule(f"y + rest + {name}", _add(_add(Y, rest), product), _add(Y, X), nonzero)


def _scaled(name: str, times: Expr, smaller: Expr) -> Iterator[Rule]:
    """Quotient and remainder of a product; `times` is x * c1 in one of its two orders, `smaller` is x * (c1 / c2)."""
    same = _mul(X, C) if times == _mul(X, C1) else _mul(C, X)
    named = _mul(X, M) if times == _mul(X, C1) else _mul(M, X)
    yield Rule(f"{name}, divide same", _div(same, C), X, (_is(C, "!=", ZERO), fits(_mul(X, C))))
    less = (_is(C2, ">", ZERO), _is(_rem(C1, C2), "==", ZERO), fits(_mul(X, C1)))
    yield Rule(f"{name}, divide by a factor", _div(times, C2), smaller, less)
    more = (_is(C1, ">", ZERO), _is(C2, ">", ZERO), _is(_rem(C2, C1), "==", ZERO), fits(_mul(X, C1)))
    yield Rule(f"{name}, divide by a multiple", _div(times, C2), _div(X, constant(_div(C2, C1))), more)
    none = (_is(C, "!=", ZERO), _is(_rem(M, C), "==", ZERO), fits(_mul(X, M)))
    yield Rule(f"{name}, remainder", _rem(named, C), ZERO, none)


def _tiled(name: str, same: Expr, named: Expr, times: Expr, smaller: Expr) -> Iterator[Rule]:
    """A tile's start plus a place in it, in one of four orders.

    `same` is k * c + y, `named` is k * m + y, `times` is k * c1 + y, and `smaller` is k * (c1 / c2).
    """
    start = (_is(K, ">=", ZERO), _is(Y, ">=", ZERO))
    inside = (*start, _is(Y, "<", C), fits(_add(_mul(K, C), Y)))
    yield Rule(f"{name}, divide", _div(same, C), K, inside)
    whole = (_is(C, ">", ZERO), _is(M, ">", ZERO), _is(_rem(M, C), "==", ZERO), fits(_add(_mul(K, M), Y)))
    yield Rule(f"{name}, remainder", _rem(named, C), _rem(Y, C), (*start, *whole))
    parts = (*start, _is(Y, "<", C2), _is(C1, ">", ZERO), _is(_rem(C1, C2), "==", ZERO), fits(_add(_mul(K, C1), Y)))
    yield Rule(f"{name}, divide by a factor", _div(times, C2), smaller, parts)


_PART, _PART_LEFT = _mul(K, constant(_div(C1, C2))), _mul(constant(_div(C1, C2)), K)
DIVISIONS = (
    *_split("x / c * c", _mul(_div(X, C), C)),
    *_split("c * (x / c)", _mul(C, _div(X, C))),
    Rule(
        "divide-divide",
        _div(_div(X, C1), C2),
        _div(X, constant(_mul(C1, C2))),
        (_is(C1, ">", ZERO), _is(C2, ">", ZERO), fits(_mul(C1, C2))),
    ),
    Rule(
        "remainder-remainder",
        _rem(_rem(X, M), C),
        _rem(X, C),
        (_is(M, ">", ZERO), _is(C, ">", ZERO), _is(_rem(M, C), "==", ZERO)),
    ),
    *_scaled("x * c", _mul(X, C1), _mul(X, constant(_div(C1, C2)))),
    *_scaled("c * x", _mul(C1, X), _mul(constant(_div(C1, C2)), X)),
    *_tiled("k * c + y", _add(_mul(K, C), Y), _add(_mul(K, M), Y), _add(_mul(K, C1), Y), _PART),
    *_tiled("c * k + y", _add(_mul(C, K), Y), _add(_mul(M, K), Y), _add(_mul(C1, K), Y), _PART_LEFT),
    *_tiled("y + k * c", _add(Y, _mul(K, C)), _add(Y, _mul(K, M)), _add(Y, _mul(K, C1)), _PART),
    *_tiled("y + c * k", _add(Y, _mul(C, K)), _add(Y, _mul(M, K)), _add(Y, _mul(C1, K)), _PART_LEFT),
    Rule("small divide", _div(X, Y), ZERO, (_is(X, "<", Y), _is(X, ">", Unary("-", Y)))),
    Rule("small remainder", _rem(X, Y), X, (_is(X, "<", Y), _is(X, ">", Unary("-", Y)))),
)

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_SET, _CLEAR = (_is(X, "!=", ZERO),), (_is(X, "==", ZERO),)
_Y_SET, _Y_CLEAR = (_is(Y, "!=", ZERO),), (_is(Y, "==", ZERO),)
DECISIONS = (
    *(Rule(f"always {op}", _is(X, op, Y), TRUE, (_is(X, op, Y),)) for op in _OPPOSITE),
    *(Rule(f"never {op}", _is(X, op, Y), FALSE, (_is(X, opposite, Y),)) for op, opposite in _OPPOSITE.items()),
    Rule("true && y", Binary("&&", X, Y), Y, _SET),
    Rule("x && true", Binary("&&", X, Y), X, _Y_SET),
    Rule("false && y", Binary("&&", X, Y), FALSE, _CLEAR),
    Rule("x && false", Binary("&&", X, Y), FALSE, _Y_CLEAR),
    Rule("false || y", Binary("||", X, Y), Y, _CLEAR),
    Rule("x || false", Binary("||", X, Y), X, _Y_CLEAR),
    Rule("true || y", Binary("||", X, Y), TRUE, _SET),
    Rule("x || true", Binary("||", X, Y), TRUE, _Y_SET),
    Rule("not true", Unary("!", X), FALSE, _SET),
    Rule("not false", Unary("!", X), TRUE, _CLEAR),
    Rule("select then", Select(X, THEN, OTHERWISE), THEN, _SET),
    Rule("select otherwise", Select(X, THEN, OTHERWISE), OTHERWISE, _CLEAR),
)

_INNER = Cast(OTHER_TYPE, X)
CASTS = (
    Rule("cast to the same type", Cast(ANY_TYPE, ANY), ANY, (same_type(Cast(ANY_TYPE, ANY)),)),
    Rule(
        "cast after a lossless cast",
        Cast(ANY_TYPE, _INNER),
        Cast(ANY_TYPE, X),
        (keeps(_INNER), integer_type(Cast(ANY_TYPE, X))),
    ),
    Rule("cast after a wider cast", Cast(ANY_TYPE, _INNER), Cast(ANY_TYPE, X), (truncates(Cast(ANY_TYPE, X), _INNER),)),
)

RULES: tuple[Rule, ...] = (*IDENTITIES, *FOLDS, *CASTS, *DECISIONS, *CHAINS, *DIVISIONS)
"""Every rule, in the order in which they are tried at a node."""

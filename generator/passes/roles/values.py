"""Register tiles by element: what the names of a role's values are made of, and an expression at one place of a tile.

A tile is worked on in pairs of neighbouring columns, which is how MMA fragments hold them: `at` says which pair of the thread's
elements, and `half` which of the two. Values that one operation uses are computed where they are used; others have an array.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kernwright.generator.ir.expr import Binary, Call, Const, Element, Expr, Var, children, integer, rebuild
from kernwright.generator.ir.layout import MMA_ROWS
from kernwright.generator.ir.names import COLUMN, ROW
from kernwright.generator.ir.types import f32, i32, u32
from kernwright.generator.passes.roles.context import plus, times
from kernwright.generator.passes.simplify import simplify


class Kind(Enum):
    """How a value lies in a thread's registers."""

    FLOATS = "a float an element"
    PAIRS = "two BF16 a register"
    ROWS = "a float a row"
    COLUMNS = "a float a column"
    LANES = "a vector spread over the lanes of one warp"
    FORMULA = "computed where it is used"


@dataclass(frozen=True, slots=True)
class Held:
    """A named value: its array, or its formula. A value that is another name of an accumulator ends when that one changes: at
    another `version` of it."""

    kind: Kind
    array: str = ""
    formula: Expr | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class At:
    """A pair of a thread's elements of a tile: number `pair` of fragment `fragment`, one of its halves."""

    pair: Expr
    half: int
    fragment: Var | None = None


@dataclass
class Values:
    """Named values of a role, by name."""

    held: dict[str, Held] = field(default_factory=dict)

    def element(self, expr: Expr, at: At) -> Expr:
        """`expr` at one element, simplified by nobody yet."""
        match expr:
            case Var(name=name, dtype=dtype) if name == ROW and dtype == i32:
                start = expr if at.fragment is None else plus(expr, times(integer(MMA_ROWS), at.fragment))
                return plus(start, times(integer(8), row_of(at.pair)))
            case Var(name=name, dtype=dtype) if name == COLUMN and dtype == i32:
                return plus(plus(expr, times(integer(8), block_of(at.pair))), integer(at.half))
            case Var(name=name) if name in self.held:
                return self._held(self.held[name], at)
        return rebuild(expr, tuple(self.element(child, at) for child in children(expr)))

    def _held(self, held: Held, at: At) -> Expr:
        array = held.array if at.fragment is None else f"{held.array}[{at.fragment.name}]"
        match held.kind:
            case Kind.FORMULA:
                assert held.formula is not None
                return self.element(held.formula, at)
            case Kind.FLOATS:
                return Element(array, index(plus(times(integer(2), at.pair), integer(at.half))), f32)
            case Kind.PAIRS:
                half = "bf16_high" if at.half else "bf16_low"
                return Call(half, (Element(array, at.pair, u32),), f32)
            case Kind.LANES:
                return Element(held.array, at.pair, f32)
            case Kind.ROWS:
                row = row_of(at.pair)
                if at.fragment is not None:
                    row = plus(times(integer(2), at.fragment), row)
                return Element(held.array, index(row), f32)
            case Kind.COLUMNS:
                return Element(held.array, index(plus(times(integer(2), block_of(at.pair)), integer(at.half))), f32)


def row_of(pair: Expr) -> Expr:
    """Which of a thread's two rows of a fragment a pair is in: rows lie 8 apart."""
    return index(Binary("%", pair, integer(2)))


def block_of(pair: Expr) -> Expr:
    """Which 8 columns of the fragment a pair is in."""
    return index(Binary("/", pair, integer(2)))


def index(expr: Expr) -> Expr:
    """A place in an array, simplified; `2 * (4 * slice + 1)` becomes `8 * slice + 2`, for places are small."""
    smaller = simplify(expr).expr
    form = _linear(smaller)
    if form is None:
        return smaller
    var, factor, rest = form
    if var is None:
        return integer(rest)
    return plus(times(integer(factor), var), integer(rest))


def _linear(expr: Expr) -> tuple[Var | None, int, int] | None:
    """`factor * var + rest` of an expression in one variable, None for anything else."""
    match expr:
        case Const(value=int(value), name=None) if expr.dtype == i32:
            return None, 0, value
        case Var(dtype=dtype) if dtype == i32:
            return expr, 1, 0
        case Binary("+" | "*" as op, left, right):
            one, other = _linear(left), _linear(right)
            if one is None or other is None:
                return None
            if op == "+":
                if one[0] is not None and other[0] is not None and one[0] != other[0]:
                    return None
                return one[0] or other[0], one[1] + other[1], one[2] + other[2]
            if one[0] is not None and other[0] is not None:
                return None
            (var, factor, rest), scale = (one, other[2]) if one[0] is not None else (other, one[2])
            return var, factor * scale, rest * scale
        case _:
            return None

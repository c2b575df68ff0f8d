"""Trees for the tests of index arithmetic: strategies, variables, and inputs at and near the ends of their ranges."""

from __future__ import annotations

from hypothesis import strategies as st

from kernwright.generator.ir.expr import BINARY_OPERATORS, Binary, Cast, Const, Expr, Select, Unary, Var
from kernwright.generator.ir.types import DType, boolean, i8, i16, i32, i64, u8, u16, u32, u64

INTEGER_DTYPES = (boolean, i8, i16, i32, i64, u8, u16, u32, u64)
COMMON_DTYPES = (i32, i32, i32, u32, i64, i16, boolean)
VARIABLES = (
    Var("lane", i32, 0, 31),
    Var("row", i32, 0, 1_000_000),
    Var("delta", i32, -40, 40),
    Var("any_int", i32),
    Var("tile", u32, 0, 63),
    Var("any_unsigned", u32),
    Var("offset", i64, 0, 2**40),
    Var("any_wide", i64),
    Var("any_short", i16),
    Var("flag", boolean),
)
BY_NAME = {variable.name: variable for variable in VARIABLES}
OPERATORS = (*"+-*/%+-*/%/%", "<<", ">>", "&", "|", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "||")
FAVOURITES = (0, 0, 1, 1, 2, 3, 4, 7, 8, 8, 16, 32, 64, -1, -2, -3, -8)
assert set(OPERATORS) == set(BINARY_OPERATORS)


def ends(dtype: DType) -> tuple[int, ...]:
    """Values of a type where things go wrong."""
    return tuple(
        sorted(
            {v for v in (dtype.low, dtype.low + 1, dtype.high - 1, dtype.high, 0, 1) if dtype.low <= v <= dtype.high}
        )
    )


@st.composite
def constants(draw: st.DrawFn) -> Const:
    dtype = draw(st.sampled_from(COMMON_DTYPES))
    usual = [value for value in FAVOURITES if dtype.low <= value <= dtype.high]
    value = draw(st.sampled_from(usual) if draw(st.integers(0, 9)) else st.sampled_from(ends(dtype)))
    name = f"k{value}_{dtype}".replace("-", "minus") if draw(st.integers(0, 7)) == 0 else None
    return Const(value, dtype, name)


@st.composite
def trees(draw: st.DrawFn, depth: int = 6) -> Expr:
    """An integer expression of at most this depth; a shared subtree is frequent, so that `x / c * c + x % c` occurs."""
    shape = draw(st.integers(0, 11)) if depth > 0 else 0
    if shape <= 1:
        return draw(st.sampled_from(VARIABLES))
    if shape == 2:
        return draw(constants())
    if shape == 3:
        return Unary(draw(st.sampled_from("-~!")), draw(trees(depth=depth - 1)))
    if shape == 4:
        return Cast(draw(st.sampled_from(COMMON_DTYPES)), draw(trees(depth=depth - 1)))
    if shape == 5:
        return Select(*(draw(trees(depth=depth - 1)) for _ in range(3)))
    if shape <= 7:
        return draw(divisions(depth))
    return Binary(draw(st.sampled_from(OPERATORS)), draw(trees(depth=depth - 1)), draw(trees(depth=depth - 1)))


@st.composite
def divisions(draw: st.DrawFn, depth: int) -> Expr:
    """The shapes that index arithmetic is made of, over random parts."""
    x, y = draw(trees(depth=max(0, depth - 3))), draw(trees(depth=max(0, depth - 3)))
    c, d = draw(constants()), draw(constants())
    op, op_too = draw(st.sampled_from("/%")), draw(st.sampled_from("+-*/%"))
    product = Binary("*", x, c) if draw(st.booleans()) else Binary("*", c, x)
    ratio = Binary("/", x, c)
    again = Binary("*", ratio, c) if draw(st.booleans()) else Binary("*", c, ratio)
    match draw(st.integers(0, 6)):
        case 0:
            return Binary("+", again, Binary("%", x, c))
        case 1:
            return Binary("+", Binary("%", x, c), again)
        case 2:
            return Binary(op, product, d)
        case 3:
            return Binary(op, Binary("+", product, Binary("%", y, c)), c)
        case 4:
            return Binary(op, Binary("+", Binary("%", y, c), product), c)
        case 5:
            return Binary(op_too, Binary(draw(st.sampled_from("+-*/%")), x, c), d)
        case _:
            return Binary(op_too, c, Binary(draw(st.sampled_from("+-*")), d, x))


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, int]:
    """A value for each variable, inside its declared range and often at an end of it."""
    return {v.name: draw(values_of(v)) for v in VARIABLES}


def values_of(variable: Var) -> st.SearchStrategy[int]:
    low = variable.dtype.low if variable.low is None else variable.low
    high = variable.dtype.high if variable.high is None else variable.high
    marks = [value for value in (low, low + 1, -9, -8, -1, 0, 1, 7, 8, 9, high - 1, high) if low <= value <= high]
    return st.sampled_from(marks) | st.integers(low, high)

"""Trees for the tests of index arithmetic: strategies, variables, and inputs at and near the ends of their ranges."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from support.rule_instances import substitute, wildcards

from kernwright.generator.ir.expr import BINARY_OPERATORS, Binary, Cast, Const, Expr, Select, Unary, Var
from kernwright.generator.ir.types import DType, boolean, i8, i16, i32, i64, u8, u16, u32, u64
from kernwright.generator.passes.patterns import ANY_TYPE, OTHER_TYPE, Value
from kernwright.generator.passes.rules import RULES, Rule
from kernwright.generator.passes.simplify import simplify

T = TypeVar("T")

INTEGER_DTYPES = (boolean, i8, i16, i32, i64, u8, u16, u32, u64)
COMMON_DTYPES = (i32, i32, i32, u32, i64, i16, boolean)
VARIABLES = (
    Var("lane", i32, 0, 31),
    Var("warp", i32, 0, 3),
    Var("pair", i32, 0, 1),
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
PARTS = (*VARIABLES, *VARIABLES[:3], *VARIABLES[:3], *[Const(0, i32)] * 3, Const(1, u32))
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


class Choose(Protocol):
    """Picks one of several options: hypothesis, which shrinks, or a seeded random generator, which spreads better."""

    def __call__(self, options: Sequence[T], /) -> T: ...


def constant(choose: Choose) -> Const:
    dtype = choose(COMMON_DTYPES)
    usual = [value for value in FAVOURITES if dtype.low <= value <= dtype.high]
    value = choose(usual if choose(range(10)) else ends(dtype))
    name = f"k{value}_{dtype}".replace("-", "minus") if choose(range(8)) == 0 else None
    return Const(value, dtype, name)


def tree(choose: Choose, depth: int) -> Expr:
    """An integer expression of at most this depth. Parts are shared often, so that `x / c * c + x % c` occurs."""
    shape = choose(range(12)) if depth > 0 else 0
    if shape <= 1:
        return choose(VARIABLES)
    if shape == 2:
        return constant(choose)
    if shape == 3:
        return Unary(choose("-~!"), tree(choose, depth - 1))
    if shape == 4:
        return Cast(choose(COMMON_DTYPES), tree(choose, depth - 1))
    if shape == 5:
        return Select(tree(choose, depth - 1), tree(choose, depth - 1), tree(choose, depth - 1))
    if shape <= 8:
        return division(choose, depth) if shape == 6 else shaped(choose, choose(RULES), depth)
    return Binary(choose(OPERATORS), tree(choose, depth - 1), tree(choose, depth - 1))


def shaped(choose: Choose, rule: Rule, depth: int) -> Expr:
    """The pattern of a rule over random parts of random types; one type for the constants is frequent."""
    values: dict[str, Expr] = {}
    kind, base = choose(COMMON_DTYPES), choose(FAVOURITES)
    for part in wildcards(rule.pattern):
        if isinstance(part, Value):
            values[part.name] = constant(choose)
            if choose((True, True, False)):
                near = [v for v in (0, base, base, base, 2 * base, 4 * base) if kind.low <= v <= kind.high]
                values[part.name] = Const(choose(near), kind)
        else:
            values[part.name] = tree(choose, max(0, depth - 3)) if choose((True, False)) else choose(PARTS)
    types = {name: choose(COMMON_DTYPES) for name in (ANY_TYPE.name, OTHER_TYPE.name)}
    return substitute(rule.pattern, values, types, choose(COMMON_DTYPES))


def division(choose: Choose, depth: int) -> Expr:
    """A place in a tile, split and put together: constants that are equal, or nearly."""
    x, y, c = tree(choose, max(0, depth - 3)), tree(choose, max(0, depth - 3)), constant(choose)
    product = Binary("*", x, c) if choose((True, False)) else Binary("*", c, x)
    place = Binary("%", y, c)
    total = Binary("+", product, place) if choose((True, False)) else Binary("+", place, product)
    return Binary(choose("/%"), total, c if choose(range(4)) else constant(choose))


@st.composite
def trees(draw: st.DrawFn, depth: int = 6) -> Expr:
    """Random trees that hypothesis can shrink."""
    return tree(lambda options: draw(st.sampled_from(options)), depth)


def rule_trees(pick: random.Random, each: int) -> Iterator[Expr]:
    """For every rule this many trees to which it applies: its pattern over random parts, often inside a larger tree."""
    for rule in RULES:
        found = 0
        for _ in range(20_000):
            inner = shaped(pick.choice, rule, depth=4)
            if not simplify(inner, rules=(rule,)).applied:
                continue
            found += 1
            outer = Binary(pick.choice(OPERATORS), inner, pick.choice(VARIABLES))
            yield pick.choice((inner, outer, Select(pick.choice(VARIABLES), inner, pick.choice(VARIABLES))))
            if found == each:
                break
        assert found == each, f"{rule.name}: only {found} trees"


def random_inputs(pick: random.Random) -> dict[str, int]:
    """A value for each variable, as `inputs` gives, from a seeded generator."""
    return {v.name: pick.choice([*marks(v), pick.randint(*limits(v))]) for v in VARIABLES}


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, int]:
    """A value for each variable, inside its declared range and often at an end of it."""
    return {v.name: draw(values_of(v)) for v in VARIABLES}


def limits(variable: Var) -> tuple[int, int]:
    dtype = variable.dtype
    return (
        dtype.low if variable.low is None else variable.low,
        dtype.high if variable.high is None else variable.high,
    )


def marks(variable: Var) -> list[int]:
    """Values at which index arithmetic changes its course."""
    low, high = limits(variable)
    return [value for value in (low, low + 1, -9, -8, -1, 0, 1, 7, 8, 9, high - 1, high) if low <= value <= high]


def values_of(variable: Var) -> st.SearchStrategy[int]:
    return st.sampled_from(marks(variable)) | st.integers(*limits(variable))

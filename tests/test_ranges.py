"""Ranges of integer expressions: sound for every defined input, tight where arithmetic allows, and choice of widths."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.c_semantics import INTEGERS, Undefined, converted, evaluate, type_of
from support.expression_trees import inputs, trees

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.evaluate import quotient, remainder
from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var
from kernwright.generator.ir.types import ALL_DTYPES, boolean, f32, i8, i16, i32, i64, u8, u32, u64
from kernwright.generator.passes.ranges import (
    Range,
    compare,
    convert,
    exact,
    fits,
    full,
    must_widen,
    range_of,
    width_proof,
    wrap,
)
from kernwright.generator.passes.widen import widen

LANE, WARP, ROW = Var("lane", i32, 0, 31), Var("warp", i32, 0, 3), Var("row", i32, 0, 16_777_247)
X, U, DELTA = Var("x", i32), Var("u", u32), Var("delta", i32, -5, 5)


def op(left: Expr, sign: str, right: Expr | int) -> Binary:
    return Binary(sign, left, Const(right, i32) if isinstance(right, int) else right)


@pytest.mark.parametrize(
    ("tree", "low", "high"),
    [
        (op(op(WARP, "*", 32), "+", LANE), 0, 127),
        (op(LANE, "/", 8), 0, 3),
        (op(LANE, "%", 8), 0, 7),
        (op(DELTA, "/", 2), -2, 2),
        (op(DELTA, "%", 3), -2, 2),
        (op(op(LANE, "%", 4), "+", 8), 8, 11),
        (op(op(op(LANE, "%", 4), "+", 8), "%", 8), 0, 3),
        (op(X, "%", 8), -7, 7),
        (op(U, "%", Const(8, u32)), 0, 7),
        (op(X, "/", 2), -(2**30), 2**30 - 1),
        (op(X, "+", 1), -(2**31), 2**31 - 1),
        (op(X, "/", -1), -(2**31), 2**31 - 1),
        (op(U, "+", 1), 0, 2**32 - 1),
        (op(DELTA, "+", Const(0, u32)), 0, 2**32 - 1),
        (op(op(LANE, "+", 1), "*", Const(2**31, u32)), 0, 2**32 - 1),
        (op(LANE, "<<", 3), 0, 248),
        (op(LANE, "<<", 28), -(2**31), 2**31 - 1),
        (op(DELTA, "<<", 1), -(2**31), 2**31 - 1),
        (op(LANE, ">>", 3), 0, 3),
        (op(DELTA, ">>", 1), -3, 2),
        (op(X, "&", 7), 0, 7),
        (op(LANE, "|", 32), 32, 63),
        (op(LANE, "^", 5), 0, 31),
        (op(LANE, "<", 32), 1, 1),
        (op(LANE, ">=", 32), 0, 0),
        (op(LANE, "<", 31), 0, 1),
        (op(op(LANE, "<", 32), "&&", op(WARP, "<", 4)), 1, 1),
        (op(op(X, "<", 32), "||", op(WARP, "<", 4)), 1, 1),
        (op(op(X, "<", 32), "&&", op(WARP, "<", 3)), 0, 1),
        (Unary("-", LANE), -31, 0),
        (Unary("-", X), -(2**31), 2**31 - 1),
        (Unary("~", LANE), -32, -1),
        (Unary("~", Var("t", u32, 0, 3)), 2**32 - 4, 2**32 - 1),
        (Unary("!", LANE), 0, 1),
        (Select(op(X, "<", 0), LANE, Const(40, i32)), 0, 40),
        (Select(op(LANE, "<", 40), LANE, Const(99, i32)), 0, 31),
        (Cast(i8, op(LANE, "+", 100)), -128, 127),
        (Cast(u8, op(LANE, "+", 256)), 0, 31),
        (Cast(boolean, op(LANE, "+", 1)), 1, 1),
        (Cast(i32, Const(2.5, f32)), -(2**31), 2**31 - 1),
        (Call("min", (LANE, Const(7, i32)), i32), 0, 7),
        (Call("max", (LANE, Const(7, i32)), i32), 7, 31),
        (Call("shuffle", (LANE,), i32), -(2**31), 2**31 - 1),
        (Element("counts", LANE, i16), -(2**15), 2**15 - 1),
    ],
    ids=lambda value: print_expression(value) if not isinstance(value, int) else "",
)
def test_range(tree: Expr, low: int, high: int) -> None:

    assert range_of(tree) == Range(low, high)


def test_facts_narrow_declarations_and_arrays() -> None:
    facts = {"x": Range(0, 9), "lane": Range(-4, 7), "counts": Range(1, 3)}
    assert range_of(op(X, "+", LANE), facts) == Range(0, 16)
    assert range_of(Element("counts", X, i32), facts) == Range(1, 3)


def test_facts_that_exclude_each_other_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="facts about lane exclude each other"):
        range_of(op(LANE, "+", 1), {"lane": Range(40, 50)})
    with pytest.raises(ValueError, match=r"empty range 3\.\.2"):
        Range(3, 2)
    with pytest.raises(TypeError, match="f32"):
        range_of(Const(1.0, f32))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(trees(), st.lists(inputs(), min_size=6, max_size=6))
def test_every_defined_value_is_in_the_range(tree: Expr, samples: list[dict[str, int]]) -> None:
    found = range_of(tree)
    bits, signed = INTEGERS[type_of(tree)]
    assert found.within(Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else Range(0, 2**bits - 1))
    for sample in samples:
        try:
            assert evaluate(tree, sample) in found
        except Undefined:
            continue


SMALL = [Range(low, high) for low in range(-4, 5) for high in range(low, 5)]
MEANING = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: int(a / b),
    "%": lambda a, b: a - b * int(a / b),
    "<<": lambda a, b: a * 2**b,
    ">>": lambda a, b: a // 2**b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("sign", MEANING)
def test_exact_ranges_on_all_small_intervals(sign: str) -> None:
    """Every value inside; for + - * / >> and << the ends are reached, for % with one divisor too."""
    for left, right in itertools.product(SMALL, repeat=2):
        pairs = itertools.product(range(left.low, left.high + 1), range(right.low, right.high + 1))
        shift = sign in ("<<", ">>")
        pairs = ((a, b) for a, b in pairs if not (sign in "/%" and b == 0) and not (shift and b < 0))
        values = [MEANING[sign](a, b) for a, b in pairs if not (sign == "<<" and a < 0)]
        found = exact(sign, left, right)
        if found is None:
            assert not values or sign in ("&", "|", "^") or (sign == "<<" and left.low < 0)
            continue
        assert values, (sign, left, right)
        assert found.low <= min(values), (sign, left, right)
        assert found.high >= max(values), (sign, left, right)
        if sign in ("+", "-", "*", "/", "<<", ">>"):
            assert found == Range(min(values), max(values)), (sign, left, right)


def test_conversions_and_comparisons_on_small_types() -> None:
    for dtype in (i8, u8, boolean):
        for low, high in itertools.combinations_with_replacement(
            (-300, -257, -129, -128, -1, 0, 1, 127, 128, 255, 256, 300), 2
        ):
            values = {int(converted(value, dtype.name)) for value in range(low, high + 1)}
            assert values == {wrap(value, dtype) for value in range(low, high + 1)}
            assert Range(min(values), max(values)).within(convert(Range(low, high), dtype))
    for left, right in itertools.product(SMALL, repeat=2):
        for sign, holds in {
            "<": int.__lt__,
            "<=": int.__le__,
            "==": int.__eq__,
            "!=": int.__ne__,
            ">": int.__gt__,
        }.items():
            answers = {
                bool(holds(a, b)) for a in range(left.low, left.high + 1) for b in range(right.low, right.high + 1)
            }
            known = compare(sign, left, right)
            assert answers == ({known} if known is not None else {True, False}), (sign, left, right)


def test_division_truncates_for_integers_of_any_size() -> None:
    assert [quotient(-7, 2), remainder(-7, 2), quotient(7, -2), remainder(7, -2)] == [-3, -1, -3, 1]
    assert quotient(-(2**80) - 1, 2**20) == -(2**60)
    assert remainder(-(2**80) - 1, 2**20) == -1


def test_full_ranges_are_the_types() -> None:
    for dtype in ALL_DTYPES:
        if dtype.is_integer:
            bits, signed = INTEGERS[dtype.name]
            assert full(dtype) == (Range(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else Range(0, 2**bits - 1))


class TestWidths:
    def test_a01_the_row_offset_of_a_large_tensor_is_64_bit_before_the_multiplication(self) -> None:
        offset = op(op(ROW, "*", Const(128, i32, "kColumns")), "+", LANE)
        assert must_widen(offset)
        wide = widen(offset)
        assert print_expression(wide) == "(long long)row * kColumns + lane"
        assert range_of(wide) == Range(0, 16_777_247 * 128 + 31)
        assert not must_widen(wide)
        assert evaluate(wide, {"row": 16_777_247, "lane": 31}) == 16_777_247 * 128 + 31

    def test_a01_one_row_less_than_the_limit_stays_32_bit(self) -> None:
        offset = op(op(Var("row", i32, 0, 2**24 - 1), "*", 128), "+", Var("column", i32, 0, 127))
        assert not must_widen(offset)
        assert widen(offset) is offset
        assert must_widen(op(offset, "+", 1))

    def test_the_proof_names_the_facts_and_the_node(self) -> None:
        proof = width_proof(op(op(ROW, "*", 128), "+", LANE))
        assert proof.leaving == op(ROW, "*", 128)
        assert proof.used == (("row", Range(0, 16_777_247)), ("lane", Range(0, 31)))
        assert str(proof) == "can leave i32: 0..2147487647 (row in 0..16777247, lane in 0..31)"
        assert str(width_proof(op(LANE, "+", 1))) == "stays in its types: 1..32 (lane in 0..31)"

    def test_a02_the_largest_value_fits_although_the_intermediate_bound_does_not(self) -> None:
        j = Var("j", i32, 0, 15)
        index = op(op(j, "-", op(Const(8, i32), "*", op(j, "/", 8))), "*", 300_000_000)
        assert range_of(index) == Range(0, 2_100_000_000)
        assert not must_widen(index)

    def test_unsigned_offsets_and_mixed_signs_are_widened_too(self) -> None:
        block = Var("block", u32, 0, 2**20)
        assert print_expression(widen(op(block, "*", Const(8192, u32)))) == "(long long)block * 8192u"
        assert print_expression(widen(op(DELTA, "+", block))) == "(long long)delta + block"
        assert print_expression(widen(Unary("-", block))) == "-(long long)block"

    def test_min_and_max_take_one_type(self) -> None:
        tree = Call("min", (op(ROW, "*", 128), X), i32)
        assert print_expression(widen(tree)) == "min((long long)row * 128, (long long)x)"
        assert widen(tree).dtype == i64

    def test_fits(self) -> None:
        assert fits(op(LANE, "*", 4), i8)
        assert not fits(op(LANE, "*", 5), i8)
        assert not fits(op(ROW, "*", 128), i64)  # the product itself is computed in int
        assert fits(op(Cast(i64, ROW), "*", 128), i64)
        assert not fits(DELTA, u64)
        assert fits(X, i32, {"x": Range(0, 1)})

    @settings(derandomize=True, max_examples=200, deadline=None)
    @given(st.data())
    def test_a_widened_offset_has_the_mathematical_value(self, data: st.DataObject) -> None:
        def offset(depth: int) -> Expr:
            if depth == 0:
                return data.draw(st.sampled_from([ROW, LANE, X, DELTA, Const(4096, i32), Const(3, i32)]))
            return op(
                offset(depth - 1), data.draw(st.sampled_from("+-*")), offset(data.draw(st.integers(0, depth - 1)))
            )

        tree = offset(data.draw(st.integers(1, 3)))
        wide = widen(tree)
        draw = {v.name: data.draw(st.sampled_from([range_of(v).low, range_of(v).high])) for v in (ROW, LANE, X, DELTA)}
        truth = mathematical(tree, draw)
        if not must_widen(wide):
            assert evaluate(wide, draw) == truth


def mathematical(tree: Expr, values: dict[str, int]) -> int:
    match tree:
        case Binary(sign, left, right):
            return MEANING[sign](mathematical(left, values), mathematical(right, values))
        case Var(name):
            return values[name]
        case Const(value):
            return int(value)
    raise TypeError(tree)

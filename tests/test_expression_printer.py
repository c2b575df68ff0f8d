"""The expression printer: minimal parentheses, literals of exactly the node's type, a round trip through a parser."""

from __future__ import annotations

import itertools
import math
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.c_expression_parser import normal, parse
from support.c_semantics import Undefined, evaluate
from support.compiled_oracle import Case, run, source_of
from support.expression_trees import BY_NAME, INTEGER_DTYPES, ends, trees
from support.expression_trees import tree as random_tree

from kernwright.generator.emit.expressions import annotate, print_expression
from kernwright.generator.ir.expr import (
    BINARY_OPERATORS,
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
from kernwright.generator.ir.types import bf16, boolean, f16, f32, f64, i16, i32, i64, u8, u32, u64

A, B, C, D, P, Q = (Var(name, i32) for name in "abcdpq")
R = Var("r", f32)


def op(left: Expr, sign: str, right: Expr) -> Binary:
    return Binary(sign, left, right)


TEXTS = [
    # the trees of case A07
    (op(Const(-3, i32), "*", op(P, "%", Q)), "-3 * (p % q)"),
    (op(Unary("-", P), "/", op(P, "%", Q)), "-p / (p % q)"),
    (op(R, "*", Cast(f32, op(P, "%", Q))), "r * (float)(p % q)"),
    (op(A, "-", op(B, "-", C)), "a - (b - c)"),
    (op(A, "/", op(B, "*", C)), "a / (b * c)"),
    (op(A, "/", op(B, "/", C)), "a / (b / c)"),
    (Unary("-", Unary("-", A)), "-(-a)"),
    (Unary("!", op(A, "<", B)), "!(a < b)"),
    (op(A, "==", op(B, "<=", C)), "a == (b <= c)"),
    (op(op(A, "&", B), "==", C), "(a & b) == c"),
    (op(A, "<<", op(B, "+", C)), "a << (b + c)"),
    (op(Select(A, B, C), "+", D), "(a ? b : c) + d"),
    (Cast(i32, op(A, "+", Cast(i64, B))), "(int)(a + (long long)b)"),
    (Unary("~", op(A, "|", B)), "~(a | b)"),
    # no parentheses where the grammar needs none and no compiler warns
    (op(op(A, "-", B), "-", C), "a - b - c"),
    (op(op(A, "/", B), "*", C), "a / b * c"),
    (op(A, "+", op(B, "*", C)), "a + b * c"),
    (op(op(A, "+", B), "<", op(C, "*", D)), "a + b < c * d"),
    (op(op(A, "<", B), "&&", op(C, "<", D)), "a < b && c < d"),
    (op(op(A, "&&", B), "&&", C), "a && b && c"),
    (Select(op(A, "<", B), C, Select(D, A, B)), "a < b ? c : d ? a : b"),
    (op(Cast(i64, A), "*", B), "(long long)a * b"),
    (Element("x", op(A, "+", B), f32), "x[a + b]"),
    (Call("min", (op(A, "+", B), C), i32), "min(a + b, c)"),
    # parentheses that a compiler or a reader asks for
    (op(op(A, "&&", B), "||", C), "(a && b) || c"),
    (op(A, "|", op(B, "&", C)), "a | (b & c)"),
    (op(A, "&", op(B, "+", C)), "a & (b + c)"),
    (op(Unary("!", A), "==", B), "(!a) == b"),
    (op(A, "-", Const(-5, i32)), "a - (-5)"),
    (op(A, "+", op(Unary("-", B), "*", C)), "a + (-b * c)"),
    (Unary("-", Const(-5, i32)), "-(-5)"),
    (Select(op(A, "+", B), C, D), "(a + b) ? c : d"),
    (Select(A, Select(B, C, D), D), "a ? (b ? c : d) : d"),
    (op(A, "*", op(B, "*", C)), "a * (b * c)"),
    # casts
    (Cast(i32, A), "a"),
    (op(Cast(i32, op(A, "+", B)), "*", C), "(a + b) * c"),
    (Cast(i64, Unary("-", A)), "(long long)-a"),
    (Unary("-", Cast(i64, Unary("-", A))), "-(long long)-a"),
    # literals
    (Const(-(2**31), i32), "(-2147483647 - 1)"),
    (Const(-(2**63), i64), "(-9223372036854775807ll - 1)"),
    (Const(2**31, u32), "2147483648u"),
    (Const(2**32 - 1, u32), "4294967295u"),
    (Const(2**63 - 1, i64), "9223372036854775807ll"),
    (Const(2**64 - 1, u64), "18446744073709551615ull"),
    (Const(1, boolean), "true"),
    (Const(200, u8), "(unsigned char)200"),
    (Const(-5, i16), "(short)-5"),
    (Const(128, i32, "kRowsPerBlock"), "kRowsPerBlock"),
    (Const(1e-6, f32), "1e-06f"),
    (Const(1.0, f32), "1.0f"),
    (Const(-0.0, f32), "-0.0f"),
    (Const(16777216.0, f32), "16777216.0f"),
    (Const(3.4028234663852886e38, f32), "3.4028235e+38f"),
    (Const(0.1, f64), "0.1"),
    (Const(math.inf, f32), "INFINITY"),
    (Const(-math.inf, f32), "-INFINITY"),
    (Const(math.nan, f32), "NAN"),
    (Const(math.inf, f64), "(double)INFINITY"),
    (Const(0.5, bf16), "(__nv_bfloat16)0.5f"),
    (Const(0.5, f16), "(__half)0.5f"),
]


@pytest.mark.parametrize(("tree", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text(tree: Expr, text: str) -> None:
    assert print_expression(tree) == text


def test_the_name_of_a_function_is_spelled_by_the_caller() -> None:
    tree = op(Call("rsqrt_approx", (Call("max", (R, R), f32),), f32), "*", R)
    assert print_expression(tree, {"rsqrt_approx": "kw_rsqrt_approx", "max": "fmaxf"}.__getitem__) == (
        "kw_rsqrt_approx(fmaxf(r, r)) * r"
    )


def test_a_float_outside_its_type_is_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match=r"1e\+39 is outside float32.*3\.4028235e\+38"):
        print_expression(Const(1e39, f32))


NAMES: dict[str, Expr] = {**BY_NAME, **{v.name: v for v in (A, B, C, D, P, Q)}}


def _names_of(tree: Expr) -> dict[str, Expr]:
    found = {tree.name: tree} if isinstance(tree, Const) and tree.name is not None else {}
    for operand in children(tree):
        found |= _names_of(operand)
    return found


@settings(derandomize=True, max_examples=200, deadline=None)
@given(trees())
def test_parse_of_print_is_the_tree(tree: Expr) -> None:
    assert parse(print_expression(tree), NAMES | _names_of(tree)) == normal(tree)


def test_a07_ten_thousand_trees_of_depth_six() -> None:
    pick = random.Random("printer")
    for _ in range(10_000):
        expr = random_tree(pick.choice, depth=6)
        assert parse(print_expression(expr), NAMES | _names_of(expr)) == normal(expr), print_expression(expr)


@pytest.mark.parametrize("outer", BINARY_OPERATORS)
def test_every_pair_of_operators_survives_on_both_sides(outer: str) -> None:
    inner = [op(A, sign, B) for sign in BINARY_OPERATORS]
    inner += [Unary(sign, A) for sign in "-~!"] + [Select(A, B, C), Cast(i64, A), Const(-7, i32), Const(-(2**31), i32)]
    for part in inner:
        trees_here = [op(part, outer, D), op(D, outer, part), op(part, outer, part)]
        trees_here += [Unary(sign, tree) for sign in "-~!" for tree in trees_here]
        trees_here += [Select(trees_here[0], part, trees_here[1]), Cast(u8, trees_here[0])]
        for tree in trees_here:
            assert parse(print_expression(tree), NAMES) == normal(tree)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.integers(0, 2**31 - 2**23 - 1))
def test_a_float_literal_reads_back_as_the_same_bits_and_is_shortest(bits: int) -> None:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    text = print_expression(Const(value, f32))
    assert struct.pack("<f", float(text.removesuffix("f"))) == struct.pack("<I", bits)
    digits = f"{float(text.removesuffix('f')):e}".split("e")[0].rstrip("0").replace(".", "")
    shorter = f"{value:.{max(len(digits) - 2, 0)}e}"
    assert len(digits) <= 1 or struct.pack("<f", float(shorter)) != struct.pack("<I", bits) or value == 0.0


def test_annotate_shows_types_and_ranges() -> None:
    lane = Var("lane", i32, 0, 31)
    tree = op(Cast(i64, op(lane, "+", Const(1, i32))), "*", Const(128, i32, "kColumns"))
    assert annotate(tree).splitlines() == [
        "*  i64 128..4096",
        "  (long long)  i64 1..32",
        "    +  i32 1..32",
        "      lane  i32 0..31",
        "      1  i32",
        "  kColumns  i32 128",
    ]
    assert annotate(op(R, "*", Const(2.0, f32))).splitlines() == ["*  f32", "  r  f32", "  2.0f  f32"]


def test_printed_texts_compile_without_warnings_and_have_type_and_value(tmp_path: Path) -> None:
    """Every pair of operators on small inputs, and every literal that is an end of its type."""
    variables = (A, B, C, D)
    cases = []
    for outer, inner in itertools.product(BINARY_OPERATORS, repeat=2):
        for tree in (op(op(A, inner, B), outer, C), op(D, outer, op(A, inner, B))):
            runs = []
            for values in ((7, 4, 3, 2), (-7, 2, 3, 9), (0, 1, 5, 1)):
                sample = dict(zip("abcd", values, strict=True))
                try:
                    runs.append((sample, int(evaluate(tree, sample))))
                except Undefined:
                    continue
            cases.append(Case(tree, tree, runs))
    literals = [Const(value, dtype) for dtype in INTEGER_DTYPES for value in {*ends(dtype), dtype.low, dtype.high}]
    literals += [Const(value, dtype) for dtype in (f32, f64) for value in (0.0, 1.0, -1e-6, 3e38, math.inf, math.nan)]
    text = source_of(cases, variables, literals)
    checks = [f"  check(-1, {print_expression(c)} == {dec(c.value)});" for c in literals if c.dtype.is_integer]
    run(text.replace("  return failures", "\n".join([*checks, "  return failures"])), tmp_path)


def dec(value: int | float) -> str:
    """An integer as a sum of unsuffixed parts that C++ reads in 128 bits."""
    number = int(value)
    high, low = divmod(abs(number), 2**32)
    return f"({'-' if number < 0 else ''}((__int128){high} * 65536 * 65536 + {low}))"

"""The conversion between sympy and nodes: exact on every input, or refused by name."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from support.c_semantics import Undefined, evaluate

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var
from kernwright.generator.ir.symbolic import SymbolicError, from_sympy, proved_range, to_sympy
from kernwright.generator.ir.types import boolean, f32, i8, i32, i64, u32
from kernwright.generator.passes.ranges import Range

n, m, d, s = sympy.symbols("n m d s", integer=True)
VARIABLES = {
    "n": Var("n", i32, 0, 2**31 - 1),
    "m": Var("m", i32, 1, 4096),
    "d": Var("d", i32, -5, 5),
    "s": Var("s", i32, 0, 100),
}


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (sympy.Integer(7), "7"),
        (sympy.Integer(2**31), "2147483648ll"),
        (n, "n"),
        (s + 1, "s + 1"),
        (n + 1, "(long long)n + 1"),
        (n * m, "(long long)m * n"),
        (s * m + s, "m * s + s"),
        (m - s, "m - s"),
        (s - m, "s - m"),
        (-s, "-s"),
        (-2 * s, "-(2 * s)"),
        (s**3, "s * s * s"),
        (sympy.floor(n / 4), "n / 4"),
        (sympy.floor(n / 4) * 4, "4 * (n / 4)"),
        (sympy.floor(s / 4 + sympy.Rational(1, 2)), "(s + 2) / 4"),
        (sympy.floor(s / m), "s / m"),
        (sympy.ceiling(s / 4), "(s + 3) / 4"),
        (sympy.ceiling(n / 128), "((long long)n + 127) / 128"),
        (sympy.ceiling(s / m), "(s + m - 1) / m"),
        (sympy.Mod(n, m), "n % m"),
        (sympy.Min(n, m, 128), "min(min(128, m), n)"),
        (sympy.Max(s, 1), "max(1, s)"),
        (sympy.Min(n + 1, m), "min((long long)m, (long long)n + 1)"),
        (sympy.Piecewise((s, s < m), (m, True)), "m > s ? s : m"),
        (
            sympy.Piecewise((s, sympy.And(s < 9, m > 3)), (m, sympy.Eq(s, 50)), (1, True)),
            "m > 3 && s < 9 ? s : s == 50 ? m : 1",
        ),
        (sympy.Or(s < 9, sympy.Ne(m, 3)), "s < 9 || m != 3"),
    ],
    ids=str,
)
def test_text_of_a_formula(formula: Any, text: str) -> None:
    assert print_expression(from_sympy(formula, VARIABLES)) == text


def test_the_result_has_the_wanted_type() -> None:
    assert from_sympy(s + 1, VARIABLES, i64).dtype == i64
    assert from_sympy(sympy.Integer(3), VARIABLES, i64) == Const(3, i64)
    assert from_sympy(s + 1, VARIABLES).dtype == i32
    assert from_sympy(n + 1, VARIABLES).dtype == i64
    assert from_sympy(n + 1, VARIABLES, facts={"n": Range(0, 99)}).dtype == i32
    assert from_sympy(s < 3, VARIABLES, i64).dtype == boolean
    with pytest.raises(SymbolicError, match="i32 or i64, not in u32"):
        from_sympy(s, VARIABLES, u32)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (s / 4, r"s/4: a fraction is no integer; write floor\(s/4\)"),
        (s / m, "a fraction is no integer"),
        (sympy.floor(d / 4), r"floor\(d/4\): d can be -5\.\.5, not proved >= 0; floor rounds down"),
        (sympy.ceiling(d / 2), r"ceiling\(d/2\): d can be -5\.\.5"),
        (sympy.floor(s / d), r"floor\(s/d\): d can be -5\.\.5, not proved >= 1; a quotient needs a positive divisor"),
        (sympy.Mod(d, 3), r"Mod\(d, 3\): d can be"),
        (sympy.Mod(s, -3), r"not proved >= 1"),
        (sympy.sqrt(s), r"sqrt\(s\): only powers with an exponent of 1 to 4"),
        (s**5, r"s\*\*5: only powers"),
        (sympy.sin(s), r"sin\(s\): sin has no exact integer meaning"),
        (sympy.Float(0.5), "Float has no exact integer meaning"),
        (sympy.floor(0.25 * s), "Float has no exact integer meaning"),
        (sympy.Rational(1, 2), "has no exact integer meaning"),
        (sympy.Symbol("q") + 1, r"q: no variable of this name \(known: d, m, n, s\)"),
        (sympy.Piecewise((s, s < m)), "the last piece needs the condition True"),
        (sympy.Integer(2**63), r"9223372036854775808 is outside i64"),
        (n * 2**40, r"can be 0\.\.2361183240335310979072, outside i64"),
        (sympy.pi, "Pi has no exact integer meaning"),
    ],
    ids=str,
)
def test_what_has_no_exact_meaning_is_refused_by_name(formula: Any, message: str) -> None:
    with pytest.raises(SymbolicError, match=message):
        from_sympy(formula, VARIABLES)


def test_a_float_variable_is_refused() -> None:
    with pytest.raises(SymbolicError, match="eps is a f32"):
        from_sympy(sympy.Symbol("eps"), {"eps": Var("eps", f32)})


def formulas(depth: int) -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([s, m, d, sympy.Integer(1), sympy.Integer(3), sympy.Integer(128)])
    if depth == 0:
        return leaves
    part = formulas(depth - 1)
    binary = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        sympy.Min,
        sympy.Max,
        lambda a, b: sympy.floor(a / (sympy.Max(b, 1))),
        lambda a, b: sympy.ceiling(sympy.Max(a, 0) / 8),
        lambda a, b: sympy.Mod(sympy.Max(a, 0), 7),
        lambda a, b: sympy.Piecewise((a, a < b), (b, True)),
    ]
    return leaves | st.builds(lambda f, a, b: f(a, b), st.sampled_from(binary), part, part)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(formulas(2), st.integers(0, 100), st.integers(1, 4096), st.integers(-5, 5))
def test_a_converted_formula_has_sympys_value(formula: Any, s_value: int, m_value: int, d_value: int) -> None:
    try:
        tree = from_sympy(formula, VARIABLES)
    except SymbolicError:
        return
    values = {"s": s_value, "m": m_value, "d": d_value, "n": 0}
    truth = int(formula.subs({s: s_value, m: m_value, d: d_value}))
    assert evaluate(tree, values) == truth
    assert truth in proved_range(formula, VARIABLES)
    assert int(to_sympy(tree).subs({v: values[v.name] for v in to_sympy(tree).free_symbols})) == truth


X, Y, U = Var("x", i32), Var("y", i32, 1, 9), Var("u", u32)


@pytest.mark.parametrize(
    "tree",
    [
        Binary("/", X, Y),
        Binary("%", X, Y),
        Binary("%", X, Unary("-", Y)),
        Binary("-", Binary("*", X, Y), Const(3, i32)),
        Select(Binary("<", X, Y), X, Binary("+", X, Y)),
        Call("min", (X, Y), i32),
        Call("max", (X, Y), i32),
        Cast(i64, X),
        Binary("+", Binary("<", X, Y), X),
        Select(Unary("!", X), X, Y),
        Select(Binary("&&", X, Binary("!=", X, Y)), X, Y),
    ],
    ids=print_expression,
)
def test_to_sympy_truncates_as_cpp_does(tree: Expr) -> None:
    formula = to_sympy(tree)
    symbols = {symbol.name: symbol for symbol in formula.free_symbols}
    for x, y in itertools.product(range(-9, 10), range(1, 10)):
        values = {"x": x, "y": y}
        try:
            expected = evaluate(tree, values)
        except Undefined:
            continue
        assert (
            int(formula.subs({symbols[name]: value for name, value in values.items() if name in symbols})) == expected
        )


def test_a_relation_goes_both_ways() -> None:
    tree = Binary("<=", X, Y)
    assert str(to_sympy(tree)) == "x <= y"
    assert from_sympy(to_sympy(tree), {"x": X, "y": Y}) == tree


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (Binary("+", U, Const(1, u32)), r"u \+ 1u can wrap in u32"),
        (Binary("+", X, Const(1, u32)), "converts a i32 operand to u32"),
        (Cast(i8, X), "converts a i32 operand to i8"),
        (Binary("&", X, Y), r"x & y has no formula"),
        (Element("a", X, i32), r"a\[x\] has no formula"),
        (Const(1.0, f32), r"1\.0f is no integer"),
    ],
    ids=lambda value: "" if isinstance(value, str) else print_expression(value),
)
def test_what_unbounded_integers_cannot_say_is_refused(tree: Expr, message: str) -> None:
    with pytest.raises(SymbolicError, match=message):
        to_sympy(tree)


def test_importing_the_conversion_does_not_import_sympy_or_torch() -> None:
    code = (
        "import sys; import kernwright.generator.ir.symbolic, kernwright.generator.passes.simplify; "
        "print([name for name in ('sympy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""The simplifier: each rule exhaustively, random trees by value and type against two oracles, and the known failures."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.c_semantics import Number, Undefined, evaluate, type_of
from support.compiled_oracle import Case, run, source_of
from support.expression_trees import VARIABLES, inputs, random_inputs, rule_trees, trees
from support.rule_instances import Instance, instances
from support.rule_table import PAGE, page_with, rule_table

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var, children
from kernwright.generator.ir.types import boolean, f32, i8, i16, i32, i64, u32, u64
from kernwright.generator.passes.ranges import Range
from kernwright.generator.passes.rules import RULES, Rule
from kernwright.generator.passes.simplify import Simplified, measure, simplify

X, Y, LANE, WARP = Var("x", i32), Var("y", i32), Var("lane", i32, 0, 31), Var("warp", i32, 0, 3)
F = Var("f", f32)


def op(left: Expr | int, sign: str, right: Expr | int) -> Binary:
    return Binary(sign, *(Const(side, i32) if isinstance(side, int) else side for side in (left, right)))


def text(tree: Expr, facts: dict[str, Range] | None = None) -> str:
    return print_expression(simplify(tree, facts).expr)


def outcome(tree: Expr, values: dict[str, int]) -> Number | None:
    try:
        return evaluate(tree, values)
    except Undefined:
        return None


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_rule_holds_on_small_ranges(rule: Rule) -> None:
    """One rule alone on every instance: same type, same value at every defined input, nothing newly undefined."""
    fired = 0
    for instance in instances(rule, attempts=1000):
        done = simplify(instance.expr, rules=(rule,))
        if not done.applied:
            continue
        fired += 1
        if fired > 50:
            break
        assert type_of(done.expr) == type_of(instance.expr), shown(done, instance)
        assert measure(done.expr) < measure(instance.expr), shown(done, instance)
        for values in instance.inputs():
            before = outcome(instance.expr, values)
            if before is not None:
                assert outcome(done.expr, values) == before, f"{shown(done, instance)} at {values}"
    assert fired > 0, f"no instance of {print_expression(rule.pattern)} was rewritten"


def shown(done: Simplified, instance: Instance) -> str:
    return f"{print_expression(instance.expr)} -> {print_expression(done.expr)}"


def check_by_value(tree: Expr, samples: Iterable[dict[str, int]]) -> Simplified:
    done = simplify(tree)
    assert type_of(done.expr) == type_of(tree), print_expression(tree)
    for sample in samples:
        before = outcome(tree, sample)
        if before is not None:
            changed = f"{print_expression(tree)} -> {print_expression(done.expr)} at {sample}"
            assert outcome(done.expr, sample) == before, changed
    return done


@settings(derandomize=True, max_examples=150, deadline=None)
@given(trees(), st.lists(inputs(), min_size=8, max_size=8))
def test_random_trees_keep_value_and_type(tree: Expr, samples: list[dict[str, int]]) -> None:
    check_by_value(tree, samples)


def test_rules_inside_random_trees_keep_value_and_type() -> None:
    """Trees to which each rule applies, over random parts, types and surroundings."""
    pick = random.Random("rules")
    for tree in rule_trees(pick, each=12):
        check_by_value(tree, (random_inputs(pick) for _ in range(6)))


@settings(derandomize=True, max_examples=150, deadline=None)
@given(trees())
def test_idempotent_ordered_terminating_and_the_same_each_time(tree: Expr) -> None:
    done = simplify(tree)
    assert simplify(done.expr) == Simplified(done.expr, ())
    assert simplify(tree) == done
    assert is_subsequence(list(names(done.expr)), list(names(tree)))
    for step in done.applied:
        assert measure(step.after) < measure(step.before), step
        assert is_subsequence(list(names(step.after)), list(names(step.before))), step


def names(tree: Expr) -> Iterator[str]:
    """The leaves from left to right, without literals, which may merge."""
    if isinstance(tree, Var) or (isinstance(tree, Const) and tree.name is not None):
        yield str(tree.name)
    for operand in children(tree):
        yield from names(operand)


def is_subsequence(short: list[str], long: list[str]) -> bool:
    rest = iter(long)
    return all(name in rest for name in short)


def test_random_trees_against_compiled_cpp(tmp_path: Path) -> None:
    """Both texts of some hundred trees, with every rule among them: g++ agrees on type and value, and no trap fires."""
    pick, cases = random.Random("compiled"), []
    for tree in rule_trees(pick, each=3):
        samples = [random_inputs(pick) for _ in range(6)]
        runs = [(sample, int(value)) for sample in samples if (value := outcome(tree, sample)) is not None]
        if measure(tree)[0] < 60:
            cases.append(Case(tree, simplify(tree).expr, runs))
    assert len(cases) > 200
    assert sum(len(case.runs) for case in cases) > 3 * len(cases)
    run(source_of(cases, VARIABLES), tmp_path)


class TestKnownFailures:
    """The examples of the case collection, by number."""

    def test_a02_a_sum_of_constants_that_leaves_the_type_stays(self) -> None:
        tree = op(op(X, "+", 1_500_000_000), "+", 1_500_000_000)
        assert simplify(tree) == Simplified(tree, ())
        assert text(op(1_500_000_000, "+", 1_500_000_000)) == "1500000000 + 1500000000"
        assert text(op(op(X, "+", 1_500_000_000), "-", 1_499_999_999)) == "x + 1"

    def test_a02_extreme_constants(self) -> None:
        assert text(Cast(i8, Const(400, i32))) == "(signed char)400"
        assert text(op(X, "+", Const(-(2**31), i32))) == "x + (-2147483647 - 1)"
        assert text(Unary("-", Const(-(2**31), i32))) == "-(-2147483647 - 1)"
        assert text(op(Const(-(2**31), i32), "/", -1)) == "(-2147483647 - 1) / -1"
        assert text(op(Const(-(2**31), i32), "%", -1)) == "(-2147483647 - 1) % -1"
        assert text(op(Const(2**63 - 1, i64), "+", 1)) == "9223372036854775807ll + 1"
        assert text(Call("max", (Cast(i32, Const(2**31, u32)), Const(-128, i32)), i32)) == "max((int)2147483648u, -128)"

    def test_a02_unsigned_arithmetic_wraps(self) -> None:
        assert text(op(Const(3, u32), "-", Const(5, u32))) == "4294967294u"
        assert text(op(Const(2**31, u32), "*", Const(2, u32))) == "0u"
        u = Var("u", u32)
        assert text(op(op(u, "+", Const(2**31, u32)), "+", Const(2**31, u32))) == "u"

    def test_a02_an_index_whose_intermediate_bound_is_too_large_stays_exact(self) -> None:
        j = Var("j", i32, 0, 15)
        tree = op(op(j, "-", op(8, "*", op(j, "/", 8))), "*", 300_000_000)
        assert all(evaluate(simplify(tree).expr, {"j": v}) == v % 8 * 300_000_000 for v in range(16))

    def test_a04_sums_and_products_over_negative_values(self) -> None:
        trees_here = [
            op(op(97, "+", op(24, "*", X)), "/", 8),
            op(op(op(5, "*", X), "+", Y), "/", 5),
            op(op(op(6, "*", X), "+", 5), "/", 6),
            op(op(-2, "*", op(X, "+", 3)), "/", 4),
            Call("min", (op(op(op(X, "+", 7), "/", 8), "*", 8), Call("max", (X, Const(8, i32)), i32)), i32),
            op(op(X, "+", 0), "/", 8),
            op(op(X, "+", 0), "%", 8),
            op(X, "-", op(Y, "+", 0)),
            Unary("-", op(X, "+", 0)),
            op(op(X, "+", 0), "*", op(Y, "+", 0)),
        ]
        for tree in trees_here:
            done = simplify(tree, {"x": Range(-40, 40), "y": Range(-40, 40)}).expr
            assert type_of(done) == type_of(tree)
            for x in range(-40, 41):
                for y in range(-40, 41) if "y" in print_expression(tree) else [0]:
                    assert evaluate(done, {"x": x, "y": y}) == evaluate(tree, {"x": x, "y": y})
        assert text(trees_here[1], {"x": Range(-40, 40), "y": Range(0, 4)}) == "(5 * x + y) / 5"
        assert text(trees_here[1], {"x": Range(0, 40), "y": Range(0, 4)}) == "x"

    def test_a04_a_typed_zero_keeps_its_conversion(self) -> None:
        tree = op(op(X, "+", Const(0, i64)), "*", Var("stride", i32))
        assert text(tree) == "(long long)x * stride"
        assert evaluate(simplify(tree).expr, {"x": 2**20, "stride": 2**12}) == 2**32
        assert text(op(op(X, "+", Const(0, u32)), "/", 8)) == "(unsigned)x / 8"
        assert text(op(op(X, "+", Const(0, u32)), "<", 8)) == "(unsigned)x < 8"
        assert text(op(Var("s", i16), "+", 0)) == "(int)s"
        assert text(op(X, "*", Const(0, i64))) == "0ll"

    def test_a06_floats_keep_ieee_results_and_integers_fold(self) -> None:
        zero, select = Const(0.0, f32), Var("m", boolean)
        floats = [op(F, "*", zero), op(zero, "*", F), op(F, "-", F), op(F, "+", zero), op(F, "/", F), op(zero, "/", F)]
        floats += [op(F, "*", Const(1.0, f32)), Unary("-", Unary("-", F)), Select(select, F, op(F, "*", zero))]
        for tree in floats:
            assert simplify(tree) == Simplified(tree, ())
        assert math.isnan(evaluate(floats[0], {"f": math.inf}))
        assert math.copysign(1.0, evaluate(simplify(floats[3]).expr, {"f": -0.0})) == 1.0
        assert [text(tree) for tree in (op(X, "*", 0), op(0, "*", X), op(X, "+", 0))] == ["0", "0", "x"]
        assert text(op(0, "/", X), {"x": Range(1, 9)}) == "0"
        assert text(op(0, "/", X)) == "0 / x"
        assert text(Select(select, X, op(X, "*", 0))) == "m ? x : 0"

    def test_a06_conversions_to_float_are_left_alone(self) -> None:
        tree = Cast(f32, Cast(i64, X))
        assert simplify(tree) == Simplified(tree, ())
        assert text(Cast(f32, Const(3, i32))) == "(float)3"
        assert text(Cast(f32, Cast(f32, F))) == "f"

    def test_a06_integers_inside_float_code_fold(self) -> None:
        assert text(op(Element("x_row", op(LANE, "+", 0), f32), "*", F)) == "x_row[lane] * f"

    def test_a06_signed_zeros_are_two_operands(self) -> None:
        plus, minus = (Cast(i32, Call("bits", (Const(value, f32),), f32)) for value in (0.0, -0.0))
        tree = op(op(op(plus, "/", 8), "*", 8), "+", op(minus, "%", 8))
        assert simplify(tree).expr == tree

    def test_a07_negative_factors_and_remainders(self) -> None:
        p, q = Var("p", i32), Var("q", i32)
        tree = op(-3, "*", op(op(p, "+", 0), "%", q))
        assert text(tree) == "-3 * (p % q)"
        assert evaluate(simplify(tree).expr, {"p": 7, "q": 4}) == -9


class TestIndexArithmetic:
    """What the rules do to the expressions of kernels."""

    @pytest.mark.parametrize(
        ("tree", "expected"),
        [
            (op(op(op(X, "/", 8), "*", 8), "+", op(X, "%", 8)), "x"),
            (op(op(X, "%", 8), "+", op(8, "*", op(X, "/", 8))), "x"),
            (op(op(Y, "+", op(op(X, "/", 8), "*", 8)), "+", op(X, "%", 8)), "y + x"),
            (op(op(op(X, "/", 8), "*", 8), "+", op(X, "%", 4)), "x / 8 * 8 + x % 4"),
            (op(op(X, "/", 4), "/", 8), "x / 32"),
            (op(op(X, "%", 32), "%", 8), "x % 8"),
            (op(op(X, "%", 8), "%", 32), "x % 8"),
            (op(op(X, "%", 32), "%", 12), "x % 32 % 12"),
            (op(op(op(WARP, "*", 32), "+", LANE), "/", 32), "warp"),
            (op(op(op(WARP, "*", 32), "+", LANE), "%", 32), "lane"),
            (op(op(LANE, "+", op(32, "*", WARP)), "/", 16), "(lane + 32 * warp) / 16"),
            (op(op(op(LANE, "%", 16), "+", op(32, "*", WARP)), "/", 16), "2 * warp"),
            (op(op(op(WARP, "*", 32), "+", LANE), "%", 16), "lane % 16"),
            (op(op(X, "*", 8), "/", 8), "x * 8 / 8"),
            (op(op(LANE, "*", 8), "/", 4), "lane * 2"),
            (op(op(LANE, "*", 4), "/", 8), "lane / 2"),
            (op(op(LANE, "*", 8), "%", 4), "0"),
            (op(LANE, "/", 32), "0"),
            (op(LANE, "%", 32), "lane"),
            (op(op(LANE, "<", 32), "&&", op(X, "<", Y)), "x < y"),
            (op(op(X, "<", Y), "&&", op(LANE, "<", 32)), "x < y"),
            (op(op(X, "<", Y), "||", op(LANE, "<", 32)), "true"),
            (op(X, "&&", op(LANE, "<", 32)), "(bool)x"),
            (Select(op(LANE, ">=", 32), X, Y), "y"),
            (Select(op(LANE, ">=", 32), Cast(i64, X), Y), "(long long)y"),
            (Unary("!", Unary("!", X)), "(bool)x"),
            (Cast(i64, Cast(i64, X)), "(long long)x"),
            (Cast(i32, Cast(i64, X)), "x"),
            (Cast(i64, Cast(i32, Var("w", i64))), "(long long)(int)w"),
            (Cast(i64, Cast(u32, LANE)), "(long long)lane"),
            (op(op(X, "+", 5), "-", 8), "x - 3"),
            (op(op(X, "-", 5), "+", 8), "x + 3"),
            (op(op(X, "+", 5), "-", 5), "x"),
            (op(op(5, "+", X), "+", 3), "x + 8"),
            (op(5, "+", op(3, "+", X)), "8 + x"),
            (op(op(op(X, "+", 3), "*", 1), "+", op(0, "*", Y)), "x + 3"),
            (op(op(X, "*", 4), "*", 8), "x * 32"),
            (op(op(X, "+", Const(1, i64)), "+", 2), "x + 3ll"),
            (op(op(X, "+", 1), "+", Const(2, i64)), "x + 1 + 2ll"),
        ],
        ids=lambda value: value if isinstance(value, str) else print_expression(value),
    )
    def test_text(self, tree: Expr, expected: str) -> None:
        assert text(tree) == expected

    def test_named_constants_keep_their_name(self) -> None:
        rows, one = Const(8, i32, "kRowsPerBlock"), Const(1, i32, "kOne")
        assert text(op(op(X, "*", rows), "*", 4)) == "x * kRowsPerBlock * 4"
        assert text(op(rows, "*", 4)) == "kRowsPerBlock * 4"
        assert text(op(op(X, "+", rows), "+", 0)) == "x + kRowsPerBlock"
        assert text(op(op(X, "/", rows), "/", 4)) == "x / kRowsPerBlock / 4"
        assert text(op(X, "*", one)) == "x"
        assert text(op(op(op(X, "/", rows), "*", rows), "+", op(X, "%", rows))) == "x"
        assert text(op(op(op(WARP, "*", rows), "+", op(LANE, "%", rows)), "/", rows)) == "warp"
        assert text(op(op(LANE, "%", rows), "<", rows)) == "true"

    def test_ranges_of_the_whole_type_prove_nothing(self) -> None:
        wide = Var("u", u32)
        assert text(op(op(wide, "*", Const(8, u32)), "/", Const(8, u32))) == "u * 8u / 8u"
        assert text(op(X, "<", Const(2**31, u64))) == "x < 2147483648ull"

    def test_divisors_whose_product_leaves_the_type_do_not_merge(self) -> None:
        u = Var("u", u32)
        assert text(op(op(u, "/", Const(2**16, u32)), "/", Const(2**16, u32))) == "0u"  # by range, not as u / 0u
        assert text(op(op(X, "/", 2**16), "/", 2**15)) == "x / 65536 / 32768"
        assert text(op(op(X, "/", 2**16), "/", 2**14)) == "x / 1073741824"

    def test_a_negative_step_is_not_split(self) -> None:
        facts = {"x": Range(0, 9), "y": Range(0, 2)}
        assert text(op(op(Y, "+", op(X, "*", -6)), "/", 3), facts) == "(y + x * -6) / 3"
        assert text(op(op(Y, "+", op(X, "*", 6)), "/", 3), facts) == "x * 2"

    def test_the_report_names_rule_before_and_after(self) -> None:
        done = simplify(op(op(X, "+", 0), "*", 1))
        assert [(s.rule, print_expression(s.before), print_expression(s.after)) for s in done.applied] == [
            ("add-zero", "x + 0", "x"),
            ("multiply-one", "x * 1", "x"),
        ]

    def test_rule_names_are_unique(self) -> None:
        assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_page_shows_the_rules_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page_with(rule_table(), page) == page, "run: python tests/support/rule_table.py"

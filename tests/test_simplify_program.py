"""Simplification of whole bodies: facts from loops and values, and branches that ranges decide."""

from __future__ import annotations

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.expr import Binary, Const, Element, Expr, Var
from kernwright.generator.ir.statement import (
    ArrayOperand,
    Assign,
    Blank,
    Declare,
    Execute,
    If,
    Let,
    Pointer,
    RegisterArray,
    Remark,
    Repeat,
    Statement,
)
from kernwright.generator.ir.types import boolean, f32, i32, i64, u8
from kernwright.generator.passes.ranges import Range
from kernwright.generator.passes.simplify_program import simplify_statements

X, I, LANE = Var("x", i32), Var("i", i32), Var("lane", i32, 0, 31)


def op(left: Expr, sign: str, right: Expr | int) -> Binary:
    return Binary(sign, left, Const(right, i32) if isinstance(right, int) else right)


def only(statement: Statement) -> Statement:
    (result,) = simplify_statements((statement,))[0]
    return result


def test_every_expression_of_every_statement_is_simplified() -> None:
    plus = op(X, "+", 0)
    body = (
        Let(Var("a", i32), plus),
        Declare(Var("b", i32), plus),
        RegisterArray("acc", f32, Const(8, i32)),
        Assign(Element("acc", op(LANE, "%", 32), f32), Element("acc", plus, f32), "+="),
        Execute("store", (Pointer("y", plus, f32), ArrayOperand("acc"), plus)),
        Remark("x + 0 in a remark stays"),
        Blank(),
    )
    new, applied = simplify_statements(body)
    assert new == (
        Let(Var("a", i32), X),
        Declare(Var("b", i32), X),
        RegisterArray("acc", f32, Const(8, i32)),
        Assign(Element("acc", LANE, f32), Element("acc", X, f32), "+="),
        Execute("store", (Pointer("y", X, f32), ArrayOperand("acc"), X)),
        Remark("x + 0 in a remark stays"),
        Blank(),
    )
    assert [step.rule for step in applied] == ["add-zero", "add-zero", "small remainder", *["add-zero"] * 3]


def test_the_index_of_a_loop_runs_below_its_count() -> None:
    loop = only(Repeat(I, Const(8, i32), (Assign(Element("a", op(I, "%", 8), f32), Element("a", op(I, "%", 7), f32)),)))
    assert isinstance(loop, Repeat)
    (assign,) = loop.body
    assert isinstance(assign, Assign)
    assert assign.target == Element("a", I, f32)
    assert assign.value == Element("a", op(I, "%", 7), f32)


def test_a_loop_that_may_not_run_or_whose_end_is_open_adds_no_wrong_fact() -> None:
    inner = (Assign(X, op(I, "%", 8)),)
    for count in (Const(0, i32), X, Const(9, i32)):
        loop = only(Repeat(I, count, inner))
        assert isinstance(loop, Repeat)
        assert loop.body == inner


def test_a_let_gives_its_range_and_a_declared_variable_does_not() -> None:
    place = Var("place", i32)
    read = Let(Var("z", i32), op(place, "%", 8))
    assert simplify_statements((Let(place, op(X, "&", 7)), read))[0][1] == Let(Var("z", i32), place)
    assert simplify_statements((Declare(place, op(X, "&", 7)), read))[0][1] == read
    narrowed = Var("place", u8)
    assert simplify_statements((Let(narrowed, op(LANE, "+", 256)), Let(X, op(narrowed, "<", 32))))[0][1] == Let(
        X, Const(1, boolean)
    )


def test_a_fact_ends_with_its_block_and_a_new_value_of_the_name_replaces_it() -> None:
    place, check = Var("place", i32), Let(Var("z", i32), op(Var("place", i32), "%", 8))
    inside = If(op(X, "<", 3), (Let(place, op(X, "&", 7)), check))
    body, _ = simplify_statements((inside, check))
    assert isinstance(body[0], If)
    assert body[0].then[1] == Let(Var("z", i32), place)
    assert body[1] == check
    again, _ = simplify_statements((Let(place, op(X, "&", 7)), Declare(place, X), check))
    assert again[2] == check


def test_a_proved_condition_leaves_one_branch() -> None:
    yes, no = Assign(X, Const(1, i32)), Assign(X, Const(2, i32))
    bound = If(op(LANE, "<", 32), (yes,), (no,))
    new, applied = simplify_statements((bound, Blank()))
    assert new == (yes, Blank())
    assert [step.rule for step in applied] == ["always <", "if true"]
    assert simplify_statements((If(op(LANE, ">=", 32), (yes,), (no,)),))[0] == (no,)
    assert simplify_statements((If(op(LANE, ">=", 32), (yes,)),))[0] == ()
    assert simplify_statements((If(op(LANE, "<", 31), (yes,), (no,)),))[0] == (If(op(LANE, "<", 31), (yes,), (no,)),)


def test_a_branch_is_kept_where_its_names_would_meet_others() -> None:
    a = Var("a", i32)
    bound = If(op(LANE, "<", 32), (Let(a, X), Assign(X, a)))
    new, _ = simplify_statements((bound, Let(a, Const(3, i32))))
    assert isinstance(new[0], If)
    assert print_expression(new[0].condition) == "true"
    used_outside, _ = simplify_statements((bound, Assign(Var("b", i64), a)))
    assert isinstance(used_outside[0], If)
    assert simplify_statements((bound,))[0] == (Let(a, X), Assign(X, a))


def test_given_facts_reach_the_inner_blocks_and_a_shadowing_index_does_not_take_them() -> None:
    check = Assign(Var("z", i32), op(X, "/", 8))
    loop = only(Repeat(X, Var("n", i32), (check,)))
    assert isinstance(loop, Repeat)
    assert loop.body == (check,)
    new, _ = simplify_statements((If(op(I, "<", 3), (check,)), Repeat(X, Var("n", i32), (check,))), {"x": Range(0, 7)})
    assert isinstance(new[0], If)
    assert new[0].then == (Assign(Var("z", i32), Const(0, i32)),)
    assert isinstance(new[1], Repeat)
    assert new[1].body == (check,)

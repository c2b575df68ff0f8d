"""Row-wise programs: handles, operators, parameters, widths. Everything else is refused with code, line and remedy."""

from __future__ import annotations

import re

import pytest
from support.rows import HIGH, Rows, refused, text_of

from kernwright.generator.dsl import Kernel, bf16, f32, i32, i64


def test_equality_is_a_value_of_the_program(trace):
    def described(k: Kernel) -> None:
        """Zeros become ones."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], k.where(value == 0.0, 1.0, value) + k.where(value != 2.0, value, 0.0))

    text = text_of(trace(described))
    assert "(value[i] == 0.0f ? 1.0f : value[i]) + (value[i] != 2.0f ? value[i] : 0.0f)" in text


@pytest.mark.parametrize("kind", ["==", "<", "and"])
def test_python_cannot_branch_on_a_value(trace, kind):
    def described(k: Kernel) -> None:
        """A branch that would be decided at description time."""
        r = Rows(k)
        if {"==": lambda: r.rows == 0, "<": lambda: r.rows < 5, "and": lambda: r.rows > 1 and r.rows < 5}[kind]():
            pass

    refused(trace, described, "KW0201", "no truth at description time", "k.where")


def test_floats_have_no_floor_division(trace):
    def described(k: Kernel) -> None:
        """A floor that C would not take."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value // 2.0)

    refused(trace, described, "KW0201", "`//` needs integers", "Use / for floats")


@pytest.mark.parametrize("what", ["value", "block", "kernel"])
def test_a_handle_of_a_finished_trace_is_refused(trace, what):
    kept: dict[str, object] = {}

    def first(k: Kernel) -> None:
        """A program whose handles escape."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        kept.update(value=value, block=r.block, kernel=k)
        k.store(r.target[r.block], value)

    def described(k: Kernel) -> None:
        """A program that uses them."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        if what == "value":
            k.store(r.target[r.block], value + k.exp(kept["value"]))
        elif what == "block":
            k.store(r.target[kept["block"]], value)
        else:
            kept["kernel"].let("late", value)

    trace(first)
    refused(trace, described, "KW0202", "belongs to another program")


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ((-3, 128), "-3"),
        ((0, 128), "0"),
        (("rows", 128), "'rows'"),
        ((), "()"),
        ((True, 128), "True"),
        ((1.5, 128), "1.5"),
    ],
)
def test_a_dimension_is_a_positive_number_a_scalar_or_a_formula(trace, shape, word):
    def described(k: Kernel) -> None:
        """A shape that is none."""
        k.tensor("x", bf16, shape)

    refused(trace, described, "KW0204", word)


def test_a_shape_is_a_tuple(trace):
    def described(k: Kernel) -> None:
        """One value instead of a tuple."""
        rows = k.scalar("rows", i64, high=HIGH)
        k.tensor("x", bf16, rows)

    refused(trace, described, "KW0204", "(rows,)")


@pytest.mark.parametrize(
    ("dtype", "limits", "word"),
    [
        (i32, {"low": 5, "high": 6, "multiple_of": 7}, "no multiple of 7"),
        (i32, {"high": 1e5}, "100000.0"),
        (i32, {"low": 3, "high": 2}, "3..2"),
        (i32, {"high": 1 << 40}, str(1 << 40)),
        (f32, {"minimum": 1e300}, "1e+300"),
        (f32, {"minimum": float("nan")}, "nan"),
        (f32, {"high": 3}, "minimum"),
    ],
)
def test_limits_that_no_value_meets_are_refused(trace, dtype, limits, word):
    def described(k: Kernel) -> None:
        """A scalar that cannot be."""
        k.scalar("number", dtype, **limits)

    refused(trace, described, "KW0205", word)


def test_a_type_is_no_text(trace):
    def described(k: Kernel) -> None:
        """A type in quotes."""
        k.tensor("x", "bf16", (4, 128))

    refused(trace, described, "KW0201", "'bf16' is no type")


@pytest.mark.parametrize("value", [1e-5, 1 << 40, True, "3"])
def test_a_named_constant_is_an_int(trace, value):
    def described(k: Kernel) -> None:
        """A constant of another kind."""
        k.constant("size", value)

    refused(trace, described, "KW0701", repr(value))


def test_an_unknown_word_suggests_the_known_one(trace):
    def described(k: Kernel) -> None:
        """A slip of the pen."""
        k.stroe(1, 2)

    refused(trace, described, "KW0609", "'stroe'", "k.store")


@pytest.mark.parametrize("call", ["swapped", "no block", "no layout", "step", "zero vector"])
def test_arguments_in_the_wrong_place(trace, call):
    def described(k: Kernel) -> None:
        """A call that cannot be meant."""
        if call == "zero vector":
            k.vector_rows(128, vector=0)
        if call == "step":
            k.blocks(k.scalar("n", i64, high=HIGH), step=8)
        r = Rows(k)
        value = k.load(r.source[r.block], None if call == "no layout" else r.layout)
        if call == "swapped":
            k.store(value, r.target[r.block])
        k.store(r.target, value)

    refused(trace, described, "KW0301")


class TestWidths:
    """Index arithmetic that ranges do not prove to stay in its type."""

    def program(self, product):
        def described(k: Kernel) -> None:
            """A product of two scalars."""
            first = k.scalar("first", i32, high=1 << 16)
            second = k.scalar("second", i32, high=1 << 15)
            r = Rows(k)
            value = k.load(r.source[r.block], r.layout)
            size = product(first, second)
            k.store(r.target[r.block], value * size.to(f32))

        return described

    def test_a_product_that_can_leave_int_is_refused(self, trace):
        message = refused(trace, self.program(lambda a, b: a * b), "KW0206", "can leave i32", ".to(i64)")
        assert "first in 0..65536" in message and "second in 0..32768" in message

    def test_widening_one_operand_is_enough(self, trace):
        text = text_of(trace(self.program(lambda a, b: a.to(i64) * b)))
        assert "(float)((long long)first * second)" in text

    def test_a_product_that_stays_is_left_alone(self, trace):
        text = text_of(trace(self.program(lambda a, b: a * 16 + b)))
        assert "(float)(first * 16 + second)" in text


def test_an_unused_constant_is_refused(trace):
    def described(k: Kernel) -> None:
        """A spare number."""
        r = Rows(k)
        k.constant("spare", 3, "nobody needs it")
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0606", "'kSpare'")


@pytest.mark.parametrize("shape", [(256, 32, i64, HIGH), (128, 128, i64, 1), (128, 128, i64, 8)])
def test_what_folds_to_nothing_is_not_declared(trace, shape):
    columns, threads, dtype, high = shape

    def described(k: Kernel) -> None:
        """A copy in a corner of the layouts."""
        rows = k.scalar("rows", dtype, low=high if high == 8 else 0, high=high)
        source = k.tensor("source", bf16, (rows, columns))
        target = k.tensor("target", bf16, (rows, columns), access="write")
        layout = k.vector_rows(columns, threads=threads)
        block = k.blocks(rows, step=layout)
        value = k.load(source[block], layout)
        k.store(target[block], value)

    text = text_of(trace(described))
    code = re.sub(r"//.*", "", text)
    for name in re.findall(r"constexpr \w+ (k\w+) =|const bool (\w+) =", code):
        found = name[0] or name[1]
        assert len(re.findall(rf"\b{found}\b", code)) > 1, f"{found} is declared and not used"


@pytest.mark.parametrize("kind", ["integer", "remainder", "float", "tile"])
def test_a_division_by_zero_is_refused(trace, kind):
    def described(k: Kernel) -> None:
        """A quotient that has no value."""
        r = Rows(k)
        mode = k.scalar("mode", i32, high=3)
        value = k.load(r.source[r.block], r.layout)
        if kind == "integer":
            mode // 0
        elif kind == "remainder":
            mode % 0
        elif kind == "float":
            value / k.constant("none", 0).to(f32)
        else:
            value.to(i32) % 0

    refused(trace, described, "KW0704", "by zero")


def test_data_is_left_alone_and_scalars_beside_it_are_not(trace):
    def described(k: Kernel, wrong: bool = False) -> None:
        """Integer tiles and a product of scalars."""
        r = Rows(k)
        many = k.scalar("many", i32, high=1 << 20)
        value = k.load(r.source[r.block], r.layout)
        whole = value.to(i32)
        doubled = whole * 2
        shifted = doubled + many * (many if wrong else 4)
        k.store(r.target[r.block], shifted.to(f32))

    assert "const int doubled = whole * 2;" in text_of(trace(described))

    def wrong(k: Kernel) -> None:
        """The same with a product that can overflow."""
        described(k, wrong=True)

    refused(trace, wrong, "KW0206", "many in 0..1048576")

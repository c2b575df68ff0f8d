"""Row-wise programs: what is accepted means what it says, everything else is refused with code, line and remedy."""

from __future__ import annotations

import re

import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Kernel, bf16, boolean, f32, i32, i64
from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.emit.kernel import print_kernel
from kernwright.generator.errors import KernelError
from kernwright.generator.ir.statement import RegisterArray
from kernwright.generator.passes.lower import lower

HIGH = 1 << 20


class Rows:
    """The usual start of a row-wise program: two tensors over the same rows."""

    def __init__(self, k: Kernel, **source: object) -> None:
        self.k = k
        self.rows = k.scalar("rows", i64, high=HIGH)
        self.source = k.tensor("source", bf16, (self.rows, 128), **source)  # type: ignore[arg-type]
        self.target = k.tensor("target", bf16, (self.rows, 128), access="write")
        self.layout = k.vector_rows(128)
        self.block = k.blocks(self.rows, step=self.layout)


def text_of(description, arch: str = "sm_90a") -> str:
    return print_kernel(lower(description, ARCHITECTURES[arch]).program)


def refused(trace, function, code: str, *words: str) -> str:
    with pytest.raises(KernelError) as caught:
        text_of(trace(function))
    message = str(caught.value)
    assert caught.value.code == code, message
    assert "tests/test_rows.py:" in message and "kernwright explain" in message
    assert all(word in message for word in words), message
    return message


# ---- what a store or load may take


@pytest.mark.parametrize("index", ["5, 0", "0, 0", "block, 8", "5"])
def test_an_access_that_is_not_the_running_block_is_refused(trace, index):
    def described(k: Kernel) -> None:
        """A copy that starts elsewhere."""
        r = Rows(k)
        where = {"5, 0": (5, 0), "0, 0": (0, 0), "block, 8": (r.block, 8), "5": 5}[index]
        value = k.load(r.source[where], r.layout)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0301", "running block", "source[block]")


def test_a_whole_matrix_is_no_row_access(trace):
    def described(k: Kernel) -> None:
        """A load without a block."""
        r = Rows(k)
        value = k.load(r.source, r.layout)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0301", "running block")


def test_a_store_of_another_width_is_refused(trace):
    def described(k: Kernel) -> None:
        """128 columns into 64."""
        r = Rows(k)
        narrow = k.tensor("narrow", bf16, (r.rows, 64), access="write")
        value = k.load(r.source[r.block], r.layout)
        k.store(narrow[r.block], value)

    refused(trace, described, "KW0301", "128 columns, the tensor 64")


def test_a_tensor_of_other_rows_is_refused(trace):
    def described(k: Kernel) -> None:
        """Four rows under the mask of all rows."""
        r = Rows(k)
        few = k.tensor("few", bf16, (4, 128))
        value = k.load(few[r.block], r.layout)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0301", "other rows than the blocks")


def test_three_dimensions_are_refused(trace):
    def described(k: Kernel) -> None:
        """A batch of matrices."""
        r = Rows(k)
        cube = k.tensor("cube", bf16, (r.rows, 4, 128))
        value = k.load(cube[r.block], r.layout)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0301", "3 dimensions")


def test_a_second_range_of_blocks_is_refused(trace):
    def described(k: Kernel) -> None:
        """Two ranges."""
        r = Rows(k)
        other = k.scalar("other", i64, high=HIGH)
        k.blocks(other, step=r.layout)

    refused(trace, described, "KW0307", "one k.blocks", "second program")


def test_a_second_layout_is_refused(trace):
    def described(k: Kernel) -> None:
        """Two layouts."""
        Rows(k)
        k.vector_rows(64)

    refused(trace, described, "KW0307", "one vector-row layout")


@pytest.mark.parametrize("alignment", [2, 4, 8])
def test_an_alignment_below_the_access_is_refused(trace, alignment):
    def described(k: Kernel) -> None:
        """A tensor that may start anywhere."""
        r = Rows(k, alignment=alignment)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0301", f"{alignment}-byte boundary", "alignment=16")


@pytest.mark.parametrize("alignment", [0, 1, 3, 24, -16])
def test_an_impossible_alignment_is_refused(trace, alignment):
    def described(k: Kernel) -> None:
        """No power of two, or below the element."""
        Rows(k, alignment=alignment)

    refused(trace, described, "KW0208", f"alignment {alignment}", "power of two")


def test_a_tensor_stored_twice_is_refused(trace):
    def described(k: Kernel) -> None:
        """The first store would be lost."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value)
        k.store(r.target[r.block], value * 2.0)

    refused(trace, described, "KW0607", "'target'")


@pytest.mark.parametrize("dtype", [i32, bf16])
def test_a_load_is_fp32(trace, dtype):
    def described(k: Kernel) -> None:
        """A load of another type."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout, dtype=dtype)
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0201", f"not as {dtype}", ".to(...)")


def test_an_integer_tile_is_not_stored(trace):
    def described(k: Kernel) -> None:
        """A store of integers."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        whole = value.to(i32)
        k.store(r.target[r.block], whole)

    refused(trace, described, "KW0301", "a tile of i32")


# ---- names


def test_the_partial_sum_has_a_name_of_its_own(trace):
    def described(k: Kernel) -> None:
        """The author took the name of the partial sum."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        total_partial = value * 2.0
        total = k.row_sum(total_partial)
        k.store(r.target[r.block], value * total)

    refused(trace, described, "KW0102", "'total_partial' is already taken")


def test_a_constant_meets_a_scalar_of_its_name(trace):
    def described(k: Kernel) -> None:
        """kThreads is the layout's."""
        k.scalar("kThreads", f32)
        Rows(k)

    refused(trace, described, "KW0102", "'kThreads'")


@pytest.mark.parametrize("name", ["a b", "größe", "class", "2x", "_x"])
def test_a_constant_needs_a_name_too(trace, name):
    def described(k: Kernel) -> None:
        """A constant of a bad name."""
        k.constant(name, 3)

    refused(trace, described, "KW0101", repr(name))


@pytest.mark.parametrize("reason", ['say "so"', "a\\", "two\nlines"])
def test_a_reason_is_one_plain_line(trace, reason):
    def described(k: Kernel) -> None:
        """A reason that would break the text."""
        k.constant("size", 3, reason)

    refused(trace, described, "KW0104", "One line")


def test_a_value_that_nothing_reads_is_refused_at_its_line(trace):
    def described(k: Kernel) -> None:
        """A forgotten intermediate."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        forgotten = value * 3.0  # noqa: F841
        k.store(r.target[r.block], value)

    refused(trace, described, "KW0606", "'forgotten' is never used", "forgotten = value * 3.0")


# ---- conditions, numbers, types


def test_a_required_condition_is_checked_and_printed(trace):
    def described(k: Kernel) -> None:
        """A condition over constants."""
        r = Rows(k)
        size = k.constant("size", 24, "an example")
        k.require(size % 8 == 0, "whole vectors")
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value)

    assert 'static_assert(kSize % 8 == 0, "whole vectors");' in text_of(trace(described))


@pytest.mark.parametrize("kind", ["false", "run-time"])
def test_a_required_condition_that_does_not_hold_is_refused(trace, kind):
    def described(k: Kernel) -> None:
        """A wrong condition."""
        r = Rows(k)
        size = k.constant("size", 20, "an example")
        k.require(size % 8 == 0 if kind == "false" else r.rows < 5, "whole vectors")

    refused(trace, described, "KW0703", "whole vectors", "not constant" if kind == "run-time" else "does not hold")


def test_a_number_beyond_fp32_is_refused(trace):
    def described(k: Kernel) -> None:
        """Too large a factor."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value * 1e300)

    refused(trace, described, "KW0701", "1e+300")


def test_functions_take_fp32(trace):
    def described(k: Kernel) -> None:
        """An integer to a function of the special-function unit."""
        r = Rows(k)
        k.rsqrt(r.rows)

    refused(trace, described, "KW0201", "takes f32, got i64")


def test_kept_tiles_have_their_own_type(trace):
    def described(k: Kernel) -> None:
        """Integers and conditions kept over a reduction."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        whole = value.to(i32)
        positive = value > 0.0
        total = k.row_sum(value * value)
        third = whole // 3
        k.store(r.target[r.block], k.where(positive, third.to(f32), total))

    program = lower(trace(described), ARCHITECTURES["sm_90a"]).program
    assert {s.name: s.dtype for s in program.body if isinstance(s, RegisterArray)} == {
        "value": f32, "whole": i32, "positive": boolean, "target_row": f32,
    }  # fmt: skip
    assert "const int third = whole[i] / 3;" in print_kernel(program)


# ---- the shape of the text


def test_values_used_in_one_loop_are_scalars_of_it_and_others_are_arrays(trace):
    def described(k: Kernel) -> None:
        """One value for this loop, one for both."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        kept = value * 2.0
        local = kept + 1.0
        squared = local * local
        total = k.row_sum(squared)
        k.store(r.target[r.block], kept * total)

    text = text_of(trace(described))
    assert "float kept[kVector];" in text and "kept[i] = value[i] * 2.0f;" in text
    assert "const float local = kept[i] + 1.0f;" in text
    assert "float squared[kVector];" in text, "a reduction is a loop of its own"
    assert "target_row[i] = kept[i] * total;" in text


def test_products_inside_a_reduction_are_fused_and_named_ones_are_not(trace):
    def described(k: Kernel) -> None:
        """Both ways to sum squares."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        fused = k.row_sum(value * value)
        square = value * value
        rounded = k.row_sum(square)
        k.store(r.target[r.block], value * (fused - rounded))

    text = text_of(trace(described))
    assert "fused_partial = __fmaf_rn(value[i], value[i], fused_partial);" in text
    assert "rounded_partial += square[i];" in text


def test_without_reductions_no_shuffle_is_spoken_of(trace):
    def described(k: Kernel) -> None:
        """A copy."""
        r = Rows(k)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value)

    text = text_of(trace(described))
    assert "their zeros keep the arithmetic defined." in text and "shuffles." not in text


def test_a_whole_number_of_blocks_needs_no_mask(trace):
    def described(k: Kernel) -> None:
        """A fixed number of rows."""
        source = k.tensor("source", bf16, (64, 128))
        target = k.tensor("target", bf16, (64, 128), access="write")
        layout = k.vector_rows(128)
        block = k.blocks(64, step=layout)
        value = k.load(source[block], layout)
        k.store(target[block], value)

    text = text_of(trace(described))
    assert "in_range" not in text and "= {}" not in text
    assert print_expression(lower(trace(described), ARCHITECTURES["sm_90a"]).program.launch.grid[0]) == "8"


def test_an_i32_extent_is_rounded_up_in_64_bits_where_32_could_overflow(trace):
    def described(k: Kernel) -> None:
        """All rows that an int can count."""
        rows = k.scalar("rows", i32)
        source = k.tensor("source", bf16, (rows, 128))
        target = k.tensor("target", bf16, (rows, 128), access="write")
        layout = k.vector_rows(128)
        block = k.blocks(rows, step=layout)
        value = k.load(source[block], layout)
        k.store(target[block], value)

    grid = lower(trace(described), ARCHITECTURES["sm_90a"]).program.launch.grid[0]
    assert print_expression(grid) == "((long long)rows + kRowsPerBlock - 1) / kRowsPerBlock"


class TestOccupancy:
    def described(self, k: Kernel) -> None:
        """A copy that asks for company."""
        r = Rows(k)
        k.occupancy(blocks_per_sm=16)
        value = k.load(r.source[r.block], r.layout)
        k.store(r.target[r.block], value)

    def test_it_bounds_the_launch_by_name(self, trace):
        text = text_of(trace(self.described))
        assert "__launch_bounds__(kThreads, kBlocksPerSm)" in text
        assert "constexpr int kBlocksPerSm = 16;" in text

    def test_an_sm_that_holds_fewer_refuses_it(self, trace):
        with pytest.raises(KernelError) as caught:
            text_of(trace(self.described), "sm_107a")
        assert caught.value.code == "KW0502"
        assert "16 blocks of 128 threads" in str(caught.value) and "1024 threads" in str(caught.value)


def test_every_constant_and_array_that_is_declared_is_used(trace):
    def described(k: Kernel) -> None:
        """Some of everything."""
        r = Rows(k)
        weight = k.tensor("weight", f32, (128,))
        value = k.load(r.source[r.block], r.layout)
        weights = k.load(weight, r.layout)
        doubled = weights * 2.0
        peak = k.row_mean(value * doubled)
        shifted = k.where(value > peak, value - peak, 0.0)
        k.store(r.target[r.block], k.silu(shifted) * doubled)

    text = text_of(trace(described))
    body = text.partition('extern "C"')[2]
    for name in re.findall(r"(?:float|int|bool|long long) (\w+)(?:\[\w+\])?(?: = [^;]*)?;", body):
        assert len(re.findall(rf"\b{name}\b", body)) > 1, f"{name} is declared and not used"


# ---- handles, operators, parameters


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


class TestConditions:
    """`k.when`: a scalar condition around a part of the program."""

    def described(self, k: Kernel) -> None:
        """Rows are scaled and stored on request."""
        r = Rows(k)
        mode = k.scalar("mode", i32, high=3)
        extra = k.tensor("extra", bf16, (r.rows, 128), access="write")
        value = k.load(r.source[r.block], r.layout)
        doubled = value * 2.0
        with k.when(mode > 1):
            total = k.row_sum(doubled)
            k.store(extra[r.block], doubled * total)
        k.store(r.target[r.block], value)

    def test_it_is_an_if_of_the_text(self, trace):
        text = text_of(trace(self.described))
        head, _, inside = text.partition("  if (mode > 1) {\n")
        assert "float doubled[kVector];" in head, "used inside, so it is an array outside"
        block, _, rest = inside.partition("\n  }\n  if (in_range)")
        assert "const float total = sum_over_lanes<kLanesPerRow>(total_partial);" in block
        assert "      store_bf16x8(extra + offset, extra_row);" in block
        assert "store_bf16x8(target + offset, value);" in rest

    def test_names_of_the_block_end_with_it(self, trace):
        def described(k: Kernel) -> None:
            """The same name in two blocks."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            extra = k.tensor("extra", bf16, (r.rows, 128), access="write")
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode > 1):
                scaled = value * 2.0
                k.store(extra[r.block], scaled)
            with k.when(mode <= 1):
                scaled = value * 3.0
                k.store(r.target[r.block], scaled)

        text = text_of(trace(described))
        assert text.count("float scaled[kVector];") == 2

    @pytest.mark.parametrize("kind", ["tile", "python", "number"])
    def test_the_condition_is_a_scalar_of_the_program(self, trace, kind):
        def described(k: Kernel) -> None:
            """A condition that is none."""
            r = Rows(k)
            value = k.load(r.source[r.block], r.layout)
            with k.when({"tile": value > 0.0, "python": True, "number": r.rows}[kind]):
                k.store(r.target[r.block], value)

        refused(trace, described, "KW0201", "scalar condition", "k.where")

    def test_a_block_that_shapes_a_name_otherwise(self, trace):
        def described(k: Kernel) -> None:
            """A kept tile in one block, a value of the loop in the next, a row factor after both."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            first = k.tensor("first", bf16, (r.rows, 128), access="write")
            second = k.tensor("second", bf16, (r.rows, 128), access="write")
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode == 1):
                part = value * 2.0
                k.store(first[r.block], part)
            with k.when(mode == 2):
                part = value * 3.0
                more = part + 1.0
                k.store(second[r.block], more)
            part = k.row_sum(value)
            k.store(r.target[r.block], value * part)

        text = text_of(trace(described))
        assert "float part[kVector];" in text and "const float part = value[i] * 3.0f;" in text
        assert "more[i] = part + 1.0f;" in text and "target_row[i] = value[i] * part;" in text

    def test_a_value_of_a_block_is_not_taken_for_a_later_parameter(self, trace):
        def described(k: Kernel) -> None:
            """The block's value escapes, and a parameter takes its name."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            extra = k.tensor("extra", bf16, (r.rows, 128), access="write")
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode == 1):
                factor = k.row_sum(value)
                k.store(extra[r.block], value * factor)
            old = factor
            k.scalar("factor", f32)
            k.store(r.target[r.block], value * old)

        refused(trace, described, "KW0412", "'factor'")

    def test_a_parameter_declared_in_a_block_is_the_whole_kernel_s(self, trace):
        def described(k: Kernel) -> None:
            """The parameter's name is taken again."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode == 1):
                extra = k.tensor("extra", bf16, (r.rows, 128), access="write")
                k.store(extra[r.block], value)
            k.scalar("extra", f32)

        refused(trace, described, "KW0102", "'extra' is already taken")

    def test_an_empty_block_is_refused(self, trace):
        def described(k: Kernel) -> None:
            """Nothing inside."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode == 1):
                pass
            k.store(r.target[r.block], value)

        refused(trace, described, "KW0606", "empty")

    def test_a_condition_that_is_never_true_leaves_nothing_behind(self, trace):
        def described(k: Kernel) -> None:
            """A part that limits rule out, with a value of its own."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            extra = k.tensor("extra", bf16, (r.rows, 128), access="write")
            value = k.load(r.source[r.block], r.layout)
            other = k.load(k.tensor("other", bf16, (r.rows, 128))[r.block], r.layout, name="other_row")
            doubled = other * 2.0
            total = k.row_sum(doubled)
            with k.when(mode > 9):
                k.store(extra[r.block], value * total)
            k.store(r.target[r.block], value)

        text = text_of(trace(described))
        body = text.partition('extern "C"')[2].partition("{\n")[2]
        assert not any(name in body for name in ("doubled", "total", "other_row", "extra", "sum_over_lanes"))
        assert "\n\n\n" not in body and "\n\n}" not in body

    def test_a_program_whose_only_store_is_ruled_out_is_refused(self, trace):
        def described(k: Kernel) -> None:
            """Nothing would be stored."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode > 9):
                k.store(r.target[r.block], value)

        refused(trace, described, "KW0605", "prove false")

    def test_a_variant_switch_is_folded_with_its_constant(self, trace):
        def described(k: Kernel) -> None:
            """A constant decides."""
            r = Rows(k)
            gated = k.constant("gated", 1, "the gated variant")
            value = k.load(r.source[r.block], r.layout)
            with k.when(gated == 1):
                k.store(r.target[r.block], value * 2.0)

        text = text_of(trace(described))
        assert "kGated" not in text and "if (in_range) {" in text

    def test_an_unused_value_is_known_by_its_definition(self, trace):
        def described(k: Kernel) -> None:
            """The same name is used in the other block."""
            r = Rows(k)
            mode = k.scalar("mode", i32, high=3)
            extra = k.tensor("extra", bf16, (r.rows, 128), access="write")
            value = k.load(r.source[r.block], r.layout)
            with k.when(mode == 1):
                part = value * 2.0
                k.store(extra[r.block], value)
            with k.when(mode == 2):
                part = value * 3.0
                k.store(r.target[r.block], part)

        refused(trace, described, "KW0606", "'part' is never used", "part = value * 2.0")


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

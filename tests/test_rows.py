"""Row-wise programs: accesses, names, numbers, and the shape of the text. What is not meant is refused."""

from __future__ import annotations

import re

import pytest
from support.rows import HIGH, Rows, refused, text_of

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Kernel, bf16, boolean, f32, i32, i64
from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.emit.kernel import print_kernel
from kernwright.generator.errors import KernelError
from kernwright.generator.ir.statement import RegisterArray
from kernwright.generator.passes.lower import lower

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

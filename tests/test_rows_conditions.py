"""Row-wise programs: `k.when`, the names of its block, and what a folded condition leaves behind."""

from __future__ import annotations

import pytest
from support.rows import Rows, refused, text_of

from kernwright.generator.dsl import Kernel, bf16, f32, i32


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

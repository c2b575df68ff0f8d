"""Names: the author's, read from assignments; refused where C++ or CUDA would misunderstand them (A08)."""

from __future__ import annotations

import pytest

from kernwright.generator.dsl import ALL, Kernel, Value, bf16, f32, i64, program
from kernwright.generator.dsl.program import Registry
from kernwright.generator.errors import KernelError, NameFault, ProgramFault
from kernwright.generator.ir import description as ir

KEYWORDS = [
    "new",
    "int",
    "asm",
    "register",
    "template",
    "and",
    "blockIdx",
    "threadIdx",
    "warpSize",
    "NULL",
    "min",
    "float2",
    "INFINITY",
]
SHAPES_OF_NAMES = ["__x", "_X", "_", "_0", "x__y", "größe", "2x", "a b", ""]
GENERATED = ["row", "column", "offset", "in_range", "i", "load_bf16x8", "sum_over_lanes", "__fmaf_rn"]


def _row_program(k: Kernel, name: str = "x") -> None:
    """A copy of rows."""
    rows = k.scalar("rows", i64, high=1 << 20)
    source = k.tensor(name, bf16, (rows, 128))
    target = k.tensor("target", bf16, (rows, 128), access="write")
    layout = k.vector_rows(128)
    block = k.blocks(rows, step=layout)
    value = k.load(source[block], layout)
    k.store(target[block], value)


@pytest.mark.parametrize("name", KEYWORDS + SHAPES_OF_NAMES)
def test_a_name_that_c_misunderstands_is_refused_with_its_line(trace, name):
    def described(k: Kernel) -> None:
        """A copy of rows."""
        _row_program(k, name)

    with pytest.raises(NameFault) as caught:
        trace(described)
    assert caught.value.code == "KW0101"
    assert repr(name) in str(caught.value)
    assert "tests/test_names.py" in str(caught.value)
    assert "source = k.tensor(name, bf16" in str(caught.value), "the author's line is quoted"


@pytest.mark.parametrize("name", GENERATED)
def test_a_name_of_the_generator_is_refused(trace, name):
    def described(k: Kernel) -> None:
        """A copy of rows."""
        _row_program(k, name)

    with pytest.raises(NameFault) as caught:
        trace(described)
    assert caught.value.code in ("KW0101", "KW0102")
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("pair", [("if_value", "ifv"), ("x", "X"), ("foo", "Foo"), ("x_row", "x_rows")])
def test_near_names_stay_apart(trace, pair):
    def described(k: Kernel) -> None:
        """Two tensors with similar names."""
        rows = k.scalar("rows", i64, high=1 << 20)
        first = k.tensor(pair[0], bf16, (rows, 128))
        second = k.tensor(pair[1], bf16, (rows, 128), access="write")
        layout = k.vector_rows(128)
        block = k.blocks(rows, step=layout)
        value = k.load(first[block], layout)
        k.store(second[block], value)

    description = trace(described)
    assert [p.name for p in description.parameters] == ["rows", *pair]


def test_the_same_name_twice_is_refused_and_both_lines_are_named(trace):
    def described(k: Kernel) -> None:
        """Two tensors with one name."""
        rows = k.scalar("rows", i64, high=1 << 20)
        k.tensor("x", bf16, (rows, 128))
        k.tensor("x", bf16, (rows, 128))

    with pytest.raises(NameFault) as caught:
        trace(described)
    lines = [caught.value.source.line, caught.value.source.line - 1]
    assert caught.value.code == "KW0102"
    assert all(f"test_names.py:{line}" in str(caught.value) for line in lines)


def test_the_registers_of_a_stored_expression_collide_visibly(trace):
    def described(k: Kernel) -> None:
        """The store needs a register tile called target_row; the author took the name."""
        rows = k.scalar("rows", i64, high=1 << 20)
        source = k.tensor("source", bf16, (rows, 128))
        target = k.tensor("target", bf16, (rows, 128), access="write")
        layout = k.vector_rows(128)
        block = k.blocks(rows, step=layout)
        target_row = k.load(source[block], layout)
        k.store(target[block], target_row * 2.0)

    with pytest.raises(NameFault, match="'target_row' is already taken"):
        trace(described)


def test_two_programs_with_one_name_are_refused():
    registry = Registry()

    def same(k: Kernel) -> None:
        """A program."""

    program(family="a_b", name="c", archs=ALL, registry=registry)(same)
    with pytest.raises(ProgramFault) as caught:
        program(family="a", name="b_c", archs=ALL, registry=registry)(same)
    assert caught.value.code == "KW0601"
    assert "a_b_c" in str(caught.value)


def test_a_program_called_main_becomes_a_family_symbol(trace):
    def main(k: Kernel) -> None:
        """A copy of rows."""
        _row_program(k)

    assert trace(main).symbol == "test_main"


class TestNamesFromAssignments:
    """Every way to write an assignment, and the ways that are none."""

    def names(self, trace, function) -> list[str]:
        return [op.name for op in trace(function).body if isinstance(op, ir.LoadTile | ir.Elementwise | ir.RowReduce)]

    def start(self, k: Kernel):
        rows = k.scalar("rows", i64, high=1 << 20)
        source = k.tensor("source", bf16, (rows, 128))
        target = k.tensor("target", bf16, (rows, 128), access="write")
        layout = k.vector_rows(128)
        return source, target, layout, k.blocks(rows, step=layout)

    def test_plain_annotated_tuple_walrus_and_several_on_a_line(self, trace):
        def described(k: Kernel) -> None:
            """Names in every kind of assignment."""
            source, target, layout, block = self.start(k)
            plain = k.load(source[block], layout)
            annotated: Value = k.load(source[block], layout)
            one, two = plain * 2.0, plain * 3.0
            if (walrus := plain * 4.0) is not None:
                pass
            first = plain + 1.0; second = plain + 2.0  # fmt: skip  # noqa: E702
            spread = k.exp2(
                plain * 2.0,
            )
            k.store(target[block], one + two + walrus + first + second + spread + annotated)

        assert self.names(trace, described) == [
            "plain", "annotated", "one", "two", "walrus", "first", "second", "spread", "target_row",
        ]  # fmt: skip

    def test_a_part_of_an_expression_has_no_name_and_is_printed_where_it_is_used(self, trace):
        def described(k: Kernel) -> None:
            """One value of many parts."""
            source, target, layout, block = self.start(k)
            value = k.load(source[block], layout)
            scaled = k.exp2(value * 2.0) * (value + 1.0)
            k.store(target[block], scaled)

        assert self.names(trace, described) == ["value", "scaled"]

    def test_a_load_without_a_name_is_refused(self, trace):
        def described(k: Kernel) -> None:
            """The load stands inside an expression."""
            source, target, layout, block = self.start(k)
            k.store(target[block], k.load(source[block], layout))

        with pytest.raises(NameFault) as caught:
            trace(described)
        assert caught.value.code == "KW0103"

    def test_words_name_what_an_assignment_cannot(self, trace):
        def described(k: Kernel) -> None:
            """A loop of the description, unrolled while it is traced."""
            source, target, layout, block = self.start(k)
            total = k.load(source[block], layout)
            values = [total]
            for step in range(3):
                values.append(k.let(f"power_{step}", values[-1] * 2.0))
            k.store(target[block], values[-1])

        assert self.names(trace, described) == ["total", "power_0", "power_1", "power_2"]

    def test_an_assignment_that_runs_twice_is_refused(self, trace):
        def described(k: Kernel) -> None:
            """The same variable in a loop of the description."""
            source, target, layout, block = self.start(k)
            value = k.load(source[block], layout)
            for _ in range(2):
                doubled = value * 2.0
            k.store(target[block], doubled)

        with pytest.raises(NameFault, match="'doubled' is already taken"):
            trace(described)


def test_an_error_reads_like_a_sentence_with_code_line_and_remedy(trace):
    def described(k: Kernel) -> None:
        """BF16 arithmetic."""
        source, target, layout, block = TestNamesFromAssignments().start(k)
        value = k.load(source[block], layout)
        narrow = value.to(bf16)
        k.store(target[block], narrow * narrow)

    with pytest.raises(KernelError) as caught:
        trace(described)
    lines = str(caught.value).splitlines()
    assert lines[0] == "KW0201 `*` on bf16: arithmetic is done in f32"
    assert lines[1].strip().startswith("tests/test_names.py:")
    assert lines[2].strip() == "k.store(target[block], narrow * narrow)"
    assert lines[-1].strip() == "kernwright explain KW0201"
    assert f32.cpp == "float"

"""Row-wise lowering: what the text says, that offsets are right at the largest legal index (A01), and what is refused."""

from __future__ import annotations

import re
import subprocess

import pytest

from kernwright.generator.arch import ALL, ARCHITECTURES
from kernwright.generator.dsl import MAXIMUM_GRID, Kernel, bf16, f32, i32, i64
from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.emit.kernel import print_kernel, print_statements
from kernwright.generator.errors import ExpressionFault, LayoutFault, TensorFault
from kernwright.generator.ir.digest import digest
from kernwright.generator.ir.program import LoweredProgram
from kernwright.generator.ir.statement import Let
from kernwright.generator.ir.types import DType
from kernwright.generator.passes.lower import lower
from kernwright.generator.pipeline import discover, generate

HOPPER = ARCHITECTURES["sm_90a"]


def rows_program(columns: int = 128, threads: int = 128, dtype: DType = i64, high: int = 1 << 20, access: str = "read"):
    def described(k: Kernel) -> None:
        """Twice every row."""
        rows = k.scalar("rows", dtype, high=high)
        width = k.constant("columns", columns, "one row")
        source = k.tensor("source", bf16, (rows, width), access=access)
        target = k.tensor("target", bf16, (rows, width), access="write")
        layout = k.vector_rows(width, threads=threads)
        block = k.blocks(rows, step=layout)
        value = k.load(source[block], layout)
        k.store(target[block], value * 2.0)

    return described


def lowered(description) -> LoweredProgram:
    return lower(description, HOPPER).program


def norm(name: str = "forward_w_bf16") -> LoweredProgram:
    return lowered(discover()[f"rmsnorm_silu_gate_{name}"].trace())


class TestTheNorm:
    def test_one_text_serves_all_four_architectures(self):
        files = generate().files
        assert sorted(path for path in files if path.startswith("generated/rmsnorm_silu_gate/")) == [
            f"generated/rmsnorm_silu_gate/forward_w_{dtype}{ending}"
            for dtype in ("bf16", "f32")
            for ending in (".cu", "_binding.c")
        ]
        assert [p.arch for p in generate().programs if p.symbol.endswith("w_f32")] == list(ALL)

    def test_the_text_reads_from_top_to_bottom(self):
        text = generate().files["generated/rmsnorm_silu_gate/forward_w_bf16.cu"]
        order = [
            "// y = x * rsqrt(mean(x^2) + eps) * w * silu(z)",
            "constexpr int kColumns = 128;  // one head",
            "constexpr int kRowsPerBlock = kThreads / kLanesPerRow;",
            'static_assert(kColumns % kVector == 0, "',
            "rmsnorm_silu_gate_forward_w_bf16(",
            "// Thread t works on row t / 16 of the block, on columns 8 * (t % 16) + i",
            "const long long offset = row * kColumns + column;",
            "const bool in_range = row < rows;",
            "if (in_range) {\n    load_bf16x8(x + offset, x_row);",
            "mean_square_partial = __fmaf_rn(x_row[i], x_row[i], mean_square_partial);",
            "const float scale = rsqrt_approx(mean_square + eps);",
            "if (in_range) {\n    store_bf16x8(y + offset, y_row);",
        ]
        places = [text.find(line) for line in order]
        assert -1 not in places, order[places.index(-1)]
        assert places == sorted(places)

    def test_nothing_in_the_text_is_left_to_fold(self):
        """Additive zeros and ones are gone; the author's terms stand in the author's order."""
        text = generate().files["generated/rmsnorm_silu_gate/forward_w_bf16.cu"]
        assert not any(noise in text for noise in ("+ 0)", " + 0;", "0 + ", "* 1)", "* 1;", "((", "(int)0"))

    def test_names_are_the_same_three_times(self):
        """Description, text and record speak of the same things."""
        program = norm()
        text = print_kernel(program)
        for name in ("x_row", "z_row", "w_row", "mean_square", "scale", "gate"):
            assert f" {name}" in text
        assert [p.name for p in program.parameters] == ["rows", "x", "z", "w", "y", "eps"]

    def test_fp32_weights_are_two_accesses_of_16_bytes(self):
        text = print_kernel(norm("forward_w_f32"))
        assert "const float* __restrict__ w" in text
        assert "load_f32x8(w + column, w_row);" in text

    def test_text_and_digest_do_not_depend_on_lines_of_the_description(self):
        program = norm()
        assert digest(program) == digest(norm())
        assert not re.search(r"\.py:\d", print_kernel(program)), "a line number would change with every edit above it"
        assert digest(program) != digest(norm("forward_w_f32"))


class TestOffsets:
    """The emitted text itself, compiled as host C++, against Python integers."""

    def evaluate(self, program: LoweredProgram, block: int, thread: int, tmp_path, **scalars: int) -> dict[str, int]:
        lets = tuple(s for s in program.body if isinstance(s, Let) and s.var.dtype in (i32, i64))
        table = "\n".join(
            f"constexpr int {row.constant.name} = {int(row.constant.value)};"
            for row in program.constants
            if row.constant.dtype == i32
        )
        names = [s.var.name for s in lets]
        given = "\n".join(f"const long long {name} = {value}ll;" for name, value in scalars.items())
        shown = "\n".join(f'std::printf("%lld\\n", (long long){name});' for name in names)
        source = tmp_path / "offsets.cpp"
        source.write_text(
            f"#include <cstdio>\nstruct Index {{ unsigned x; }};\n{table}\nint main() {{\n"
            f"const Index blockIdx{{{block}u}}, threadIdx{{{thread}u}};\n{given}\n"
            + "\n".join(print_statements(lets, 1))
            + f"\n{shown}\n}}\n"
        )
        binary = tmp_path / "offsets"
        subprocess.run(
            ["g++", "-std=c++17", "-fsanitize=undefined", "-fno-sanitize-recover", "-o", binary, source], check=True
        )
        printed = subprocess.run([binary], check=True, capture_output=True, text=True).stdout.split()
        return dict(zip(names, map(int, printed), strict=True))

    @pytest.mark.parametrize("rows", [1, 8, 16_777_248, MAXIMUM_GRID * 8])
    @pytest.mark.parametrize("thread", [0, 17, 127])
    def test_the_norm_up_to_its_last_legal_row(self, tmp_path, rows, thread):
        block = (rows + 7) // 8 - 1
        found = self.evaluate(norm(), block, thread, tmp_path)
        row = block * 8 + thread // 16
        assert found == {"column": thread % 16 * 8, "row": row, "offset": row * 128 + thread % 16 * 8}

    def test_small_problems_are_indexed_with_int(self, trace, tmp_path):
        program = lowered(trace(rows_program(dtype=i32, high=(1 << 23) - 8)))
        found = self.evaluate(program, (1 << 20) - 2, 127, tmp_path)
        assert found["offset"] == (((1 << 20) - 2) * 8 + 7) * 128 + 120
        assert next(s for s in program.body if isinstance(s, Let) and s.var.name == "offset").var.dtype == i32

    def test_one_row_more_is_indexed_with_long_long(self, trace):
        program = lowered(trace(rows_program(dtype=i32, high=1 << 24)))
        assert next(s for s in program.body if isinstance(s, Let) and s.var.name == "offset").var.dtype == i64


def test_the_grid_is_refused_before_it_can_overflow(trace):
    with pytest.raises(TensorFault) as caught:
        trace(rows_program(high=MAXIMUM_GRID * 8 + 1))
    assert caught.value.code == "KW0205"
    assert str(MAXIMUM_GRID * 8) in str(caught.value)


def test_a_read_only_load_of_memory_that_the_program_writes_is_refused(trace):
    with pytest.raises(LayoutFault) as caught:
        lowered(trace(rows_program(access="update")))
    assert caught.value.code == "KW0305"


@pytest.mark.parametrize(("columns", "threads", "rows"), [(64, 128, 16), (128, 256, 16), (256, 128, 4), (8, 32, 32)])
def test_other_shapes_of_the_layout(trace, columns, threads, rows):
    program = lowered(trace(rows_program(columns=columns, threads=threads)))
    text = print_kernel(program)
    assert program.launch.threads == threads
    assert f"constexpr int kColumns = {columns};" in text
    assert f"row t / {columns // 8} of the block" in text or columns == 8
    values = {row.constant.name: row.constant.value for row in program.constants}
    assert values["kRowsPerBlock"] == rows


def test_every_lowering_states_types_that_mix_no_widths(trace):
    text = print_kernel(lowered(trace(rows_program())))
    assert "const long long row = (long long)blockIdx.x * kRowsPerBlock + threadIdx.x / kLanesPerRow;" in text
    assert "const int column = (int)threadIdx.x % kLanesPerRow * kVector;" in text
    assert f32.cpp in text


class TestFormulas:
    """Shapes and grids as sympy formulas: converted exactly, or refused by name; the direct way gives equal nodes."""

    def test_the_grid_of_the_norm_is_the_ceiling_that_sympy_says(self):
        import sympy

        from kernwright.generator.ir.symbolic import to_sympy

        program = norm()
        rows = sympy.Symbol("rows", integer=True, nonnegative=True)
        wanted = sympy.ceiling(rows / 8)
        got = to_sympy(program.launch.grid[0])
        (symbol,) = got.free_symbols
        for value in (0, 1, 7, 8, 9, 16_777_248, MAXIMUM_GRID * 8):
            assert got.subs(symbol, value) == wanted.subs(rows, value)

    def test_a_shape_is_a_formula_over_symbols(self, trace):
        def described(k: Kernel) -> None:
            """A workspace of one row for every 32 rows."""
            import sympy

            rows = k.scalar("rows", i64, high=1 << 20)
            source = k.tensor("source", bf16, (rows, 128))
            k.tensor("partial", f32, (sympy.ceiling(rows.symbol / 32), 128), access="write")
            target = k.tensor("target", bf16, (rows, 128), access="write")
            layout = k.vector_rows(128)
            block = k.blocks(rows, step=layout)
            value = k.load(source[block], layout)
            k.store(target[block], value)

        (shape,) = [p.shape for p in trace(described).parameters if p.name == "partial"]
        assert print_expression(shape[0]) == "(rows + 31) / 32"

    def test_a_shape_that_is_no_integer_is_refused(self, trace):
        def described(k: Kernel) -> None:
            """Half a row."""
            rows = k.scalar("rows", i64, high=1 << 20)
            k.tensor("half", f32, (rows.symbol / 2, 128))

        with pytest.raises(ExpressionFault) as caught:
            trace(described)
        assert caught.value.code == "KW0702"
        assert "rows/2" in str(caught.value)
        assert 'k.tensor("half"' in str(caught.value)

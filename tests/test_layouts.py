"""Layouts against maps written down independently, from the tables of the PTX documents."""

from __future__ import annotations

import pytest

from kernwright.generator.ir.layout import (
    SharedLayout,
    TmemLayout,
    TmemLoadRows,
    VectorRows,
    WgmmaAccumulator,
    WgmmaOperandA,
    covers_exactly_once,
)
from kernwright.generator.ir.types import bf16, f32

DISTRIBUTED = [
    VectorRows(128, 128, 8),
    VectorRows(256, 64, 8),
    VectorRows(32, 128, 4),
    WgmmaAccumulator(64, 64),
    WgmmaAccumulator(64, 256),
    WgmmaAccumulator(128, 64),
    WgmmaAccumulator(128, 128, 2),
    WgmmaOperandA(64, 16),
    WgmmaOperandA(64, 128),
    WgmmaOperandA(128, 64),
    WgmmaOperandA(128, 64, 2),
    WgmmaOperandA(256, 32, 2),
    TmemLoadRows(64),
    TmemLoadRows(64, 64),
    TmemLoadRows(64, 128, 2),
    TmemLoadRows(64, 64, 2),
]


@pytest.mark.parametrize("layout", DISTRIBUTED, ids=repr)
def test_every_element_has_exactly_one_holder(layout):
    assert covers_exactly_once(layout)


@pytest.mark.parametrize("layout", DISTRIBUTED, ids=repr)
def test_the_formula_says_what_the_map_does(layout):
    """The text of the formula is evaluated as arithmetic (with / as integer division) and compared with `coordinate`."""
    rows, _, columns = layout.formula.partition("row ")[2].partition(" (warp w reads")[0].partition(", column ")
    compiled = [compile(text.replace("/", "//"), "formula", "eval") for text in (rows, columns)]
    for thread in range(layout.threads):
        for register in range(layout.registers):
            for half in range(layout.packed):
                scope = {"t": thread, "r": register, "h": half}
                row, column = (eval(code, {}, scope) for code in compiled)
                assert (row, column) == layout.coordinate(thread, register, half)


def test_vector_rows_of_the_norm():
    layout = VectorRows(threads=128, columns=128, vector=8)
    assert (layout.rows, layout.lanes_per_row, layout.registers) == (8, 16, 8)
    assert layout.coordinate(0, 0) == (0, 0)
    assert layout.coordinate(15, 7) == (0, 127)
    assert layout.coordinate(16, 0) == (1, 0)
    assert layout.coordinate(127, 7) == (7, 127)


def test_accumulator_fragment_of_wgmma():
    """PTX ISA, wgmma .m64nNk16 accumulator: thread 0 holds (0, 0), (0, 1), (8, 0), (8, 1), then eight columns on."""
    layout = WgmmaAccumulator(64, 16)
    assert [layout.coordinate(0, r) for r in range(8)] == [
        (0, 0),
        (0, 1),
        (8, 0),
        (8, 1),
        (0, 8),
        (0, 9),
        (8, 8),
        (8, 9),
    ]
    assert layout.coordinate(5, 0) == (1, 2)
    assert layout.coordinate(32, 0) == (16, 0)
    assert layout.coordinate(127, 7) == (63, 15)


def test_operand_fragment_of_wgmma_is_the_accumulator_packed_in_pairs():
    """Registers 4b .. 4b + 3 of A hold accumulator values 8b .. 8b + 7: a result becomes an operand without moving lanes."""
    accumulator, operand = WgmmaAccumulator(64, 64), WgmmaOperandA(64, 64)
    for thread in range(128):
        packed = [operand.coordinate(thread, r, h) for r in range(operand.registers) for h in (0, 1)]
        assert packed == [accumulator.coordinate(thread, r) for r in range(accumulator.registers)]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: VectorRows(128, 100, 8), "no whole number of accesses"),
        (lambda: VectorRows(128, 512, 8), "divide a warp of 32"),
        (lambda: VectorRows(100, 128, 8), "whole warps"),
        (lambda: WgmmaAccumulator(96, 64), "64 rows a warpgroup"),
        (lambda: WgmmaAccumulator(64, 12), "steps of 8"),
        (lambda: WgmmaAccumulator(64, 264), "8 to 256"),
        (lambda: WgmmaOperandA(96, 64), "64 rows a warpgroup"),
        (lambda: WgmmaOperandA(64, 64, 2), "64 rows a warpgroup"),
        (lambda: WgmmaOperandA(64, 24), "16 values of K"),
        (lambda: SharedLayout(64, 48, bf16, 128), "swizzle rows"),
        (lambda: SharedLayout(64, 64, bf16, 100), "0, 32, 64 and 128"),
        (lambda: SharedLayout(64, 64, bf16, 128, "N"), "'K' or 'MN'"),
        (lambda: TmemLayout(96, 64), "64 or 128 rows"),
        (lambda: TmemLayout(128, 24), "steps of 16"),
    ],
)
def test_a_layout_that_hardware_does_not_have_is_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize("build", [WgmmaAccumulator, WgmmaOperandA], ids=lambda item: item.__name__)
def test_fragments_of_accumulator_and_operand_are_stacked_alike(build):
    """128 rows in one warpgroup are two m64 fragments, each in the registers of a tile of 64 rows; two warpgroups have one each."""
    one, stacked, apart = build(64, 64), build(128, 64), build(128, 64, 2)
    assert (stacked.registers, apart.registers) == (2 * one.registers, one.registers)
    for thread in range(128):
        for register in range(one.registers):
            row, column = one.coordinate(thread, register)
            assert stacked.coordinate(thread, register) == apart.coordinate(thread, register) == (row, column)
            assert stacked.coordinate(thread, one.registers + register) == (row + 64, column)
            assert apart.coordinate(thread + 128, register) == (row + 64, column)


def test_64_rows_of_tensor_memory_lie_on_16_lanes_of_each_quarter():
    """PTX ISA, tcgen05 data path of M = 64: each warp reads 16 useful lanes."""
    layout, full = TmemLayout(64, 64), TmemLayout(128, 64)
    assert [layout.lane(row) for row in (0, 15, 16, 31, 32, 63)] == [0, 15, 32, 47, 64, 111]
    assert [full.lane(row) for row in range(128)] == list(range(128))
    assert "lane 32 * (m / 16) + m % 16" in layout.formula and "row m on lane m," in full.formula
    readback = TmemLoadRows(64, 64)
    assert {readback.coordinate(thread, 0)[0]: thread for thread in readback.holders} == {
        row: layout.lane(row) for row in range(64)
    }
    assert "lanes from 16 of each warp hold nothing" in readback.formula


def test_stages_of_a_tile_start_on_its_alignment():
    assert [SharedLayout(rows, 64, bf16, 128).stride for rows in (4, 8, 12)] == [1024, 1024, 2048]
    assert SharedLayout(5, 1, f32).stride == 32


def test_tensor_memory_is_allocated_in_powers_of_two():
    assert [TmemLayout(128, n).allocated_columns for n in (16, 32, 48, 64, 80, 256)] == [32, 32, 64, 64, 128, 256]


class TestSharedLayout:
    def test_128_byte_swizzle_moves_chunk_c_of_row_r_to_c_xor_r(self):
        layout = SharedLayout(64, 64, bf16, 128)
        for row in range(64):
            for column in range(64):
                chunk, within = divmod(column * 2, 16)
                assert layout.offset(row, column) == row * 128 + (chunk ^ row % 8) * 16 + within

    @pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
    @pytest.mark.parametrize("major", ["K", "MN"])
    def test_no_two_elements_share_a_byte_and_none_lies_outside(self, swizzle, major):
        layout = SharedLayout(64, 128, bf16, swizzle, major)
        offsets = sorted(layout.offset(r, c) for r in range(64) for c in range(128))
        assert offsets == list(range(0, layout.bytes, 2))

    def test_a_wide_tile_is_panels_side_by_side(self):
        layout = SharedLayout(64, 128, bf16, 128)
        assert (layout.panels, layout.panel_bytes, layout.bytes, layout.alignment) == (2, 8192, 16384, 1024)
        assert layout.offset(0, 64) == 8192

    def test_k_steps_stay_inside_a_swizzle_row_and_then_change_the_panel(self):
        assert [SharedLayout(64, 128, bf16, 128).k_step_bytes(s) for s in range(8)] == [
            0,
            32,
            64,
            96,
            8192,
            8224,
            8256,
            8288,
        ]
        assert [SharedLayout(128, 64, bf16, 128, "MN").k_step_bytes(s) for s in range(4)] == [0, 2048, 4096, 6144]
        assert [SharedLayout(64, 64, bf16, 64).k_step_bytes(s) for s in range(4)] == [0, 32, 4096, 4128]

    def test_fp32_tiles_have_twice_the_panels(self):
        assert SharedLayout(128, 64, f32, 128).panels == 2

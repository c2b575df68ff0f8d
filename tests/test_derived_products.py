"""Products and registers: instructions of a warpgroup, completion, arrays that take turns, and the least registers of a role."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE, described_product, estimate_of, facts

from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, shared

TALL = shared(bf16, (128, 64), swizzle=128)

# ---- instructions


@pytest.mark.parametrize(("arch", "instructions", "shape"), [("sm_90a", 8, "m64n64k16"), ("sm_100a", 4, "m128n64k16")])
def test_a_tile_passed_transposed_has_the_rows_of_the_matrix(trace, arch, instructions, shape):
    described = described_product(left=shared(bf16, (64, 128), swizzle=128), rows=128, turned=True)
    (found,) = facts(trace, described, arch).products
    assert shape in found.instruction and found.instructions == instructions
    assert (found.a.layout.rows, found.a.layout.columns, found.a.layout.major) == (128, 64, "MN")


@pytest.mark.parametrize(("warpgroups", "instructions"), [(1, 8), (2, 4)])
def test_each_warpgroup_issues_for_its_own_rows(trace, warpgroups, instructions):
    derived = facts(trace, described_product(left=TALL, rows=128, warpgroups=warpgroups))
    assert derived.products[0].instructions == instructions


@pytest.mark.parametrize(("rows", "warpgroups", "registers"), [(64, 1, 16), (128, 1, 32), (128, 2, 16)])
def test_a_register_operand_has_all_rows_of_its_warpgroup(trace, rows, warpgroups, registers):
    left = shared(bf16, (rows, 64), swizzle=128)
    derived = facts(trace, described_product(left=left, rows=rows, operand=True, warpgroups=warpgroups))
    assert derived.operands[0].registers == rows * 64 // (128 * warpgroups) // 2 == registers
    assert derived.products[0].a.registers == registers


def test_an_operand_on_tcgen05_lies_in_columns_behind_the_accumulator(trace):
    derived = facts(trace, described_product(left=TALL, rows=128, operand=True), "sm_100a")
    (columns,) = derived.operand_columns
    assert (columns.operand, columns.first_column, columns.columns) == ("query", 64, 32)
    assert derived.tmem_columns == 128, "64 and 32, in one allocation of a power of two"
    assert (derived.operands, derived.registers) == ((), ())


# ---- completion


@pytest.mark.parametrize(
    ("choices", "depth", "wait"),
    [
        ({}, 1, "before result is read; in each step all groups but the newest 1"),
        ({"operand": True}, 0, "before the stage of tiles is released"),
        ({"fetch": True}, 0, "before the stage of tiles is released"),
        ({"use": True}, 0, "before result is read"),
    ],
)
def test_where_a_product_is_waited_for(trace, choices, depth, wait):
    derived = facts(trace, described_product(**choices))
    assert [found for _, found, _ in derived.pipelines[0].in_flight] == [depth]
    assert derived.products[0].wait == wait


def test_no_group_with_register_operands_is_in_flight_over_the_back_edge(trace):
    def described(k: Kernel) -> None:
        """B stands in a buffer, so that no stage is released in the loop."""
        tile = k.buffer("tile", SQUARE)
        result = k.accumulator("result", 64, 64)
        staged = k.buffer("staged", shared(f32, (64, 64), swizzle=128))
        with k.role("use"):
            query = k.fetch(tile, Fragment(64, 64, "operand"), dtype=bf16)
            with k.steps("step", 4):
                k.mma(result, query, tile.T)
            values = result.read()
            k.stage(values, staged)
            k.copy_tma(staged, k.tensor("target", f32, (64, 64), access="write"))

    assert facts(trace, described).products[0].wait == "before the loop's back edge, since an operand is in registers"
    reason = facts(trace, described_product(operand=True)).pipelines[0].in_flight[0][2]
    assert "C7514" in reason


def test_operands_of_two_rings_are_both_released_one_step_late(trace):
    def described(k: Kernel) -> None:
        """A ring for each operand."""
        source = k.tensor("source", bf16, (64, 64))
        left, right = (k.pipeline(name, stages=2, tile=SQUARE) for name in ("left", "right"))
        result = k.accumulator("result", 64, 64)
        with k.role("load"), k.one_thread(), k.steps("step", 4):
            for ring in (left, right):
                with ring.produce() as stage:
                    k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with k.steps("step", 4), left.consume() as a, right.consume() as b:
                k.mma(result, a.tile, b.tile.T)
            final = result.read()
            k.store_tile(k.tensor("target", f32, (64, 64), access="write")[0, 0], final)

    derived = facts(trace, described)
    assert [(item.in_flight[0][1], item.empty.arrivals) for item in derived.pipelines] == [(1, 1), (1, 1)]
    assert derived.products[0].wait == "before result is read; in each step all groups but the newest 1"


# ---- arrays that take turns


def two_products(k: Kernel, *, before: bool, again: bool = False) -> None:
    """A product whose result is the operand of another; the first operand is made before the loop or in it."""
    tile = k.buffer("tile", SQUARE)
    first, second = k.accumulator("first", 64, 64), k.accumulator("second", 64, 64)
    staged = k.buffer("staged", shared(f32, (64, 64), swizzle=128))
    operand = Fragment(64, 64, "operand")
    with k.role("use"):
        if before:
            query = k.fetch(tile, operand, dtype=bf16)
        with k.steps("step", 4):
            if not before:
                query = k.fetch(tile, operand, dtype=bf16)
            k.mma(first, query, tile.T, accumulate=False)
            if again:
                weights = k.fetch(tile, operand, dtype=bf16)
            values = first.read()
            if not again:
                weights = k.operand(values)
            k.mma(second, weights, tile.T)
        final = second.read()
        k.stage(final, staged)
        k.copy_tma(staged, k.tensor("target", f32, (64, 64), access="write"))


@pytest.mark.parametrize(
    ("choices", "groups"),
    [
        ({"before": False}, [("query", "weights")]),
        ({"before": True}, [("query",), ("weights",)]),
        ({"before": False, "again": True}, [("query",), ("weights",)]),
    ],
    ids=["both in the loop", "one before the loop", "made before the wait"],
)
def test_operands_share_registers_when_their_lifetimes_are_apart(trace, choices, groups):
    """A lifetime goes round the loop, and ends where the product that reads the operand is waited for, not where it is issued."""

    def described(k: Kernel) -> None:
        """Two products."""
        two_products(k, **choices)

    derived = facts(trace, described)
    assert [item.operands for item in derived.operands] == groups
    assert [item.accumulators for item in derived.accumulator_registers] == [("second",), ("first",)], (
        "one is read again in the next step"
    )
    estimate = estimate_of(derived, "use")
    assert estimate.total == 64 + 16 * len(groups)
    # Both results and one operand, or two operands where the second is made before the first is done with.
    assert estimate.live == (96 if choices.get("again") else 80)


@pytest.mark.parametrize("used_late", [False, True])
def test_accumulators_share_registers_when_their_lifetimes_are_apart(trace, used_late):
    def described(k: Kernel) -> None:
        """Two results, one after another or used together."""
        tile = k.buffer("tile", SQUARE)
        first, second = k.accumulator("first", 64, 64), k.accumulator("second", 64, 64)
        staged = [k.buffer(f"staged_{n}", shared(f32, (64, 64), swizzle=128)) for n in range(2)]
        with k.role("use"), k.steps("step", 4):
            k.mma(first, tile, tile.T, accumulate=False)
            one = first.read()
            if not used_late:
                k.stage(one, staged[0])
            k.mma(second, tile, tile.T, accumulate=False)
            two = second.read()
            k.stage(two, staged[1])
            if used_late:
                k.stage(one, staged[0])
            k.copy_tma(staged[0], k.tensor("target", f32, (64, 64), access="write"))

    groups = [item.accumulators for item in facts(trace, described).accumulator_registers]
    assert groups == ([("first",), ("second",)] if used_late else [("first", "second")])


def test_tiles_count_as_they_are_stored_and_only_where_they_are_needed(trace):
    def described(k: Kernel) -> None:
        """A BF16 tile, a column factor, and values that one operation uses."""
        tile, factors = k.buffer("tile", SQUARE), k.buffer("factors", shared(f32, (64, 1)))
        staged = k.buffer("staged", shared(f32, (64, 64), swizzle=128))
        with k.role("use"):
            values = k.fetch(tile, LIKE)
            factor = k.fetch(factors, LIKE, Extent.COLUMNS)
            scaled = values * factor
            k.stage(scaled, staged)
            late = k.fetch(tile, LIKE)
            k.stage(late, staged)
            k.copy_tma(staged, k.tensor("target", f32, (64, 64), access="write"))

    # 64 x 64 BF16 over 128 threads are 16 registers, 16 columns of FP32 another 16; `scaled` is made where it is stored.
    assert estimate_of(facts(trace, described), "use").tiles == 32


def test_a_warp_of_another_warpgroup_has_its_budget(trace):
    def described(k: Kernel) -> None:
        """One warp beside the loading thread."""
        source, target = k.tensor("source", bf16, (64, 64)), k.tensor("target", bf16, (64, 64), access="write")
        ring = k.pipeline("tiles", stages=2, tile=SQUARE, gate=shared(f32, (64, 1)))
        with k.role("load", registers=40), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
            k.copy_bulk(k.tensor("gates", f32, (64, 1))[0, 0], stage.gate)
        with k.role("read", shares="load", warp=3), ring.consume() as stage:
            k.fetch(stage.gate, LIKE, Extent.COLUMNS, name="gate")
        with k.role("out"), k.one_thread():
            k.copy_tma(k.buffer("staged", SQUARE), target)

    estimate = estimate_of(facts(trace, described), "read")
    assert (estimate.budget, estimate.tiles) == (40, 2), "64 values over 32 lanes"

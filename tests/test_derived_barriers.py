"""Barriers, hand-overs and memory: who arrives and how often, buffers of copies, tensor memory, tensor maps, steps ahead."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE, buffer_of, described_product, facts, ring_of

from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, i32, shared
from kernwright.generator.emit.outline import print_outline

COLUMN = shared(f32, (64, 1))


def out(k: Kernel, name: str = "target") -> None:
    """Something is stored."""
    k.copy_tma(k.buffer("kept", SQUARE), k.tensor(name, bf16, (64, 64), access="write"))


# ---- arrivals


def test_one_thread_arrives_once(trace):
    def described(k: Kernel) -> None:
        """One number from thread to thread."""
        number = k.scalar("number", f32)
        ring = k.pipeline("numbers", stages=2, tile=shared(f32, (4, 1)))
        with k.role("make"), k.one_thread(), ring.produce() as stage:
            k.stage(k.let("power", k.exp2(number)), stage.tile)
        with k.role("use"):
            with k.one_thread(), ring.consume() as stage:
                k.fetch(stage.tile, None, Extent.SCALAR, name="value")
            out(k)

    ring = facts(trace, described).pipelines[0]
    assert (ring.full.arrivals, ring.empty.arrivals) == (1, 1)
    assert "writes it alone" in ring.full.reason and "reads it: one arrival" in ring.empty.reason


@pytest.mark.parametrize("choices", [{"fetch": True}, {"fetch": True, "use": True}])
def test_a_stage_read_by_threads_and_by_tcgen05_waits_for_both(trace, choices):
    ring = facts(trace, described_product(**choices), "sm_100a").pipelines[0]
    assert ring.empty.arrivals == 4 + 1 and "the commit of its products is one more" in ring.empty.reason
    assert ring.in_flight[0][1] == (0 if "use" in choices else 3)


def test_a_result_read_in_each_step_leaves_nothing_in_flight(trace):
    assert facts(trace, described_product(use=True), "sm_100a").pipelines[0].in_flight[0][1] == 0


@pytest.mark.parametrize("alone", [False, True])
def test_a_stage_filled_by_copies_and_threads_says_who_announces_the_bytes(trace, alone):
    def described(k: Kernel) -> None:
        """TMA brings a tile, the role's threads a factor."""
        source = k.tensor("source", bf16, (64, 64))
        ring = k.pipeline("mixed", stages=2, tile=SQUARE, gate=shared(f32, (4, 1)))
        number = k.scalar("number", f32)
        with k.role("make"), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
            if alone:
                with k.one_thread():
                    k.stage(number, stage.gate)
            else:
                k.stage(number, stage.gate)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, LIKE, name="values")
            out(k)

    full = facts(trace, described).pipelines[0].full
    assert (full.arrivals, full.bytes) == (1 if alone else 4, 8192), "the tile's bytes; the factor is an ordinary store"
    assert full.carrier == ("the elected thread" if alone else "the elected thread of the first warp, for that warp")
    assert "announces the bytes of its copy (expect_tx) before it issues" in full.reason


@pytest.mark.parametrize("vouches", [True, False])
def test_a_role_that_only_vouches_for_a_stage_does_not_arrive(trace, vouches):
    """The relayed reader releases the stage after it has seen the voucher's arrival; without one, the waiter must arrive."""

    def described(k: Kernel) -> None:
        """A warpgroup waits for a tile and tells another."""
        source = k.tensor("source", bf16, (64, 64))
        inputs, made = (
            k.pipeline("inputs", stages=2, tile=SQUARE),
            k.pipeline("made", stages=2, number=shared(f32, (4, 1))),
        )
        number = k.scalar("number", f32)
        with k.role("load"), k.one_thread(), inputs.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("make"), inputs.consume(), made.produce() as stage:
            k.stage(number, stage.number)
        with k.role("use"):
            with made.consume() as factor, inputs.consume(relayed_by=made if vouches else None) as stage:
                k.fetch(stage.tile, LIKE, name="values")
                k.fetch(factor.number, None, Extent.SCALAR, name="read")
            out(k)

    ring = ring_of(facts(trace, described), "inputs")
    assert ring.empty.arrivals == (4 if vouches else 8)
    assert ("only vouches for it: role use releases the stage after" in ring.empty.reason) == vouches


def test_a_store_out_of_a_stage_is_one_arrival(trace):
    def described(k: Kernel) -> None:
        """In and out again."""
        source, target = k.tensor("source", bf16, (64, 64)), k.tensor("target", bf16, (64, 64), access="write")
        ring = k.pipeline("tiles", stages=2, tile=SQUARE)
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"), ring.consume() as stage:
            k.copy_tma(stage.tile, target)

    empty = facts(trace, described).pipelines[0].empty
    assert empty.arrivals == 1 and "once it has seen their reads done" in empty.reason


# ---- steps ahead


def test_a_fetch_and_an_acquisition_one_step_ahead(trace):
    def described(k: Kernel) -> None:
        """A role that reads early and acquires early."""
        source = k.tensor("source", bf16, (64, 64))
        inputs, made = k.pipeline("inputs", stages=2, tile=SQUARE), k.pipeline("made", stages=2, tile=SQUARE)
        with k.role("load"), k.one_thread(), k.steps("step", 4), inputs.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("make"), k.steps("step", 4), inputs.consume() as stage, made.produce(ahead=1) as new:
            values = k.fetch(stage.tile, LIKE, ahead=1)
            k.stage(values, new.tile)
        with k.role("use"):
            with k.steps("step", 4), made.consume() as stage:
                k.fetch(stage.tile, LIKE, name="final")
            out(k)

    derived = facts(trace, described)
    (ahead,) = ring_of(derived, "inputs").ahead
    assert (ahead.role, ahead.names, ahead.steps) == ("make", ("values",), 1) and not ring_of(derived, "made").ahead
    assert ring_of(derived, "made").acquire.startswith("for the next stage at the end of each step, also of the last")
    assert ring_of(derived, "inputs").acquire == "at the start of the block"
    outline = print_outline(derived)
    assert "role make waits 1 step ahead, if there is a next step: it fetches values early" in outline
    assert "produce made, next stage acquired at the end of the step:" in outline and "one step ahead)" in outline


# ---- buffers and named barriers


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_each_copy_of_a_role_has_its_own_buffer_and_barrier(trace, copies):
    derived = facts(trace, described_product(replicas=copies, stages=4))
    slots = {slot.name: (slot.size, slot.stride) for slot in derived.shared}
    assert slots["staged"] == (copies * 64 * 64 * 4, 64 * 64 * 4)
    role = derived.roles[1]
    assert (role.barrier.first, role.barrier.copies, role.barrier.threads) == (1, copies, 128)
    assert buffer_of(derived, "staged").copies == copies


def test_barriers_are_numbered_through_the_roles(trace):
    def described(k: Kernel) -> None:
        """Three roles that store what they write, the last one by one thread, and one that does not."""
        number = k.scalar("number", f32)
        for name, groups, copies in (("first", 1, 2), ("second", 2, 1), ("third", 1, 1)):
            target = k.tensor(f"target_{name}", f32, (4, 1), access="write")
            tile = k.buffer(f"staged_{name}", shared(f32, (1, 4)))
            with k.role(name, warpgroups=groups, replicas=copies):
                if name == "third":
                    with k.one_thread():
                        k.stage(number, tile)
                        k.copy_tma(tile, k.tensor("last", f32, (1, 4), access="write"))
                else:
                    k.stage(number, tile)
                    k.copy_tma(tile, k.tensor(f"out_{name}", f32, (1, 4), access="write"))
            del target

    derived = facts(trace, described)
    found = [(r.barrier.first, r.barrier.copies, r.barrier.threads) if r.barrier else None for r in derived.roles]
    assert found == [(1, 2, 128), (3, 1, 256), None]
    assert buffer_of(derived, "staged_third").barrier == "none: the writer is the issuer"
    assert buffer_of(derived, "staged_second").barrier == "named barrier 3, 256 threads"


@pytest.mark.parametrize("again", [False, True])
def test_a_buffer_is_handed_to_a_store_and_back(trace, again):
    def described(k: Kernel) -> None:
        """Written once, or in each step."""
        tile = k.buffer("tile", SQUARE)
        staged = k.buffer("staged", SQUARE)
        target = k.tensor("target", bf16, (64, 64), access="write")
        with k.role("use"):
            values = k.fetch(tile, LIKE)
            if again:
                with k.steps("step", 4):
                    k.stage(values, staged)
                    k.copy_tma(staged, target)
            else:
                k.stage(values, staged)
                k.copy_tma(staged, target)

    derived = facts(trace, described)
    found = buffer_of(derived, "staged")
    assert found.fence.startswith("fence.proxy.async by each writer, before the barrier")
    assert found.barrier == "named barrier 1, 128 threads" and found.issuer.startswith("one elected thread")
    assert ("before the buffer is written again" in found.wait) == again and "role's end" in found.wait
    assert (buffer_of(derived, "tile").fence, buffer_of(derived, "tile").wait) == ("none", "none")


@pytest.mark.parametrize("product", [False, True])
def test_a_buffer_that_the_role_reads_itself_is_not_written_before_the_reads(trace, product):
    def described(k: Kernel) -> None:
        """Written and read in each step."""
        tile, staged = k.buffer("tile", SQUARE), k.buffer("staged", SQUARE)
        result = k.accumulator("result", 64, 64) if product else None
        with k.role("use"):
            values = k.fetch(tile, LIKE)
            with k.steps("step", 4):
                k.stage(values, staged)
                k.mma(result, staged, staged.T) if product else k.fetch(staged, LIKE, name="again")
        with k.role("out"):
            out(k)

    found = buffer_of(facts(trace, described), "staged")
    what = "the wait for the products" if product else "every thread's reads"
    assert found.wait == f"{what}, then the barrier, before the buffer is written again"
    assert (found.fence == "none") != product and found.barrier == "named barrier 1, 128 threads"


def test_a_buffer_that_a_copy_fills_has_a_barrier(trace):
    def described(k: Kernel) -> None:
        """TMA into a standing tile."""
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            k.copy_tma(k.tensor("source", bf16, (64, 64))[0, 0], tile)
            k.copy_tma(tile, k.tensor("target", bf16, (64, 64), access="write"))

    derived = facts(trace, described)
    assert (buffer_of(derived, "tile").full.arrivals, buffer_of(derived, "tile").full.bytes) == (1, 8192)
    assert {slot.name: slot.size for slot in derived.shared}["tile_full"] == 8


def test_every_stage_is_aligned_as_its_tile(trace):
    def described(k: Kernel) -> None:
        """Tiles of 512 bytes on 1024."""
        source = k.tensor("source", bf16, (4, 64))
        ring = k.pipeline("tiles", stages=2, tile=shared(bf16, (4, 64), swizzle=128))
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, Fragment(4, 64), name="values")
            out(k)

    derived = facts(trace, described)
    slot = next(slot for slot in derived.shared if slot.name == "tiles.tile")
    assert (slot.size, slot.stride, slot.alignment) == (2048, 1024, 1024)
    assert derived.pipelines[0].full.bytes == 512, "bytes that arrive, not bytes that are reserved"


# ---- tensor memory


@pytest.mark.parametrize(("use", "empty"), [(False, None), (True, 4)])
def test_an_accumulator_in_tensor_memory_is_handed_over_by_barriers(trace, use, empty):
    derived = facts(trace, described_product(left=shared(bf16, (128, 64), swizzle=128), rows=128, use=use), "sm_100a")
    (found,) = derived.accumulators
    assert found.full.arrivals == 1 and (found.empty.arrivals if found.empty else None) == empty
    names = [slot.name for slot in derived.shared if slot.name.startswith(("result_", "tensor_"))]
    assert names == ["result_full", *(["result_empty"] if use else []), "tensor_memory"]
    assert derived.shared[-1].size == 4


def test_each_copy_of_a_role_has_columns_and_barriers_of_its_own(trace):
    derived = facts(
        trace, described_product(left=shared(bf16, (128, 64), swizzle=128), rows=128, replicas=2), "sm_100a"
    )
    assert (derived.tmem_columns, derived.accumulators[0].copies) == (128, 2)
    assert {slot.name: slot.size for slot in derived.shared}["result_full"] == 16


@pytest.mark.parametrize(("warpgroups", "registers"), [(1, 64), (2, 32)])
def test_warpgroups_share_the_columns_that_they_read_back(trace, warpgroups, registers):
    left = shared(bf16, (128, 64), swizzle=128)
    (found,) = facts(trace, described_product(left=left, rows=128, warpgroups=warpgroups), "sm_100a").accumulators
    assert (found.readback.threads, found.readback.registers) == (128 * warpgroups, registers)


def test_accumulators_lie_one_after_another_in_one_allocation(trace):
    def described(k: Kernel) -> None:
        """Two products of one stage."""
        source = k.tensor("source", bf16, (128, 64))
        ring = k.pipeline("tiles", stages=2, tile=shared(bf16, (128, 64), swizzle=128))
        results = [k.accumulator(f"result_{n}", 128, 128) for n in range(2)]
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                for result in results:
                    k.mma(result, stage.tile, stage.tile.T)
            out(k)

    derived = facts(trace, described, "sm_103a")
    assert [item.layout.first_column for item in derived.accumulators] == [0, 128]
    assert derived.tmem_columns == 256 and derived.pipelines[0].in_flight[0][1] == 0, "no loop"


# ---- tensor maps and the grid


@pytest.mark.parametrize(
    ("shape", "columns", "rows", "wanted"),
    [
        ((256, 128), 64, 0, (2, (64, 64), None, 1)),
        ((256, 128), 128, 0, (2, (64, 64), None, 2)),
        ((256, 8, 128), 128, 0, (3, (64, 64, 2), 2, 1)),
        ((256, 8, 128), 64, 0, (3, (64, 64, 1), 2, 1)),
        ((8, 256, 128), 128, 1, (3, (64, 64, 1), None, 2)),
        ((4, 256, 8, 128), 128, 1, (4, (64, 64, 1, 2), 3, 1)),
    ],
)
def test_a_tensor_map_counts_heads_in_swizzle_rows(trace, shape, columns, rows, wanted):
    def described(k: Kernel) -> None:
        """A tile of 64 rows."""
        source = k.tensor("source", bf16, shape)
        tile = k.buffer("tile", shared(bf16, (64, columns), swizzle=128))
        with k.role("use"):
            k.copy_tma(source[(0,) * len(shape)], tile, rows=rows)
            k.copy_tma(tile, k.tensor("target", bf16, (64, columns), access="write"))

    found = facts(trace, described).tensor_maps[0]
    assert (found.rank, found.box, found.panel_dimension, found.boxes) == wanted


@pytest.mark.parametrize(("step", "panels"), [(64, 3), (32, None)])
def test_heads_are_counted_in_swizzle_rows_only_where_every_box_starts_at_one(trace, step, panels):
    def described(k: Kernel) -> None:
        """A part of a head, chosen by the block."""
        source = k.tensor("source", bf16, (256, 8, 256))
        part = k.grid("part", 4)
        first = part * step + 64
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            k.copy_tma(source[0, 1, first], tile, rows=0)
            k.copy_tma(tile, k.tensor("target", bf16, (64, 64), access="write"))

    found = facts(trace, described).tensor_maps[0]
    assert (found.rank, found.panel_dimension) == (3, panels and 2)


def test_grid_axes_and_optional_tensors(trace):
    def described(k: Kernel) -> None:
        """A tile for each head, from a tensor that may be absent."""
        heads = k.scalar("heads", i32, low=1, high=64)
        source = k.tensor("source", f32, (heads * 64, 64), folded=True, optional=True)
        target = k.tensor("target", f32, (heads * 64, 64), access="write")
        head, part = k.grid("head", heads), k.grid("part", 2, axis=1)
        result = k.accumulator("result", 64, 64)
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            result.fill(0.0)
            with k.when_present(source):
                start = k.load_tile(source[head * 64 + part, 0], result.layout)
                result.set(start)
            k.mma(result, tile, tile.T)
            final = result.read()
            k.store_tile(target[head * 64, 0], final)

    derived = facts(trace, described)
    assert [(op.index.name, op.axis) for op in derived.description.grid] == [("head", 0), ("part", 1)]
    outline = print_outline(derived)
    for words in ("x: one block for each head below heads", "y: one block for each part below 2", "may be absent"):
        assert words in outline
    assert "if source is there:" in outline
    (estimate,) = derived.registers
    assert (estimate.accumulators, estimate.tiles) == (32, 0), "the start is loaded into the accumulator's registers"

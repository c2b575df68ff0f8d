"""Handles and values that end with their block, operands by type, and what meets before a buffer is read."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE, buffer_of, facts, ring_of
from support.refusal import refuse

from kernwright.generator.dsl import ALL, Extent, Fragment, Kernel, bf16, f32, i32, shared

NUMBER = shared(f32, (4, 1))
STEPS = 4


def out(k: Kernel, name: str = "target") -> None:
    """Something is stored."""
    k.copy_tma(k.buffer("kept", SQUARE), k.tensor(name, bf16, (64, 64), access="write"))


def loaded(k: Kernel, *, stages: int = 2, steps: int | None = STEPS, name: str = "tiles"):
    """A ring that TMA fills, in a loop or once."""
    source = k.tensor(f"source_{name}", bf16, (64, 64))
    ring = k.pipeline(name, stages=stages, tile=SQUARE)
    with k.role(f"load_{name}"), k.one_thread():
        if steps is None:
            with ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
        else:
            with k.steps("step", steps), ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
    return ring


# ---- handles end with their block


@pytest.mark.parametrize("use", ["fetch", "stage", "product", "copy", "bulk", "turned", "tile of the stage"])
def test_a_stage_after_its_block(trace, use):
    def described(k: Kernel) -> None:
        """The handle of the stage before, inside the block of the next one: the tile would be the next one's."""
        source, ring = k.tensor("source", bf16, (64, 64)), k.pipeline("made", stages=2, tile=SQUARE)
        result, kept = k.accumulator("result", 64, 64), k.buffer("start", SQUARE)
        with k.role("make"):
            values = k.fetch(kept, LIKE)
            with ring.produce() as old:
                k.stage(values, old.tile)
                tile, turned = old.tile, old.tile.T
            with ring.produce() as new:
                k.stage(values, new.tile)
                match use:
                    case "fetch":
                        k.fetch(tile, LIKE, name="late")  # fault
                    case "stage":
                        k.stage(values, tile)
                    case "product":
                        k.mma(result, kept, tile.T)
                    case "copy":
                        k.copy_tma(source[0, 0], tile)
                    case "bulk":
                        k.copy_bulk(source[0, 0], tile)
                    case "turned":
                        k.fetch(turned, LIKE, name="late")
                    case _:
                        k.fetch(old.tile, LIKE, name="late")

    words = (
        "tile 'tile' of pipeline 'made' is used outside a block of its pipeline",
        "has ended, and with it the stage",
    )
    if use == "fetch":
        refuse(trace, described, "KW0408", *words, "the produce block at tests/test_schedule_handles.py:")
    else:
        with pytest.raises(Exception, match="KW0408 tile 'tile' of pipeline 'made' is used outside a block"):
            trace(described)


def test_an_outer_stage_inside_the_block_of_the_next_one(trace):
    def described(k: Kernel) -> None:
        """A tile is named by its pipeline: of two open stages it would be the inner one's."""
        ring = loaded(k, stages=3)
        with k.role("use"):
            with k.steps("step", 2), ring.consume() as first, ring.consume() as second:
                k.fetch(second.tile, LIKE, name="right")
                k.fetch(first.tile, LIKE, name="wrong")  # fault
            out(k)

    refuse(
        trace,
        described,
        "KW0408",
        "belongs to an outer stage",
        "takes the next stage of 'tiles'",
        "before the inner consume",
    )


def test_a_standing_buffer_outlives_blocks(trace):
    def described(k: Kernel) -> None:
        """A buffer, and a stage again after an inner block."""
        ring, kept = loaded(k, stages=2, steps=None), k.buffer("start", SQUARE)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(kept, LIKE, name="before")
                k.fetch(stage.tile, LIKE, name="read")
            k.fetch(kept.T, LIKE, name="after")
            out(k)

    assert buffer_of(facts(trace, described), "start").role == "use"


# ---- operands


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_a_register_operand_is_bf16(trace, dtype):
    def described(k: Kernel) -> None:
        """Fetched in the layout of an operand."""
        tile, result = k.buffer("tile", SQUARE), k.accumulator("result", 64, 64)
        with k.role("use"):
            values = k.fetch(tile, Fragment(64, 64, "operand"), dtype=dtype)
            k.mma(result, values, tile.T)  # fault
            out(k)

    if dtype is bf16:
        assert facts(trace, described).operands[0].operands == ("values",)
    else:
        refuse(trace, described, "KW0201", "operand 'values' of f32", "products take bf16", "dtype=bf16")


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("alone", [False, True])
def test_a_buffer_that_threads_write_and_a_product_reads(trace, arch, alone):
    def described(k: Kernel) -> None:
        """Written by all threads or by one; on tcgen05 machines that one issues the product, too."""
        tile, other = k.buffer("tile", shared(bf16, (128, 64), swizzle=128)), k.buffer("other", SQUARE)
        result, number = k.accumulator("result", 128, 64), k.scalar("number", f32)
        with k.role("use"):
            if alone:
                with k.one_thread():
                    values = k.fetch(other, LIKE)
                    k.stage(values * number, other)
            else:
                values = k.fetch(tile, Fragment(128, 64))
                k.stage(values * number, tile)
            k.mma(result, tile, other.T)
            out(k)

    derived_facts = facts(trace, described, arch)
    found = buffer_of(derived_facts, "other" if alone else "tile")
    same = alone and arch != "sm_90a"
    assert (
        found.fence
        == "fence.proxy.async by each writer, before the barrier: ordinary stores, then reads by the products"
    )
    assert found.barrier == ("none: the writer is the issuer" if same else "named barrier 1, 128 threads")
    named = derived_facts.roles[0].barrier
    who = "one thread of a copy has" if alone else "all warps of a copy have"
    reason = None if same else f"{who} written {found.buffer.name}, before it is read"
    assert (named.reason if named else None) == reason


def test_a_buffer_that_one_thread_writes_and_all_read(trace):
    def described(k: Kernel) -> None:
        """They meet in between."""
        tile, number = k.buffer("tile", NUMBER), k.scalar("number", f32)
        with k.role("use"):
            with k.one_thread():
                k.stage(number, tile)
            k.fetch(tile, None, Extent.SCALAR, name="value")
            out(k)

    found = buffer_of(facts(trace, described), "tile")
    assert (found.fence, found.barrier) == ("none", "named barrier 1, 128 threads")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("again", [False, True])
def test_no_product_is_in_flight_while_its_buffer_is_written(trace, arch, again):
    def described(k: Kernel) -> None:
        """The buffer is written before the loop, or in each step."""
        ring, staged = loaded(k, stages=3), k.buffer("staged", shared(bf16, (128, 64), swizzle=128))
        result, start = k.accumulator("result", 128, 64), k.tensor("start", f32, (128, 64))
        with k.role("use"):
            values = k.load_tile(start[0, 0], Fragment(128, 64))
            if not again:
                k.stage(values, staged)
            with k.steps("step", STEPS):
                if again:
                    k.stage(values, staged)
                with ring.consume() as stage:
                    k.mma(result, staged, stage.tile.T)
            out(k)

    result = facts(trace, described, arch)
    depth, reason = ring_of(result, "tiles").in_flight[0][1:]
    assert depth == (0 if again else 1 if arch == "sm_90a" else 3)
    assert ("staged, which the product reads, is written again in each step" in reason) == again
    assert ("the wait for the products, then the barrier" in buffer_of(result, "staged").wait) == again


@pytest.mark.parametrize(
    ("after", "wait"),
    [
        (False, "before the loop's back edge, since staged is written again"),
        (True, "before staged is written again"),
    ],
)
def test_a_product_of_buffers_is_waited_for_before_they_are_written(trace, after, wait):
    def described(k: Kernel) -> None:
        """Written before the product of the step, or behind it."""
        staged, other, result = k.buffer("staged", SQUARE), k.buffer("other", SQUARE), k.accumulator("result", 64, 64)
        with k.role("use"):
            values = k.fetch(other, LIKE)
            with k.steps("step", STEPS):
                if not after:
                    k.stage(values, staged)
                k.mma(result, staged, other.T)
                if after:
                    k.stage(values, staged)
            out(k)

    assert facts(trace, described).products[0].wait == wait


# ---- values end with their role, loop or thread


@pytest.mark.parametrize("kind", ["role", "loop", "thread", "when", "name", "after", "accumulator"])
def test_a_value_outside_the_block_that_names_it(trace, kind):
    def described(k: Kernel) -> None:
        """A Python variable outlives the block, the variable of the text does not."""
        tile, staged, number = k.buffer("tile", SQUARE), k.buffer("staged", SQUARE), k.buffer("number", NUMBER)
        state, ring = k.tensor("state", f32, (64, 64), optional=True), loaded(k)
        result = k.accumulator("result", 64, 64)
        with k.role("first"):
            match kind:
                case "loop":
                    with k.steps("step", STEPS):
                        values = k.fetch(tile, LIKE)
                case "thread":
                    with k.one_thread():
                        values = k.fetch(number, None, Extent.SCALAR)
                case "when":
                    with k.when_present(state):
                        values = k.load_tile(state[0, 0], LIKE)
                case "accumulator":
                    k.mma(result, tile, tile.T)
                    values = result.read()
                case _:
                    values = k.fetch(tile, LIKE)
            if kind in ("loop", "thread", "when"):
                k.stage(values, number if kind == "thread" else staged)
        with k.role("second"):
            if kind == "name":
                old, values = values, k.fetch(staged, LIKE, name="values")
                k.stage(old * 2.0, staged)
            elif kind == "after":
                with k.steps("step", STEPS), ring.consume(after=(values,)) as stage:
                    k.fetch(stage.tile, LIKE, name="read")
            else:
                k.stage(values, staged)  # fault

    words = (
        "value 'values' is used outside the role, loop or block that names it",
        "it is named at tests/test_schedule_handles.py:",
    )
    if kind in ("role", "accumulator"):
        refuse(trace, described, "KW0412", *words, "hand it over in a pipeline")
    else:
        with pytest.raises(Exception, match="KW0412 value 'values' is used outside the role") as caught:
            trace(described)
        assert words[1] in str(caught.value)


def test_values_and_steps_inside_their_blocks(trace):
    def described(k: Kernel) -> None:
        """Grid, scalars, outer values and loops are there in every role; a name may be used again in another one."""
        count = k.scalar("count", i32, low=1, high=64)
        part = k.grid("part", count)
        first = part * 64
        tile, source = k.buffer("tile", SQUARE), k.tensor("source", bf16, (4096, 64))
        targets = [k.tensor(f"target_{n}", f32, (4096, 64), access="write") for n in range(2)]
        staged = k.buffer("staged", SQUARE)
        for target, mine in zip(targets, (tile, staged), strict=True):
            with k.role(f"role_{target.parameter.name}"):
                k.copy_tma(source[first, 0], mine)
                values = k.fetch(mine, LIKE)
                with k.steps("step", count - part) as step:
                    doubled = values * 2.0
                    k.store_tile(target[first + step, 0], k.where(k.rows_of(LIKE) > step, doubled, 0.0))

    assert [item.role for item in facts(trace, described).buffers] == ["role_target_0", "role_target_1"]

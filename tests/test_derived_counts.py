"""Both ends of a pipeline go through the same number of stages in a block, or it is said that nobody compared them."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE, facts
from support.refusal import derived

from kernwright.generator.dsl import Extent, Kernel, bf16, f32, i32, shared
from kernwright.generator.emit.outline import print_outline
from kernwright.generator.kernels.gated_delta_rule.scan_step import scan_step
from kernwright.generator.kernels.tiles.mma_tile import mma_tile

NUMBER = shared(f32, (4, 1))
STEPS = 4
TWICE, ONCE = "twice", "once"


def out(k: Kernel, name: str = "target") -> None:
    """Something is stored."""
    k.copy_tma(k.buffer("kept", SQUARE), k.tensor(name, bf16, (64, 64), access="write"))


# ---- both ends of a pipeline


def ends(made, read, inner: bool = False, first: int = 0):
    """A ring that is filled in `made` steps and read in `read`; a tuple is a loop in a loop or several uses a step."""

    def described(k: Kernel) -> None:
        """Two loops."""
        count, other = k.scalar("count", i32, low=4, high=64), k.scalar("other", i32, low=4, high=64)
        names = {"count": count, "other": other}
        if "half" in (*made, *read):
            names["half"] = k.let("half", count // 2)
        if "less" in (*made, *read):
            names["less"] = k.let("less", count - 1)
        source, ring = k.tensor("source", bf16, (64, 64)), k.pipeline("tiles", stages=2, tile=SQUARE)
        with k.role("load"), k.one_thread():
            turn(
                k, [names.get(n, n) for n in made], ring.produce, lambda stage, _: k.copy_tma(source[0, 0], stage.tile)
            )
        with k.role("use"):
            turn(k, [names.get(n, n) for n in read], ring.consume, lambda stage, n: k.fetch(stage.tile, LIKE, name=n))
            out(k)

    return described


def turn(k: Kernel, counts, block, work, depth: int = 0) -> None:
    """Loops in each other; TWICE is the rest two times in a row, and ONCE one block before it."""
    if not counts:
        with block() as stage:
            work(stage, f"values_{depth}")
    elif counts[0] is TWICE:
        for part in (10, 20):
            turn(k, counts[1:], block, work, depth + part)
    elif counts[0] is ONCE:
        turn(k, [], block, work, depth + 30)
        turn(k, counts[1:], block, work, depth + 40)
    else:
        with k.steps(f"step_{depth}", counts[0]):
            turn(k, counts[1:], block, work, depth + 1)


@pytest.mark.parametrize(
    ("made", "read", "shown"),
    [
        ([4], [5], "produced 4 times and consumed 5 times"),
        ([5], [4], "produced 5 times and consumed 4 times"),
        (["count"], ["count", TWICE], "produced count times and consumed 2 x count times"),
        ([ONCE, "count"], ["count"], "produced 1 + count times and consumed count times"),
        (["count", 3], ["count", 2], "produced 3 x count times and consumed 2 x count times"),
        (["less"], ["count"], "times and consumed count times"),
        ([4], [], "produced 4 times and consumed 1 times"),
    ],
    ids=str,
)
def test_ends_of_a_pipeline_that_certainly_differ(trace, made, read, shown):
    with pytest.raises(Exception, match="KW0413 pipeline 'tiles' is ") as caught:
        derived("sm_90a")(trace(ends(made, read)))
    message = str(caught.value)
    assert shown in message and "would wait for ever" in message and "in role 'use'" in message
    assert "tests/test_derived_counts.py:" in message.splitlines()[1] and "the same loops" in message


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ([4], [2, 2]),
        (["half"], ["half"]),
        (["count", TWICE], [TWICE, "count"]),
        (["count", "other"], ["other", "count"]),
        ([ONCE, "less"], ["count"]),
        (["count", 2], ["count", TWICE]),
        ([4, "count"], [TWICE, 2, "count"]),
    ],
    ids=str,
)
def test_ends_of_a_pipeline_that_are_equal(trace, made, read):
    assert facts(trace, ends(made, read)).pipelines[0].not_compared == ()


@pytest.mark.parametrize(
    ("made", "read"), [(["count"], ["other"]), (["count"], [4]), (["half", TWICE], ["count"])], ids=str
)
def test_ends_of_a_pipeline_that_cannot_be_compared_are_reported(trace, made, read):
    result = facts(trace, ends(made, read))
    (note,) = result.pipelines[0].not_compared
    assert note in print_outline(result) and "produced by role load" in note and "not compared" in note


def test_what_two_roles_fetch_under_one_name_is_not_equal(trace):
    def described(k: Kernel) -> None:
        """Both read a number of their own and call it alike."""
        source, ring = k.tensor("source", bf16, (64, 64)), k.pipeline("tiles", stages=2, tile=SQUARE)
        mine, other = k.buffer("mine", NUMBER), k.buffer("other", NUMBER)
        with k.role("load"), k.one_thread():
            bound = k.let("bound", k.fetch(mine, None, Extent.SCALAR, name="number").to(i32))
            with k.steps("step", bound), ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            bound = k.let("bound", k.fetch(other, None, Extent.SCALAR, name="number").to(i32))
            with k.steps("step", bound), ring.consume() as stage:
                k.fetch(stage.tile, LIKE, name="values")
            out(k)

    (note,) = facts(trace, described).pipelines[0].not_compared
    assert "load.number" in note and "use.number" in note


@pytest.mark.parametrize("inner", [False, True])
def test_a_loop_over_the_step_around_it(trace, inner):
    """A triangle on both sides is the same number; a triangle and half a square are not compared."""

    def described(k: Kernel) -> None:
        """Loops whose end is a step."""
        source, ring = k.tensor("source", bf16, (64, 64)), k.pipeline("tiles", stages=2, tile=SQUARE)
        with k.role("load"), k.one_thread(), k.steps("line", 4) as line, k.steps("part", line), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with k.steps("line", 4) as line, k.steps("piece", line if inner else 2), ring.consume() as stage:
                k.fetch(stage.tile, LIKE, name="values")
            out(k)

    assert bool(facts(trace, described).pipelines[0].not_compared) != inner


@pytest.mark.parametrize("variant", [{"tile": {}}, {"tile": {"stages": 2}}])
def test_the_shipped_tile_is_compared(trace, variant):
    assert [f.not_compared for f in facts_of(trace, mma_tile, variant)] == [()]


@pytest.mark.parametrize("variant", [{}, {"values": 128}, {"load_p": True}])
def test_the_scan_is_compared(trace, variant):
    assert {f.not_compared for f in facts_of(trace, scan_step, {"scan": variant}, archs=("sm_90a",))} == {()}


def facts_of(trace, function, variants, **arguments):
    """The pipelines of a program of the tree."""
    return facts(lambda described: trace(described, variants=variants, **arguments), function).pipelines

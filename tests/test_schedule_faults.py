"""What an author may get wrong in a schedule: pipelines, roles, budgets, limits of the machine."""

from __future__ import annotations

import pytest
from support.refusal import derived, refuse

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, shared
from kernwright.generator.errors import KernelError
from kernwright.generator.passes.derive import derive

TILE = shared(bf16, (64, 64), swizzle=128)


def tensors(k: Kernel):
    """A source, a target, and a way to have a store in the program."""
    return k.tensor("source", bf16, (64, 256)), k.tensor("target", bf16, (64, 64), access="write")


def store(k: Kernel, target) -> None:
    k.copy_tma(k.buffer("staged", TILE), target)


# ---- KW0401: producers and consumers


def test_a_pipeline_that_nobody_fills(trace):
    def described(k: Kernel) -> None:
        """Only read."""
        _, target = tensors(k)
        ring = k.pipeline("tiles", stages=2, tile=TILE)  # fault
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, Fragment(64, 64), name="values")
            store(k, target)

    refuse(
        trace,
        described,
        "KW0401",
        "pipeline 'tiles' is filled by no role",
        "Exactly one role fills a stage",
        after=derived("sm_90a"),
    )


def test_a_pipeline_that_two_roles_fill(trace):
    def described(k: Kernel) -> None:
        """Filled twice."""
        source, target = tensors(k)
        ring = k.pipeline("tiles", stages=2, tile=TILE)  # fault
        for name in ("first", "second"):
            with k.role(name), k.one_thread(), ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, Fragment(64, 64), name="values")
            store(k, target)

    refuse(trace, described, "KW0401", "pipeline 'tiles' is filled by first, second", after=derived("sm_90a"))


def test_a_pipeline_that_nobody_reads(trace):
    def described(k: Kernel) -> None:
        """Only filled."""
        source, target = tensors(k)
        ring = k.pipeline("tiles", stages=2, tile=TILE)  # fault
        with k.role("load"):
            with ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
            store(k, target)

    refuse(
        trace,
        described,
        "KW0401",
        "pipeline 'tiles' is read by no role",
        "wait for ever for a free stage",
        after=derived("sm_100a"),
    )


def test_a_pipeline_without_stages(trace):
    def described(k: Kernel) -> None:
        """No stage."""
        k.pipeline("tiles", stages=0, tile=TILE)  # fault

    refuse(trace, described, "KW0401", "pipeline 'tiles' needs at least one stage and one tile")


def test_an_accumulator_that_two_roles_write(trace):
    def described(k: Kernel) -> None:
        """Two roles into one accumulator."""
        source, target = tensors(k)
        ring = k.pipeline("tiles", stages=2, tile=TILE)
        result = k.accumulator("result", 64, 64)  # fault
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        for name in ("first", "second"):
            with k.role(name), ring.consume() as stage:
                k.mma(result, stage.tile, stage.tile.T)
        with k.role("out"):
            store(k, target)

    refuse(
        trace, described, "KW0401", "accumulator 'result' is written by 2 roles", "exactly one", after=derived("sm_90a")
    )


# ---- KW0402: stages


def test_a_stage_with_a_tile_too_few(trace):
    def described(k: Kernel) -> None:
        """The second tile is never copied."""
        source, target = tensors(k)
        ring = k.pipeline("tiles", stages=2, left=TILE, right=TILE)
        with k.role("load"), k.one_thread():
            with ring.produce() as stage:  # fault
                k.copy_tma(source[0, 0], stage.left)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.left, Fragment(64, 64), name="values")
            store(k, target)

    words = ("in role 'load'", "written: left; the stage has left, right.", "exactly once in each produce block")
    refuse(
        trace, described, "KW0402", "stage of pipeline 'tiles' is filled incompletely", *words, after=derived("sm_90a")
    )


def test_a_tile_that_the_stage_has_not(trace):
    def described(k: Kernel) -> None:
        """A third tile."""
        source, _ = tensors(k)
        ring = k.pipeline("tiles", stages=2, left=TILE, right=TILE)
        with k.role("load"), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.middle)  # fault

    refuse(trace, described, "KW0402", "pipeline 'tiles' has no tile 'middle'", "Its tiles are left, right.")


# ---- KW0403: roles


def test_work_outside_a_role(trace):
    def described(k: Kernel) -> None:
        """Everybody would store."""
        _, target = tensors(k)
        store(k, target)

    with pytest.raises(KernelError) as caught:
        trace(described)
    message = str(caught.value)
    assert caught.value.code == "KW0403" and "copy_tma outside a role" in message
    assert 'Put it inside `with k.role("name", ...):`.' in message and "tests/test_schedule_faults.py:" in message


def test_a_role_inside_a_role(trace):
    def described(k: Kernel) -> None:
        """Nested."""
        with k.role("outer"):
            with k.role("inner"):  # fault
                pass

    refuse(trace, described, "KW0403", "role 'inner' inside role 'outer'", "Roles stand side by side.")


def test_a_role_in_an_unknown_warpgroup(trace):
    def described(k: Kernel) -> None:
        """Nobody is called load."""
        with k.role("factors", shares="load", warp=1):  # fault
            pass

    refuse(trace, described, "KW0403", "role 'factors' shares the warpgroup of unknown role 'load'")


# ---- KW0404: register budgets


@pytest.mark.parametrize("budget", [100, 16, 264])
def test_a_budget_that_setmaxnreg_cannot_take(trace, budget):
    def described(k: Kernel) -> None:
        """Not a multiple of 8, or out of range."""
        with k.role("load", registers=budget):  # fault
            pass

    refuse(trace, described, "KW0404", f"role 'load': {budget} registers", "a multiple of 8 in 24..256")


def test_budgets_that_exceed_the_launch(trace):
    def described(k: Kernel) -> None:
        """Two blocks an SM give two warpgroups 2 x 128 registers a lane."""
        _, target = tensors(k)
        k.occupancy(blocks_per_sm=2)
        with k.role("first", registers=136), k.one_thread():
            store(k, target)
        with k.role("second", registers=128):
            pass

    words = ("1 x 136 + 1 x 128 = 264 registers a lane", "2 blocks an SM", "2 x 128 = 256", "Lower a budget")
    refuse(
        trace, described, "KW0404", "register budgets of 'test_described' do not fit", *words, after=derived("sm_90a")
    )


# ---- KW0405 and KW0406: depth and relays


def test_fewer_stages_than_groups_in_flight(trace):
    def described(k: Kernel) -> None:
        """One stage and one group in flight."""
        source, target = tensors(k)
        ring = k.pipeline("tiles", stages=1, tile=TILE)  # fault
        result = k.accumulator("result", 64, 64)
        with k.role("load"), k.one_thread(), k.steps("step", 4), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with k.steps("step", 4), ring.consume() as stage:
                k.mma(result, stage.tile, stage.tile.T)
            store(k, target)

    words = (
        "role 'use' keeps 1 product in flight",
        "stage k - 1 is released while product k runs",
        "Use at least 2 stages.",
    )
    refuse(trace, described, "KW0405", "pipeline 'tiles' has 1 stage", *words, after=derived("sm_90a"))
    assert derive(trace(described), ARCHITECTURES["sm_100a"]).pipelines[0].pipeline.stages == 1, (
        "a commit needs no second stage"
    )


@pytest.mark.parametrize("broken", ["maker", "reader"])
def test_a_relay_that_vouches_for_nothing(trace, broken):
    def described(k: Kernel) -> None:
        """The maker does not wait for the inputs, or the reader does not wait for the maker."""
        source, target = tensors(k)
        inputs = k.pipeline("inputs", stages=2, tile=TILE)
        made = k.pipeline("made", stages=2, factor=shared(f32, (64, 1)))
        with k.role("load"), k.one_thread(), inputs.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("make"):
            if broken == "maker":
                with made.produce() as out:
                    k.stage(
                        k.fetch(
                            k.buffer("numbers", shared(f32, (64, 1))), Fragment(64, 64), Extent.COLUMNS, name="number"
                        ),
                        out.factor,
                    )
            else:
                with inputs.consume(), made.produce() as out:
                    k.stage(
                        k.fetch(
                            k.buffer("numbers", shared(f32, (64, 1))), Fragment(64, 64), Extent.COLUMNS, name="number"
                        ),
                        out.factor,
                    )
        with k.role("use"):
            if broken == "reader":
                with made.consume():
                    pass
            else:
                made_block = made.consume()
                made_block.__enter__()
            with inputs.consume(relayed_by=made) as stage:  # fault
                k.fetch(stage.tile, Fragment(64, 64), name="values")
            if broken == "maker":
                made_block.__exit__(None, None, None)
            store(k, target)

    words = ("in role 'use'", "role 'make' must consume 'inputs' around producing 'made'", "Drop relayed_by")
    refuse(trace, described, "KW0406", "pipeline 'made' does not vouch for 'inputs'", *words, after=derived("sm_90a"))


# ---- KW05: limits


@pytest.mark.parametrize(
    ("arch", "stages", "limit"), [("sm_90a", 29, 232448), ("sm_100a", 29, 232448), ("sm_107a", 41, 334848)]
)
def test_shared_memory_over_the_limit(trace, arch, stages, limit):
    def described(k: Kernel) -> None:
        """A ring of 8192-byte tiles and a buffer."""
        source, target = tensors(k)
        ring = k.pipeline("tiles", stages=stages, tile=TILE)
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, Fragment(64, 64), name="values")
            store(k, target)

    needed = (stages + 1) * 8192 + 2 * 8 * stages
    words = (
        f"needs {needed} bytes of shared memory",
        f"the limit is {limit} bytes",
        f"tiles.tile ({stages * 8192})",
        "Use fewer stages",
    )
    refuse(trace, described, "KW0501", *words, f"on {arch}", after=derived(arch))


def test_more_than_eight_warpgroups(trace):
    def described(k: Kernel) -> None:
        """Nine of them."""
        with k.role("first", warpgroups=8):
            pass
        with k.role("second"):  # fault
            pass

    refuse(trace, described, "KW0502", "role 'second' makes more than 8 warpgroups", "at most 1024 threads")


def test_more_blocks_than_an_sm_holds(trace):
    def described(k: Kernel) -> None:
        """33 of them."""
        k.occupancy(33)  # fault

    refuse(trace, described, "KW0502", "33 blocks an SM", "at most 32 blocks")


def test_tensor_memory_over_the_limit(trace):
    def described(k: Kernel) -> None:
        """Three accumulators of 256 columns."""
        source, target = tensors(k)
        ring = k.pipeline(
            "tiles", stages=2, a=shared(bf16, (128, 64), swizzle=128), b=shared(bf16, (256, 64), swizzle=128)
        )
        results = [k.accumulator(f"result_{index}", 128, 256) for index in range(3)]
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.a)
            k.copy_tma(source[0, 0], stage.b)
        with k.role("use"):
            with ring.consume() as stage:
                for result in results:
                    k.mma(result, stage.a, stage.b.T)
            store(k, target)

    refuse(trace, described, "KW0503", "768 columns of tensor memory", "sm_100a has 512.", after=derived("sm_100a"))

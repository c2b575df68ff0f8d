"""What an author may get wrong with warps, registers, stages and the limits of an SM."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE, described_product, product
from support.refusal import derived, refuse

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Kernel, bf16, f32, i32, shared
from kernwright.generator.passes.derive.roles import LEAST_REGISTERS


def out(k: Kernel) -> None:
    """Something is stored."""
    k.copy_tma(k.buffer("kept", SQUARE), k.tensor("target", bf16, (64, 64), access="write"))


# ---- KW0403: warps and grid axes


@pytest.mark.parametrize("warp", [0, 4, 9, -1])
def test_a_role_inside_a_warpgroup_is_one_of_its_other_warps(trace, warp):
    def described(k: Kernel) -> None:
        """A warp that the warpgroup has not, or that has work already."""
        with k.role("load"), k.one_thread():
            pass
        with k.role("factors", shares="load", warp=warp):  # fault
            pass

    refuse(
        trace, described, "KW0403", f"role 'factors' is warp {warp} of role 'load'", "warps 0 .. 3", "warp 0 is that of"
    )


def test_two_roles_in_one_warp(trace):
    def described(k: Kernel) -> None:
        """Both are warp 1."""
        with k.role("load"), k.one_thread():
            pass
        with k.role("first", shares="load", warp=1):
            pass
        with k.role("second", shares="load", warp=1):  # fault
            pass

    refuse(trace, described, "KW0403", "role 'second' is warp 1 of role 'load'", "role 'first' has warp 1")


def test_a_host_that_works_with_all_its_warps(trace):
    def described(k: Kernel) -> None:
        """Warp 1 would have two roles."""
        tile = k.buffer("tile", SQUARE)
        with k.role("load"):
            k.fetch(tile, LIKE, name="values")  # fault
        with k.role("factors", shares="load", warp=1):
            pass
        with k.role("use"):
            out(k)

    words = ("role 'load' works with all warps", "role 'factors' has warp 1 of it", "with k.one_thread()")
    refuse(trace, described, "KW0403", *words, after=derived("sm_90a"))


def test_grid_axes_out_of_order(trace):
    def described(k: Kernel) -> None:
        """The second one first."""
        k.grid("head", 4, axis=1)  # fault

    refuse(trace, described, "KW0403", "grid axis 1 is declared out of order")


def test_a_grid_axis_of_too_many_blocks(trace):
    def described(k: Kernel) -> None:
        """70000 along y."""
        k.grid("head", 4)
        k.grid("part", k.scalar("parts", i32, high=70000), axis=1)  # fault

    refuse(trace, described, "KW0205", "axis 1 has at most 65535 blocks", "'part' may have 70000")


# ---- KW0404 and KW0407: registers


@pytest.mark.parametrize("arch", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_what_an_sm_holds_leaves_every_thread_enough_registers(arch):
    """So the check of threads is the check of registers at launch: no accepted occupancy gives less than setmaxnreg takes."""
    assert arch.registers_per_sm // arch.threads_per_sm >= LEAST_REGISTERS == 24


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_budgets_count_only_where_accumulators_are_in_registers(trace, arch):
    def described(k: Kernel) -> None:
        """More than the launch gives."""
        k.occupancy(2)
        product(k, registers=200)

    if arch == "sm_100a":
        assert derived(arch)(trace(described)).roles[1].change.startswith("unchanged")
    else:
        refuse(trace, described, "KW0404", "1 x 128 + 1 x 200 = 328 registers a lane", after=derived(arch))


def test_a_role_that_needs_more_than_its_budget(trace):
    def described(k: Kernel) -> None:
        """128 accumulator registers in a budget of 120."""
        source = k.tensor("source", bf16, (128, 64))
        ring = k.pipeline(
            "tiles", stages=2, a=shared(bf16, (128, 64), swizzle=128), b=shared(bf16, (128, 64), swizzle=128)
        )
        result = k.accumulator("result", 128, 128)
        with k.role("load"), k.one_thread(), k.steps("step", 4), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.a)
            k.copy_tma(source[0, 0], stage.b)
        with k.role("use", registers=120):  # fault
            with k.steps("step", 4), ring.consume() as stage:
                k.mma(result, stage.a, stage.b.T)
            out(k)

    words = ("role 'use' needs at least 128 registers and has 120", "arrays of 128 (accumulators), 0 (operands)")
    refuse(trace, described, "KW0407", *words, "Raise registers=", after=derived("sm_90a"))
    assert derived("sm_100a")(trace(described)).registers == (), "there they are in tensor memory"


# ---- KW0408 and KW0409: who may use what


def ring_and_source(k: Kernel):
    """A filled ring of one tile."""
    source = k.tensor("source", bf16, (64, 64))
    ring = k.pipeline("tiles", stages=2, tile=SQUARE)
    with k.role("load"), k.one_thread(), ring.produce() as stage:
        k.copy_tma(source[0, 0], stage.tile)
    return ring, stage


def test_writing_to_a_consumed_stage(trace):
    def described(k: Kernel) -> None:
        """The result replaces the input."""
        ring, _ = ring_and_source(k)
        with k.role("use"):
            with ring.consume() as stage:
                values = k.fetch(stage.tile, LIKE)
                k.stage(values, stage.tile)  # fault
            out(k)

    words = ("tile 'tile' of pipeline 'tiles' is written to a stage that the role consumes", "in role 'use'")
    refuse(trace, described, "KW0408", *words, "may still be reading it", after=derived("sm_90a"))


def test_using_a_stage_outside_its_block(trace):
    def described(k: Kernel) -> None:
        """Read without waiting."""
        ring, left = ring_and_source(k)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, LIKE, name="values")
            k.fetch(left.tile, LIKE, name="late")  # fault
            out(k)

    refuse(
        trace,
        described,
        "KW0408",
        "is used outside a block of its pipeline",
        "tiles.consume()",
        after=derived("sm_90a"),
    )


def test_a_buffer_of_two_roles(trace):
    def described(k: Kernel) -> None:
        """Written here, stored there."""
        tile, other = k.buffer("tile", SQUARE), k.buffer("other", SQUARE)
        with k.role("make"):
            values = k.fetch(other, LIKE)
            k.stage(values, tile)
        with k.role("use"):
            k.copy_tma(tile, k.tensor("target", bf16, (64, 64), access="write"))  # fault

    words = ("buffer 'tile' is used by roles 'make' and 'use'", "hand the tile over in a pipeline")
    refuse(trace, described, "KW0409", *words, after=derived("sm_90a"))


# ---- KW0410: steps ahead


@pytest.mark.parametrize("what", ["fetch", "produce", "two steps"])
def test_ahead_of_nothing(trace, what):
    def described(k: Kernel) -> None:
        """No loop, or more than one step."""
        ring, _ = ring_and_source(k)
        with k.role("use"):
            if what == "produce":
                ring.produce(ahead=1).__enter__()  # fault
            elif what == "fetch":
                with ring.consume() as stage:
                    k.fetch(stage.tile, LIKE, ahead=1, name="values")
            else:
                with k.steps("step", 4), ring.consume() as stage:
                    k.fetch(stage.tile, LIKE, ahead=2, name="values")

    if what == "produce":
        refuse(trace, described, "KW0410", "produce of 'tiles' cannot be 1 steps ahead", "Use ahead=1 inside")
    else:
        with pytest.raises(Exception, match=r"KW0410 fetch of 'tile' cannot be [12] steps ahead"):
            trace(described)


def test_a_fetch_ahead_with_one_stage(trace):
    def described(k: Kernel) -> None:
        """The next stage is the one that is held."""
        source = k.tensor("source", bf16, (64, 64))
        ring = k.pipeline("tiles", stages=1, tile=SQUARE)  # fault
        with k.role("load"), k.one_thread(), k.steps("step", 4), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with k.steps("step", 4), ring.consume() as stage:
                k.fetch(stage.tile, LIKE, ahead=1, name="values")
            out(k)

    words = ("pipeline 'tiles' has 1 stage", "role 'use' fetches 'values' 1 step ahead", "Use at least 2 stages.")
    refuse(trace, described, "KW0405", *words, after=derived("sm_90a"))


def test_a_fetch_ahead_of_a_stage_that_the_loop_does_not_change(trace):
    def described(k: Kernel) -> None:
        """The loop stands inside the consume block."""
        ring, _ = ring_and_source(k)
        with k.role("use"):
            with ring.consume() as stage, k.steps("step", 4):
                k.fetch(stage.tile, LIKE, ahead=1, name="values")  # fault
            out(k)

    words = ("fetch of 'tile' has no stage of the next step", "Put the consume block of the tile inside the loop")
    refuse(trace, described, "KW0410", *words, after=derived("sm_90a"))


@pytest.mark.parametrize("ahead", [False, True])
def test_copies_of_a_role_hold_a_stage_each(trace, ahead):
    """With two copies that release one step late, or read one step early, two stages are never free at the same time."""

    def described(k: Kernel) -> None:
        """Two copies, two stages."""
        source = k.tensor("source", bf16, (64, 64))
        ring = k.pipeline("tiles", stages=2, tile=SQUARE)  # fault
        result = k.accumulator("result", 64, 64)
        with k.role("load"), k.one_thread(), k.steps("step", 4), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use", replicas=2), k.steps("step", 4), ring.consume() as stage:
            k.fetch(stage.tile, LIKE, ahead=1, name="values") if ahead else k.mma(result, stage.tile, stage.tile.T)
        with k.role("out"):
            out(k)

    what = "fetches 'values' 1 step ahead" if ahead else "keeps 1 product in flight"
    refuse(trace, described, "KW0405", "'tiles' has 2 stages", what, "Use at least 3 stages.", after=derived("sm_90a"))


# ---- KW0401, KW0402 and KW0302: who does what


def test_a_pipeline_that_turns_only_with_an_optional_tensor(trace):
    def described(k: Kernel) -> None:
        """The loader does not know that nobody reads."""
        state = k.tensor("state", f32, (64, 64), optional=True)
        ring, _ = ring_and_source(k)
        with k.role("use"):
            with k.when_present(state):
                with ring.consume() as stage:  # fault
                    k.fetch(stage.tile, LIKE, name="values")
            out(k)

    words = ("pipeline 'tiles' is used only if 'state' is there", "around `when_present`, not inside")
    refuse(trace, described, "KW0401", *words, after=derived("sm_90a"))


def test_an_accumulator_that_another_role_reads(trace):
    def described(k: Kernel) -> None:
        """Its registers are not there."""
        ring, _ = ring_and_source(k)
        result = k.accumulator("result", 64, 64)
        with k.role("use"), ring.consume() as stage:
            k.mma(result, stage.tile, stage.tile.T)
        with k.role("out"):
            result.read(name="values")  # fault
            out(k)

    words = ("accumulator 'result' of role 'use' is used by role 'out'", "hand the values over in a pipeline")
    refuse(trace, described, "KW0401", *words, after=derived("sm_90a"))


@pytest.mark.parametrize(("arch", "choice"), [("sm_90a", "thread"), ("sm_90a", "warp"), ("sm_100a", "warp")])
def test_a_product_or_a_result_of_less_than_a_warpgroup(trace, arch, choice):
    def described(k: Kernel) -> None:
        """wgmma in one thread or warp; tensor memory read by one warp."""
        source = k.tensor("source", bf16, (64, 64))
        ring = k.pipeline("tiles", stages=2, tile=SQUARE)
        result = k.accumulator("result", 64, 64)
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        if choice == "thread":
            with k.role("use"), k.one_thread(), ring.consume() as stage:
                k.mma(result, stage.tile, stage.tile.T)
        else:
            with k.role("use", shares="load", warp=1), ring.consume() as stage:
                k.mma(result, stage.tile, stage.tile.T)
                result.read(name="values")
        with k.role("out"):
            out(k)

    with pytest.raises(Exception, match="KW0302 accumulator 'result' needs a whole warpgroup") as caught:
        derived(arch)(trace(described))
    assert f"has {'one thread' if choice == 'thread' else 'one warp'} here" in str(caught.value)


def test_stages_that_are_filled_in_two_ways(trace):
    def described(k: Kernel) -> None:
        """The first stage by TMA, the others by threads."""
        source = k.tensor("source", bf16, (64, 64))
        ring = k.pipeline("tiles", stages=2, tile=SQUARE)
        kept = k.buffer("numbers", SQUARE)
        with k.role("load"):
            values = k.fetch(kept, LIKE)
            with ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
            with ring.produce() as stage:  # fault
                k.stage(values, stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, LIKE, name="read")
            out(k)

    words = (
        "stages of pipeline 'tiles' are filled in two ways",
        "in role 'load'",
        "arrivals and bytes of a phase are fixed",
    )
    refuse(trace, described, "KW0402", *words, after=derived("sm_90a"))


# ---- KW05: all blocks of an SM


def test_shared_memory_of_all_blocks_of_an_sm(trace):
    words = ("4 x (65584 + 1024 reserved) bytes; an SM has 233472", "fewer blocks an SM")
    refuse_program(trace, "KW0501", *words, blocks=4)


def test_threads_of_all_blocks_of_an_sm(trace):
    refuse_program(
        trace, "KW0502", "5 x 256 = 1280 threads; an SM holds 1024", "Use k.occupancy(4)", arch="sm_107a", blocks=5
    )
    refuse_program(trace, "KW0502", "32 x 256 = 8192 threads; an SM holds 2048", "Use k.occupancy(8)", blocks=32)


def refuse_program(trace, code: str, *words: str, arch: str = "sm_90a", **choices) -> None:
    """A fault of the program as a whole names its first line, here one of support/products.py."""
    with pytest.raises(Exception) as caught:
        derived(arch)(trace(described_product(**choices)))
    message = str(caught.value)
    assert message.startswith(f"{code} ") and [word for word in words if word not in message] == [], message


def test_tensor_memory_of_all_blocks_of_an_sm(trace):
    def described(k: Kernel) -> None:
        """128 columns, five blocks, little shared memory."""
        k.occupancy(5)
        ring = k.pipeline("tiles", stages=2, tile=shared(bf16, (128, 16), swizzle=32))
        result = k.accumulator("result", 128, 128)
        source = k.tensor("source", bf16, (128, 16))
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                k.mma(result, stage.tile, stage.tile.T)
            k.copy_tma(k.buffer("staged", shared(bf16, (64, 16))), k.tensor("target", bf16, (64, 16), access="write"))

    words = ("128 columns of tensor memory", "128 are allocated, by 5 blocks an SM; sm_100a has 512.")
    refuse(trace, described, "KW0503", *words, after=derived("sm_100a"))


def test_more_named_barriers_than_a_block_has(trace, monkeypatch):
    def described(k: Kernel) -> None:
        """Seven copies of a role, where a block is said to have five barriers."""
        number = k.scalar("number", f32)
        tile = k.buffer("staged", shared(f32, (1, 4)))
        with k.role("many", replicas=7):
            k.stage(number, tile)
            k.copy_tma(tile, k.tensor("target", f32, (1, 4), access="write"))

    monkeypatch.setattr("kernwright.generator.passes.derive.roles.NAMED_BARRIERS", 5)
    words = ("needs 7 named barriers", "a block has 5", "many (7)", "fewer copies of a role")
    refuse(trace, described, "KW0504", *words, after=derived("sm_90a"))

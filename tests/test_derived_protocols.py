"""Protocols of rings: the ring of an epilogue, copies of a role, relays, blocks inside each other."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE, facts, ring_of
from support.refusal import derived, refuse

from kernwright.generator.dsl import Extent, Kernel, bf16, f32, shared

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


# ---- the ring of an epilogue: threads write, TMA reads


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("stored", [True, False])
def test_a_ring_that_threads_fill_and_a_tma_store_reads(trace, arch, stored):
    def described(k: Kernel) -> None:
        """An epilogue with a ring."""
        target, kept = k.tensor("target", bf16, (64, 64), access="write"), k.buffer("start", SQUARE)
        ring = k.pipeline("results", stages=2, tile=SQUARE)
        with k.role("make"):
            values = k.fetch(kept, LIKE)
            with k.steps("step", STEPS), ring.produce() as stage:
                k.stage(values, stage.tile)
        with k.role("store"):
            with k.steps("step", STEPS), ring.consume() as stage:
                k.copy_tma(stage.tile, target) if stored else k.fetch(stage.tile, LIKE, name="read")
            if not stored:
                k.copy_tma(k.buffer("other", SQUARE), target)

    ring = ring_of(facts(trace, described, arch), "results")
    assert ring.full.arrivals == 4 and ring.empty.arrivals == (1 if stored else 4)
    if stored:
        assert ring.fence.startswith("fence.proxy.async by the writers, before they arrive") and "tile" in ring.fence
        assert "the elected thread that issues them" in ring.empty.reason
        assert "cp.async.bulk.wait_group.read" in ring.empty.reason and "reads no tile" not in ring.empty.reason
    else:
        assert ring.fence == "none"


# ---- copies of a role


@pytest.mark.parametrize("side", ["read", "write"])
@pytest.mark.parametrize(("copies", "stages", "twice", "needed"), [(3, 2, False, 3), (2, 2, True, 3), (4, 1, False, 4)])
def test_more_copies_than_stages(trace, side, copies, stages, twice, needed):
    def described(k: Kernel) -> None:
        """A copy finds a barrier that nobody has completed, and takes it for complete."""
        ring = k.pipeline("numbers", stages=stages, tile=NUMBER)  # fault
        number = k.scalar("number", f32)
        with k.role("make", replicas=copies if side == "write" else 1), k.steps("step", STEPS):
            for _ in range(2 if twice else 1):
                with ring.produce() as stage:
                    k.stage(number, stage.tile)
        with k.role("use", replicas=copies if side == "read" else 1), k.steps("step", STEPS):
            for part in range(2 if twice else 1):
                with ring.consume() as stage:
                    k.fetch(stage.tile, None, Extent.SCALAR, name=f"value_{part}")
        with k.role("last"):
            out(k)

    who = f"role '{'use' if side == 'read' else 'make'}' has {copies} copies{' with 2 stages a step' if twice else ''}"
    words = (f"pipeline 'numbers' has {stages} stage", who, f"Use at least {needed} stages, or fewer copies.")
    refuse(trace, described, "KW0405", *words, after=derived("sm_100a"))


def test_as_many_copies_as_stages(trace):
    def described(k: Kernel) -> None:
        """Three and three."""
        ring = loaded(k, stages=3)
        with k.role("use", replicas=3), k.steps("step", STEPS), ring.consume() as stage:
            k.fetch(stage.tile, LIKE, name="values")
        with k.role("last"):
            out(k)

    assert facts(trace, described).pipelines[0].empty.arrivals == 4, "one copy reads a stage"


def test_copies_take_turns_only_in_a_loop(trace):
    def described(k: Kernel) -> None:
        """Both copies would take the stage."""
        ring = loaded(k, steps=None)
        with k.role("use", replicas=2):
            with ring.consume() as stage:  # fault
                k.fetch(stage.tile, LIKE, name="values")
        with k.role("last"):
            out(k)

    words = ("role 'use' has 2 copies and uses pipeline 'tiles' outside a loop", "or use one copy")
    refuse(trace, described, "KW0413", *words, after=derived("sm_90a"))


# ---- relays


def relayed(
    k: Kernel, waits: int = 1, uses: int = 1, before: bool = False, loop: str | None = None, vouches: bool = True
) -> None:
    """Role make waits `waits` times a step for what role use reads `uses` times a step."""
    source, number = k.tensor("source", bf16, (64, 64)), k.scalar("number", f32)
    inputs, made = k.pipeline("inputs", stages=4, tile=SQUARE), k.pipeline("made", stages=4, number=NUMBER)
    with k.role("load"), k.one_thread(), k.steps("step", STEPS):
        for _ in range(max(waits, uses) * (2 if loop else 1)):
            with inputs.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
    with k.role("make"), k.steps("step", STEPS):
        for _ in range(waits - 1):
            with inputs.consume():
                pass
        if before or not vouches:
            with made.produce() as new:
                k.stage(number, new.number)
        if vouches:
            with inputs.consume(), made.produce() as new:
                k.stage(number, new.number)
    with k.role("use"):
        with k.steps("step", STEPS), made.consume():
            for part in range(uses):
                if loop:
                    with k.steps(loop, 2), inputs.consume(relayed_by=made) as stage:
                        k.fetch(stage.tile, LIKE, name=f"values_{part}")
                else:
                    with inputs.consume(relayed_by=made) as stage:  # fault
                        k.fetch(stage.tile, LIKE, name=f"values_{part}")
        out(k)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (
            {"uses": 2},
            "has 1 consume block of 'inputs', of which 1 around each produce block of 'made'; role 'use' has 2 consume",
        ),
        ({"waits": 2}, "role 'make' has 2 consume blocks of 'inputs', of which 1 around"),
        ({"waits": 2, "uses": 2}, "of which 2 in each step of 'made'"),
        ({"loop": "part"}, "role 'use' has 1 consume block, of which 0 in each step of 'made'"),
        ({"before": True}, "role 'make' must consume 'inputs' around producing 'made'"),
    ],
    ids=str,
)
def test_a_relay_that_vouches_for_other_stages(trace, choices, words):
    """The second wait comes after the arrival, a produce block stands outside, or there is one wait for several uses."""

    def described(k: Kernel) -> None:
        """A relay."""
        relayed(k, **choices)

    with pytest.raises(Exception, match="KW0406 pipeline 'made' does not vouch for") as caught:
        derived("sm_90a")(trace(described))
    message = str(caught.value)
    assert words in message and "in role 'use'" in message and "drop relayed_by" in message.lower()
    assert "tests/test_derived_protocols.py:" in message.splitlines()[1]


def test_a_relay_that_is_itself_relayed_vouches_for_nothing(trace):
    def described(k: Kernel) -> None:
        """Two roles vouch for each other, and nobody waits."""
        inputs, number = loaded(k, name="inputs"), k.scalar("number", f32)
        first, second = k.pipeline("first", stages=2, number=NUMBER), k.pipeline("second", stages=2, number=NUMBER)
        for name, mine, other in (("left", first, second), ("right", second, first)):
            with k.role(name), k.steps("step", STEPS), other.consume():
                with inputs.consume(relayed_by=other) as stage:  # fault
                    k.fetch(stage.tile, LIKE, name="values")
                    with mine.produce() as new:
                        k.stage(number, new.number)
        with k.role("last"):
            out(k)

    refuse(trace, described, "KW0406", "'second' does not vouch for 'inputs'", after=derived("sm_90a"))


def test_a_relayed_consume_inside_an_equal_block_elsewhere(trace):
    """Two consume blocks of the relay hold equal nodes; only one of them is around each relayed use."""

    def described(k: Kernel) -> None:
        """Twice the same."""
        source, number = k.tensor("source", bf16, (64, 64)), k.scalar("number", f32)
        inputs, made = k.pipeline("inputs", stages=4, tile=SQUARE), k.pipeline("made", stages=4, number=NUMBER)
        with k.role("load"), k.one_thread():
            for _ in range(2):
                with inputs.produce() as stage:
                    k.copy_tma(source[0, 0], stage.tile)
        with k.role("make"):
            for _ in range(2):
                with inputs.consume(), made.produce() as new:
                    k.stage(number, new.number)
        with k.role("use"):
            for _ in range(2):
                with made.consume(), inputs.consume(relayed_by=made):
                    pass
            out(k)

    ring = ring_of(facts(trace, described), "inputs")
    assert ring.empty.arrivals == 4, "the voucher does not arrive, the reader does"


def test_a_relay_for_two_stages_that_are_both_held(trace):
    def described(k: Kernel) -> None:
        """Two waits around one arrival, two uses."""
        source, number = k.tensor("source", bf16, (64, 64)), k.scalar("number", f32)
        inputs, made = k.pipeline("inputs", stages=4, tile=SQUARE), k.pipeline("made", stages=2, number=NUMBER)
        with k.role("load"), k.one_thread(), k.steps("step", 2 * STEPS), inputs.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("make"), k.steps("step", STEPS), inputs.consume(), inputs.consume(), made.produce() as new:
            k.stage(number, new.number)
        with k.role("use"):
            with k.steps("step", STEPS), made.consume():
                for part in range(2):
                    with inputs.consume(relayed_by=made) as stage:
                        k.fetch(stage.tile, LIKE, name=f"values_{part}")
            out(k)

    ring = ring_of(facts(trace, described), "inputs")
    assert ring.empty.arrivals == 4 and ring.not_compared == (), "8 produced, 4 x 2 consumed"


# ---- blocks inside each other


@pytest.mark.parametrize("word", ["consume", "produce"])
@pytest.mark.parametrize("stages", [1, 2])
def test_more_blocks_inside_each_other_than_stages(trace, word, stages):
    def described(k: Kernel) -> None:
        """Each holds a stage."""
        source, ring = k.tensor("source", bf16, (64, 64)), k.pipeline("tiles", stages=stages, tile=SQUARE)
        with k.role("load"), k.one_thread(), k.steps("step", STEPS):
            with ring.produce() as stage:
                k.copy_tma(source[0, 0], stage.tile)
                if word == "produce":
                    with ring.produce() as second:
                        k.copy_tma(source[0, 0], second.tile)
            if word == "consume":
                with ring.produce() as second:
                    k.copy_tma(source[0, 0], second.tile)
        with k.role("use"):
            with k.steps("step", STEPS):
                with ring.consume() as first:
                    k.fetch(first.tile, LIKE, name="values")
                    if word == "consume":
                        with ring.consume() as second:
                            k.fetch(second.tile, LIKE, name="next_values")
                if word == "produce":
                    with ring.consume() as second:
                        k.fetch(second.tile, LIKE, name="next_values")
            out(k)

    if stages == 2 and word == "consume":
        assert facts(trace, described).pipelines[0].empty.arrivals == 4
        return
    with pytest.raises(
        Exception, match="KW0405 pipeline 'tiles' has 1 stage\n" if stages == 1 else "KW0402 "
    ) as caught:
        derived("sm_100a")(trace(described))
    message = str(caught.value)
    assert "tests/test_derived_protocols.py:" in message.splitlines()[1]
    if stages == 1:
        assert f"2 {word} blocks stand inside each other" in message
        assert "Use at least 2 stages, or end a block before the next one begins." in message


@pytest.mark.parametrize(("arch", "stages", "fits"), [("sm_90a", 3, False), ("sm_90a", 4, True), ("sm_100a", 2, True)])
def test_blocks_inside_each_other_and_a_product_in_flight(trace, arch, stages, fits):
    def described(k: Kernel) -> None:
        """Two stages a group, one group in flight."""
        ring, result = loaded(k, stages=stages, steps=2 * STEPS), k.accumulator("result", 64, 64)
        with k.role("use"):
            with k.steps("step", STEPS), ring.consume() as first:
                k.mma(result, first.tile, first.tile.T)
                with ring.consume() as second:  # fault
                    k.mma(result, second.tile, second.tile.T)
            out(k)

    if fits:
        assert facts(trace, described, arch).pipelines[0].empty.arrivals == 1
    else:
        words = ("2 consume blocks stand inside each other", "keeps 1 product in flight", "Use at least 4 stages")
        refuse(trace, described, "KW0405", *words, after=derived(arch))

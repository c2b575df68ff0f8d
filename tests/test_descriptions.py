"""Descriptions with roles, pipelines and products: what is derived from them, by value, and how it changes with the description."""

from __future__ import annotations

import pytest

from kernwright.generator.arch import ALL, ARCHITECTURES
from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, i32, shared
from kernwright.generator.emit.outline import print_outline
from kernwright.generator.ir import description as ir
from kernwright.generator.kernels.tiles.mma_tile import mma_tile
from kernwright.generator.passes.derive import Derived, PipelineFacts, derive

TCGEN05 = ["sm_100a", "sm_103a", "sm_107a"]


def facts(description: ir.Description, arch: str) -> Derived:
    return derive(description, ARCHITECTURES[arch])


def ring(derived: Derived, name: str = "operands") -> PipelineFacts:
    return next(item for item in derived.pipelines if item.pipeline.name == name)


def depths(derived: Derived, name: str = "operands") -> dict[str, int]:
    return {role: depth for role, depth, _ in ring(derived, name).in_flight}


def slots(derived: Derived) -> dict[str, tuple[int, int]]:
    return {slot.name: (slot.offset, slot.size) for slot in derived.shared}


# ---- the tile that is shipped with the language


@pytest.mark.parametrize("arch", ALL)
def test_the_tile_traces_and_says_who_does_what(trace, arch):
    description = trace(mma_tile)
    assert [role.name for role in description.roles] == ["load", "multiply"]
    kinds = [type(operation).__name__ for operation in ir.walk(description.body)]
    assert kinds == [
        "RoleBody", "OneThread", "Steps", "Produce", "CopyIn", "CopyIn",
        "RoleBody", "Steps", "Consume", "Mma", "ReadAccumulator", "WriteShared", "CopyOut",
    ]  # fmt: skip
    derived = facts(description, arch)
    # On tcgen05 machines: the barrier of the result, and the address of its columns.
    more = {} if arch == "sm_90a" else {"result_full": (106544, 8), "tensor_memory": (106552, 4)}
    assert (derived.threads, derived.shared_bytes) == (256, 106556 if more else 106544)
    assert [(role.first_warp, role.warps, role.launch_registers) for role in derived.roles] == [
        (0, 4, 128),
        (4, 4, 128),
    ]
    assert (ring(derived).producer, ring(derived).full.arrivals, ring(derived).full.bytes) == ("load", 1, 24576)
    assert slots(derived) == {
        "operands.a": (0, 49152), "operands.b": (49152, 24576), "staged": (73728, 32768),
        "operands_full": (106496, 24), "operands_empty": (106520, 24), **more,
    }  # fmt: skip


def test_what_differs_between_the_machines(trace):
    description = trace(mma_tile)
    hopper, *rest = (facts(description, arch) for arch in ALL)
    assert depths(hopper) == {"multiply": 1}
    assert [depths(derived) for derived in rest] == [{"multiply": 3}] * 3
    assert [role.change for role in hopper.roles] == ["setmaxnreg.dec to 40", "setmaxnreg.inc to 168"]
    assert hopper.tmem_columns == 0 and [derived.tmem_columns for derived in rest] == [64] * 3
    assert hopper.products[0].instruction == "wgmma.mma_async.m64n64k16.f32.bf16.bf16"
    assert {derived.products[0].instruction for derived in rest} == {"tcgen05.mma.kind::f16 m128n64k16"}
    assert [hopper.products[0].instructions, *(derived.products[0].instructions for derived in rest)] == [8, 4, 4, 4]
    assert [derived.products[0].a.mask for derived in (hopper, *rest)] == [0x3FFF, 0x3FFF, 0x3FFF, 0x7FFF]
    assert hopper.products[0].issuer == "all warps of the warpgroup"
    assert {derived.products[0].issuer for derived in rest} == {"one elected thread of the role's first warp"}


@pytest.mark.parametrize("arch", ALL)
def test_the_outline_holds_layouts_roles_counts_bytes_and_depth(trace, arch):
    outline = print_outline(facts(trace(mma_tile), arch))
    wanted = [
        f"test_mma_tile on {arch}: 256 threads, {106544 if arch == 'sm_90a' else 106556} bytes of shared memory",
        "named barrier 1 of 128 threads (all warps of a copy have written staged",
        "fence: fence.proxy.async by each writer, before the barrier",
        "wait: bulk_wait_group_read<0> by the issuer at the role's end",
        "c for staged: rank 2, box {32, 128} of 128-byte swizzle rows, 2 boxes a tile",
        "load: warps 0 .. 3; registers at launch 128",
        "multiply: warps 4 .. 7; registers at launch 128",
        "operands: 3 stages, filled by role load",
        "a: bf16 [128, 64] K-major, 128-byte swizzle, 16384 bytes on 1024",
        "full: 1 arrival + 24576 bytes",
        "empty: 1 arrival (role multiply:",
        f"in flight in role multiply: {1 if arch == 'sm_90a' else 3} (",
        "steps 0, 32, 64, 96 bytes",
        "tma copy a[0, slab * 64] of 128 x 64 -> operands.a  [mma_tile.py:",
    ]
    wanted += (
        ["in 64 registers a thread", "row 64 * (r / 32) + 16 * (t / 32)", "0x4000004000010000"]
        if arch == "sm_90a"
        else [
            "in tensor memory",
            "read back by tcgen05.ld.32x32b",
            "0x4000404000010000",
            "instruction descriptor 0x08100490",
        ]
    )
    assert [text for text in wanted if text not in outline] == []


@pytest.mark.parametrize(
    ("stages", "total"), [(2, 49152 + 32768 + 32), (3, 106544), (4, 98304 + 32768 + 64), (6, 147456 + 32768 + 96)]
)
def test_stages_change_memory_and_nothing_else(trace, stages, total):
    description = trace(mma_tile, variants={"tile": {"stages": stages, "blocks": 1 if stages > 3 else 2}})
    derived = facts(description, "sm_90a")
    assert derived.shared_bytes == total
    assert (ring(derived).full.arrivals, ring(derived).full.bytes, ring(derived).empty.arrivals) == (1, 24576, 1)
    assert depths(derived) == {"multiply": 1}
    assert depths(facts(description, "sm_100a")) == {"multiply": stages}


def test_a_shorter_slab_changes_bytes_steps_and_swizzle_rows(trace):
    derived = facts(trace(mma_tile, variants={"tile": {"tile_k": 128, "blocks": 1}}), "sm_90a")
    assert ring(derived).full.bytes == 2 * 24576
    assert derived.products[0].a.k_steps == (0, 32, 64, 96, 16384, 16416, 16448, 16480), (
        "the second panel is 128 rows on"
    )
    assert derived.products[0].b.k_steps == (0, 32, 64, 96, 8192, 8224, 8256, 8288)
    assert derived.products[0].instructions == 16


# ---- variations


def tile(
    k: Kernel,
    *,
    readers: int = 1,
    fetches: bool = False,
    warpgroups: int = 1,
    replicas: int = 1,
    rows: int = 128,
    use: bool = False,
):
    """The tile with `readers` consuming roles, which may read the stage themselves (`fetches`) or use the result in each step."""
    depth = k.scalar("depth", i32, low=64, high=1 << 20, multiple_of=64)
    a = k.tensor("a", bf16, (rows, depth))
    b = k.tensor("b", bf16, (64, depth))
    c = k.tensor("c", f32, (rows, 64), access="write")
    operands = k.pipeline(
        "operands", stages=3, a=shared(bf16, (rows, 64), swizzle=128), b=shared(bf16, (64, 64), swizzle=128)
    )
    results = [k.accumulator(f"result_{index}", rows, 64) for index in range(readers)]
    staged = [k.buffer(f"staged_{index}", shared(f32, (rows, 64), swizzle=128)) for index in range(readers)]
    with (
        k.role("load", registers=40),
        k.one_thread(),
        k.steps("slab", depth // 64) as slab,
        operands.produce() as stage,
    ):
        k.copy_tma(a[0, slab * 64], stage.a)
        k.copy_tma(b[0, slab * 64], stage.b)
    for index, result in enumerate(results):
        with k.role(f"reader_{index}", warpgroups=warpgroups, replicas=replicas):
            with k.steps("slab", depth // 64), operands.consume() as stage:
                k.mma(result, stage.a, stage.b.T)
                if fetches:
                    k.fetch(stage.b, Fragment(64, 64), name=f"columns_{index}")
                if use:
                    result.read(name=f"partial_{index}")
            values = result.read(name=f"values_{index}")
            k.stage(values, staged[index])
            k.copy_tma(staged[index], c)


def variation(trace, **choices) -> ir.Description:
    def described(k: Kernel) -> None:
        """A variation of the tile."""
        tile(k, **choices)

    return trace(described)


# What is changed, then (arrivals that release a stage, groups in flight) on sm_90a and on the tcgen05 machines.
RELEASES = [
    ({}, (1, 1), (1, 3)),
    ({"readers": 2}, (2, 1), (2, 3)),
    ({"warpgroups": 2}, (2, 1), (1, 3)),
    ({"readers": 2, "warpgroups": 2, "rows": 128}, (4, 1), (2, 3)),
    ({"replicas": 2}, (1, 1), (1, 3)),
    ({"fetches": True}, (4, 0), (5, 3)),
    ({"fetches": True, "warpgroups": 2}, (8, 0), (9, 3)),
    ({"fetches": True, "readers": 2}, (8, 0), (10, 3)),
    ({"use": True}, (1, 0), (1, 0)),
]


@pytest.mark.parametrize(("choices", "hopper", "blackwell"), RELEASES, ids=lambda item: str(item))
def test_arrivals_that_release_a_stage_follow_from_the_kind_of_access(trace, choices, hopper, blackwell):
    description = variation(trace, **choices)
    for arch, wanted in (("sm_90a", hopper), *((name, blackwell) for name in TCGEN05)):
        arrivals, depth = wanted
        derived = facts(description, arch)
        assert ring(derived).empty.arrivals == arrivals, arch
        assert set(depths(derived).values()) == {depth}, arch
        assert (ring(derived).full.arrivals, ring(derived).full.bytes) == (1, 24576), "what fills a stage stays"


@pytest.mark.parametrize(("choices", "words"), [
    ({}, "read by wgmma alone: one arrival for each warpgroup (1)"),
    ({"fetches": True}, "its 4 warps read it themselves: one arrival each, after __syncwarp and the wait for its products"),
])  # fmt: skip
def test_the_reason_of_a_count_is_told(trace, choices, words):
    assert words in ring(facts(variation(trace, **choices), "sm_90a")).empty.reason


def test_two_warpgroups_halve_the_accumulator_and_widen_the_block(trace):
    one, two = (facts(variation(trace, warpgroups=number), "sm_90a") for number in (1, 2))
    assert (one.threads, two.threads) == (256, 384)
    assert (one.accumulators[0].layout.registers, two.accumulators[0].layout.registers) == (64, 32)
    assert [(r.first_warp, r.warps) for r in two.roles] == [(0, 4), (4, 8)]
    # 65536 / 384 is 170, and setmaxnreg moves whole eights.
    assert [r.launch_registers for r in two.roles] == [168, 168]


def test_copies_of_a_role_have_warps_of_their_own(trace):
    derived = facts(variation(trace, replicas=2), "sm_90a")
    assert (derived.threads, derived.roles[1].warps, derived.accumulators[0].layout.registers) == (384, 8, 64)


def relay(k: Kernel, *, steps: int = 2) -> None:
    """A role of one warp turns what TMA brings into factors that another role and its products read."""
    source = k.tensor("source", bf16, (64, 64 * steps))
    target = k.tensor("target", f32, (64, 64), access="write")
    inputs = k.pipeline("inputs", stages=2, tile=shared(bf16, (64, 64), swizzle=128), gate=shared(f32, (64, 1)))
    made = k.pipeline("made", stages=2, tile=shared(bf16, (64, 64), swizzle=128), factor=shared(f32, (64, 1)))
    gates = k.tensor("gates", f32, (64, 1))
    result = k.accumulator("result", 64, 64)
    staged = k.buffer("staged", shared(f32, (64, 64), swizzle=128))
    like = Fragment(64, 64)
    with k.role("load", registers=96), k.one_thread(), k.steps("step", steps) as step, inputs.produce() as stage:
        k.copy_tma(source[0, step * 64], stage.tile)
        k.copy_bulk(gates[0, 0], stage.gate)
    with (
        k.role("make", shares="load", warp=1),
        k.steps("step", steps),
        inputs.consume() as stage,
        made.produce() as out,
    ):
        factor = k.fetch(stage.gate, like, Extent.COLUMNS)
        k.stage(factor, out.factor)
        k.stage(k.fetch(stage.tile, like, name="values") * factor, out.tile)
    with k.role("use"):
        with k.steps("step", steps), made.consume() as stage, inputs.consume(relayed_by=made) as raw:
            k.mma(result, raw.tile, stage.tile.T)
        final = result.read()
        k.stage(final, staged)
        k.copy_tma(staged, target)


def test_a_warp_that_writes_a_ring_arrives_once_behind_its_fence(trace):
    def described(k: Kernel) -> None:
        """Factors made by one warp."""
        relay(k)

    derived = facts(trace(described), "sm_90a")
    made, inputs = ring(derived, "made"), ring(derived, "inputs")
    assert (made.producer, made.full.arrivals, made.full.bytes) == ("make", 1, 0)
    assert made.fence.startswith("fence.proxy.async by the writers"), "a product reads what ordinary stores wrote"
    assert inputs.fence == "none", "TMA wrote it"
    assert (inputs.full.arrivals, inputs.full.bytes) == (1, 64 * 64 * 2 + 64 * 4)
    # One arrival of the warp that reads inputs itself, one of the warpgroup whose products read it.
    assert inputs.empty.arrivals == 2 and made.empty.arrivals == 1
    assert [(role.first_warp, role.warps, role.change) for role in derived.roles] == [
        (0, 4, "setmaxnreg.dec to 96"), (1, 1, "as its warpgroup"), (4, 4, "unchanged"),
    ]  # fmt: skip
    assert "full vouched for by made" in print_outline(derived)

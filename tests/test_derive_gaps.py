"""What the derivation gets wrong, or accepts though no machine can do it: each expectation is a rule of the PTX documents or of the
limits in generator/arch. A gap that is closed loses its mark (the marks are strict)."""

from __future__ import annotations

import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, shared
from kernwright.generator.errors import KernelError
from kernwright.generator.ir.layout import SharedLayout, TmemLayout
from kernwright.generator.passes.derive import Derived, derive

SQUARE = shared(bf16, (64, 64), swizzle=128)
LIKE = Fragment(64, 64)


def gap(reason: str):
    return pytest.mark.xfail(strict=True, reason=reason)


def facts(trace, described, arch: str = "sm_90a") -> Derived:
    return derive(trace(described), ARCHITECTURES[arch])


def refused_with(trace, described, arch: str = "sm_90a") -> str:
    """The code with which a description is refused, nothing if it is accepted."""
    try:
        facts(trace, described, arch)
    except KernelError as error:
        return error.code
    return ""


def product(
    k: Kernel, left=SQUARE, right=SQUARE, rows: int = 64, *, turned=False, operand=False, fetch=False, use=False, **role
):
    """A ring of two tiles, their product in one role, the result stored."""
    source = k.tensor("source", bf16, (1024, 1024))
    target = k.tensor("target", f32, (rows, 64), access="write")
    ring = k.pipeline("tiles", stages=3, left=left, right=right)
    result = k.accumulator("result", rows, 64)
    staged = k.buffer("staged", shared(f32, (rows, 64), swizzle=128))
    with k.role("load"), k.one_thread(), k.steps("step", 4), ring.produce() as stage:
        k.copy_tma(source[0, 0], stage.left)
        k.copy_tma(source[0, 0], stage.right)
    with k.role("use", **role):
        if operand:
            query = k.fetch(staged, Fragment(rows, 64, "operand"), dtype=bf16)
        with k.steps("step", 4), ring.consume() as stage:
            k.mma(result, query if operand else stage.left.T if turned else stage.left, stage.right.T)
            if fetch:
                k.fetch(stage.right, LIKE, Extent.COLUMNS, name="factor")
            if use:
                result.read(name="partial")
        values = result.read()
        k.stage(values, staged)
        k.copy_tma(staged, target)


def described_product(**choices):
    def described(k: Kernel) -> None:
        """A product."""
        if (blocks := choices.pop("blocks", None)) is not None:
            k.occupancy(blocks)
        product(k, **choices)

    return described


# ---- products and their operands


@gap("the rows of A are read from the tile as it is stored, not as it is passed")
@pytest.mark.parametrize(("arch", "instructions", "shape"), [("sm_90a", 8, "m64n64k16"), ("sm_100a", 4, "m128n64k16")])
def test_a_tile_passed_transposed_has_the_rows_of_the_matrix(trace, arch, instructions, shape):
    described = described_product(left=shared(bf16, (64, 128), swizzle=128), rows=128, turned=True)
    (found,) = facts(trace, described, arch).products
    assert shape in found.instruction and found.instructions == instructions


@gap("instructions are counted for all rows, though each warpgroup has its own")
def test_each_of_two_warpgroups_issues_half(trace):
    described = described_product(left=shared(bf16, (128, 64), swizzle=128), rows=128, warpgroups=2)
    assert facts(trace, described).products[0].instructions == 4


@gap("a register operand of 128 rows in one warpgroup is taken for one of 64")
def test_a_register_operand_has_all_its_rows(trace):
    described = described_product(left=shared(bf16, (128, 64), swizzle=128), rows=128, operand=True)
    assert facts(trace, described).operands[0].registers == 128 * 64 // 128 // 2


@gap("a group with register operands is kept in flight over the back edge, which makes ptxas serialise every wgmma")
def test_no_group_with_register_operands_is_in_flight_over_the_back_edge(trace):
    assert [depth for _, depth, _ in facts(trace, described_product(operand=True)).pipelines[0].in_flight] == [0]


@gap("an operand that is read again in the next step lends its registers in between")
def test_an_operand_made_before_a_loop_keeps_its_registers(trace):
    def described(k: Kernel) -> None:
        """One operand for all steps and one for each step."""
        target = k.tensor("target", f32, (64, 64), access="write")
        tile = k.buffer("tile", SQUARE)
        first, second = k.accumulator("first", 64, 64), k.accumulator("second", 64, 64)
        staged = k.buffer("staged", shared(f32, (64, 64), swizzle=128))
        with k.role("use"):
            query = k.fetch(tile, Fragment(64, 64, "operand"), dtype=bf16)
            with k.steps("step", 4):
                k.mma(first, query, tile.T)
                values = first.read()
                weights = k.operand(values)
                k.mma(second, weights, tile.T)
            final = second.read()
            k.stage(final, staged)
            k.copy_tma(staged, target)

    assert [item.operands for item in facts(trace, described).operands] == [("query",), ("weights",)]


@gap("a tile without swizzle gets a stride of 0: the core matrices have no layout here")
def test_an_operand_without_swizzle_is_refused_or_described(trace):
    described = described_product(left=shared(bf16, (64, 64)), right=shared(bf16, (64, 64)))
    code = refused_with(trace, described)
    assert code == "KW0302" or SharedLayout(64, 64, bf16).stride_byte_offset == 128


@gap("64 rows lie on 16 lanes of each quarter of tensor memory, not on lanes 0 to 63")
def test_64_rows_in_tensor_memory(trace):
    assert "row m on lane m" not in TmemLayout(64, 64).formula


@gap("threads that read a stage arrive for themselves, and nothing stands for the products that still read it")
def test_a_stage_read_by_threads_and_by_tcgen05_waits_for_both(trace):
    ring = facts(trace, described_product(fetch=True), "sm_100a").pipelines[0]
    depth = ring.in_flight[0][1]
    assert (ring.empty.arrivals, depth) in {(5, 3), (4, 0)}, "a commit of its own, or a wait before the arrivals"


@gap("a result that is read in each step leaves no product in flight")
def test_a_result_read_in_each_step_is_waited_for(trace):
    assert facts(trace, described_product(use=True), "sm_100a").pipelines[0].in_flight[0][1] <= 1


# ---- one thread


@gap("a body of one thread arrives once, and is counted as four warps")
def test_one_thread_arrives_once(trace):
    def described(k: Kernel) -> None:
        """One number from thread to thread."""
        target = k.tensor("target", bf16, (64, 64), access="write")
        number = k.scalar("number", f32)
        ring = k.pipeline("numbers", stages=2, tile=shared(f32, (4, 1)))
        with k.role("make"), k.one_thread(), ring.produce() as stage:
            k.stage(k.let("power", k.exp2(number)), stage.tile)
        with k.role("use"):
            with k.one_thread(), ring.consume() as stage:
                k.fetch(stage.tile, None, Extent.SCALAR, name="value")
            k.copy_tma(k.buffer("staged", SQUARE), target)

    ring = facts(trace, described).pipelines[0]
    assert (ring.full.arrivals, ring.empty.arrivals) == (1, 1)


# ---- limits of the machine


@gap("shared memory is checked for one block, whatever the occupancy")
def test_shared_memory_of_all_blocks_of_an_sm(trace):
    assert refused_with(trace, described_product(blocks=4, left=shared(bf16, (64, 64), swizzle=128))) == "KW0501"


@gap("columns of tensor memory are checked for one block, whatever the occupancy")
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

    assert refused_with(trace, described, "sm_100a") == "KW0503"


@gap("threads of all blocks of an SM are not checked: a larger minimum is dropped in silence")
def test_threads_of_all_blocks_of_an_sm(trace):
    assert refused_with(trace, described_product(blocks=5), "sm_107a") in {"KW0501", "KW0502"}


@gap("a launch count under 24 registers is derived and used")
def test_too_few_registers_at_launch(trace):
    assert refused_with(trace, described_product(blocks=32)).startswith("KW0")


# ---- memory


@gap("stages lie one after another without padding, so the second one starts inside a swizzle pattern")
def test_every_stage_is_aligned_as_its_tile(trace):
    def described(k: Kernel) -> None:
        """Tiles of 512 bytes on 1024."""
        source = k.tensor("source", bf16, (4, 64))
        ring = k.pipeline("tiles", stages=2, tile=shared(bf16, (4, 64), swizzle=128))
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(source[0, 0], stage.tile)
        with k.role("use"):
            with ring.consume() as stage:
                k.fetch(stage.tile, LIKE, name="values")
            k.copy_tma(k.buffer("staged", SQUARE), k.tensor("target", bf16, (64, 64), access="write"))

    assert refused_with(trace, described) == "KW0303" or facts(trace, described).shared[0].size == 2 * 1024


@gap("copies of a role write one staging tile at the same time")
def test_each_copy_of_a_role_has_its_own_buffer(trace):
    slots = {slot.name: slot.size for slot in facts(trace, described_product(replicas=2)).shared}
    assert slots["staged"] == 2 * 64 * 64 * 4


# ---- what the language accepts


@gap("copy_tma does not look at the access of a tensor")
@pytest.mark.parametrize("outwards", [True, False])
def test_copies_obey_the_access_of_a_tensor(trace, outwards):
    def described(k: Kernel) -> None:
        """Out to what is read, or in from what is written."""
        read, written = k.tensor("read_only", bf16, (64, 64)), k.tensor("written", bf16, (64, 64), access="write")
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            k.copy_tma(tile, read if outwards else written)
            if not outwards:
                k.copy_tma(written[0, 0], tile)

    assert refused_with(trace, described) == "KW0203"


@gap("the element type of a copied tensor is not compared with the tile's")
def test_copies_keep_the_element_type(trace):
    def described(k: Kernel) -> None:
        """FP32 out of a BF16 tile."""
        with k.role("use"):
            k.copy_tma(k.buffer("tile", SQUARE), k.tensor("target", f32, (64, 64), access="write"))

    assert refused_with(trace, described) == "KW0201"


@gap("a warpgroup has warps 0 to 3, and warp 0 is the host role's own")
@pytest.mark.parametrize("warp", [0, 9])
def test_a_role_inside_a_warpgroup_is_one_of_its_other_warps(trace, warp):
    def described(k: Kernel) -> None:
        """A warp that the warpgroup has not, or that has work already."""
        with k.role("load"), k.one_thread():
            k.copy_tma(k.buffer("tile", SQUARE), k.tensor("target", bf16, (64, 64), access="write"))
        with k.role("factors", shares="load", warp=warp):
            pass

    assert refused_with(trace, described) == "KW0403"


@gap("shapes of fetch and stage are not compared with the tile's")
def test_a_fetch_has_the_shape_of_its_tile(trace):
    def described(k: Kernel) -> None:
        """A fragment of another shape."""
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            k.fetch(tile, Fragment(128, 32), name="values")
            k.copy_tma(tile, k.tensor("target", bf16, (64, 64), access="write"))

    assert refused_with(trace, described) == "KW0204"

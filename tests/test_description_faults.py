"""What an author may get wrong with tensors, layouts and tiles: code, the author's line, the numbers involved and the remedy.

The faulty line of a description carries the comment `# fault`; a fault of the program as a whole names its first line.
"""

from __future__ import annotations

import pytest
from support.refusal import derived, lowered, refuse

from kernwright.generator.dsl import Fragment, Kernel, bf16, f32, i32, i64, shared, u32
from kernwright.generator.dsl.value import call

SWIZZLED = shared(bf16, (64, 64), swizzle=128)


def rows_program(k: Kernel):
    """Source, target, layout and block of a copy of rows."""
    rows = k.scalar("rows", i64, high=1 << 20)
    source = k.tensor("source", bf16, (rows, 128))
    target = k.tensor("target", bf16, (rows, 128), access="write")
    layout = k.vector_rows(128)
    return source, target, layout, k.blocks(rows, step=layout)


# ---- KW02: tensors, scalars and types


def test_types_do_not_combine(trace):
    def described(k: Kernel) -> None:
        """An integer division of floats would hide a rounding."""
        source, _, layout, block = rows_program(k)
        value = k.load(source[block], layout)
        k.scalar("count", i32) + value  # fault

    refuse(trace, described, "KW0201", "`+` does not combine i32 and f32", "convert one of them explicitly")


def test_a_tensor_of_another_program(trace):
    stolen = []

    def first(k: Kernel) -> None:
        """A copy of rows."""
        source, target, layout, block = rows_program(k)
        stolen.append(source)
        value = k.load(source[block], layout)
        k.store(target[block], value)

    def described(k: Kernel) -> None:
        """A copy of somebody else's rows."""
        _, _, layout, block = rows_program(k)
        k.load(stolen[0][block], layout, name="value")  # fault

    trace(first)
    refuse(trace, described, "KW0202", "'source' belongs to another program", "Declare it in this program.")


def test_loading_what_is_only_written(trace):
    def described(k: Kernel) -> None:
        """The target is read."""
        _, target, layout, block = rows_program(k)
        k.load(target[block], layout, name="value")  # fault

    refuse(trace, described, "KW0203", "tensor 'target' is write-only", 'Declare access="update".')


def test_storing_to_what_is_only_read(trace):
    def described(k: Kernel) -> None:
        """The source is written."""
        source, _, layout, block = rows_program(k)
        value = k.load(source[block], layout)
        k.store(source[block], value)  # fault

    refuse(trace, described, "KW0203", "tensor 'source' is read-only", "read-only path", '"write" or "update"')


def test_more_indices_than_dimensions(trace):
    def described(k: Kernel) -> None:
        """A box with a third coordinate."""
        source, *_ = rows_program(k)
        source[0, 0, 0]  # fault

    refuse(trace, described, "KW0204", "3 indices for tensor 'source'", "source has 2 dimensions.")


def test_an_index_that_says_no_start(trace):
    def described(k: Kernel) -> None:
        """A part of a dimension."""
        source, *_ = rows_program(k)
        source[0, 1:3]  # fault

    refuse(trace, described, "KW0204", "slice(1, 3, None)", "`:` for the whole dimension")


def test_limits_that_contradict_each_other(trace):
    def described(k: Kernel) -> None:
        """No value is legal."""
        k.scalar("rows", i32, low=8, high=4)  # fault

    refuse(trace, described, "KW0205", "scalar 'rows': limits 8..4", "-2147483648..2147483647", "low <= high")


def test_more_blocks_than_a_launch_allows(trace):
    def described(k: Kernel) -> None:
        """An extent without a limit."""
        rows = k.scalar("rows", i64)
        layout = k.vector_rows(128)
        k.blocks(rows, step=layout)  # fault

    refuse(
        trace,
        described,
        "KW0205",
        "2147483647 blocks of 8 rows are 17179869176 rows",
        "Declare high=17179869176 or less.",
    )


def test_an_offset_that_leaves_64_bits(trace):
    def described(k: Kernel) -> None:
        """Rows of 2^28 values in tiles of 32: the last offset needs 64 bits and a sign."""
        rows = k.scalar("rows", i64, high=((1 << 31) - 1) * 32)
        source = k.tensor("source", bf16, (rows, 1 << 28))
        target = k.tensor("target", bf16, (rows, 1 << 28), access="write")
        layout = k.vector_rows(1 << 28, threads=1024, vector=1 << 23)
        block = k.blocks(rows, step=layout)
        value = k.load(source[block], layout)  # fault
        k.store(target[block], value)

    refuse(trace, described, "KW0206", "offset of 'source' leaves i64", "Lower the `high`", after=lowered("sm_90a"))


# ---- KW03: layouts, tiles and instructions


def test_a_layout_that_does_not_cover_a_row(trace):
    def described(k: Kernel) -> None:
        """A row of 100 values in accesses of 8."""
        k.vector_rows(100)  # fault

    refuse(trace, described, "KW0301", "a row of 100 is no whole number of accesses of 8 values")


def test_a_layout_of_another_width(trace):
    def described(k: Kernel) -> None:
        """The tensor has half the columns of the layout."""
        _, _, layout, block = rows_program(k)
        narrow = k.tensor("narrow", bf16, (k.scalar("count", i64, high=1 << 20), 64))
        k.load(narrow[block], layout, name="value")  # fault

    refuse(trace, described, "KW0301", "rows of 'narrow'", "the layout has 128 columns, the tensor 64.")


def test_only_tiles_are_stored(trace):
    def described(k: Kernel) -> None:
        """A row factor."""
        source, target, layout, block = rows_program(k)
        value = k.load(source[block], layout)
        mean = k.row_mean(value)
        k.store(target[block], mean)  # fault

    refuse(trace, described, "KW0301", "register tile can be stored", "value is a row factor")


def products(k: Kernel, rows: int = 64, columns: int = 64, depth: int = 64):
    a = k.tensor("a", bf16, (rows, depth))
    c = k.tensor("c", f32, (rows, columns), access="write")
    ring = k.pipeline(
        "ring_of_tiles",
        stages=2,
        a=shared(bf16, (rows, depth), swizzle=128),
        b=shared(bf16, (columns, depth), swizzle=128),
    )
    return a, c, ring, k.accumulator("result", rows, columns)


def test_shapes_of_a_product(trace):
    def described(k: Kernel) -> None:
        """B is passed as it is stored."""
        _, _, ring, result = products(k, columns=128)
        with k.role("use"), ring.consume() as stage:
            k.mma(result, stage.a, stage.b)  # fault

    refuse(
        trace,
        described,
        "KW0302",
        "A [64, 64] @ B [128, 64] into [64, 128]",
        "pass a tile that is stored transposed as tile.T",
    )


def test_values_of_k_in_sixteens(trace):
    def described(k: Kernel) -> None:
        """Eight values of K."""
        result = k.accumulator("result", 64, 64)
        narrow = k.buffer("narrow", shared(bf16, (64, 8)))
        with k.role("use"):
            k.mma(result, narrow, narrow.T)  # fault

    refuse(trace, described, "KW0302", "K = 8", "16 values of K at a time")


def test_a_bulk_copy_of_odd_bytes(trace):
    def described(k: Kernel) -> None:
        """Five FP32 values."""
        gates = k.tensor("gates", f32, (5, 1))
        tile = k.buffer("tile", shared(f32, (5, 1)))
        with k.role("load"):
            k.copy_bulk(gates[0, 0], tile)  # fault

    refuse(trace, described, "KW0302", "bulk copy of 20 bytes", "a multiple of 16")


@pytest.mark.parametrize(("arch", "words"), [
    ("sm_90a", ("32 rows over 1 warpgroups", "64 rows a warpgroup", "on sm_90a")),
    ("sm_100a", ("32 rows", "tcgen05.mma accumulates 64 or 128 rows", "on sm_100a")),
])  # fmt: skip
def test_an_accumulator_that_no_instruction_has(trace, arch, words):
    def described(k: Kernel) -> None:
        """32 rows."""
        one = k.tensor("one", bf16, (32, 64))
        ring = k.pipeline("tiles", stages=2, a=shared(bf16, (32, 64), swizzle=128))
        result = k.accumulator("result", 32, 32)  # fault
        with k.role("load"), k.one_thread(), ring.produce() as stage:
            k.copy_tma(one[0, 0], stage.a)
        with k.role("use"):
            with ring.consume() as stage:
                k.mma(result, stage.a, stage.a.T)
            k.copy_tma(
                k.buffer("out", shared(f32, (32, 32), swizzle=128)), k.tensor("c", f32, (32, 32), access="write")
            )

    refuse(trace, described, "KW0302", "'result' does not fit the instruction", *words, after=derived(arch))


def test_a_swizzle_that_no_row_fills(trace):
    def described(k: Kernel) -> None:
        """Rows of 64 bytes under a swizzle of 128."""
        k.buffer("tile", shared(bf16, (64, 32), swizzle=128))  # fault

    refuse(trace, described, "KW0303", "shared tile 'tile'", "64 bytes is no whole number of 128-byte swizzle rows")


def test_a_box_of_more_than_256(trace):
    def described(k: Kernel) -> None:
        """512 rows in one box."""
        a = k.tensor("a", bf16, (512, 64))
        tile = k.buffer("tile", shared(bf16, (512, 64), swizzle=128))
        with k.role("load"):
            k.copy_tma(a[0, 0], tile)  # fault

    refuse(trace, described, "KW0303", "TMA box of tile 'tile'", "extent 512 is not in 1..256")


def test_operands_in_different_layouts(trace):
    def described(k: Kernel) -> None:
        """Two fragments of different widths."""
        tile = k.buffer("tile", SWIZZLED)
        half = k.buffer("half", shared(bf16, (64, 32), swizzle=64))
        with k.role("use"):
            narrow = k.fetch(half, Fragment(64, 32))
            wide = k.fetch(tile, Fragment(64, 64))
            narrow + wide  # fault

    refuse(
        trace,
        described,
        "KW0304",
        "left:  Fragment(rows=64, columns=32",
        "right: Fragment(rows=64, columns=64",
        "Load both with one layout",
    )


def test_what_is_not_lowered_yet(trace):
    def described(k: Kernel) -> None:
        """A role that stages a tile that is stored along its rows."""
        tile = k.buffer("tile", shared(bf16, (64, 64), swizzle=128, major="MN"))
        a = k.pipeline(
            "operands", stages=1, a=shared(bf16, (64, 64), swizzle=128), b=shared(bf16, (64, 64), swizzle=128)
        )
        source = k.tensor("source", bf16, (64, 64))
        c = k.tensor("c", bf16, (64, 64), access="write")
        result = k.accumulator("result", 64, 64)
        with k.role("load"), k.one_thread(), a.produce() as stage:
            k.copy_tma(source[:, :], stage.a)
            k.copy_tma(source[:, :], stage.b)
        with k.role("use"):
            with a.consume() as stage:
                k.mma(result, stage.a, stage.b.T, accumulate=False)
            k.stage(result.read(), tile)  # fault
            k.copy_tma(tile, c)

    refuse(
        trace,
        described,
        "KW0305",
        "MN-major tile is not lowered",
        "on sm_90a",
        "Stage it K-major",
        after=lowered("sm_90a"),
    )


def test_an_instruction_that_the_architecture_lacks(trace):
    def described(k: Kernel) -> None:
        """A number that only tcgen05 machines make."""
        source, target, layout, block = rows_program(k)
        value = k.load(source[block], layout)
        word = k.let("word", call(k, "tcgen05_wait_st", u32, value))  # fault
        k.store(target[block], value * word.to(f32))

    refuse(trace, described, "KW0306", "tcgen05_wait_st does not exist on sm_90a", after=lowered("sm_90a"))

"""What an author may get wrong with copies, operands, shapes of fetched and staged tiles, and optional tensors."""

from __future__ import annotations

import pytest
from support.products import LIKE, SQUARE
from support.refusal import derived, refuse

from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, shared


def out(k: Kernel) -> None:
    """Something is stored."""
    k.copy_tma(k.buffer("kept", SQUARE), k.tensor("target", bf16, (64, 64), access="write"))


# ---- copies and shapes


@pytest.mark.parametrize("outwards", [True, False])
def test_copies_obey_the_access_of_a_tensor(trace, outwards):
    def described(k: Kernel) -> None:
        """Out to what is read, or in from what is written."""
        read, written = k.tensor("read_only", bf16, (64, 64)), k.tensor("written", bf16, (64, 64), access="write")
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            k.copy_tma(*((tile, read) if outwards else (written[0, 0], tile)))  # fault

    words = ("tensor 'read_only' is read-only", '"write" or') if outwards else ("tensor 'written' is write-only",)
    refuse(trace, described, "KW0203", *words, '"update"')


def test_copies_keep_the_element_type(trace):
    def described(k: Kernel) -> None:
        """FP32 out of a BF16 tile."""
        with k.role("use"):
            k.copy_tma(k.buffer("tile", SQUARE), k.tensor("target", f32, (64, 64), access="write"))  # fault

    refuse(trace, described, "KW0201", "'target' of f32 and 'tile' of bf16", "they do not convert")


def test_a_bulk_copy_keeps_the_element_type(trace):
    def described(k: Kernel) -> None:
        """FP32 from BF16 bytes."""
        gates = k.tensor("gates", bf16, (64, 1))
        with k.role("use"):
            k.copy_bulk(gates[0, 0], k.buffer("tile", shared(f32, (64, 1))))  # fault

    refuse(trace, described, "KW0201", "'gates' of bf16 and 'tile' of f32")


def test_a_box_with_rows_along_no_dimension(trace):
    def described(k: Kernel) -> None:
        """Rows along the contiguous dimension."""
        source = k.tensor("source", bf16, (64, 64))
        with k.role("use"):
            k.copy_tma(source[0, 0], k.buffer("tile", SQUARE), rows=1)  # fault

    refuse(trace, described, "KW0204", "along dimension 1 of 'source'", "the tensor has 2 dimensions")


def test_a_box_with_short_rows(trace):
    def described(k: Kernel) -> None:
        """Rows of 8 bytes."""
        source = k.tensor("source", bf16, (64, 4))
        with k.role("use"):
            k.copy_tma(source[0, 0], k.buffer("tile", shared(bf16, (64, 4))))  # fault

    refuse(trace, described, "KW0303", "a row of 8 bytes", "a multiple of 16")


def test_a_tensor_of_more_dimensions_than_a_map(trace):
    def described(k: Kernel) -> None:
        """Six of them."""
        source = k.tensor("source", bf16, (2, 2, 2, 64, 2, 64))
        with k.role("use"):
            k.copy_tma(source[0, 0, 0, 0, 0, 0], k.buffer("tile", SQUARE), rows=3)  # fault
            out(k)

    refuse(trace, described, "KW0303", "'source' has 6 dimensions", "at most 5", after=derived("sm_90a"))


@pytest.mark.parametrize(
    ("layout", "extent", "words"),
    [
        (Fragment(128, 32), Extent.TILE, "the tile is [64, 64], the registers are [128, 32]"),
        (Fragment(64, 64), Extent.ROWS, "a row factor of 64"),
        (Fragment(64, 64), Extent.COLUMNS, "a column factor of 64"),
        (None, Extent.TILE, "a tile without a layout"),
    ],
)
def test_a_fetch_has_the_shape_of_its_tile(trace, layout, extent, words):
    def described(k: Kernel) -> None:
        """A fragment of another shape."""
        tile = k.buffer("tile", SQUARE)
        with k.role("use"):
            k.fetch(tile, layout, extent, name="values")  # fault

    refuse(trace, described, "KW0204", "fetch of 'tile' does not have the shape of the tile", words)


def test_a_scalar_that_the_tile_has_not(trace):
    def described(k: Kernel) -> None:
        """Number 4 of four."""
        tile = k.buffer("tile", shared(f32, (4, 1)))
        with k.role("use"):
            k.fetch(tile, None, Extent.SCALAR, at=4, name="value")  # fault

    refuse(trace, described, "KW0204", "scalar number 4")


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_staged_has_the_shape_of_its_tile(trace, turned):
    def described(k: Kernel) -> None:
        """A wide tile into a tall one."""
        tile, tall = k.buffer("tile", shared(bf16, (32, 64), swizzle=128)), k.buffer("tall", shared(bf16, (64, 32)))
        with k.role("use"):
            values = k.fetch(tile, Fragment(32, 64))
            k.stage(values, tall.T if turned else tall)  # fault

    if turned:
        refuse(trace, described, "KW0302", "stage writes a tile as it is stored", "read it as tile.T")
    else:
        refuse(trace, described, "KW0204", "stage to 'tall'", "the tile is [64, 32], the registers are [32, 64]")


def test_an_operand_without_swizzle(trace):
    def described(k: Kernel) -> None:
        """Rows of 128 bytes as they are."""
        plain = k.buffer("plain", shared(bf16, (64, 64)))
        result = k.accumulator("result", 64, 64)
        with k.role("use"):
            k.mma(result, plain, plain.T)  # fault

    refuse(trace, described, "KW0302", "operand 'plain' has no swizzle", "core matrices of 8 x 16 bytes", "swizzle=128")


def test_an_operand_of_another_type(trace):
    def described(k: Kernel) -> None:
        """FP32."""
        wide = k.buffer("wide", shared(f32, (64, 64), swizzle=128))
        with k.role("use"):
            k.mma(k.accumulator("result", 64, 64), wide, wide.T)  # fault

    refuse(trace, described, "KW0201", "operand 'wide' of f32", "products take bf16")


def test_an_accumulator_set_to_another_layout(trace):
    def described(k: Kernel) -> None:
        """Half as wide."""
        result = k.accumulator("result", 64, 64)
        tile = k.buffer("tile", shared(bf16, (64, 32), swizzle=64))
        with k.role("use"):
            values = k.fetch(tile, Fragment(64, 32))
            result.set(values)  # fault

    refuse(trace, described, "KW0304", "accumulator 'result' lies in another layout", "the accumulator's `layout`")


# ---- KW0207: optional tensors


@pytest.mark.parametrize("stored", [False, True])
def test_an_optional_tensor_that_may_be_absent(trace, stored):
    def described(k: Kernel) -> None:
        """Used without asking."""
        state = k.tensor("state", f32, (64, 64), access="update", optional=True)
        result = k.accumulator("result", 64, 64)
        with k.role("use"):
            values = result.read()
            k.store_tile(state[0, 0], values) if stored else k.load_tile(state[0, 0], LIKE, name="start")  # fault

    refuse(trace, described, "KW0207", "tensor 'state' may be absent here", "with k.when_present(state):")


def test_asking_for_a_tensor_that_is_always_there(trace):
    def described(k: Kernel) -> None:
        """Not optional."""
        state = k.tensor("state", f32, (64, 64))
        with k.role("use"):
            with k.when_present(state):  # fault
                pass

    refuse(trace, described, "KW0207", "tensor 'state' is always there here", "declare optional=True")

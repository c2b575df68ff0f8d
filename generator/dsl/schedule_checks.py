"""What the words of the schedule check as they are said: copies, operands of products, shapes of staged and fetched tiles."""

from __future__ import annotations

from kernwright.generator.dsl.memory import Box, SharedHandle, Tensor
from kernwright.generator.dsl.value import Value
from kernwright.generator.errors import LayoutFault, PipelineFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment, TileLayout
from kernwright.generator.ir.expr import Expr, Var
from kernwright.generator.ir.layout import VectorRows
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import bf16, i32
from kernwright.generator.passes.ranges import range_of

MAXIMUM_GRID = ((1 << 31) - 1, 65535, 65535)  # blocks along x, y and z


def check_access(tensor: Tensor, forbidden: str, source: Source) -> None:
    """A tensor is not read where it is only written, nor the other way round."""
    parameter = tensor.parameter
    if parameter.access == forbidden:
        raise TensorFault(
            "KW0203",
            f"tensor {parameter.name!r} is {forbidden}-only",
            source,
            fix='Declare access="update".' if forbidden == "write" else 'Declare access="write" or "update".',
        )


def check_copy(tensor: Tensor, tile: ir.SharedTile, forbidden: str, source: Source) -> None:
    """Access and element type of a copied tensor."""
    check_access(tensor, forbidden, source)
    parameter = tensor.parameter
    if parameter.dtype != tile.layout.dtype:
        raise TensorFault(
            "KW0201",
            f"a copy between {parameter.name!r} of {parameter.dtype} and {tile.name!r} of {tile.layout.dtype}",
            source,
            detail="copies move bytes; they do not convert.",
            fix="Declare the tile with the tensor's type, and convert in registers.",
        )


def box_of(box: Box, tile: ir.SharedTile, rows: int, source: Source) -> ir.GlobalTile:
    """The box of a tensor copy: at most 256 elements a dimension, rows of whole 16 bytes."""
    layout = tile.layout
    outer = layout.rows if layout.major == "K" else layout.columns
    for extent in (outer, layout.panel_elements):
        if not 1 <= extent <= 256:
            raise LayoutFault(
                "KW0303", f"TMA box of tile {tile.name!r}", source, detail=f"extent {extent} is not in 1..256."
            )
    inner = layout.panel_elements * layout.dtype.bytes
    if inner % 16:
        raise LayoutFault(
            "KW0303", f"TMA box of tile {tile.name!r}", source, detail=f"a row of {inner} bytes: need a multiple of 16."
        )
    dimensions = len(box.tensor.parameter.shape)
    if not 0 <= rows < max(1, dimensions - 1) or (dimensions == 1 and outer != 1):
        raise TensorFault(
            "KW0204",
            f"rows of tile {tile.name!r} along dimension {rows} of {box.tensor.parameter.name!r}",
            source,
            detail=f"the tensor has {dimensions} dimensions, of which the last one holds the tile's contiguous one.",
        )
    return ir.GlobalTile(box.tensor.parameter.name, box.origin, (layout.rows, layout.columns), rows)


def check_operand(tile: ir.SharedTile, source: Source) -> None:
    """An operand of a product in shared memory is BF16 under a swizzle."""
    layout = tile.layout
    if layout.dtype != bf16:
        raise TensorFault("KW0201", f"operand {tile.name!r} of {layout.dtype}", source, detail="products take bf16.")
    if not layout.swizzle:
        raise LayoutFault(
            "KW0302",
            f"operand {tile.name!r} has no swizzle",
            source,
            detail="without one an operand is made of core matrices of 8 x 16 bytes, in which no tile is stored here.",
            fix="Declare the tile with swizzle=128, 64 or 32.",
        )


def check_extent(
    what: str, handle: SharedHandle, layout: TileLayout | None, extent: Extent, source: Source, at: int = 0
) -> None:
    """A register tile has the tile's shape, a factor its number of elements, and a scalar is one of them."""
    rows, columns = handle.shape
    match extent, layout:
        case Extent.TILE, (Fragment() | VectorRows()):
            fits, wanted = (layout.rows, layout.columns) == (rows, columns), f"[{layout.rows}, {layout.columns}]"
        case Extent.ROWS, (Fragment() | VectorRows()):
            fits, wanted = layout.rows == rows * columns, f"a row factor of {layout.rows}"
        case Extent.COLUMNS, (Fragment() | VectorRows()):
            fits, wanted = layout.columns == rows * columns, f"a column factor of {layout.columns}"
        case Extent.SCALAR, _:
            fits, wanted = 0 <= at < rows * columns, f"scalar number {at}"
        case _:
            fits, wanted = False, f"a {extent.value} without a layout"
    if not fits:
        raise TensorFault(
            "KW0204",
            f"{what} {handle.tile.name!r} does not have the shape of the tile",
            source,
            detail=f"the tile is [{rows}, {columns}], the registers are {wanted}.",
        )


def check_register_operand(value: Value, source: Source) -> Var:
    """A operand from registers is made with k.operand(...) or fetched as BF16 in its layout."""
    if not isinstance(value.layout, Fragment) or value.layout.role != "operand" or not isinstance(value.expr, Var):
        raise LayoutFault("KW0302", "A from registers must be made with k.operand(...)", source)
    if value.dtype != bf16:
        raise TensorFault(
            "KW0201",
            f"operand {value.expr.name!r} of {value.dtype}",
            source,
            detail="products take bf16.",
            fix="Fetch it with dtype=bf16, or round it with k.operand(...).",
        )
    return value.expr


def check_stride(first: Expr, step: Expr, source: Source) -> None:
    """A loop begins at no negative number and goes on."""
    begin, by = range_of(first), range_of(step)
    if begin.low < 0 or by.low < 1:
        raise PipelineFault(
            "KW0403",
            "a loop that may begin below zero or stand still",
            source,
            detail=f"first is in {begin}, step in {by}.",
            fix="Give the scalars in them limits: low=0 and low=1.",
        )


def upper(extent: Expr) -> int:
    """The largest value of an extent that the declared facts allow, at most that of an int."""
    return min(range_of(extent).high, i32.high)

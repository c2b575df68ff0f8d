"""The words of row-wise programs: one layout, blocks of rows, vector loads and stores, reductions along a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kernwright.generator.dsl.memory import BlockRange, Box, Tensor
from kernwright.generator.dsl.names import assigned_name, author_source
from kernwright.generator.dsl.value import Value
from kernwright.generator.errors import LayoutFault, ProgramFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent
from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Var, integer
from kernwright.generator.ir.layout import VectorRows
from kernwright.generator.ir.names import partial_name, stored_name
from kernwright.generator.ir.program import StaticAssert, TensorParameter
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, f32, i32, i64, u32

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel

MAXIMUM_GRID = (1 << 31) - 1  # blocks in the grid's first dimension
ACCESS_BYTES = 16  # of one vector access


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A vector-row layout with the named number of `rows` that a block works on."""

    layout: VectorRows
    rows: Const


class RowWords:
    """Mixin of `Kernel`."""

    @property
    def _rows(self) -> Kernel:
        return cast("Kernel", self)

    def vector_rows(self, columns: Value | int, *, threads: int = 128, vector: int = 8) -> RowLayout:
        """Rows of `columns` values over the block's threads, `vector` neighbouring values a thread, a row inside one warp."""
        kernel, source = self._rows, author_source()
        width = kernel.lift(columns, i32, source).expr
        if not isinstance(width, Const):
            raise LayoutFault("KW0301", "columns of a vector-row layout must be a constant", source)
        if kernel.threads is not None:
            raise LayoutFault(
                "KW0307", "a row-wise program has one vector-row layout", source, fix="Use the first one everywhere."
            )
        try:
            layout = VectorRows(threads, int(width.value), vector)
        except ValueError as error:
            raise LayoutFault("KW0301", "vector-row layout does not fit", source, detail=str(error)) from None
        kernel.threads = threads

        def named(name: str, value: Expr, number: int, reason: str) -> Const:
            return kernel.named_constant(name, value, number, i32, reason, source)

        k_threads = named("threads", integer(threads), threads, "threads of a block")
        held = f"neighbouring values of one thread: {2 * vector} bytes of BF16, {4 * vector} of FP32"
        k_vector = named("vector", integer(vector), vector, held)
        k_lanes = named("lanes_per_row", Binary("/", width, k_vector), layout.lanes_per_row, "lanes that share a row")
        k_rows = named("rows_per_block", Binary("/", k_threads, k_lanes), layout.rows, "rows of a block")
        for left, right, reason in (
            (width, k_vector, "a row is a whole number of vector accesses"),
            (integer(32), k_lanes, "the lanes of a row sit in one warp, where shuffles reach"),
            (k_threads, integer(32), "whole warps, so that a block holds whole rows"),
        ):
            kernel.asserts.append(StaticAssert(Binary("==", Binary("%", left, right), integer(0)), reason))
        return RowLayout(layout, k_rows)

    def blocks(self, extent: Value | int, step: RowLayout) -> BlockRange:
        """One block of the grid for every `step.rows` of `extent`; the last block can be short. One call a program."""
        kernel, source = self._rows, author_source()
        if not isinstance(step, RowLayout):
            raise LayoutFault(
                "KW0301", f"step={step!r}", source, fix="step is the layout that k.vector_rows(...) returned."
            )
        if kernel.blocks_of is not None:
            raise LayoutFault(
                "KW0307",
                "a program has one k.blocks(...)",
                source,
                detail=f"the first one is at {kernel.blocks_of.source}: a block of the grid works on one range of rows.",
                fix="Write a second program for the other range.",
            )
        rows = int(step.rows.value)
        whole = kernel.lift(extent, i32, source).expr
        largest = whole.high if isinstance(whole, Var) else int(whole.value) if isinstance(whole, Const) else None
        if largest is None or largest > MAXIMUM_GRID * rows:
            raise TensorFault(
                "KW0205",
                "the grid can have more blocks than a launch allows",
                source,
                detail=f"{MAXIMUM_GRID} blocks of {rows} rows are {MAXIMUM_GRID * rows} rows; the extent may be {largest}.",
                fix=f"Declare high={MAXIMUM_GRID * rows} or less.",
            )
        kernel.blocks_of = ir.Blocks("block", whole, step.rows, source)
        index = Cast(i64, Var("blockIdx.x", u32, 0, MAXIMUM_GRID - 1), source)
        return BlockRange(kernel, kernel.blocks_of, Binary("*", index, step.rows, source))

    def load(self, origin: Tensor | Box, layout: RowLayout, *, dtype: DType = f32, name: str | None = None) -> Value:
        """Load the block's rows (or, for a one-dimensional tensor, the columns that each thread holds) as FP32.

        Widening is exact. Rows past the end of the tensor are not read; they hold zeros.
        """
        kernel, source = self._rows, author_source()
        if not isinstance(origin, Box | Tensor) or not isinstance(layout, RowLayout):
            raise LayoutFault(
                "KW0301",
                "k.load takes tensor[block] (or a one-dimensional tensor) and the layout of k.vector_rows(...)",
                source,
            )
        box = origin if isinstance(origin, Box) else origin[0]
        parameter = box.tensor.parameter
        kernel.own(box.tensor.kernel, parameter.name, source)
        if parameter.access == "write":
            raise TensorFault(
                "KW0203", f"tensor {parameter.name!r} is write-only", source, fix='Declare access="update".'
            )
        if dtype != f32:
            raise TensorFault(
                "KW0201", f"a row is loaded as f32, not as {dtype}", source, fix="Convert afterwards: value.to(...)."
            )
        extent = self._check_rows(box, layout.layout, source)
        final = kernel.local(name or assigned_name(), "load", source)
        shape = (layout.layout.columns,) if extent is Extent.COLUMNS else (layout.layout.rows, layout.layout.columns)
        kernel.emit(
            ir.LoadTile(final, ir.GlobalTile(parameter.name, box.origin, shape), dtype, extent, layout.layout, source)
        )
        return Value(kernel, Var(final, dtype, source=source), extent, layout.layout)

    def store(self, target: Box, value: Value) -> None:
        """Store a register tile, each value rounded once to the tensor's type; rows past the end are not stored."""
        kernel, source = self._rows, author_source()
        if not isinstance(target, Box) or not isinstance(value, Value):
            raise LayoutFault(
                "KW0301", "k.store takes tensor[block] first and a value second", source, fix="k.store(y[block], value)"
            )
        parameter = target.tensor.parameter
        kernel.own(target.tensor.kernel, parameter.name, source)
        kernel.own(value.kernel, "value", source)
        if parameter.access == "read":
            raise TensorFault(
                "KW0203",
                f"tensor {parameter.name!r} is read-only",
                source,
                detail="It is loaded through the read-only path, so the program may not write it.",
                fix='Declare access="write" or "update".',
            )
        if value.extent is not Extent.TILE or not isinstance(value.layout, VectorRows) or value.dtype != f32:
            raise LayoutFault(
                "KW0301",
                "only an f32 register tile can be stored",
                source,
                detail=f"the value is a {value.extent.value} of {value.dtype}.",
                fix="Combine it with a tile, or convert it with .to(f32); the store rounds by itself.",
            )
        if self._check_rows(target, value.layout, source) is not Extent.TILE:
            raise LayoutFault("KW0301", f"{parameter.name!r} has one dimension: rows cannot be stored to it", source)
        if any(
            isinstance(op, ir.StoreTile) and op.tile.tensor == parameter.name
            for body in kernel.bodies
            for op in ir.walk(tuple(body))
        ):
            raise ProgramFault(
                "KW0607",
                f"tensor {parameter.name!r} is stored twice",
                source,
                detail="In one block the first store would be lost.",
            )
        layout = value.layout
        if not isinstance(value.expr, Var):
            # The rounded row needs registers of its own; its name follows from the tensor's.
            value = kernel.materialize(kernel.claim_name(stored_name(parameter.name), "stored tile", source), value)
        kernel.emit(ir.StoreTile(ir.GlobalTile(parameter.name, target.origin), value.expr, layout, source))

    def row_mean(self, value: Value, *, name: str | None = None) -> Value:
        """Mean along every row, as a row factor; see `row_sum`."""
        return self._reduce("mean", value, name)

    def row_sum(self, value: Value, *, name: str | None = None) -> Value:
        """Sum along every row, as a row factor. The order of the additions is fixed.

        A product that is written inside the call (`row_sum(a * b)`) is accumulated with FMA, one rounding a term; a product that
        has a name of its own is rounded before it is added.
        """
        return self._reduce("sum", value, name)

    # ---- private

    def _reduce(self, op: str, value: Value, name: str | None) -> Value:
        kernel, source = self._rows, author_source()
        if value.layout is None or value.extent is not Extent.TILE or value.dtype != f32:
            raise LayoutFault(
                "KW0301",
                f"row_{op} needs an f32 register tile",
                source,
                detail=f"got a {value.extent.value} of {value.dtype}.",
            )
        final = kernel.local(name or assigned_name(), f"row_{op}", source)
        kernel.claim_name(partial_name(final), "partial sum", source)
        kernel.emit(ir.RowReduce(final, op, value.expr, value.layout, source))
        return Value(kernel, Var(final, f32, source=source), Extent.ROWS, value.layout)

    def _check_rows(self, box: Box, layout: VectorRows, source: Source) -> Extent:
        """That a box is the running block's rows (or the columns of a one-dimensional tensor) and fits layout and accesses."""
        parameter = box.tensor.parameter
        name, width = parameter.name, parameter.shape[-1]
        if not isinstance(width, Const) or width.value != layout.columns:
            shown = width.value if isinstance(width, Const) else "a run-time size"
            raise LayoutFault(
                "KW0301",
                f"layout does not cover the rows of {name!r}",
                source,
                detail=f"the layout has {layout.columns} columns, the tensor {shown}.",
            )
        self._check_access(parameter, layout, source)
        dimensions = len(parameter.shape)
        starts = box.origin[1:] if box.block is not None else box.origin
        whole = [isinstance(first, Const) and first.value == 0 for first in starts]
        if dimensions == 1 and box.block is None and all(whole):
            return Extent.COLUMNS
        if dimensions != 2 or box.block is None or not all(whole):
            raise LayoutFault(
                "KW0301",
                f"a row-wise access to {name!r} takes the rows of the running block",
                source,
                detail=f"{name} has {dimensions} dimension{'s' if dimensions > 1 else ''}; a block's rows start at column 0.",
                fix=f"Write {name}[block] for two dimensions, {name} alone for one.",
            )
        if parameter.shape[0] != box.block.blocks.extent:
            raise LayoutFault(
                "KW0301",
                f"{name!r} has other rows than the blocks",
                source,
                detail="the last block is cut at the end of the blocks' extent, which must be the tensor's first dimension.",
                fix="Declare the tensor over the same scalar, or write a program for it.",
            )
        return Extent.TILE

    def _check_access(self, parameter: TensorParameter, layout: VectorRows, source: Source) -> None:
        size = layout.vector * parameter.dtype.bytes
        if size % ACCESS_BYTES or parameter.alignment < ACCESS_BYTES:
            raise LayoutFault(
                "KW0301",
                f"vector accesses to {parameter.name!r} do not fit",
                source,
                detail=f"a thread's piece has {size} bytes on a {parameter.alignment}-byte boundary; accesses have {ACCESS_BYTES}.",
                fix=f"Use a vector of {ACCESS_BYTES // parameter.dtype.bytes} values or a multiple, and alignment={ACCESS_BYTES}.",
            )

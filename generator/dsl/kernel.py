"""The words an author writes with. `Kernel` is the program being traced: each call adds what it says to the description."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kernwright.generator.dsl.memory import BlockRange, Box, Tensor
from kernwright.generator.dsl.names import assigned_name, author_source, check_name
from kernwright.generator.dsl.schedule import ScheduleWords
from kernwright.generator.dsl.value import Number, Value, call, constant, select
from kernwright.generator.errors import ExpressionFault, LayoutFault, LimitFault, NameFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent
from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Var, integer
from kernwright.generator.ir.layout import VectorRows
from kernwright.generator.ir.program import NamedConstant, ScalarParameter, StaticAssert, TensorParameter
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, boolean, f32, i32, i64, u32

GENERATED_NAMES = frozenset({"row", "column", "offset", "in_range", "i", "shared", "ring"})
MAXIMUM_GRID = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A vector-row layout with its named numbers: `rows` of the block's tile, `lanes_per_row` that share one of them."""

    layout: VectorRows
    rows: Const


class Kernel(ScheduleWords):
    """A program while it is traced. Made by `@program`; every method below is a word of the language."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self.names: dict[str, Source] = {}
        self.reserved = GENERATED_NAMES | reserved
        self.parameters: list[TensorParameter | ScalarParameter] = []
        self.constants: dict[str, NamedConstant] = {}
        self.asserts: list[StaticAssert] = []
        self.blocks_of: ir.Blocks | None = None
        self.threads: int | None = None
        self.blocks_per_sm: int | None = None
        self.pipelines: list[ir.Pipeline] = []
        self.buffers: list[ir.SharedTile] = []
        self.accumulators: list[ir.Accumulator] = []
        self.roles: list[ir.Role] = []
        self.bodies: list[list[ir.Operation]] = [[]]
        self.current_role: ir.Role | None = None

    # ---- parameters and constants

    def scalar(
        self,
        name: str,
        dtype: DType,
        *,
        low: int | None = None,
        high: int | None = None,
        multiple_of: int = 1,
        minimum: float | None = None,
        doc: str = "",
    ) -> Value:
        """A scalar argument. Integers have inclusive limits `low`..`high`, which every range proof may use; floats a `minimum`.

        A scalar that is a dimension of a tensor is read from that tensor's shape; the caller passes the others.
        """
        source = self.claim(name, "scalar")
        if dtype.is_integer:
            low = 0 if low is None else low
            high = dtype.high if high is None else high
            if not dtype.low <= low <= high <= dtype.high or multiple_of < 1 or minimum is not None:
                raise TensorFault(
                    "KW0205",
                    f"scalar {name!r}: limits {low}..{high}, multiple of {multiple_of}",
                    source,
                    detail=f"{dtype} holds {dtype.low}..{dtype.high}; low <= high, multiple_of >= 1, minimum is for floats.",
                )
        elif low is not None or high is not None or multiple_of != 1:
            raise TensorFault("KW0205", f"scalar {name!r} is a float: it takes `minimum` only", source)
        parameter = ScalarParameter(name, dtype, low, high, multiple_of, minimum, None, doc, source)
        self.parameters.append(parameter)
        return Value(self, Var(name, dtype, low, high, source))

    def tensor(
        self,
        name: str,
        dtype: DType,
        shape: tuple[Any, ...],
        *,
        access: str = "read",
        alignment: int = 16,
        folded: bool = False,
        doc: str = "",
    ) -> Tensor:
        """A contiguous tensor argument; `shape` holds numbers, scalars, or sympy formulas over `scalar.symbol`.

        `access` is "read", "write" or "update"; `alignment` is in bytes.

        `folded` lets any number of leading dimensions stand for the first one: `[T, H, 128]` is taken as `[T * H, 128]`.
        """
        source = self.claim(name, "tensor")
        if access not in ("read", "write", "update"):
            raise TensorFault(
                "KW0203", f"tensor {name!r}: access {access!r}", source, fix='Use "read", "write" or "update".'
            )
        dimensions = tuple(self._dimension(item, name, source) for item in shape)
        strides: list[Expr] = [integer(1)]
        for extent in reversed(dimensions[1:]):
            inner = strides[0]
            strides.insert(0, extent if inner == integer(1) else Binary("*", extent, inner))
        for axis, extent in enumerate(dimensions):
            self._bind(extent, name, axis)
        parameter = TensorParameter(name, dtype, dimensions, tuple(strides), access, alignment, folded, doc, source)
        self.parameters.append(parameter)
        return Tensor(self, parameter)

    def constant(self, name: str, value: int, reason: str = "") -> Value:
        """A number with a name of its own in the table at the top of the text: `constant("columns", 128)` is `kColumns`."""
        source = author_source()
        return Value(self, self.named_constant(name, integer(value), value, i32, reason, source))

    def named_constant(
        self, name: str, value: Expr, number: int | float, dtype: DType, reason: str, source: Source
    ) -> Const:
        """A row of the constants' table; `value` is what the text shows, `number` what it is."""
        spelled = "k" + "".join(part.capitalize() for part in name.split("_"))
        row = NamedConstant(Const(number, dtype, spelled, source), value, reason)
        known = self.constants.get(spelled)
        if known is not None and (known.value, known.constant) != (row.value, row.constant):
            raise NameFault(
                "KW0102",
                f"constant {spelled!r} is defined twice",
                source,
                detail=f"first as {known.constant.value} at {known.constant.source}, now as {number}.",
            )
        if known is None:
            self.constants[spelled] = row
        return self.constants[spelled].constant

    def require(self, condition: Value, reason: str) -> None:
        """A `static_assert` of the text over named constants."""
        self.asserts.append(StaticAssert(condition.expr, reason))

    def occupancy(self, blocks_per_sm: int) -> None:
        """Blocks that an SM is to hold at once: fixes the registers a thread has at launch, from which setmaxnreg moves."""
        source = author_source()
        if not 1 <= blocks_per_sm <= 32:
            raise LimitFault("KW0502", f"{blocks_per_sm} blocks an SM", source, detail="an SM holds at most 32 blocks.")
        self.blocks_per_sm = blocks_per_sm

    def formula(self, formula: Any, source: Source) -> Expr:
        """A sympy formula over `scalar.symbol`s as an exact integer expression, in i32 where that is proved to do."""
        from kernwright.generator.ir.symbolic import SymbolicError, from_sympy

        scalars = {
            p.name: Var(p.name, p.dtype, p.low, p.high, p.source)
            for p in self.parameters
            if isinstance(p, ScalarParameter)
        }
        try:
            return from_sympy(formula, scalars)
        except SymbolicError as error:
            raise ExpressionFault(
                "KW0702", f"{formula} has no exact integer meaning", source, detail=str(error)
            ) from None

    # ---- row-wise programs

    def vector_rows(self, columns: Value | int, *, threads: int = 128, vector: int = 8) -> RowLayout:
        """Rows of `columns` values over the block's threads, `vector` neighbouring values a thread, a row inside one warp."""
        source = author_source()
        width = self.lift(columns, i32, source).expr
        if not isinstance(width, Const):
            raise LayoutFault("KW0301", "columns of a vector-row layout must be a constant", source)
        try:
            layout = VectorRows(threads, int(width.value), vector)
        except ValueError as error:
            raise LayoutFault("KW0301", "vector-row layout does not fit", source, detail=str(error)) from None
        self.threads = threads
        k_threads = self.named_constant("threads", integer(threads), threads, i32, "threads of a block", source)
        k_vector = self.named_constant(
            "vector", integer(vector), vector, i32, "neighbouring values of one thread, one vector access", source
        )
        k_lanes = self.named_constant(
            "lanes_per_row", Binary("/", width, k_vector), layout.lanes_per_row, i32, "lanes that share a row", source
        )
        k_rows = self.named_constant(
            "rows_per_block", Binary("/", k_threads, k_lanes), layout.rows, i32, "rows of a block", source
        )
        zero = integer(0)
        self.asserts += [
            StaticAssert(
                Binary("==", Binary("%", width, k_vector), zero), "a row is a whole number of vector accesses"
            ),
            StaticAssert(
                Binary("==", Binary("%", integer(32), k_lanes), zero),
                "the lanes of a row sit in one warp, where shuffles reach",
            ),
            StaticAssert(
                Binary("==", Binary("%", k_threads, integer(32)), zero), "whole warps, so that a block holds whole rows"
            ),
        ]
        return RowLayout(layout, k_rows)

    def blocks(self, extent: Value, step: RowLayout) -> BlockRange:
        """One block of the grid for every `step.rows` of `extent`; the last block can be short."""
        source = author_source()
        largest = extent.expr.high if isinstance(extent.expr, Var) else None
        rows = int(step.rows.value)
        if largest is None or largest > MAXIMUM_GRID * rows:
            raise TensorFault(
                "KW0205",
                "the grid can have more blocks than a launch allows",
                source,
                detail=f"{MAXIMUM_GRID} blocks of {rows} rows are {MAXIMUM_GRID * rows} rows; the extent may be {largest}.",
                fix=f"Declare high={MAXIMUM_GRID * rows} or less.",
            )
        self.blocks_of = ir.Blocks("block", extent.expr, step.rows, source)
        index = Cast(i64, Var("blockIdx.x", u32, 0, MAXIMUM_GRID - 1), source)
        return BlockRange(self, self.blocks_of, Binary("*", index, step.rows, source))

    def load(self, origin: Tensor | Box, layout: RowLayout, *, dtype: DType = f32, name: str | None = None) -> Value:
        """Load the block's rows (or, for a one-dimensional tensor, the columns that each thread holds) as `dtype`.

        Widening is exact. Rows past the end of the tensor are not read; they hold zeros.
        """
        source = author_source()
        box = origin if isinstance(origin, Box) else origin[0]
        parameter = box.tensor.parameter
        self.own(box.tensor.kernel, parameter.name, source)
        if parameter.access == "write":
            raise TensorFault(
                "KW0203", f"tensor {parameter.name!r} is write-only", source, fix='Declare access="update".'
            )
        extent = Extent.COLUMNS if len(parameter.shape) == 1 else Extent.TILE
        self._check_row_width(parameter, layout, source)
        final = self.local(name or assigned_name(), "load", source)
        shape = (layout.layout.columns,) if extent is Extent.COLUMNS else (layout.layout.rows, layout.layout.columns)
        tile = ir.GlobalTile(parameter.name, box.origin, shape)
        self.emit(ir.LoadTile(final, tile, dtype, extent, layout.layout, source))
        return Value(self, Var(final, dtype, source=source), extent, layout.layout)

    def store(self, target: Box, value: Value) -> None:
        """Store a register tile, each value rounded once to the tensor's type; rows past the end are not stored."""
        source = author_source()
        parameter = target.tensor.parameter
        self.own(target.tensor.kernel, parameter.name, source)
        if parameter.access == "read":
            raise TensorFault(
                "KW0203",
                f"tensor {parameter.name!r} is read-only",
                source,
                detail="It is loaded through the read-only path, so the program may not write it.",
                fix='Declare access="write" or "update".',
            )
        if not isinstance(value.expr, Var):
            # The rounded row needs registers of its own; its name follows from the tensor's.
            value = self._materialize(self.claim_name(f"{parameter.name}_row", "stored tile", source), value)
        if value.layout is None or value.extent is not Extent.TILE:
            raise LayoutFault(
                "KW0301", "only a register tile can be stored", source, detail=f"The value is a {value.extent.value}."
            )
        self.emit(ir.StoreTile(ir.GlobalTile(parameter.name, target.origin), value.expr, value.layout, source))

    def row_mean(self, value: Value, *, name: str | None = None) -> Value:
        """Mean along every row, as a row factor. Products are accumulated with FMA; the order of the additions is fixed."""
        return self._reduce("mean", value, name)

    def row_sum(self, value: Value, *, name: str | None = None) -> Value:
        """Sum along every row, as a row factor. Products are accumulated with FMA; the order of the additions is fixed."""
        return self._reduce("sum", value, name)

    # ---- elementwise maths

    def exp2(self, value: Value) -> Value:
        """2^value, at most 2 ulp off."""
        return self._named(call(self, "exp2_approx", f32, value))

    def exp(self, value: Value) -> Value:
        """e^value as 2^(log2(e) * value)."""
        return self._named(call(self, "exp2_approx", f32, self._scaled("log2e", 1.0, value)))

    def rsqrt(self, value: Value) -> Value:
        """1 / sqrt(value), relative error at most 2^-22.9."""
        return self._named(call(self, "rsqrt_approx", f32, value))

    def reciprocal(self, value: Value) -> Value:
        """1 / value, at most 1 ulp off."""
        return self._named(call(self, "reciprocal_approx", f32, value))

    def sigmoid(self, value: Value) -> Value:
        """1 / (1 + exp(-value))."""
        return self._named(self._sigmoid(value))

    def silu(self, value: Value) -> Value:
        """value * sigmoid(value) = value / (1 + exp(-value))."""
        sigmoid = self._sigmoid(value)
        return self._named(replace(value, expr=Binary("*", value.expr, sigmoid.expr, author_source())))

    def where(self, condition: Value, then: Value, otherwise: Value | Number) -> Value:
        """`then` where `condition` holds, else `otherwise`; the other side is not evaluated."""
        source = author_source()
        if condition.dtype != boolean:
            raise TensorFault("KW0201", f"a condition must be boolean, got {condition.dtype}", source)
        return self._named(select(condition, then, self.lift(otherwise, then.dtype, source), source))

    def let(self, name: str, value: Value) -> Value:
        """Give a value its name in words, where there is no plain assignment."""
        return self._materialize(self.claim_name(name, "value", author_source()), value)

    # ---- bookkeeping, used by the other rooms of the language

    def record(self, expr: Expr, extent: Extent, layout: ir.TileLayout | None) -> Value:
        """A new elementwise value: named if the author assigns it, otherwise part of the expression that uses it."""
        return self._named(Value(self, expr, extent, layout))

    def lift(self, item: Value | Number, like: DType, source: Source) -> Value:
        """A value, or a Python number as a literal of the type it has beside `like`."""
        if isinstance(item, Value):
            self.own(item.kernel, "value", source)
            return item
        return Value(self, constant(item, like, source))

    def emit(self, operation: ir.Operation) -> None:
        """Append to the block that is being described."""
        self.bodies[-1].append(operation)

    @contextmanager
    def body(self) -> Iterator[list[ir.Operation]]:
        """Collect the operations of a nested block."""
        self.bodies.append([])
        try:
            yield self.bodies[-1]
        finally:
            self.bodies.pop()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names claimed inside are the block's own: another block may use them again."""
        outer = dict(self.names)
        try:
            yield
        finally:
            self.names = outer

    def claim(self, name: str, what: str) -> Source:
        """Register a name given in words; returns where."""
        source = author_source()
        self.claim_name(name, what, source)
        return source

    def claim_name(self, name: str, what: str, source: Source) -> str:
        """Register a name of the text; refuse keywords, names in use, and the generator's own names."""
        check_name(name, source, what)
        if name in self.reserved or name in self.constants:
            raise NameFault(
                "KW0102",
                f"{what} {name!r} collides with a name that the generator uses",
                source,
                fix="Choose another name.",
            )
        if name in self.names:
            raise NameFault(
                "KW0102",
                f"{what} {name!r} is already taken",
                source,
                detail=f"first used at {self.names[name]}.",
                fix="Choose another name.",
            )
        self.names[name] = source
        return name

    def local(self, name: str | None, what: str, source: Source) -> str:
        """The name of a value that must have one."""
        if name is None:
            raise NameFault(
                "KW0103", f"this {what} has no name", source, fix='Assign it to a variable, or pass name="...".'
            )
        return self.claim_name(name, what, source)

    def own(self, kernel: object, name: str, source: Source) -> None:
        if kernel is not self:
            raise TensorFault(
                "KW0202", f"{name!r} belongs to another program", source, fix="Declare it in this program."
            )

    # ---- private

    def _named(self, value: Value) -> Value:
        name = assigned_name()
        if name is None or isinstance(value.expr, Const | Var):
            return value
        return self._materialize(self.claim_name(name, "value", author_source()), value)

    def _materialize(self, name: str, value: Value) -> Value:
        source = author_source()
        self.emit(ir.Elementwise(name, value.expr, value.dtype, value.extent, value.layout, source))
        return replace(value, expr=Var(name, value.dtype, source=source))

    def _sigmoid(self, value: Value) -> Value:
        one = Const(1.0, f32)
        power = call(self, "exp2_approx", f32, self._scaled("negative_log2e", -1.0, value))
        return call(self, "reciprocal_approx", f32, replace(value, expr=Binary("+", one, power.expr, author_source())))

    def _scaled(self, name: str, sign: float, value: Value) -> Value:
        number: float = sign * struct.unpack("f", struct.pack("f", math.log2(math.e)))[0]
        reason = "exp(-v) = 2^(-log2(e) * v)" if sign < 0 else "exp(v) = 2^(log2(e) * v)"
        factor = self.named_constant(name, Const(number, f32), number, f32, reason, author_source())
        return replace(value, expr=Binary("*", factor, value.expr, author_source()))

    def _reduce(self, op: str, value: Value, name: str | None) -> Value:
        source = author_source()
        if value.layout is None or value.extent is not Extent.TILE or value.dtype != f32:
            raise LayoutFault(
                "KW0301",
                f"row_{op} needs an f32 register tile",
                source,
                detail=f"got a {value.extent.value} of {value.dtype}.",
            )
        final = self.local(name or assigned_name(), f"row_{op}", source)
        self.emit(ir.RowReduce(final, op, value.expr, value.layout, source))
        return Value(self, Var(final, f32, source=source), Extent.ROWS, value.layout)

    def _dimension(self, item: Any, tensor: str, source: Source) -> Expr:
        if isinstance(item, Value):
            self.own(item.kernel, tensor, source)
            return item.expr
        if isinstance(item, int):
            return integer(item)
        return self.formula(item, source)

    def _bind(self, extent: Expr, tensor: str, axis: int) -> None:
        """A scalar that stands alone as a dimension is read from the first tensor that has it."""
        for position, parameter in enumerate(self.parameters):
            if (
                isinstance(extent, Var)
                and isinstance(parameter, ScalarParameter)
                and parameter.name == extent.name
                and parameter.bound_to is None
            ):
                self.parameters[position] = replace(parameter, bound_to=(tensor, axis))

    def _check_row_width(self, parameter: TensorParameter, layout: RowLayout, source: Source) -> None:
        width = parameter.shape[-1]
        if not isinstance(width, Const) or width.value != layout.layout.columns:
            shown = width.value if isinstance(width, Const) else "a run-time size"
            raise LayoutFault(
                "KW0301",
                f"layout does not cover the rows of {parameter.name!r}",
                source,
                detail=f"the layout has {layout.layout.columns} columns, the tensor {shown}.",
            )

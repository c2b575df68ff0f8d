"""Register tiles on tcgen05 machines: a thread has one row, and works on it 16 columns at a time, from tensor memory to its goal.

A value that comes from an accumulator has no array: whoever uses it loads the columns that it needs and computes in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Binary, Call, Cast, Element, Expr, Var, children, integer, rebuild
from kernwright.generator.ir.layout import MMA_ROWS, WARP
from kernwright.generator.ir.names import COLUMN, ROW
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import (
    ArrayOperand,
    Assign,
    If,
    Let,
    Pointer,
    RegisterArray,
    Repeat,
    Statement,
)
from kernwright.generator.ir.types import bf16, f32, i32, u32
from kernwright.generator.passes.roles.base import GROUP, LANE
from kernwright.generator.passes.roles.base import WARP as WARP_OF_GROUP
from kernwright.generator.passes.roles.buffers import CHUNK, SharedTiles
from kernwright.generator.passes.roles.context import TENSOR_MEMORY, plus, times
from kernwright.generator.passes.roles.values import index

CHUNK_COLUMNS = 16  # that a thread loads from tensor memory at once
COLUMN_VAR = Var(COLUMN, i32)
ROW_VAR = Var(ROW, i32)
ELEMENT = Var("i", i32)
MEMORY = Var(TENSOR_MEMORY, u32, 0, 575)
ADDRESS = Var(f"shared.{TENSOR_MEMORY}", u32, 0, 575)  # lane 0, a column
QUARTER = Var("quarter", u32)  # the lanes of tensor memory that the warp reaches


@dataclass(frozen=True, slots=True)
class Row:
    """A named value of a thread's row: `formula` over accumulators, or an array over columns, or one scalar."""

    formula: Expr | None = None
    array: str = ""
    accumulator: str = ""


class ColumnTiles(SharedTiles):
    """The statements that read, compute and write rows."""

    held: dict[str, Row]

    def prologue(self) -> tuple[Statement, ...]:
        rows = {item.accumulator.rows for item in self.context.accumulators_of(self.role.name)}
        each = WARP if rows != {MMA_ROWS} else WARP // 2
        row = plus(times(integer(each), WARP_OF_GROUP), LANE)
        shifted = Cast(u32, Binary("<<", times(integer(WARP), WARP_OF_GROUP), integer(16)))
        return (
            Let(ROW_VAR, row, "of the tile, and lane of tensor memory"),
            Let(MEMORY, ADDRESS),
            Let(QUARTER, plus(MEMORY, shifted), "a warp reaches its quarter of the lanes"),
        )

    # ---- values

    def element(self, expr: Expr, place: Expr = ELEMENT) -> Expr:
        """`expr` at column `column + place` of the thread's row, its accumulators loaded into arrays of the chunk."""
        match expr:
            case Var(name=name, dtype=dtype) if name == COLUMN and dtype == i32:
                return plus(COLUMN_VAR, place)
            case Var(name=name) if name in self.held:
                held = self.held[name]
                if held.formula is not None:
                    return self.element(held.formula, place)
                if held.accumulator:
                    return Element(f"{held.accumulator}_part", index(place), f32)
                return Element(held.array, index(plus(COLUMN_VAR, place)), f32)
        return rebuild(expr, tuple(self.element(child, place) for child in children(expr)))

    def accumulators_in(self, expr: Expr) -> list[str]:
        """Accumulators whose columns `expr` needs, in the order in which it names them."""
        if isinstance(expr, Var) and expr.name in self.held:
            held = self.held[expr.name]
            if held.formula is not None:
                return self.accumulators_in(held.formula)
            return [held.accumulator] if held.accumulator else []
        return list(dict.fromkeys(name for child in children(expr) for name in self.accumulators_in(child)))

    def over_columns(self, value: Expr, columns: int, inside: tuple[Statement, ...], source: Source) -> None:
        """A loop over chunks of the thread's columns; each first loads what `value` needs."""
        loads: list[Statement] = []
        for name in self.accumulators_in(value):
            part = f"{name}_part"
            loads.append(RegisterArray(part, f32, integer(CHUNK_COLUMNS), source=source))
            place = plus(self.context.columns_of(name, QUARTER), COLUMN_VAR)
            load = f"tcgen05_ld_32x32b_x{CHUNK_COLUMNS}"
            loads.append(self.context.execute(load, ArrayOperand(part), place, source=source))
        own = columns // max(1, self.role.warpgroups)
        first: Expr = integer(0)
        end: Expr = integer(own)
        if self.role.warpgroups > 1:
            first = times(GROUP, integer(own))
            end = plus(first, integer(own))
        loop = Repeat(
            Var(COLUMN, i32, 0, columns - CHUNK_COLUMNS),
            end,
            (*loads, *inside),
            self.role.warpgroups == 1,
            first,
            integer(CHUNK_COLUMNS),
            source,
        )
        self.add(loop)

    def guarded(self, layout: Fragment | None, body: tuple[Statement, ...], source: Source) -> tuple[Statement, ...]:
        """Of a tile of 64 rows, the upper half of each warp's lanes hold nothing."""
        if layout is not None and layout.rows == MMA_ROWS:
            return (If(Binary("<", LANE, integer(WARP // 2)), body, source=source),)
        return body

    # ---- operations

    def set_accumulator(self, operation: ir.SetAccumulator) -> None:
        name = operation.accumulator
        part = f"{name}_part"
        columns = self.context.accumulator(name).accumulator.columns
        loaded = name in self.accumulators_in(operation.value)
        target = Element(part, ELEMENT, f32)
        change = Assign(target, self.element(operation.value), source=operation.source)
        loop = Repeat(Var("i", i32, 0, CHUNK_COLUMNS - 1), integer(CHUNK_COLUMNS), (change,), source=operation.source)
        place = plus(self.context.columns_of(name, QUARTER), COLUMN_VAR)
        store = self.context.execute(
            f"tcgen05_st_32x32b_x{CHUNK_COLUMNS}", place, ArrayOperand(part), source=operation.source
        )
        declared = () if loaded else (RegisterArray(part, f32, integer(CHUNK_COLUMNS)),)
        self.over_columns(operation.value, columns, (*declared, loop, store), operation.source)
        self.execute("tcgen05_wait_st", source=operation.source)

    def operand(self, operation: ir.Elementwise, first_column: int) -> None:
        """An operand in tensor memory: two BF16 a column, the row of the thread on its lane."""
        value = operation.value.operand if isinstance(operation.value, Cast) else operation.value
        assert isinstance(operation.layout, Fragment)
        pairs = RegisterArray("pairs", u32, integer(CHUNK_COLUMNS // 2))
        low, high = (self.element(value, plus(times(integer(2), ELEMENT), integer(half))) for half in (0, 1))
        packed = Assign(Element("pairs", ELEMENT, u32), Call("pack_bf16", (low, high), u32), source=operation.source)
        loop = Repeat(Var("i", i32, 0, CHUNK_COLUMNS // 2 - 1), integer(CHUNK_COLUMNS // 2), (packed,))
        place = plus(plus(QUARTER, integer(first_column, u32)), Binary("/", COLUMN_VAR, integer(2)))
        name = f"tcgen05_st_32x32b_x{CHUNK_COLUMNS // 2}"
        store = self.context.execute(name, place, ArrayOperand("pairs"), source=operation.source)
        self.over_columns(value, operation.layout.columns, (pairs, loop, store), operation.source)
        self.execute("tcgen05_wait_st", source=operation.source)

    def write_tile(self, write: ir.WriteShared) -> None:
        """The thread's row into a shared tile, 16 bytes at a time: conflict-free under the swizzle."""
        tile = write.target
        layout = tile.layout
        assert isinstance(write.layout, Fragment)
        if layout.major != "K" or layout.dtype not in (bf16, f32):
            raise self.context.refuse("staging into such a tile", write.source, "Stage BF16 or f32, K-major.")
        each = CHUNK // layout.dtype.bytes
        first = plus(COLUMN_VAR, ELEMENT)
        chunk = Binary("/", first, integer(each))
        panel: Expr = integer(0)
        if layout.panels > 1:
            chunk = Binary("/", Binary("%", first, integer(layout.panel_elements)), integer(each))
            panel = Binary("/", first, integer(layout.panel_elements))
        place = self.context.tile(tile, self.swizzled(tile, ROW_VAR, chunk, panel), self.own_stage(tile))
        value = write.value.operand if isinstance(write.value, Cast) and write.value.dtype == bf16 else write.value
        parts = [self.element(value, plus(ELEMENT, integer(number))) for number in range(each)]
        if layout.dtype == f32:
            store = self.context.execute("store_shared_f32x4", place, *parts, source=write.source)
        else:
            pairs = [Call("pack_bf16", (parts[i], parts[i + 1]), u32) for i in range(0, each, 2)]
            store = self.context.execute("store_shared_b32x4", place, *pairs, source=write.source)
        loop = Repeat(
            Var("i", i32, 0, CHUNK_COLUMNS - each),
            integer(CHUNK_COLUMNS),
            (store,),
            step=integer(each),
            source=write.source,
        )
        self.over_columns(value, write.layout.columns, self.guarded(write.layout, (loop,), write.source), write.source)

    def write_vector(self, write: ir.WriteShared) -> None:
        raise self.context.refuse("staging a vector here", write.source, "Let a role of one warp do it.")

    def fetch(self, fetch: ir.ReadShared) -> None:
        tile = fetch.origin
        member = self.context.element_path(tile)
        dtype = tile.layout.dtype
        if fetch.extent is Extent.SCALAR:
            self.add(Let(Var(fetch.name, f32), Element(member, integer(fetch.index), dtype), source=fetch.source))
            return
        if fetch.extent is Extent.ROWS and dtype == f32:
            self.add(Let(Var(fetch.name, f32), Element(member, ROW_VAR, f32), source=fetch.source))
            return
        if fetch.extent is Extent.COLUMNS and dtype == f32 and isinstance(fetch.layout, Fragment):
            columns = fetch.layout.columns
            self.add(RegisterArray(fetch.name, f32, integer(columns), source=fetch.source))
            element = Var("i", i32, 0, columns - 4)
            load = self.context.execute(
                "load_shared_f32x4",
                ArrayOperand(fetch.name, None, element),
                Pointer(member, element, f32),
                source=fetch.source,
            )
            self.add(Repeat(element, integer(columns), (load,), step=integer(4), source=fetch.source))
            self.held[fetch.name] = Row(array=fetch.name)
            return
        raise self.context.refuse("fetching such a tile", fetch.source, "Row and column factors of FP32 are.")

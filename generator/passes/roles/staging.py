"""Tiles between registers and memory on wgmma machines: stmatrix and ldmatrix under the swizzle, factors, global fragments."""

from __future__ import annotations

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Binary, Call, Cast, Element, Expr, Var, integer
from kernwright.generator.ir.layout import MMA_ROWS
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
from kernwright.generator.ir.types import bf16, f32, i32, i64, u32
from kernwright.generator.ir.uses import names_of
from kernwright.generator.passes.roles.base import GROUP, LANE, WARP, lane_zero
from kernwright.generator.passes.roles.buffers import CHUNK, SharedTiles
from kernwright.generator.passes.roles.context import factor, plus, times
from kernwright.generator.passes.roles.fragments import PAIR, FragmentTiles
from kernwright.generator.passes.roles.values import At, Held, Kind, index
from kernwright.generator.passes.roles.wgmma_products import FRAGMENT

SLICE = Var("slice", i32)
MATRIX_ROW = Var("matrix_row", i32)
ROW_VAR, COLUMN_VAR = Var(ROW, i32), Var(COLUMN, i32)


class Staging(FragmentTiles, SharedTiles):
    """Fetches and stores of fragments."""

    # ---- addresses

    def matrix_offset(self, tile: ir.SharedTile, rows: Expr, block: Expr) -> Expr:
        """Where a lane's row of the 16 x 16 matrices number `block` lies, for ldmatrix and stmatrix."""
        layout = tile.layout
        chunks = layout.panel_elements * layout.dtype.bytes // CHUNK
        half = Binary("/", LANE, integer(16))
        if chunks == 1:
            return self.swizzled(tile, rows, integer(0), plus(times(integer(2), block), half))
        each = chunks // 2
        within = index(Binary("%", block, integer(each))) if layout.panels > 1 else block
        panel = index(Binary("/", block, integer(each))) if layout.panels > 1 else integer(0)
        return self.swizzled(tile, rows, plus(times(integer(2), within), half), panel)

    def rows_of_fragment(self, fragments: int) -> Expr:
        return plus(MATRIX_ROW, times(integer(MMA_ROWS), FRAGMENT)) if fragments > 1 else MATRIX_ROW

    def _fragments(self, layout: object) -> int:
        assert isinstance(layout, Fragment)
        return layout.rows // (MMA_ROWS * self.role.warpgroups)

    def _over_blocks(self, count: int, fragments: int, body: tuple[Statement, ...], source: Source) -> None:
        loop: Statement = Repeat(Var("slice", i32, 0, count - 1), integer(count), body, source=source)
        if fragments > 1:
            loop = Repeat(Var("fragment", i32, 0, fragments - 1), integer(fragments), (loop,), source=source)
        self.add(loop)

    # ---- to shared memory

    def write(self, write: ir.WriteShared) -> None:
        tile = write.target
        self.check_fresh(write.value, write.source)
        if tile.pipeline is None:
            self.free(write)
        if write.extent is Extent.TILE:
            self._write_tile(write)
        else:
            self._write_vector(write)
        if tile.pipeline is None:
            self.hand_over_buffer(write)

    def _write_tile(self, write: ir.WriteShared) -> None:
        tile = write.target
        layout = tile.layout
        if layout.major != "K":
            raise self.context.refuse("staging into an MN-major tile", write.source, "Stage it K-major, read it as .T.")
        fragments = self._fragments(write.layout)
        stage = self.own_stage(tile)
        if layout.dtype == bf16:
            rows = self.rows_of_fragment(fragments)
            place = self.context.tile(tile, self.matrix_offset(tile, rows, SLICE), stage)
            pairs = [self._pair(write.value, number, fragments) for number in range(4)]
            body = (self.context.execute("stmatrix_x4", place, *pairs, source=write.source),)
            self._over_blocks(layout.columns // 16, fragments, body, write.source)
            return
        if layout.dtype != f32:
            raise self.context.refuse(f"staging {layout.dtype}", write.source)
        at = At(PAIR, 0, FRAGMENT if fragments > 1 else None)
        row = self.held.element(Var(ROW, i32), at)
        columns = layout.panel_elements  # of a panel, in floats
        block = index(Binary("/", PAIR, integer(2)))
        if layout.swizzle:
            inside = index(Binary("%", block, integer(columns // 8))) if layout.panels > 1 else block
            panel = index(Binary("/", block, integer(columns // 8))) if layout.panels > 1 else integer(0)
            chunk = plus(times(integer(2), inside), Binary("/", COLUMN_VAR, integer(4)))
            offset = plus(
                self.swizzled(tile, row, chunk, panel), times(integer(4), Binary("%", COLUMN_VAR, integer(4)))
            )
        else:
            first = plus(times(integer(8), block), COLUMN_VAR)
            offset = plus(times(row, integer(4 * layout.columns)), times(integer(4), first))
        values = [self.held.element(write.value, At(PAIR, half, at.fragment)) for half in (0, 1)]
        place = self.context.tile(tile, offset, stage)
        body = (self.context.execute("store_shared_f32x2", place, *values, source=write.source),)
        pairs_each = layout.columns // 4
        loop: Statement = Repeat(Var("pair", i32, 0, pairs_each - 1), integer(pairs_each), body, source=write.source)
        if fragments > 1:
            loop = Repeat(Var("fragment", i32, 0, fragments - 1), integer(fragments), (loop,), source=write.source)
        self.add(loop)

    def _pair(self, value: Expr, number: int, fragments: int) -> Expr:
        """Register pair number 4 * block + `number`: as an operand already holds it, or rounded here."""
        pair = plus(times(integer(4), SLICE), integer(number))
        if value in self.packed:
            name = self.packed[value]
            return Element(f"{name}[fragment]" if fragments > 1 else name, pair, u32)
        held = self.held.held.get(value.name) if isinstance(value, Var) else None
        if held is not None and held.kind is Kind.PAIRS:
            return Element(held.array, pair, u32)
        if isinstance(value, Cast) and value.dtype == bf16:
            value = value.operand
        low, high = (self.held.element(value, At(pair, half, FRAGMENT if fragments > 1 else None)) for half in (0, 1))
        return Call("pack_bf16", (low, high), u32)

    def _write_vector(self, write: ir.WriteShared) -> None:
        """A factor by the lanes that hold it, a scalar by one lane."""
        tile = write.target
        member = self.context.element_path(tile)
        if tile.layout.dtype != f32 or not factor(tile):
            raise self.context.refuse(
                "staging a vector into such a tile", write.source, "Declare it f32, without a swizzle."
            )
        if write.extent is Extent.SCALAR:
            store = Assign(Element(member, integer(0), f32), write.value, source=write.source)
            self.add(store if self.one_thread else If(lane_zero(), (store,), source=write.source))
            return
        if self.role.warpgroups or self.one_thread:
            raise self.context.refuse(
                "staging a vector by a whole warpgroup", write.source, "Let a role of one warp do it."
            )
        each = self._lane_values(write)
        element = Var("i", i32, 0, each - 1)
        if each == 2:
            values = [self.held.element(write.value, At(integer(number), 0)) for number in (0, 1)]
            place = Pointer(member, times(integer(2), LANE), f32)
            self.execute("store_shared_f32x2", place, *values, source=write.source)
            return
        target = Element(member, plus(times(LANE, integer(each)), element), f32)
        body = (Assign(target, self.held.element(write.value, At(element, 0)), source=write.source),)
        self.add(Repeat(element, integer(each), body, source=write.source))

    # ---- standing buffers

    def before_wait(self, operation: ir.Operation) -> None:
        """In the shadow of the products: the buffer that their result goes to is free again."""
        if isinstance(operation, ir.ReadAccumulator) and not self.one_thread:
            for write in self._writes_of(operation.name):
                if write.target.pipeline is None:
                    self.close()
                    self.free(write)

    def _writes_of(self, name: str) -> list[ir.WriteShared]:
        return [op for op in ir.walk(self.body.body) if isinstance(op, ir.WriteShared) and name in names_of(op.value)]

    # ---- from shared memory

    def declare_fetch(self, fetch: ir.ReadShared) -> None:
        """The registers of a fetched value; operands have theirs already."""
        layout = fetch.layout
        name = fetch.name
        if fetch.extent is Extent.SCALAR or (isinstance(layout, Fragment) and layout.role == "operand"):
            return
        assert isinstance(layout, Fragment)
        if fetch.extent is Extent.TILE:
            elements = layout.rows * layout.columns // (128 * self.role.warpgroups)
            fragments = self._fragments(layout)
            if fragments > 1:
                raise self.context.refuse("fetching a tile of stacked fragments", fetch.source)
            if fetch.origin.layout.dtype == bf16:
                self.add(RegisterArray(name, u32, integer(elements // 2), "BF16 pairs", source=fetch.source))
            else:
                self.add(RegisterArray(name, f32, integer(elements), source=fetch.source))
            return
        size = self._vector_size(fetch)
        self.add(RegisterArray(name, f32, integer(size), source=fetch.source))

    def _vector_size(self, fetch: ir.ReadShared) -> int:
        assert isinstance(fetch.layout, Fragment)
        if not self.role.warpgroups:
            return self._lane_values(fetch)
        return 2 * self._fragments(fetch.layout) if fetch.extent is Extent.ROWS else fetch.layout.columns // 4

    def fetch(self, fetch: ir.ReadShared) -> None:
        tile = fetch.origin
        member = self.context.element_path(tile)
        if fetch.extent is Extent.SCALAR:
            value = Element(member, integer(fetch.index), tile.layout.dtype)
            self.add(Let(Var(fetch.name, f32), value, source=fetch.source))
        elif fetch.extent is Extent.TILE:
            self._fetch_tile(fetch)
        else:
            self._fetch_vector(fetch, member)

    def _fetch_vector(self, fetch: ir.ReadShared, member: str) -> None:
        name = fetch.name
        size = self._vector_size(fetch)
        if fetch.origin.layout.dtype != f32 or not factor(fetch.origin):
            raise self.context.refuse(
                "fetching a vector from such a tile", fetch.source, "Declare it f32, without a swizzle."
            )
        if not self.role.warpgroups:
            self._fetch_lanes(fetch, member, size)
            return
        if fetch.extent is Extent.ROWS:
            element = Var("i", i32, 0, size - 1)
            row = plus(ROW_VAR, times(integer(8), element))
            if size > 2:
                halves = times(integer(8), Binary("%", element, integer(2)))
                row = plus(plus(ROW_VAR, times(integer(64), Binary("/", element, integer(2)))), halves)
            body = (Assign(Element(name, element, f32), Element(member, row, f32), source=fetch.source),)
            self.add(Repeat(element, integer(size), body, source=fetch.source))
            self.held.held[name] = Held(Kind.ROWS, name)
            return
        block = Var("slice", i32, 0, size // 2 - 1)
        source = Pointer(member, plus(times(integer(8), block), COLUMN_VAR), f32)
        target = ArrayOperand(name, None, times(integer(2), block))
        load = self.context.execute("load_shared_f32x2", target, source, source=fetch.source)
        self.add(Repeat(block, integer(size // 2), (load,), source=fetch.source))
        self.held.held[name] = Held(Kind.COLUMNS, name)

    def _fetch_lanes(self, fetch: ir.ReadShared, member: str, size: int) -> None:
        if size == 2:
            source = Pointer(member, times(integer(2), LANE), f32)
            self.execute("load_shared_f32x2", ArrayOperand(fetch.name), source, source=fetch.source)
        else:
            element = Var("i", i32, 0, size - 1)
            value = Element(member, plus(times(LANE, integer(size)), element), f32)
            body = (Assign(Element(fetch.name, element, f32), value, source=fetch.source),)
            self.add(Repeat(element, integer(size), body, source=fetch.source))
        self.held.held[fetch.name] = Held(Kind.LANES, fetch.name)

    def _fetch_tile(self, fetch: ir.ReadShared) -> None:
        layout, tile, name = fetch.layout, fetch.origin, fetch.name
        assert isinstance(layout, Fragment)
        shared = tile.layout
        if shared.dtype != bf16 or shared.major != "K":
            raise self.context.refuse(f"fetching a {shared.dtype} tile", fetch.source, "Tiles of BF16, K-major, are.")
        stage = self.own_stage(tile)
        fragments = self._fragments(layout)
        self.touch(name)
        if fetch.transposed:
            token = plus(times(integer(16), SLICE), plus(Binary("%", LANE, integer(8)), _upper_half()))
            chunk = plus(times(integer(2), WARP), Binary("%", Binary("/", LANE, integer(8)), integer(2)))
            panel = GROUP if self.role.warpgroups > 1 else integer(0)
            if shared.panel_elements != MMA_ROWS or fragments > 1:
                raise self.context.refuse("fetching a turned tile of such panels", fetch.source, "Use swizzle=128.")
            offset = self.swizzled(tile, token, chunk, panel)
            instruction = "ldmatrix_x4_transposed"
        else:
            offset = self.matrix_offset(tile, self.rows_of_fragment(fragments), SLICE)
            instruction = "ldmatrix_x4"
        target = ArrayOperand(name, FRAGMENT if fragments > 1 else None, times(integer(4), SLICE))
        load = self.context.execute(instruction, target, self.context.tile(tile, offset, stage), source=fetch.source)
        self._over_blocks(layout.columns // 16, fragments, (load,), fetch.source)
        self.held.held[name] = Held(Kind.PAIRS, name)

    # ---- global memory

    def load(self, load: ir.LoadTile) -> None:
        if load.name not in self.landed:
            raise self.context.refuse(
                "loading a tile that is no accumulator's start", load.source, "Set an accumulator to it."
            )
        name = self.landed[load.name]
        self._global(load.tile, name, load.source, "load", None)

    def store(self, store: ir.StoreTile) -> None:
        self.check_fresh(store.value, store.source)
        held = self.held.held.get(store.value.name) if isinstance(store.value, Var) else None
        if held is None or held.kind is not Kind.FLOATS:
            raise self.context.refuse(
                "storing computed values to global memory", store.source, "Stage them, or name them."
            )
        self._global(store.tile, held.array, store.source, "store", store.value)

    def _global(self, tile: ir.GlobalTile, array: str, source: Source, way: str, value: Expr | None) -> None:
        """A fragment from or to a box of a tensor: pairs of neighbours, rows 8 apart."""
        tensor = self.context.tensor(tile.tensor)
        layout = self.accumulator_layout(array)
        if tensor.dtype != f32 or layout.fragments > 1 or len(tensor.shape) != 2:
            raise self.context.refuse(f"a {way} of {tensor.dtype} fragments", source)
        pitch = tensor.strides[0]
        first_row, first_column = tile.origin
        row = plus(Cast(i64, first_row), ROW_VAR)
        offset = plus(Binary("*", row, pitch), plus(first_column, COLUMN_VAR))
        name = Var(f"{tensor.name}_offset", i64)
        self.add(Let(name, offset, "of the fragment's first pair", source))
        place = plus(
            plus(name, times(times(integer(8), pitch), index(Binary("%", PAIR, integer(2))))),
            times(integer(8), index(Binary("/", PAIR, integer(2)))),
        )
        pointer = Pointer(tensor.name, place, f32)
        registers = ArrayOperand(array, None, times(integer(2), PAIR))
        if way == "load":
            execute = self.context.execute("load_global_f32x2", registers, pointer, source=source)
            self.touch(array)
        else:
            pair = [Element(array, plus(times(integer(2), PAIR), integer(half)), f32) for half in (0, 1)]
            execute = self.context.execute("store_global_f32x2", pointer, *pair, source=source)
        count = layout.registers // 2
        self.add(Repeat(Var("pair", i32, 0, count - 1), integer(count), (execute,), source=source))


def _upper_half() -> Expr:
    return times(integer(8), Binary("/", LANE, integer(16)))

"""Register tiles on wgmma machines: arrays for accumulators, operands and values, and the loops that compute them."""

from __future__ import annotations

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Var, integer
from kernwright.generator.ir.layout import MMA_ROWS, WARP, WgmmaAccumulator
from kernwright.generator.ir.names import COLUMN, ROW
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import Assign, Let, RegisterArray, Repeat, Statement
from kernwright.generator.ir.types import f32, i32, u32
from kernwright.generator.ir.uses import names_of
from kernwright.generator.passes.derive.registers import fused_names, landing
from kernwright.generator.passes.roles.base import GROUP, LANE
from kernwright.generator.passes.roles.base import WARP as WARP_OF_GROUP
from kernwright.generator.passes.roles.context import plus, times
from kernwright.generator.passes.roles.values import At, Held, Kind, Values, index
from kernwright.generator.passes.roles.wgmma_products import FRAGMENT, WgmmaProducts

PAIR = Var("pair", i32)


class FragmentTiles(WgmmaProducts):
    """Named values of a role, and the statements that make them."""

    held: Values
    storage: dict[str, str]
    versions: dict[str, int]
    landed: dict[str, str]
    packed: dict[Expr, str]  # values that a register operand holds, rounded

    def prepare(self) -> None:
        self.held = Values()
        self.storage, self.versions, self.packed = {}, {}, {}
        derived = self.context.derived
        for taken in derived.accumulator_registers:
            if taken.role == self.role.name:
                self.storage.update(dict.fromkeys(taken.accumulators, taken.accumulators[0]))
                for name in taken.accumulators:
                    self.held.held[name] = Held(Kind.FLOATS, name)
        for operands in derived.operands:
            if operands.role == self.role.name:
                self.storage.update(dict.fromkeys(operands.operands, operands.operands[0]))
        layouts = {
            item.accumulator.name: item.layout
            for item in derived.accumulators
            if item.role == self.role.name and isinstance(item.layout, WgmmaAccumulator)
        }
        self.fused = fused_names(self.timeline, layouts) - set(layouts)
        self.landed = landing(self.body)

    def prologue(self) -> tuple[Statement, ...]:
        """The arrays of accumulators and operands; those that take turns are other names of the first."""
        row: Expr = Binary("+", times(integer(16), WARP_OF_GROUP), Binary("/", LANE, integer(4)))
        matrix: Expr = Binary("+", times(integer(16), WARP_OF_GROUP), Binary("%", LANE, integer(16)))
        if self.role.warpgroups > 1:
            rows = self._rows_of_group()
            row, matrix = (plus(times(integer(rows), GROUP), expr) for expr in (row, matrix))
        places = (
            Let(Var(ROW, i32), row, "of the fragment: a thread has this one and the one 8 below"),
            Let(Var(COLUMN, i32), times(integer(2), Binary("%", LANE, integer(4))), "the first of two, in every 8"),
            Let(Var("matrix_row", i32), matrix, "whose address a lane hands to ldmatrix and stmatrix"),
        )
        return (*places, *self._accumulators(), *self._operands())

    def _rows_of_group(self) -> int:
        """Rows of a warpgroup, the same for all fragments of the role."""
        found = {
            item.layout.rows // self.role.warpgroups
            for item in self.context.derived.accumulators
            if item.role == self.role.name
        }
        return max(found, default=MMA_ROWS)

    def _accumulators(self) -> list[Statement]:
        arrays: list[Statement] = []
        for taken in self.context.derived.accumulator_registers:
            if taken.role != self.role.name:
                continue
            first = taken.accumulators[0]
            layout = self.accumulator_layout(first)
            rows = self.context.constant(
                f"{first}_fragments", layout.fragments, "of 64 rows, stacked in a thread's registers"
            )
            size = integer(layout.registers // layout.fragments)
            for name in taken.accumulators:
                own = self.accumulator_layout(name)
                why = f"[{own.rows}, {own.columns}] FP32" if name == first else "its life and that one's are apart"
                arrays.append(
                    RegisterArray(
                        name,
                        f32,
                        size,
                        why,
                        rows=rows if layout.fragments > 1 else None,
                        alias=None if name == first else first,
                    )
                )
        return arrays

    def _operands(self) -> list[Statement]:
        arrays: list[Statement] = []
        for taken in self.context.derived.operands:
            if taken.role == self.role.name:
                first = taken.operands[0]
                for name in taken.operands:
                    why = "BF16 pairs" if name == first else "its life and that one's are apart"
                    rows = self._operand_fragments(name)
                    size = integer(taken.registers // rows)
                    count = integer(rows) if rows > 1 else None
                    alias = None if name == first else first
                    arrays.append(RegisterArray(name, u32, size, why, rows=count, alias=alias))
        return arrays

    def _operand_fragments(self, name: str) -> int:
        layout = next(
            op.layout
            for op in ir.walk(self.body.body)
            if isinstance(op, ir.Elementwise | ir.ReadShared) and op.name == name and isinstance(op.layout, Fragment)
        )
        return layout.rows // (MMA_ROWS * self.role.warpgroups)

    # ---- arrays

    def array_of(self, name: str) -> str:
        return name

    def array_rows(self, array: str) -> int:
        if any(item.accumulator.name == array for item in self.context.derived.accumulators):
            return self.accumulator_layout(array).fragments
        return self._operand_fragments(array)

    def is_dirty(self, array: str) -> bool:
        return self.storage.get(array, array) in self.dirty

    def touch(self, array: str) -> None:
        """Ordinary code has written an array."""
        self.dirty.add(self.storage.get(array, array))
        self.packed = {
            value: name
            for value, name in self.packed.items()
            if self.storage.get(name, name) != self.storage.get(array, array) and array not in names_of(value)
        }

    def changed(self, accumulator: str) -> None:
        self.versions[accumulator] = self.versions.get(accumulator, 0) + 1

    # ---- operations

    def tile_operation(self, operation: ir.Operation, position: int) -> None:
        match operation:
            case ir.Mma():
                self.check_fresh(operation.a if isinstance(operation.a, Var) else None, operation.source)
                self.issue(operation, position)
                self.changed(operation.accumulator)
            case ir.ReadAccumulator(name, accumulator):
                version = self.versions.setdefault(accumulator, 0)
                self.held.held[name] = Held(Kind.FLOATS, accumulator, None, version)
            case ir.SetAccumulator():
                self.set_accumulator(operation)
            case ir.Elementwise():
                self.elementwise(operation)
            case ir.ReadShared():
                if not operation.ahead:
                    self.declare_fetch(operation)
                    self.fetch(operation)
            case ir.WriteShared():
                self.write(operation)
            case ir.LoadTile():
                self.load(operation)
            case ir.StoreTile():
                self.store(operation)
            case _:
                super().tile_operation(operation, position)

    def check_fresh(self, value: Expr | None, source: Source) -> None:
        """Refuse another name of an accumulator that has changed since: the registers hold something else now."""
        for name in sorted(names_of(value)) if value is not None else ():
            held = self.held.held.get(name)
            if held is None:
                continue
            if held.formula is not None:
                self.check_fresh(held.formula, source)
            elif held.version is not None and held.version != self.versions.get(held.array, 0):
                raise self.context.refuse(
                    f"a use of {name!r} after {held.array!r} has changed",
                    source,
                    "Use it before the accumulator is multiplied into or set again.",
                )

    def set_accumulator(self, operation: ir.SetAccumulator) -> None:
        name = operation.accumulator
        self.check_fresh(operation.value, operation.source)
        if self._loaded_here(operation):
            self.changed(name)
            self.touch(name)
            return
        values = [self.held.element(operation.value, self.place(name, half)) for half in (0, 1)]
        targets = [self.held.element(Var(name, f32), self.place(name, half)) for half in (0, 1)]
        body = [_set(target, value, operation.source) for target, value in zip(targets, values, strict=True)]
        self.changed(name)
        self.touch(name)
        self.add(*self.over_pairs(name, self.accumulator_layout(name).registers // 2, tuple(body), operation.source))

    def _loaded_here(self, operation: ir.SetAccumulator) -> bool:
        return isinstance(operation.value, Var) and operation.value.name in self.landed

    def place(self, array: str, half: int) -> At:
        return At(PAIR, half, FRAGMENT if self.array_rows(array) > 1 else None)

    def over_pairs(self, array: str, pairs: int, body: tuple[Statement, ...], source: Source) -> tuple[Statement, ...]:
        """A loop over the pairs of a thread's part of a tile, fragment by fragment."""
        rows = self.array_rows(array)
        each = pairs // rows
        loop: tuple[Statement, ...] = (Repeat(Var("pair", i32, 0, each - 1), integer(each), body, source=source),)
        if rows > 1:
            loop = (Repeat(Var("fragment", i32, 0, rows - 1), integer(rows), loop, source=source),)
        return loop

    def elementwise(self, operation: ir.Elementwise) -> None:
        layout = operation.layout
        self.check_fresh(operation.value, operation.source)
        if operation.extent is Extent.TILE and isinstance(layout, Fragment) and layout.role == "operand":
            self.operand(operation)
        elif operation.extent is Extent.TILE:
            self.tile(operation)
        elif not self.role.warpgroups:
            self.spread(operation)
        else:
            self.factor(operation)

    def operand(self, operation: ir.Elementwise) -> None:
        """A register operand: values rounded to BF16, two neighbours a register."""
        value = operation.value.operand if isinstance(operation.value, Cast) else operation.value
        name = operation.name
        low, high = (self.held.element(value, self.place(name, half)) for half in (0, 1))
        rows = self._operand_fragments(name)
        target = Element(f"{name}[fragment]" if rows > 1 else name, PAIR, u32)
        body = (Assign(target, Call("pack_bf16", (low, high), u32), source=operation.source),)
        self.touch(name)
        registers = self._operand_registers(name)
        self.add(*self.over_pairs(name, registers, body, operation.source))
        self.held.held[name] = Held(Kind.PAIRS, name)
        self.packed[value] = name

    def _operand_registers(self, name: str) -> int:
        return next(item.registers for item in self.context.derived.operands if name in item.operands)

    def tile(self, operation: ir.Elementwise) -> None:
        """A named tile: computed where its one user needs it, or an array."""
        name = operation.name
        if name in self.fused:
            self.held.held[name] = Held(Kind.FORMULA, formula=operation.value)
            return
        assert isinstance(operation.layout, Fragment)
        fragments = operation.layout.rows // (MMA_ROWS * self.role.warpgroups)
        if fragments > 1 or operation.dtype != f32:
            raise self.context.refuse(
                f"named tile {name!r} with several users", operation.source, "Use it in one place, or name its parts."
            )
        registers = operation.layout.rows * operation.layout.columns // (128 * self.role.warpgroups)
        self.add(RegisterArray(name, f32, integer(registers), source=operation.source))
        body = [
            Assign(
                Element(name, index(plus(times(integer(2), PAIR), integer(half))), f32),
                self.held.element(operation.value, At(PAIR, half)),
                source=operation.source,
            )
            for half in (0, 1)
        ]
        count = integer(registers // 2)
        self.add(Repeat(Var("pair", i32, 0, registers // 2 - 1), count, tuple(body), source=operation.source))
        self.held.held[name] = Held(Kind.FLOATS, name)

    def factor(self, operation: ir.Elementwise) -> None:
        """A named row or column factor: one float a row or column that the thread has."""
        assert isinstance(operation.layout, Fragment)
        name = operation.name
        rows = operation.extent is Extent.ROWS
        if rows and operation.layout.rows > MMA_ROWS * self.role.warpgroups:
            raise self.context.refuse("a row factor of stacked fragments", operation.source)
        size = 2 if rows else operation.layout.columns // 4
        self.add(RegisterArray(name, f32, integer(size), source=operation.source))
        element = Var("i", i32, 0, size - 1)
        if not rows:
            body: list[Statement] = []
            for half in (0, 1):
                value = self.held.element(operation.value, At(times(integer(2), element), half))
                target = Element(name, index(plus(times(integer(2), element), integer(half))), f32)
                body.append(Assign(target, value, source=operation.source))
            loop = Repeat(Var("i", i32, 0, size // 2 - 1), integer(size // 2), tuple(body), source=operation.source)
        else:
            value = self.held.element(operation.value, At(element, 0))
            body = [Assign(Element(name, element, f32), value, source=operation.source)]
            loop = Repeat(element, integer(size), tuple(body), source=operation.source)
        self.add(loop)
        self.held.held[name] = Held(Kind.ROWS if rows else Kind.COLUMNS, name)

    def spread(self, operation: ir.Elementwise) -> None:
        """A named vector of a role of one warp: neighbours lie in one lane."""
        size = self._lane_values(operation)
        self.add(RegisterArray(operation.name, f32, integer(size), source=operation.source))
        element = Var("i", i32, 0, size - 1)
        value = self.held.element(operation.value, At(element, 0))
        body = (Assign(Element(operation.name, element, f32), value, source=operation.source),)
        self.add(Repeat(element, integer(size), body, source=operation.source))
        self.held.held[operation.name] = Held(Kind.LANES, operation.name)

    def _lane_values(self, operation: ir.Elementwise | ir.ReadShared | ir.WriteShared) -> int:
        assert isinstance(operation.layout, Fragment)
        layout = operation.layout
        count = layout.rows if operation.extent is Extent.ROWS else layout.columns
        if count % WARP:
            raise self.context.refuse(f"a vector of {count} over 32 lanes", operation.source)
        return count // WARP

    # ---- memory, in staging.py

    def declare_fetch(self, fetch: ir.ReadShared) -> None:
        raise NotImplementedError

    def fetch(self, fetch: ir.ReadShared) -> None:
        raise NotImplementedError

    def write(self, write: ir.WriteShared) -> None:
        raise NotImplementedError

    def load(self, load: ir.LoadTile) -> None:
        raise NotImplementedError

    def store(self, store: ir.StoreTile) -> None:
        raise NotImplementedError


def _set(target: Expr, value: Expr, source: Source) -> Assign:
    """`target *= factor` where the value is the target times something."""
    assert isinstance(target, Element)
    match value:
        case Binary("*", left, right) if left == target:
            return Assign(target, right, "*=", source)
        case Const() | _:
            return Assign(target, value, "=", source)

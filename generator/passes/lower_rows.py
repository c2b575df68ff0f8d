"""Lowering of row-wise programs: register tiles over vector rows become vector accesses, unrolled loops and lane sums.

A thread holds one row's piece of the block's tile, so a tile is a register array, a row factor one scalar, a column factor an array
again. Rows past the end of a tensor are masked: nothing is read or written for them, and nothing else depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.arch import Architecture
from kernwright.generator.errors import LayoutFault, TensorFault
from kernwright.generator.instructions import lookup
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description, Extent
from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Var, children, integer, rebuild
from kernwright.generator.ir.layout import VectorRows
from kernwright.generator.ir.program import Launch, TensorParameter
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import (
    ArrayOperand,
    Assign,
    Blank,
    Declare,
    Execute,
    If,
    Let,
    Pointer,
    RegisterArray,
    Remark,
    Repeat,
    Statement,
)
from kernwright.generator.ir.types import boolean, f32, i32, i64, u32
from kernwright.generator.passes.ranges import range_of

ELEMENT = Var("i", i32)


@dataclass
class RowLowering:
    """The state of one lowering: which names are arrays, and which offsets have been computed."""

    description: Description
    arch: Architecture
    layout: VectorRows
    arrays: set[str] = field(default_factory=set)
    offsets: dict[Expr, Var] = field(default_factory=dict)
    by_tensor: dict[str, Var] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    masked: bool = True

    # ---- the parts of a body

    def run(self) -> tuple[Statement, ...]:
        self._prologue()
        operations = list(self.description.body)
        while operations:
            match operations[0]:
                case ir.LoadTile():
                    self._loads(_take(operations, ir.LoadTile))
                case ir.RowReduce() as reduce:
                    self._reduce(reduce)
                    operations.pop(0)
                case ir.Elementwise(extent=Extent.SCALAR | Extent.ROWS) as factor:
                    self.statements.append(Let(self._var(factor), self._scalar(factor.value), source=factor.source))
                    operations.pop(0)
                case ir.Elementwise():
                    self._elementwise(_take(operations, ir.Elementwise, Extent.TILE, Extent.COLUMNS), operations)
                case ir.StoreTile() as store:
                    self._store(store)
                    operations.pop(0)
                case other:
                    raise LayoutFault(
                        "KW0305",
                        f"{type(other).__name__} is not lowered in a row-wise program",
                        other.source,
                        where=f"on {self.arch.name}",
                    )
        return tuple(self.statements)

    def _prologue(self) -> None:
        blocks = self.description.blocks
        assert blocks is not None
        lanes = self._constant("kLanesPerRow")
        thread = Var("threadIdx.x", u32, 0, self.layout.threads - 1)
        column = Binary("*", Binary("%", Cast(i32, thread), lanes), self._constant("kVector"))
        wide = self._needs_64_bits(blocks)
        index = Cast(i64 if wide else i32, Var("blockIdx.x", u32, 0, _largest_block(blocks)))
        lane_row: Expr = Binary("/", thread, lanes)
        if not wide:
            lane_row = Cast(i32, lane_row)
        row = Binary("+", Binary("*", index, blocks.step), lane_row)
        self.column = Var("column", column.dtype, 0, self.layout.columns - self.layout.vector)
        self.row = Var("row", row.dtype, 0, _largest_block(blocks) * self.layout.rows + self.layout.rows - 1)
        self.statements += [
            Remark(self._who_holds_what()),
            Let(self.column, column, source=blocks.source),
            Let(self.row, row, source=blocks.source),
        ]
        self.masked = not (isinstance(blocks.extent, Const) and int(blocks.extent.value) % int(blocks.step.value) == 0)
        for operation in self.description.body:
            if isinstance(operation, ir.LoadTile | ir.StoreTile):
                self._offset(operation.tile, operation.source)
        if self.masked:
            test = Binary("<", self.row, blocks.extent)
            self.in_range = Var("in_range", boolean)
            self.statements.append(Let(self.in_range, test, "the last block can be short", blocks.source))

    def _loads(self, loads: list[ir.LoadTile]) -> None:
        guarded = [load for load in loads if load.extent is Extent.TILE and self.masked]
        free = [load for load in loads if load not in guarded]
        if guarded:
            self.statements += [
                Blank(),
                Remark("Lanes past the end read nothing, but take part in the shuffles of their warp."),
            ]
            self.statements += [self._array(load.name, load.source, zero=True) for load in guarded]
            self.statements.append(
                If(self.in_range, tuple(self._load(load) for load in guarded), source=guarded[0].source)
            )
        elif free:
            self.statements.append(Blank())
        for load in free:
            self.statements += [self._array(load.name, load.source), self._load(load)]

    def _load(self, load: ir.LoadTile) -> Execute:
        tensor = self._tensor(load.tile.tensor)
        if tensor.access != "read":
            raise LayoutFault(
                "KW0305", f"loading {tensor.name!r}, which the program also writes, is not lowered", load.source
            )
        name = f"load_{tensor.dtype}x{self.layout.vector}"
        return Execute(
            self._entry(name, load.source), (self._pointer(tensor), ArrayOperand(load.name)), source=load.source
        )

    def _reduce(self, reduce: ir.RowReduce) -> None:
        partial = Var(f"{reduce.name}_partial", f32, source=reduce.source)
        value = self._element(reduce.value)
        match value:
            case Binary("*", left, right):
                step = Assign(
                    partial, Call(self._entry("fused_multiply_add", reduce.source), (left, right, partial), f32)
                )
            case _:
                step = Assign(partial, value, "+=")
        lanes = self._constant("kLanesPerRow")
        total: Expr = Call(self._entry("sum_over_lanes", reduce.source), (partial, lanes), f32)
        if reduce.op == "mean":
            total = Binary("/", total, Cast(f32, self._width()))
        self.statements += [
            Blank(),
            Declare(partial, Const(0.0, f32), source=reduce.source),
            self._loop((step,), reduce.source),
            Let(Var(reduce.name, f32), total, source=reduce.source),
        ]

    def _elementwise(self, group: list[ir.Elementwise], rest: list[ir.Operation]) -> None:
        """One loop over the elements for neighbouring elementwise values; a value used in this loop alone stays a scalar."""
        later = {name for operation in rest for name in _names_read(operation)}
        stored = {op.value.name for op in rest if isinstance(op, ir.StoreTile) and isinstance(op.value, Var)}
        kept = [item for item in group if item.name in later | stored]
        self.statements.append(Blank())
        self.statements += [self._array(item.name, item.source) for item in kept]
        body: list[Statement] = []
        for item in group:
            value = self._element(item.value)
            if item in kept:
                body.append(Assign(Element(item.name, ELEMENT, item.dtype), value, source=item.source))
            else:
                body.append(Let(Var(item.name, item.dtype), value, source=item.source))
        self.statements.append(self._loop(tuple(body), group[0].source))

    def _store(self, store: ir.StoreTile) -> None:
        tensor = self._tensor(store.tile.tensor)
        assert isinstance(store.value, Var)
        name = self._entry(f"store_{tensor.dtype}x{self.layout.vector}", store.source)
        execute = Execute(name, (self._pointer(tensor), ArrayOperand(store.value.name)), source=store.source)
        self.statements.append(If(self.in_range, (execute,), source=store.source) if self.masked else execute)

    # ---- addresses

    def _offset(self, tile: ir.GlobalTile, source: Source) -> None:
        """Element offset of this thread's piece of a tile; tensors with equal strides share one."""
        tensor = self._tensor(tile.tensor)
        if tensor.name in self.by_tensor:
            return
        if len(tensor.shape) == 1:
            self.by_tensor[tensor.name] = self.column
            return
        row_stride, column_stride = tensor.strides
        expr = Binary("+", Binary("*", self.row, row_stride), Binary("*", self.column, column_stride))
        if expr not in self.offsets:
            reach = range_of(expr)
            if expr.dtype == i64 and reach.high >= i64.high:
                raise TensorFault(
                    "KW0206",
                    f"offset of {tensor.name!r} leaves i64",
                    source,
                    fix="Lower the `high` of the scalars in its shape.",
                )
            name = "offset" if not self.offsets else f"{tensor.name}_offset"
            self.offsets[expr] = Var(name, expr.dtype, 0, reach.high)
            self.statements.append(Let(self.offsets[expr], expr, source=source))
        self.by_tensor[tensor.name] = self.offsets[expr]

    def _needs_64_bits(self, blocks: ir.Blocks) -> bool:
        """Whether an element offset can pass 2^31 at the largest legal number of rows."""
        largest = (
            blocks.extent.high if isinstance(blocks.extent, Var) else int(getattr(blocks.extent, "value", i64.high))
        )
        return (
            largest is None
            or (largest + self.layout.rows) * self.layout.columns > i32.high
            or blocks.extent.dtype == i64
        )

    # ---- small helpers

    def _who_holds_what(self) -> str:
        lanes, vector = self.layout.lanes_per_row, self.layout.vector
        columns = f"columns {vector} * (t % {lanes}) + i, i = 0 .. {vector - 1}"
        return f"Thread t works on row t / {lanes} of the block, on {columns}."

    def _element(self, expr: Expr) -> Expr:
        """The expression at element `i`: tiles and column factors become array elements, row factors stay scalars."""
        match expr:
            case Var(name=name) if name in self.arrays:
                return Element(name, ELEMENT, expr.dtype, expr.source)
            case Call(function=function):
                self._entry(function, expr.source)
        return rebuild(expr, tuple(self._element(child) for child in children(expr)))

    def _scalar(self, expr: Expr) -> Expr:
        if isinstance(expr, Call):
            self._entry(expr.function, expr.source)
        return rebuild(expr, tuple(self._scalar(child) for child in children(expr)))

    def _entry(self, name: str, source: Source) -> str:
        """The name of an instruction after checking that this architecture has it."""
        try:
            entry = lookup(name, self.arch)
        except KeyError:
            raise LayoutFault(
                "KW0305", f"no instruction {name!r} in the table", source, where=f"on {self.arch.name}"
            ) from None
        if not entry.exists_on(self.arch):
            raise LayoutFault("KW0306", f"{name} does not exist on {self.arch.name}", source)
        return name

    def _array(self, name: str, source: Source, zero: bool = False) -> RegisterArray:
        self.arrays.add(name)
        return RegisterArray(name, f32, self._constant("kVector"), zero=zero, source=source)

    def _loop(self, body: tuple[Statement, ...], source: Source) -> Repeat:
        return Repeat(Var("i", i32, 0, self.layout.vector - 1), self._constant("kVector"), body, source=source)

    def _pointer(self, tensor: TensorParameter) -> Pointer:
        return Pointer(tensor.name, self.by_tensor[tensor.name], tensor.dtype)

    def _tensor(self, name: str) -> TensorParameter:
        return next(p for p in self.description.parameters if isinstance(p, TensorParameter) and p.name == name)

    def _constant(self, name: str) -> Const:
        return next(row.constant for row in self.description.constants if row.constant.name == name)

    def _width(self) -> Expr:
        """The number of columns, under the author's name for it."""
        named = [t.shape[-1] for t in self.description.parameters if isinstance(t, TensorParameter)]
        return next(
            (w for w in named if isinstance(w, Const) and w.value == self.layout.columns), integer(self.layout.columns)
        )

    def _var(self, item: ir.Elementwise) -> Var:
        return Var(item.name, item.dtype, source=item.source)


def lower_rows(description: Description, arch: Architecture) -> tuple[tuple[Statement, ...], Launch]:
    """Body and launch of a row-wise program on `arch`."""
    blocks = description.blocks
    layouts = {op.layout for op in description.body if isinstance(op, ir.LoadTile)}
    if blocks is None or len(layouts) != 1 or description.threads is None:
        raise LayoutFault(
            "KW0305",
            "a row-wise program has one vector-row layout and one k.blocks(...)",
            description.source,
            where=f"on {arch.name}",
        )
    layout = layouts.pop()
    assert isinstance(layout, VectorRows)
    body = RowLowering(description, arch, layout).run()
    rounded_up = Binary("-", Binary("+", blocks.extent, blocks.step), integer(1))
    grid = (Binary("/", rounded_up, blocks.step), integer(1), integer(1))
    return body, Launch(threads=description.threads, grid=grid)


def _take(operations: list[ir.Operation], kind: type, *extents: Extent) -> list:  # type: ignore[type-arg]
    """Remove and return the operations of one kind (and extent) at the front."""
    taken = []
    while operations and isinstance(operations[0], kind) and (not extents or operations[0].extent in extents):  # type: ignore[union-attr]
        taken.append(operations.pop(0))
    return taken


def _names_read(operation: ir.Operation) -> set[str]:
    value = getattr(operation, "value", None)
    return _variables(value) if value is not None else set()


def _variables(expr: Expr) -> set[str]:
    if isinstance(expr, Var):
        return {expr.name}
    return {name for child in children(expr) for name in _variables(child)}


def _largest_block(blocks: ir.Blocks) -> int:
    largest = blocks.extent.high if isinstance(blocks.extent, Var) else int(getattr(blocks.extent, "value", 0))
    step = int(blocks.step.value)
    return max(0, ((largest or 0) + step - 1) // step - 1)

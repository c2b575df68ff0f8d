"""Lowering of row-wise programs: register tiles over vector rows become vector accesses, unrolled loops and lane sums.

A thread holds one row's piece of the block's tile, so a tile is a register array, a row factor one scalar, a column factor an array
again. Rows past the end of a tensor are masked: nothing is read or written for them, and nothing else depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.arch import Architecture
from kernwright.generator.errors import LayoutFault, LimitFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir import names
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
from kernwright.generator.ir.types import DType, boolean, f32, i32, i64, u32
from kernwright.generator.ir.uses import names_read
from kernwright.generator.passes.ranges import range_of
from kernwright.generator.passes.require import require_instruction
from kernwright.generator.passes.widen import widen

ELEMENT = Var(names.ELEMENT, i32)


@dataclass
class RowLowering:
    """The state of one lowering: which names are arrays, and which offsets have been computed."""

    description: Description
    arch: Architecture
    layout: VectorRows
    arrays: set[str] = field(default_factory=set)
    offset: Var | None = None
    statements: list[Statement] = field(default_factory=list)
    masked: bool = True

    # ---- the parts of a body

    def run(self) -> tuple[Statement, ...]:
        self._prologue()
        self._operations(list(self.description.body))
        return tuple(self.statements)

    def _operations(self, operations: list[ir.Operation]) -> None:
        """Lower operations in order; neighbours that share a loop or a guard are taken together."""
        while operations:
            match operations[0]:
                case ir.LoadTile():
                    self._loads(_take_loads(operations))
                case ir.RowReduce() as reduce:
                    self._reduce(reduce)
                    operations.pop(0)
                case ir.Elementwise(extent=Extent.SCALAR | Extent.ROWS) as factor:
                    self.statements.append(Let(self._var(factor), self._element(factor.value), source=factor.source))
                    operations.pop(0)
                case ir.Elementwise():
                    self._elementwise(_take_elementwise(operations), operations)
                case ir.StoreTile() as store:
                    self._store(store)
                    operations.pop(0)
                case ir.When() as block:
                    self._when(block)
                    operations.pop(0)
                case other:
                    raise LayoutFault(
                        "KW0305",
                        f"{type(other).__name__} is not lowered in a row-wise program",
                        other.source,
                        where=f"on {self.arch.name}",
                    )

    def _prologue(self) -> None:
        blocks = self.description.blocks
        assert blocks is not None
        lanes = self._constant(names.LANES_PER_ROW)
        thread = Var("threadIdx.x", u32, 0, self.layout.threads - 1)
        column = Binary("*", Binary("%", Cast(i32, thread), lanes), self._constant(names.VECTOR))
        wide = self._needs_64_bits(blocks)
        index = Cast(i64 if wide else i32, Var("blockIdx.x", u32, 0, _largest_block(blocks)))
        lane_row: Expr = Binary("/", thread, lanes)
        if not wide:
            lane_row = Cast(i32, lane_row)
        row = Binary("+", Binary("*", index, blocks.step), lane_row)
        self.column = Var(names.COLUMN, column.dtype, 0, self.layout.columns - self.layout.vector)
        self.row = Var(names.ROW, row.dtype, 0, _largest_block(blocks) * self.layout.rows + self.layout.rows - 1)
        self.statements += [
            Remark(self._who_holds_what()),
            Let(self.column, column, source=blocks.source),
            Let(self.row, row, source=blocks.source),
        ]
        self.masked = not (isinstance(blocks.extent, Const) and int(blocks.extent.value) % int(blocks.step.value) == 0)
        for operation in ir.walk(self.description.body):
            if isinstance(operation, ir.LoadTile | ir.StoreTile):
                self._define_offset(operation.tile, operation.source)
        if self.masked:
            test = Binary("<", self.row, blocks.extent)
            self.in_range = Var(names.IN_RANGE, boolean)
            self.statements.append(Let(self.in_range, test, "the last block can be short", blocks.source))

    def _loads(self, loads: list[ir.LoadTile]) -> None:
        guarded = [load for load in loads if load.extent is Extent.TILE and self.masked]
        free = [load for load in loads if load not in guarded]
        if guarded:
            self.statements += [
                Blank(),
                Remark(self._why_zeros()),
            ]
            self.statements += [self._array(load.name, load.dtype, load.source, zero=True) for load in guarded]
            self.statements.append(
                If(self.in_range, tuple(self._load(load) for load in guarded), source=guarded[0].source)
            )
        elif free:
            self.statements.append(Blank())
        for load in free:
            self.statements += [self._array(load.name, load.dtype, load.source), self._load(load)]

    def _load(self, load: ir.LoadTile) -> Execute:
        tensor = self._tensor(load.tile.tensor)
        if tensor.access != "read":
            raise LayoutFault(
                "KW0305", f"loading {tensor.name!r}, which the program also writes, is not lowered", load.source
            )
        name = f"load_{tensor.dtype}x{self.layout.vector}"
        return Execute(
            require_instruction(name, self.arch, load.source),
            (self._pointer(tensor), ArrayOperand(load.name)),
            source=load.source,
        )

    def _reduce(self, reduce: ir.RowReduce) -> None:
        partial = Var(names.partial_name(reduce.name), f32, source=reduce.source)
        value = self._element(reduce.value)
        match value:
            case Binary("*", left, right):
                step = Assign(
                    partial,
                    Call(
                        require_instruction("fused_multiply_add", self.arch, reduce.source), (left, right, partial), f32
                    ),
                )
            case _:
                step = Assign(partial, value, "+=")
        lanes = self._constant(names.LANES_PER_ROW)
        total: Expr = Call(require_instruction("sum_over_lanes", self.arch, reduce.source), (lanes, partial), f32)
        if reduce.op == "mean":
            total = Binary("/", total, Cast(f32, self._width()))
        self.statements += [
            Blank(),
            Declare(partial, Const(0.0, f32), "this thread's part of the sum", reduce.source),
            self._loop((step,), reduce.source),
            Let(Var(reduce.name, f32), total, source=reduce.source),
        ]

    def _elementwise(self, group: list[ir.Elementwise], rest: list[ir.Operation]) -> None:
        """One loop over the elements for neighbouring elementwise values; a value used in this loop alone stays a scalar."""
        after = ir.walk(tuple(rest))
        later = {name for operation in after for name in names_read(operation)}
        stored = {op.value.name for op in after if isinstance(op, ir.StoreTile) and isinstance(op.value, Var)}
        kept = [item for item in group if item.name in later | stored]
        self.statements.append(Blank())
        self.statements += [self._array(item.name, item.dtype, item.source) for item in kept]
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
        name = require_instruction(f"store_{tensor.dtype}x{self.layout.vector}", self.arch, store.source)
        execute = Execute(name, (self._pointer(tensor), ArrayOperand(store.value.name)), source=store.source)
        self.statements.append(If(self.in_range, (execute,), source=store.source) if self.masked else execute)

    def _when(self, block: ir.When) -> None:
        """A condition that is the same in the whole block, so that its shuffles find every lane."""
        outer, self.statements = self.statements, []
        arrays = set(self.arrays)
        self._operations(list(block.body))
        inner = tuple(self.statements[1:] if isinstance(self.statements[0], Blank) else self.statements)
        self.arrays = arrays  # names of the block are its own: another block may give them another shape
        self.statements = [*outer, Blank(), If(self._element(block.condition), inner, source=block.source)]

    # ---- addresses

    def _define_offset(self, tile: ir.GlobalTile, source: Source) -> None:
        """Element offset of this thread's piece of a row; every tensor of the program has the same rows, so there is one."""
        tensor = self._tensor(tile.tensor)
        if self.offset is not None or len(tensor.shape) == 1:
            return
        row_stride, column_stride = tensor.strides
        expr = Binary("+", Binary("*", self.row, row_stride), Binary("*", self.column, column_stride))
        reach = range_of(expr)
        if reach.high >= expr.dtype.high:
            raise TensorFault(
                "KW0206",
                f"offset of {tensor.name!r} leaves {expr.dtype}",
                source,
                detail=f"it can reach row {self.row.high} of {self.layout.columns} values.",
                fix="Lower the `high` of the scalars in its shape.",
            )
        self.offset = Var(names.OFFSET, expr.dtype, 0, reach.high)
        self.statements.append(Let(self.offset, expr, source=source))

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

    def _why_zeros(self) -> str:
        """Why lanes past the end hold zeros and stay."""
        shuffles = any(isinstance(operation, ir.RowReduce) for operation in ir.walk(self.description.body))
        stay = ", and every lane of a warp takes part in its shuffles" if shuffles else ""
        return f"Lanes past the end read nothing: their zeros keep the arithmetic defined{stay}."

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
                require_instruction(function, self.arch, expr.source)
        return rebuild(expr, tuple(self._element(child) for child in children(expr)))

    def _array(self, name: str, dtype: DType, source: Source, zero: bool = False) -> RegisterArray:
        self.arrays.add(name)
        return RegisterArray(name, dtype, self._constant(names.VECTOR), zero=zero, source=source)

    def _loop(self, body: tuple[Statement, ...], source: Source) -> Repeat:
        return Repeat(
            Var(names.ELEMENT, i32, 0, self.layout.vector - 1), self._constant(names.VECTOR), body, source=source
        )

    def _pointer(self, tensor: TensorParameter) -> Pointer:
        offset = self.column if len(tensor.shape) == 1 else self.offset
        assert offset is not None
        return Pointer(tensor.name, offset, tensor.dtype)

    def _tensor(self, name: str) -> TensorParameter:
        return next(p for p in self.description.parameters if isinstance(p, TensorParameter) and p.name == name)

    def _constant(self, name: str) -> Const:
        return next(row.constant for row in self.description.constants if row.constant.name == name)

    def _width(self) -> Expr:
        """The number of columns as the table of constants names it: what the lanes of a row are counted from."""
        row = next(row for row in self.description.constants if row.constant.name == names.LANES_PER_ROW)
        assert isinstance(row.value, Binary)
        return row.value.left

    def _var(self, item: ir.Elementwise) -> Var:
        return Var(item.name, item.dtype, source=item.source)


def lower_rows(description: Description, arch: Architecture) -> tuple[tuple[Statement, ...], Launch]:
    """Body and launch of a row-wise program on `arch`."""
    blocks = description.blocks
    layouts = {op.layout for op in ir.walk(description.body) if isinstance(op, ir.LoadTile)}
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
    grid = (_number_of_blocks(blocks), integer(1), integer(1))
    minimum = description.blocks_per_sm
    if minimum is not None and (minimum > arch.blocks_per_sm or minimum * description.threads > arch.threads_per_sm):
        raise LimitFault(
            "KW0502",
            f"{minimum} blocks of {description.threads} threads an SM",
            description.source,
            where=f"on {arch.name}",
            detail=f"an SM holds {arch.blocks_per_sm} blocks and {arch.threads_per_sm} threads; a larger minimum would be dropped.",
            fix="Ask for fewer blocks, or drop the architecture.",
        )
    return body, Launch(threads=description.threads, grid=grid, min_blocks=minimum)


def _number_of_blocks(blocks: ir.Blocks) -> Expr:
    """The extent over the step, rounded up; in 64 bits where the sum could leave 32."""
    if isinstance(blocks.extent, Const):
        return integer(-(-int(blocks.extent.value) // int(blocks.step.value)))
    rounded_up = widen(Binary("-", Binary("+", blocks.extent, blocks.step), integer(1)))
    return Binary("/", rounded_up, blocks.step)


def _take_loads(operations: list[ir.Operation]) -> list[ir.LoadTile]:
    """Remove and return the loads at the front."""
    taken: list[ir.LoadTile] = []
    while operations and isinstance(front := operations[0], ir.LoadTile):
        taken.append(front)
        operations.pop(0)
    return taken


def _take_elementwise(operations: list[ir.Operation]) -> list[ir.Elementwise]:
    """Remove and return the elementwise tiles and column factors at the front: they share one loop."""
    taken: list[ir.Elementwise] = []
    while (
        operations
        and isinstance(front := operations[0], ir.Elementwise)
        and front.extent in (Extent.TILE, Extent.COLUMNS)
    ):
        taken.append(front)
        operations.pop(0)
    return taken


def _largest_block(blocks: ir.Blocks) -> int:
    largest = blocks.extent.high if isinstance(blocks.extent, Var) else int(getattr(blocks.extent, "value", 0))
    step = int(blocks.step.value)
    return max(0, ((largest or 0) + step - 1) // step - 1)

"""The words of the schedule: roles, pipelines, loops, asynchronous copies and matrix products.

Nobody writes an arrival count, a byte count, a stage index, a phase, a descriptor, a fence or a register layout here:
passes/derive.py derives them from these operations and from the architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kernwright.generator.dsl.memory import Box, SharedHandle, SharedSpec, Stage, Tensor
from kernwright.generator.dsl.names import assigned_name, author_source
from kernwright.generator.dsl.value import Value
from kernwright.generator.errors import LayoutFault, LimitFault, PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Cast, Const, Expr, Var
from kernwright.generator.ir.layout import SharedLayout
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, bf16, boolean, f32, i32

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel


@dataclass(frozen=True, slots=True)
class PipelineHandle:
    """A ring of stages. One role fills a stage in a `produce` block, others read it in a `consume` block."""

    kernel: Kernel
    pipeline: ir.Pipeline

    @contextmanager
    def produce(self) -> Iterator[Stage]:
        """Fill the next stage: waits until its readers have released it, signals it full at the end."""
        source = author_source()
        with self.kernel.body() as body:
            yield Stage(self.kernel, self.pipeline)
        self.kernel.emit(ir.Produce(self.pipeline.name, tuple(body), source))

    @contextmanager
    def consume(self, *, relayed_by: PipelineHandle | None = None, after: tuple[Value, ...] = ()) -> Iterator[Stage]:
        """Read the next stage: waits until it is full, releases it as early as its last reader allows.

        `relayed_by` names a pipeline whose producer has already waited for this stage before it arrived there: this role, which
        waits for that one, need not wait again. `after` are values to compute before the wait, in its shadow; the text holds that
        order by a data dependence, since a compiler may otherwise move arithmetic across a wait.
        """
        source = author_source()
        names = tuple(value.expr.name for value in after if isinstance(value.expr, Var))
        with self.kernel.body() as body:
            yield Stage(self.kernel, self.pipeline)
        relay = relayed_by.pipeline.name if relayed_by else None
        self.kernel.emit(ir.Consume(self.pipeline.name, tuple(body), relay, names, source))


@dataclass(frozen=True, slots=True)
class AccumulatorHandle:
    """An FP32 accumulator. `read()` waits for its MMAs and yields its values as a register tile."""

    kernel: Kernel
    accumulator: ir.Accumulator

    @property
    def layout(self) -> Fragment:
        return Fragment(self.accumulator.rows, self.accumulator.columns)

    def read(self, *, name: str | None = None) -> Value:
        source = author_source()
        final = self.kernel.local(name or assigned_name() or f"{self.accumulator.name}_values", "read", source)
        self.kernel.emit(ir.ReadAccumulator(final, self.accumulator.name, self.layout, source))
        return Value(self.kernel, Var(final, f32, source=source), Extent.TILE, self.layout)

    def scale(self, factor: Value) -> None:
        """Multiply every element by a scalar or a factor."""
        source = author_source()
        current = Value(self.kernel, Var(self.accumulator.name, f32), Extent.TILE, self.layout)
        product = current._binary("*", factor)
        self.kernel.emit(ir.SetAccumulator(self.accumulator.name, product.expr, source))

    def fill(self, value: float) -> None:
        """Set every element."""
        self.kernel.emit(ir.SetAccumulator(self.accumulator.name, Const(value, f32), author_source()))


class ScheduleWords:
    """Mixin of `Kernel`: everything about who does what, where and when."""

    current_role: ir.Role | None

    @property
    def _kernel(self) -> Kernel:
        return cast("Kernel", self)

    # ---- memory

    def pipeline(self, name: str, *, stages: int, **tiles: SharedSpec) -> PipelineHandle:
        """A ring of `stages`, each holding the given shared tiles."""
        kernel = self._kernel
        source = kernel.claim(name, "pipeline")
        if stages < 1 or not tiles:
            raise PipelineFault("KW0401", f"pipeline {name!r} needs at least one stage and one tile", source)
        built = tuple(
            ir.SharedTile(tile, self._shared_layout(spec, tile, source), name, source) for tile, spec in tiles.items()
        )
        pipeline = ir.Pipeline(name, stages, built, source)
        kernel.pipelines.append(pipeline)
        return PipelineHandle(kernel, pipeline)

    def buffer(self, name: str, spec: SharedSpec) -> SharedHandle:
        """A standing tile of shared memory, used by one role at a time."""
        kernel = self._kernel
        source = kernel.claim(name, "buffer")
        tile = ir.SharedTile(name, self._shared_layout(spec, name, source), None, source)
        kernel.buffers.append(tile)
        return SharedHandle(kernel, tile)

    def accumulator(self, name: str, rows: int, columns: int) -> AccumulatorHandle:
        """An FP32 accumulator of `rows` x `columns`: registers on wgmma machines, tensor memory on tcgen05 machines."""
        kernel = self._kernel
        source = kernel.claim(name, "accumulator")
        accumulator = ir.Accumulator(name, rows, columns, source)
        kernel.accumulators.append(accumulator)
        return AccumulatorHandle(kernel, accumulator)

    # ---- who

    @contextmanager
    def role(
        self,
        name: str,
        *,
        warpgroups: int = 1,
        registers: int | None = None,
        shares: str | None = None,
        warp: int = 0,
        replicas: int = 1,
    ) -> Iterator[ir.Role]:
        """Some warps of the block and what they do: whole warpgroups with a register budget, or one warp of another role's group.

        `replicas` copies of the role take turns at the steps of its loops.
        """
        kernel = self._kernel
        source = kernel.claim(name, "role")
        if kernel.current_role is not None:
            raise PipelineFault(
                "KW0403",
                f"role {name!r} inside role {kernel.current_role.name!r}",
                source,
                fix="Roles stand side by side.",
            )
        if shares is not None and shares not in {role.name for role in kernel.roles}:
            raise PipelineFault("KW0403", f"role {name!r} shares the warpgroup of unknown role {shares!r}", source)
        if registers is not None and (registers % 8 or not 24 <= registers <= 256):
            raise PipelineFault(
                "KW0404",
                f"role {name!r}: {registers} registers",
                source,
                detail="a budget is a multiple of 8 in 24..256.",
            )
        role = ir.Role(name, 0 if shares else warpgroups, registers, shares, warp, replicas, source)
        kernel.roles.append(role)
        if sum(r.all_warpgroups for r in kernel.roles) * 128 > 1024:
            raise LimitFault(
                "KW0502",
                f"role {name!r} makes more than 8 warpgroups",
                source,
                detail="a block has at most 1024 threads.",
            )
        kernel.current_role = role
        try:
            with kernel.scope(), kernel.body() as body:
                yield role
        finally:
            kernel.current_role = None
        kernel.emit(ir.RoleBody(name, tuple(body), source))

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """The body is executed by one elected thread of the role's first warp."""
        kernel = self._kernel
        source = author_source()
        with kernel.body() as body:
            yield
        kernel.emit(ir.OneThread(tuple(body), source))

    @contextmanager
    def steps(self, name: str, count: Value | int, *, first: int = 0, step: int = 1) -> Iterator[Value]:
        """`for name in first, first + step, … < count`, in order; the name is the loop's own."""
        kernel = self._kernel
        source = author_source()
        extent: Expr = kernel.lift(count, i32, source).expr
        with kernel.scope(), kernel.body() as body:
            kernel.claim_name(name, "loop", source)
            index = Var(name, i32, first, max(first, _upper(extent) - 1), source)
            yield Value(kernel, index)
        kernel.emit(ir.Steps(index, extent, tuple(body), first, step, source))

    # ---- what

    def copy_tma(self, origin: Box | SharedHandle, target: SharedHandle | Box | Tensor) -> None:
        """Asynchronous tensor copy: a box of a tensor into a shared tile, or a shared tile out to a box of a tensor."""
        kernel = self._kernel
        source = author_source()
        self._need_role("copy_tma", source)
        match origin, target:
            case Box(), SharedHandle(tile=tile):
                self._check_box(tile, source)
                box = ir.GlobalTile(
                    origin.tensor.parameter.name, origin.origin, (tile.layout.rows, tile.layout.columns)
                )
                kernel.emit(ir.CopyIn(box, tile, "tma", source))
            case SharedHandle(tile=tile), (Box() | Tensor()):
                box_out = target if isinstance(target, Box) else target[0]
                self._check_box(tile, source)
                out = ir.GlobalTile(
                    box_out.tensor.parameter.name, box_out.origin, (tile.layout.rows, tile.layout.columns)
                )
                kernel.emit(ir.CopyOut(tile, out, source))
            case _:
                raise LayoutFault("KW0302", "copy_tma moves between a tensor and a shared tile", source)

    def copy_bulk(self, origin: Box, target: SharedHandle) -> None:
        """Asynchronous copy of contiguous bytes into a shared tile; both ends and the size are multiples of 16 bytes."""
        source = author_source()
        self._need_role("copy_bulk", source)
        if target.tile.layout.bytes % 16:
            raise LayoutFault(
                "KW0302", f"bulk copy of {target.tile.layout.bytes} bytes", source, detail="must be a multiple of 16."
            )
        shape = (target.tile.layout.rows * target.tile.layout.columns,)
        self._kernel.emit(
            ir.CopyIn(ir.GlobalTile(origin.tensor.parameter.name, origin.origin, shape), target.tile, "bulk", source)
        )

    def mma(
        self,
        accumulator: AccumulatorHandle,
        a: SharedHandle | Value,
        b: SharedHandle,
        *,
        accumulate: Value | bool = True,
    ) -> None:
        """`accumulator (+)= A @ B`, asynchronously; `a` is a shared tile or `k.operand(...)`, `b` a shared tile.

        Shapes: A [M, K], B [K, N]; a tile stored the other way round is passed as `tile.T`.
        """
        kernel = self._kernel
        source = author_source()
        self._need_role("mma", source)
        rows, columns = accumulator.accumulator.rows, accumulator.accumulator.columns
        if isinstance(a, Value):
            if not isinstance(a.layout, Fragment) or a.layout.role != "operand" or not isinstance(a.expr, Var):
                raise LayoutFault("KW0302", "A from registers must be made with k.operand(...)", source)
            a_shape, a_turned = (a.layout.rows, a.layout.columns), False
            a_node: Var | ir.SharedTile = a.expr
        else:
            a_shape, a_node, a_turned = _shape(a), a.tile, a.transposed
        b_shape = _shape(b)
        if a_shape[0] != rows or b_shape[1] != columns or a_shape[1] != b_shape[0]:
            raise LayoutFault(
                "KW0302",
                "shapes of the product do not fit",
                source,
                detail=f"A {list(a_shape)} @ B {list(b_shape)} into [{rows}, {columns}].",
                fix="Inner dimensions must agree; pass a tile that is stored transposed as tile.T.",
            )
        if a_shape[1] % 16:
            raise LayoutFault(
                "KW0302", f"K = {a_shape[1]}", source, detail="BF16 products take 16 values of K at a time."
            )
        flag = kernel.lift(accumulate, boolean, source).expr
        kernel.emit(ir.Mma(accumulator.accumulator.name, a_node, b.tile, a_turned, b.transposed, flag, source))

    def operand(self, value: Value, *, name: str | None = None) -> Value:
        """Round a register tile to BF16 and lay it out as the A operand of the next product (registers, or TMEM on tcgen05)."""
        kernel = self._kernel
        source = author_source()
        if not isinstance(value.layout, Fragment):
            raise LayoutFault("KW0302", "an operand is made from an MMA's result", source)
        final = kernel.local(name or assigned_name(), "operand", source)
        layout = Fragment(value.layout.rows, value.layout.columns, "operand")
        rounded = value.expr if value.dtype == bf16 else Cast(bf16, value.expr, source)
        kernel.emit(ir.Elementwise(final, rounded, bf16, Extent.TILE, layout, source))
        return Value(kernel, Var(final, bf16, source=source), Extent.TILE, layout)

    def stage(self, value: Value, target: SharedHandle, *, dtype: DType | None = None) -> None:
        """Write a register tile, a factor or a scalar to a shared tile, rounded to the tile's type."""
        source = author_source()
        self._need_role("stage", source)
        self._kernel.emit(
            ir.WriteShared(
                target.tile, value.expr, dtype or target.tile.layout.dtype, value.extent, value.layout, source
            )
        )

    def fetch(
        self,
        origin: SharedHandle,
        like: Fragment | None,
        extent: Extent = Extent.TILE,
        *,
        dtype: DType = f32,
        name: str | None = None,
    ) -> Value:
        """Read a shared tile (or a row or column factor, or a scalar) into registers, laid out like `like`."""
        kernel = self._kernel
        source = author_source()
        self._need_role("fetch", source)
        final = kernel.local(name or assigned_name(), "fetch", source)
        kernel.emit(ir.ReadShared(final, origin.tile, dtype, extent, like, origin.transposed, source))
        return Value(kernel, Var(final, dtype, source=source), extent, like if extent is not Extent.SCALAR else None)

    def rows_of(self, layout: Fragment) -> Value:
        """The row index of every element of a tile, for masks."""
        return Value(self._kernel, Var("row", i32, 0, layout.rows - 1), Extent.ROWS, layout)

    def columns_of(self, layout: Fragment) -> Value:
        """The column index of every element of a tile, for masks."""
        return Value(self._kernel, Var("column", i32, 0, layout.columns - 1), Extent.COLUMNS, layout)

    # ---- private

    def _need_role(self, word: str, source: Source) -> None:
        if self.current_role is None:
            raise PipelineFault(
                "KW0403", f"{word} outside a role", source, fix='Put it inside `with k.role("name", ...):`.'
            )

    def _shared_layout(self, spec: SharedSpec, name: str, source: Source) -> SharedLayout:
        try:
            return spec.layout()
        except ValueError as error:
            raise LayoutFault("KW0303", f"shared tile {name!r}", source, detail=str(error)) from None

    def _check_box(self, tile: ir.SharedTile, source: Source) -> None:
        layout = tile.layout
        outer = layout.rows if layout.major == "K" else layout.columns
        for extent in (outer, layout.panel_elements):
            if not 1 <= extent <= 256:
                raise LayoutFault(
                    "KW0303", f"TMA box of tile {tile.name!r}", source, detail=f"extent {extent} is not in 1..256."
                )


def _shape(handle: SharedHandle) -> tuple[int, int]:
    layout = handle.tile.layout
    return (layout.columns, layout.rows) if handle.transposed else (layout.rows, layout.columns)


def _upper(extent: Expr) -> int:
    match extent:
        case Const(value=value):
            return int(value)
        case Var(high=int(high)):
            return min(high, i32.high)
        case _:
            return i32.high

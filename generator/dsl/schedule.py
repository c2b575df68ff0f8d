"""The words of the schedule: roles, pipelines, loops, asynchronous copies and matrix products.

Nobody writes an arrival count, a byte count, a stage index, a phase, a descriptor, a fence or a register layout here:
passes/derive.py derives them from these operations and from the architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from kernwright.generator.dsl.grid import GridWords
from kernwright.generator.dsl.memory import AccumulatorHandle, Box, PipelineHandle, SharedHandle, SharedSpec, Tensor
from kernwright.generator.dsl.names import assigned_name, author_source
from kernwright.generator.dsl.schedule_checks import (
    box_of,
    check_access,
    check_copy,
    check_extent,
    check_operand,
    check_register_operand,
    check_stride,
    upper,
)
from kernwright.generator.dsl.value import Value
from kernwright.generator.errors import LayoutFault, LimitFault, PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Cast, Var
from kernwright.generator.ir.layout import MMA_K, WARPGROUP, WARPS_PER_GROUP, SharedLayout
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, bf16, boolean, f32, i32
from kernwright.generator.passes.ranges import range_of


class ScheduleWords(GridWords):
    """Mixin of `Kernel`: everything about who does what, where and when."""

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

    def accumulator(self, name: str, rows: int, columns: int, *, buffers: int = 1) -> AccumulatorHandle:
        """An FP32 accumulator of `rows` x `columns`: registers on wgmma machines, tensor memory on tcgen05 machines.

        Where it is in tensor memory, `buffers` of it take turns, so that the next products run while the last result is read; each
        turn begins with a product that does not accumulate.
        """
        kernel = self._kernel
        source = kernel.claim(name, "accumulator")
        if buffers < 1:
            raise PipelineFault("KW0401", f"accumulator {name!r} has {buffers} buffers", source, fix="One at least.")
        accumulator = ir.Accumulator(name, rows, columns, buffers, source)
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
        self._check_host(name, shares, warp, source)
        if registers is not None and (registers % 8 or not 24 <= registers <= 256):
            raise PipelineFault(
                "KW0404",
                f"role {name!r}: {registers} registers",
                source,
                detail="a budget is a multiple of 8 in 24..256.",
            )
        role = ir.Role(name, 0 if shares else warpgroups, registers, shares, warp, replicas, source)
        kernel.roles.append(role)
        if sum(r.all_warpgroups for r in kernel.roles) * WARPGROUP > 1024:
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
        """The body is executed by one elected thread of the role's first warp; what it names is that thread's alone."""
        kernel = self._kernel
        source = author_source()
        with kernel.scope(), kernel.body() as body:
            yield
        kernel.emit(ir.OneThread(tuple(body), source))

    @contextmanager
    def steps(self, name: str, count: Value | int, *, first: Value | int = 0, step: Value | int = 1) -> Iterator[Value]:
        """`for name in first, first + step, … < count`, in order; the name is the loop's own.

        A persistent block takes every `step`-th tile: `first` is its number in the grid, `step` the number of blocks.
        """
        kernel = self._kernel
        source = author_source()
        extent, begin, by = (kernel.lift(part, i32, source).expr for part in (count, first, step))
        check_stride(begin, by, source)
        with kernel.scope(), kernel.body() as body:
            kernel.claim_name(name, "loop", source)
            least = max(0, range_of(begin).low)
            index = Var(name, i32, least, max(least, upper(extent) - 1), source)
            kernel.loops += 1
            try:
                yield Value(kernel, index)
            finally:
                kernel.loops -= 1
        kernel.emit(ir.Steps(index, extent, tuple(body), begin, by, source))

    # ---- what

    def copy_tma(self, origin: Box | SharedHandle, target: SharedHandle | Box | Tensor, *, rows: int = 0) -> None:
        """Asynchronous tensor copy: a box of a tensor into a shared tile, or a shared tile out to a box of a tensor.

        The tile's contiguous dimension lies along the tensor's last one, its other dimension along number `rows` of the tensor.
        """
        kernel = self._kernel
        source = author_source()
        self._need_role("copy_tma", source)
        match origin, target:
            case Box(), SharedHandle(tile=tile):
                target.check_open(source)
                check_copy(origin.tensor, tile, "write", source)
                kernel.emit(ir.CopyIn(box_of(origin, tile, rows, source), tile, "tma", source))
            case SharedHandle(tile=tile), (Box() | Tensor()):
                origin.check_open(source)
                box_out = target if isinstance(target, Box) else target[0]
                check_copy(box_out.tensor, tile, "read", source)
                kernel.emit(ir.CopyOut(tile, box_of(box_out, tile, rows, source), source))
            case _:
                raise LayoutFault("KW0302", "copy_tma moves between a tensor and a shared tile", source)

    def copy_bulk(self, origin: Box, target: SharedHandle) -> None:
        """Asynchronous copy of contiguous bytes into a shared tile; both ends and the size are multiples of 16 bytes."""
        source = author_source()
        self._need_role("copy_bulk", source)
        target.check_open(source)
        check_copy(origin.tensor, target.tile, "write", source)
        if target.tile.layout.bytes % 16:
            raise LayoutFault(
                "KW0302", f"bulk copy of {target.tile.layout.bytes} bytes", source, detail="must be a multiple of 16."
            )
        shape = (target.tile.layout.rows * target.tile.layout.columns,)
        self._kernel.emit(
            ir.CopyIn(ir.GlobalTile(origin.tensor.parameter.name, origin.origin, shape), target.tile, "bulk", source)
        )

    def load_tile(self, origin: Box, layout: Fragment, *, dtype: DType = f32, name: str | None = None) -> Value:
        """Load a box of a tensor's last two dimensions into registers, laid out as the result of a product; widening is exact."""
        kernel = self._kernel
        source = author_source()
        self._need_role("load_tile", source)
        check_access(origin.tensor, "write", source)
        final = kernel.local(name or assigned_name(), "load", source)
        tile = ir.GlobalTile(origin.tensor.parameter.name, origin.origin, (layout.rows, layout.columns))
        kernel.emit(ir.LoadTile(final, tile, dtype, Extent.TILE, layout, source))
        return Value(kernel, Var(final, dtype, source=source), Extent.TILE, layout)

    def store_tile(self, target: Box, value: Value) -> None:
        """Store registers laid out as the result of a product to a box of a tensor's last two dimensions, each rounded once."""
        source = author_source()
        self._need_role("store_tile", source)
        check_access(target.tensor, "read", source)
        if not isinstance(value.layout, Fragment) or value.extent is not Extent.TILE:
            raise LayoutFault("KW0302", "store_tile takes a register tile in the layout of a product", source)
        tile = ir.GlobalTile(target.tensor.parameter.name, target.origin, (value.layout.rows, value.layout.columns))
        self._kernel.emit(ir.StoreTile(tile, value.expr, value.layout, source))

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
        for side in (a, b):
            if isinstance(side, SharedHandle):
                side.check_open(source)
        if isinstance(a, Value):
            a_node: Var | ir.SharedTile = check_register_operand(a, source)
            layout = cast(Fragment, a.layout)
            a_shape, a_turned = (layout.rows, layout.columns), False
        else:
            a_shape, a_node, a_turned = a.shape, a.tile, a.transposed
        b_shape = b.shape
        if a_shape[0] != rows or b_shape[1] != columns or a_shape[1] != b_shape[0]:
            raise LayoutFault(
                "KW0302",
                "shapes of the product do not fit",
                source,
                detail=f"A {list(a_shape)} @ B {list(b_shape)} into [{rows}, {columns}].",
                fix="Inner dimensions must agree; pass a tile that is stored transposed as tile.T.",
            )
        if a_shape[1] % MMA_K:
            raise LayoutFault(
                "KW0302", f"K = {a_shape[1]}", source, detail=f"BF16 products take {MMA_K} values of K at a time."
            )
        for side in (a, b):
            if isinstance(side, SharedHandle):
                check_operand(side.tile, source)
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
        target.check_open(source)
        if target.transposed:
            raise LayoutFault(
                "KW0302", "stage writes a tile as it is stored", source, fix="Pass the tile, and read it as tile.T."
            )
        check_extent("stage to", target, value.layout, value.extent, source)
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
        at: int = 0,
        ahead: int = 0,
    ) -> Value:
        """Read a shared tile (or a row or column factor, or scalar number `at` of it) into registers, laid out like `like`.

        `ahead=1` reads the values of the next step at the end of each step, in the shadow of its products.
        """
        kernel = self._kernel
        source = author_source()
        self._need_role("fetch", source)
        origin.check_open(source)
        check_extent("fetch of", origin, like, extent, source, at)
        self.need_ahead(ahead, f"fetch of {origin.tile.name!r}", source)
        final = kernel.local(name or assigned_name(), "fetch", source)
        kernel.emit(ir.ReadShared(final, origin.tile, dtype, extent, like, origin.transposed, source, at, ahead))
        return Value(kernel, Var(final, dtype, source=source), extent, like if extent is not Extent.SCALAR else None)

    def rows_of(self, layout: Fragment) -> Value:
        """The row index of every element of a tile, for masks."""
        return Value(self._kernel, Var("row", i32, 0, layout.rows - 1), Extent.ROWS, layout)

    def columns_of(self, layout: Fragment) -> Value:
        """The column index of every element of a tile, for masks."""
        return Value(self._kernel, Var("column", i32, 0, layout.columns - 1), Extent.COLUMNS, layout)

    # ---- private

    def _shared_layout(self, spec: SharedSpec, name: str, source: Source) -> SharedLayout:
        try:
            return spec.layout()
        except ValueError as error:
            raise LayoutFault("KW0303", f"shared tile {name!r}", source, detail=str(error)) from None

    def _check_host(self, name: str, shares: str | None, warp: int, source: Source) -> None:
        """A role inside a warpgroup is one of the warps that the warpgroup's own role does not use."""
        if shares is None:
            return
        roles = {role.name: role for role in self._kernel.roles}
        if shares not in roles:
            raise PipelineFault("KW0403", f"role {name!r} shares the warpgroup of unknown role {shares!r}", source)
        others = [role.name for role in roles.values() if role.shares == shares and role.warp == warp]
        if not 1 <= warp < WARPS_PER_GROUP or others or roles[shares].shares is not None:
            taken = f"role {others[0]!r} has warp {warp}" if others else f"warp 0 is that of role {shares!r} itself"
            raise PipelineFault(
                "KW0403",
                f"role {name!r} is warp {warp} of role {shares!r}",
                source,
                detail=f"a warpgroup has warps 0 .. {WARPS_PER_GROUP - 1}; {taken}.",
                fix="Give it a warp of its own, of a role that stands for a warpgroup.",
            )

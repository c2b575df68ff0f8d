"""Handles of memory: global tensors and the boxes taken from them, shared tiles, pipelines and their stages, accumulators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernwright.generator.dsl.names import assigned_name, author_source
from kernwright.generator.dsl.value import Value
from kernwright.generator.errors import LayoutFault, PipelineFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.expr import Const, Expr, Var, integer
from kernwright.generator.ir.layout import SharedLayout
from kernwright.generator.ir.program import TensorParameter
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, f32

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel


@dataclass(frozen=True, slots=True)
class BlockRange:
    """The rows that the running block works on: `step` rows from `origin`, cut at the end of the dimension."""

    kernel: Kernel
    blocks: ir.Blocks
    origin: Expr


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in global memory. `tensor[i, j]` is the box that starts there; `tensor[block]` the rows of the running block."""

    kernel: Kernel
    parameter: TensorParameter

    def __getitem__(self, index: object) -> Box:
        self.kernel.own(self.kernel, self.parameter.name, author_source())
        items = index if isinstance(index, tuple) else (index,)
        if len(items) > len(self.parameter.shape):
            raise TensorFault(
                "KW0204",
                f"{len(items)} indices for tensor {self.parameter.name!r}",
                author_source(),
                detail=f"{self.parameter.name} has {len(self.parameter.shape)} dimensions.",
            )
        origin = [self._first(item) for item in items]
        origin += [integer(0)] * (len(self.parameter.shape) - len(items))
        block = items[0] if isinstance(items[0], BlockRange) else None
        return Box(self, tuple(origin), block)

    def _first(self, item: object) -> Expr:
        match item:
            case BlockRange(kernel=kernel, origin=origin):
                self.kernel.own(kernel, "block", author_source())
                return origin
            case Value() as value:
                return value.expr
            case int() as number:
                return integer(number)
            case slice(start=None, stop=None, step=None):
                return integer(0)
            case _:
                raise TensorFault(
                    "KW0204",
                    f"{item!r} does not say where a box of {self.parameter.name!r} starts",
                    author_source(),
                    fix="Index with a number, a value of the program, `:` for the whole dimension, or the running block.",
                )


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a tensor: where it starts. Its extent is that of the tile it is copied to or loaded into."""

    tensor: Tensor
    origin: tuple[Expr, ...]
    block: BlockRange | None = None


@dataclass(frozen=True, slots=True)
class SharedHandle:
    """A shared tile. `.T` is the same bytes read as the transposed matrix. A tile of a pipeline belongs to one `stage`."""

    kernel: Kernel
    tile: ir.SharedTile
    transposed: bool = False
    stage: Stage | None = field(default=None, compare=False, repr=False)

    @property
    def T(self) -> SharedHandle:
        return SharedHandle(self.kernel, self.tile, not self.transposed, self.stage)

    def check_open(self, source: Source) -> None:
        """Refuse the tile of a stage whose block has ended; a standing buffer stays valid."""
        if self.stage is not None:
            self.stage._check_open(self.tile.name, source)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix that is passed, the tile's own or turned."""
        layout = self.tile.layout
        return (layout.columns, layout.rows) if self.transposed else (layout.rows, layout.columns)


class Stage:
    """One stage of a pipeline, inside a `produce` or `consume` block; its tiles are attributes."""

    def __init__(
        self, kernel: Kernel, pipeline: ir.Pipeline, word: str, opened: Source, open_stages: list[Stage]
    ) -> None:
        self._tiles = {tile.name: SharedHandle(kernel, tile, stage=self) for tile in pipeline.tiles}
        self._pipeline = pipeline
        self._word, self._opened, self._open_stages = word, opened, open_stages

    def _check_open(self, tile: str, source: Source) -> None:
        """A tile is named by its pipeline, so it is that of the innermost open block of the pipeline, and of no other."""
        stages, name = self._open_stages, self._pipeline.name
        if stages and stages[-1] is self:
            return
        if self in stages:
            what = "belongs to an outer stage"
            detail = f"the {stages[-1]._word} block at {stages[-1]._opened} takes the next stage of {name!r}."
            fix = f"Use the outer stage before the inner {stages[-1]._word} block begins, or a pipeline of its own."
        else:
            what = "is used outside a block of its pipeline"
            detail = f"the {self._word} block at {self._opened} has ended, and with it the stage."
            fix = f"Write it inside `with {name}.produce()`, read it inside `with {name}.consume()`."
        raise PipelineFault("KW0408", f"tile {tile!r} of pipeline {name!r} {what}", source, detail=detail, fix=fix)

    def __getattr__(self, name: str) -> SharedHandle:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._tiles:
            raise PipelineFault(
                "KW0402",
                f"pipeline {self._pipeline.name!r} has no tile {name!r}",
                author_source(),
                detail=f"Its tiles are {', '.join(self._tiles)}.",
            )
        return self._tiles[name]


@dataclass(frozen=True, slots=True)
class SharedSpec:
    """What `shared(...)` describes: a tile of shared memory, before it has a name."""

    dtype: DType
    shape: tuple[int, int]
    swizzle: int = 0
    major: str = "K"

    def layout(self) -> SharedLayout:
        return SharedLayout(self.shape[0], self.shape[1], self.dtype, self.swizzle, self.major)


def shared(dtype: DType, shape: tuple[int, int], swizzle: int = 0, major: str = "K") -> SharedSpec:
    """A tile of shared memory: `shape` in elements, `swizzle` 0, 32, 64 or 128 bytes, `major` "K" or "MN"."""
    return SharedSpec(dtype, shape, swizzle, major)


@dataclass(frozen=True, slots=True)
class PipelineHandle:
    """A ring of stages. One role fills a stage in a `produce` block, others read it in a `consume` block."""

    kernel: Kernel
    pipeline: ir.Pipeline
    open_stages: list[Stage] = field(default_factory=list, compare=False, repr=False)

    @contextmanager
    def _stage(self, word: str, source: Source) -> Iterator[Stage]:
        """The stage of a block: its handle, and those of its tiles, end with the block."""
        stage = Stage(self.kernel, self.pipeline, word, source, self.open_stages)
        self.open_stages.append(stage)
        try:
            yield stage
        finally:
            self.open_stages.remove(stage)

    @contextmanager
    def produce(self, *, ahead: int = 0) -> Iterator[Stage]:
        """Fill the next stage: waits until its readers have released it, signals it full at the end.

        `ahead=1` waits for the *next* stage at the end of each step instead, also of the last: the wait leaves the step's chain,
        and the producer is never two phases ahead of a reader.
        """
        source = author_source()
        self.kernel.need_ahead(ahead, f"produce of {self.pipeline.name!r}", source)
        with self.kernel.body() as body, self._stage("produce", source) as stage:
            yield stage
        self.kernel.emit(ir.Produce(self.pipeline.name, tuple(body), source, ahead))

    @contextmanager
    def consume(self, *, relayed_by: PipelineHandle | None = None, after: tuple[Value, ...] = ()) -> Iterator[Stage]:
        """Read the next stage: waits until it is full, releases it as early as its last reader allows.

        `relayed_by` names a pipeline whose producer has already waited for this stage before it arrived there: this role, which
        waits for that one, need not wait again. `after` are values to compute before the wait, in its shadow; the text holds that
        order by a data dependence, since a compiler may otherwise move arithmetic across a wait.
        """
        source = author_source()
        names = tuple(value.expr.name for value in after if isinstance(value.expr, Var))
        self.kernel.check_visible(tuple(value.expr for value in after), source)
        with self.kernel.body() as body, self._stage("consume", source) as stage:
            yield stage
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
        """Set every element to one number."""
        self.kernel.emit(ir.SetAccumulator(self.accumulator.name, Const(value, f32), author_source()))

    def set(self, value: Value) -> None:
        """Set the elements to those of a register tile of the accumulator's layout."""
        source = author_source()
        if value.layout != self.layout:
            raise LayoutFault(
                "KW0304",
                f"accumulator {self.accumulator.name!r} lies in another layout",
                source,
                detail=f"accumulator: {self.layout}\nvalue: {value.layout}",
                fix="Load the value with the accumulator's `layout`.",
            )
        self.kernel.emit(ir.SetAccumulator(self.accumulator.name, value.expr, source))

"""Handles of memory: global tensors and the boxes taken from them, shared tiles, pipelines and their stages, accumulators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernwright.generator.dsl.names import author_source
from kernwright.generator.dsl.value import Number, Value
from kernwright.generator.errors import PipelineFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Expr, integer
from kernwright.generator.ir.layout import SharedLayout
from kernwright.generator.ir.program import TensorParameter
from kernwright.generator.ir.types import DType

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
            case BlockRange(origin=origin):
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
    """A shared tile. `.T` is the same bytes read as the transposed matrix."""

    kernel: Kernel
    tile: ir.SharedTile
    transposed: bool = False

    @property
    def T(self) -> SharedHandle:
        return SharedHandle(self.kernel, self.tile, not self.transposed)


class Stage:
    """One stage of a pipeline, inside a `produce` or `consume` block; its tiles are attributes."""

    def __init__(self, kernel: Kernel, pipeline: ir.Pipeline) -> None:
        self._tiles = {tile.name: SharedHandle(kernel, tile) for tile in pipeline.tiles}
        self._pipeline = pipeline

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


def origin_of(items: tuple[Value | Number, ...]) -> tuple[Expr, ...]:
    """Coordinates as expressions."""
    return tuple(item.expr if isinstance(item, Value) else integer(int(item)) for item in items)

"""TMA boxes and bulk copies: tensor maps from tensors and tiles, coordinates from the box that the author named."""

from __future__ import annotations

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Var, integer
from kernwright.generator.ir.program import TensorMap, TensorParameter
from kernwright.generator.ir.statement import Execute, MapOperand, Pointer, Repeat, SharedOperand, Statement
from kernwright.generator.ir.types import i32, i64
from kernwright.generator.passes.derive import TensorMapFacts
from kernwright.generator.passes.derive.tensor_maps import map_of
from kernwright.generator.passes.roles.context import Context, plus, tile_name, times
from kernwright.generator.passes.simplify import simplify
from kernwright.generator.passes.widen import widen

PANEL = Var("panel", i32)


def copy_in(context: Context, copy: ir.CopyIn) -> tuple[Statement, ...]:
    """The copies of one tile into the running stage; they signal their bytes on its full barrier."""
    assert copy.target.pipeline is not None
    full = context.barrier(copy.target.pipeline, "full")
    if copy.engine == "bulk":
        return (_bulk(context, copy, full),)
    return _boxes(context, copy.tile, copy.target, copy, full)


def copy_out(context: Context, copy: ir.CopyOut, stage: Expr | None) -> tuple[Statement, ...]:
    """The stores of one tile, by one thread; the group is committed by whoever calls."""
    return _boxes(context, copy.tile, copy.origin, copy, None, stage)


def _boxes(
    context: Context,
    box: ir.GlobalTile,
    tile: ir.SharedTile,
    copy: ir.CopyIn | ir.CopyOut,
    full: SharedOperand | None,
    stage: Expr | None = None,
) -> tuple[Statement, ...]:
    facts = map_of(context.description, copy)
    tensor_map = _tensor_map(context, facts, tile)
    panels = facts.boxes
    index = integer(0) if panels == 1 else PANEL
    count, panel_bytes = integer(1), integer(0)
    if panels > 1:
        words = tile_name(tile)
        count = context.constant(f"{words}_panels", panels, f"swizzle rows of {tile.layout.panel_elements} elements")
        panel_bytes = context.panel_bytes(tile)
    place = context.tile(tile, times(index, panel_bytes) if panels > 1 else None, stage)
    coordinates = _coordinates(box, facts, tile, index)
    map_operand = MapOperand(tensor_map.name)
    name = "load" if full is not None else "store"
    operands = (place, map_operand, *coordinates, full) if full is not None else (map_operand, place, *coordinates)
    execute = context.execute(f"tma_{name}_{facts.rank}d", *operands, source=copy.source)
    if panels == 1:
        return (execute,)
    return (Repeat(Var("panel", i32, 0, panels - 1), count, (execute,), source=copy.source),)


def _coordinates(box: ir.GlobalTile, facts: TensorMapFacts, tile: ir.SharedTile, panel: Expr) -> tuple[Expr, ...]:
    """The first element of a box in every dimension of its map, from the contiguous one outwards."""
    *outer, last = box.origin
    elements = tile.layout.panel_elements
    if facts.panel_dimension is None:
        return (_i32(plus(last, times(panel, integer(elements)))), *(_i32(first) for first in reversed(outer)))
    *others, heads = outer
    width = _heads_width(facts)
    counted = plus(times(heads, integer(width)), simplify(Binary("/", last, integer(elements))).expr)
    return (integer(0), *(_i32(first) for first in reversed(others)), _i32(counted))


def _i32(expr: Expr) -> Expr:
    return expr if expr.dtype == i32 else Cast(i32, expr)


def _heads_width(facts: TensorMapFacts) -> int:
    assert facts.panels_a_head is not None
    return facts.panels_a_head


def _tensor_map(context: Context, facts: TensorMapFacts, tile: ir.SharedTile) -> TensorMap:
    """The map of a tensor for tiles of this box; one argument serves all tiles that share it."""
    key = (facts.tensor, facts.box, facts.panel_dimension, facts.swizzle)
    if key not in context.maps:
        tensor = context.tensor(facts.tensor)
        same = sum(1 for known in context.derived.tensor_maps if known.tensor == facts.tensor)
        plain = same == 1 and facts.tensor not in pointers(context)
        name = facts.tensor if plain else f"{facts.tensor}_map" if same == 1 else f"{facts.tensor}_{tile.name}"
        extents, strides = _dimensions(tensor, facts)
        swizzle = facts.swizzle if facts.swizzle > 16 else 0
        context.maps[key] = TensorMap(name, tensor.name, tensor.dtype, extents, strides, facts.box, swizzle)
    return context.maps[key]


def _dimensions(tensor: TensorParameter, facts: TensorMapFacts) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Extents in elements and strides in bytes, from the contiguous dimension outwards."""

    def bytes_of(stride: Expr) -> Expr:
        return simplify(widen(Binary("*", stride, integer(tensor.dtype.bytes, i64)))).expr

    if facts.panel_dimension is None:
        return tuple(reversed(tensor.shape)), tuple(bytes_of(stride) for stride in reversed(tensor.strides[:-1]))
    *others, heads = tensor.shape[:-1]
    elements = facts.box[0]
    extents = (integer(elements), *reversed(others), simplify(Binary("*", heads, integer(_heads_width(facts)))).expr)
    strides = (*(bytes_of(stride) for stride in reversed(tensor.strides[:-2])), bytes_of(integer(elements)))
    return extents, strides


def pointers(context: Context) -> set[str]:
    """Tensors that the program also reaches by their address."""
    found: set[str] = set()
    for operation in ir.walk(context.description.body):
        match operation:
            case ir.CopyIn(tile=tile, engine="bulk") | ir.LoadTile(tile=tile) | ir.StoreTile(tile=tile):
                found.add(tile.tensor)
            case _:
                pass
    return found


def _bulk(context: Context, copy: ir.CopyIn, full: SharedOperand) -> Execute:
    tensor = context.tensor(copy.tile.tensor)
    source = Pointer(tensor.name, element_offset(tensor, copy.tile.origin), tensor.dtype, copy.source)
    amount = context.bytes_of(copy.target)
    return context.execute("bulk_load", context.tile(copy.target), source, amount, full, source=copy.source)


def element_offset(tensor: TensorParameter, origin: tuple[Expr, ...]) -> Expr:
    """The offset of an element from the tensor's start, in 64 bits where the ranges do not prove 32."""
    offset: Expr = integer(0)
    for first, stride in zip(origin, tensor.strides, strict=True):
        one = isinstance(stride, Const) and stride.value == 1
        offset = plus(offset, first if one else times(first, stride))
    return widen(simplify(offset).expr)

"""Tensor maps: rank and box of every tensor that TMA copies, from the tile's layout and the tensor's dimensions."""

from __future__ import annotations

import math

from kernwright.generator.errors import LayoutFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Var
from kernwright.generator.ir.program import ScalarParameter, TensorParameter
from kernwright.generator.passes.derive.facts import TensorMapFacts

MAXIMUM_RANK = 5


def tensor_maps(description: Description) -> tuple[TensorMapFacts, ...]:
    """A map for each pair of a tensor and a tile that a copy joins, in the order of the first copy."""
    found: dict[tuple[object, ...], TensorMapFacts] = {}
    known = _multiples(description)
    for operation in ir.walk(description.body):
        match operation:
            case ir.CopyIn(tile=box, target=tile, engine="tma") | ir.CopyOut(tile=box, origin=tile):
                facts = _map(description.tensor(box.tensor), box, tile, operation, known)
                found.setdefault((facts.tensor, facts.box, facts.panel_dimension, facts.swizzle), facts)
            case _:
                pass
    return tuple(found.values())


def map_of(description: Description, copy: ir.CopyIn | ir.CopyOut) -> TensorMapFacts:
    """The map through which one copy goes."""
    tile = copy.target if isinstance(copy, ir.CopyIn) else copy.origin
    return _map(description.tensor(copy.tile.tensor), copy.tile, tile, copy, _multiples(description))


def _multiples(description: Description) -> dict[str, int]:
    """What scalars of the program are multiples of: parameters as declared, named values by their formula."""
    known = {p.name: p.multiple_of for p in description.parameters if isinstance(p, ScalarParameter)}
    for operation in ir.walk(description.body):
        if isinstance(operation, ir.Elementwise) and operation.extent is ir.Extent.SCALAR:
            number = _multiple(operation.value, known)
            known[operation.name] = math.gcd(number, known.get(operation.name, number))
    return known


def _multiple(value: Expr, known: dict[str, int]) -> int:
    """A number that divides `value` whatever its variables are; 0 for a value that is 0, which every number divides."""
    match value:
        case Const(value=number):
            return abs(int(number))
        case Var(name=name):
            return known.get(name, 1)
        case Binary("*", left, right):
            return _multiple(left, known) * _multiple(right, known)
        case Binary("+" | "-" | "%", left, right):
            return math.gcd(_multiple(left, known), _multiple(right, known))
        case Cast(_, operand):
            return _multiple(operand, known)
        case _:
            return 1


def _map(
    tensor: TensorParameter,
    box: ir.GlobalTile,
    tile: ir.SharedTile,
    operation: ir.CopyIn | ir.CopyOut,
    known: dict[str, int],
) -> TensorMapFacts:
    """Dimensions from the contiguous one outwards; rows of the tile lie along dimension `box.rows` of the tensor.

    A tensor of three or more dimensions whose rows are not the last but one has its heads there: they are contiguous in steps of
    swizzle rows, so the map counts those instead of heads, at no cost in rank, and one box brings every panel of a tile. That takes
    boxes that provably start at a swizzle row.
    """
    layout = tile.layout
    outer = layout.rows if layout.major == "K" else layout.columns
    rank = len(tensor.shape)
    if rank > MAXIMUM_RANK:
        raise LayoutFault(
            "KW0303",
            f"tensor {tensor.name!r} has {rank} dimensions",
            operation.source,
            detail=f"a tensor map has at most {MAXIMUM_RANK}.",
            fix="Declare it with folded=True, or merge dimensions.",
        )
    name = f"{tile.pipeline}.{tile.name}" if tile.pipeline else tile.name
    if rank == 1:
        box_of = (layout.panel_elements,)
        return TensorMapFacts(tensor.name, name, 1, box_of, None, layout.panels, layout.swizzle, "one row")
    last = tensor.shape[-1]
    whole = isinstance(last, Const) and int(last.value) % layout.panel_elements == 0
    counted = whole and _multiple(box.origin[-1], known) % layout.panel_elements == 0
    if rank >= 3 and box.rows != rank - 2 and layout.swizzle and counted and isinstance(last, Const):
        others = [outer if axis == box.rows else 1 for axis in range(rank - 3, -1, -1)]
        shape = (layout.panel_elements, *others, layout.panels)
        reason = f"dimension {rank - 2} of the tensor is counted in swizzle rows of {layout.panel_elements} elements"
        width = int(last.value) // layout.panel_elements
        return TensorMapFacts(tensor.name, name, rank, shape, rank - 1, 1, layout.swizzle, reason, width)
    others = [outer if axis == box.rows else 1 for axis in range(rank - 2, -1, -1)]
    reason = "one box is one panel" if layout.panels > 1 else "the tile is one panel"
    return TensorMapFacts(
        tensor.name, name, rank, (layout.panel_elements, *others), None, layout.panels, layout.swizzle, reason
    )

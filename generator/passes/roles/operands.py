"""Operands of products in shared memory: descriptor constants, start addresses, and the step from one instruction to the next.

The address field of a descriptor is masked after the stage and the warpgroup have been added to the address. Steps of K and
fragments are added to the masked descriptor: `proof` shows that they cannot carry out of the field, so that both orders agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.errors import LayoutFault
from kernwright.generator.instructions.descriptors import Descriptor
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.evaluate import constant_value
from kernwright.generator.ir.expr import Binary, Call, Const, Expr, Var, integer, substitute
from kernwright.generator.ir.layout import MMA_K, SharedLayout
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import Repeat, Statement
from kernwright.generator.ir.types import i32, u64
from kernwright.generator.passes.derive import Derived
from kernwright.generator.passes.roles.context import Context, plus, times

STEP = Var("step", i32)


@dataclass(frozen=True, slots=True)
class NoCarry:
    """Why the address field of an operand's descriptors cannot overflow, in bytes."""

    operand: str
    start: int
    end: int
    steps: int
    mask: int

    @property
    def reach(self) -> int:
        """Bytes that the field can address."""
        return (self.mask + 1) * 16

    @property
    def holds(self) -> bool:
        return self.end <= self.reach

    @property
    def text(self) -> str:
        verdict = "no carry" if self.holds else "CARRIES"
        bits = self.mask.bit_length()
        return (
            f"{self.operand}: addresses {self.start} .. {self.end - 1}, steps up to {self.steps} included; "
            f"{self.end - 1} >> 4 = 0x{self.end - 1 >> 4:X} <= 0x{self.mask:X} ({bits} bits): {verdict}"
        )


def proofs(derived: Derived) -> tuple[NoCarry, ...]:
    """One proof for each operand of each product, from the map of shared memory; the window begins with the reserved bytes."""
    found: dict[tuple[str, str], NoCarry] = {}
    for facts in derived.products:
        for tile, side in ((facts.mma.a, facts.a), (facts.mma.b, facts.b)):
            if isinstance(tile, ir.SharedTile) and isinstance(side, Descriptor):
                slot_name = f"{tile.pipeline}.{tile.name}" if tile.pipeline else tile.name
                slot = next(item for item in derived.shared if item.name == slot_name)
                start = WINDOW_START + slot.offset
                proof = NoCarry(slot_name, start, start + slot.size, max(side.k_steps), derived.arch.descriptor_mask)
                found.setdefault((slot_name, side.layout.major), proof)
    return tuple(found.values())


WINDOW_START = 1024  # of the shared window: the system's reserved bytes come first


def check_carry(derived: Derived) -> None:
    """Refuse a program whose operands lie where the architecture's descriptors do not reach."""
    for proof in proofs(derived):
        if not proof.holds:
            raise LayoutFault(
                "KW0308",
                f"operand {proof.operand!r} lies beyond what a descriptor addresses",
                derived.description.source,
                where=f"on {derived.arch.name}",
                detail=f"{proof.text}; the field reaches {proof.reach} bytes.",
                fix="Use fewer stages, or put the operands before other tiles.",
            )


def descriptor_constant(context: Context, side: Descriptor) -> Const:
    """The descriptor of an operand without its address, named by its view: operands of one view share it."""
    layout = side.layout
    wide = layout.major == "MN" or layout.swizzle == 16
    reason = f"{layout.major}-major, "
    reason += f"{layout.swizzle}-byte swizzle" if layout.swizzle > 16 else "no swizzle"
    reason += f": stride {layout.stride_byte_offset}"
    reason += f", leading {layout.leading_byte_offset}" if wide else ""
    words = f"descriptor_{layout.major.lower()}{layout.swizzle}" + (
        f"_panel_{layout.leading_byte_offset}" if wide else ""
    )
    return context.constant(words, side.template, reason, dtype=u64)


def view_name(tile: ir.SharedTile, side: Descriptor) -> str:
    """The value that holds a descriptor at an operand's start: a tile may be read as it lies and turned."""
    turned = side.layout.major != tile.layout.major or side.layout.rows != tile.layout.rows
    return f"{tile.name}_{'transposed_' if turned else ''}descriptor"


def over_steps(context: Context, depth: int, body: tuple[Statement, ...], source: Source) -> tuple[Statement, ...]:
    """The instructions of a product over `depth` values of K: `body` once for every STEP."""
    steps = depth // MMA_K
    if steps == 1:
        return body
    taker = "an instruction" if context.tcgen05 else "wgmma"
    count = context.constant(f"steps_of_k_{depth}", steps, f"a product: {taker} takes {MMA_K} values of K")
    return (Repeat(Var(STEP.name, i32, 0, steps - 1), count, body, source=source),)


def start_of(context: Context, tile: ir.SharedTile, side: Descriptor, stage: Expr | None, offset: Expr) -> Call:
    """The descriptor of an operand's first instruction."""
    address = context.address(tile, stage)
    where = plus(address, offset)
    return context.call("matrix_descriptor", u64, descriptor_constant(context, side), where)


def row_offset(layout: SharedLayout, rows: int) -> int:
    """Bytes from the first row (or MN index) of an operand to number `rows`, a multiple of 64."""
    if layout.major == "K":
        return rows * layout.panel_elements * layout.dtype.bytes
    return rows // layout.panel_elements * layout.panel_bytes


def step_offset(context: Context, tile: ir.SharedTile, side: Descriptor, step: Expr = STEP) -> Expr:
    """Bytes from the operand's start to the values of K of instruction number `step`; checked against the layout."""
    layout = side.layout
    inside = layout.panel_elements // MMA_K if layout.major == "K" else 0
    each = MMA_K * layout.dtype.bytes
    if layout.major != "K":
        offset = times(integer(layout.k_step_bytes(1)), step)
    elif layout.columns <= layout.panel_elements:
        offset = times(integer(each), step)
    elif inside <= 1:
        offset = times(integer(layout.k_step_bytes(1)), step)
    else:
        panel = times(Binary("/", step, integer(inside)), context.panel_bytes(tile))
        offset = plus(panel, times(Binary("%", step, integer(inside)), integer(each)))
    _check_steps(layout, offset)
    return offset


def _check_steps(layout: SharedLayout, offset: Expr) -> None:
    for number in range(layout.columns // MMA_K):
        value = constant_value(substitute(offset, {STEP.name: integer(number)}))
        if value != layout.k_step_bytes(number):
            raise AssertionError(f"step {number} of {layout.formula}: {value} instead of {layout.k_step_bytes(number)}")


def advanced(context: Context, start: Expr, offset: Expr) -> Expr:
    """The same operand some bytes further on."""
    if isinstance(offset, Const) and offset.value == 0:
        return start
    return context.call("advance", u64, start, offset)

"""What every part of a role's lowering knows: the derived facts, the table of constants, and the members of shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import LayoutFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Var, integer
from kernwright.generator.ir.layout import TmemLayout
from kernwright.generator.ir.names import constant_name
from kernwright.generator.ir.program import NamedConstant, SharedField, StaticAssert, TensorMap, TensorParameter
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.statement import Execute, Operand, SharedOperand
from kernwright.generator.ir.types import DType, boolean, i32, u8, u32, u64
from kernwright.generator.passes.derive import (
    AccumulatorFacts,
    BufferFacts,
    Derived,
    MmaFacts,
    PipelineFacts,
    RoleFacts,
)
from kernwright.generator.passes.require import require_instruction

ELECT = Call("elect_one", (), boolean)


@dataclass
class Context:
    """One lowering: a description on an architecture. Constants and assertions are collected while the roles are lowered."""

    description: Description
    derived: Derived
    arch: Architecture
    constants: dict[str, NamedConstant] = field(default_factory=dict)
    asserts: list[StaticAssert] = field(default_factory=list)
    maps: dict[tuple[object, ...], TensorMap] = field(default_factory=dict)
    issuers: dict[str, int] = field(default_factory=dict)  # warps that issue the products of roles

    @property
    def tcgen05(self) -> bool:
        return self.arch.machine is Machine.TCGEN05

    # ---- constants

    def constant(
        self, words: str, value: int, reason: str = "", shown: Expr | None = None, dtype: DType = i32
    ) -> Const:
        """A row of the table, made at its first use; `shown` is the formula that the text prints for it."""
        name = constant_name(words)
        if name not in self.constants:
            constant = Const(value, dtype, name)
            self.constants[name] = NamedConstant(constant, Const(value, dtype) if shown is None else shown, reason)
        return self.constants[name].constant

    def require(self, condition: Expr, reason: str) -> None:
        """A static_assert of the text, once."""
        item = StaticAssert(condition, reason)
        if item not in self.asserts:
            self.asserts.append(item)

    # ---- instructions

    def execute(self, name: str, *operands: Operand, why: str = "", source: Source = UNKNOWN) -> Execute:
        """An instruction of the table, after checking that this architecture has it."""
        require_instruction(name, self.arch, source)
        return Execute(name, operands, why, source)

    def call(self, name: str, dtype: DType, *arguments: Expr, source: Source = UNKNOWN) -> Call:
        """A pure instruction of the table as an expression."""
        require_instruction(name, self.arch, source)
        return Call(name, arguments, dtype, source)

    def refuse(self, what: str, source: Source, fix: str = "") -> LayoutFault:
        """The fault for something that is described but has no lowering."""
        return LayoutFault("KW0305", f"{what} is not lowered", source, where=f"on {self.arch.name}", fix=fix)

    # ---- shared memory

    @property
    def fields(self) -> tuple[SharedField, ...]:
        """The members of struct Shared, in the order of the derived map."""
        return tuple(self._field(slot.name, slot.offset, slot.alignment) for slot in self.derived.shared)

    def _field(self, slot: str, offset: int, alignment: int) -> SharedField:
        name = slot.replace(".", "_")
        for pipeline in self.description.pipelines:
            for tile in pipeline.tiles:
                if slot == f"{pipeline.name}.{tile.name}":
                    return self._tile(name, tile, self.stages(pipeline.name), offset, alignment)
        for tile in self.description.buffers:
            if slot == tile.name:
                copies = next((item.copies for item in self.derived.buffers if item.buffer.name == tile.name), 1)
                count = self.constant(f"{tile.name}_copies", copies, "one a copy of the role") if copies > 1 else None
                return self._tile(name, tile, count, offset, alignment)
        found = next(item for item in self.derived.shared if item.name == slot)
        dtype = u32 if slot == TENSOR_MEMORY else u64
        return SharedField(
            name, dtype, self._barriers(slot), None, alignment, offset, found.what.partition(": ")[2] or found.what
        )

    def _tile(self, name: str, tile: ir.SharedTile, count: Const | None, offset: int, alignment: int) -> SharedField:
        layout = tile.layout
        if factor(tile):
            size = integer(layout.rows * layout.columns)
            return SharedField(name, layout.dtype, count, size, alignment, offset, "")
        return SharedField(name, u8, count, self.bytes_of(tile), alignment, offset, "")

    def _barriers(self, slot: str) -> Const | None:
        """How many barriers a member holds: the stages of its pipeline, or the buffers of its accumulator."""
        owner = slot.rpartition("_")[0]
        if any(pipeline.name == owner for pipeline in self.description.pipelines):
            return self.stages(owner)
        return self.accumulator_buffers(owner)

    def accumulator_buffers(self, name: str) -> Const | None:
        """The named number of an accumulator's copies in tensor memory, None for one and for what is no accumulator."""
        facts = next((item for item in self.derived.accumulators if item.accumulator.name == name), None)
        if facts is None or facts.buffers == 1:
            return None
        return self.constant(f"{name}_buffers", facts.buffers, "of the accumulator, so that products and reads overlap")

    def bytes_of(self, tile: ir.SharedTile) -> Const:
        """The named size of a tile."""
        layout = tile.layout
        swizzle = f", {layout.swizzle}-byte swizzle" if layout.swizzle > 16 else ""
        extents = f"{layout.rows * layout.columns}" if factor(tile) else f"{layout.rows} x {layout.columns}"
        shape = f"{extents} {layout.dtype.name.upper()}{swizzle}"
        return self.constant(f"{tile_name(tile)}_bytes", layout.bytes, shape)

    def panel_bytes(self, tile: ir.SharedTile) -> Const:
        """The named size of a panel: all rows of a tile, one swizzle row wide."""
        layout = tile.layout
        rows = layout.rows if layout.major == "K" else layout.columns
        width = layout.panel_elements * layout.dtype.bytes
        return self.constant(f"{tile_name(tile)}_panel_bytes", layout.panel_bytes, f"{rows} rows of {width} bytes")

    def stages(self, pipeline: str) -> Const:
        facts = self.pipeline(pipeline)
        return self.constant(f"{pipeline}_stages", facts.pipeline.stages, f"of the ring `{pipeline}`")

    def pipeline(self, name: str) -> PipelineFacts:
        return next(facts for facts in self.derived.pipelines if facts.pipeline.name == name)

    def role(self, name: str) -> RoleFacts:
        return next(facts for facts in self.derived.roles if facts.role.name == name)

    def accumulator(self, name: str) -> AccumulatorFacts:
        return next(facts for facts in self.derived.accumulators if facts.accumulator.name == name)

    def accumulators_of(self, role: str) -> list[AccumulatorFacts]:
        return [facts for facts in self.derived.accumulators if facts.role == role]

    def buffer(self, name: str) -> BufferFacts:
        return next(facts for facts in self.derived.buffers if facts.buffer.name == name)

    def product(self, mma: ir.Mma) -> MmaFacts:
        return next(facts for facts in self.derived.products if facts.mma is mma)

    def columns_of(self, name: str, base: Expr) -> Expr:
        """The address of an accumulator's first column in tensor memory, in the buffer whose turn it is."""
        facts = self.accumulator(name)
        assert isinstance(facts.layout, TmemLayout)
        place = plus(base, integer(facts.layout.first_column, u32)) if facts.layout.first_column else base
        if facts.buffers > 1:
            place = plus(place, Cast(u32, times(integer(facts.accumulator.columns), stage_of(name))))
        return place

    def element_path(self, tile: ir.SharedTile) -> str:
        """The member that holds a tile, of the running stage, as an array of its elements."""
        stage = f"[{tile.pipeline}.stage]" if tile.pipeline else ""
        return f"shared.{tile_name(tile)}{stage}"

    def barrier(self, pipeline: str, side: str, stage: Expr | None = None) -> SharedOperand:
        """`shared.<pipeline>_<side>[<pipeline>.stage]`."""
        return SharedOperand(f"{pipeline}_{side}", stage_of(pipeline) if stage is None else stage)

    def tile(self, tile: ir.SharedTile, offset: Expr | None = None, stage: Expr | None = None) -> SharedOperand:
        """A tile of the running stage, or a standing buffer, `offset` bytes into it."""
        if tile.pipeline is None:
            return SharedOperand(tile.name, stage, offset)
        return SharedOperand(tile_name(tile), stage_of(tile.pipeline) if stage is None else stage, offset)

    def address(self, tile: ir.SharedTile, stage: Expr | None = None) -> Expr:
        """The shared-window address of a tile's start, as descriptors take it."""
        name = f"shared.{tile_name(tile)}"
        if tile.pipeline is None:
            place: Expr = Var(name, u8) if stage is None else Element(name, stage, u8)
        else:
            place = Element(name, stage_of(tile.pipeline) if stage is None else stage, u8)
        return Call("smem_address", (place,), u32)

    def tensor(self, name: str) -> TensorParameter:
        return self.description.tensor(name)


TENSOR_MEMORY = "tensor_memory"


def tile_name(tile: ir.SharedTile) -> str:
    """The member of struct Shared that holds a tile."""
    return f"{tile.pipeline}_{tile.name}" if tile.pipeline else tile.name


def factor(tile: ir.SharedTile) -> bool:
    """Whether a tile is a plain vector, without panels or a swizzle."""
    return not tile.layout.swizzle and 1 in (tile.layout.rows, tile.layout.columns)


def stage_of(ring: str) -> Var:
    return Var(f"{ring}.stage", i32, 0, 1 << 16)


def phase_of(ring: str) -> Var:
    return Var(f"{ring}.phase", u32, 0, 1)


def both(left: Expr, right: Expr) -> Expr:
    """`left && right`, a chain of it without brackets: `a && b && c` decides in the same order."""
    if isinstance(right, Binary) and right.op == "&&":
        return both(both(left, right.left), right.right)
    return Binary("&&", left, right)


def plus(left: Expr, right: Expr) -> Expr:
    """`left + right` without a zero."""
    if isinstance(left, Const) and left.value == 0 and left.name is None:
        return right
    if isinstance(right, Const) and right.value == 0 and right.name is None:
        return left
    return Binary("+", left, right)


def times(left: Expr, right: Expr) -> Expr:
    """`left * right` without a one; zero where a factor is."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Const) and one.name is None and one.value in (0, 1):
            return other if one.value == 1 else integer(0)
    return Binary("*", left, right)


def as_unsigned(expr: Expr) -> Expr:
    return expr if expr.dtype == u32 else Cast(u32, expr)

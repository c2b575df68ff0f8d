"""What is derived from a description on one architecture: frozen facts, each with its reason. `Derived` holds them all."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import Architecture
from kernwright.generator.instructions.descriptors import Descriptor
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.layout import TmemLayout, TmemLoadRows, WgmmaAccumulator, WgmmaOperandA


@dataclass(frozen=True, slots=True)
class BarrierCount:
    """How many arrivals (and transaction bytes) complete a phase of a barrier, and why. `carrier` is whose arrival announces the
    bytes (arrive.expect_tx), before it issues the copies; empty where none are expected."""

    arrivals: int
    bytes: int
    reason: str
    carrier: str = ""


@dataclass(frozen=True, slots=True)
class FetchAhead:
    """Values of a stage that a role reads one step early: `names`, and the rings whose full barrier it then waits for early."""

    role: str
    names: tuple[str, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """The derived half of a pipeline.

    `in_flight` is, per consuming role, how many MMA groups run while a stage is released. `acquire` says where the producer waits
    for an empty stage, `ahead` which consumers wait for a full one a step early. `not_compared` names the consumers whose number of
    stages in a block is another expression than the producer's.
    """

    pipeline: ir.Pipeline
    producer: str
    full: BarrierCount
    empty: BarrierCount
    in_flight: tuple[tuple[str, int, str], ...]
    fence: str
    acquire: str
    ahead: tuple[FetchAhead, ...]
    not_compared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedBarrier:
    """The barriers of a role, one for each copy: numbers `first` .. `first + copies - 1`, each completed by `threads` threads."""

    first: int
    copies: int
    threads: int
    reason: str


@dataclass(frozen=True, slots=True)
class RegisterEstimate:
    """Registers a thread of a role: the arrays that its text declares, and how many of them are live at once.

    Arrays are those of accumulators and operands, and named tiles at their widest point; `total` is their sum, if none shares with
    another kind. `live` is the least that any allocation needs. Addresses, counters and temporaries come on top of both.
    """

    role: str
    accumulators: int
    operands: int
    tiles: int
    live: int
    budget: int

    @property
    def total(self) -> int:
        return self.accumulators + self.operands + self.tiles


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """Warps and registers of a role. Threads are numbered through the warpgroups in the order of the roles."""

    role: ir.Role
    first_warp: int
    warps: int
    launch_registers: int
    change: str
    barrier: NamedBarrier | None = None


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """How a standing buffer goes from the threads of its role to an asynchronous reader and back.

    `writers` fill it; `fence` is what each of them executes before `barrier`; `issuer` starts the asynchronous reads, and `wait` is
    what it does before the buffer is written again or the role ends. `full` is the barrier of a buffer that a copy fills; `again`
    says that the buffer may be written while something still reads it.
    """

    buffer: ir.SharedTile
    role: str
    copies: int
    writers: str
    fence: str
    barrier: str
    issuer: str
    wait: str
    full: BarrierCount | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class AccumulatorFacts:
    """Where an accumulator lives: registers of a role's threads, or columns of tensor memory read back through `readback`.

    In tensor memory `full` says that all products are complete, and `empty`, where values are read or set between products, that
    the threads are done. In registers neither exists: a thread waits for its own groups. Each of the `copies` of a role has columns
    and barriers of its own, one after another from the layout's first column.
    """

    accumulator: ir.Accumulator
    role: str
    layout: WgmmaAccumulator | TmemLayout
    readback: TmemLoadRows | None
    full: BarrierCount | None = None
    empty: BarrierCount | None = None
    copies: int = 1

    @property
    def buffers(self) -> int:
        """Parts of tensor memory that take turns: those of the copies of the role, or those that the author asked for."""
        return self.copies * (self.accumulator.buffers if self.readback is not None else 1)

    @property
    def columns(self) -> int:
        """Columns of tensor memory of all buffers."""
        return self.accumulator.columns * self.buffers


@dataclass(frozen=True, slots=True)
class MmaFacts:
    """One product: the instruction's shape, how many instructions a warpgroup (or the issuing thread) executes, its operands'
    descriptors or register layout, and where its completion is waited for."""

    mma: ir.Mma
    role: str
    instruction: str
    instructions: int
    a: Descriptor | WgmmaOperandA | str
    b: Descriptor
    issuer: str
    wait: str


@dataclass(frozen=True, slots=True)
class OperandRegisters:
    """Register operands of one role that take turns in the same `registers` registers, because their lifetimes are apart.

    A lifetime ends where the last product that reads the operand is waited for, and goes round the loop where the next step reads
    it again. ptxas gives every operand array of wgmma registers of its own, so arrays are shared here and not left to it.
    """

    role: str
    registers: int
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccumulatorRegisters:
    """Accumulators of one role that take turns in the same `registers` registers, by the rule of OperandRegisters."""

    role: str
    registers: int
    accumulators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperandColumns:
    """A register operand of a tcgen05 machine: it lies in tensor memory, two 16-bit values a column; `columns` of all copies.

    `full` says that the role's threads have written it, `empty` that the products which read it are complete.
    """

    role: str
    operand: str
    first_column: int
    columns: int
    full: BarrierCount | None = None
    empty: BarrierCount | None = None


@dataclass(frozen=True, slots=True)
class TensorMapFacts:
    """The tensor map of a copied tensor, dimensions from the contiguous one outwards.

    `box` is in elements. `panel_dimension` is the dimension that counts swizzle rows inside the tensor's contiguous one, so that
    one box brings all panels of a tile; None where each of the `boxes` of a tile is one panel. `panels_a_head` is then the number
    of swizzle rows in the contiguous dimension.
    """

    tensor: str
    tile: str
    rank: int
    box: tuple[int, ...]
    panel_dimension: int | None
    boxes: int
    swizzle: int
    reason: str
    panels_a_head: int | None = None


@dataclass(frozen=True, slots=True)
class SharedSlot:
    """One row of the shared-memory map; sizes in bytes. `stride` is the step from one stage or copy to the next."""

    name: str
    offset: int
    size: int
    alignment: int
    what: str
    stride: int


@dataclass(frozen=True, slots=True)
class Derived:
    """Everything derived for one description on one architecture."""

    description: Description
    arch: Architecture
    threads: int
    roles: tuple[RoleFacts, ...]
    pipelines: tuple[PipelineFacts, ...]
    buffers: tuple[BufferFacts, ...]
    accumulators: tuple[AccumulatorFacts, ...]
    products: tuple[MmaFacts, ...]
    operands: tuple[OperandRegisters, ...]
    accumulator_registers: tuple[AccumulatorRegisters, ...]
    operand_columns: tuple[OperandColumns, ...]
    registers: tuple[RegisterEstimate, ...]
    tensor_maps: tuple[TensorMapFacts, ...]
    shared: tuple[SharedSlot, ...]
    shared_bytes: int
    tmem_columns: int

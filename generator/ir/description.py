"""What an author said: a traced program over tensors, tiles, pipelines and roles, before any architecture is chosen.

Expressions inside tile operations are scalar expressions whose variables name register tiles; `Elementwise("y", x * scale)` means
the product at every (row, column), a row factor being constant along a row and a column factor along a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kernwright.generator.ir.expr import Const, Expr, Var
from kernwright.generator.ir.layout import SharedLayout, VectorRows
from kernwright.generator.ir.program import NamedConstant, Parameter, StaticAssert, TensorParameter
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.types import DType, i32

ZERO, ONE = Const(0, i32), Const(1, i32)


class Extent(Enum):
    """Over which dimensions of a tile a value varies."""

    SCALAR = "scalar"
    ROWS = "row factor"
    COLUMNS = "column factor"
    TILE = "tile"


@dataclass(frozen=True, slots=True)
class Fragment:
    """The layout of an MMA's result or register operand; which registers or TMEM columns that is depends on the architecture.

    `role` is "accumulator" (32-bit, as the MMA leaves it) or "operand" (16-bit, as the MMA takes it from registers or TMEM).
    """

    rows: int
    columns: int
    role: str = "accumulator"


TileLayout = VectorRows | Fragment


@dataclass(frozen=True, slots=True)
class GlobalTile:
    """A box of a tensor: its first element in every dimension, and its extent where the operation does not imply it.

    The contiguous dimension of a copied tile lies along the tensor's last one, the tile's other dimension along number `rows`.
    """

    tensor: str
    origin: tuple[Expr, ...]
    shape: tuple[int, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile of a pipeline's stage (`pipeline` set) or a standing buffer of the block (`pipeline` None)."""

    name: str
    layout: SharedLayout
    pipeline: str | None = None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A ring of `stages`, each holding the same tiles, with one barrier pair a stage. Counts, bytes and phases are derived."""

    name: str
    stages: int
    tiles: tuple[SharedTile, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """FP32 accumulator of MMAs: registers on wgmma machines, tensor memory on tcgen05 machines.

    In tensor memory there are `buffers` of it in turns, so that products into one run while another is read; registers are one.
    """

    name: str
    rows: int
    columns: int
    buffers: int = 1
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Role:
    """What some warps of the block do: `warpgroups` whole warpgroups, or `warp` number n of the warpgroup that `shares` names.

    `registers` is the budget of each of its warpgroups (setmaxnreg); a role inside another one's warpgroup has none. `replicas`
    copies of the role take turns: copy r does steps r, r + replicas, and so on, so that each stage has one copy as its reader.
    """

    name: str
    warpgroups: int
    registers: int | None
    shares: str | None = None
    warp: int = 0
    replicas: int = 1
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def all_warpgroups(self) -> int:
        """Warpgroups of all copies."""
        return self.warpgroups * self.replicas


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of the grid's first dimension: each takes `step` of `extent`, the last one perhaps fewer."""

    name: str
    extent: Expr
    step: Const
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


# ---- operations


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One block for each `index` below `extent`, along dimension `axis` (0, 1, 2 for x, y, z) of the grid; known to every role."""

    index: Var
    extent: Expr
    axis: int
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoadTile:
    """Global memory to registers, converted exactly to `dtype`; elements past the tensor's end read as zero."""

    name: str
    tile: GlobalTile
    dtype: DType
    extent: Extent
    layout: TileLayout
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StoreTile:
    """Registers to global memory, each value rounded once; elements past the tensor's end are not stored."""

    tile: GlobalTile
    value: Expr
    layout: TileLayout
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A named value over a tile, a factor or a scalar."""

    name: str
    value: Expr
    dtype: DType
    extent: Extent
    layout: TileLayout | None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowReduce:
    """`op` ("sum" or "mean") along every row; products are accumulated with one rounding (FMA), lanes in a fixed order."""

    name: str
    op: str
    value: Expr
    layout: TileLayout
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CopyIn:
    """Asynchronous copy from global to shared memory: `engine` "tma" (a box through a tensor map) or "bulk" (contiguous bytes)."""

    tile: GlobalTile
    target: SharedTile
    engine: str = "tma"
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CopyOut:
    """TMA store of a shared tile to a box of a tensor."""

    origin: SharedTile
    tile: GlobalTile
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WriteShared:
    """Registers to a shared tile (stmatrix or plain stores). Asynchronous readers need a proxy fence, which is derived."""

    target: SharedTile
    value: Expr
    dtype: DType
    extent: Extent
    layout: TileLayout | None
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadShared:
    """A shared tile or factor to registers, in the given layout (ldmatrix or plain loads).

    A scalar is element `index` of the tile, counted row by row. `ahead` 1 says that the values of the next step are read at the end
    of a step, in the shadow of its products, and those of the first step before the loop: the stage is waited for a step early.
    """

    name: str
    origin: SharedTile
    dtype: DType
    extent: Extent
    layout: TileLayout | None
    transposed: bool = False
    source: Source = field(default=UNKNOWN, compare=False, repr=False)
    index: int = 0
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Mma:
    """`accumulator (+)= A @ B`; A a shared tile or a register operand by name, B a shared tile. `accumulate` False starts at 0."""

    accumulator: str
    a: SharedTile | Var
    b: SharedTile
    a_transposed: bool
    b_transposed: bool
    accumulate: Expr
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SetAccumulator:
    """An accumulator's values become `value` (zero, or a scaled self): registers on wgmma machines, ld/st on tcgen05."""

    accumulator: str
    value: Expr
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadAccumulator:
    """The accumulator's present values as a register tile; waits for the MMAs that write it."""

    name: str
    accumulator: str
    layout: Fragment
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Produce:
    """Fill one stage: wait until it is empty, write every tile, signal full.

    `ahead` 1 moves the wait to the end of the step before, for the *next* stage, also after the last step: the first stage is empty
    by construction, and at most one phase of a consumer's release is then ever outstanding.
    """

    pipeline: str
    body: tuple[Operation, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Consume:
    """Read one stage: wait until it is full, use it, release it as early as its last reader allows.

    `relayed_by` names a pipeline whose full barrier vouches for this one: its producer arrived there after it had itself waited
    here, so this role does not wait again. `after` names values that are to be computed before the wait, in its shadow.
    """

    pipeline: str
    body: tuple[Operation, ...]
    relayed_by: str | None = None
    after: tuple[str, ...] = ()
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Steps:
    """`for index in first, first + step, … < count`, in order."""

    index: Var
    count: Expr
    body: tuple[Operation, ...]
    first: Expr = ZERO
    step: Expr = ONE
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OneThread:
    """Executed by one elected thread of the role's first warp."""

    body: tuple[Operation, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class WhenPresent:
    """Executed if the caller passed the optional `tensor`; the same decision in all threads of all blocks."""

    tensor: str
    body: tuple[Operation, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class When:
    """Executed where `condition`, the same in all threads of the block, holds."""

    condition: Expr
    body: tuple[Operation, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RoleBody:
    """What a role does."""

    role: str
    body: tuple[Operation, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


Block = Produce | Consume | Steps | OneThread | WhenPresent | When | RoleBody
Operation = (
    GridAxis
    | LoadTile
    | StoreTile
    | Elementwise
    | RowReduce
    | CopyIn
    | CopyOut
    | WriteShared
    | ReadShared
    | Mma
    | SetAccumulator
    | ReadAccumulator
    | Block
)


@dataclass(frozen=True, slots=True)
class Description:
    """A traced program: everything the author said, for every architecture at once."""

    family: str
    name: str
    archs: tuple[str, ...]
    doc: str
    parameters: tuple[Parameter, ...]
    constants: tuple[NamedConstant, ...]
    asserts: tuple[StaticAssert, ...]
    blocks: Blocks | None
    threads: int | None
    blocks_per_sm: int | None
    pipelines: tuple[Pipeline, ...]
    buffers: tuple[SharedTile, ...]
    accumulators: tuple[Accumulator, ...]
    roles: tuple[Role, ...]
    body: tuple[Operation, ...]
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def symbol(self) -> str:
        return f"{self.family}_{self.name}"

    @property
    def grid(self) -> tuple[GridAxis, ...]:
        """The named dimensions of the grid, in the order x, y, z."""
        return tuple(sorted((op for op in self.body if isinstance(op, GridAxis)), key=lambda op: op.axis))

    @property
    def role_bodies(self) -> tuple[RoleBody, ...]:
        """What each role does, in the author's order."""
        return tuple(op for op in self.body if isinstance(op, RoleBody))

    def role(self, name: str) -> Role:
        """The role of that name."""
        return next(role for role in self.roles if role.name == name)

    def tensor(self, name: str) -> TensorParameter:
        """The tensor of that name."""
        return next(p for p in self.parameters if isinstance(p, TensorParameter) and p.name == name)


def walk(operations: tuple[Operation, ...]) -> list[Operation]:
    """Every operation, blocks before their bodies, in program order."""
    found: list[Operation] = []
    for operation in operations:
        found.append(operation)
        if isinstance(operation, Block):
            found += walk(operation.body)
    return found

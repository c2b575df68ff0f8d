"""What a lowered program is: parameters, named constants, functions, launch. The printer prints it, the binding serves it,
`build.json` records it and its digest; no second description of a program exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.ir.expr import Const, Expr, Var
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.statement import Statement
from kernwright.generator.ir.types import DType


@dataclass(frozen=True, slots=True)
class TensorParameter:
    """A tensor that the caller passes.

    `shape` and `strides` (in elements) are expressions over the program's scalar parameters. `folded` says that any number of
    leading dimensions may stand for the first one (`[T, H, 128]` is then taken as `[T*H, 128]`). `alignment` is in bytes.
    `optional` says that the caller may pass no tensor: it is then a null pointer, and used under `WhenPresent` alone. It takes no
    part in digests while no lowered program can have one, so that the digests of all others stay.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    access: str  # "read", "write" or "update"
    alignment: int
    folded: bool = False
    doc: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)
    optional: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A scalar of the kernel. `bound_to` is (tensor, dimension) when it is read from a shape, None when the caller passes it.

    `low` and `high` are inclusive limits of an integer; the binding refuses a value outside them, so every range proof of the
    generator may use them. A float's `low`/`high` are None: `minimum` then states the least legal value, if there is one.
    """

    name: str
    dtype: DType
    low: int | None = None
    high: int | None = None
    multiple_of: int = 1
    minimum: float | None = None
    bound_to: tuple[str, int] | None = None
    doc: str = ""
    source: Source = field(default=UNKNOWN, compare=False, repr=False)


Parameter = TensorParameter | ScalarParameter


@dataclass(frozen=True, slots=True)
class NamedConstant:
    """A row of the table at the top of a kernel file: `constexpr <type> <name> = <value>;  // <reason>`."""

    constant: Const
    value: Expr
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StaticAssert:
    """`static_assert(condition, "reason")`; the generator has checked the condition too."""

    condition: Expr
    reason: str


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor as TMA sees it: a `const __grid_constant__ CUtensorMap` argument that the binding encodes for each launch.

    Dimensions run from the contiguous one outwards. `extents` are in elements, `strides` the bytes from one index of dimension
    1, 2, … to the next (rank - 1 of them), both over the scalar parameters; `box` is in elements. `swizzle` is 0 for none, else the
    bytes of a swizzle row (32, 64 or 128). Elements out of bounds read as zero.
    """

    name: str
    tensor: str
    dtype: DType
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int


Argument = TensorParameter | ScalarParameter | TensorMap


@dataclass(frozen=True, slots=True)
class SharedField:
    """A member of the block's shared memory: `count` times (stages, copies; None for one alone) `size` elements of `dtype`.

    A tile is bytes (u8), a factor its own type; barriers are u64 and the address of tensor memory is u32, both with `size` None.
    """

    name: str
    dtype: DType
    count: Const | None
    size: Const | None
    alignment: int
    offset: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """A device function of the kernel file: a role, or the work of a role's issuing thread.

    `arguments` are names of the kernel's arguments and of values that the kernel has computed, in the order in which they are
    passed; `remarks` are the comment lines above it.
    """

    name: str
    remarks: tuple[str, ...]
    arguments: tuple[Argument | Var, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """How the kernel starts. `grid` is over the scalar parameters; a grid of zero blocks means: nothing is launched.

    `oversized_shared_memory` asks for more than the usual limit of a block, on architectures that have such a mode; `dependent`
    lets the launch begin before the kernel ahead of it in the stream has ended (programmatic dependent launch).
    """

    threads: int
    grid: tuple[Expr, Expr, Expr]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    min_blocks: int | None = None
    oversized_shared_memory: bool = False
    dependent: bool = False


@dataclass(frozen=True, slots=True)
class LoweredProgram:
    """One kernel for one architecture, ready to print, hash, emulate and bind.

    `doc` is the author's docstring. `parameters` stand in the author's order; `arguments` are the kernel's, in the same order, a
    tensor being a pointer, its tensor maps, or both. `functions` are the roles in the order of the text, `shared` the block's
    shared memory. `body` is the kernel's; `instructions` are the table entries that body and functions use, in the table's order.
    """

    family: str
    name: str
    arch: str
    doc: str
    parameters: tuple[Parameter, ...]
    constants: tuple[NamedConstant, ...]
    asserts: tuple[StaticAssert, ...]
    launch: Launch
    body: tuple[Statement, ...]
    instructions: tuple[str, ...]
    arguments: tuple[Argument, ...] = ()
    shared: tuple[SharedField, ...] = ()
    functions: tuple[Function, ...] = ()
    tensor_memory_columns: int = 0
    source: Source = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def symbol(self) -> str:
        """The kernel's C symbol and the program's key everywhere: `<family>_<name>`."""
        return f"{self.family}_{self.name}"

    @property
    def tensors(self) -> tuple[TensorParameter, ...]:
        return tuple(p for p in self.parameters if isinstance(p, TensorParameter))

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, TensorMap))

    @property
    def scalars(self) -> tuple[ScalarParameter, ...]:
        return tuple(p for p in self.parameters if isinstance(p, ScalarParameter))

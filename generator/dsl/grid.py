"""The words that stand around a schedule: which block of the grid runs, which optional tensors are there, what is a step ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from kernwright.generator.dsl.memory import Tensor
from kernwright.generator.dsl.names import author_source
from kernwright.generator.dsl.schedule_checks import MAXIMUM_GRID, upper
from kernwright.generator.dsl.value import Value
from kernwright.generator.errors import PipelineFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Var
from kernwright.generator.ir.program import TensorParameter
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.types import i32
from kernwright.generator.ir.uses import variables

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel

OWN = ("body", "index")  # of a block: what is inside it, and the loop's own variable
NAMING = ir.Elementwise | ir.LoadTile | ir.ReadShared | ir.ReadAccumulator | ir.RowReduce  # what gives a value its name


class GridWords:
    """Mixin of `Kernel`: the grid, optional tensors, and the checks that need the place where a word stands."""

    current_role: ir.Role | None
    present: set[str]
    loops: int

    @property
    def _kernel(self) -> Kernel:
        return cast("Kernel", self)

    def grid(self, name: str, extent: Value | int, *, axis: int = 0) -> Value:
        """One block for each `name` below `extent`, along dimension `axis` (0, 1, 2) of the grid; every role may use the value."""
        kernel = self._kernel
        source = kernel.claim(name, "grid axis")
        taken = {op.axis for op in kernel.bodies[0] if isinstance(op, ir.GridAxis)}
        if kernel.current_role is not None or kernel.blocks_of is not None or axis != len(taken) or axis > 2:
            raise PipelineFault(
                "KW0403",
                f"grid axis {axis} is declared out of order",
                source,
                detail="axes 0, 1, 2 are declared in that order, before the roles, in a program without k.blocks.",
            )
        size = kernel.lift(extent, i32, source).expr
        index = Var(name, i32, 0, upper(size) - 1, source)
        limit = MAXIMUM_GRID[axis]
        if upper(size) > limit:
            raise TensorFault(
                "KW0205",
                "the grid can have more blocks than a launch allows",
                source,
                detail=f"axis {axis} has at most {limit} blocks; {name!r} may have {upper(size)}.",
                fix="Lower the `high` of its scalars, or use axis 0.",
            )
        kernel.emit(ir.GridAxis(index, size, axis, source))
        return Value(kernel, index)

    @contextmanager
    def when_present(self, tensor: Tensor) -> Iterator[None]:
        """The body is executed if the caller passed the optional `tensor`."""
        kernel = self._kernel
        source = author_source()
        self._need_role("when_present", source)
        name = tensor.parameter.name
        if not tensor.parameter.optional or name in kernel.present:
            raise TensorFault(
                "KW0207",
                f"tensor {name!r} is always there here",
                source,
                fix="Drop the block, or declare optional=True.",
            )
        kernel.present.add(name)
        try:
            with kernel.scope(), kernel.body() as body:
                yield
        finally:
            kernel.present.remove(name)
        kernel.emit(ir.WhenPresent(name, tuple(body), source))

    def check_present(self, operation: ir.Operation) -> None:
        """Refuse an operation on what is not there where it stands: a tensor that may be absent, a value of another scope."""
        self.check_visible(operation, operation.source)
        if isinstance(operation, NAMING):
            self._kernel.names[operation.name] = operation.source
        tile = getattr(operation, "tile", None)
        for parameter in self._kernel.parameters:
            if (
                isinstance(tile, ir.GlobalTile)
                and isinstance(parameter, TensorParameter)
                and parameter.name == tile.tensor
                and parameter.optional
                and tile.tensor not in self.present
            ):
                raise TensorFault(
                    "KW0207",
                    f"tensor {tile.tensor!r} may be absent here",
                    operation.source,
                    fix=f"Put it inside `with k.when_present({tile.tensor}):`.",
                )

    def check_visible(self, part: object, source: Source) -> None:
        """Refuse values that are named in a role, loop or one-thread block that has ended.

        Another value may have taken the name meanwhile, so a variable is known by the very object that says where it was named.
        """
        for variable in variables(part, skip=OWN):
            name, named = variable.name, variable.source
            if named is UNKNOWN:
                continue
            if self._kernel.names.get(name) is not named:
                raise PipelineFault(
                    "KW0412",
                    f"value {name!r} is used outside the role, loop or block that names it",
                    source,
                    detail=f"it is named at {named}, and lives as long as that block.",
                    fix="Read or compute it again here, or hand it over in a pipeline.",
                )

    def need_ahead(self, ahead: int, what: str, source: Source) -> None:
        """`ahead` is 0, or 1 inside a loop."""
        if ahead not in (0, 1) or (ahead and not self.loops):
            raise PipelineFault(
                "KW0410",
                f"{what} cannot be {ahead} steps ahead",
                source,
                fix='Use ahead=1 inside `with k.steps("name", count):`.',
            )

    def _need_role(self, word: str, source: Source) -> None:
        if self.current_role is None:
            raise PipelineFault(
                "KW0403", f"{word} outside a role", source, fix='Put it inside `with k.role("name", ...):`.'
            )

"""Parameters of a program: scalars with their limits, tensors with their shapes. What the binding checks follows from here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from kernwright.generator.dsl.memory import Tensor
from kernwright.generator.dsl.value import LARGEST, Value
from kernwright.generator.errors import ExpressionFault, TensorFault
from kernwright.generator.ir.expr import Binary, Expr, Var, integer
from kernwright.generator.ir.program import ScalarParameter, TensorParameter
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, f32

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel


class ParameterWords:
    """Mixin of `Kernel`."""

    @property
    def _parameters_of(self) -> Kernel:
        return cast("Kernel", self)

    def scalar(
        self,
        name: str,
        dtype: DType,
        *,
        low: int | None = None,
        high: int | None = None,
        multiple_of: int = 1,
        minimum: float | None = None,
        doc: str = "",
    ) -> Value:
        """A scalar argument. Integers have inclusive limits `low`..`high`, which every range proof may use; floats a `minimum`.

        A scalar that is a dimension of a tensor is read from that tensor's shape; the caller passes the others. Floats are finite.
        """
        kernel = self._parameters_of
        source = kernel.claim(name, "scalar")
        _check_dtype(name, dtype, source)
        if dtype.is_integer:
            low = 0 if low is None else low
            high = dtype.high if high is None else high
            _check_limits(name, dtype, (low, high, multiple_of), minimum, source)
        elif low is not None or high is not None or multiple_of != 1:
            raise TensorFault("KW0205", f"scalar {name!r} is a float: it takes `minimum` only", source)
        elif minimum is not None and not abs(minimum) <= LARGEST.get(dtype.name, math.inf):
            raise TensorFault("KW0205", f"scalar {name!r}: minimum {minimum} is no finite value of {dtype}", source)
        kernel.parameters.append(ScalarParameter(name, dtype, low, high, multiple_of, minimum, None, doc, source))
        return Value(kernel, Var(name, dtype, low, high, source))

    def tensor(
        self,
        name: str,
        dtype: DType,
        shape: tuple[Any, ...],
        *,
        access: str = "read",
        alignment: int = 16,
        folded: bool = False,
        optional: bool = False,
        doc: str = "",
    ) -> Tensor:
        """A contiguous tensor argument; `shape` holds numbers, scalars, or sympy formulas over `scalar.symbol`.

        `access` is "read", "write" or "update"; `alignment` is in bytes. `folded` lets any number of leading dimensions stand for
        the first one: `[T, H, 128]` is taken as `[T * H, 128]`. An `optional` tensor may be absent; it is used inside
        `with k.when_present(tensor):`.
        """
        kernel = self._parameters_of
        source = kernel.claim(name, "tensor")
        _check_dtype(name, dtype, source)
        if not isinstance(alignment, int) or alignment < dtype.bytes or alignment & (alignment - 1):
            raise TensorFault(
                "KW0208",
                f"tensor {name!r}: alignment {alignment}",
                source,
                detail=f"an alignment is a power of two, at least the {dtype.bytes} bytes of {dtype}.",
            )
        if not isinstance(shape, tuple) or not shape:
            raise TensorFault(
                "KW0204",
                f"tensor {name!r}: shape {shape!r}"
                if not isinstance(shape, Value)
                else f"tensor {name!r}: the shape is one value",
                source,
                fix="A shape is a tuple: (rows,) for one dimension. Use k.scalar for a single value.",
            )
        if access not in ("read", "write", "update"):
            raise TensorFault(
                "KW0203", f"tensor {name!r}: access {access!r}", source, fix='Use "read", "write" or "update".'
            )
        dimensions = tuple(self._dimension(item, name, source) for item in shape)
        strides: list[Expr] = [integer(1)]
        for extent in reversed(dimensions[1:]):
            inner = strides[0]
            strides.insert(0, extent if inner == integer(1) else Binary("*", extent, inner))
        for axis, extent in enumerate(dimensions):
            self._bind(extent, name, axis)
        parameter = TensorParameter(
            name, dtype, dimensions, tuple(strides), access, alignment, folded, doc, source, optional
        )
        kernel.parameters.append(parameter)
        return Tensor(kernel, parameter)

    def formula(self, formula: Any, source: Source) -> Expr:
        """A sympy formula over `scalar.symbol`s as an exact integer expression, in i32 where that is proved to do."""
        from kernwright.generator.ir.symbolic import SymbolicError, from_sympy

        scalars = {
            p.name: Var(p.name, p.dtype, p.low, p.high, p.source)
            for p in self._parameters_of.parameters
            if isinstance(p, ScalarParameter)
        }
        try:
            return from_sympy(formula, scalars)
        except SymbolicError as error:
            raise ExpressionFault(
                "KW0702", f"{formula} has no exact integer meaning", source, detail=str(error)
            ) from None

    def _dimension(self, item: Any, tensor: str, source: Source) -> Expr:
        if isinstance(item, Value):
            self._parameters_of.own(item.kernel, tensor, source)
            return item.expr
        if isinstance(item, int) and not isinstance(item, bool) and item > 0:
            return integer(item)
        if type(item).__module__.partition(".")[0] == "sympy":
            return self.formula(item, source)
        raise TensorFault(
            "KW0204",
            f"tensor {tensor!r}: {item!r} is no dimension",
            source,
            fix="A dimension is a positive int, a scalar of the program, or a sympy formula over scalar.symbol.",
        )

    def _bind(self, extent: Expr, tensor: str, axis: int) -> None:
        """A scalar that stands alone as a dimension is read from the first tensor that has it."""
        parameters = self._parameters_of.parameters
        for position, parameter in enumerate(parameters):
            unbound = isinstance(parameter, ScalarParameter) and parameter.bound_to is None
            if isinstance(extent, Var) and unbound and parameter.name == extent.name:
                parameters[position] = replace(cast(ScalarParameter, parameter), bound_to=(tensor, axis))


def _check_dtype(name: str, dtype: object, source: Source) -> None:
    if not isinstance(dtype, DType):
        raise TensorFault(
            "KW0201", f"{name!r}: {dtype!r} is no type", source, fix=f"Types are values: {f32}, not {str(f32)!r}."
        )


def _check_limits(name: str, dtype: DType, limits: tuple[Any, Any, Any], minimum: float | None, source: Source) -> None:
    low, high, multiple = limits
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in limits)
    if not whole or minimum is not None or not dtype.low <= low <= high <= dtype.high or multiple < 1:
        raise TensorFault(
            "KW0205",
            f"scalar {name!r}: limits {low}..{high}, multiple of {multiple}",
            source,
            detail=f"{dtype} holds {dtype.low}..{dtype.high}; ints with low <= high, multiple_of >= 1; minimum is for floats.",
        )
    if high // multiple * multiple < low:
        raise TensorFault("KW0205", f"scalar {name!r}: no multiple of {multiple} in {low}..{high}", source)

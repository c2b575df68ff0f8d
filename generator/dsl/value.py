"""Values of a description: scalars, row and column factors, register tiles. Arithmetic on them builds expressions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kernwright.generator.dsl.names import author_source
from kernwright.generator.errors import ExpressionFault, LayoutFault, TensorFault
from kernwright.generator.ir.description import Extent, TileLayout
from kernwright.generator.ir.expr import COMPARISONS, Binary, Call, Cast, Const, Expr, Select, Unary, Var
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, bf16, boolean, f16, i32, i64

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel

Number = int | float
LARGEST = {"f32": 3.4028234663852886e38, "bf16": 3.3895313892515355e38, "f16": 65504.0}


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of the program `kernel`. Assigning it to a Python variable gives it that name in the text.

    `extent` says over which dimensions it varies; `layout` is the distributed layout of tiles and factors.
    """

    kernel: Kernel
    expr: Expr
    extent: Extent = Extent.SCALAR
    layout: TileLayout | None = None

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    @property
    def symbol(self) -> Any:
        """The sympy symbol of a scalar argument, for formulas of shapes: integer, and non-negative where its limits say so."""
        import sympy

        if not isinstance(self.expr, Var) or not self.dtype.is_integer:
            raise ExpressionFault("KW0702", "only an integer scalar argument has a symbol", author_source())
        return sympy.Symbol(self.expr.name, integer=True, nonnegative=True if (self.expr.low or 0) >= 0 else None)

    # ---- arithmetic

    def __add__(self, other: Value | Number) -> Value:
        return self._binary("+", other)

    def __radd__(self, other: Number) -> Value:
        return self._binary("+", other, swapped=True)

    def __sub__(self, other: Value | Number) -> Value:
        return self._binary("-", other)

    def __rsub__(self, other: Number) -> Value:
        return self._binary("-", other, swapped=True)

    def __mul__(self, other: Value | Number) -> Value:
        return self._binary("*", other)

    def __rmul__(self, other: Number) -> Value:
        return self._binary("*", other, swapped=True)

    def __truediv__(self, other: Value | Number) -> Value:
        self._require_float("/", "use // for integers")
        return self._binary("/", other)

    def __rtruediv__(self, other: Number) -> Value:
        self._require_float("/", "use // for integers")
        return self._binary("/", other, swapped=True)

    def __floordiv__(self, other: Value | Number) -> Value:
        """Integer division as C computes it: it truncates, so it is floor division for non-negative operands."""
        self._require_integer()
        return self._binary("/", other)

    def __rfloordiv__(self, other: Number) -> Value:
        self._require_integer()
        return self._binary("/", other, swapped=True)

    def __mod__(self, other: Value | Number) -> Value:
        return self._binary("%", other)

    def __rmod__(self, other: Number) -> Value:
        return self._binary("%", other, swapped=True)

    def __neg__(self) -> Value:
        return self.kernel.record(Unary("-", self.expr, author_source()), self.extent, self.layout)

    def __lt__(self, other: Value | Number) -> Value:
        return self._binary("<", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._binary("<=", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._binary(">", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._binary(">=", other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._binary("==", cast("Value | Number", other))

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._binary("!=", cast("Value | Number", other))

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        source = author_source()
        raise TensorFault(
            "KW0201",
            "a value of the program has no truth at description time",
            source,
            detail="`if`, `and`, `or` and `not` run while the description is traced, before any value exists.",
            fix="Use k.where(condition, a, b), or a plain Python number for a variant of the program.",
        )

    def to(self, dtype: DType) -> Value:
        """Convert to `dtype`: exact where it widens; floats round to nearest even, floats to integers truncate toward zero."""
        if not isinstance(dtype, DType):
            raise TensorFault(
                "KW0201", f"{dtype!r} is no type", author_source(), fix="Types are values: f32, not 'f32'."
            )
        if dtype == self.dtype:
            return self
        return self.kernel.record(Cast(dtype, self.expr, author_source()), self.extent, self.layout)

    # ---- internals

    def _require_integer(self) -> None:
        if not self.dtype.is_integer:
            raise TensorFault(
                "KW0201", f"`//` needs integers, got {self.dtype}", author_source(), fix="Use / for floats."
            )

    def _require_float(self, op: str, hint: str) -> None:
        if not self.dtype.is_float:
            raise TensorFault("KW0201", f"`{op}` needs floats, got {self.dtype}", author_source(), fix=hint)

    def _binary(self, op: str, other: Value | Number, swapped: bool = False) -> Value:
        source = author_source()
        self.kernel.own(self.kernel, "value", source)
        right = self.kernel.lift(other, self.dtype, source)
        left, right = (right, self) if swapped else (self, right)
        for side in (left, right):
            if side.dtype in (bf16, f16) and op not in COMPARISONS:
                raise TensorFault(
                    "KW0201",
                    f"`{op}` on {side.dtype}: arithmetic is done in f32",
                    source,
                    fix=f"Convert first: value.to(f32) is exact for {side.dtype}.",
                )
        if op in ("/", "%") and is_zero(right.expr):
            raise ExpressionFault("KW0704", f"`{op}` by zero", source, fix="Divide by something else.")
        try:
            expr = Binary(op, left.expr, right.expr, source)
        except TypeError as error:
            raise TensorFault(
                "KW0201", f"`{op}` does not combine {left.dtype} and {right.dtype}", source, detail=str(error)
            ) from None
        return self.kernel.record(expr, *join(left, right, source))


def is_zero(expr: Expr) -> bool:
    """Whether an expression is a constant zero, converted or not."""
    match expr:
        case Const(value=value):
            return value == 0
        case Cast(operand=operand):
            return is_zero(operand)
        case _:
            return False


def constant(value: Number, like: DType, source: Source) -> Const:
    """A Python number as a literal of the type it has beside `like`; ints that need more than 32 bits become i64."""
    if like.is_float:
        if math.isfinite(value) and abs(value) > LARGEST.get(like.name, math.inf):
            raise ExpressionFault(
                "KW0701", f"{value!r} is no value of {like}", source, detail=f"the largest is {LARGEST[like.name]!r}."
            )
        return Const(float(value), like, source=source)
    if isinstance(value, bool):
        return Const(int(value), boolean, source=source)
    if not isinstance(value, int):
        raise TensorFault(
            "KW0201", f"{value!r} beside an integer of type {like}", source, fix="Use an int, or convert with .to(f32)."
        )
    for dtype in (i32, i64):
        if dtype.low <= value <= dtype.high:
            return Const(value, dtype, source=source)
    raise ExpressionFault(
        "KW0701", f"{value} fits no integer type", source, detail="Integers of a program have at most 64 bits."
    )


def join(left: Value, right: Value, source: Source) -> tuple[Extent, TileLayout | None]:
    """Extent and layout of an elementwise result."""
    if left.layout is not None and right.layout is not None and left.layout != right.layout:
        raise LayoutFault(
            "KW0304",
            "operands lie in different layouts",
            source,
            detail=f"left:  {left.layout}\nright: {right.layout}",
            fix="Load both with one layout, or convert one of them.",
        )
    layout = left.layout or right.layout
    extents = {left.extent, right.extent} - {Extent.SCALAR}
    if not extents:
        return Extent.SCALAR, None
    return (extents.pop() if len(extents) == 1 else Extent.TILE), layout


def select(condition: Value, then: Value, otherwise: Value, source: Source) -> Value:
    """`condition ? then : otherwise`, element by element."""
    first = join(condition, then, source)
    probe = Value(condition.kernel, then.expr, *first)
    extent, layout = join(probe, otherwise, source)
    return Value(condition.kernel, Select(condition.expr, then.expr, otherwise.expr, source), extent, layout)


def call(kernel: Kernel, function: str, dtype: DType, *args: Value) -> Value:
    """An instruction of the table applied element by element; the result takes the first argument's extent."""
    first = args[0]
    return Value(
        kernel, Call(function, tuple(a.expr for a in args), dtype, author_source()), first.extent, first.layout
    )

"""Elementwise maths of the language: functions of the special-function unit and what is built from them, and selection."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kernwright.generator.dsl.names import author_source
from kernwright.generator.dsl.value import Number, Value, call, select
from kernwright.generator.errors import TensorFault
from kernwright.generator.ir.expr import Binary, Const
from kernwright.generator.ir.types import boolean, f32

if TYPE_CHECKING:
    from kernwright.generator.dsl.kernel import Kernel


class MathWords:
    """Mixin of `Kernel`. Every function takes FP32 values of any extent and works element by element."""

    def exp2(self, value: Value) -> Value:
        """2^value, at most 2 ulp off."""
        return self._function("exp2_approx", value)

    def exp(self, value: Value) -> Value:
        """e^value as 2^(log2(e) * value)."""
        return self._function("exp2_approx", self._scaled("log2e", 1.0, value))

    def rsqrt(self, value: Value) -> Value:
        """1 / sqrt(value), relative error at most 2^-22.9."""
        return self._function("rsqrt_approx", value)

    def reciprocal(self, value: Value) -> Value:
        """1 / value, at most 1 ulp off."""
        return self._function("reciprocal_approx", value)

    def sigmoid(self, value: Value) -> Value:
        """1 / (1 + exp(-value))."""
        return self._self.named(self._sigmoid(value))

    def silu(self, value: Value) -> Value:
        """value * sigmoid(value) = value / (1 + exp(-value))."""
        sigmoid = self._sigmoid(value)
        return self._self.named(replace(value, expr=Binary("*", value.expr, sigmoid.expr, author_source())))

    def where(self, condition: Value, then: Value | Number, otherwise: Value | Number) -> Value:
        """`then` where `condition` holds, else `otherwise`; the other side is not evaluated. One of them must be a value."""
        source = author_source()
        if not isinstance(condition, Value) or condition.dtype != boolean:
            shown = condition.dtype if isinstance(condition, Value) else repr(condition)
            raise TensorFault("KW0201", f"a condition must be a boolean value, got {shown}", source)
        like = then if isinstance(then, Value) else otherwise
        dtype = like.dtype if isinstance(like, Value) else f32
        chosen = [self._self.lift(side, dtype, source) for side in (then, otherwise)]
        if chosen[0].dtype != chosen[1].dtype:
            raise TensorFault(
                "KW0201",
                f"the sides of where are {chosen[0].dtype} and {chosen[1].dtype}",
                source,
                fix="Convert one with .to(...).",
            )
        return self._self.named(select(condition, chosen[0], chosen[1], source))

    @property
    def _self(self) -> Kernel:
        return cast("Kernel", self)

    def _function(self, name: str, value: Value) -> Value:
        return self._self.named(call(self._self, name, f32, self._float(value)))

    def _float(self, value: Value) -> Value:
        """The value, if the functions of the special-function unit can take it."""
        if not isinstance(value, Value) or value.dtype != f32:
            shown = value.dtype if isinstance(value, Value) else repr(value)
            raise TensorFault(
                "KW0201", f"this function takes f32, got {shown}", author_source(), fix="Convert first: value.to(f32)."
            )
        self._self.own(value.kernel, "value", author_source())
        return value

    def _sigmoid(self, value: Value) -> Value:
        one = Const(1.0, f32)
        power = call(self._self, "exp2_approx", f32, self._scaled("negative_log2e", -1.0, value))
        return call(
            self._self, "reciprocal_approx", f32, replace(value, expr=Binary("+", one, power.expr, author_source()))
        )

    def _scaled(self, name: str, sign: float, value: Value) -> Value:
        number: float = sign * struct.unpack("f", struct.pack("f", math.log2(math.e)))[0]
        reason = "exp(-v) = 2^(-log2(e) * v)" if sign < 0 else "exp(v) = 2^(log2(e) * v)"
        factor = self._self.named_constant(name, Const(number, f32), number, f32, reason, author_source())
        return replace(value, expr=Binary("*", factor, self._float(value).expr, author_source()))

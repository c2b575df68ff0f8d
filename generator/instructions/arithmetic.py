"""Arithmetic beside the operators: fused multiply-add and the approximate functions of the special-function unit.

Approximate results depend on tables that are not published: the meaning is the correctly rounded value, and `bound` the documented
distance from it (PTX ISA, ex2, rcp and rsqrt).
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Confirmed, instruction
from kernwright.generator.ir.types import f32


@instruction(ptx=("fma.rn.f32",), sass=("FFMA",), spelling="__fmaf_rn", result=f32, confirmed=Confirmed.HARDWARE)
def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    import numpy as np

    # The product of two FP32 values is exact in FP64; rounding the FP64 sum to odd keeps the final rounding single.
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    addend = np.asarray(c, np.float64)
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    inexact = np.isfinite(total) & (error != 0) & ((total.view(np.int64) & 1) == 0)
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(total, toward), total).astype(np.float32)


@instruction(
    ptx=("ex2.approx.f32",),
    sass=("MUFU.EX2",),
    result=f32,
    bound="2 ulp",
    confirmed=Confirmed.HARDWARE,
    cuda="""
// 2^x, at most 2 ulp off; subnormal results are kept.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
""",
)
def exp2_approx(x: Any) -> Any:
    """2^x."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        return np.exp2(np.asarray(x, np.float64)).astype(np.float32)


@instruction(
    ptx=("rcp.approx.f32",),
    sass=("MUFU.RCP",),
    result=f32,
    bound="1 ulp",
    confirmed=Confirmed.HARDWARE,
    cuda="""
// 1 / x, at most 1 ulp off; subnormal results are kept.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
""",
)
def reciprocal_approx(x: Any) -> Any:
    """1 / x."""
    import numpy as np

    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return (1.0 / np.asarray(x, np.float64)).astype(np.float32)


@instruction(
    ptx=("rsqrt.approx.f32",),
    sass=("MUFU.RSQ",),
    result=f32,
    bound="relative 2^-22.9",
    confirmed=Confirmed.HARDWARE,
    cuda="""
// 1 / sqrt(x), relative error at most 2^-22.9.
__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
""",
)
def rsqrt_approx(x: Any) -> Any:
    """1 / sqrt(x)."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        return (1.0 / np.sqrt(np.asarray(x, np.float64))).astype(np.float32)

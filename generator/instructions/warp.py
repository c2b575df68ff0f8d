"""Instructions that move values between the lanes of a warp."""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Confirmed, Effects, instruction
from kernwright.generator.ir.types import f32


@instruction(
    ptx=("shfl.sync.bfly.b32", "add.rn.f32"),
    sass=("SHFL.BFLY", "FADD"),
    result=f32,
    effects=Effects(collective="warp"),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// The sum over `lanes` neighbouring lanes (a power of two), the same bits in each of them. Lanes half the distance apart are
// added first, so the order of the additions is fixed. Every lane of the warp takes part.
__device__ __forceinline__ float sum_over_lanes(float value, int lanes) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  }
  return value;
}
""",
)
def sum_over_lanes(value: Any, lanes: int) -> Any:
    """Sum over groups of `lanes` neighbouring lanes, left in each of them; `value` has one element per lane in its last axis."""
    import numpy as np

    total = np.asarray(value, np.float32)
    index = np.arange(total.shape[-1])
    distance = lanes // 2
    while distance:
        total = total + total[..., index ^ distance]
        distance //= 2
    return total

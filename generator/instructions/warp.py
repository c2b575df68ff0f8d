"""Instructions that move values between the lanes of a warp."""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Confirmed, Effects, instruction
from kernwright.generator.ir.types import f32


@instruction(
    ptx=("shfl.sync.bfly.b32", "add.rn.f32"),
    sass=("SHFL.BFLY", "FADD"),
    spelling="sum_over_lanes<{}>",
    result=f32,
    effects=Effects(collective="warp"),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// The sum over kLanes neighbouring lanes, the same bits in each of them. Lanes half the group apart are added first, then those
// a quarter apart, so the order of the additions is fixed. Every lane of the warp takes part.
template <int kLanes>
__device__ __forceinline__ float sum_over_lanes(float value) {
  static_assert(kLanes > 0 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0, "halving needs a power of two inside a warp");
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  }
  return value;
}
""",
)
def sum_over_lanes(lanes: int, value: Any) -> Any:
    """Sum over groups of `lanes` neighbouring lanes, left in each of them; `value` has one element per lane in its last axis."""
    import numpy as np

    total = np.asarray(value, np.float32)
    index = np.arange(total.shape[-1])
    distance = lanes // 2
    while distance:
        total = total + total[..., index ^ distance]
        distance //= 2
    return total

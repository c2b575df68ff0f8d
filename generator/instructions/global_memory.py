"""Vector accesses to global memory. Loads through the read-only path are legal only for tensors that the program never writes."""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Confirmed, Effects, instruction


@instruction(
    ptx=("ld.global.nc.v4.u32", "shl.b32", "and.b32"),
    sass=("LDG.E.128.CONSTANT",),
    effects=Effects(reads=("global",), writes=("registers",)),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Eight BF16 values, 16 bytes on a 16-byte boundary, from memory that the kernel never writes; widened exactly.
__device__ __forceinline__ void load_bf16x8(const __nv_bfloat16* source, float (&values)[8]) {
  const uint4 packed = __ldg(reinterpret_cast<const uint4*>(source));
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}
""",
)
def load_bf16x8(source: Any) -> Any:
    """Eight BF16 values (as 16-bit patterns) widened to FP32."""
    import numpy as np

    return (np.asarray(source, np.uint16).astype(np.uint32) << 16).view(np.float32)


@instruction(
    ptx=("ld.global.nc.v4.f32",),
    sass=("LDG.E.128.CONSTANT",),
    effects=Effects(reads=("global",), writes=("registers",)),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Eight FP32 values as two 16-byte accesses on a 16-byte boundary, from memory that the kernel never writes.
__device__ __forceinline__ void load_f32x8(const float* source, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 part = __ldg(reinterpret_cast<const float4*>(source) + i);
    values[4 * i] = part.x;
    values[4 * i + 1] = part.y;
    values[4 * i + 2] = part.z;
    values[4 * i + 3] = part.w;
  }
}
""",
)
def load_f32x8(source: Any) -> Any:
    """Eight FP32 values."""
    import numpy as np

    return np.asarray(source, np.float32)


@instruction(
    ptx=("cvt.rn.bf16x2.f32", "st.global.v4.u32"),
    sass=("F2FP.BF16.F32.PACK_AB", "STG.E.128"),
    effects=Effects(reads=("registers",), writes=("global",)),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Eight values to 16 bytes on a 16-byte boundary, each rounded once to BF16, to nearest even.
__device__ __forceinline__ void store_bf16x8(__nv_bfloat16* target, const float (&values)[8]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(values[2 * i + 1]), "f"(values[2 * i]));
  }
  *reinterpret_cast<uint4*>(target) = make_uint4(words[0], words[1], words[2], words[3]);
}
""",
)
def store_bf16x8(values: Any) -> Any:
    """Eight FP32 values rounded to BF16 (as 16-bit patterns): nearest even, NaN becomes 0x7FFF, overflow becomes infinity."""
    import numpy as np

    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(np.asarray(values, np.float32)), np.uint16(0x7FFF), rounded)


@instruction(
    ptx=("ld.global.v2.f32",),
    sass=("LDG.E.64",),
    effects=Effects(reads=("global",), writes=("registers",)),
    cuda="""
// Two FP32 values on an 8-byte boundary.
__device__ __forceinline__ void load_global_f32x2(float* values, const float* source) {
  const float2 pair = *reinterpret_cast<const float2*>(source);
  values[0] = pair.x;
  values[1] = pair.y;
}
""",
)
def load_global_f32x2(source: Any) -> Any:
    """Two FP32 values."""
    import numpy as np

    return np.asarray(source, np.float32)


@instruction(
    ptx=("st.global.v2.f32",),
    sass=("STG.E.64",),
    effects=Effects(reads=("registers",), writes=("global",)),
    cuda="""
// Two FP32 values on an 8-byte boundary.
__device__ __forceinline__ void store_global_f32x2(float* target, float low, float high) {
  *reinterpret_cast<float2*>(target) = make_float2(low, high);
}
""",
)
def store_global_f32x2(low: Any, high: Any) -> Any:
    """Two FP32 values."""
    import numpy as np

    return np.stack([np.asarray(low, np.float32), np.asarray(high, np.float32)], -1)

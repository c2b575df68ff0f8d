"""Vector accesses to shared memory by ordinary loads and stores; a vector lies on a multiple of its size."""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Effects, instruction

_READ = Effects(reads=("shared",), writes=("registers",))
_WRITE = Effects(reads=("registers",), writes=("shared",))


@instruction(
    ptx=("ld.shared.v2.f32",),
    sass=("LDS.64",),
    effects=_READ,
    cuda="""
// Two FP32 values on an 8-byte boundary.
__device__ __forceinline__ void load_shared_f32x2(float* values, const float* source) {
  const float2 pair = *reinterpret_cast<const float2*>(source);
  values[0] = pair.x;
  values[1] = pair.y;
}
""",
)
def load_shared_f32x2(source: Any) -> Any:
    """Two FP32 values from shared memory."""
    import numpy as np

    return np.asarray(source, np.float32)


@instruction(
    ptx=("ld.shared.v4.f32",),
    sass=("LDS.128",),
    effects=_READ,
    cuda="""
// Four FP32 values on a 16-byte boundary.
__device__ __forceinline__ void load_shared_f32x4(float* values, const float* source) {
  const float4 four = *reinterpret_cast<const float4*>(source);
  values[0] = four.x;
  values[1] = four.y;
  values[2] = four.z;
  values[3] = four.w;
}
""",
)
def load_shared_f32x4(source: Any) -> Any:
    """Four FP32 values from shared memory."""
    import numpy as np

    return np.asarray(source, np.float32)


@instruction(
    ptx=("st.shared.v2.f32",),
    sass=("STS.64",),
    effects=_WRITE,
    cuda="""
// Two FP32 values on an 8-byte boundary.
__device__ __forceinline__ void store_shared_f32x2(void* target, float low, float high) {
  *static_cast<float2*>(target) = make_float2(low, high);
}
""",
)
def store_shared_f32x2(low: Any, high: Any) -> Any:
    """Two FP32 values to shared memory."""
    import numpy as np

    return np.stack([np.asarray(low, np.float32), np.asarray(high, np.float32)], -1)


@instruction(
    ptx=("st.shared.v4.f32",),
    sass=("STS.128",),
    effects=_WRITE,
    cuda="""
// Four FP32 values on a 16-byte boundary.
__device__ __forceinline__ void store_shared_f32x4(void* target, float x, float y, float z, float w) {
  *static_cast<float4*>(target) = make_float4(x, y, z, w);
}
""",
)
def store_shared_f32x4(x: Any, y: Any, z: Any, w: Any) -> Any:
    """Four FP32 values to shared memory."""
    import numpy as np

    return np.stack([np.asarray(value, np.float32) for value in (x, y, z, w)], -1)


@instruction(
    ptx=("st.shared.v4.u32",),
    sass=("STS.128",),
    effects=_WRITE,
    cuda="""
// Four words on a 16-byte boundary.
__device__ __forceinline__ void store_shared_b32x4(void* target, unsigned x, unsigned y, unsigned z, unsigned w) {
  *static_cast<uint4*>(target) = make_uint4(x, y, z, w);
}
""",
)
def store_shared_b32x4(x: Any, y: Any, z: Any, w: Any) -> Any:
    """Four words to shared memory."""
    import numpy as np

    return np.stack([np.asarray(value, np.uint32) for value in (x, y, z, w)], -1)

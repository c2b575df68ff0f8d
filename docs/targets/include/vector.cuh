// Instruction wrappers of the norm's target: one PTX instruction or one idiom each.
#pragma once

#include <cuda_bf16.h>

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

// Eight values to 16 bytes on a 16-byte boundary, each rounded once to BF16, to nearest even.
__device__ __forceinline__ void store_bf16x8(__nv_bfloat16* target, const float (&values)[8]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(values[2 * i + 1]), "f"(values[2 * i]));
  }
  *reinterpret_cast<uint4*>(target) = make_uint4(words[0], words[1], words[2], words[3]);
}

// 2^x, at most 2 ulp off; subnormal results are kept.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, at most 1 ulp off; subnormal results are kept.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / sqrt(x), relative error at most 2^-22.9.
__device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

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

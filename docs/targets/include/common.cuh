// Instruction wrappers that mean the same on sm_90a, sm_100a, sm_103a and sm_107a: one PTX instruction or idiom each.
#pragma once

#include <cuda.h>  // CUtensorMap

// ---- threads

// The warp's index in the block, in a register that the compiler knows to be the same in all lanes.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0); }

// True in one lane of a converged warp; orders nothing.
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}

// The 32-bit shared-window address that descriptors, TMA and mbarrier instructions take.
__device__ __forceinline__ unsigned smem_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Byte offset of a 16-byte chunk in a tile of 128-byte rows: TMA writes it there and the tensor cores read it there.
__device__ __forceinline__ constexpr unsigned swizzle_128(unsigned row, unsigned chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// Waits for kThreads threads (whole warps) on one of the barriers 1 to 15; orders their earlier shared-memory accesses.
template <int kThreads>
__device__ __forceinline__ void named_barrier_sync(int barrier) {
  static_assert(kThreads % 32 == 0, "a named barrier counts warps");
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// ---- mbarrier

// Sets the arrivals of a phase; other threads may use the barrier after fence_mbarrier_init and a block barrier.
__device__ __forceinline__ void mbarrier_init(unsigned long long& barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(&barrier)), "r"(arrivals) : "memory");
}

// Makes the initialised barriers visible to remote and asynchronous arrivals.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival; releases this thread's earlier accesses to whoever waits for the phase.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(&barrier)) : "memory");
}

// One arrival that also announces `bytes` of TMA traffic: the phase ends when they have landed too.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned long long& barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(&barrier)), "r"(bytes) : "memory");
}

// Waits until the phase of that parity is complete; acquires what its arrivals released and what TMA wrote.
__device__ __forceinline__ void mbarrier_wait(unsigned long long& barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_%=;\n}" ::"r"(smem_address(&barrier)), "r"(phase)
      : "memory");
}

// Position in a ring of stages. A fresh barrier counts as "parity 1 complete": a producer starts with phase 1, a consumer with 0.
template <int kStages>
struct Ring {
  int stage;
  unsigned phase;

  __device__ __forceinline__ static Ring producer() { return {0, 1u}; }
  __device__ __forceinline__ static Ring consumer(int first = 0) { return {first % kStages, 0u}; }
  __device__ __forceinline__ void advance(int steps = 1) {
    stage += steps;
    if (stage >= kStages) {
      stage -= kStages;
      phase ^= 1u;
    }
  }
};

// ---- proxies

// Orders this thread's ordinary shared-memory accesses before later ones of the asynchronous proxy (TMA, tensor cores).
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- TMA and bulk copies

// Box of a 2D tensor map -> shared memory; signals its bytes on the barrier.
__device__ __forceinline__ void tma_load_2d(void* destination, const CUtensorMap& map, int x, int y, unsigned long long& barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(smem_address(destination)), "l"(&map), "r"(x), "r"(y), "r"(smem_address(&barrier)) : "memory");
}

// Box of a 3D tensor map -> shared memory; signals its bytes on the barrier.
__device__ __forceinline__ void tma_load_3d(void* destination, const CUtensorMap& map, int x, int y, int z, unsigned long long& barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(smem_address(destination)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(smem_address(&barrier)) : "memory");
}

// Contiguous global bytes -> shared memory; signals them on the barrier.
__device__ __forceinline__ void bulk_load(void* destination, const void* source, unsigned bytes, unsigned long long& barrier) {
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(smem_address(destination)), "l"(source), "r"(bytes), "r"(smem_address(&barrier)) : "memory");
}

// Shared memory -> box of a 2D tensor map; completes with the thread's bulk group.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap& map, const void* source, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(&map), "r"(x), "r"(y), "r"(smem_address(source)) : "memory");
}

// Shared memory -> box of a 3D tensor map; completes with the thread's bulk group.
__device__ __forceinline__ void tma_store_3d(const CUtensorMap& map, const void* source, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
               ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(smem_address(source)) : "memory");
}

// Closes the group of this thread's stores so far.
__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but the newest kGroups groups of this thread have read their shared memory: it may be overwritten or freed.
template <int kGroups>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

// ---- matrices between registers and shared memory (16-bit elements, one 16-byte row address a lane)

// Four 8x8 matrices -> registers; complete on return.
__device__ __forceinline__ void ldmatrix_x4(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_address(row)) : "memory");
}

// Four 8x8 matrices, transposed -> registers; complete on return.
__device__ __forceinline__ void ldmatrix_x4_transposed(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_address(row)) : "memory");
}

// Registers -> four 8x8 matrices; an ordinary shared-memory write, so the asynchronous proxy needs a fence.
__device__ __forceinline__ void stmatrix_x4(void* row, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(smem_address(row)), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

// ---- arithmetic

// Two FP32 -> BF16 pair, round to nearest even.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// BF16 -> FP32 is exact: the bits move to the upper half.
__device__ __forceinline__ float bf16_low(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(unsigned pair) { return __uint_as_float(pair & 0xFFFF0000u); }

// 2^x, at most 2 ulp off; subnormal results become 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- register budgets

// Gives registers of this warpgroup back to the block's pool; all its warps execute it.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Takes registers from the block's pool and waits until they are free; all warps of the warpgroup execute it.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Instruction wrappers of sm_100a, sm_103a and sm_107a: tcgen05, tensor memory and the shared-memory descriptors.
#pragma once

#include "common.cuh"

// ---- descriptors: [13:0] address / 16 ([14:0] on sm_107a), [29:16] leading and [45:32] stride byte offset / 16,
//      [48:46] 0b001, [63:61] swizzle

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1070
constexpr unsigned kDescriptorMask = 0x7FFF;  // 15 bits of 16 bytes reach the 327 KiB that a block of sm_107a can have
#else
constexpr unsigned kDescriptorMask = 0x3FFF;  // 14 bits of 16 bytes reach 256 KiB
#endif
constexpr unsigned long long kDescriptorVersion = 1ull << 46;
constexpr unsigned long long kDescriptorSwizzle128 = 2ull << 61;
constexpr unsigned kSharedLimit = 232448;  // bytes a block can have without the oversized mode of sm_107a
static_assert(kSharedLimit <= (kDescriptorMask + 1) * 16, "no shared address is cut by the mask");

// The address field is masked here, after all additions to the address.
__device__ __forceinline__ constexpr unsigned long long descriptor(unsigned address, unsigned leading_bytes, unsigned stride_bytes) {
  return static_cast<unsigned long long>((address >> 4) & kDescriptorMask) | static_cast<unsigned long long>(leading_bytes >> 4) << 16 |
         static_cast<unsigned long long>(stride_bytes >> 4) << 32 | kDescriptorVersion | kDescriptorSwizzle128;
}

// K-major, rows of 128 bytes: 8 rows repeat every 1024 bytes; the leading byte offset is not used and is encoded as 1.
__device__ __forceinline__ constexpr unsigned long long descriptor_k_major(unsigned address) { return descriptor(address, 16, 1024); }

static_assert(descriptor_k_major(0x400) == 0x4000404000010040ull, "128 x 64 BF16, K-major");

// kind::f16 with BF16 operands, both K-major, and FP32 accumulators: [5:4] D, [9:7] A, [12:10] B, [22:17] N / 8, [28:24] M / 16.
__device__ __forceinline__ constexpr unsigned instruction_descriptor_bf16(unsigned m, unsigned n) {
  return 1u << 4 | 1u << 7 | 1u << 10 | n / 8 << 17 | m / 16 << 24;
}

static_assert(instruction_descriptor_bf16(128, 64) == 0x08100490u, "M = 128, N = 64");

// ---- tensor memory: 128 lanes x 512 columns of 32 bits; address = lane << 16 | column

// Reserves kColumns columns and writes their address to shared memory; one whole warp, blocks until they are free.
template <int kColumns>
__device__ __forceinline__ void tcgen05_alloc(unsigned& address) {
  static_assert(kColumns >= 32 && kColumns <= 512 && (kColumns & (kColumns - 1)) == 0, "columns: a power of two from 32 to 512");
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(smem_address(&address)), "n"(kColumns) : "memory");
}

// Lets other blocks of the SM allocate; the warp that allocated, after its last allocation.
__device__ __forceinline__ void tcgen05_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

// Frees the columns; the warp that allocated them, after every access, and before the block ends.
template <int kColumns>
__device__ __forceinline__ void tcgen05_dealloc(unsigned address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(kColumns) : "memory");
}

// ---- tcgen05

// Orders this thread's earlier tcgen05 operations before the barrier that follows.
__device__ __forceinline__ void tcgen05_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

// Orders the barrier just passed before this thread's later tcgen05 operations.
__device__ __forceinline__ void tcgen05_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// D (+)= A B^T, D in tensor memory, both operands in shared memory; issued by one thread, asynchronous until a commit arrives.
__device__ __forceinline__ void tcgen05_mma_f16_ss(unsigned d, unsigned long long a, unsigned long long b, unsigned instruction,
                                                   bool accumulate) {
  asm volatile(
      "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\n}" ::"r"(d), "l"(a), "l"(b), "r"(instruction),
      "r"(static_cast<int>(accumulate))
      : "memory");
}

// One arrival when all tcgen05.mma that this thread has issued are complete: operands are read, accumulators written.
__device__ __forceinline__ void tcgen05_commit(unsigned long long& barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(smem_address(&barrier)) : "memory");
}

// 32 lanes x 16 columns -> 16 registers a thread (its lane's row), waited for: the registers are valid on return.
__device__ __forceinline__ void tcgen05_ld_32x32b_x16(float (&r)[16], unsigned address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];\n"
      "tcgen05.wait::ld.sync.aligned;"
      : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]), "=f"(r[7]), "=f"(r[8]), "=f"(r[9]),
        "=f"(r[10]), "=f"(r[11]), "=f"(r[12]), "=f"(r[13]), "=f"(r[14]), "=f"(r[15])
      : "r"(address)
      : "memory");
}

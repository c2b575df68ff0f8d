// mma_tile: C = A @ B.T for one 128 x 64 tile; A [128, K], B [64, K] BF16 row-major, C [128, 64] FP32 row-major.
//
// Serves sm_100a, sm_103a and sm_107a, which differ in kDescriptorMask only.
// Roles: load (warpgroup 0, one thread) fills a ring of operand stages by TMA; multiply (warpgroup 1): one thread issues
// tcgen05.mma into 64 columns of tensor memory and commits each stage, then all four warps read the tile and store it.
// No setmaxnreg: the accumulator is in tensor memory, so no role needs more registers than the launch gives.
// Tensor maps (128-byte swizzle): a {K, 128} box {64, 128}, b {K, 64} box {64, 64}, c {64, 128} box {32, 128} FP32.

#include "include/sm_100a.cuh"

// ---- constants

constexpr int kTileM = 128;
constexpr int kTileN = 64;
constexpr int kTileK = 64;
constexpr int kStages = 3;
constexpr int kStepsK = 4;                      // tcgen05.mma of K = 16 in a slab
constexpr int kOperandsABytes = 16384;          // 128 x 64 BF16, 128-byte swizzle
constexpr int kOperandsBBytes = 8192;           // 64 x 64 BF16, 128-byte swizzle
constexpr int kResultColumns = 64;              // tensor memory: lane = row, column = column of the tile
constexpr int kResultPanels = 2;                // 32 FP32 make a 128-byte row, so 64 columns are two panels
constexpr int kResultPanelBytes = 16384;        // 128 rows of 128 bytes
constexpr unsigned kInstruction = instruction_descriptor_bf16(kTileM, kTileN);
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;                 // what shared memory allows
constexpr int kMultiplyWarp = 4;                // first warp of role multiply: issues, allocates and frees
constexpr int kMultiplyBarrier = 1;             // named barrier of the multiply warpgroup; 0 is __syncthreads

static_assert(kOperandsABytes == kTileM * kTileK * 2 && kOperandsBBytes == kTileN * kTileK * 2, "BF16 has two bytes");
static_assert(kTileK * 2 == 128, "a slab of K is one 128-byte row: one swizzled panel an operand");
static_assert(kOperandsABytes % 1024 == 0 && kOperandsBBytes % 1024 == 0, "a 128-byte swizzle repeats every 1024 bytes");
static_assert(kStepsK * 16 == kTileK, "tcgen05.mma kind::f16 has K = 16");
static_assert(kTileM == 128 && kTileN % 16 == 0 && kTileN <= 256, "M = 128 takes N in steps of 16");
static_assert(kResultColumns == kTileN && kResultColumns * kBlocksPerSm <= 512, "an SM has 512 columns, one 32-bit cell an element");
static_assert(kOperandsABytes + kOperandsBBytes < 1 << 20, "a phase of an mbarrier counts less than 2^20 bytes");
static_assert(kThreads * kBlocksPerSm <= 1024, "sm_107a holds 1024 threads an SM: a larger minimum would be dropped");
static_assert(kMultiplyWarp % 4 == 0, "warp w reads the tensor memory lanes 32 (w % 4) to 32 (w % 4) + 31");

// ---- shared memory

struct Shared {
  alignas(1024) unsigned char a[kStages][kOperandsABytes];
  alignas(1024) unsigned char b[kStages][kOperandsBBytes];
  alignas(1024) unsigned char c[kResultPanels][kResultPanelBytes];
  unsigned long long operands_full[kStages];   // 1 arrival (role load's elected thread) + 24576 bytes
  unsigned long long operands_empty[kStages];  // 1 arrival (role multiply: the commit after the slab's tcgen05.mma)
  unsigned long long result_full;              // 1 arrival (role multiply: the commit after the last slab); used once
  unsigned result_address;                     // tensor memory address, written by the allocation
};
static_assert(kBlocksPerSm * (sizeof(Shared) + 1024) <= kSharedLimit + 1024, "blocks share 228 KiB, 1 KiB of each is reserved");

// ---- roles

// Runs in one elected thread; the other warps of the group are idle.
__device__ __forceinline__ void role_load(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, int depth) {
  Ring<kStages> ring = Ring<kStages>::producer();
  for (int slab = 0; slab < depth / kTileK; ++slab) {
    mbarrier_wait(shared.operands_empty[ring.stage], ring.phase);
    mbarrier_arrive_expect_tx(shared.operands_full[ring.stage], kOperandsABytes + kOperandsBBytes);
    tma_load_2d(shared.a[ring.stage], a, slab * kTileK, 0, shared.operands_full[ring.stage]);
    tma_load_2d(shared.b[ring.stage], b, slab * kTileK, 0, shared.operands_full[ring.stage]);
    ring.advance();
  }
}

// Runs in one elected thread of the first multiply warp: tcgen05.mma is a single thread's instruction.
__device__ __forceinline__ void issue_multiply(Shared& shared, unsigned result, int depth) {
  Ring<kStages> ring = Ring<kStages>::consumer();
  for (int slab = 0; slab < depth / kTileK; ++slab) {
    mbarrier_wait(shared.operands_full[ring.stage], ring.phase);
    tcgen05_fence_after();
    const unsigned a = smem_address(shared.a[ring.stage]);
    const unsigned b = smem_address(shared.b[ring.stage]);
#pragma unroll
    for (int step = 0; step < kStepsK; ++step) {
      const bool accumulate = slab > 0 || step > 0;
      tcgen05_mma_f16_ss(result, descriptor_k_major(a + 32 * step), descriptor_k_major(b + 32 * step), kInstruction, accumulate);
    }
    tcgen05_commit(shared.operands_empty[ring.stage]);  // releases the stage when it has been read; up to kStages slabs in flight
    ring.advance();
  }
  tcgen05_commit(shared.result_full);
}

// Runs in all 128 threads of its warpgroup; row = tensor memory lane = thread.
__device__ __forceinline__ void role_multiply(Shared& shared, const CUtensorMap& c, int depth) {
  const int warp = warp_index() - kMultiplyWarp;
  const int row = threadIdx.x % 128;
  const unsigned result = shared.result_address;

  if (warp == 0) {
    if (elect_one()) issue_multiply(shared, result, depth);
    __syncwarp();  // the whole warp reads tensor memory below
  }

  mbarrier_wait(shared.result_full, 0);
  tcgen05_fence_after();
#pragma unroll
  for (int column = 0; column < kTileN; column += 16) {
    float values[16];
    tcgen05_ld_32x32b_x16(values, result + (32 * warp << 16) + column);
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      unsigned char* panel = shared.c[(column + i) / 32];
      float4* quad = reinterpret_cast<float4*>(panel + swizzle_128(row, (column + i) % 32 / 4));
      *quad = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    }
  }
  tcgen05_fence_before();  // the loads above, before the barrier that lets warp 0 free the columns
  fence_proxy_async();     // the stores above are ordinary ones, TMA reads them
  named_barrier_sync<128>(kMultiplyBarrier);

  if (warp == 0) {
    if (elect_one()) {
      for (int panel = 0; panel < kResultPanels; ++panel) tma_store_2d(c, shared.c[panel], 32 * panel, 0);
      bulk_commit_group();
      bulk_wait_group_read<0>();  // shared memory must outlive the reads of the store
    }
    __syncwarp();  // the whole warp frees
    tcgen05_fence_after();
    tcgen05_dealloc<kResultColumns>(result);
  }
}

// ---- kernel: one block, kThreads threads, sizeof(Shared) bytes of dynamic shared memory

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksPerSm)
tiles_mma_tile(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
               int depth) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = warp_index();

  if (warp == 0 && elect_one()) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(shared.operands_full[stage], 1);
      mbarrier_init(shared.operands_empty[stage], 1);
    }
    mbarrier_init(shared.result_full, 1);
    fence_mbarrier_init();
    fence_proxy_async();  // TMA and commits signal these barriers
  }
  if (warp == kMultiplyWarp) {
    tcgen05_alloc<kResultColumns>(shared.result_address);
    tcgen05_relinquish();
  }
  tcgen05_fence_before();
  __syncthreads();  // barriers and the tensor memory address are visible to all roles
  tcgen05_fence_after();

  if (warp == 0) {
    if (elect_one()) role_load(shared, a, b, depth);
  } else if (warp >= kMultiplyWarp) {
    role_multiply(shared, c, depth);
  }
}

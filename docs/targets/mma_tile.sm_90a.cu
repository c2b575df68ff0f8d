// mma_tile: C = A @ B.T for one 128 x 64 tile; A [128, K], B [64, K] BF16 row-major, C [128, 64] FP32 row-major.
//
// Roles: load (warpgroup 0, one thread) fills a ring of operand stages by TMA; multiply (warpgroup 1) runs two m64n64k16
// wgmmas a K step, keeps one group in flight, and stores the tile through shared memory.
// One multiply warpgroup, not two: the 64 accumulator registers fit easily, B is read twice by one warpgroup as it would be by
// two, and with a single reader a stage is released by one arrival. Two of them pay from 128 x 128 on.
// Tensor maps (128-byte swizzle): a {K, 128} box {64, 128}, b {K, 64} box {64, 64}, c {64, 128} box {32, 128} FP32.

#include "include/sm_90a.cuh"

// ---- constants

constexpr int kTileM = 128;
constexpr int kTileN = 64;
constexpr int kTileK = 64;
constexpr int kStages = 3;
constexpr int kHalves = 2;                      // m64 halves of the tile, both in the multiply warpgroup
constexpr int kStepsK = 4;                      // wgmmas of K = 16 in a slab
constexpr int kOperandsABytes = 16384;          // 128 x 64 BF16, 128-byte swizzle
constexpr int kOperandsBBytes = 8192;           // 64 x 64 BF16, 128-byte swizzle
constexpr int kResultPanels = 2;                // 32 FP32 make a 128-byte row, so 64 columns are two panels
constexpr int kResultPanelBytes = 16384;        // 128 rows of 128 bytes
constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;                 // fixes the launch count at 128 registers, so that both budgets come from it
constexpr int kLaunchRegisters = 128;
constexpr int kLoadRegisters = 40;
constexpr int kMultiplyRegisters = 168;
constexpr int kMultiplyBarrier = 1;             // named barrier of the multiply warpgroup; 0 is __syncthreads

static_assert(kOperandsABytes == kTileM * kTileK * 2 && kOperandsBBytes == kTileN * kTileK * 2, "BF16 has two bytes");
static_assert(kTileK * 2 == 128, "a slab of K is one 128-byte row: one swizzled panel an operand");
static_assert(kOperandsABytes % 1024 == 0 && kOperandsBBytes % 1024 == 0, "a 128-byte swizzle repeats every 1024 bytes");
static_assert(kStepsK * 16 == kTileK && kHalves * 64 == kTileM, "wgmma is m64n64k16");
static_assert(kStages >= 2, "one stage is read by the group in flight while the next one is filled");
static_assert(kOperandsABytes + kOperandsBBytes < 1 << 20, "a phase of an mbarrier counts less than 2^20 bytes");
static_assert(kLaunchRegisters * kThreads * kBlocksPerSm <= 65536, "registers of an SM");
static_assert(128 * (kLoadRegisters + kMultiplyRegisters) <= kLaunchRegisters * kThreads, "budgets come from the launch count");

// ---- shared memory

struct Shared {
  alignas(1024) unsigned char a[kStages][kOperandsABytes];
  alignas(1024) unsigned char b[kStages][kOperandsBBytes];
  alignas(1024) unsigned char c[kResultPanels][kResultPanelBytes];
  unsigned long long operands_full[kStages];   // 1 arrival (role load's elected thread) + 24576 bytes
  unsigned long long operands_empty[kStages];  // 1 arrival (role multiply: its only reads are wgmma's)
};
static_assert(kBlocksPerSm * (sizeof(Shared) + 1024) <= kSharedLimit + 1024, "blocks share 228 KiB, 1 KiB of each is reserved");

// ---- roles

// Runs in one elected thread; the other warps of the group are idle and only give their registers back.
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

// Accumulator registers -> swizzled FP32 panels. wgmma gives register d of a thread row 16 warp + lane / 4 + 8 (d / 2 % 2) and
// column 8 (d / 4) + 2 (lane % 4) + d % 2, so each pair of registers is 8 contiguous bytes.
__device__ __forceinline__ void stage_result(Shared& shared, const float (&result)[32], int half, int warp, int lane) {
#pragma unroll
  for (int d = 0; d < 32; d += 2) {
    const int row = 64 * half + 16 * warp + lane / 4 + 8 * (d / 2 % 2);
    const int column = 8 * (d / 4) + 2 * (lane % 4);
    unsigned char* panel = shared.c[column / 32];
    float2* pair = reinterpret_cast<float2*>(panel + swizzle_128(row, column % 32 / 4) + column % 4 * 4);
    *pair = make_float2(result[d], result[d + 1]);
  }
}

// Runs in all 128 threads of its warpgroup.
__device__ __forceinline__ void role_multiply(Shared& shared, const CUtensorMap& c, int depth) {
  const int warp = warp_index() % 4;
  const int lane = threadIdx.x % 32;
  float upper[32];  // rows 0 to 63
  float lower[32];  // rows 64 to 127
  Ring<kStages> ring = Ring<kStages>::consumer();
  int previous = 0;  // the stage that the group in flight reads

  for (int slab = 0; slab < depth / kTileK; ++slab) {
    mbarrier_wait(shared.operands_full[ring.stage], ring.phase);
    const unsigned a = smem_address(shared.a[ring.stage]);
    const unsigned b = smem_address(shared.b[ring.stage]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kStepsK; ++step) {
      const unsigned long long columns = descriptor_k_major(b + 32 * step);
      const bool accumulate = slab > 0 || step > 0;
      wgmma_m64n64k16_bf16_ss(upper, descriptor_k_major(a + 32 * step), columns, accumulate);
      wgmma_m64n64k16_bf16_ss(lower, descriptor_k_major(a + kOperandsABytes / kHalves + 32 * step), columns, accumulate);
    }
    wgmma_commit_group();
    wgmma_wait_group<1>();  // all but the newest group: the previous stage has been read
    if (slab > 0 && warp == 0 && elect_one()) mbarrier_arrive(shared.operands_empty[previous]);
    previous = ring.stage;
    ring.advance();
  }
  wgmma_wait_group<0>();
  pin_registers(upper);
  pin_registers(lower);
  if (warp == 0 && elect_one()) mbarrier_arrive(shared.operands_empty[previous]);  // drains the ring: each stage ends released

  stage_result(shared, upper, 0, warp, lane);
  stage_result(shared, lower, 1, warp, lane);
  fence_proxy_async();  // the stores above are ordinary ones, TMA reads them
  named_barrier_sync<128>(kMultiplyBarrier);
  if (warp == 0 && elect_one()) {
    for (int panel = 0; panel < kResultPanels; ++panel) tma_store_2d(c, shared.c[panel], 32 * panel, 0);
    bulk_commit_group();
    bulk_wait_group_read<0>();  // shared memory must outlive the reads of the store
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
    fence_mbarrier_init();
    fence_proxy_async();  // TMA signals these barriers
  }
  __syncthreads();

  if (warp < 4) {
    setmaxnreg_dec<kLoadRegisters>();
    if (warp == 0 && elect_one()) role_load(shared, a, b, depth);
  } else {
    setmaxnreg_inc<kMultiplyRegisters>();
    role_multiply(shared, c, depth);
  }
}

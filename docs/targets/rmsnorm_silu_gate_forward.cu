// rmsnorm_silu_gate_forward: y = x * rsqrt(mean(x^2) + eps) * w * silu(z), row by row.
//
// x, z and y are BF16 [rows, 128], w is BF16 [128]. Everything between the loads and the store is FP32; y is rounded once.
// silu(z) = z / (1 + exp(-z)).

#include "include/vector.cuh"

namespace {

constexpr int kColumns = 128;                              // one head
constexpr int kThreads = 128;                              // threads of a block
constexpr int kVector = 8;                                 // BF16 values in one 16-byte access
constexpr int kLanesPerRow = kColumns / kVector;           // lanes that share a row
constexpr int kRowsPerBlock = kThreads / kLanesPerRow;     // rows of a block
constexpr float kInverseColumns = 0.0078125f;              // 1 / kColumns, exact
constexpr float kNegativeLog2e = -1.4426950216293335f;     // exp(-z) = 2^(-log2(e) z)

static_assert(kColumns % kVector == 0, "a row is a whole number of vector accesses");
static_assert(32 % kLanesPerRow == 0, "the lanes of a row sit in one warp, where shuffles reach them");
static_assert(kThreads % kLanesPerRow == 0, "a block holds whole rows");

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
rmsnorm_silu_gate_forward(const __nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ z,
                          const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ y, long long rows, float eps) {
  // Thread t holds columns 8 * (t % 16) .. + 7 of row t / 16 of the block.
  const int column = static_cast<int>(threadIdx.x) % kLanesPerRow * kVector;
  const long long row = static_cast<long long>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanesPerRow;
  const long long offset = row * kColumns + column;
  const bool in_range = row < rows;  // the last block can be short

  // Lanes past the end load nothing, but take part in the shuffles of their warp.
  float x_row[kVector] = {};
  float z_row[kVector] = {};
  if (in_range) {
    load_bf16x8(x + offset, x_row);
    load_bf16x8(z + offset, z_row);
  }
  float w_row[kVector];
  load_bf16x8(w + column, w_row);

  float square_sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    square_sum = __fmaf_rn(x_row[i], x_row[i], square_sum);
  }
  const float mean_square = sum_over_lanes<kLanesPerRow>(square_sum) * kInverseColumns;
  const float scale = rsqrt_approx(mean_square + eps);

  float y_row[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float gate = z_row[i] * reciprocal_approx(1.0f + exp2_approx(kNegativeLog2e * z_row[i]));
    y_row[i] = x_row[i] * scale * w_row[i] * gate;
  }
  if (in_range) {
    store_bf16x8(y + offset, y_row);
  }
}

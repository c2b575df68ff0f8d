// Checks mma_tile.sm_90a.cu against FP64 on random data; `check_mma_tile small` runs the two smallest depths (for memcheck).

#include "include/check.cuh"
#include "mma_tile.sm_90a.cu"

#include <random>

// Each wgmma rounds an element once, by at most 2^-23 of the sum of magnitudes; depth / 16 of them follow each other.
static double error_bound(int depth, double magnitude) { return (depth / 16 + 1) * std::ldexp(1.0, -23) * magnitude; }

static bool run(int depth) {
  std::mt19937 random(depth);
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> a(size_t{kTileM} * depth), b(size_t{kTileN} * depth);
  for (auto& x : a) x = __float2bfloat16(normal(random));
  for (auto& x : b) x = __float2bfloat16(normal(random));
  auto* device_a = device_array<__nv_bfloat16>(a.size());
  auto* device_b = device_array<__nv_bfloat16>(b.size());
  auto* device_c = device_array<float>(kTileM * kTileN);
  check(cudaMemcpy(device_a, a.data(), a.size() * 2, cudaMemcpyHostToDevice), "copy a");
  check(cudaMemcpy(device_b, b.data(), b.size() * 2, cudaMemcpyHostToDevice), "copy b");

  const cuuint64_t k = static_cast<cuuint64_t>(depth);
  const CUtensorMap map_a = tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, device_a, {k, kTileM}, {2 * k}, {kTileK, kTileM});
  const CUtensorMap map_b = tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, device_b, {k, kTileN}, {2 * k}, {kTileK, kTileN});
  const CUtensorMap map_c = tensor_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, device_c, {kTileN, kTileM}, {4 * kTileN}, {32, kTileM});
  check(cudaFuncSetAttribute(tiles_mma_tile, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)), "shared memory");

  std::vector<float> c, again;
  bool equal = true;
  for (int repeat = 0; repeat < 10; ++repeat) {
    check(cudaMemset(device_c, 0xFF, kTileM * kTileN * 4), "poison c");
    tiles_mma_tile<<<1, kThreads, sizeof(Shared)>>>(map_a, map_b, map_c, depth);
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "tiles_mma_tile");
    again = to_host(device_c, kTileM * kTileN);
    if (repeat == 0) c = again;
    equal = equal && std::memcmp(c.data(), again.data(), c.size() * 4) == 0;
  }

  double worst = 0, square = 0, reference_square = 0;
  int wrong = 0;
  for (int m = 0; m < kTileM; ++m) {
    for (int n = 0; n < kTileN; ++n) {
      double sum = 0, magnitude = 0;
      for (int i = 0; i < depth; ++i) {
        const double product = static_cast<double>(__bfloat162float(a[size_t(m) * depth + i])) * __bfloat162float(b[size_t(n) * depth + i]);
        sum += product;
        magnitude += std::fabs(product);
      }
      const double error = c[m * kTileN + n] - sum;
      if (!(std::fabs(error) <= error_bound(depth, magnitude))) ++wrong;
      worst = std::max(worst, std::fabs(error));
      square += error * error;
      reference_square += sum * sum;
    }
  }
  std::printf("RESULT {\"check\": \"mma_tile\", \"depth\": %d, \"wrong\": %d, \"of\": %d, \"largest_error\": %.3e, \"relative_rms\": %.3e, "
              "\"repeats_bitwise_equal\": %s}\n",
              depth, wrong, kTileM * kTileN, worst, std::sqrt(square / reference_square), equal ? "true" : "false");
  cudaFree(device_a), cudaFree(device_b), cudaFree(device_c);
  return wrong == 0 && equal;
}

int main(int count, char** arguments) {
  report_sources();
  const bool small = count > 1 && std::strcmp(arguments[1], "small") == 0;
  bool passed = true;
  for (int depth : small ? std::vector<int>{64, 128} : std::vector<int>{64, 128, 192, 4096, 64 * 37}) passed = run(depth) && passed;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, tiles_mma_tile), "attributes");
  std::printf("RESULT {\"check\": \"mma_tile\", \"passed\": %s, \"registers\": %d, \"local_bytes\": %zu, \"shared_bytes\": %zu}\n",
              passed ? "true" : "false", attributes.numRegs, attributes.localSizeBytes, sizeof(Shared));
  return passed ? 0 : 1;
}

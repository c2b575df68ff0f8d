// Host side of the checks: errors, tensor maps, statistics. Nothing here is part of a target.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cudaTypedefs.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("RESULT {\"error\": \"%s\", \"in\": \"%s\"}\n", cudaGetErrorString(error), what);
  std::exit(1);
}

// Digest of the target's text and of the headers it includes, as the Makefile computed it.
inline void report_sources() { std::printf("RESULT {\"sources\": \"%s\"}\n", SOURCES_SHA256); }

template <class T>
T* device_array(size_t count) {
  void* pointer = nullptr;
  check(cudaMalloc(&pointer, count * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(pointer);
}

template <class T>
std::vector<T> to_host(const T* pointer, size_t count) {
  std::vector<T> values(count);
  check(cudaMemcpy(values.data(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost), "copy to host");
  return values;
}

// A tiled map with a 128-byte swizzle; sizes and box from the fastest dimension on, strides in bytes of all but that one.
inline CUtensorMap tensor_map(CUtensorMapDataType type, void* pointer, std::vector<cuuint64_t> sizes, std::vector<cuuint64_t> strides,
                              std::vector<cuuint32_t> box) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult found;
    void* function = nullptr;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found), "entry point");
    encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }
  CUtensorMap map;
  const std::vector<cuuint32_t> element_strides(sizes.size(), 1);
  const CUresult result = encode(&map, type, static_cast<cuuint32_t>(sizes.size()), pointer, sizes.data(), strides.data(), box.data(),
                                 element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    std::printf("RESULT {\"error\": \"cuTensorMapEncodeTiled %d\"}\n", static_cast<int>(result));
    std::exit(1);
  }
  return map;
}

inline double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Least squares y = slope x + intercept; r2 is the explained share of the variance.
struct Line {
  double slope, intercept, r2;
};
inline Line fit(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sx += x[i], sy += y[i], sxx += x[i] * x[i], sxy += x[i] * y[i], syy += y[i] * y[i];
  }
  const double xx = sxx - sx * sx / n, xy = sxy - sx * sy / n, yy = syy - sy * sy / n;
  return {xy / xx, (sy - xy / xx * sx) / n, xy * xy / (xx * yy)};
}

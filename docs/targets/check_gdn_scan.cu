// Checks gdn_scan.sm_90a.cu against the FP64 recurrence over tokens, and times it a chunk.
// check_gdn_scan [check | small | time]; without an argument both check and time.

#include "include/check.cuh"
#include "gdn_scan.sm_90a.cu"

constexpr float kScale = 0.08838834764831845f;  // 1 / sqrt(128)

struct Program {
  const char* name;
  int panels;
  bool load_p;
  void (*kernel)(Arguments);
  int threads;
  size_t shared_bytes;
};
template <class C>
Program program(const char* name, void (*kernel)(Arguments)) {
  return {name, C::kPanels, C::kLoadP, kernel, C::kThreads, sizeof(Shared<C>)};
}
static const Program kPrograms[] = {
    program<V64>("gdn_scan_v64", gdn_scan_v64), program<V64LoadP>("gdn_scan_v64_load_p", gdn_scan_v64_load_p),
    program<V128>("gdn_scan_v128", gdn_scan_v128), program<V128LoadP>("gdn_scan_v128_load_p", gdn_scan_v128_load_p)};

// ---- inputs

__device__ unsigned hash(unsigned long long x) {
  x ^= x >> 33, x *= 0xFF51AFD7ED558CCDull, x ^= x >> 33, x *= 0xC4CEB9FE1A85EC53ull, x ^= x >> 33;
  return static_cast<unsigned>(x);
}
__device__ float uniform(unsigned long long i, unsigned seed) {
  return (hash(i + (static_cast<unsigned long long>(seed) << 40)) + 0.5f) * 2.3283064e-10f;
}
__device__ float normal(unsigned long long i, unsigned seed) {
  return sqrtf(-2.0f * logf(fmaxf(uniform(2 * i, seed), 1e-12f))) * cosf(6.2831853f * uniform(2 * i + 1, seed));
}

// Random rows of 128, one warp a row; normalised to length 1 for k and q.
__global__ void make_rows(__nv_bfloat16* rows, unsigned seed, bool normalise) {
  const size_t row = blockIdx.x * size_t{4} + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  float values[4], square = 0;
  for (int i = 0; i < 4; ++i) values[i] = normal(row * 128 + lane + 32 * i, seed), square += values[i] * values[i];
  for (int offset = 16; offset; offset /= 2) square += __shfl_xor_sync(~0u, square, offset);
  const float factor = normalise ? rsqrtf(square + 1e-6f) : 1.0f;
  for (int i = 0; i < 4; ++i) rows[row * 128 + lane + 32 * i] = __float2bfloat16(values[i] * factor);
}
__global__ void make_state(float* state, float size) {
  const size_t i = blockIdx.x * size_t{256} + threadIdx.x;
  state[i] = size * normal(i, 11);
}

// What the preparation kernel gives the scan, in plain FP32: log gate, beta, G, T' and P of one chunk and value head.
__global__ void prepare(const __nv_bfloat16* q, const __nv_bfloat16* k, float* log_gate, float* beta, float* gate, __nv_bfloat16* t,
                        __nv_bfloat16* p, int tokens, int key_heads, int heads_per_key) {
  __shared__ float g[64], b[64], lower[64][65];
  __shared__ alignas(16) __nv_bfloat16 keys[64][130];
  float* inverse = reinterpret_cast<float*>(keys);  // [64][64], once the keys are not needed any more
  const int chunk = blockIdx.x, head = blockIdx.y, i = threadIdx.x, key_head = head / heads_per_key;
  const size_t token = size_t(head) * tokens + chunk * 64 + i, tile = (size_t(head) * (tokens / 64) + chunk) * 4096;
  log_gate[token] = -0.05f * (0.2f + 1.6f * uniform(token, 7));
  beta[token] = b[i] = 0.2f + 0.6f * uniform(token, 9);
  for (int j = 0; j < 64; ++j)
    for (int d = i; d < 128; d += 64) keys[j][d] = k[(size_t(chunk * 64 + j) * key_heads + key_head) * 128 + d];
  __syncthreads();
  float sum = 0;
  for (int j = 0; j <= i; ++j) sum += log_gate[size_t(head) * tokens + chunk * 64 + j];
  gate[token] = g[i] = sum;
  __syncthreads();
  for (int row = 0; row < 64; ++row) {
    float kk = 0, qk = 0;
    const __nv_bfloat16* query = q + (size_t(chunk * 64 + row) * key_heads + key_head) * 128;
    for (int d = 0; d < 128 && i <= row; ++d) {
      const float key = __bfloat162float(keys[i][d]);
      kk += __bfloat162float(keys[row][d]) * key;
      qk += __bfloat162float(query[d]) * key;
    }
    lower[row][i] = i < row ? kk * b[row] * expf(g[row] - g[i]) : 0.0f;
    p[tile + row * 64 + i] = __float2bfloat16(i <= row ? qk * kScale * expf(g[row] - g[i]) : 0.0f);
  }
  __syncthreads();
  for (int row = 0; row < 64; ++row) {  // column i of (I + lower)^-1
    float value = row == i;
    for (int j = 0; j < row; ++j) value -= lower[row][j] * inverse[j * 64 + i];
    inverse[row * 64 + i] = value;
    t[tile + row * 64 + i] = __float2bfloat16(value * b[i]);
  }
}

struct Buffers {
  __nv_bfloat16 *q, *k, *v, *o, *t, *p;
  float *log_gate, *beta, *gate, *initial_state, *final_state;
};
static Buffers allocate(size_t tokens, size_t heads) {
  const size_t rows = tokens * heads;
  return {device_array<__nv_bfloat16>(rows * 128), device_array<__nv_bfloat16>(rows * 128), device_array<__nv_bfloat16>(rows * 128),
          device_array<__nv_bfloat16>(rows * 128), device_array<__nv_bfloat16>(rows * 64),  device_array<__nv_bfloat16>(rows * 64),
          device_array<float>(rows),               device_array<float>(rows),               device_array<float>(rows),
          device_array<float>(heads * 16384),      device_array<float>(heads * 16384)};
}
static void make_inputs(const Buffers& x, int tokens, int heads, int heads_per_key) {
  const int key_heads = heads / heads_per_key;
  make_rows<<<tokens * key_heads / 4, 128>>>(x.q, 1, true);
  make_rows<<<tokens * key_heads / 4, 128>>>(x.k, 2, true);
  make_rows<<<tokens * heads / 4, 128>>>(x.v, 3, false);
  make_state<<<heads * 64, 256>>>(x.initial_state, 0.5f);
  prepare<<<dim3(tokens / 64, heads), 64>>>(x.q, x.k, x.log_gate, x.beta, x.gate, x.t, x.p, tokens, key_heads, heads_per_key);
  check(cudaDeviceSynchronize(), "inputs");
}

static CUtensorMap rows_map(void* pointer, cuuint64_t tokens, cuuint64_t heads, cuuint32_t panels) {
  return tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, pointer, {64, tokens, 2 * heads}, {heads * 256, 128}, {64, 64, panels});
}
static Arguments arguments(const Program& program, const Buffers& x, int tokens, int heads, int heads_per_key, bool states) {
  const cuuint64_t n = tokens, key_heads = heads / heads_per_key, rows = n * heads;
  const cuuint32_t panels = program.panels;
  Arguments args;
  args.q = rows_map(x.q, n, key_heads, 2);
  args.k = rows_map(x.k, n, key_heads, 2);
  args.v = rows_map(x.v, n, heads, panels);
  args.o = rows_map(x.o, n, heads, panels);
  args.t = tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x.t, {64, rows}, {128}, {64, 64});
  args.p = tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x.p, {64, rows}, {128}, {64, 64});
  args.gate = x.gate;
  args.initial_state = states ? x.initial_state : nullptr;
  args.final_state = states ? x.final_state : nullptr;
  args.chunks = tokens / 64;
  args.heads_per_key = heads_per_key;
  args.scale = kScale;
  args.zero = 0;
  return args;
}
static void launch(const Program& program, const Arguments& args, int heads) {
  program.kernel<<<heads * (2 / program.panels), program.threads, program.shared_bytes>>>(args);
}

// ---- correctness

static bool check_program(const Program& program, const Buffers& x, int tokens, int heads, int heads_per_key, int repeats) {
  const int key_heads = heads / heads_per_key;
  const size_t outputs = size_t(tokens) * heads * 128, states = size_t(heads) * 16384;
  make_inputs(x, tokens, heads, heads_per_key);
  const Arguments args = arguments(program, x, tokens, heads, heads_per_key, true);
  std::vector<__nv_bfloat16> o;
  std::vector<float> s;
  bool equal = true;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    check(cudaMemset(x.o, 0xFF, outputs * 2), "poison o");
    check(cudaMemset(x.final_state, 0xFF, states * 4), "poison the state");
    launch(program, args, heads);
    check(cudaGetLastError(), program.name);
    check(cudaDeviceSynchronize(), program.name);
    const auto o_again = to_host(x.o, outputs);
    const auto s_again = to_host(x.final_state, states);
    if (repeat == 0) o = o_again, s = s_again;
    equal = equal && !std::memcmp(o.data(), o_again.data(), outputs * 2) && !std::memcmp(s.data(), s_again.data(), states * 4);
  }

  const size_t keys = size_t(tokens) * key_heads * 128;
  const auto q = to_host(x.q, keys), k = to_host(x.k, keys), v = to_host(x.v, outputs);
  const auto log_gate = to_host(x.log_gate, size_t(tokens) * heads), beta = to_host(x.beta, size_t(tokens) * heads);
  const auto initial = to_host(x.initial_state, states);
  double error2 = 0, value2 = 0, state_error2 = 0, state2 = 0, worst = 0;
  for (int head = 0; head < heads; ++head) {
    std::vector<double> state(initial.begin() + size_t(head) * 16384, initial.begin() + size_t(head + 1) * 16384);  // [V][K]
    double head_error2 = 0, head2 = 0;
    for (int token = 0; token < tokens; ++token) {
      const size_t key_row = (size_t(token) * key_heads + head / heads_per_key) * 128, value_row = (size_t(token) * heads + head) * 128;
      const double decay = std::exp(double(log_gate[size_t(head) * tokens + token])), b = beta[size_t(head) * tokens + token];
      double key[128], query[128];
      for (int d = 0; d < 128; ++d) key[d] = __bfloat162float(k[key_row + d]), query[d] = __bfloat162float(q[key_row + d]);
      for (int i = 0; i < 128; ++i) {
        double* row = &state[i * 128];
        double recalled = 0, out = 0;
        for (int d = 0; d < 128; ++d) row[d] *= decay, recalled += row[d] * key[d];
        const double update = b * (double(__bfloat162float(v[value_row + i])) - recalled);
        for (int d = 0; d < 128; ++d) row[d] += update * key[d], out += row[d] * query[d];
        const double error = double(__bfloat162float(o[value_row + i])) - out * kScale;
        head_error2 += error * error, head2 += out * out * double(kScale) * kScale;
      }
    }
    for (int i = 0; i < 16384; ++i) {
      const double error = s[size_t(head) * 16384 + i] - state[i];
      state_error2 += error * error, state2 += state[i] * state[i];
    }
    error2 += head_error2, value2 += head2;
    const double head_error = std::sqrt(head_error2 / head2);
    worst = head_error > worst || head_error != head_error ? head_error : worst;
  }
  const double output_error = std::sqrt(error2 / value2), state_error = std::sqrt(state_error2 / state2);
  const bool passed = worst < 0.006 && state_error < 0.006 && equal;
  std::printf("RESULT {\"check\": \"%s\", \"tokens\": %d, \"value_heads\": %d, \"heads_per_key\": %d, \"o_relative_rms\": %.5f, "
              "\"o_worst_head\": %.5f, \"state_relative_rms\": %.5f, \"repeats\": %d, \"repeats_bitwise_equal\": %s, \"passed\": %s}\n",
              program.name, tokens, heads, heads_per_key, output_error, worst, state_error, repeats, equal ? "true" : "false",
              passed ? "true" : "false");
  std::fflush(stdout);
  return passed;
}

// ---- time

// Slope of the launch time over the chunk count: least squares through the medians; what does not grow with it is the intercept.
static void time_programs(const Buffers& x, int panels, int blocks) {
  const int heads = blocks * panels / 2, heads_per_key = 2;
  const std::vector<int> chunk_counts = {128, 256, 384, 512};
  std::vector<const Program*> programs;
  for (const Program& program : kPrograms)
    if (program.panels == panels) programs.push_back(&program);
  std::vector<std::vector<double>> times(programs.size());
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  for (int chunks : chunk_counts) {
    make_inputs(x, chunks * 64, heads, heads_per_key);
    std::vector<std::vector<float>> samples(programs.size());
    for (int repeat = -3; repeat < 15; ++repeat) {  // 3 warm-ups; the programs take turns
      for (size_t i = 0; i < programs.size(); ++i) {
        const Arguments args = arguments(*programs[i], x, chunks * 64, heads, heads_per_key, false);
        cudaEventRecord(start);
        launch(*programs[i], args, heads);
        cudaEventRecord(stop);
        check(cudaEventSynchronize(stop), programs[i]->name);
        float milliseconds;
        cudaEventElapsedTime(&milliseconds, start, stop);
        if (repeat >= 0) samples[i].push_back(milliseconds * 1000);
      }
    }
    for (size_t i = 0; i < programs.size(); ++i) times[i].push_back(median(samples[i]));
  }
  const std::vector<double> counts(chunk_counts.begin(), chunk_counts.end());
  for (size_t i = 0; i < programs.size(); ++i) {
    const Line line = fit(counts, times[i]);
    std::printf("RESULT {\"time\": \"%s\", \"v\": %d, \"p\": \"%s\", \"blocks\": %d, \"us_per_chunk\": %.4f, \"intercept_us\": %.2f, "
                "\"r2\": %.6f, \"us_at_chunks\": {\"128\": %.2f, \"256\": %.2f, \"384\": %.2f, \"512\": %.2f}}\n",
                programs[i]->name, 64 * panels, programs[i]->load_p ? "loaded" : "in the scan", blocks, line.slope, line.intercept, line.r2,
                times[i][0], times[i][1], times[i][2], times[i][3]);
  }
  std::fflush(stdout);
}

int main(int count, char** values) {
  report_sources();
  const char* mode = count > 1 ? values[1] : "";
  const bool small = !std::strcmp(mode, "small"), only_check = !std::strcmp(mode, "check"), only_time = !std::strcmp(mode, "time");
  bool passed = true;
  for (const Program& program : kPrograms) {
    const int bytes = static_cast<int>(program.shared_bytes);
    check(cudaFuncSetAttribute(program.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, program.kernel), "attributes");
    std::printf("RESULT {\"program\": \"%s\", \"threads\": %d, \"registers\": %d, \"local_bytes\": %zu, \"shared_bytes\": %d}\n", program.name,
                program.threads, attributes.numRegs, attributes.localSizeBytes, bytes);
  }
  if (!only_time) {
    const Buffers x = allocate(small ? 192 : 1984, 4);
    for (const Program& program : kPrograms) {
      if (small) {
        passed = check_program(program, x, 192, 2, 2, 1) && passed;
        continue;
      }
      passed = check_program(program, x, 64, 2, 1, 20) && passed;
      passed = check_program(program, x, 512, 4, 2, 20) && passed;
      passed = check_program(program, x, 1984, 2, 1, 20) && passed;
    }
    std::printf("RESULT {\"check\": \"gdn_scan\", \"passed\": %s}\n", passed ? "true" : "false");
  }
  if (!small && !only_check) {
    const Buffers x = allocate(32768, 132);
    std::printf("RESULT {\"method\": \"least-squares slope of launch time over 128, 256, 384, 512 chunks; CUDA events, 3 warm-ups, "
                "median of 15, programs in turns, 2 value heads a key head, no states\"}\n");
    for (int panels : {1, 2})
      for (int blocks : {8, 32, 64, 132}) time_programs(x, panels, blocks);
  }
  return passed ? 0 : 1;
}

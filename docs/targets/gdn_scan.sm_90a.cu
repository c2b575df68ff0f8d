// gdn_scan: the chunked Gated DeltaNet forward scan, inner step. Per chunk of 64 tokens and value head, S [K, V] the entering state:
//
//   X    = V - diag(e^G) K S                     G: running sum of the log gates inside the chunk
//   Vnew = T' X                                  T' = (I + strict_lower(beta_i e^(G_i - G_j) k_i.k_j))^-1 diag(beta), prepared
//   O    = scale diag(e^G) Q S + P Vnew          P = lower(scale e^(G_i - G_j) q_i.k_j), computed here or prepared (kLoadP)
//   S    = e^(G_last) S + K^T diag(e^(G_last - G)) Vnew
//
// Roles: load (warpgroup 0, warp 0, one thread) and factors (warpgroup 0, warp 1); output (1 or 2 warpgroups); state (64 rows of
// V a warpgroup). The state stays transposed, S^T [V, K], in FP32 accumulators for the whole sequence and is fed back as the
// register operand of the next wgmma. Only the serial chain S^T K^T -> X^T -> X^T T'^T -> Vnew^T -> S^T runs in role state;
// BF16 copies of S^T and Vnew^T go to role output through shared memory, in the shadow of the chain's wgmmas.

#include "include/sm_90a.cuh"

// ---- constants

constexpr int kChunk = 64;                  // tokens
constexpr int kKey = 128;                   // K
constexpr int kPanelBytes = 8192;           // 64 rows of 128 bytes (64 BF16), 128-byte swizzle
constexpr int kKeyTileBytes = 16384;        // 64 tokens x 128, two panels
constexpr int kKeySteps = 8;                // wgmmas of K = 16 over the key width
constexpr int kChunkSteps = 4;              // wgmmas of K = 16 over the tokens of a chunk
constexpr int kGateBytes = 256;             // 64 FP32
constexpr int kOutputBarrier = 1;           // named barriers 1, 2 of the output warpgroups; 0 is __syncthreads
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kNever = -1e30f;            // 2^kNever is 0: the strict upper triangle of P
static_assert(kKeyTileBytes == kChunk * kKey * 2 && kPanelBytes == kChunk * 64 * 2, "BF16 has two bytes");
static_assert(kPanelBytes % 1024 == 0, "a 128-byte swizzle repeats every 1024 bytes");

template <int kPanels_, bool kLoadP_>
struct Config {
  static constexpr int kPanels = kPanels_;                        // 64-wide panels of V in a block: one state warpgroup each
  static constexpr bool kLoadP = kLoadP_;
  static constexpr int kValue = 64 * kPanels;
  static constexpr int kValueBytes = kPanels * kPanelBytes;       // one operand of [V, 64 tokens] or [64 tokens, V]
  static constexpr int kStateBytes = kPanels * kKeyTileBytes;     // S^T [V, 128]
  static constexpr int kOutputGroups = kPanels == 1 ? 2 : 1;      // two hide the series Q S, P Vnew, store; V = 128 has no registers left
  static constexpr int kStagesKQ = 3;
  static constexpr int kStagesVT = kPanels == 1 && !kLoadP ? 3 : 2;  // what shared memory leaves
  static constexpr int kBuffers = kPanels == 1 ? 2 : 1;           // of the published S^T and Vnew^T
  static constexpr bool kPublishTogether = kBuffers == 2;         // one barrier for both: role output starts later, waits once
  static constexpr bool kFetchAhead = kPanels == 1;               // V^T and e^G one chunk ahead: V = 128 has no registers for it
  static constexpr bool kQueryInRegisters = kPanels == 1;         // saves 16 KB of shared-memory reads where O leaves the registers
  static constexpr int kThreads = 128 * (1 + kOutputGroups + kPanels);
  static constexpr int kLoadRegisters = kPanels == 1 ? 40 : 32;   // 24 spill the coordinates of two rings
  static constexpr int kOutputRegisters = 136;
  static constexpr int kStateRegisters = kPanels == 1 ? 200 : 168;
  static constexpr int kLaunchRegisters = 128;
  static_assert(kLaunchRegisters * kThreads <= 65536, "one block owns the registers of an SM");
  static_assert(128 * (kLoadRegisters + kOutputGroups * kOutputRegisters + kPanels * kStateRegisters) <= kLaunchRegisters * kThreads,
                "budgets come from the launch count");
};

// Factors of a chunk, made once for all state warps.
struct alignas(16) Factors {
  float decay[kChunk];   // e^G
  float remain[kChunk];  // e^(G_last - G)
  float gamma;           // e^(G_last)
};

// ---- shared memory

template <class C, bool kLoadP = C::kLoadP>
struct Values {  // a stage of ring vt
  alignas(1024) unsigned char v[C::kValueBytes];
  alignas(1024) unsigned char t[kPanelBytes];
};
template <class C>
struct Values<C, true> {
  alignas(1024) unsigned char v[C::kValueBytes];
  alignas(1024) unsigned char t[kPanelBytes];
  alignas(1024) unsigned char p[kPanelBytes];
};

template <class C>
struct Shared {
  struct Keys {  // ring kq
    alignas(1024) unsigned char k[kKeyTileBytes];
    alignas(1024) unsigned char q[kKeyTileBytes];
  } kq[C::kStagesKQ];
  Values<C> vt[C::kStagesVT];                                      // ring vt
  alignas(1024) unsigned char state[C::kBuffers][C::kStateBytes];  // BF16 S^T: two panels of K, each [V][128 bytes]
  alignas(1024) unsigned char v_new[C::kBuffers][C::kValueBytes];  // BF16 Vnew^T: [V][128 bytes]
  alignas(1024) unsigned char o[C::kOutputGroups][C::kValueBytes];
  alignas(16) float gate[C::kStagesKQ][kChunk];                    // ring kq: G
  Factors factors[2];
  unsigned long long kq_full[C::kStagesKQ];      // 1 arrival (role load's elected thread) + 33024 bytes
  unsigned long long kq_empty[C::kStagesKQ];     // 4 a state warpgroup + 4 (the chunk's output warpgroup) + 1 (factors): one a warp
  unsigned long long vt_full[C::kStagesVT];      // 1 arrival (role load's elected thread) + the bytes of V, T' and P
  unsigned long long vt_empty[C::kStagesVT];     // 4 a state warpgroup (+ 4 of the output warpgroup with P): one a warp
  unsigned long long factors_full[2];            // 1 arrival (role factors): all inputs of the chunk are here, V and T' too
  unsigned long long factors_empty[2];           // 4 a state warpgroup: one a warp, ordinary loads
  unsigned long long state_full[C::kBuffers];    // 4 a state warpgroup: one a warp, ordinary stores; unused if published together
  unsigned long long state_empty[C::kBuffers];   // 4 (output warpgroup): one a warp; unused if published together
  unsigned long long v_new_full[C::kBuffers];    // 4 a state warpgroup: one a warp, ordinary stores
  unsigned long long v_new_empty[C::kBuffers];   // 4 (output warpgroup): one a warp
};

// One kernel parameter, so that the four programs share a signature. Maps are BF16, 128-byte swizzle.
struct Arguments {
  CUtensorMap q, k;            // [T, H, 128] as {64, T, 2 H}, box {64, 64, 2}
  CUtensorMap v, o;            // [T, HV, 128] as {64, T, 2 HV}, box {64, 64, panels}
  CUtensorMap t, p;            // [HV, T / 64, 64, 64] as {64, HV T}, box {64, 64}; p is used with kLoadP only
  const float* gate;           // G [HV, T]
  const float* initial_state;  // S^T [HV, 128 (V), 128 (K)] or null
  float* final_state;          // the same shape or null
  int chunks;                  // T / 64
  int heads_per_key;           // HV / H
  float scale;
  unsigned zero;               // 0, but only the host knows: see wait_after
};

// Which part of the problem this block computes.
struct Place {
  int key_head;
  int value_head;
  int panel;  // first 64-wide panel of V, 0 or 1
};

// ---- addressing

// Row and 16-byte chunk that a lane hands to ldmatrix or stmatrix for a 16 x 16 block in the order of a register A operand.
struct MatrixLane {
  int row;
  int chunk;
};
__device__ __forceinline__ MatrixLane matrix_lane(int warp, int lane) { return {16 * warp + lane % 16, lane / 16}; }

// Waits, but not before `values` exist: ptxas moves register arithmetic below a wait unless the wait depends on it.
template <int kCount>
__device__ __forceinline__ void wait_after(const unsigned (&values)[kCount], unsigned zero, unsigned long long& barrier, unsigned phase) {
  unsigned any = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) any ^= values[i];
  mbarrier_wait(barrier, phase ^ (any & zero));
}

// ---- role load

// Runs in one elected thread.
template <class C>
__device__ __forceinline__ void role_load(Shared<C>& shared, const Arguments& args, const Place& place) {
  auto kq = Ring<C::kStagesKQ>::producer();
  auto vt = Ring<C::kStagesVT>::producer();
  for (int chunk = 0; chunk < args.chunks; ++chunk) {
    const int index = place.value_head * args.chunks + chunk;
    auto& keys = shared.kq[kq.stage];
    unsigned long long& kq_full = shared.kq_full[kq.stage];
    mbarrier_wait(shared.kq_empty[kq.stage], kq.phase);
    mbarrier_arrive_expect_tx(kq_full, 2 * kKeyTileBytes + kGateBytes);
    tma_load_3d(keys.k, args.k, 0, chunk * kChunk, 2 * place.key_head, kq_full);
    tma_load_3d(keys.q, args.q, 0, chunk * kChunk, 2 * place.key_head, kq_full);
    bulk_load(shared.gate[kq.stage], args.gate + static_cast<long long>(index) * kChunk, kGateBytes, kq_full);
    kq.advance();

    auto& values = shared.vt[vt.stage];
    unsigned long long& vt_full = shared.vt_full[vt.stage];
    mbarrier_wait(shared.vt_empty[vt.stage], vt.phase);
    mbarrier_arrive_expect_tx(vt_full, C::kValueBytes + (C::kLoadP ? 2 : 1) * kPanelBytes);
    tma_load_3d(values.v, args.v, 0, chunk * kChunk, 2 * place.value_head + place.panel, vt_full);
    tma_load_2d(values.t, args.t, 0, index * kChunk, vt_full);
    if constexpr (C::kLoadP) tma_load_2d(values.p, args.p, 0, index * kChunk, vt_full);
    vt.advance();
  }
}

// ---- role factors

// Runs in one warp: each lane makes the factors of two tokens. Its arrival relays kq_full and vt_full, so that role state waits once.
template <class C>
__device__ __forceinline__ void role_factors(Shared<C>& shared, int chunks) {
  const int lane = threadIdx.x % 32;
  auto kq = Ring<C::kStagesKQ>::consumer();
  auto vt = Ring<C::kStagesVT>::consumer();
  auto out = Ring<2>::producer();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    Factors& factors = shared.factors[out.stage];
    mbarrier_wait(shared.kq_full[kq.stage], kq.phase);
    mbarrier_wait(shared.factors_empty[out.stage], out.phase);
    const float2 g = reinterpret_cast<const float2*>(shared.gate[kq.stage])[lane];
    const float last = shared.gate[kq.stage][kChunk - 1];
    reinterpret_cast<float2*>(factors.decay)[lane] = make_float2(exp2_approx(g.x * kLog2E), exp2_approx(g.y * kLog2E));
    reinterpret_cast<float2*>(factors.remain)[lane] =
        make_float2(exp2_approx((last - g.x) * kLog2E), exp2_approx((last - g.y) * kLog2E));
    if (lane == 0) factors.gamma = exp2_approx(last * kLog2E);
    __syncwarp();  // the warp's stores, before one lane arrives for it
    mbarrier_wait(shared.vt_full[vt.stage], vt.phase);
    if (lane == 0) {
      mbarrier_arrive(shared.factors_full[out.stage]);
      mbarrier_arrive(shared.kq_empty[kq.stage]);
    }
    kq.advance();
    vt.advance();
    out.advance();
  }
}

// ---- role output

// P in the layout of a register A operand from the scores Q K^T: scale, decay between the two tokens, causal mask.
__device__ __forceinline__ void mask_scores(unsigned (&p)[16], const float (&scores)[32], const float* gate, float scale, int row,
                                            int column) {
  const float upper = gate[row] * kLog2E;
  const float lower = gate[row + 8] * kLog2E;
#pragma unroll
  for (int block = 0; block < 8; ++block) {  // 8 columns each
    const int j = 8 * block + column;
    const float2 g = *reinterpret_cast<const float2*>(gate + j);
    const float x = g.x * kLog2E;
    const float y = g.y * kLog2E;
    const float* d = scores + 4 * block;
    p[2 * block] = pack_bf16(d[0] * scale * exp2_approx(j <= row ? upper - x : kNever),
                             d[1] * scale * exp2_approx(j + 1 <= row ? upper - y : kNever));
    p[2 * block + 1] = pack_bf16(d[2] * scale * exp2_approx(j <= row + 8 ? lower - x : kNever),
                                 d[3] * scale * exp2_approx(j + 1 <= row + 8 ? lower - y : kNever));
  }
}

// One wgmma over the V width of the block, A in registers.
template <class C>
__device__ __forceinline__ void wgmma_value_rs(float (&d)[32 * C::kPanels], const unsigned* a, unsigned long long b, bool accumulate) {
  if constexpr (C::kPanels == 1) wgmma_m64n64k16_bf16_rs(d, a, b, accumulate);
  else wgmma_m64n128k16_bf16_rs(d, a, b, accumulate);
}

// O = Q S over the key width; Q from registers where they are free. Issued, not waited for.
template <class C>
__device__ __forceinline__ void issue_query_state(float (&o)[32 * C::kPanels], const unsigned* q_registers,
                                                  unsigned long long q, unsigned long long state) {
  pin_registers(o);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kKeySteps; ++step) {
    const unsigned long long b = advance(state, k_step_bytes(step, C::kValueBytes));
    if constexpr (C::kQueryInRegisters) wgmma_value_rs<C>(o, q_registers + 4 * step, b, step > 0);
    else wgmma_m64n128k16_bf16_ss(o, advance(q, k_step_bytes(step, kPanelBytes)), b, step > 0);
  }
  wgmma_commit_group();
}

// Runs in all 128 threads of each output warpgroup; two of them take alternate chunks.
template <class C>
__device__ __forceinline__ void role_output(Shared<C>& shared, const Arguments& args, const Place& place, int group) {
  const int warp = warp_index() % 4;
  const int lane = threadIdx.x % 32;
  const int row = 16 * warp + lane / 4;   // accumulator fragment
  const int column = 2 * (lane % 4);
  const bool leader = warp == 0 && elect_one();  // always the same thread: bulk groups belong to a thread
  const MatrixLane matrix = matrix_lane(warp, lane);
  auto kq = Ring<C::kStagesKQ>::consumer(group);
  auto vt = Ring<C::kStagesVT>::consumer(group);
  auto buffer = Ring<C::kBuffers>::consumer(group);

  for (int chunk = group; chunk < args.chunks; chunk += C::kOutputGroups) {
    const unsigned long long q = descriptor_k_major(smem_address(shared.kq[kq.stage].q));
    const unsigned long long state = descriptor_k_major(smem_address(shared.state[buffer.stage]));
    const unsigned long long v_new = descriptor_k_major(smem_address(shared.v_new[buffer.stage]));
    const float* gate = shared.gate[kq.stage];
    float o[32 * C::kPanels];
    unsigned p[16];
    unsigned q_registers[C::kQueryInRegisters ? 32 : 1];

    mbarrier_wait(shared.kq_full[kq.stage], kq.phase);
    if constexpr (C::kQueryInRegisters) {
#pragma unroll
      for (int step = 0; step < kKeySteps; ++step) {
        ldmatrix_x4(q_registers + 4 * step,
                    shared.kq[kq.stage].q + step / 4 * kPanelBytes + swizzle_128(matrix.row, step % 4 * 2 + matrix.chunk));
      }
    }

    if constexpr (C::kLoadP) {
      mbarrier_wait(shared.vt_full[vt.stage], vt.phase);
#pragma unroll
      for (int step = 0; step < kChunkSteps; ++step) {
        ldmatrix_x4(p + 4 * step, shared.vt[vt.stage].p + swizzle_128(matrix.row, 2 * step + matrix.chunk));
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(shared.vt_empty[vt.stage]);
      if constexpr (C::kPublishTogether) mbarrier_wait(shared.v_new_full[buffer.stage], buffer.phase);
      else mbarrier_wait(shared.state_full[buffer.stage], buffer.phase);
      issue_query_state<C>(o, q_registers, q, state);
    } else {
      const unsigned long long k = descriptor_k_major(smem_address(shared.kq[kq.stage].k));
      float scores[32];
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kKeySteps; ++step) {
        const unsigned long long b = advance(k, k_step_bytes(step, kPanelBytes));
        if constexpr (C::kQueryInRegisters) wgmma_m64n64k16_bf16_rs(scores, q_registers + 4 * step, b, step > 0);
        else wgmma_m64n64k16_bf16_ss(scores, advance(q, k_step_bytes(step, kPanelBytes)), b, step > 0);
      }
      wgmma_commit_group();
      if constexpr (C::kPublishTogether) {
        wgmma_wait_group<0>();
        pin_registers(scores);
        mask_scores(p, scores, gate, args.scale, row, column);
        pin_registers(p);
        wait_after(p, args.zero, shared.v_new_full[buffer.stage], buffer.phase);
        issue_query_state<C>(o, q_registers, q, state);
      } else {  // S^T of this chunk is published early: Q S runs under the arithmetic of P
        mbarrier_wait(shared.state_full[buffer.stage], buffer.phase);
        issue_query_state<C>(o, q_registers, q, state);
        wgmma_wait_group<1>();
        pin_registers(scores);
        mask_scores(p, scores, gate, args.scale, row, column);
      }
    }
    pin_registers(p);

    const float decay_upper = args.scale * exp2_approx(gate[row] * kLog2E);
    const float decay_lower = args.scale * exp2_approx(gate[row + 8] * kLog2E);
    wgmma_wait_group<0>();
    pin_registers(o);
    __syncwarp();  // the warp's own loads of Q and of the gates, before one lane arrives for it
    if (lane == 0) {
      mbarrier_arrive(shared.kq_empty[kq.stage]);
      if constexpr (!C::kPublishTogether) mbarrier_arrive(shared.state_empty[buffer.stage]);
    }
#pragma unroll
    for (int d = 0; d < 32 * C::kPanels; ++d) o[d] *= d / 2 % 2 ? decay_lower : decay_upper;

    if constexpr (!C::kPublishTogether) mbarrier_wait(shared.v_new_full[buffer.stage], buffer.phase);
    pin_registers(o);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) wgmma_value_rs<C>(o, p + 4 * step, advance(v_new, 32 * step), true);
    wgmma_commit_group();
    if (leader) bulk_wait_group_read<0>();  // the previous store has left the staging tile
    named_barrier_sync<128>(kOutputBarrier + group);
    wgmma_wait_group<0>();
    pin_registers(o);
    if (lane == 0) mbarrier_arrive(shared.v_new_empty[buffer.stage]);

#pragma unroll
    for (int block = 0; block < 4 * C::kPanels; ++block) {  // 16 columns each
      const float* d = o + 8 * block;
      stmatrix_x4(shared.o[group] + block / 4 * kPanelBytes + swizzle_128(matrix.row, block % 4 * 2 + matrix.chunk),
                  pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]), pack_bf16(d[6], d[7]));
    }
    fence_proxy_async();  // the stores above are ordinary ones, TMA reads them
    named_barrier_sync<128>(kOutputBarrier + group);
    if (leader) {
      tma_store_3d(args.o, shared.o[group], 0, chunk * kChunk, 2 * place.value_head + place.panel);
      bulk_commit_group();
    }
    kq.advance(C::kOutputGroups);
    vt.advance(C::kOutputGroups);
    buffer.advance(C::kOutputGroups);
  }
  if (leader) bulk_wait_group_read<0>();  // shared memory must outlive the reads of the store
}

// ---- role state

// V^T of a chunk in accumulator layout, as BF16 pairs of adjacent tokens.
__device__ __forceinline__ void fetch_values(unsigned (&pairs)[16], const unsigned char* v, int warp, int lane) {
  const int token = lane % 8 + 8 * (lane / 16);
  const int chunk = 2 * warp + lane / 8 % 2;  // 8 columns of V each
#pragma unroll
  for (int block = 0; block < 4; ++block) {  // 16 tokens each
    ldmatrix_x4_transposed(pairs + 4 * block, v + 16 * 128 * block + swizzle_128(token, chunk));
  }
}

// The factors of the tokens that a thread's accumulator registers hold: two of each 8.
__device__ __forceinline__ void fetch_factors(float2 (&pairs)[8], const float* factors, int column) {
#pragma unroll
  for (int block = 0; block < 8; ++block) pairs[block] = *reinterpret_cast<const float2*>(factors + 8 * block + column);
}

// S^T in FP32 -> the register A operand of S^T K^T.
__device__ __forceinline__ void pack_state(unsigned (&a)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) a[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

// Runs in all 128 threads of each state warpgroup: 64 rows of V each. No wgmma group is in flight over the loop's back edge
// (ptxas would serialise them all), and X and the scaled Vnew share registers (each register operand array gets its own).
template <class C>
__device__ __forceinline__ void role_state(Shared<C>& shared, const Arguments& args, const Place& place, int group) {
  const int warp = warp_index() % 4;
  const int lane = threadIdx.x % 32;
  const int column = 2 * (lane % 4);  // accumulator fragment
  const MatrixLane matrix = matrix_lane(warp, lane);
  const int matrix_row = 64 * group + matrix.row;  // row of V in the block
  const long long fragment =  // of S^T in the state tensors: row of V, then column of K
      (static_cast<long long>(place.value_head) * kKey + 64 * (place.panel + group) + 16 * warp + lane / 4) * kKey + column;

  float s[64];         // S^T [64, 128]
  float y[32];         // S^T K^T, then Vnew^T [64, 64]
  unsigned a[32];      // BF16 S^T
  unsigned x[16];      // BF16 X^T, then the scaled Vnew^T
  unsigned values[16];  // V^T of this chunk
  float2 factors[8];
#pragma unroll
  for (int d = 0; d < 64; ++d) {
    s[d] = args.initial_state ? args.initial_state[fragment + d / 2 % 2 * 8 * kKey + 8 * (d / 4) + d % 2] : 0.0f;
  }
  pack_state(a, s);

  auto kq = Ring<C::kStagesKQ>::consumer();
  auto vt = Ring<C::kStagesVT>::consumer();
  auto input = Ring<2>::consumer();            // factors
  auto publish = Ring<C::kBuffers>::producer();
  mbarrier_wait(shared.factors_full[0], 0);
  if constexpr (C::kFetchAhead) {
    fetch_values(values, shared.vt[0].v + group * kPanelBytes, warp, lane);
    fetch_factors(factors, shared.factors[0].decay, column);
  }

  for (int chunk = 0; chunk < args.chunks; ++chunk) {
    const unsigned long long k = descriptor_k_major(smem_address(shared.kq[kq.stage].k));
    const unsigned long long k_transposed = descriptor_mn_major(smem_address(shared.kq[kq.stage].k), kPanelBytes);
    const unsigned long long t = descriptor_k_major(smem_address(shared.vt[vt.stage].t));
    const Factors& current = shared.factors[input.stage];
    unsigned char* state = shared.state[publish.stage];
    unsigned char* v_new = shared.v_new[publish.stage];

    // Y^T = S^T K^T; in its shadow, S^T for role output
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      wgmma_m64n64k16_bf16_rs(y, a + 4 * step, advance(k, k_step_bytes(step, kPanelBytes)), step > 0);
    }
    wgmma_commit_group();
    if constexpr (!C::kFetchAhead) fetch_values(values, shared.vt[vt.stage].v + group * kPanelBytes, warp, lane);
    if constexpr (!C::kPublishTogether) mbarrier_wait(shared.state_empty[publish.stage], publish.phase);
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      stmatrix_x4(state + step / 4 * C::kValueBytes + swizzle_128(matrix_row, step % 4 * 2 + matrix.chunk), a[4 * step],
                  a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]);
    }
    wgmma_wait_group<0>();
    pin_registers(y);
    pin_registers(a);

    // X^T = V^T - Y^T diag(e^G)
    if constexpr (!C::kFetchAhead) fetch_factors(factors, current.decay, column);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float2 decay = factors[i / 2];
      x[i] = pack_bf16(fmaf(-decay.x, y[2 * i], bf16_low(values[i])), fmaf(-decay.y, y[2 * i + 1], bf16_high(values[i])));
    }
    pin_registers(x);
    pin_registers(y);

    // Vnew^T = X^T T'^T; in its shadow, e^(G_last) S^T
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      wgmma_m64n64k16_bf16_rs(y, x + 4 * step, advance(t, 32 * step), step > 0);
    }
    wgmma_commit_group();
    if constexpr (!C::kPublishTogether) {
      fence_proxy_async();  // S^T was written by ordinary stores, wgmma reads it
      __syncwarp();
      if (lane == 0) mbarrier_arrive(shared.state_full[publish.stage]);
    }
    const float gamma = current.gamma;
    if constexpr (C::kFetchAhead) fetch_factors(factors, current.remain, column);
#pragma unroll
    for (int d = 0; d < 64; ++d) s[d] *= gamma;
    pin_registers(s);
    wgmma_wait_group<0>();
    pin_registers(y);
    pin_registers(x);

    // S^T += (Vnew^T diag(e^(G_last - G))) K; in its shadow, Vnew^T for role output and the next chunk's V^T and e^G
    if constexpr (!C::kFetchAhead) fetch_factors(factors, current.remain, column);
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = pack_bf16(factors[i / 2].x * y[2 * i], factors[i / 2].y * y[2 * i + 1]);
    pin_registers(x);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      wgmma_m64n128k16_bf16_rs<1>(s, x + 4 * step, advance(k_transposed, 16 * 128 * step), true);
    }
    wgmma_commit_group();
    if constexpr (!C::kPublishTogether) mbarrier_wait(shared.v_new_empty[publish.stage], publish.phase);
#pragma unroll
    for (int block = 0; block < 4; ++block) {  // 16 tokens each
      const float* d = y + 8 * block;
      stmatrix_x4(v_new + swizzle_128(matrix_row, 2 * block + matrix.chunk), pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]),
                  pack_bf16(d[4], d[5]), pack_bf16(d[6], d[7]));
    }
    fence_proxy_async();  // Vnew^T, and S^T if published together, were written by ordinary stores, wgmma reads them
    __syncwarp();
    if (lane == 0) {
      mbarrier_arrive(shared.v_new_full[publish.stage]);
      mbarrier_arrive(shared.vt_empty[vt.stage]);
      mbarrier_arrive(shared.factors_empty[input.stage]);
    }
    const int read_stage = kq.stage;  // K is read until the wait below
    kq.advance();
    vt.advance();
    input.advance();
    publish.advance();
    // Role output is done with the next buffer; also after the last chunk, or its phase would be two ahead and a parity ambiguous.
    if constexpr (C::kPublishTogether) mbarrier_wait(shared.v_new_empty[publish.stage], publish.phase);
    if (chunk + 1 < args.chunks) {
      mbarrier_wait(shared.factors_full[input.stage], input.phase);
      if constexpr (C::kFetchAhead) {
        fetch_values(values, shared.vt[vt.stage].v + group * kPanelBytes, warp, lane);
        fetch_factors(factors, shared.factors[input.stage].decay, column);
      }
    }
    wgmma_wait_group<0>();
    pin_registers(s);
    pin_registers(x);
    if (lane == 0) mbarrier_arrive(shared.kq_empty[read_stage]);
    pack_state(a, s);
    pin_registers(a);
  }

  if (args.final_state) {
#pragma unroll
    for (int d = 0; d < 64; ++d) args.final_state[fragment + d / 2 % 2 * 8 * kKey + 8 * (d / 4) + d % 2] = s[d];
  }
}

// ---- kernel: blocks = value heads x (2 / panels), C::kThreads threads, sizeof(Shared<C>) bytes of dynamic shared memory

template <class C>
__device__ __forceinline__ void init_barriers(Shared<C>& shared) {
  constexpr int kStateWarps = 4 * C::kPanels;
  constexpr int kOutputWarps = 4;
  for (int stage = 0; stage < C::kStagesKQ; ++stage) {
    mbarrier_init(shared.kq_full[stage], 1);
    mbarrier_init(shared.kq_empty[stage], kStateWarps + kOutputWarps + 1);
  }
  for (int stage = 0; stage < C::kStagesVT; ++stage) {
    mbarrier_init(shared.vt_full[stage], 1);
    mbarrier_init(shared.vt_empty[stage], kStateWarps + (C::kLoadP ? kOutputWarps : 0));
  }
  for (int stage = 0; stage < 2; ++stage) {
    mbarrier_init(shared.factors_full[stage], 1);
    mbarrier_init(shared.factors_empty[stage], kStateWarps);
  }
  for (int buffer = 0; buffer < C::kBuffers; ++buffer) {
    mbarrier_init(shared.state_full[buffer], kStateWarps);
    mbarrier_init(shared.state_empty[buffer], kOutputWarps);
    mbarrier_init(shared.v_new_full[buffer], kStateWarps);
    mbarrier_init(shared.v_new_empty[buffer], kOutputWarps);
  }
  fence_mbarrier_init();
  fence_proxy_async();  // TMA signals some of them
}

template <class C>
__device__ __forceinline__ void gdn_scan(const Arguments& args) {
  static_assert(sizeof(Shared<C>) <= kSharedLimit, "shared memory of a block");
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(shared_bytes);
  const int warp = warp_index();
  const int warpgroup = warp / 4;
  constexpr int kBlocksPerHead = 2 / C::kPanels;
  const int value_head = static_cast<int>(blockIdx.x) / kBlocksPerHead;
  const Place place = {value_head / args.heads_per_key, value_head, static_cast<int>(blockIdx.x) % kBlocksPerHead * C::kPanels};

  if (warp == 0 && elect_one()) init_barriers(shared);
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kLoadRegisters>();
    if (warp == 0) {
      if (elect_one()) role_load(shared, args, place);
    } else if (warp == 1) {
      role_factors(shared, args.chunks);
    }
  } else if (warpgroup <= C::kOutputGroups) {
    setmaxnreg_inc<C::kOutputRegisters>();
    role_output(shared, args, place, warpgroup - 1);
  } else {
    setmaxnreg_inc<C::kStateRegisters>();
    role_state(shared, args, place, warpgroup - 1 - C::kOutputGroups);
  }
}

using V64 = Config<1, false>;
using V128 = Config<2, false>;
using V64LoadP = Config<1, true>;
using V128LoadP = Config<2, true>;

extern "C" __global__ void __launch_bounds__(V64::kThreads, 1) gdn_scan_v64(const __grid_constant__ Arguments args) {
  gdn_scan<V64>(args);
}
extern "C" __global__ void __launch_bounds__(V128::kThreads, 1) gdn_scan_v128(const __grid_constant__ Arguments args) {
  gdn_scan<V128>(args);
}
extern "C" __global__ void __launch_bounds__(V64LoadP::kThreads, 1) gdn_scan_v64_load_p(const __grid_constant__ Arguments args) {
  gdn_scan<V64LoadP>(args);
}
extern "C" __global__ void __launch_bounds__(V128LoadP::kThreads, 1) gdn_scan_v128_load_p(const __grid_constant__ Arguments args) {
  gdn_scan<V128LoadP>(args);
}

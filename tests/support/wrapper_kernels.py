"""Tiny kernels that call every wrapper of the instruction table once, so that a compiler sees each of them."""

from __future__ import annotations

from collections.abc import Iterable

from kernwright.generator.instructions import Instruction

PRELUDE = """
#include <cuda.h>
#include <cuda_bf16.h>
"""

# Name of an entry -> body of a kernel with the parameters below; `words` and `floats` are global memory, `tile` and `bar` shared.
PARAMETERS = (
    "unsigned* words, float* floats, const __nv_bfloat16* halves, __nv_bfloat16* target, "
    "const __grid_constant__ CUtensorMap map"
)
SHARED = """  __shared__ __align__(1024) unsigned char tile[8192];
  __shared__ unsigned long long bar;
  __shared__ unsigned cell;
"""

_WGMMA = """float d[{n}] = {{}};
  unsigned a[4] = {{words[0], words[1], words[2], words[3]}};
  {call}
  asm volatile("wgmma.commit_group.sync.aligned;\\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {n}; ++i) floats[{n} * threadIdx.x + i] = d[i];"""
_DESCRIPTOR = "static_cast<unsigned long long>(words[4])"


def _product(name: str, registers: int) -> str:
    first = f"{_DESCRIPTOR}" if name.endswith("ss") else "a"
    return _WGMMA.format(n=registers, call=f"{name}(d, {first}, {_DESCRIPTOR}, words[5] != 0);")


# Shared memory that is written before a load and read after a store: the compiler would drop accesses without an effect.
FILL = "tile[threadIdx.x] = words[threadIdx.x];\n  __syncthreads();\n  "
SHOW = "\n  __syncthreads();\n  words[threadIdx.x] = tile[127 - threadIdx.x];"

CALLS = {
    "exp2_approx": "floats[threadIdx.x] = exp2_approx(floats[threadIdx.x]);",
    "reciprocal_approx": "floats[threadIdx.x] = reciprocal_approx(floats[threadIdx.x]);",
    "rsqrt_approx": "floats[threadIdx.x] = rsqrt_approx(floats[threadIdx.x]);",
    "sum_over_lanes": "floats[threadIdx.x] = sum_over_lanes<16>(floats[threadIdx.x]);",
    "load_bf16x8": "load_bf16x8(halves + 8 * threadIdx.x, *reinterpret_cast<float(*)[8]>(floats + 8 * threadIdx.x));",
    "load_f32x8": "load_f32x8(reinterpret_cast<const float*>(halves) + 8 * threadIdx.x, "
    "*reinterpret_cast<float(*)[8]>(floats + 8 * threadIdx.x));",
    "store_bf16x8": "store_bf16x8(target + 8 * threadIdx.x, *reinterpret_cast<float(*)[8]>(floats + 8 * threadIdx.x));",
    "smem_address": "words[0] = smem_address(tile);",
    "warp_index": "words[warp_index()] = 1;",
    "elect_one": "if (elect_one()) words[0] = 1;",
    "named_barrier_sync": "named_barrier_sync<128>(1);",
    "mbarrier_init": "mbarrier_init(bar, 3);",
    "fence_mbarrier_init": "fence_mbarrier_init();",
    "mbarrier_arrive": "mbarrier_arrive(bar);",
    "mbarrier_arrive_expect_tx": "mbarrier_arrive_expect_tx(bar, 1024);",
    "mbarrier_wait": "mbarrier_wait(bar, words[0]);",
    "fence_proxy_async": "fence_proxy_async();",
    "setmaxnreg_dec": "setmaxnreg_dec<40>();",
    "setmaxnreg_inc": "setmaxnreg_inc<136>();",
    "bulk_load": "bulk_load(tile, halves, 256, bar);",
    "bulk_commit_group": "bulk_commit_group();",
    "bulk_wait_group_read": "bulk_wait_group_read<0>();",
    "swizzle_128": "words[0] = swizzle_128(words[1], words[2]);",
    "ldmatrix_x4": "ldmatrix_x4(words + 4 * threadIdx.x, tile + 16 * threadIdx.x);",
    "ldmatrix_x4_transposed": "ldmatrix_x4_transposed(words + 4 * threadIdx.x, tile + 16 * threadIdx.x);",
    "stmatrix_x4": "stmatrix_x4(tile + 16 * threadIdx.x, words[0], words[1], words[2], words[3]);",
    "pack_bf16": "words[0] = pack_bf16(floats[0], floats[1]);",
    "bf16_low": "floats[0] = bf16_low(words[0]);",
    "bf16_high": "floats[0] = bf16_high(words[0]);",
    "wgmma_fence": "wgmma_fence();",
    "wgmma_commit_group": "wgmma_commit_group();",
    "wgmma_wait_group": "wgmma_wait_group<0>();",
    "pin_registers": "float r[2] = {floats[0], floats[1]};\n  pin_registers(r);\n  floats[2] = r[0] + r[1];",
    "tcgen05_alloc": "tcgen05_alloc<64>(cell);",
    "tcgen05_relinquish": "tcgen05_relinquish();",
    "tcgen05_dealloc": "tcgen05_dealloc<64>(words[0]);",
    "tcgen05_fence_before": "tcgen05_fence_before();",
    "tcgen05_fence_after": "tcgen05_fence_after();",
    "tcgen05_mma_f16_ss": f"tcgen05_mma_f16_ss(words[0], {_DESCRIPTOR}, {_DESCRIPTOR}, 0x08100490u, words[5] != 0);",
    "tcgen05_mma_f16_ts": f"tcgen05_mma_f16_ts(words[0], words[1], {_DESCRIPTOR}, 0x08100490u, words[5] != 0);",
    "tcgen05_commit": "tcgen05_commit(bar);",
    "tcgen05_wait_st": "tcgen05_wait_st();",
    "matrix_descriptor": f"*reinterpret_cast<unsigned long long*>(words) = matrix_descriptor({_DESCRIPTOR}, words[2]);",
    "advance": f"*reinterpret_cast<unsigned long long*>(words) = advance({_DESCRIPTOR}, 32);",
    "mbarrier_wait_after": "unsigned r[2] = {words[0], words[1]};\n  mbarrier_wait_after(r, bar, words[2]);",
    "Ring": "Ring<3> ring = Ring<3>::consumer();\n  ring.advance(words[0]);\n  words[1] = ring.stage + ring.phase;",
    "bulk_prefetch_l2": "bulk_prefetch_l2(halves, 256);",
    "prefetch_tensor_map": "prefetch_tensor_map(map);",
    "swizzle_64": "words[0] = swizzle_64(words[1], words[2]);",
    "swizzle_32": "words[0] = swizzle_32(words[1], words[2]);",
    "load_shared_f32x2": FILL + "load_shared_f32x2(floats, reinterpret_cast<float*>(tile) + 2 * threadIdx.x);",
    "load_shared_f32x4": FILL + "load_shared_f32x4(floats, reinterpret_cast<float*>(tile) + 4 * threadIdx.x);",
    "store_shared_f32x2": "store_shared_f32x2(tile + 8 * threadIdx.x, floats[0], floats[1]);" + SHOW,
    "store_shared_f32x4": "store_shared_f32x4(tile + 16 * threadIdx.x, floats[0], floats[1], floats[2], floats[3]);"
    + SHOW,
    "store_shared_b32x4": "store_shared_b32x4(tile + 16 * threadIdx.x, words[0], words[1], words[2], words[3]);" + SHOW,
    "load_global_f32x2": "load_global_f32x2(floats, floats + 2 * threadIdx.x);",
    "store_global_f32x2": "store_global_f32x2(floats + 2 * threadIdx.x, floats[0], floats[1]);",
}
for _n in range(8, 257, 8):
    CALLS |= {
        f"wgmma_m64n{_n}k16_bf16_{kind}": _product(f"wgmma_m64n{_n}k16_bf16_{kind}", _n // 2) for kind in ("ss", "rs")
    }
for _rank in range(1, 6):
    _place = ", ".join(str(i) for i in range(_rank))
    CALLS[f"tma_load_{_rank}d"] = f"tma_load_{_rank}d(tile, map, {_place}, bar);"
    CALLS[f"tma_store_{_rank}d"] = f"tma_store_{_rank}d(map, tile, {_place});"
for _n in (8, 16, 32, 64):
    CALLS[f"tcgen05_ld_32x32b_x{_n}"] = (
        f"float r[{_n}];\n  tcgen05_ld_32x32b_x{_n}(r, words[0]);\n"
        f"  for (int i = 0; i < {_n}; ++i) floats[{_n} * threadIdx.x + i] = r[i];"
    )
    CALLS[f"tcgen05_st_32x32b_x{_n}"] = (
        f"float r[{_n}];\n  for (int i = 0; i < {_n}; ++i) r[i] = floats[{_n} * threadIdx.x + i];\n"
        f"  tcgen05_st_32x32b_x{_n}(words[0], r);"
    )


def source_text(entries: Iterable[Instruction]) -> str:
    """A .cu file with the wrappers of `entries` in the table's order, then one kernel for each of them."""
    chosen = tuple(entries)
    head = 'extern "C" __global__ void __launch_bounds__(128, 1)'
    kernels = [f"{head} call_{entry.name}({PARAMETERS}) {{\n{SHARED}  {CALLS[entry.name]}\n}}\n" for entry in chosen]
    # Shared variables that a kernel does not use are no fault of a wrapper.
    quiet = "#pragma nv_diag_suppress 177\n"
    return "\n".join([PRELUDE, quiet, *(entry.cuda + "\n" for entry in chosen), *kernels])

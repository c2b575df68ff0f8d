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
    "tma_load_2d": "tma_load_2d(tile, map, 0, 1, bar);",
    "tma_load_3d": "tma_load_3d(tile, map, 0, 1, 2, bar);",
    "bulk_load": "bulk_load(tile, halves, 256, bar);",
    "tma_store_2d": "tma_store_2d(map, tile, 0, 1);",
    "tma_store_3d": "tma_store_3d(map, tile, 0, 1, 2);",
    "bulk_commit_group": "bulk_commit_group();",
    "bulk_wait_group_read": "bulk_wait_group_read<0>();",
    "swizzle_128": "words[0] = swizzle_128(words[1], words[2]);",
    "ldmatrix_x4": "ldmatrix_x4(words + 4 * threadIdx.x, tile + 16 * threadIdx.x);",
    "ldmatrix_x4_transposed": "ldmatrix_x4_transposed(words + 4 * threadIdx.x, tile + 16 * threadIdx.x);",
    "stmatrix_x4": "stmatrix_x4(tile + 16 * threadIdx.x, words[0], words[1], words[2], words[3]);",
    "pack_bf16": "words[0] = pack_bf16(floats[0], floats[1]);",
    "bf16_low": "floats[0] = bf16_low(words[0]);",
    "bf16_high": "floats[0] = bf16_high(words[0]);",
    "wgmma_descriptor_k_major": "*reinterpret_cast<unsigned long long*>(words) = wgmma_descriptor_k_major(words[2]);",
    "wgmma_descriptor_mn_major": "*reinterpret_cast<unsigned long long*>(words) = wgmma_descriptor_mn_major(words[2], 8192);",
    "wgmma_fence": "wgmma_fence();",
    "wgmma_commit_group": "wgmma_commit_group();",
    "wgmma_wait_group": "wgmma_wait_group<0>();",
    "pin_registers": "float r[2] = {floats[0], floats[1]};\n  pin_registers(r);\n  floats[2] = r[0] + r[1];",
    "wgmma_m64n64k16_bf16_ss": _product("wgmma_m64n64k16_bf16_ss", 32),
    "wgmma_m64n64k16_bf16_rs": _product("wgmma_m64n64k16_bf16_rs", 32),
    "wgmma_m64n128k16_bf16_ss": _product("wgmma_m64n128k16_bf16_ss", 64),
    "wgmma_m64n128k16_bf16_rs": _product("wgmma_m64n128k16_bf16_rs<1>", 64),
    "tcgen05_descriptor_k_major": "*reinterpret_cast<unsigned long long*>(words) = tcgen05_descriptor_k_major(words[2]);",
    "instruction_descriptor_bf16": "words[0] = instruction_descriptor_bf16(words[1], words[2]);",
    "tcgen05_alloc": "tcgen05_alloc<64>(cell);",
    "tcgen05_relinquish": "tcgen05_relinquish();",
    "tcgen05_dealloc": "tcgen05_dealloc<64>(words[0]);",
    "tcgen05_ld_32x32b_x16": (
        "float r[16];\n  tcgen05_ld_32x32b_x16(r, words[0]);\n"
        "  for (int i = 0; i < 16; ++i) floats[16 * threadIdx.x + i] = r[i];"
    ),
    "tcgen05_fence_before": "tcgen05_fence_before();",
    "tcgen05_fence_after": "tcgen05_fence_after();",
    "tcgen05_mma_f16_ss": f"tcgen05_mma_f16_ss(words[0], {_DESCRIPTOR}, {_DESCRIPTOR}, 0x08100490u, words[5] != 0);",
    "tcgen05_commit": "tcgen05_commit(bar);",
}


def source_text(entries: Iterable[Instruction]) -> str:
    """A .cu file with the wrappers of `entries` in the table's order, then one kernel for each of them."""
    chosen = tuple(entries)
    head = 'extern "C" __global__ void __launch_bounds__(128, 4)'
    kernels = [f"{head} call_{entry.name}({PARAMETERS}) {{\n{SHARED}  {CALLS[entry.name]}\n}}\n" for entry in chosen]
    # Shared variables that a kernel does not use are no fault of a wrapper.
    quiet = "#pragma nv_diag_suppress 177\n"
    return "\n".join([PRELUDE, quiet, *(entry.cuda + "\n" for entry in chosen), *kernels])

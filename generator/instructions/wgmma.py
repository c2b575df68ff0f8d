"""wgmma: products of a warpgroup, with accumulators in its registers. Exists on sm_90a alone.

The four warps execute every one of these together, warp ranks aligned to four. Operands in shared memory are read through the
asynchronous proxy; what TMA wrote needs the mbarrier wait alone, what ordinary stores wrote a proxy fence and a barrier. From the
issue to the wait for its group neither accumulators nor register operands may be touched, not even read. The completion of a group
includes its shared-memory reads, so a stage can be released after the wait. Source: PTX ISA, asynchronous warpgroup-level matrix
instructions and their descriptors.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.arch import Feature
from kernwright.generator.instructions.table import Confirmed, Effects, instruction
from kernwright.generator.ir.types import u64

_PRODUCT = Effects(
    reads=("shared", "registers"),
    writes=("registers",),
    proxy="async",
    completion="wgmma group",
    collective="warpgroup",
)


@instruction(
    ptx=("shr.u32", "and.b32", "or.b64"),
    result=u64,
    needs=(Feature.WGMMA,),
    header="sm_90a",
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Descriptor of a K-major operand, 128-byte swizzle: 8 rows repeat every 1024 bytes, the leading byte offset is unused and encoded
// as 1. The address field is masked here, after all additions to the address.
__device__ __forceinline__ constexpr unsigned long long wgmma_descriptor_k_major(unsigned address) {
  return 0x4000004000010000ull | (address >> 4 & 0x3FFF);
}
""",
)
def wgmma_descriptor_k_major(address: Any) -> Any:
    """Descriptor of a K-major operand with 128-byte swizzle at a shared-window address; rows of 128 bytes lie 128 apart."""
    import numpy as np

    return np.uint64(1 << 62 | 64 << 32 | 1 << 16) | np.asarray(address, np.uint64) >> np.uint64(4) & np.uint64(0x3FFF)


@instruction(
    ptx=("shr.u32", "and.b32", "or.b64"),
    result=u64,
    needs=(Feature.WGMMA,),
    header="sm_90a",
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Descriptor of an MN-major operand, 128-byte swizzle, panels of 64 elements: the next panel is panel_bytes on (the leading byte
// offset), the next 8 rows of K 1024 bytes on.
__device__ __forceinline__ constexpr unsigned long long wgmma_descriptor_mn_major(unsigned address, unsigned panel_bytes) {
  return 0x4000004000000000ull | static_cast<unsigned long long>(panel_bytes >> 4) << 16 | (address >> 4 & 0x3FFF);
}
""",
)
def wgmma_descriptor_mn_major(address: Any, panel_bytes: Any) -> Any:
    """Descriptor of an MN-major operand with 128-byte swizzle; `panel_bytes` (below 2^18) from one panel of 64 to the next."""
    import numpy as np

    leading = np.asarray(panel_bytes, np.uint64) >> np.uint64(4) << np.uint64(16)
    return np.uint64(1 << 62 | 64 << 32) | leading | np.asarray(address, np.uint64) >> np.uint64(4) & np.uint64(0x3FFF)


@instruction(
    ptx=("wgmma.fence.sync.aligned",),
    sass=("WARPGROUP.ARRIVE",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(orders="registers before wgmma", collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Orders earlier accesses to accumulators and register operands before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
""",
)
def wgmma_fence() -> Any:
    """Orders earlier accesses to accumulators and register operands before the wgmmas that follow; says nothing of shared memory.

    Needed before the first wgmma and after any other access to those registers, not between wgmmas of one shape.
    """


@instruction(
    ptx=("wgmma.commit_group.sync.aligned",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(orders="close wgmma group", collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Closes the group of wgmmas issued so far.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
""",
)
def wgmma_commit_group() -> Any:
    """Closes the group of the wgmmas issued so far. Waits for nothing."""


@instruction(
    ptx=("wgmma.wait_group.sync.aligned",),
    sass=("WARPGROUP.DEPBAR.LE",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(orders="wgmma group complete", collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Waits until at most the kGroups newest groups run: the older ones have written their accumulators and read their operands.
template <int kGroups>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
""",
)
def wgmma_wait_group() -> Any:
    """Waits until at most the kGroups newest groups of the executing threads run.

    The accumulators of the older ones are valid, their register and shared operands have been read, and no proxy fence is needed
    before shared memory is written again. It says nothing of what other warpgroups still read.
    """


@instruction(
    ptx=("no instruction",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(reads=("registers",), writes=("registers",)),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Emits nothing; the compiler moves no read of these registers above it and no write below it (needed around waits).
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin_registers(unsigned (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
""",
)
def pin_registers(registers: Any) -> Any:
    """Emits nothing; the compiler moves no read of the registers above it and no write below it. Needed around waits."""


@instruction(
    ptx=("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",),
    sass=("HGMMA.64x64x16.F32.BF16",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=_PRODUCT,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// D[64, 64] (+)= A[64, 16] B[64, 16]^T, both K-major in shared memory; asynchronous until wait_group.
__device__ __forceinline__ void wgmma_m64n64k16_bf16_ss(float (&d)[32], unsigned long long a, unsigned long long b,
                                                        bool accumulate) {
  asm volatile(
      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %34, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, accumulate, 1, 1, 0, 0;\\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}
""",
)
def wgmma_m64n64k16_bf16_ss(d: Any, a: Any, b: Any, accumulate: Any) -> Any:
    """D[64, 64] (+)= A[64, 16] B[64, 16]^T, both K-major in shared memory; `accumulate` false starts at 0."""


@instruction(
    ptx=("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",),
    sass=("HGMMA.64x64x16.F32.BF16",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=_PRODUCT,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// D[64, 64] (+)= A[64, 16] B[64, 16]^T, A in four registers, B in shared memory (kTransposeB: MN-major);
// asynchronous until wait_group.
template <int kTransposeB = 0>
__device__ __forceinline__ void wgmma_m64n64k16_bf16_rs(float (&d)[32], const unsigned* a, unsigned long long b,
                                                        bool accumulate) {
  asm volatile(
      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %37, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, accumulate, 1, 1, %38;\\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeB));
}
""",
)
def wgmma_m64n64k16_bf16_rs(d: Any, a: Any, b: Any, accumulate: Any) -> Any:
    """D[64, 64] (+)= A[64, 16] B[64, 16]^T, A in four registers a thread; B may be MN-major (kTransposeB).

    A group with register operands may not be in flight over a loop's back edge: ptxas then serialises every wgmma.
    """


@instruction(
    ptx=("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",),
    sass=("HGMMA.64x128x16.F32.BF16",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=_PRODUCT,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// D[64, 128] (+)= A[64, 16] B[128, 16]^T, both K-major in shared memory; asynchronous until wait_group.
__device__ __forceinline__ void wgmma_m64n128k16_bf16_ss(float (&d)[64], unsigned long long a, unsigned long long b,
                                                         bool accumulate) {
  asm volatile(
      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %66, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, accumulate, 1, 1, 0, 0;\\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}
""",
)
def wgmma_m64n128k16_bf16_ss(d: Any, a: Any, b: Any, accumulate: Any) -> Any:
    """D[64, 128] (+)= A[64, 16] B[128, 16]^T, both K-major in shared memory; `accumulate` false starts at 0."""


@instruction(
    ptx=("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16",),
    sass=("HGMMA.64x128x16.F32.BF16",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=_PRODUCT,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// D[64, 128] (+)= A[64, 16] B[128, 16]^T, A in four registers, B in shared memory (kTransposeB: MN-major);
// asynchronous until wait_group.
template <int kTransposeB = 0>
__device__ __forceinline__ void wgmma_m64n128k16_bf16_rs(float (&d)[64], const unsigned* a, unsigned long long b,
                                                         bool accumulate) {
  asm volatile(
      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %69, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, accumulate, 1, 1, %70;\\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposeB));
}
""",
)
def wgmma_m64n128k16_bf16_rs(d: Any, a: Any, b: Any, accumulate: Any) -> Any:
    """D[64, 128] (+)= A[64, 16] B[128, 16]^T, A in four registers a thread; B may be MN-major (kTransposeB).

    A group with register operands may not be in flight over a loop's back edge: ptxas then serialises every wgmma.
    """

"""tcgen05: products that one thread issues, with accumulators in tensor memory. Exists on sm_100a, sm_103a and sm_107a.

Tensor memory has 128 lanes x 512 columns of 32 bits; an address is lane << 16 | column. No generic fence and no barrier alone
orders accesses to it: across threads it takes `tcgen05_fence_before`, a barrier or mbarrier, `tcgen05_fence_after`. Products of one
thread on one accumulator execute in order; everything else is asynchronous until a commit (products) or a wait (loads).
Source: PTX ISA, sections on tcgen05. Compiled and disassembled here, never run.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.arch import Feature
from kernwright.generator.instructions.table import Effects, instruction
from kernwright.generator.ir.types import u32, u64

# ---- descriptors


@instruction(
    ptx=("shr.u32", "and.b32", "or.b64"),
    result=u64,
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    cuda="""
// Descriptor of a K-major operand, 128-byte swizzle: 8 rows repeat every 1024 bytes, the leading byte offset is unused and encoded
// as 1. The address field, 15 bits on sm_107a (327 KiB) and 14 elsewhere, is masked here, after all additions to the address.
__device__ __forceinline__ constexpr unsigned long long tcgen05_descriptor_k_major(unsigned address) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1070
  return 0x4000404000010000ull | (address >> 4 & 0x7FFF);
#else
  return 0x4000404000010000ull | (address >> 4 & 0x3FFF);
#endif
}
""",
)
def tcgen05_descriptor_k_major(address: Any, mask: int = 0x3FFF) -> Any:
    """Descriptor of a K-major operand with 128-byte swizzle; `mask` is the architecture's descriptor mask."""
    import numpy as np

    return np.uint64(1 << 62 | 1 << 46 | 64 << 32 | 1 << 16) | np.asarray(address, np.uint64) >> np.uint64(
        4
    ) & np.uint64(mask)


@instruction(
    ptx=("shl.b32", "or.b32"),
    result=u32,
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    cuda="""
// kind::f16 with BF16 operands, both K-major, and FP32 accumulators: [5:4] D, [9:7] A, [12:10] B, [22:17] N / 8, [28:24] M / 16.
__device__ __forceinline__ constexpr unsigned instruction_descriptor_bf16(unsigned m, unsigned n) {
  return 1u << 4 | 1u << 7 | 1u << 10 | n / 8 << 17 | m / 16 << 24;
}
""",
)
def instruction_descriptor_bf16(m: Any, n: Any) -> Any:
    """Instruction descriptor of kind::f16: BF16 operands, both K-major, FP32 accumulator; M 64 or 128, N in steps of 16."""
    import numpy as np

    rows, columns = np.asarray(m, np.uint32), np.asarray(n, np.uint32)
    types = np.uint32(1 << 4 | 1 << 7 | 1 << 10)  # D is FP32, A and B are BF16
    return types | columns // np.uint32(8) << np.uint32(17) | rows // np.uint32(16) << np.uint32(24)


# ---- tensor memory


@instruction(
    ptx=("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32",),
    sass=("UTCATOMSWS.FIND_AND_SET.ALIGN",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(writes=("shared", "tensor memory columns"), collective="warp"),
    meaning=False,
    cuda="""
// Reserves kColumns columns and writes their address to shared memory; one whole warp, blocks until they are free.
template <int kColumns>
__device__ __forceinline__ void tcgen05_alloc(unsigned& address) {
  static_assert(kColumns >= 32 && kColumns <= 512 && (kColumns & (kColumns - 1)) == 0, "columns: a power of two from 32 to 512");
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
               ::"r"(smem_address(&address)), "n"(kColumns) : "memory");
}
""",
)
def tcgen05_alloc(address: Any) -> Any:
    """Reserves kColumns columns (a power of two, 32 to 512) and writes their address to shared memory; waits until they are free.

    The address is an ordinary weak write: `tcgen05_fence_before`, a block barrier and `tcgen05_fence_after` come before its use.
    Later allocations of a block are not larger than earlier ones.
    """


@instruction(
    ptx=("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned",),
    sass=("UTCATOMSWS.AND",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(writes=("allocation permit",), collective="warp"),
    meaning=False,
    cuda="""
// Lets other blocks of the SM allocate; the warp that allocated, after its last allocation.
__device__ __forceinline__ void tcgen05_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
""",
)
def tcgen05_relinquish() -> Any:
    """Lets other blocks of the SM allocate; by the warp that allocated, which may not allocate again."""


@instruction(
    ptx=("tcgen05.dealloc.cta_group::1.sync.aligned.b32",),
    sass=("UTCATOMSWS.AND",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(writes=("tensor memory columns",), collective="warp"),
    meaning=False,
    cuda="""
// Frees the columns; the warp that allocated them, after every access, and before the block ends.
template <int kColumns>
__device__ __forceinline__ void tcgen05_dealloc(unsigned address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(kColumns) : "memory");
}
""",
)
def tcgen05_dealloc(address: Any) -> Any:
    """Frees the columns, on every path before the block ends; all accesses of all warps must be ordered before it."""


@instruction(
    ptx=("tcgen05.ld.sync.aligned.32x32b.x16.b32", "tcgen05.wait::ld.sync.aligned"),
    sass=("LDTM.x16",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(
        reads=("tensor memory",), writes=("registers",), orders="tensor memory loads complete", collective="warp"
    ),
    cuda="""
// 32 lanes x 16 columns -> 16 registers a thread (its lane's row), waited for: the registers are valid on return.
__device__ __forceinline__ void tcgen05_ld_32x32b_x16(float (&r)[16], unsigned address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];\\n"
      "tcgen05.wait::ld.sync.aligned;"
      : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]), "=f"(r[7]), "=f"(r[8]), "=f"(r[9]),
        "=f"(r[10]), "=f"(r[11]), "=f"(r[12]), "=f"(r[13]), "=f"(r[14]), "=f"(r[15])
      : "r"(address)
      : "memory");
}
""",
)
def tcgen05_ld_32x32b_x16(lanes: Any) -> Any:
    """32 lanes x 16 columns into 16 registers a thread, waited for: lane l of warp w reads tensor memory lane 32 (w % 4) + l alone.

    `lanes` [32, 16] are the words of the warp's quarter from the address on; the result is [32 lanes, 16 registers].
    """
    import numpy as np

    return np.array(lanes, np.float32).reshape(32, 16)


# ---- order between threads


@instruction(
    ptx=("tcgen05.fence::before_thread_sync",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(orders="tcgen05 before barrier"),
    meaning=False,
    cuda="""
// Orders this thread's earlier tcgen05 operations before the barrier that follows.
__device__ __forceinline__ void tcgen05_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
""",
)
def tcgen05_fence_before() -> Any:
    """Orders this thread's earlier tcgen05 operations before the barrier or arrival that follows."""


@instruction(
    ptx=("tcgen05.fence::after_thread_sync",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(orders="barrier before tcgen05"),
    meaning=False,
    cuda="""
// Orders the barrier just passed before this thread's later tcgen05 operations.
__device__ __forceinline__ void tcgen05_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
""",
)
def tcgen05_fence_after() -> Any:
    """Orders the barrier or wait just passed before this thread's later tcgen05 operations."""


# ---- products


@instruction(
    ptx=("tcgen05.mma.cta_group::1.kind::f16",),
    sass=("UTCHMMA",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(
        reads=("shared", "tensor memory"),
        writes=("tensor memory",),
        proxy="async",
        completion="tcgen05 commit",
        collective="one thread",
    ),
    meaning=False,
    cuda="""
// D (+)= A B^T, D in tensor memory, both operands in shared memory; issued by one thread, asynchronous until a commit arrives.
__device__ __forceinline__ void tcgen05_mma_f16_ss(unsigned d, unsigned long long a, unsigned long long b, unsigned instruction,
                                                   bool accumulate) {
  asm volatile(
      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %4, 0;\\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\\n}" ::"r"(d), "l"(a), "l"(b), "r"(instruction),
      "r"(static_cast<int>(accumulate))
      : "memory");
}
""",
)
def tcgen05_mma_f16_ss(d: Any, a: Any, b: Any, instruction: Any, accumulate: Any) -> Any:
    """D[M, N] (+)= A[M, 16] B[N, 16]^T, D in tensor memory, both operands in shared memory; `accumulate` false starts at 0.

    M = 128 takes N in steps of 16 up to 256. Its shared memory may be written again, and D read, only after a commit has arrived.
    """


@instruction(
    ptx=("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64",),
    sass=("UTCBAR",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(
        reads=("mbarrier",),
        writes=("mbarrier",),
        proxy="async",
        completion="mbarrier arrival",
        orders="tcgen05 commit",
        collective="one thread",
    ),
    meaning=False,
    cuda="""
// One arrival when all tcgen05.mma that this thread has issued are complete: operands are read, accumulators written.
__device__ __forceinline__ void tcgen05_commit(unsigned long long& barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
               ::"r"(smem_address(&barrier)) : "memory");
}
""",
)
def tcgen05_commit(barrier: Any) -> Any:
    """One arrival when all products that this thread has issued so far are complete; implies `tcgen05_fence_before`.

    It says nothing of the thread's own loads of tensor memory, and must come from the thread that issued the products.
    """

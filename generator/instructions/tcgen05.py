"""tcgen05: products that one thread issues, with accumulators in tensor memory. Exists on the chips of the tcgen05 machine.

Tensor memory has 128 lanes x 512 columns of 32 bits; an address is lane << 16 | column. No generic fence and no barrier alone
orders accesses to it: across threads it takes `tcgen05_fence_before`, a barrier or mbarrier, `tcgen05_fence_after`. Products of one
thread on one accumulator execute in order; everything else is asynchronous until a commit (products) or a wait (loads).
Source: PTX ISA, sections on tcgen05. Compiled and disassembled here, never run.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.arch import Feature
from kernwright.generator.instructions.operand_lists import listed
from kernwright.generator.instructions.table import Effects, instruction

# ---- tensor memory


@instruction(
    ptx=("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32",),
    sass=("UTCATOMSWS.FIND_AND_SET.ALIGN",),
    spelling="tcgen05_alloc<{}>",
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
    spelling="tcgen05_dealloc<{}>",
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
    ptx=("tcgen05.wait::st.sync.aligned",),
    needs=(Feature.TCGEN05,),
    header="sm_100a",
    effects=Effects(orders="tensor memory stores complete", collective="warp"),
    meaning=False,
    cuda="""
// Waits for this thread's stores to tensor memory.
__device__ __forceinline__ void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
""",
)
def tcgen05_wait_st() -> Any:
    """Waits until the stores to tensor memory of this thread are complete; products of another one need the fences too."""


def _load_wrapper(columns: int) -> str:
    """The CUDA text of a load of `columns` columns, waited for."""
    results = listed([f"%{i}" for i in range(columns)], '      "', '"')
    outputs = listed([f'"=f"(r[{i}])' for i in range(columns)], "        ").replace("        ", "      : ", 1)
    return f"""
// 32 lanes x {columns} columns -> {columns} registers a thread (its lane's row), waited for: the registers are valid on return.
__device__ __forceinline__ void tcgen05_ld_32x32b_x{columns}(float (&r)[{columns}], unsigned address) {{
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{"
{results}
      "}}, [%{columns}];\\n"
      "tcgen05.wait::ld.sync.aligned;"
{outputs}
      : "r"(address)
      : "memory");
}}
"""


def _store_wrapper(columns: int) -> str:
    """The CUDA text of a store of `columns` columns, for FP32 and for packed words."""
    texts = []
    name = f"tcgen05_st_32x32b_x{columns}"
    operands = listed([f"%{i + 1}" for i in range(columns)], '      "', '"')
    for cpp, letter in (("float", "f"), ("unsigned", "r")):
        inputs = listed([f'"{letter}"(r[{i}])' for i in range(columns)], "        ")
        texts.append(f"""__device__ __forceinline__ void {name}(unsigned address, const {cpp} (&r)[{columns}]) {{
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%0], {{"
{operands}
      "}};" ::"r"(address),
{inputs}
      : "memory");
}}""")
    head = f"// {columns} registers a thread -> 32 lanes x {columns} columns of tensor memory; asynchronous until tcgen05_wait_st."
    return head + "\n" + "\n".join(texts)


def _row_moves(columns: int) -> None:
    """Register the load and the store of `columns` columns, one row a thread."""

    def load(lanes: Any) -> Any:
        import numpy as np

        return np.array(lanes, np.float32).reshape(32, columns)

    load.__name__ = f"tcgen05_ld_32x32b_x{columns}"
    load.__doc__ = f"""32 lanes x {columns} columns into {columns} registers a thread, waited for.

    Lane l of warp w reads row 32 (w % 4) + l alone.

    `lanes` [32, {columns}] are the words of the warp's quarter from the address on; the result is [32 lanes, {columns} registers].
    """
    instruction(
        ptx=(f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32", "tcgen05.wait::ld.sync.aligned"),
        sass=(f"LDTM.x{columns}",),
        needs=(Feature.TCGEN05,),
        header="sm_100a",
        effects=Effects(
            reads=("tensor memory",), writes=("registers",), orders="tensor memory loads complete", collective="warp"
        ),
        cuda=_load_wrapper(columns),
    )(load)

    def store(registers: Any) -> Any:
        import numpy as np

        return np.array(registers).reshape(32, columns)

    store.__name__ = f"tcgen05_st_32x32b_x{columns}"
    store.__doc__ = f"""{columns} registers a thread into 32 lanes x {columns} columns.

    Lane l of warp w writes row 32 (w % 4) + l alone.

    `registers` [32 lanes, {columns}]; the result [32, {columns}] is what the warp's quarter holds after `tcgen05_wait_st`.
    """
    instruction(
        ptx=(f"tcgen05.st.sync.aligned.32x32b.x{columns}.b32",),
        sass=(f"STTM.x{columns}",),
        needs=(Feature.TCGEN05,),
        header="sm_100a",
        effects=Effects(
            reads=("registers",), writes=("tensor memory",), completion="tcgen05 store wait", collective="warp"
        ),
        cuda=_store_wrapper(columns),
    )(store)


for _columns in (8, 16, 32, 64):
    _row_moves(_columns)


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
// D (+)= A B^T, D and A in tensor memory, B in shared memory; issued by one thread, asynchronous until a commit arrives.
__device__ __forceinline__ void tcgen05_mma_f16_ts(unsigned d, unsigned a, unsigned long long b, unsigned instruction,
                                                   bool accumulate) {
  asm volatile(
      "{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %4, 0;\\n"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, accumulate;\\n}" ::"r"(d), "r"(a), "l"(b), "r"(instruction),
      "r"(static_cast<int>(accumulate))
      : "memory");
}
""",
)
def tcgen05_mma_f16_ts(d: Any, a: Any, b: Any, instruction: Any, accumulate: Any) -> Any:
    """D[M, N] (+)= A[M, 16] B[N, 16]^T, D and A in tensor memory (A: two BF16 a column), B in shared memory."""


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

"""Threads, barriers and fences: who executes, who waits for whom, and which accesses that orders.

An mbarrier completes a phase when its arrivals have come and its announced bytes have landed. Arrivals release what their thread
did before, waits acquire it; what TMA wrote is visible after the wait without a fence. Ordinary accesses reach the asynchronous
proxy (TMA, wgmma, tcgen05) only through `fence_proxy_async`, executed by the thread that made them, before its arrival.
Sources: PTX ISA, sections on mbarrier, barrier, fence, elect.sync and setmaxnreg.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Confirmed, Effects, instruction
from kernwright.generator.ir.types import boolean, i32, u32

# ---- threads


@instruction(
    ptx=("cvta.to.shared.u64", "cvt.u32.u64"),
    result=u32,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// The 32-bit shared-window address that descriptors, TMA and mbarrier instructions take.
__device__ __forceinline__ unsigned smem_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
""",
)
def smem_address(pointer: Any) -> Any:
    """The 32-bit shared-window address of a pointer into shared memory, as descriptors, TMA and mbarriers take it."""


@instruction(
    ptx=("shfl.sync.idx.b32",),
    sass=("SHFL.IDX",),
    result=i32,
    limits=(0, 31),
    effects=Effects(collective="warp"),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// The warp's index in the block, in a register that the compiler knows to be the same in all lanes.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0); }
""",
)
def warp_index(thread: Any) -> Any:
    """The warp's index in the block, the same in all lanes; `thread` is the linear thread index."""
    import numpy as np

    return np.asarray(thread, np.int32) // 32


@instruction(
    ptx=("elect.sync", "selp.u32"),
    sass=("ELECT",),
    result=boolean,
    effects=Effects(collective="warp"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// True in one lane of a converged warp; orders nothing.
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{\\n.reg .pred p;\\nelect.sync _|p, 0xFFFFFFFF;\\nselp.u32 %0, 1, 0, p;\\n}" : "=r"(elected));
  return elected != 0;
}
""",
)
def elect_one() -> Any:
    """True in one lane of a converged warp, each time in the same one; orders nothing.

    Bulk groups belong to a thread: whoever waits for a group must be the thread that committed it.
    """


@instruction(
    ptx=("bar.warp.sync",),
    sass=("WARPSYNC.ALL",),
    spelling="__syncwarp",
    effects=Effects(orders="release and acquire", collective="warp"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
)
def sync_warp() -> Any:
    """Waits for the lanes of the warp and orders their earlier accesses before each other's later ones.

    Needed before one lane arrives on an mbarrier for accesses that the whole warp made.
    """


@instruction(
    ptx=("bar.sync",),
    sass=("BAR.SYNC.DEFER_BLOCKING",),
    spelling="__syncthreads",
    effects=Effects(
        reads=("named barrier",), writes=("named barrier",), orders="release and acquire", collective="block"
    ),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
)
def sync_threads() -> Any:
    """Waits for every thread of the block on barrier 0 and orders their earlier accesses before each other's later ones.

    It does not order ordinary accesses before the asynchronous proxy: the writers need `fence_proxy_async` first.
    """


@instruction(
    ptx=("bar.sync",),
    sass=("BAR.SYNC.DEFER_BLOCKING",),
    spelling="named_barrier_sync<{}>",
    effects=Effects(
        reads=("named barrier",), writes=("named barrier",), orders="release and acquire", collective="warp"
    ),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Waits for kThreads threads (whole warps) on one of the barriers 1 to 15; orders their earlier shared-memory accesses.
template <int kThreads>
__device__ __forceinline__ void named_barrier_sync(int barrier) {
  static_assert(kThreads % 32 == 0, "a named barrier counts warps");
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
""",
)
def named_barrier_sync(barrier: Any) -> Any:
    """Waits for kThreads threads on one of the barriers 1 to 15 and orders their accesses, as `sync_threads` does for the block.

    Counts threads by whole warps: kThreads is a multiple of 32. Every participant names the same count.
    """


# ---- mbarrier


@instruction(
    ptx=("mbarrier.init.shared::cta.b64",),
    sass=("SYNCS.EXCH.64",),
    effects=Effects(writes=("mbarrier",), collective="one thread"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Sets the arrivals of a phase; other threads may use the barrier after fence_mbarrier_init and a block barrier.
__device__ __forceinline__ void mbarrier_init(unsigned long long& barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(&barrier)), "r"(arrivals) : "memory");
}
""",
)
def mbarrier_init(barrier: Any, arrivals: Any) -> Any:
    """Phase 0, `arrivals` (1 to 2^20 - 1) pending, no bytes announced.

    An ordinary write: others may use the barrier only after `fence_mbarrier_init` and a block barrier.
    """


@instruction(
    ptx=("fence.mbarrier_init.release.cluster",),
    effects=Effects(orders="mbarrier initialisation", collective="one thread"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Makes the initialised barriers visible to remote and asynchronous arrivals.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
""",
)
def fence_mbarrier_init() -> Any:
    """Releases this thread's earlier mbarrier initialisations, and nothing else, to the cluster."""


@instruction(
    ptx=("mbarrier.arrive.shared::cta.b64",),
    sass=("SYNCS.ARRIVE.TRANS64",),
    effects=Effects(reads=("mbarrier",), writes=("mbarrier",), orders="release"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// One arrival; releases this thread's earlier accesses to whoever waits for the phase.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(&barrier)) : "memory");
}
""",
)
def mbarrier_arrive(barrier: Any) -> Any:
    """One arrival by each thread that executes it; releases that thread's earlier accesses at block scope.

    It speaks for one thread: other threads' accesses only after `sync_warp` or a barrier that the arriving thread took part in. A
    read that is still asynchronous (wgmma) is not covered until its group has been waited for.
    """


@instruction(
    ptx=("mbarrier.arrive.expect_tx.shared::cta.b64",),
    sass=("SYNCS.ARRIVE.TRANS64",),
    effects=Effects(reads=("mbarrier",), writes=("mbarrier",), orders="release", collective="one thread"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// One arrival that also announces `bytes` of TMA traffic: the phase ends when they have landed too.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned long long& barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(&barrier)), "r"(bytes) : "memory");
}
""",
)
def mbarrier_arrive_expect_tx(barrier: Any, bytes: Any) -> Any:
    """Announces `bytes` (under 2^20 a phase) of asynchronous copies, then arrives once.

    The bytes are those of whole boxes: elements out of bounds count too. More bytes than the copies bring never complete.
    """


@instruction(
    ptx=("mbarrier.try_wait.parity.shared::cta.b64",),
    sass=("SYNCS.PHASECHK.TRANS64.TRYWAIT",),
    effects=Effects(reads=("mbarrier",), orders="acquire"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Waits until the phase of that parity is complete; acquires what its arrivals released and what TMA wrote.
__device__ __forceinline__ void mbarrier_wait(unsigned long long& barrier, unsigned phase) {
  asm volatile(
      "{\\n.reg .pred done;\\n"
      "wait_%=:\\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
      "@!done bra wait_%=;\\n}" ::"r"(smem_address(&barrier)), "r"(phase)
      : "memory");
}
""",
)
def mbarrier_wait(barrier: Any, phase: Any) -> Any:
    """Waits until the phase of that parity is complete, at block scope; acquires its arrivals' releases and what TMA wrote for it.

    Only the running phase and the one before it may be asked for. A fresh barrier counts as "parity 1 complete".
    """


@instruction(
    ptx=("mbarrier.try_wait.parity.shared::cta.b64",),
    sass=("SYNCS.PHASECHK.TRANS64.TRYWAIT",),
    effects=Effects(reads=("mbarrier",), orders="acquire"),
    meaning=False,
    cuda="""
// As mbarrier_wait, and not before `values` are computed. ptxas moves arithmetic over a wait and knows no fence against it; so the
// address of the wait depends on them: the grid has one layer along z, which makes the mask zero, and ptxas does not know it.
template <int kCount>
__device__ __forceinline__ void mbarrier_wait_after(const unsigned (&values)[kCount], unsigned long long& barrier, unsigned phase) {
  unsigned any = values[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) any |= values[i];
  asm volatile(
      "{\\n.reg .pred done;\\n"
      "wait_%=:\\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
      "@!done bra wait_%=;\\n}" ::"r"(smem_address(&barrier) | (any & (gridDim.z - 1))), "r"(phase)
      : "memory");
}
""",
)
def mbarrier_wait_after(values: Any, barrier: Any, phase: Any) -> Any:
    """Waits as `mbarrier_wait` does, and makes the wait depend on `values`, so that they are computed before it.

    For grids of one layer along z alone.
    """


# ---- pipelines


@instruction(
    ptx=("no instruction",),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Where a role is in a ring of kStages stages: the stage, and the phase that it waits for there.
template <int kStages>
struct Ring {
  int stage;
  unsigned phase;

  // A producer finds fresh stages empty: a barrier that nobody arrived on counts as "phase 1 complete".
  __device__ __forceinline__ static Ring producer() { return {0, 1u}; }
  __device__ __forceinline__ static Ring consumer(int first = 0) { return {first % kStages, 0u}; }
  __device__ __forceinline__ void advance(int steps = 1) {
    stage += steps;
    if (stage >= kStages) {
      stage -= kStages;
      phase ^= 1u;
    }
  }
};
""",
)
def Ring() -> Any:
    """Where a role is in a ring of stages: the stage, and the phase that it waits for there."""


# ---- proxies


@instruction(
    ptx=("fence.proxy.async.shared::cta",),
    sass=("FENCE.VIEW.ASYNC.S",),
    effects=Effects(orders="generic and async proxies"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Orders this thread's ordinary shared-memory accesses before later ones of the asynchronous proxy (TMA, tensor cores).
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
""",
)
def fence_proxy_async() -> Any:
    """Orders this thread's ordinary shared-memory accesses before later ones of the asynchronous proxy.

    Executed by the threads that made the accesses, before the arrival or barrier that lets the asynchronous access start. It waits
    for nobody and publishes nothing by itself.
    """


# ---- register budgets


@instruction(
    ptx=("setmaxnreg.dec.sync.aligned.u32",),
    spelling="setmaxnreg_dec<{}>",
    sass=("USETMAXREG.DEALLOC.CTAPOOL",),
    effects=Effects(writes=("register budget",), collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Gives registers of this warpgroup back to the block's pool; all its warps execute it.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
""",
)
def setmaxnreg_dec() -> Any:
    """Lowers the registers of each thread of the warpgroup to kRegisters: 24 to 256 in steps of 8, at most what they have.

    Needs a launch count that is fixed (launch bounds with a minimum of blocks, or maxnreg) and a warp-uniform branch.
    """


@instruction(
    ptx=("setmaxnreg.inc.sync.aligned.u32",),
    spelling="setmaxnreg_inc<{}>",
    sass=("USETMAXREG.TRY_ALLOC.CTAPOOL",),
    effects=Effects(reads=("register budget",), writes=("register budget",), collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Takes registers from the block's pool and waits until they are free; all warps of the warpgroup execute it.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
""",
)
def setmaxnreg_inc() -> Any:
    """Raises the registers of each thread of the warpgroup to kRegisters and waits until the block's pool has them.

    24 to 256 in steps of 8, at least what they have. It waits for ever if all budgets together exceed the launch's registers.
    """

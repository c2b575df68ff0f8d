"""Asynchronous copies between global and shared memory: TMA boxes of tensor maps, contiguous bulk copies, and bulk groups.

All of them go through the asynchronous proxy and are unordered with each other. Loads signal their bytes on an mbarrier, stores
complete with a bulk group of the thread that issued them. A shared address is a multiple of 128 bytes, with a swizzle of 8 swizzle
rows; boxes are at most 256 elements a dimension. Sources: PTX ISA, cp.async.bulk and cp.async.bulk.tensor; cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.arch import Feature
from kernwright.generator.instructions.table import Confirmed, Effects, instruction

_LOAD = Effects(
    reads=("global",), writes=("shared",), proxy="async", completion="mbarrier bytes", collective="one thread"
)
_STORE = Effects(reads=("shared",), writes=("global",), proxy="async", completion="bulk group", collective="one thread")


_AXES = ("x", "y", "z", "u", "v")


def _box_entries(rank: int) -> None:
    """Register the load and the store of a box of a `rank`-dimensional tensor map."""
    axes = _AXES[:rank]
    arguments = ", ".join(f"int {axis}" for axis in axes)
    values = ", ".join(f'"r"({axis})' for axis in axes)
    load_name, store_name = f"tma_load_{rank}d", f"tma_store_{rank}d"

    def numbered(first: int) -> str:
        return "{" + ", ".join(f"%{first + i}" for i in range(rank)) + "}"

    def load(destination: Any, map: Any, *coordinates: Any) -> Any:
        raise NotImplementedError

    indent = " " * len(f"__device__ __forceinline__ void {load_name}(")
    gap = " " if rank == 2 else f"\n{indent}" if rank > 2 else " "
    load.__name__ = load_name
    barrier = "unsigned long long& barrier"
    loaded = f"cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    load.__doc__ = f"""Box of a {rank}D tensor map into shared memory; its bytes complete on `barrier`.

    Elements out of bounds become zero and count in the bytes. Coordinates are in elements, the contiguous dimension first.
    """
    instruction(
        ptx=(loaded,),
        sass=(f"UTMALDG.{rank}D",),
        needs=(Feature.TMA,),
        effects=_LOAD,
        confirmed=Confirmed.HARDWARE if rank in CONFIRMED_RANKS else Confirmed.DOCUMENTS,
        meaning=False,
        cuda=f"""
// Box of a {rank}D tensor map -> shared memory; signals its bytes on the barrier.
__device__ __forceinline__ void {load_name}(void* destination, const CUtensorMap& map, {arguments},{gap}{barrier}) {{
  asm volatile("{loaded} [%0], [%1, {numbered(2)}], [%{rank + 2}];"
               ::"r"(smem_address(destination)), "l"(&map), {values}, "r"(smem_address(&barrier)) : "memory");
}}
""",
    )(load)

    def store(map: Any, source: Any, *coordinates: Any) -> Any:
        raise NotImplementedError

    store.__name__ = store_name
    store.__doc__ = f"""Shared memory into a box of a {rank}D tensor map; elements out of bounds are skipped.

    Completes with the thread's bulk group. What ordinary stores wrote needs
    `fence_proxy_async` in the writers and a barrier first.
    """
    instruction(
        ptx=(f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group",),
        sass=(f"UTMASTG.{rank}D",),
        needs=(Feature.TMA,),
        effects=_STORE,
        confirmed=Confirmed.HARDWARE if rank in CONFIRMED_RANKS else Confirmed.DOCUMENTS,
        meaning=False,
        cuda=f"""
// Shared memory -> box of a {rank}D tensor map; completes with the thread's bulk group.
__device__ __forceinline__ void {store_name}(const CUtensorMap& map, const void* source, {arguments}) {{
  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%0, {numbered(1)}], [%{rank + 1}];"
               ::"l"(&map), {values}, "r"(smem_address(source)) : "memory");
}}
""",
    )(store)


CONFIRMED_RANKS = (2, 3)

for _rank in range(1, len(_AXES) + 1):
    _box_entries(_rank)


@instruction(
    ptx=("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",),
    sass=("UBLKCP.S.G",),
    needs=(Feature.TMA,),
    effects=_LOAD,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Contiguous global bytes -> shared memory; signals them on the barrier.
__device__ __forceinline__ void bulk_load(void* destination, const void* source, unsigned bytes, unsigned long long& barrier) {
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(smem_address(destination)), "l"(source), "r"(bytes), "r"(smem_address(&barrier)) : "memory");
}
""",
)
def bulk_load(destination: Any, source: Any, bytes: Any, barrier: Any) -> Any:
    """Contiguous global bytes into shared memory; they complete on `barrier`. Both addresses and the size are multiples of 16."""


@instruction(
    ptx=("cp.async.bulk.prefetch.L2.global",),
    needs=(Feature.TMA,),
    effects=Effects(reads=("global",), proxy="async", completion="nothing to wait for", collective="one thread"),
    meaning=False,
    cuda="""
// Contiguous global bytes -> L2; a hint, nothing waits for it.
__device__ __forceinline__ void bulk_prefetch_l2(const void* source, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes) : "memory");
}
""",
)
def bulk_prefetch_l2(source: Any, bytes: Any) -> Any:
    """Contiguous global bytes into L2: a hint without a completion. The address and the size are multiples of 16."""


@instruction(
    ptx=("prefetch.tensormap",),
    sass=("UTMACCTL.PF",),
    needs=(Feature.TMA,),
    effects=Effects(collective="one thread"),
    meaning=False,
    cuda="""
// Brings a tensor map nearer before its first use; a hint.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
""",
)
def prefetch_tensor_map(map: Any) -> Any:
    """Brings a tensor map nearer before its first use: a hint."""


@instruction(
    ptx=("cp.async.bulk.commit_group",),
    sass=("UTMACMDFLUSH",),
    needs=(Feature.TMA,),
    effects=Effects(orders="close bulk group", collective="one thread"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Closes the group of this thread's stores so far.
__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
""",
)
def bulk_commit_group() -> Any:
    """Closes the group of this thread's stores so far. Groups belong to a thread."""


@instruction(
    ptx=("cp.async.bulk.wait_group.read",),
    sass=("DEPBAR.LE",),
    spelling="bulk_wait_group_read<{}>",
    needs=(Feature.TMA,),
    effects=Effects(orders="bulk group reads", collective="one thread"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Waits until all but the newest kGroups groups of this thread have read their shared memory: it may be overwritten or freed.
template <int kGroups>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
""",
)
def bulk_wait_group_read() -> Any:
    """Waits until all but the newest kGroups groups of this thread have read their shared memory.

    The source may then be overwritten by this thread, and by others after a barrier; what was written to global memory is not yet
    visible. Waits for nothing in a thread that committed no group.
    """

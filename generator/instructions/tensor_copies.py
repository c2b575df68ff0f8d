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


@instruction(
    ptx=("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes",),
    sass=("UTMALDG.2D",),
    needs=(Feature.TMA,),
    effects=_LOAD,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Box of a 2D tensor map -> shared memory; signals its bytes on the barrier.
__device__ __forceinline__ void tma_load_2d(void* destination, const CUtensorMap& map, int x, int y, unsigned long long& barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(smem_address(destination)), "l"(&map), "r"(x), "r"(y), "r"(smem_address(&barrier)) : "memory");
}
""",
)
def tma_load_2d(destination: Any, map: Any, x: Any, y: Any, barrier: Any) -> Any:
    """Box of a 2D tensor map into shared memory; its bytes complete on `barrier`.

    Elements out of bounds become zero and count in the bytes. Coordinates are in elements, the contiguous dimension first.
    """


@instruction(
    ptx=("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes",),
    sass=("UTMALDG.3D",),
    needs=(Feature.TMA,),
    effects=_LOAD,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Box of a 3D tensor map -> shared memory; signals its bytes on the barrier.
__device__ __forceinline__ void tma_load_3d(void* destination, const CUtensorMap& map, int x, int y, int z,
                                            unsigned long long& barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               ::"r"(smem_address(destination)), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(smem_address(&barrier)) : "memory");
}
""",
)
def tma_load_3d(destination: Any, map: Any, x: Any, y: Any, z: Any, barrier: Any) -> Any:
    """Box of a 3D tensor map into shared memory; its bytes complete on `barrier`.

    With panels as the third dimension one copy fills all swizzled panels of a tile.
    """


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
    ptx=("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",),
    sass=("UTMASTG.2D",),
    needs=(Feature.TMA,),
    effects=_STORE,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Shared memory -> box of a 2D tensor map; completes with the thread's bulk group.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap& map, const void* source, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(&map), "r"(x), "r"(y), "r"(smem_address(source)) : "memory");
}
""",
)
def tma_store_2d(map: Any, source: Any, x: Any, y: Any) -> Any:
    """Shared memory into a box of a 2D tensor map; elements out of bounds are skipped. Completes with the thread's bulk group.

    What ordinary stores wrote to the source needs `fence_proxy_async` in the writers and a barrier first.
    """


@instruction(
    ptx=("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group",),
    sass=("UTMASTG.3D",),
    needs=(Feature.TMA,),
    effects=_STORE,
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Shared memory -> box of a 3D tensor map; completes with the thread's bulk group.
__device__ __forceinline__ void tma_store_3d(const CUtensorMap& map, const void* source, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
               ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(smem_address(source)) : "memory");
}
""",
)
def tma_store_3d(map: Any, source: Any, x: Any, y: Any, z: Any) -> Any:
    """Shared memory into a box of a 3D tensor map; elements out of bounds are skipped. Completes with the thread's bulk group."""


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

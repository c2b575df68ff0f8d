"""What an architecture is: limits, numbers, features. One file each; nothing else in the product asks `if arch ==`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Machine(Enum):
    """Which tensor-core path a chip has; large programs have one schedule for each."""

    WGMMA = "wgmma"
    TCGEN05 = "tcgen05"


class Feature(Enum):
    """A capability that an instruction or a lowering may need."""

    TMA = "TMA and bulk copies"
    WGMMA = "wgmma"
    TCGEN05 = "tcgen05 and tensor memory"
    OVERSIZED_SHARED_MEMORY = "oversized shared memory (327 KiB a block)"


@dataclass(frozen=True, slots=True)
class Architecture:
    """One compile target. Memory sizes are bytes, TMEM sizes columns of 128 lanes x 32 bits.

    `descriptor_mask` masks the start address field (in units of 16 bytes) of a shared-memory matrix descriptor.
    `minimum_cuda` is the first toolkit that knows the target.
    """

    name: str
    capability: tuple[int, int]
    machine: Machine
    minimum_cuda: str
    features: frozenset[Feature]
    descriptor_mask: int
    threads_per_sm: int
    blocks_per_sm: int
    tmem_columns: int
    threads_per_block: int = 1024
    shared_memory_per_block: int = 232448
    shared_memory_per_sm: int = 233472
    oversized_shared_memory_per_block: int = 0
    registers_per_sm: int = 65536
    registers_per_thread: int = 255

    @property
    def cuda_arch(self) -> int:
        """The value of `__CUDA_ARCH__` on this target."""
        return self.capability[0] * 100 + self.capability[1] * 10

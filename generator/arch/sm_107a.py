"""sm_107a: Rubin (R200). Half the resident threads, oversized shared memory, and so a 15-bit descriptor address."""

from dataclasses import replace

from kernwright.generator.arch.base import Feature
from kernwright.generator.arch.sm_100a import SM_100A

SM_107A = replace(
    SM_100A,
    name="sm_107a",
    capability=(10, 7),
    minimum_cuda="13.4",
    features=SM_100A.features | {Feature.OVERSIZED_SHARED_MEMORY},
    descriptor_mask=0x7FFF,
    threads_per_sm=1024,
    blocks_per_sm=16,
    oversized_shared_memory_per_block=334848,
)

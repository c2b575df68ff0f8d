"""sm_100a: Blackwell (B200). tcgen05 with accumulators in tensor memory."""

from kernwright.generator.arch.base import Architecture, Feature, Machine

SM_100A = Architecture(
    name="sm_100a",
    capability=(10, 0),
    machine=Machine.TCGEN05,
    minimum_cuda="12.8",
    features=frozenset({Feature.TMA, Feature.TCGEN05}),
    descriptor_mask=0x3FFF,
    threads_per_sm=2048,
    blocks_per_sm=32,
    tmem_columns=512,
)

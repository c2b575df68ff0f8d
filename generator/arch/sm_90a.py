"""sm_90a: Hopper (H100, H200). wgmma with accumulators in registers."""

from kernwright.generator.arch.base import Architecture, Feature, Machine

SM_90A = Architecture(
    name="sm_90a",
    capability=(9, 0),
    machine=Machine.WGMMA,
    minimum_cuda="12.0",
    features=frozenset({Feature.TMA, Feature.WGMMA}),
    descriptor_mask=0x3FFF,
    threads_per_sm=2048,
    blocks_per_sm=32,
    tmem_columns=0,
)

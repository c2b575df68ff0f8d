"""The architectures: one file each. Adding one is a new file here, its overriding instruction entries and the programs' lists."""

from kernwright.generator.arch.base import Architecture, Feature, Machine
from kernwright.generator.arch.sm_90a import SM_90A
from kernwright.generator.arch.sm_100a import SM_100A
from kernwright.generator.arch.sm_103a import SM_103A
from kernwright.generator.arch.sm_107a import SM_107A

ARCHITECTURES = {arch.name: arch for arch in (SM_90A, SM_100A, SM_103A, SM_107A)}
ALL = tuple(ARCHITECTURES)

__all__ = ["ALL", "ARCHITECTURES", "SM_90A", "SM_100A", "SM_103A", "SM_107A", "Architecture", "Feature", "Machine"]

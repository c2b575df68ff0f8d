"""One tile of a BF16 matrix product with more operand stages than 14-bit descriptor addresses reach."""

from kernwright.generator.dsl import Kernel, program
from kernwright.generator.kernels.tiles.mma_tile import mma_tile

STAGES = 12  # of 24 KiB: 288 KiB of operands


@program(family="tiles", archs=("sm_107a",))
def mma_tile_deep(k: Kernel) -> None:
    """C = A @ B.T for one 128 x 64 tile; A [128, K], B [64, K] BF16 row-major, C [128, 64] FP32; 288 KiB of operands in flight."""
    mma_tile(k, stages=STAGES, blocks=None)

"""One tile of a BF16 matrix product with more operand stages than 14-bit descriptor addresses reach."""

from kernwright.generator.dsl import Kernel, bf16, f32, i32, program, shared

TILE_M, TILE_N, TILE_K = 128, 64, 64
STAGES = 12  # of 24 KiB: 288 KiB of operands


@program(family="tiles", archs=("sm_107a",))
def mma_tile_deep(k: Kernel) -> None:
    """C = A @ B.T for one 128 x 64 tile; A [128, K], B [64, K] BF16 row-major, C [128, 64] FP32; 288 KiB of operands in flight."""
    depth = k.scalar("depth", i32, low=TILE_K, high=1 << 20, multiple_of=TILE_K)
    a = k.tensor("a", bf16, (TILE_M, depth))
    b = k.tensor("b", bf16, (TILE_N, depth))
    c = k.tensor("c", f32, (TILE_M, TILE_N), access="write")

    operands = k.pipeline(
        "operands",
        stages=STAGES,
        a=shared(bf16, (TILE_M, TILE_K), swizzle=128),
        b=shared(bf16, (TILE_N, TILE_K), swizzle=128),
    )
    result = k.accumulator("result", TILE_M, TILE_N)
    staged = k.buffer("staged", shared(f32, (TILE_M, TILE_N), swizzle=128))

    with k.role("load", registers=40), k.one_thread(), k.steps("slab", depth // TILE_K) as slab:
        with operands.produce() as tile:
            k.copy_tma(a[:, slab * TILE_K], tile.a)
            k.copy_tma(b[:, slab * TILE_K], tile.b)

    with k.role("multiply", registers=168):
        with k.steps("slab", depth // TILE_K) as slab, operands.consume() as tile:
            k.mma(result, tile.a, tile.b.T, accumulate=slab > 0)
        product = result.read()
        k.stage(product, staged)
        k.copy_tma(staged, c)

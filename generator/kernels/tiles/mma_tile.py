"""One tile of a BF16 matrix product: the smallest program with roles, a pipeline and a matrix product."""

from kernwright.generator.dsl import ALL, Kernel, bf16, f32, i32, program, shared


@program(family="tiles", archs=ALL)
def mma_tile(k: Kernel, tile_k: int = 64, stages: int = 3, blocks: int | None = 2) -> None:
    """C = A @ B.T for one 128 x 64 tile; A [128, K], B [64, K] BF16 row-major, C [128, 64] FP32."""
    depth = k.scalar("depth", i32, low=tile_k, high=1 << 20, multiple_of=tile_k)
    a = k.tensor("a", bf16, (128, depth))
    b = k.tensor("b", bf16, (64, depth))
    c = k.tensor("c", f32, (128, 64), access="write")

    operands = k.pipeline(
        "operands",
        stages=stages,
        a=shared(bf16, (128, tile_k), swizzle=128),
        b=shared(bf16, (64, tile_k), swizzle=128),
    )
    result = k.accumulator("result", 128, 64)
    if blocks is not None:
        k.occupancy(blocks_per_sm=blocks)
    staged = k.buffer("staged", shared(f32, (128, 64), swizzle=128))

    with k.role("load", registers=40), k.one_thread(), k.steps("slab", depth // tile_k) as slab:
        with operands.produce() as tile:
            k.copy_tma(a[:, slab * tile_k], tile.a)
            k.copy_tma(b[:, slab * tile_k], tile.b)

    with k.role("multiply", registers=168):
        with k.steps("slab", depth // tile_k) as slab, operands.consume() as tile:
            k.mma(result, tile.a, tile.b.T, accumulate=slab > 0)
        result_values = result.read()
        k.stage(result_values, staged)
        k.copy_tma(staged, c)

"""A persistent BF16 matrix product: each block multiplies one tile after another while the next operands are on their way."""

from kernwright.generator.dsl import ALL, Kernel, bf16, i32, program, shared

TILE_M, TILE_N, TILE_K = 128, 256, 64
BAND = 8  # tiles of M that blocks work through side by side, so that their operands meet in L2


@program(family="tiles", archs=ALL)
def gemm_persistent(k: Kernel) -> None:
    """C = A @ B.T with A [M, K], B [N, K], C [M, N], all BF16 row-major; FP32 accumulation.

    `blocks` is the number of blocks to launch, as a rule one an SM; block i takes tiles i, i + blocks, ... Tiles run down bands of
    1024 rows of C.
    """
    rows = k.scalar("rows", i32, low=TILE_M * BAND, high=1 << 17, multiple_of=TILE_M * BAND)
    columns = k.scalar("columns", i32, low=TILE_N, high=1 << 17, multiple_of=TILE_N)
    depth = k.scalar("depth", i32, low=TILE_K, high=1 << 20, multiple_of=TILE_K)
    blocks = k.scalar("blocks", i32, low=1, high=1 << 10)
    a = k.tensor("a", bf16, (rows, depth))
    b = k.tensor("b", bf16, (columns, depth))
    c = k.tensor("c", bf16, (rows, columns), access="write")

    first = k.grid("block", blocks)
    across = k.let("across", columns // TILE_N)
    tiles = k.let("tiles", rows // TILE_M * across)

    operands = k.pipeline(
        "operands",
        stages=3,
        a=shared(bf16, (TILE_M, TILE_K), swizzle=128),
        b=shared(bf16, (TILE_N, TILE_K), swizzle=128),
    )
    result = k.accumulator("result", TILE_M, TILE_N, buffers=2)
    staged = k.buffer("staged", shared(bf16, (TILE_M, TILE_N), swizzle=128))
    k.occupancy(blocks_per_sm=1)

    with k.role("load", registers=40), k.one_thread(), k.steps("tile", tiles, first=first, step=blocks) as tile:
        top = k.let("top", (tile // (BAND * across) * BAND + tile % BAND) * TILE_M)
        left = k.let("left", tile % (BAND * across) // BAND * TILE_N)
        with k.steps("slab", depth // TILE_K) as slab, operands.produce() as stage:
            k.copy_tma(a[top, slab * TILE_K], stage.a)
            k.copy_tma(b[left, slab * TILE_K], stage.b)

    with k.role("multiply", warpgroups=2, registers=232), k.steps("tile", tiles, first=first, step=blocks) as tile:
        with k.steps("slab", depth // TILE_K) as slab, operands.consume() as stage:
            k.mma(result, stage.a, stage.b.T, accumulate=slab > 0)
        product = result.read()
        k.stage(product, staged)
        top = k.let("top", (tile // (BAND * across) * BAND + tile % BAND) * TILE_M)
        left = k.let("left", tile % (BAND * across) // BAND * TILE_N)
        k.copy_tma(staged, c[top, left])

"""Matrix products on a CUDA device: values against FP64 within the accumulation bound, streams, graphs, repeats, speed."""

from __future__ import annotations

import math
import statistics

import torch
from torch import Tensor

from kernwright.runtime.loader.load import load
from tests.gpu.registry import check
from tests.gpu.repeats import REPEATS, REPLAYS, hold_equal_bits

BF16, F32 = torch.bfloat16, torch.float32
TILE_M, TILE_N = 128, 64
DEPTHS = (64, 128, 192, 256, 512, 1024, 4096)


def operands(rows: int, columns: int, depth: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random A [rows, depth] and B [columns, depth], BF16."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return tuple(torch.randn((n, depth), generator=generator, device="cuda").to(BF16) for n in (rows, columns))  # type: ignore[return-value]


def bound(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A B^T in FP64, and how far an FP32 accumulation may be from it: products are exact, each of K / 16 steps of the tensor core
    truncates its sum at 2^-22 of the largest magnitude, and each addition rounds once more: (K / 16 + 1) 2^-22 sum |a| |b| holds
    both.
    """
    exact = a.double() @ b.double().T
    steps = a.shape[1] / 16 + 1
    return exact, steps * 2.0**-22 * (a.double().abs() @ b.double().abs().T)


def run(name: str, *arguments: object) -> None:
    load(name, torch.cuda.current_device()).run(*arguments)


def mma_tile(a: Tensor, b: Tensor) -> Tensor:
    c = torch.full((TILE_M, TILE_N), math.nan, device="cuda", dtype=F32)
    run("tiles_mma_tile", a, b, c)
    return c


def gemm(a: Tensor, b: Tensor, blocks: int | None = None) -> Tensor:
    c = torch.full((a.shape[0], b.shape[0]), math.nan, device="cuda", dtype=BF16)
    run("tiles_gemm_persistent", a, b, c, blocks or torch.cuda.get_device_properties().multi_processor_count)
    return c


@check("tiles_mma_tile")
def tile_right_against_fp64() -> str:
    """Every element within the accumulation bound, at every depth, for random and for structured operands."""
    worst = 0.0
    for depth in DEPTHS:
        a, b = operands(TILE_M, TILE_N, depth, depth)
        exact, limit = bound(a, b)
        ratio = float(((mma_tile(a, b).double() - exact).abs() / limit).max())
        assert ratio <= 1.0, f"K = {depth}: {ratio:.2f} of the bound"
        worst = max(worst, ratio)
        row = torch.arange(TILE_M, device="cuda", dtype=F32)[:, None]
        place = torch.arange(depth, device="cuda")[None, :]
        marked = torch.where(place == 3, row, 0.0).to(BF16)  # row number in one place of K: a swapped row or step shows
        picks = torch.where(place == 3, torch.arange(TILE_N, device="cuda", dtype=F32)[:, None], 0.0).to(BF16)
        outer = row * torch.arange(TILE_N, device="cuda", dtype=F32)[None, :]
        assert torch.equal(mma_tile(marked, picks), outer), f"K = {depth}: elements are in the wrong places"
    return f"K = {', '.join(map(str, DEPTHS))}: at most {worst:.3f} of the accumulation bound"


@check("tiles_gemm_persistent")
def gemm_right_against_fp64() -> str:
    """Every element within the accumulation bound and one rounding to BF16; more and fewer blocks than tiles."""
    worst = 0.0
    for rows, columns, depth, blocks in (
        (1024, 256, 64, 3),
        (1024, 512, 256, 132),
        (2048, 1280, 1024, 7),
        (3072, 768, 4096, None),
    ):
        a, b = operands(rows, columns, depth, rows + depth)
        exact, limit = bound(a, b)
        error = (gemm(a, b, blocks).double() - exact).abs()
        ratio = float((error / (limit + exact.abs() * 2.0**-8)).max())
        assert ratio <= 1.0, f"{rows} x {columns} x {depth}: {ratio:.2f} of the bound"
        worst = max(worst, ratio)
    return f"4 shapes, depths 64 to 4096: at most {worst:.3f} of the bound"


@check("tiles_mma_tile", "tiles_gemm_persistent")
def products_have_one_hash() -> str:
    """Repeats, a side stream and a replayed graph give the same bits."""
    a, b = operands(TILE_M, TILE_N, 4096, 5)
    left, right = operands(2048, 1024, 2048, 6)
    hold_equal_bits("products", lambda prepare: (mma_tile(prepare(a), b), gemm(prepare(left), right)))
    return f"{REPEATS} repeats, a side stream and {REPLAYS} replays of a graph: equal bits"


@check("tiles_gemm_persistent")
def gemm_speed_beside_torch() -> str:
    """8192^3 on random data, in turns with torch.matmul; CUDA events around 10 calls, median of 9 rounds."""
    size, calls, rounds = 8192, 10, 9
    a, b = operands(size, size, size, 7)
    c, blocks = (
        torch.empty((size, size), device="cuda", dtype=BF16),
        torch.cuda.get_device_properties().multi_processor_count,
    )
    transposed = b.T
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds + 1):
        for times, call in (
            (ours, lambda: run("tiles_gemm_persistent", a, b, c, blocks)),
            (theirs, lambda: torch.matmul(a, transposed, out=c)),
        ):
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(calls):
                call()
            stop.record()
            stop.synchronize()
            if number:
                times.append(start.elapsed_time(stop) / calls)
    mine, peer = statistics.median(ours), statistics.median(theirs)
    flops = 2 * size**3 / 1e9
    share = peer / mine
    assert share >= 0.8, f"{share:.3f} of torch.matmul: {flops / mine:.0f} against {flops / peer:.0f} TFLOP/s"
    return f"{share:.3f} of torch.matmul's rate: {flops / mine:.0f} against {flops / peer:.0f} TFLOP/s at {size}^3"

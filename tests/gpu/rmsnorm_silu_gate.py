"""The norm forward on a CUDA device: values against FP64, edges, streams, threads, graphs."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

import kernwright
from tests.gpu.reference import forward_fp64, off_by
from tests.gpu.registry import check

D = 128
BOTH = ("rmsnorm_silu_gate_forward_w_bf16", "rmsnorm_silu_gate_forward_w_f32")
norm = kernwright.rmsnorm_silu_gate


def inputs(
    rows: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Random x, z [rows, 128] BF16 and w [128]."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda")

    x = (normal(rows, D) * scale).bfloat16()
    return x, normal(rows, D).mul(2.0).bfloat16(), (1.0 + 0.2 * normal(D)).to(dtype)


def same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.view(torch.int16), b.view(torch.int16))


def kinds_of_rows() -> dict[str, tuple[Tensor, Tensor, float]]:
    """x, z and eps for rows inside the FP32-normal range: every intermediate of the exact computation is an FP32 normal."""
    x, z, _ = inputs(4096, seed=1)
    cancelling = torch.cat([x[:, : D // 2], -x[:, : D // 2]], dim=1)
    spread = (x.float() * torch.exp2(torch.randint(-40, 40, x.shape, device="cuda").float())).bfloat16()
    return {
        "random": (x, z, 1e-6),
        "tiny": ((x.float() * 1e-15).bfloat16(), z, 1e-34),
        "tiny beside eps": ((x.float() * 1e-15).bfloat16(), z, 1e-6),
        "huge": ((x.float() * 1e17).bfloat16(), z, 1e-6),
        "cancelling": (cancelling, z, 1e-6),
        "wide spread": (spread, z, 1e-6),
        "deep gates": (x, (z.float() * 12.0).clamp(-80.0, 80.0).bfloat16(), 1e-6),
        "one large value": (torch.where(torch.arange(D, device="cuda") == 77, x * 1e6, x), z, 1e-6),
        "no eps": (x, z, 0.0),
    }


@check(*BOTH)
def right_against_fp64() -> str:
    """Every result is one of the two BF16 neighbours of the exact value; nearly all are the nearer one."""
    elements = not_nearest = 0
    for dtype in (torch.bfloat16, torch.float32):
        for name, (x, z, eps) in kinds_of_rows().items():
            _, _, w = inputs(1, dtype, seed=2)
            exact = forward_fp64(x, z, w, eps)
            normal = exact.abs() >= torch.finfo(torch.float32).tiny
            y = norm(x, z, w, eps)
            wrong, off = off_by(torch.where(normal, y, 0), torch.where(normal, exact, 0))
            assert wrong == 0, f"{name}, {dtype}: {wrong} results are no neighbour of the exact value"
            elements, not_nearest = elements + y.numel(), not_nearest + off
    assert not_nearest <= elements // 1000, f"{not_nearest} of {elements} results are not the nearest BF16 value"
    return f"{elements} elements, 0 further than one BF16 rounding, {not_nearest} not the nearest"


@check(*BOTH)
def any_number_of_rows() -> str:
    """0 rows launch nothing; 1 and every remainder of a block are right and touch nothing around them."""
    counts = [0, 1, 2, 7, 8, 9, 15, 16, 17, 127, 128, 1000, 1031 * 48]
    for dtype in (torch.bfloat16, torch.float32):
        for rows in counts:
            x, z, w = inputs(rows, dtype, seed=rows + 3)
            padded = torch.full((rows + 32, D), math.nan, device="cuda", dtype=torch.bfloat16)
            padded_x, padded_z = padded.clone(), padded.clone()
            padded_x[16 : 16 + rows], padded_z[16 : 16 + rows] = x, z
            surroundings = torch.full((rows + 32, D), 7.0, device="cuda", dtype=torch.bfloat16)
            y = surroundings[16 : 16 + rows]
            norm(padded_x[16 : 16 + rows], padded_z[16 : 16 + rows], w, out=y)
            wrong, _ = off_by(y, forward_fp64(x, z, w, 1e-6))
            assert wrong == 0, f"{rows} rows: {wrong} wrong"
            assert bool((surroundings[:16] == 7.0).all()) and bool((surroundings[16 + rows :] == 7.0).all()), (
                f"{rows}: wrote outside"
            )
    x, z, w = inputs(6 * 48)
    assert same_bits(norm(x.view(2, 3, 48, D), z.view(2, 3, 48, D), w).view(-1, D), norm(x, z, w)), (
        "leading dimensions fold"
    )
    return f"rows {counts}, both weights; surroundings untouched"


@check(*BOTH)
def infinities_and_nans_stay_in_their_row() -> str:
    x, z, w = inputs(64, seed=4)
    clean = norm(x, z, w)
    for tensor in (x, z):
        for value in (math.inf, -math.inf, math.nan):
            kept = tensor[::9].clone()
            tensor[::9, 5] = value
            y = norm(x, z, w)
            others = torch.ones(64, dtype=torch.bool, device="cuda")
            others[::9] = False
            assert same_bits(y[others], clean[others]), f"{value} left its row"
            assert bool(torch.isnan(y[::9]).any(dim=1).all()) or value == math.inf, f"{value} vanished"
            tensor[::9] = kept
    return "Inf, -Inf and NaN in x and z: all other rows keep their bits"


@check(*BOTH)
def outside_the_normal_range_as_documented() -> str:
    x, z, w = inputs(8, torch.float32, seed=5)
    w = w.abs()
    overflow = torch.full_like(x, 1e30)
    assert bool((norm(overflow, z, w) == 0).all()), "a mean square that overflows gives zeros"
    zeros = torch.zeros_like(x)
    assert bool(torch.isnan(norm(zeros, z, w, 0.0)).all()), "a row of zeros without eps is NaN"
    assert bool((norm(zeros, z, w) == 0).all()), "a row of zeros with eps is zero"
    assert bool(torch.isnan(norm(x, torch.full_like(z, -math.inf), w)).all()), "z = -inf is NaN"
    assert bool((norm(x, torch.full_like(z, -200.0), w) == 0).all()), "a very negative gate closes"
    ones = torch.ones_like(x)
    assert bool((norm(ones, torch.full_like(z, 3e38), w + 4.0) == math.inf).all()), "a result past BF16 is infinite"
    return "overflow of the mean square, zero rows, closed and infinite gates, overflow of the result"


@check("rmsnorm_silu_gate_forward_w_bf16")
def offsets_past_two_to_the_31() -> str:
    """16,777,248 rows are 2^31 + 4096 elements; the first and last rows are compared (about 13 GB are needed)."""
    rows = 16_777_248
    if torch.cuda.mem_get_info()[0] < 16 << 30:
        return "skipped: less than 16 GiB of device memory are free"
    x = torch.empty((rows, D), device="cuda", dtype=torch.bfloat16).normal_(
        generator=torch.Generator("cuda").manual_seed(6)
    )
    z = x.flip(0)
    _, _, w = inputs(1, seed=6)
    y = torch.full_like(x, math.nan)
    norm(x, z, w, out=y)
    middle = (1 << 31) // D - 32
    for start in (0, middle, rows - 64):
        part = slice(start, start + 64)
        wrong, _ = off_by(y[part], forward_fp64(x[part], z[part], w, 1e-6))
        assert wrong == 0, f"rows {start} ..: {wrong} wrong"
    assert not bool(torch.isnan(y).any()), "every row was written"
    return f"{rows} rows, {x.numel()} elements: both ends and the 2^31 boundary right"


@check(*BOTH)
def same_bits_again_and_in_any_batch() -> str:
    """A row's bits depend on nothing but the row, w and eps: not on repeats, the number of rows, or the row's place."""
    for dtype in (torch.bfloat16, torch.float32):
        x, z, w = inputs(5000, dtype, seed=7)
        whole = norm(x, z, w)
        assert all(same_bits(norm(x, z, w), whole) for _ in range(10))
        for start, stop in ((0, 1), (3, 4), (17, 1000), (4991, 5000)):
            assert same_bits(norm(x[start:stop], z[start:stop], w), whole[start:stop])
        order = torch.randperm(5000, device="cuda")
        assert same_bits(norm(x[order], z[order], w), whole[order])
    return "10 repeats, slices and a permutation: equal bits"


@check(*BOTH)
def on_a_side_stream() -> str:
    """The launch goes to the current stream: it waits for what that stream did before, and for nothing else."""
    x, z, w = inputs(20_000, seed=8)
    expected = norm(x, z, w)
    late = torch.empty_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        y = norm(late, z, w)
    assert not stream.query(), "the call came back before its stream was done"
    stream.synchronize()
    assert same_bits(y, expected)
    return "waits for earlier work of its own stream, returns at once"


@check(*BOTH)
def on_a_fresh_thread() -> str:
    """A thread that never used CUDA has no context; autograd's workers are such threads."""
    x, z, w = inputs(1000, seed=9)
    expected = norm(x, z, w)
    y = torch.empty_like(x)
    torch.cuda.synchronize()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            norm(x, z, w, out=y)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failures, failures
    assert same_bits(y, expected)
    return "launches without a current context"


@check(*BOTH)
def replayed_from_a_graph() -> str:
    """Captured once, replayed with other inputs: equal to the eager bits."""
    for dtype in (torch.bfloat16, torch.float32):
        x, z, w = inputs(3333, dtype, seed=10)
        kernwright.runtime.ops.prepare(x.device.index)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = norm(x, z, w)
        for seed in (11, 12, 13):
            new = inputs(3333, dtype, seed=seed)
            for old, value in zip((x, z, w), new, strict=True):
                old.copy_(value)
            graph.replay()
            torch.cuda.synchronize()
            assert same_bits(y, norm(*new)), "replay differs from the eager call"
    return "3 replays with new inputs, both weights: the eager bits"


@check(*BOTH)
def compiled_and_differentiated() -> str:
    """torch.compile without graph breaks, and gradients against FP64 autograd."""
    x, z, w = inputs(300, torch.float32, seed=14)
    compiled = torch.compile(lambda a, b, c: norm(a, b, c) * 2, fullgraph=True, backend="aot_eager")
    assert same_bits(compiled(x, z, w), norm(x, z, w) * 2)
    leaves = [t.detach().clone().requires_grad_() for t in (x, z, w)]
    dy = torch.randn_like(x)
    norm(*leaves).backward(dy)
    exact = [t.detach().double().requires_grad_() for t in (x, z, w)]
    forward_fp64(*exact, 1e-6).backward(dy.double())
    worst = 0.0
    for got, wanted in zip(leaves, exact, strict=True):
        assert got.grad is not None and wanted.grad is not None
        worst = max(worst, float((got.grad.double() - wanted.grad).norm() / wanted.grad.norm()))
    assert worst < 4e-3, f"relative error of a gradient {worst}"
    return f"fullgraph compile equal; worst relative gradient error {worst:.2e} (BF16 results)"


@check(*BOTH)
def refusals_name_the_argument() -> str:
    x, z, w = inputs(4)
    cases = [
        ((x.float(), z, w), "x"),
        ((x, z[:2], w), "z"),
        ((x, z, w[:64]), "weight"),
        ((x, z.cpu(), w), "z"),
        ((x[:, :64], z[:, :64], w), "x"),
    ]
    for arguments, name in cases:
        try:
            norm(*arguments)
        except (TypeError, ValueError) as error:
            assert f"{name}:" in str(error), str(error)
        else:
            raise AssertionError(f"a wrong {name} was accepted")
    both = torch.zeros(7 * D, device="cuda", dtype=torch.bfloat16)
    for out in (x, both[1 : 1 + 4 * D].view(4, D), both[3 * D :].view(4, D), z.view(2, 2, D)):
        try:
            norm(both[: 4 * D].view(4, D), z, w, out=out) if out is not x else norm(x, z, w, out=out)
        except ValueError as error:
            assert "out:" in str(error), str(error)
        else:
            raise AssertionError("an out= that a kernel cannot write was accepted")
    strided = torch.randn(64, 2, D, device="cuda").bfloat16()[:, 1]
    shifted = torch.randn(64 * D + 1, device="cuda").bfloat16()[1:].view(64, D)
    low_level = getattr(torch.ops.kernwright, BOTH[0])
    for tensor in (strided, shifted):
        expected = norm(tensor.clone(memory_format=torch.contiguous_format), tensor.contiguous().clone(), w)
        y = torch.empty_like(expected)
        low_level(tensor, tensor, w, y, 1e-6)
        assert y._version == 1 and same_bits(y, expected) and same_bits(norm(tensor, tensor, w), expected)
    return f"{len(cases) + 4} wrong calls refused by name; strided and unaligned inputs are copied"

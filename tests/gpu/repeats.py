"""Equal bits of one computation: repeated, on a side stream, and replayed from a graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

REPEATS = 100
REPLAYS = 10
Pass = Callable[[Tensor], Tensor]


def hold_equal_bits(name: str, compute: Callable[[Pass], tuple[Tensor, ...]]) -> None:
    """Run `compute` in each way and compare every result; raises AssertionError with `name` and the way that differs.

    `compute(prepare)` fills its results with NaN, passes one of its inputs through `prepare`, launches and returns the results.
    """
    first = compute(_as_it_is)

    def hold(results: tuple[Tensor, ...], way: str) -> None:
        same = all(torch.equal(one, other) for one, other in zip(results, first, strict=True))
        assert same, f"{name}: {way} differs"

    for _ in range(REPEATS):
        hold(compute(_as_it_is), "a repeat")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = compute(torch.clone)  # an input that is there only once the stream has got so far
    stream.synchronize()
    hold(late, "the side stream")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = compute(_as_it_is)
    for _ in range(REPLAYS):
        graph.replay()
        torch.cuda.synchronize()
        hold(replayed, "a replay")


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor

"""Descriptions of a product in a ring, with choices, for the tests of derived facts and of refusals."""

from __future__ import annotations

from collections.abc import Callable

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Fragment, Kernel, bf16, f32, shared
from kernwright.generator.passes.derive import BufferFacts, Derived, PipelineFacts, RegisterEstimate, derive

SQUARE = shared(bf16, (64, 64), swizzle=128)
LIKE = Fragment(64, 64)


def facts(trace, described: Callable[[Kernel], None], arch: str = "sm_90a") -> Derived:
    """What is derived for a description."""
    return derive(trace(described), ARCHITECTURES[arch])


def ring_of(derived: Derived, name: str) -> PipelineFacts:
    """The facts of one pipeline."""
    return next(item for item in derived.pipelines if item.pipeline.name == name)


def buffer_of(derived: Derived, name: str) -> BufferFacts:
    """The facts of one buffer."""
    return next(item for item in derived.buffers if item.buffer.name == name)


def estimate_of(derived: Derived, role: str) -> RegisterEstimate:
    """The register estimate of one role."""
    return next(item for item in derived.registers if item.role == role)


def product(
    k: Kernel,
    left=SQUARE,
    right=SQUARE,
    rows: int = 64,
    *,
    stages=3,
    turned=False,
    operand=False,
    fetch=False,
    use=False,
    **role,
):
    """A ring of two tiles, their product in one role, the result stored."""
    source = k.tensor("source", bf16, (1024, 1024))
    target = k.tensor("target", f32, (rows, 64), access="write")
    ring = k.pipeline("tiles", stages=stages, left=left, right=right)
    result = k.accumulator("result", rows, 64)
    staged = k.buffer("staged", shared(f32, (rows, 64), swizzle=128))
    with k.role("load"), k.one_thread(), k.steps("step", 4), ring.produce() as stage:
        k.copy_tma(source[0, 0], stage.left)
        k.copy_tma(source[0, 0], stage.right)
    with k.role("use", **role):
        if operand:
            query = k.fetch(
                k.buffer("queries", shared(bf16, (rows, 64), swizzle=128)), Fragment(rows, 64, "operand"), dtype=bf16
            )
        with k.steps("step", 4), ring.consume() as stage:
            k.mma(result, query if operand else stage.left.T if turned else stage.left, stage.right.T)
            if fetch:
                k.fetch(stage.right, LIKE, name="values_of_b")
            if use:
                result.read(name="partial")
        values = result.read()
        k.stage(values, staged)
        k.copy_tma(staged, target)


def described_product(**choices) -> Callable[[Kernel], None]:
    """A description of a product; `blocks` is its occupancy."""
    blocks = choices.pop("blocks", None)

    def described(k: Kernel) -> None:
        """A product."""
        if blocks is not None:
            k.occupancy(blocks)
        product(k, **choices)

    return described

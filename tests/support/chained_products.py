"""Two products in a row, written after the passes: the first result is rounded and fed to the second from where it lies."""

from __future__ import annotations

from kernwright.generator.dsl import ALL, Kernel, bf16, f32, i32, program, shared
from kernwright.generator.dsl.program import Registry

ROWS, STEP, DEPTH, WIDTH = 128, 64, 64, 128
PROGRAMS = Registry()


@program(family="tests", archs=ALL, registry=PROGRAMS)
def chained_products(k: Kernel) -> None:
    """O = sum over steps of 64 tokens of (scale Q K^T) V; Q [128, 64], K [tokens, 64], V [tokens, 128], O [128, 128], BF16."""
    tokens = k.scalar("tokens", i32, low=STEP, high=1 << 20, multiple_of=STEP)
    scale = k.scalar("scale", f32)
    queries = k.tensor("queries", bf16, (ROWS, DEPTH))
    keys = k.tensor("keys", bf16, (tokens, DEPTH))
    values = k.tensor("values", bf16, (tokens, WIDTH))
    outputs = k.tensor("outputs", bf16, (ROWS, WIDTH), access="write")

    standing = k.pipeline("standing", stages=1, query=shared(bf16, (ROWS, DEPTH), swizzle=128))
    operands = k.pipeline(
        "operands",
        stages=3,
        key=shared(bf16, (STEP, DEPTH), swizzle=128),
        value=shared(bf16, (STEP, WIDTH), swizzle=128),
    )
    scores = k.accumulator("scores", ROWS, STEP)
    output = k.accumulator("output", ROWS, WIDTH)
    staged = k.buffer("staged", shared(bf16, (ROWS, WIDTH), swizzle=128))

    with k.role("load", registers=40), k.one_thread():
        with standing.produce() as fixed:
            k.copy_tma(queries[:, :], fixed.query)
        with k.steps("token_step", tokens // STEP) as step, operands.produce() as stage:
            k.copy_tma(keys[step * STEP, :], stage.key)
            k.copy_tma(values[step * STEP, :], stage.value)

    with k.role("multiply", warpgroups=2, registers=232):
        with standing.consume() as fixed:
            with k.steps("token_step", tokens // STEP) as step, operands.consume() as stage:
                k.mma(scores, fixed.query, stage.key.T, accumulate=False)
                weights = k.operand(scores.read() * scale)
                k.mma(output, weights, stage.value, accumulate=step > 0)
        product = output.read()
        k.stage(product, staged)
        k.copy_tma(staged, outputs)

"""The serial part of the chunked Gated DeltaNet forward pass: one block carries the state of one value head through the chunks.

Convention: T' = (I + strict_lower(beta_i D_ij k_i.k_j))^-1 diag(beta) is made by the preparation kernel, so beta is not read here.
"""

from kernwright.generator.dsl import Extent, Fragment, Kernel, bf16, f32, i32, program, shared

CHUNK = 64
HEAD = 128
LOG2E = 1.4426950408889634


@program(family="gated_delta_rule", archs=("sm_90a",), shipped=False)
def scan_step(k: Kernel, values: int = 64, stages: int = 3, copies: int = 2) -> None:
    """Per chunk of 64 tokens, with S the state [K, V] and G the cumulative log gate of the chunk:

    X    = V - diag(e^G) K S            Vnew = T' X
    O    = scale diag(e^G) Q S + P Vnew     P = lower(scale e^(G_i - G_j) q_i.k_j)
    S    = e^(G_last) S + K^T diag(e^(G_last - G)) Vnew

    q, k BF16 [tokens, 128], v, o BF16 [tokens, values], t BF16 [tokens, 64], g_cs FP32 [tokens, 1]. The state is kept transposed
    (rows are V) in FP32 accumulators for the whole sequence and is fed back as a register operand.
    """
    tokens = k.scalar("tokens", i32, low=CHUNK, high=1 << 24, multiple_of=CHUNK)
    scale = k.scalar("scale", f32, minimum=0.0)
    queries = k.tensor("queries", bf16, (tokens, HEAD))
    keys = k.tensor("keys", bf16, (tokens, HEAD))
    inputs = k.tensor("inputs", bf16, (tokens, values))
    inverse = k.tensor("inverse", bf16, (tokens, CHUNK))
    gates = k.tensor("gates", f32, (tokens, 1))
    outputs = k.tensor("outputs", bf16, (tokens, values), access="write")
    chunks = tokens // CHUNK

    key_ring = k.pipeline(
        "key_ring",
        stages=stages,
        key=shared(bf16, (CHUNK, HEAD), swizzle=128),
        query=shared(bf16, (CHUNK, HEAD), swizzle=128),
        gate=shared(f32, (CHUNK, 1)),
    )
    value_ring = k.pipeline(
        "value_ring",
        stages=stages,
        value=shared(bf16, (CHUNK, values), swizzle=128),
        inverse=shared(bf16, (CHUNK, CHUNK), swizzle=128),
    )
    factor_ring = k.pipeline(
        "factor_ring",
        stages=2,
        decay=shared(f32, (CHUNK, 1)),
        remaining=shared(f32, (CHUNK, 1)),
        total=shared(f32, (4, 1)),
    )
    state_ring = k.pipeline(
        "state_ring",
        stages=2,
        state=shared(bf16, (values, HEAD), swizzle=128),
        fresh=shared(bf16, (values, CHUNK), swizzle=128),
    )
    state = k.accumulator("state", values, HEAD)
    projected = k.accumulator("projected", values, CHUNK)
    corrected = k.accumulator("corrected", values, CHUNK)
    scores = k.accumulator("scores", CHUNK, CHUNK)
    output = k.accumulator("output", CHUNK, values)
    staged = k.buffer("staged", shared(bf16, (CHUNK, values), swizzle=128))
    by_token = Fragment(values, CHUNK)
    by_score = Fragment(CHUNK, CHUNK)

    with k.role("load", registers=40), k.one_thread(), k.steps("chunk", chunks) as chunk:
        with key_ring.produce() as stage:
            k.copy_tma(keys[chunk * CHUNK, 0], stage.key)
            k.copy_tma(queries[chunk * CHUNK, 0], stage.query)
            k.copy_bulk(gates[chunk * CHUNK, 0], stage.gate)
        with value_ring.produce() as stage:
            k.copy_tma(inputs[chunk * CHUNK, 0], stage.value)
            k.copy_tma(inverse[chunk * CHUNK, 0], stage.inverse)

    with k.role("factors", shares="load", warp=1), k.steps("chunk", chunks):
        with key_ring.consume() as stage, value_ring.consume(), factor_ring.produce() as factor:
            gate = k.fetch(stage.gate, by_token, Extent.COLUMNS)
            last = k.fetch(stage.gate, None, Extent.SCALAR)
            k.stage(k.exp2(gate * LOG2E), factor.decay)
            k.stage(k.exp2((last - gate) * LOG2E), factor.remaining)
            k.stage(k.exp2(last * LOG2E), factor.total)

    with k.role("output_role", registers=136, replicas=copies), k.steps("chunk", chunks) as chunk:
        with key_ring.consume() as stage:
            query_operand = k.fetch(stage.query, Fragment(CHUNK, HEAD, "operand"), dtype=bf16)
            row_gate = k.fetch(stage.gate, by_score, Extent.ROWS)
            column_gate = k.fetch(stage.gate, by_score, Extent.COLUMNS)
            k.mma(scores, query_operand, stage.key.T, accumulate=False)
            score_values = scores.read()
            kept = k.rows_of(by_score) >= k.columns_of(by_score)
            weight = k.exp2((row_gate - column_gate) * LOG2E) * scale
            masked = k.where(kept, score_values * weight, 0.0)
            score_operand = k.operand(masked)
            with state_ring.consume(after=(score_operand,)) as published:
                k.mma(output, query_operand, published.state.T, accumulate=False)
                output.scale(k.exp2(row_gate * LOG2E) * scale)
                k.mma(output, score_operand, published.fresh.T)
        output_values = output.read()
        k.stage(output_values, staged)
        k.copy_tma(staged, outputs[chunk * CHUNK, 0])

    with k.role("state_role", registers=200):
        state.fill(0.0)
        with k.steps("chunk", chunks), factor_ring.consume() as factor, state_ring.produce() as published:
            with (
                key_ring.consume(relayed_by=factor_ring) as stage,
                value_ring.consume(relayed_by=factor_ring) as chunk_values,
            ):
                state_values = state.read()
                state_operand = k.operand(state_values)
                k.mma(projected, state_operand, stage.key.T, accumulate=False)
                k.stage(state_values, published.state)
                state.scale(k.fetch(factor.total, None, Extent.SCALAR, name="total"))
                value = k.fetch(chunk_values.value.T, by_token)
                decay = k.fetch(factor.decay, by_token, Extent.COLUMNS)
                projected_values = projected.read()
                residual = value - decay * projected_values
                residual_operand = k.operand(residual)
                k.mma(corrected, residual_operand, chunk_values.inverse.T, accumulate=False)
                fresh = corrected.read()
                k.stage(fresh, published.fresh)
                remaining = k.fetch(factor.remaining, by_token, Extent.COLUMNS)
                update_operand = k.operand(fresh * remaining)
                k.mma(state, update_operand, stage.key)

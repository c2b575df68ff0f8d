"""The serial part of the chunked Gated DeltaNet forward pass: a block carries a part of one value head's state through the chunks.

Convention: T' = (I + strict_lower(beta_i D_ij k_i.k_j))^-1 diag(beta) is made by the preparation kernel, so beta is not read here.
"""

from dataclasses import dataclass

from kernwright.generator.dsl import Extent, Fragment, Kernel, Value, bf16, f32, i32, program, shared
from kernwright.generator.dsl.memory import AccumulatorHandle, PipelineHandle, SharedHandle, Stage, Tensor

CHUNK = 64
HEAD = 128
LOG2E = 1.4426950408889634
BY_SCORE = Fragment(CHUNK, CHUNK)
SCORE_OPERAND = Fragment(CHUNK, CHUNK, "operand")


@dataclass(frozen=True)
class Schedule:
    """What differs between 64 and 128 columns of V in a block, and where P is prepared instead of computed here."""

    values: int
    load_p: bool

    @property
    def wide(self) -> bool:
        """128 columns: two state warpgroups, one copy of role output, Q in shared memory, S^T published early and apart."""
        return self.values == HEAD

    @property
    def value_stages(self) -> int:
        """What shared memory leaves."""
        return 2 if self.wide or self.load_p else 3

    @property
    def ahead(self) -> int:
        """V and e^G a step ahead, where registers are left for it."""
        return 0 if self.wide else 1


@dataclass(frozen=True)
class Inputs:
    """Tensors of the program; `prepared` is P, or nothing."""

    queries: Tensor
    keys: Tensor
    inputs: Tensor
    inverse: Tensor
    prepared: Tensor | None
    gates: Tensor


@dataclass(frozen=True)
class Rings:
    """The pipelines; `fresh` is the state ring itself where S^T and Vnew^T are published together."""

    key: PipelineHandle
    value: PipelineHandle
    factor: PipelineHandle
    state: PipelineHandle
    fresh: PipelineHandle


@program(
    family="gated_delta_rule",
    archs=("sm_90a",),
    variants={
        "scan_step": {},
        "scan_step_load_p": {"load_p": True},
        "scan_step_wide": {"values": 128},
        "scan_step_wide_load_p": {"values": 128, "load_p": True},
    },
)
def scan_step(k: Kernel, values: int = 64, load_p: bool = False) -> None:
    """Per chunk of 64 tokens, with S the state [K, V] and G the cumulative log gate of the chunk:

    X    = V - diag(e^G) K S            Vnew = T' X
    O    = scale diag(e^G) Q S + P Vnew     P = lower(scale e^(G_i - G_j) q_i.k_j)
    S    = e^(G_last) S + K^T diag(e^(G_last - G)) Vnew

    queries, keys BF16 [tokens, key heads, 128]; inputs, outputs BF16 [tokens, value heads, 128]; inverse T' BF16 [value heads x
    tokens, 64]; gates G FP32 [value heads, tokens]; initial and final state FP32 [value heads x 128 (V), 128 (K)], either absent. A
    block computes `values` columns of V. The state is kept transposed (rows are V) in FP32 accumulators for the whole sequence and
    is fed back as a register operand. With `load_p`, P is prepared like T'.
    """
    schedule = Schedule(values, load_p)
    tokens = k.scalar("tokens", i32, low=CHUNK, high=1 << 20, multiple_of=CHUNK)
    key_heads = k.scalar("key_heads", i32, low=1, high=128)
    value_heads = k.scalar("value_heads", i32, low=1, high=128)
    scale = k.scalar("scale", f32, minimum=0.0)
    tensors = Inputs(
        k.tensor("queries", bf16, (tokens, key_heads, HEAD)),
        k.tensor("keys", bf16, (tokens, key_heads, HEAD)),
        k.tensor("inputs", bf16, (tokens, value_heads, HEAD)),
        k.tensor("inverse", bf16, (value_heads * tokens, CHUNK), folded=True),
        k.tensor("prepared", bf16, (value_heads * tokens, CHUNK), folded=True) if load_p else None,
        k.tensor("gates", f32, (value_heads, tokens)),
    )
    initial_state = k.tensor("initial_state", f32, (value_heads * HEAD, HEAD), folded=True, optional=True)
    final_state = k.tensor("final_state", f32, (value_heads * HEAD, HEAD), access="write", folded=True, optional=True)
    outputs = k.tensor("outputs", bf16, (tokens, value_heads, HEAD), access="write")

    block = k.grid("block", value_heads * (HEAD // values))
    value_head = block // (HEAD // values)
    first_value = block % (HEAD // values) * values
    key_head = value_head // (value_heads // key_heads)
    chunks = tokens // CHUNK

    rings = _rings(k, schedule)
    with k.role("load", registers=32 if schedule.wide else 40), k.one_thread(), k.steps("chunk", chunks) as chunk:
        token = chunk * CHUNK
        _load(k, tensors, rings, token, key_head, value_head, first_value, value_head * tokens + token)
    with k.role("factors", shares="load", warp=1), k.steps("chunk", chunks):
        _factors(k, rings, Fragment(values, CHUNK))

    scores = None if load_p else k.accumulator("scores", CHUNK, CHUNK)
    output = k.accumulator("output", CHUNK, values)
    staged = k.buffer("staged", shared(bf16, (CHUNK, values), swizzle=128))
    with k.role("output_role", registers=136, replicas=1 if schedule.wide else 2), k.steps("chunk", chunks) as chunk:
        _output(k, schedule, rings, scores, output, scale)
        output_values = output.read()
        k.stage(output_values, staged)
        k.copy_tma(staged, outputs[chunk * CHUNK, value_head, first_value], rows=0)

    state = k.accumulator("state", values, HEAD)
    projected = k.accumulator("projected", values, CHUNK)
    corrected = k.accumulator("corrected", values, CHUNK)
    with k.role("state_role", warpgroups=values // 64, registers=168 if schedule.wide else 200):
        state_row = value_head * HEAD + first_value
        state.fill(0.0)
        with k.when_present(initial_state):
            start = k.load_tile(initial_state[state_row, 0], state.layout)
            state.set(start)
        with k.steps("chunk", chunks):
            _state(k, schedule, rings, state, projected, corrected)
        with k.when_present(final_state):
            final = state.read()
            k.store_tile(final_state[state_row, 0], final)


def _rings(k: Kernel, schedule: Schedule) -> Rings:
    key_tile = shared(bf16, (CHUNK, HEAD), swizzle=128)
    square = shared(bf16, (CHUNK, CHUNK), swizzle=128)
    column = shared(f32, (CHUNK, 1))
    key = k.pipeline("key_ring", stages=3, key=key_tile, query=key_tile, gate=column)
    value_tiles = {"value": shared(bf16, (CHUNK, schedule.values), swizzle=128), "inverse": square}
    if schedule.load_p:
        value_tiles["prepared"] = square
    value = k.pipeline("value_ring", stages=schedule.value_stages, **value_tiles)
    factor = k.pipeline("factor_ring", stages=2, decay=column, remaining=column, total=shared(f32, (4, 1)))
    state_tile = shared(bf16, (schedule.values, HEAD), swizzle=128)
    fresh_tile = shared(bf16, (schedule.values, CHUNK), swizzle=128)
    if schedule.wide:
        state = k.pipeline("state_ring", stages=1, state=state_tile)
        return Rings(key, value, factor, state, k.pipeline("fresh_ring", stages=1, fresh=fresh_tile))
    state = k.pipeline("state_ring", stages=2, state=state_tile, fresh=fresh_tile)
    return Rings(key, value, factor, state, state)


def _load(
    k: Kernel, tensors: Inputs, rings: Rings, token: Value, key_head: Value, value_head: Value, first: Value, row: Value
) -> None:
    with rings.key.produce() as stage:
        k.copy_tma(tensors.keys[token, key_head, 0], stage.key, rows=0)
        k.copy_tma(tensors.queries[token, key_head, 0], stage.query, rows=0)
        k.copy_bulk(tensors.gates[value_head, token], stage.gate)
    with rings.value.produce() as stage:
        k.copy_tma(tensors.inputs[token, value_head, first], stage.value, rows=0)
        k.copy_tma(tensors.inverse[row, 0], stage.inverse)
        if tensors.prepared is not None:
            k.copy_tma(tensors.prepared[row, 0], stage.prepared)


def _factors(k: Kernel, rings: Rings, by_token: Fragment) -> None:
    with rings.key.consume() as stage, rings.value.consume(), rings.factor.produce() as factor:
        gate = k.fetch(stage.gate, by_token, Extent.COLUMNS)
        last = k.fetch(stage.gate, None, Extent.SCALAR, at=CHUNK - 1)
        k.stage(k.exp2(gate * LOG2E), factor.decay)
        k.stage(k.exp2((last - gate) * LOG2E), factor.remaining)
        k.stage(k.exp2(last * LOG2E), factor.total)


def _output(
    k: Kernel,
    schedule: Schedule,
    rings: Rings,
    scores: AccumulatorHandle | None,
    output: AccumulatorHandle,
    scale: Value,
) -> None:
    """O of a chunk. Where S^T is published early, Q S runs under the arithmetic of P; otherwise P is made in the wait's shadow."""
    with rings.key.consume() as stage:
        query: Value | SharedHandle = stage.query
        if not schedule.wide:
            query = k.fetch(stage.query, Fragment(CHUNK, HEAD, "operand"), dtype=bf16, name="query_operand")
        if scores is None:
            with rings.value.consume() as chunk_values:
                score_operand = k.fetch(chunk_values.prepared, SCORE_OPERAND, dtype=bf16)
        else:
            k.mma(scores, query, stage.key.T, accumulate=False)
            if not schedule.wide:
                score_operand = _score_operand(k, stage, scores, scale)
        computed = (score_operand,) if scores is not None and not schedule.wide else ()
        with rings.state.consume(after=computed) as published:
            k.mma(output, query, published.state.T, accumulate=False)
            if scores is not None and schedule.wide:
                score_operand = _score_operand(k, stage, scores, scale)
            entry = k.fetch(stage.gate, Fragment(CHUNK, schedule.values), Extent.ROWS)
            output.scale(k.exp2(entry * LOG2E) * scale)
            if not schedule.wide:
                k.mma(output, score_operand, published.fresh.T)
        if schedule.wide:
            with rings.fresh.consume() as new:
                k.mma(output, score_operand, new.fresh.T)


def _score_operand(k: Kernel, stage: Stage, scores: AccumulatorHandle, scale: Value) -> Value:
    """P as an operand: scores, decay between the two tokens, causal mask."""
    row_gate = k.fetch(stage.gate, BY_SCORE, Extent.ROWS)
    column_gate = k.fetch(stage.gate, BY_SCORE, Extent.COLUMNS)
    score_values = scores.read()
    kept = k.rows_of(BY_SCORE) >= k.columns_of(BY_SCORE)
    weight = k.exp2((row_gate - column_gate) * LOG2E) * scale
    masked = k.where(kept, score_values * weight, 0.0)
    return k.operand(masked, name="score_operand")


def _state(
    k: Kernel,
    schedule: Schedule,
    rings: Rings,
    state: AccumulatorHandle,
    projected: AccumulatorHandle,
    corrected: AccumulatorHandle,
) -> None:
    """The chain of a chunk, and in its shadow what role output reads: S^T behind the first product, Vnew^T behind the last."""
    by_token = projected.layout
    with (
        rings.factor.consume() as factor,
        rings.key.consume(relayed_by=rings.factor) as stage,
        rings.value.consume(relayed_by=rings.factor) as chunk_values,
    ):
        state_values = state.read()
        state_operand = k.operand(state_values)
        k.mma(projected, state_operand, stage.key.T, accumulate=False)
        value = k.fetch(chunk_values.value.T, by_token, ahead=schedule.ahead)
        if schedule.wide:
            with rings.state.produce() as published:
                k.stage(state_values, published.state)
                residual_operand = _residual(k, schedule, factor, value, projected)
                k.mma(corrected, residual_operand, chunk_values.inverse.T, accumulate=False)
            update_operand, fresh = _update(k, factor, state, corrected)
            k.mma(state, update_operand, stage.key)
            with rings.fresh.produce() as new:
                k.stage(fresh, new.fresh)
        else:
            with rings.state.produce(ahead=1) as published:
                k.stage(state_values, published.state)
                residual_operand = _residual(k, schedule, factor, value, projected)
                k.mma(corrected, residual_operand, chunk_values.inverse.T, accumulate=False)
                update_operand, fresh = _update(k, factor, state, corrected)
                k.mma(state, update_operand, stage.key)
                k.stage(fresh, published.fresh)


def _residual(k: Kernel, schedule: Schedule, factor: Stage, value: Value, projected: AccumulatorHandle) -> Value:
    """X^T = V^T - (S^T K^T) diag(e^G)."""
    projected_values = projected.read()
    decay = k.fetch(factor.decay, projected.layout, Extent.COLUMNS, ahead=schedule.ahead)
    residual = value - decay * projected_values
    return k.operand(residual, name="residual_operand")


def _update(k: Kernel, factor: Stage, state: AccumulatorHandle, corrected: AccumulatorHandle) -> tuple[Value, Value]:
    """The state times e^(G_last), then Vnew^T as an operand, scaled to the chunk's end, and as it is."""
    state.scale(k.fetch(factor.total, None, Extent.SCALAR, name="total"))
    remaining = k.fetch(factor.remaining, corrected.layout, Extent.COLUMNS)
    fresh = corrected.read()
    return k.operand(fresh * remaining, name="update_operand"), fresh

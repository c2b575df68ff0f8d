"""The scan step on a CUDA device, from prepared tiles, against the FP64 recurrence over tokens; repeats, streams, graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernwright.runtime.loader.load import load
from tests.gpu.registry import check
from tests.gpu.repeats import REPEATS, REPLAYS, hold_equal_bits

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
CHUNK = 64
HEAD = 128
SCALE = HEAD**-0.5
PROGRAMS = {
    "gated_delta_rule_scan_step": False,
    "gated_delta_rule_scan_step_load_p": True,
    "gated_delta_rule_scan_step_wide": False,
    "gated_delta_rule_scan_step_wide_load_p": True,
}
LIMIT = 0.006  # relative RMS: operands in BF16 cost about 2^-9 each


@dataclass
class Inputs:
    """q, k [T, Hk, 128], v [T, Hv, 128] BF16; log gate, beta [Hv, T] FP32; initial state [Hv, V, K] FP32; T', P BF16; G FP32."""

    q: Tensor
    k: Tensor
    v: Tensor
    log_gate: Tensor
    beta: Tensor
    initial: Tensor
    inverse: Tensor
    prepared: Tensor
    gates: Tensor


def inputs(tokens: int, heads: int, heads_per_key: int, seed: int) -> Inputs:
    """Random inputs, and what the preparation makes of them."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda")

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device="cuda")

    key_heads = heads // heads_per_key
    q, k = (torch.nn.functional.normalize(normal(tokens, key_heads, HEAD), dim=-1).to(BF16) for _ in range(2))
    v, initial = normal(tokens, heads, HEAD).to(BF16), 0.5 * normal(heads, HEAD, HEAD)
    log_gate, beta = -0.05 * (0.2 + 1.6 * uniform(heads, tokens)), 0.2 + 0.6 * uniform(heads, tokens)
    chunks = tokens // CHUNK
    gates = log_gate.view(heads, chunks, CHUNK).cumsum(-1)
    by_chunk = [
        x.to(F64).repeat_interleave(heads_per_key, 1).permute(1, 0, 2).reshape(heads, chunks, CHUNK, HEAD)
        for x in (q, k)
    ]
    decay = (gates.to(F64)[..., :, None] - gates.to(F64)[..., None, :]).exp()
    size = beta.to(F64).view(heads, chunks, CHUNK)
    lower = (size[..., None] * decay * (by_chunk[1] @ by_chunk[1].mT)).tril(-1)
    eye = torch.eye(CHUNK, device="cuda", dtype=F64)
    inverse = torch.linalg.inv(eye + lower) * size[..., None, :]
    prepared = (SCALE * decay * (by_chunk[0] @ by_chunk[1].mT)).tril()
    flat = [x.reshape(heads * tokens, CHUNK).to(BF16) for x in (inverse, prepared)]
    return Inputs(q, k, v, log_gate, beta, initial, *flat, gates.reshape(heads, tokens).contiguous())


def recurrence(x: Inputs, heads_per_key: int) -> tuple[Tensor, Tensor]:
    """O [T, Hv, 128] and the final state [Hv, V, K] in FP64, token by token."""
    q, k = (t.to(F64).repeat_interleave(heads_per_key, 1) for t in (x.q, x.k))
    state, outputs = x.initial.to(F64).clone(), []
    for t in range(x.q.shape[0]):
        state = state * x.log_gate[:, t].to(F64).exp()[:, None, None]
        recalled = (state @ k[t][..., None])[..., 0]
        update = x.beta[:, t].to(F64)[:, None] * (x.v[t].to(F64) - recalled)
        state = state + update[..., None] * k[t][:, None, :]
        outputs.append((state @ q[t][..., None])[..., 0] * SCALE)
    return torch.stack(outputs), state


def scan(program: str, x: Inputs, *, states: bool = True) -> tuple[Tensor, Tensor]:
    """O and the final state; both are filled with NaN before."""
    heads = x.v.shape[1]
    out = torch.full_like(x.v, math.nan)
    final = torch.full((heads * HEAD, HEAD), math.nan, device="cuda", dtype=F32)
    prepared = (x.prepared,) if PROGRAMS[program] else ()
    first, last = (x.initial.view(heads * HEAD, HEAD), final) if states else (None, None)
    load(program, torch.cuda.current_device()).run(
        x.q, x.k, x.v, x.inverse, *prepared, x.gates, first, last, out, SCALE
    )
    return out, final.view(heads, HEAD, HEAD)


def relative(value: Tensor, exact: Tensor) -> float:
    return float((value.to(F64) - exact).norm() / exact.norm())


@check(*PROGRAMS)
def scan_right_against_fp64() -> str:
    """Relative RMS of outputs and state over 1, 8 and 31 chunks, one and two value heads a key head."""
    worst = 0.0
    for tokens, heads, heads_per_key in ((64, 2, 1), (512, 4, 2), (1984, 2, 1)):
        x = inputs(tokens, heads, heads_per_key, tokens)
        out, state = recurrence(x, heads_per_key)
        for program in PROGRAMS:
            got, final = scan(program, x)
            errors = relative(got, out), relative(final, state)
            assert max(errors) < LIMIT, f"{program}, {tokens} tokens: o {errors[0]:.5f}, state {errors[1]:.5f}"
            worst = max(worst, *errors)
    return f"64, 512 and 1984 tokens: relative RMS at most {worst:.5f}"


@check(*PROGRAMS)
def scan_without_states() -> str:
    """No initial state is a zero one; no final state is not written."""
    x = inputs(512, 4, 2, 11)
    for program in PROGRAMS:
        out, final = scan(program, x, states=False)
        zero = replace(x, initial=torch.zeros_like(x.initial))
        assert torch.equal(out, scan(program, zero)[0]), program
        assert bool(torch.isnan(final).all()), program
    return "None for both states: outputs of a zero state, bit for bit"


@check(*PROGRAMS)
def scan_has_one_hash() -> str:
    """Repeats, a side stream and a replayed graph give the same bits."""
    x = inputs(1024, 8, 2, 12)
    for program in PROGRAMS:
        hold_equal_bits(program, lambda prepare, program=program: scan(program, replace(x, v=prepare(x.v))))
    return f"{REPEATS} repeats, a side stream and {REPLAYS} replays of a graph: equal bits"

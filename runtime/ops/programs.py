"""Symbols of the programs that the operations launch, as build.json names them."""

from __future__ import annotations

RMSNORM_SILU_GATE_FORWARD = {
    "bfloat16": "rmsnorm_silu_gate_forward_w_bf16",
    "float32": "rmsnorm_silu_gate_forward_w_f32",
}
"""By the dtype of the weight."""

ALL = (*RMSNORM_SILU_GATE_FORWARD.values(),)

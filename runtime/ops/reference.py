"""The operations in plain torch: what they mean, and what CPU tensors run.

Everything is computed in FP32 (FP64 for FP64 inputs) and rounded once, at the end, to the dtype of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in FP32, or in FP64 when the first one is FP64."""
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return tuple(tensor.to(dtype) for tensor in tensors)


def rmsnorm_silu_gate_forward(x: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`y = (x * r * weight) * (z * sigmoid(z))` with `r = 1 / sqrt(mean(x^2) + eps)` over the last dimension.

    x and z [..., D], weight [D]; y has x's shape and dtype.
    """
    wide_x, wide_z, wide_weight = _wide(x, z, weight)
    r = torch.rsqrt(wide_x.square().mean(-1, keepdim=True) + eps)
    return (wide_x * r * wide_weight * (wide_z * torch.sigmoid(wide_z))).to(x.dtype)


def rmsnorm_silu_gate_backward(
    dy: Tensor, x: Tensor, z: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """dx, dz [..., D] and dw [D] for dy [..., D], in the dtypes of x, z and weight.

    With r as in the forward pass, `n = x * r`, `s = sigmoid(z)` and `a = dy * z * s`::

        dx = r * (a * weight - n * mean(a * weight * n))
        dz = dy * n * weight * s * (1 + z * (1 - s))
        dw = sum over rows of a * n
    """
    wide_x, wide_z, wide_weight, wide_dy = _wide(x, z, weight, dy)
    r = torch.rsqrt(wide_x.square().mean(-1, keepdim=True) + eps)
    n = wide_x * r
    s = torch.sigmoid(wide_z)
    a = wide_dy * (wide_z * s)
    weighted = a * wide_weight
    dx = r * (weighted - n * (weighted * n).mean(-1, keepdim=True))
    dz = wide_dy * n * wide_weight * (s * (1 + wide_z * (1 - s)))
    dw = (a * n).reshape(-1, x.shape[-1]).sum(0)
    return dx.to(x.dtype), dz.to(z.dtype), dw.to(weight.dtype)

"""FP64 reference of the norm and exact statements about BF16 rounding, independent of the product's own code."""

from __future__ import annotations

import torch
from torch import Tensor


def forward_fp64(x: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """y in FP64: x * w * z / (sqrt(mean(x^2) + eps) * (1 + exp(-z)))."""
    wide_x, wide_z, wide_w = x.double(), z.double(), weight.double()
    root = torch.sqrt(wide_x.pow(2).mean(dim=-1, keepdim=True) + eps)
    return wide_x / root * wide_w * wide_z / (1.0 + torch.exp(-wide_z))


def neighbours(exact: Tensor) -> tuple[Tensor, Tensor]:
    """The BF16 values just below or equal, and just above or equal, in FP64."""
    nearest = exact.to(torch.bfloat16)
    bits = nearest.view(torch.int16)
    back = nearest.double()
    away = (bits + 1).view(torch.bfloat16).double()
    toward = (bits - 1).view(torch.bfloat16).double()
    larger = torch.where(exact >= 0, away, toward)
    smaller = torch.where(exact >= 0, toward, away)
    return torch.where(back <= exact, back, smaller), torch.where(back >= exact, back, larger)


def off_by(y: Tensor, exact: Tensor) -> tuple[int, int]:
    """How many results are no BF16 neighbour of the exact value, and how many are not the nearest one."""
    low, high = neighbours(exact)
    got = y.double()
    wrong = ~((got == low) | (got == high))
    not_nearest = y != exact.to(torch.bfloat16)
    return int(wrong.sum()), int(not_nearest.sum())

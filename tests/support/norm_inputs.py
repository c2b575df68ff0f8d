"""Inputs of the norm's tests."""

from __future__ import annotations

import torch
from torch import Tensor


def inputs(*shape: int, weight_dtype: torch.dtype = torch.bfloat16, seed: int = 0, grad: bool = False) -> list[Tensor]:
    """x and z [*shape, 128] BF16, weight [128]."""
    generator = torch.Generator().manual_seed(seed)
    x, z = (torch.randn(*shape, 128, generator=generator).to(torch.bfloat16) for _ in range(2))
    weight = (1 + torch.randn(128, generator=generator) / 4).to(weight_dtype)
    return [tensor.requires_grad_(grad) for tensor in (x, z, weight)]

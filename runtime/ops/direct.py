"""When a call may go straight to a library, past torch's dispatcher, and what its tensors need for that."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

PLAIN = (Tensor, torch.nn.Parameter)
ALIGNED_ELEMENTS = 16
"""A view that starts at a multiple of this many elements of an allocation is aligned to 32 bytes or more."""

_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state


def is_direct(x: Tensor, z: Tensor, weight: Tensor) -> bool:
    """True when nothing watches or transforms the call: CUDA tensors, no gradient, mode, transform or tracing."""
    return (
        type(x) in PLAIN
        and type(z) in PLAIN
        and type(weight) in PLAIN
        and x.is_cuda
        and not ((x.requires_grad or z.requires_grad or weight.requires_grad) and torch.is_grad_enabled())
        and not _dispatch_modes()
        and _transforms() is None
        and _tracing() is None
        and forward_ad._current_level < 0
    )


def launchable(tensor: Tensor) -> Tensor:
    """The tensor itself when a kernel can read it in place, else a contiguous, aligned copy."""
    if not tensor.is_contiguous():
        return tensor.contiguous()
    if tensor.storage_offset() % ALIGNED_ELEMENTS:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor

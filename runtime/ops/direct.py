"""When a call may go straight to a library, past torch's dispatcher, and what its tensors need for that."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

PLAIN = (Tensor, torch.nn.Parameter)
ALIGNMENT = 16
"""Bytes at whose multiples a kernel's tensors start: its loads and stores are that wide, and its binding insists."""

_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state


def is_direct(x: Tensor, z: Tensor, weight: Tensor, out: Tensor | None) -> bool:
    """True when nothing watches or transforms the call: CUDA tensors, no gradient, mode, transform or tracing."""
    return (
        type(x) in PLAIN
        and type(z) in PLAIN
        and type(weight) in PLAIN
        and x.is_cuda
        and (out is None or (type(out) in PLAIN and not (out.requires_grad and torch.is_grad_enabled())))
        and not ((x.requires_grad or z.requires_grad or weight.requires_grad) and torch.is_grad_enabled())
        and not _dispatch_modes()
        and _transforms() is None
        and _tracing() is None
        and forward_ad._current_level < 0
    )


def launchable(tensor: Tensor) -> Tensor:
    """The tensor itself when a kernel can read it in place, else a contiguous copy, which torch's allocators align.

    Copied is what is not contiguous, and what starts at an address that is no multiple of ALIGNMENT.
    """
    if not tensor.is_contiguous():
        return tensor.contiguous()
    if tensor.data_ptr() % ALIGNMENT:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


def memory(tensor: Tensor) -> range | None:
    """Addresses from a tensor's first byte past its last; None for a tensor that is not made of memory, or of none."""
    if type(tensor) not in PLAIN or tensor.device.type not in ("cpu", "cuda") or _transforms() is not None:
        return None
    if tensor.numel() == 0:
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return range(tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size())


def overlap(one: Tensor, other: Tensor) -> bool:
    """True when two tensors share a byte, from the first to the last of each; False where that cannot be known."""
    a, b = memory(one), memory(other)
    return a is not None and b is not None and a.start < b.stop and b.start < a.stop

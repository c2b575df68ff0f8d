"""`rmsnorm_silu_gate`: the SiLU-gated RMSNorm, as a function, as torch operators and as a direct launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from kernwright.runtime.loader import load
from kernwright.runtime.ops import reference
from kernwright.runtime.ops.direct import ALIGNMENT, is_direct, launchable, memory, overlap
from kernwright.runtime.ops.programs import RMSNORM_SILU_GATE_FORWARD

D = 128
FLT_MAX = torch.finfo(torch.float32).max
PROGRAMS = {getattr(torch, dtype): symbol for dtype, symbol in RMSNORM_SILU_GATE_FORWARD.items()}


def rmsnorm_silu_gate(x: Tensor, z: Tensor, weight: Tensor, eps: float = 1e-6, *, out: Tensor | None = None) -> Tensor:
    """SiLU-gated RMSNorm over the last dimension: `y = (x * r * weight) * silu(z)`.

    `r = 1 / sqrt(mean(x^2) + eps)` and `silu(z) = z / (1 + exp(-z))`; all in FP32, rounded once to BF16.

    Args:
        x: BF16 [..., 128]; what is normalised, row by row.
        z: BF16, the shape of x; the gate.
        weight: BF16 or FP32 [128]; multiplies every row.
        eps: added to the mean square, so in units of x squared; finite in FP32 and not negative.
        out: BF16, the shape of x, contiguous, aligned to 16 bytes, overlapping no input; receives y. Not with gradients.

    Returns:
        y, BF16, the shape of x, contiguous; or `out`.

    Raises:
        TypeError: an argument is no tensor, or has another dtype; the message names argument, expected and got.
        ValueError: a shape, a device, eps, or a negative or conjugate view (materialise it with `resolve_neg()` or
            `resolve_conj()`); the message names argument, expected and got.
        RuntimeError: `out` while a gradient is wanted; no CUDA driver; an error of the driver.
        LoadError: the device's architecture is not supported, or its library is missing and cannot be built.

    On CUDA tensors a kernel runs on the current stream; the first call for a device loads it (and compiles it, when no
    library was built). On CPU tensors a plain torch reference runs, with the same contract. Inputs that are not
    contiguous, or whose address is no multiple of 16 bytes, are copied first (`out` is refused then). No rows (`[0, 128]`)
    give no rows and launch nothing.

    Gradients flow to x, z and weight; for now the backward pass is plain torch in FP32 on every device. Second
    derivatives are not supported. Works under `torch.compile(fullgraph=True)`, CUDA graphs and checkpointing.

    Deterministic: a row's bits depend on that row, weight and eps alone, not on the number of rows, the stream or the
    process. The gradient of weight sums rows in torch's order: the same bits for the same shape, device and version.

    Outside the normal range of FP32: a mean square that overflows gives r = 0, so finite values of that row become 0
    and infinite ones NaN; a row of zeros with eps = 0 gives NaN; z = -inf gives NaN, a large negative z gives zero;
    subnormal values may be taken as zero. A NaN or infinity never leaves its row, except into the gradient of weight.
    """
    if not torch.compiler.is_compiling():
        if is_direct(x, z, weight, out):
            return _direct(x, z, weight, eps, out)
        _check_views(x, z, weight, out)
    _check(x, z, weight, eps, out)
    if out is None:
        return torch.ops.kernwright.rmsnorm_silu_gate.default(x, z, weight, eps)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, z, weight, out)):
        raise RuntimeError("rmsnorm_silu_gate: out= has no gradient; call it under torch.no_grad() or without out=")
    LOW_LEVEL[weight.dtype](x, z, weight, out, eps)
    return out


def _direct(x: Tensor, z: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
    """Launch past the dispatcher. The binding checks the rest of the contract faster than Python could."""
    symbol = PROGRAMS.get(weight.dtype)
    if (
        symbol is None
        or z.shape != x.shape
        or x.is_neg()
        or z.is_neg()
        or weight.is_neg()
        or (out is not None and (out.shape != x.shape or out.is_neg()))
    ):
        _check_views(x, z, weight, out)
        _check(x, z, weight, eps, out)
    readable = launchable(x)
    y = torch.empty_like(readable) if out is None else out
    try:
        load(PROGRAMS[weight.dtype], x.get_device()).run(readable, launchable(z), launchable(weight), y, eps)
    except (TypeError, ValueError):
        _check(x, z, weight, eps, out)  # the same refusal, in the words that every device uses
        raise
    if out is not None:
        increment_version(out)  # so that autograd sees when a tensor that it saved was overwritten
    return y


def _check(x: Tensor, z: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> None:
    """The contract, the same on every device; messages name the argument, what was expected and what came."""
    _tensor("x", x, (torch.bfloat16,), None)
    if x.dim() < 1 or x.shape[-1] != D:
        raise ValueError(f"rmsnorm_silu_gate: x: expected shape [..., {D}], got {list(x.shape)}")
    _tensor("z", z, (torch.bfloat16,), x.device)
    if z.shape != x.shape:
        raise ValueError(f"rmsnorm_silu_gate: z: expected the shape of x, {list(x.shape)}, got {list(z.shape)}")
    _tensor("weight", weight, tuple(PROGRAMS), x.device)
    if weight.dim() != 1 or weight.shape[0] != D:
        raise ValueError(f"rmsnorm_silu_gate: weight: expected shape [{D}], got {list(weight.shape)}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(f"rmsnorm_silu_gate: eps: expected a float, got {type(eps).__name__}")
    if not 0.0 <= eps <= FLT_MAX:
        raise ValueError(f"rmsnorm_silu_gate: eps: expected a finite FP32 number >= 0, got {eps}")
    if out is None:
        return
    _tensor("out", out, (torch.bfloat16,), x.device)
    if out.shape != x.shape or not out.is_contiguous():
        raise ValueError(
            f"rmsnorm_silu_gate: out: expected a contiguous tensor of shape {list(x.shape)}, "
            f"got shape {list(out.shape)} with strides {list(out.stride())}"
        )
    if out is x or out is z:
        raise ValueError(
            f"rmsnorm_silu_gate: out: expected memory of its own, got the tensor {'x' if out is x else 'z'}"
        )
    if not torch.compiler.is_compiling():
        _check_memory(x, z, weight, out)


def _check_memory(x: Tensor, z: Tensor, weight: Tensor, out: Tensor) -> None:
    """What a kernel needs of the memory that it writes; nothing is known of tensors that a compiler traces."""
    for name, tensor in (("x", x), ("z", z), ("weight", weight)):
        if overlap(out, tensor):
            raise ValueError(f"rmsnorm_silu_gate: out: expected memory of its own, got memory that overlaps {name}")
    written = memory(out)
    if written is not None and written.start % ALIGNMENT:
        raise ValueError(
            f"rmsnorm_silu_gate: out: expected data aligned to {ALIGNMENT} bytes, got address {written.start:#x}"
        )


def _tensor(name: str, tensor: object, dtypes: tuple[torch.dtype, ...], device: torch.device | None) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"rmsnorm_silu_gate: {name}: expected a tensor, got {type(tensor).__name__}")
    if tensor.dtype not in dtypes:
        expected = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"rmsnorm_silu_gate: {name}: expected dtype {expected}, got {tensor.dtype}")
    if device is not None and tensor.device != device:
        raise ValueError(f"rmsnorm_silu_gate: {name}: expected device {device}, that of x, got {tensor.device}")


def _check_views(x: Tensor, z: Tensor, weight: Tensor, out: Tensor | None) -> None:
    """A kernel would read the bytes of such a view as they are, without the sign or the conjugation."""
    for name, tensor in (("x", x), ("z", z), ("weight", weight), ("out", out)):
        if isinstance(tensor, Tensor):
            if tensor.is_neg():
                raise ValueError(
                    f"rmsnorm_silu_gate: {name}: expected plain data, got a negative view; resolve_neg() it"
                )
            if tensor.is_conj():
                raise ValueError(
                    f"rmsnorm_silu_gate: {name}: expected plain data, got a conjugate view; resolve_conj() it"
                )


def _launch(symbol: str, x: Tensor, z: Tensor, weight: Tensor, y: Tensor, eps: float) -> None:
    """Launch a forward program on x's device. y is written in place: contiguous, aligned, overlapping no input."""
    load(symbol, x.get_device()).run(launchable(x), launchable(z), launchable(weight), y, eps)
    increment_version(y)  # torch does so for its own operators only


def _reference_into(x: Tensor, z: Tensor, weight: Tensor, y: Tensor, eps: float) -> None:
    y.copy_(reference.rmsnorm_silu_gate_forward(x, z, weight, eps))


def _fake_into(x: Tensor, z: Tensor, weight: Tensor, y: Tensor, eps: float) -> None:
    return None


def _forward_cuda(x: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    _launch(PROGRAMS[weight.dtype], x, z, weight, y, eps)
    return y


def _forward_cpu(x: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    return reference.rmsnorm_silu_gate_forward(x, z, weight, eps).contiguous()


def _forward_fake(x: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _backward(dy: Tensor, x: Tensor, z: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    dx, dz, dw = reference.rmsnorm_silu_gate_backward(dy, x, z, weight, eps)
    return dx.contiguous(), dz.contiguous(), dw


def _backward_fake(dy: Tensor, x: Tensor, z: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    like = partial(torch.empty_like, memory_format=torch.contiguous_format)
    return like(x), like(z), like(weight)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, z, weight, ctx.eps = inputs
    ctx.save_for_backward(x, z, weight)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
    x, z, weight = ctx.saved_tensors
    grads = torch.ops.kernwright.rmsnorm_silu_gate_backward.default(dy, x, z, weight, ctx.eps)
    needed = ctx.needs_input_grad
    return (
        grads[0] if needed[0] else None,
        grads[1] if needed[1] else None,
        grads[2] if needed[2] else None,
        None,
    )


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise NotImplementedError("rmsnorm_silu_gate has no second derivative")


def _register() -> tuple[torch.library.Library, dict[torch.dtype, Callable[..., None]]]:
    """Define the operators: one per program, which writes its result, and the functional pair above with autograd."""
    library = torch.library.Library("kernwright", "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    low_level = {}
    for dtype, symbol in PROGRAMS.items():
        library.define(f"{symbol}(Tensor x, Tensor z, Tensor weight, Tensor(a!) y, float eps) -> ()", tags=tags)
        library.impl(symbol, partial(_launch, symbol), "CUDA")
        library.impl(symbol, _reference_into, "CPU")
        torch.library.register_fake(f"kernwright::{symbol}", _fake_into, lib=library)
        low_level[dtype] = getattr(torch.ops.kernwright, symbol).default
    name = "rmsnorm_silu_gate"
    library.define(f"{name}(Tensor x, Tensor z, Tensor weight, float eps) -> Tensor", tags=tags)
    library.impl(name, _forward_cuda, "CUDA")
    library.impl(name, _forward_cpu, "CPU")
    torch.library.register_fake(f"kernwright::{name}", _forward_fake, lib=library)
    torch.library.register_autograd(f"kernwright::{name}", _autograd, setup_context=_setup_context, lib=library)
    arguments = "Tensor dy, Tensor x, Tensor z, Tensor weight, float eps"
    library.define(f"{name}_backward({arguments}) -> (Tensor, Tensor, Tensor)", tags=tags)
    library.impl(f"{name}_backward", _backward, "CompositeExplicitAutograd")
    torch.library.register_fake(f"kernwright::{name}_backward", _backward_fake, lib=library)
    torch.library.register_autograd(f"kernwright::{name}_backward", _no_second_derivative, lib=library)
    return library, low_level


_LIBRARY, LOW_LEVEL = _register()

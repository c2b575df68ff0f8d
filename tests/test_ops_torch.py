"""rmsnorm_silu_gate under torch's machinery: opcheck, compile, export, fake and meta tensors, modes, checkpointing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.norm_inputs import inputs
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

import kernwright
from kernwright.runtime.ops import programs

OPS = torch.ops.kernwright
norm = kernwright.rmsnorm_silu_gate
BOTH = pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])


@BOTH
def test_opcheck(weight_dtype: torch.dtype) -> None:
    grad = inputs(3, 5, weight_dtype=weight_dtype, grad=True)
    plain = inputs(3, 5, weight_dtype=weight_dtype)
    low_level = getattr(OPS, programs.RMSNORM_SILU_GATE_FORWARD[str(weight_dtype).removeprefix("torch.")]).default
    results = [
        opcheck(OPS.rmsnorm_silu_gate.default, (*grad, 1e-6)),
        opcheck(OPS.rmsnorm_silu_gate.default, (*plain, 1e-6)),
        opcheck(OPS.rmsnorm_silu_gate_backward.default, (torch.ones_like(plain[0]), *plain, 1e-6)),
        opcheck(low_level, (*plain, torch.empty_like(plain[0]), 1e-6)),
    ]
    assert {verdict for result in results for verdict in result.values()} == {"SUCCESS"}


def test_low_level_operators_write_their_result() -> None:
    x, z, weight = inputs(3)
    for dtype, symbol in programs.RMSNORM_SILU_GATE_FORWARD.items():
        y = torch.zeros_like(x)
        cast = weight.to(getattr(torch, dtype))
        assert getattr(OPS, symbol)(x, z, cast, y, 1e-6) is None
        assert torch.equal(y, norm(x, z, cast))


@BOTH
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_in_one_graph(weight_dtype: torch.dtype, dynamic: bool) -> None:
    def model(x: Tensor, z: Tensor, weight: Tensor) -> Tensor:
        return norm(x * 2, z, weight).float().square()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (4, 9):
        eager, traced = (inputs(rows, 3, weight_dtype=weight_dtype, grad=True) for _ in range(2))
        model(*eager).sum().backward()
        result = compiled(*traced)
        assert torch.equal(result, model(*eager))
        result.sum().backward()
        assert [torch.equal(a.grad, b.grad) for a, b in zip(eager, traced, strict=True)] == [True] * 3  # type: ignore[arg-type]


def test_compile_with_out() -> None:
    x, z, weight = inputs(4)

    def model(x: Tensor, z: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        return norm(x, z, weight, out=out) + 1

    out = torch.zeros_like(x)
    with torch.no_grad():
        result = torch.compile(model, fullgraph=True, backend="aot_eager")(x, z, weight, out)
    assert torch.equal(out, norm(x, z, weight)) and torch.equal(result, out + 1)


def test_compile_refuses_what_eager_refuses() -> None:
    x, z, weight = inputs(4)
    compiled = torch.compile(norm, backend="aot_eager")
    with pytest.raises(TypeError, match=r"z: expected dtype torch\.bfloat16, got torch\.float32"):
        compiled(x, z.float(), weight)


def test_export() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(128))

        def forward(self, x: Tensor, z: Tensor) -> Tensor:
            return norm(x, z, self.weight)

    x, z, _ = inputs(6)
    model = Model()
    exported = torch.export.export(model, (x, z))
    assert "kernwright.rmsnorm_silu_gate.default" in exported.graph_module.code
    assert torch.equal(exported.module()(x, z), model(x, z))


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "meta"])
def test_fake_tensors(device: str) -> None:
    with FakeTensorMode():
        x, z = (torch.empty(5, 3, 128, dtype=torch.bfloat16, device=device).transpose(0, 1) for _ in range(2))
        y = norm(x, z, torch.empty(128, device=device))
    assert (y.shape, y.dtype, y.device, y.is_contiguous()) == ((3, 5, 128), torch.bfloat16, torch.device(device), True)


def test_meta_tensors_have_gradients() -> None:
    x, z = (torch.empty(3, 128, dtype=torch.bfloat16, device="meta", requires_grad=True) for _ in range(2))
    weight = torch.empty(128, device="meta", requires_grad=True)
    norm(x, z, weight).sum().backward()
    assert x.grad is not None and weight.grad is not None
    assert (x.grad.shape, x.grad.device.type, weight.grad.dtype) == ((3, 128), "meta", torch.float32)


def test_checkpointing_and_modes_see_the_operator() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import checkpoint

    seen: list[str] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x, z, weight = inputs(4, grad=True)
    with Recorder():
        checkpoint(norm, x, z, weight, use_reentrant=False).sum().backward()
    assert seen.count("kernwright.rmsnorm_silu_gate.default") == 2
    assert seen.count("kernwright.rmsnorm_silu_gate_backward.default") == 1


def test_parameters_and_modules() -> None:
    weight = torch.nn.Parameter(torch.ones(128))
    x, z, _ = inputs(4)
    y = norm(x, z, weight)
    assert y.requires_grad
    with torch.inference_mode():
        assert torch.equal(norm(x, z, weight), y)


def test_out_under_modes_and_transforms_has_no_address_to_judge() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 128, dtype=torch.bfloat16)
        out = torch.empty_like(x)
        assert norm(x, x, torch.empty(128), out=out) is out

"""rmsnorm_silu_gate on the CPU: values against FP64, gradients, refusals, and how it behaves under torch's machinery."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
from support.norm_inputs import inputs
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import kernwright
from kernwright.runtime.ops import programs, reference

OPS = torch.ops.kernwright
norm = kernwright.rmsnorm_silu_gate
BF16_STEP = 2.0**-8  # half a unit in the last place of BF16, relative
BOTH = pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])


def exact(x: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The formula in FP64, written independently of the reference."""
    x64, z64, w64 = x.double(), z.double(), weight.double()
    rms = ((x64 * x64).sum(-1, keepdim=True) / 128 + eps).sqrt()
    return x64 / rms * w64 * z64 / (1 + (-z64).exp())


# ---- values ----


@BOTH
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("eps", [1e-6, 0.0, 0.5])
def test_forward_is_the_formula_rounded_once(shape: tuple[int, ...], eps: float, weight_dtype: torch.dtype) -> None:
    x, z, weight = inputs(*shape, weight_dtype=weight_dtype)
    y = norm(x, z, weight, eps)
    assert (y.shape, y.dtype, y.device.type) == (x.shape, torch.bfloat16, "cpu")
    expected = exact(x, z, weight, eps)
    error = (y.double() - expected).abs()
    assert bool((error <= expected.abs() * (BF16_STEP + 2.0**-20)).all())


def test_eps_defaults_to_one_millionth() -> None:
    x, z, weight = inputs(4)
    assert torch.equal(norm(x, z, weight), norm(x, z, weight, 1e-6))
    small = x * 1e-3
    assert not torch.equal(norm(small, z, weight), norm(small, z, weight, 0.0))


@BOTH
def test_gradients_against_fp64(weight_dtype: torch.dtype) -> None:
    x, z, weight = inputs(6, 11, weight_dtype=weight_dtype, grad=True)
    dy = torch.randn(6, 11, 128, generator=torch.Generator().manual_seed(9)).to(torch.bfloat16)
    norm(x, z, weight).backward(dy)
    wide = [tensor.detach().double().requires_grad_() for tensor in (x, z, weight)]
    exact(*wide, 1e-6).backward(dy.double())
    for name, got, want in zip(("x", "z", "weight"), (x, z, weight), wide, strict=True):
        assert got.grad is not None and want.grad is not None
        assert (got.grad.dtype, got.grad.shape) == (got.dtype, got.shape)
        half_step = BF16_STEP if got.dtype == torch.bfloat16 else 2.0**-24
        bound = want.grad.abs() * half_step + 2.0**-19 * want.grad.abs().max()
        assert bool(((got.grad.double() - want.grad).abs() <= bound).all()), name


def test_the_formula_of_the_backward_pass_is_the_derivative() -> None:
    """In FP64 the reference's backward equals autograd through its forward, to rounding."""
    generator = torch.Generator().manual_seed(3)
    x, z, dy = (torch.randn(5, 128, dtype=torch.float64, generator=generator) for _ in range(3))
    weight = torch.randn(128, dtype=torch.float64, generator=generator)
    leaves = [tensor.requires_grad_() for tensor in (x, z, weight)]
    wanted = torch.autograd.grad(reference.rmsnorm_silu_gate_forward(x, z, weight, 1e-3), leaves, dy)
    got = reference.rmsnorm_silu_gate_backward(dy, x, z, weight, 1e-3)
    for one, other in zip(got, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_what_is_asked_for_has_a_gradient(needed: tuple[bool, ...]) -> None:
    tensors = [tensor.requires_grad_(flag) for tensor, flag in zip(inputs(4), needed, strict=True)]
    norm(*tensors).sum().backward()
    assert tuple(tensor.grad is not None for tensor in tensors) == needed


def test_a_row_depends_on_itself_alone() -> None:
    x, z, weight = inputs(64)
    y = norm(x, z, weight)
    assert torch.equal(norm(x[17:18], z[17:18], weight), y[17:18])
    x[3], x[5, 7], z[9, 1] = math.inf, math.nan, -math.inf
    changed = norm(x, z, weight)
    assert [i for i in range(64) if not torch.equal(changed[i], y[i])] == [3, 5, 9]
    assert changed[3].isnan().all() and changed[5].isnan().all()
    assert changed[9].isnan().sum() == 1 and bool(changed[9, 1].isnan())


def test_outside_the_normal_range() -> None:
    x, z, weight = inputs(4)
    x[0], x[1] = 2e19, 0.0
    y = norm(x, z, weight, 0.0)
    assert torch.equal(y[0], torch.zeros_like(y[0]))  # the mean square overflows: r = 0
    assert y[1].isnan().all()  # 0 * inf
    assert torch.equal(norm(x, z, weight)[1], torch.zeros_like(y[1]))
    z[2] = -200.0
    assert torch.equal(norm(x, z, weight)[2].abs(), torch.zeros_like(y[2]))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (4, 0)])
def test_no_rows(shape: tuple[int, ...]) -> None:
    x, z, weight = inputs(*shape, grad=True)
    y = norm(x, z, weight)
    assert y.shape == (*shape, 128)
    y.sum().backward()
    assert weight.grad is not None and torch.equal(weight.grad, torch.zeros(128, dtype=torch.bfloat16))


def test_strided_inputs_give_a_contiguous_result() -> None:
    x, z, weight = inputs(6, 8)
    y = norm(x, z, weight)
    turned = norm(x.transpose(0, 1), z.transpose(0, 1), weight.repeat_interleave(2)[::2])
    assert turned.is_contiguous() and torch.equal(turned, y.transpose(0, 1))
    expanded = norm(x[:1].expand(6, 8, 128), z, weight)
    assert torch.equal(expanded[0], y[0])


def test_out_receives_the_result() -> None:
    x, z, weight = inputs(3, 5)
    out = torch.full_like(x, 7.0)
    assert norm(x, z, weight, out=out) is out
    assert torch.equal(out, norm(x, z, weight))


# ---- refusals ----

X, Z, W = inputs(3, 5)
SHARED = torch.zeros(29 * 128, dtype=torch.bfloat16)
REFUSALS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "x list": ({"x": [1.0]}, TypeError, "x: expected a tensor, got list"),
    "x half": ({"x": X.half()}, TypeError, "x: expected dtype torch.bfloat16, got torch.float16"),
    "x float": ({"x": X.float()}, TypeError, "x: expected dtype torch.bfloat16, got torch.float32"),
    "z float": ({"z": Z.float()}, TypeError, "z: expected dtype torch.bfloat16, got torch.float32"),
    "weight double": (
        {"weight": W.double()},
        TypeError,
        "weight: expected dtype torch.bfloat16 or torch.float32, got torch.float64",
    ),
    "weight none": ({"weight": None}, TypeError, "weight: expected a tensor, got NoneType"),
    "width": ({"x": X[..., :64]}, ValueError, "x: expected shape [..., 128], got [3, 5, 64]"),
    "scalar": ({"x": X[0, 0, 0]}, ValueError, "x: expected shape [..., 128], got []"),
    "z shape": ({"z": Z.view(15, 128)}, ValueError, "z: expected the shape of x, [3, 5, 128], got [15, 128]"),
    "weight shape": ({"weight": W[:64]}, ValueError, "weight: expected shape [128], got [64]"),
    "weight row": ({"weight": W[None]}, ValueError, "weight: expected shape [128], got [1, 128]"),
    "device": ({"weight": W.to("meta")}, ValueError, "weight: expected device cpu, that of x, got meta"),
    "eps string": ({"eps": "1e-6"}, TypeError, "eps: expected a float, got str"),
    "eps bool": ({"eps": True}, TypeError, "eps: expected a float, got bool"),
    "eps negative": ({"eps": -1e-6}, ValueError, "eps: expected a finite FP32 number >= 0, got -1e-06"),
    "eps nan": ({"eps": math.nan}, ValueError, "eps: expected a finite FP32 number >= 0, got nan"),
    "eps beyond fp32": ({"eps": 1e300}, ValueError, "eps: expected a finite FP32 number >= 0, got 1e+300"),
    "eps inf": ({"eps": math.inf}, ValueError, "eps: expected a finite FP32 number >= 0, got inf"),
    "negative view": (
        {"x": X._neg_view()},
        ValueError,
        "x: expected plain data, got a negative view; resolve_neg() it",
    ),
    "negative gate": (
        {"z": Z._neg_view()},
        ValueError,
        "z: expected plain data, got a negative view; resolve_neg() it",
    ),
    "conjugate view": (
        {"weight": torch.zeros(128, dtype=torch.complex64).conj()},
        ValueError,
        "weight: expected plain data, got a conjugate view; resolve_conj() it",
    ),
    "out dtype": ({"out": X.float()}, TypeError, "out: expected dtype torch.bfloat16, got torch.float32"),
    "out shape": (
        {"out": X.new_empty(15, 128)},
        ValueError,
        "out: expected a contiguous tensor of shape [3, 5, 128], got shape [15, 128] with strides [128, 1]",
    ),
    "out strides": (
        {"out": X.new_empty(5, 3, 128).transpose(0, 1)},
        ValueError,
        "out: expected a contiguous tensor of shape [3, 5, 128], got shape [3, 5, 128] with strides [128, 384, 1]",
    ),
    "out overlaps z": (
        {"z": SHARED[: 15 * 128].view(3, 5, 128), "out": SHARED[14 * 128 :].view(3, 5, 128)},
        ValueError,
        "out: expected memory of its own, got memory that overlaps z",
    ),
    "out overlaps weight": (
        {"weight": SHARED[128:256], "out": SHARED[: 15 * 128].view(3, 5, 128)},
        ValueError,
        "out: expected memory of its own, got memory that overlaps weight",
    ),
    "out address": (
        {"out": SHARED[1 : 1 + 15 * 128].view(3, 5, 128)},
        ValueError,
        f"out: expected data aligned to 16 bytes, got address {SHARED.data_ptr() + 2:#x}",
    ),
    "out is x": ({"out": X}, ValueError, "out: expected memory of its own, got the tensor x"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal(case: str) -> None:
    changes, kind, message = REFUSALS[case]
    with pytest.raises(kind) as caught:
        norm(**({"x": X, "z": Z, "weight": W} | changes))
    assert str(caught.value) == f"rmsnorm_silu_gate: {message}"


def test_out_has_no_gradient() -> None:
    x, z, weight = inputs(4, grad=True)
    with pytest.raises(RuntimeError, match=r"out= has no gradient; call it under torch\.no_grad"):
        norm(x, z, weight, out=torch.empty_like(x))
    with torch.no_grad():
        assert torch.equal(norm(x, z, weight, out=torch.empty_like(x)), norm(x, z, weight))
    plain = inputs(4)
    with pytest.raises(RuntimeError, match="out= has no gradient"):
        norm(*plain, out=torch.empty_like(plain[0], requires_grad=True))


@pytest.mark.parametrize("path", ["cpu", "direct", "operator"])
def test_autograd_sees_a_saved_tensor_that_out_overwrites(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("kernwright.runtime.ops.rmsnorm_silu_gate")
    monkeypatch.setattr(module, "load", lambda symbol, device: types.SimpleNamespace(run=lambda *args: None))
    monkeypatch.setattr(module, "is_direct", lambda *tensors: path == "direct")
    x, z, weight = inputs(4)
    saved, factor = torch.ones_like(x), torch.ones_like(x, requires_grad=True)
    product = (saved * factor).sum()
    if path == "operator":
        module._launch(programs.RMSNORM_SILU_GATE_FORWARD["bfloat16"], x, z, weight, saved, 1e-6)
    else:
        norm(x, z, weight, out=saved)
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        product.backward()


def test_second_derivatives_are_refused() -> None:
    x, z, weight = inputs(2, grad=True)
    (gradient,) = torch.autograd.grad(norm(x, z, weight).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="rmsnorm_silu_gate has no second derivative"):
        gradient.sum().backward()


# ---- the direct way ----


def test_the_direct_way_is_for_plain_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA is played: the gate must say no for gradients, subclasses, modes, transforms and CPU tensors."""
    direct = importlib.import_module("kernwright.runtime.ops.direct")
    x, z, weight = inputs(4)
    assert direct.is_direct(x, z, weight, None) is False
    monkeypatch.setattr(Tensor, "is_cuda", True)
    assert direct.is_direct(x, z, torch.nn.Parameter(weight, requires_grad=False), None) is True
    assert direct.is_direct(x, z, torch.nn.Parameter(weight), None) is False
    with torch.no_grad():
        assert direct.is_direct(x, z, torch.nn.Parameter(weight), None) is True
        with torch.autograd.forward_ad.dual_level():
            assert direct.is_direct(x, z, weight, None) is False
    with FakeTensorMode():
        assert direct.is_direct(x, z, weight, None) is False
    mine = x.as_subclass(type("Mine", (Tensor,), {}))
    assert direct.is_direct(mine, z, weight, None) is False
    seen = []
    torch.func.vmap(lambda row: seen.append(direct.is_direct(row, row, weight, None)) or row)(x)
    assert seen == [False]
    assert direct.is_direct(x, z, weight, torch.empty_like(x)) is True
    assert direct.is_direct(x, z, weight, mine) is False
    assert direct.is_direct(x, z, weight, torch.empty_like(x, requires_grad=True)) is False
    assert direct.is_direct(x, z, weight, [1.0]) is False


def test_launchable_copies_only_what_a_kernel_cannot_read() -> None:
    direct = importlib.import_module("kernwright.runtime.ops.direct")
    base = torch.randn(1 + 4 * 128).to(torch.bfloat16)
    whole, shifted = base[: 4 * 128].view(4, 128), base[1:].view(4, 128)
    assert direct.launchable(whole) is whole and direct.launchable(whole[2:]).data_ptr() == whole[2:].data_ptr()
    copied = direct.launchable(shifted)
    assert copied.data_ptr() != shifted.data_ptr() and copied.storage_offset() == 0 and torch.equal(copied, shifted)
    assert torch.equal(direct.launchable(whole.t()), whole.t()) and direct.launchable(whole.t()).is_contiguous()
    half = base[8 : 8 + 3 * 128].view(3, 128)
    assert direct.launchable(half) is half  # 16 bytes past the start is aligned


def test_memory_that_torch_did_not_allocate_is_judged_by_its_address() -> None:
    """A tensor around somebody's buffer has offset 0, wherever it starts."""
    direct = importlib.import_module("kernwright.runtime.ops.direct")
    buffer = bytearray(2 * 256 + 64)
    start = -torch.frombuffer(buffer, dtype=torch.uint8).data_ptr() % 16
    for shift, same in ((0, True), (2, False), (8, False), (16, True)):
        foreign = torch.frombuffer(buffer, dtype=torch.bfloat16, offset=start + shift, count=256)
        assert foreign.storage_offset() == 0
        read = direct.launchable(foreign)
        assert (read is foreign) is same and read.data_ptr() % 16 == 0 and torch.equal(read, foreign)


def test_a_cuda_call_launches_the_program_of_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the loader replaced: which program, which device, which arguments."""
    module = importlib.import_module("kernwright.runtime.ops.rmsnorm_silu_gate")
    calls: list[tuple[Any, ...]] = []

    class Library:
        def run(self, *args: Any) -> None:
            calls.append(args)

    def load(symbol: str, device: int) -> Library:
        calls.append((symbol, device))
        return Library()

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module, "is_direct", lambda *tensors: True)
    x, z, weight = inputs(4)
    strided, shifted = x.repeat(1, 2)[:, :128], torch.cat([z.view(-1), z[0]])[1 : 1 + z.numel()].view(z.shape)
    for function in (norm, lambda *args: module._forward_cuda(*args, 1e-6)):
        calls.clear()
        function(strided, shifted, weight)
        read_x, read_z, _, y, _ = calls[1]
        assert read_x.is_contiguous() and read_z.data_ptr() % 16 == 0 and y.is_contiguous()
        assert torch.equal(read_x, x) and torch.equal(read_z, shifted)
    for cast in (weight, weight.float()):
        calls.clear()
        out = torch.empty_like(x)
        assert norm(x, z, cast, 1e-5, out=out) is out
        assert out._version == 1, "autograd sees that out was written"
        dtype = str(cast.dtype).removeprefix("torch.")
        assert calls[0] == (programs.RMSNORM_SILU_GATE_FORWARD[dtype], -1)
        assert [a is b for a, b in zip(calls[1], (x, z, cast, out), strict=False)] == [True] * 4 and calls[1][4] == 1e-5


def test_a_direct_call_is_refused_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the binding refuses, and what it cannot see, ends in the message that CPU tensors give."""
    module = importlib.import_module("kernwright.runtime.ops.rmsnorm_silu_gate")

    class Library:
        def run(self, *args: Any) -> None:
            raise ValueError("the binding's words")

    monkeypatch.setattr(module, "load", lambda symbol, device: Library())
    monkeypatch.setattr(module, "is_direct", lambda *tensors: all(isinstance(t, Tensor) for t in tensors[:3]))
    for changes, kind, message in REFUSALS.values():
        with pytest.raises(kind) as caught:
            norm(**({"x": X, "z": Z, "weight": W} | changes))
        assert str(caught.value) == f"rmsnorm_silu_gate: {message}"
    with pytest.raises(ValueError, match="the binding's words"):
        norm(X, Z, W)


def test_importing_starts_no_cuda() -> None:
    code = (
        "import sys, kernwright; early = sorted({'torch', 'tvm_ffi'} & set(sys.modules));"
        "f = kernwright.rmsnorm_silu_gate; import torch;"
        "print(early, f.__name__, torch.cuda.is_initialized(), 'tvm_ffi' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] rmsnorm_silu_gate False False"

"""The C binding: its text, every refusal, and what it asks of the driver. A fake driver stands in for CUDA."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.host import CPU, CUDA, HostProcess, build_binding, build_driver, matrix
from support.sample_program import ROWS_HIGH, sample_program

from kernwright.generator.emit.binding import print_binding, print_binding_header
from kernwright.generator.ir.expr import Binary, Call, Const, Expr, Var, integer
from kernwright.generator.ir.program import (
    Launch,
    LoweredProgram,
    NamedConstant,
    Parameter,
    ScalarParameter,
    TensorParameter,
)
from kernwright.generator.ir.types import BY_NAME, bf16, boolean, f32, f64, i32, i64, u8

pytestmark = pytest.mark.nvcc  # cuda.h and a C compiler; no machine code is made

X, Z, WEIGHT, Y = 0x7F0000000000, 0x7F1000000000, 0x7F2000000000, 0x7F3000000000
NAME = "rmsnorm_silu_gate_forward_w_bf16"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_binding(sample_program(), tmp_path_factory.mktemp("binding"))


@pytest.fixture
def host(library: Path, driver: Path) -> Iterator[HostProcess]:
    process = HostProcess(library, driver)
    process.arguments([8, 8, 8, 8, 8, 4])
    yield process
    process.close()


@pytest.fixture(scope="module")
def refusing(library: Path, driver: Path) -> Iterator[HostProcess]:
    """One process for all refusals: none of them may reach the driver."""
    process = HostProcess(library, driver)
    yield process
    assert process.record() == []
    process.close()


def arguments(rows: int = 15, eps: Any = 1e-6, **changes: dict[str, Any]) -> list[list[Any]]:
    """The five arguments of the sample for `rows` rows; `changes` alter the named tensors."""
    tensors = {
        "x": matrix([rows, 128], data=X),
        "z": matrix([rows, 128], data=Z),
        "weight": matrix([128], data=WEIGHT),
        "y": matrix([rows, 128], data=Y),
    }
    return [["dltensor", tensors[name] | changes.get(name, {})] for name in tensors] + [["float", eps]]


# ---- the text ----


def test_text_is_a_table_of_checks_and_a_launch() -> None:
    text = print_binding(sample_program())
    assert [line.strip() for line in text.splitlines() if line.startswith("  if (kw_") or "kw_grid[3]" in line] == [
        'if (kw_count(ffi_count, 5, "x, z, weight, y, eps")) return -1;',
        'if (kw_tensor(&kw_call, 0, "x", KW_BF16, 2, KW_FOLDED, &x)) return -1;',
        'if (kw_tensor(&kw_call, 1, "z", KW_BF16, 2, KW_FOLDED, &z)) return -1;',
        'if (kw_tensor(&kw_call, 2, "weight", KW_BF16, 1, KW_EXACT, &weight)) return -1;',
        'if (kw_tensor(&kw_call, 3, "y", KW_BF16, 2, KW_FOLDED, &y)) return -1;',
        'if (kw_dimension(&x, 0, "rows", 0, 17179869176, 1)) return -1;',
        'if (kw_real(&kw_call, 4, "eps", 0.0, FLT_MAX, &kw_eps)) return -1;',
        'if (kw_layout(&x, "[rows, 128]", KW_LIST(rows, 128), "[128, 1]", KW_LIST(128, 1), 16)) return -1;',
        'if (kw_layout(&z, "[rows, 128]", KW_LIST(rows, 128), "[128, 1]", KW_LIST(128, 1), 16)) return -1;',
        'if (kw_layout(&weight, "[128]", KW_LIST(128), "[1]", KW_LIST(1), 16)) return -1;',
        'if (kw_layout(&y, "[rows, 128]", KW_LIST(rows, 128), "[128, 1]", KW_LIST(128, 1), 16)) return -1;',
        "const long long kw_grid[3] = {(rows + 7) / 8ll, 1, 1};",
        "if (kw_launch(kw_call.device, kw_grid, kw_arguments)) return -1;",
    ]


def test_text_depends_on_the_program_alone() -> None:
    assert print_binding(sample_program("sm_90a")) == print_binding(sample_program("sm_107a"))
    assert all(len(line) <= 120 for line in print_binding(sample_program()).splitlines())
    assert all(len(line) <= 120 for line in print_binding_header().splitlines())


@pytest.mark.parametrize("name", ["register", "template", "kw_x", "ffi_args", "2d", "x-y"])
def test_a_name_that_c_cannot_take_is_refused(name: str) -> None:
    program = sample_program()
    tensor = TensorParameter(name, bf16, (integer(8),), (integer(1),), "read", 16)
    with pytest.raises(ValueError, match=f"parameter '{name}' is not usable as a name in C"):
        print_binding(replace(program, parameters=(*program.parameters, tensor)))


def test_what_a_binding_cannot_serve_is_refused() -> None:
    program = sample_program()

    def with_scalar(scalar: ScalarParameter) -> LoweredProgram:
        return replace(program, parameters=(*program.parameters, scalar))

    with pytest.raises(ValueError, match="n is bound to dimension 2 of 'x'"):
        print_binding(with_scalar(ScalarParameter("n", i64, 0, 9, bound_to=("x", 2))))
    with pytest.raises(ValueError, match="n is a f32, a dimension is an integer"):
        print_binding(with_scalar(ScalarParameter("n", f32, bound_to=("x", 0))))
    with pytest.raises(ValueError, match="s is a bf16; pass an f32"):
        print_binding(with_scalar(ScalarParameter("s", bf16)))
    with pytest.raises(ValueError, match="a binding needs a tensor"):
        print_binding(replace(program, parameters=program.scalars))
    with pytest.raises(ValueError, match="t has no dimensions"):
        print_binding(replace(program, parameters=(TensorParameter("t", f32, (), (), "read", 4),)))


def test_only_the_two_functions_are_exported(library: Path) -> None:
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert sorted(line.split()[-1] for line in symbols.splitlines()) == ["__tvm_ffi_prepare", "__tvm_ffi_run"]
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libtvm_ffi.so" in needed and "libcuda" not in needed and "RUNPATH" not in needed


# ---- refusals: kind of error, and the whole message ----

COUNT = "expected 5 arguments (x, z, weight, y, eps), got "
REFUSALS: dict[str, tuple[list[list[Any]], str, str]] = {
    "too few": (arguments()[:4], "TypeError", COUNT + "4"),
    "too many": ([*arguments(), ["int", 1]], "TypeError", COUNT + "6"),
    "none": ([["none", 0], *arguments()[1:]], "TypeError", "argument x: expected a tensor, got None"),
    "string": ([["string", "x"], *arguments()[1:]], "TypeError", "argument x: expected a tensor, got str"),
    "number": (
        [*arguments()[:2], ["int", 3], *arguments()[3:]],
        "TypeError",
        "argument weight: expected a tensor, got int",
    ),
    "half": (arguments(z={"dtype": ["float", 16]}), "TypeError", "argument z: expected dtype bfloat16, got float16"),
    "int64": (arguments(x={"dtype": ["int", 64]}), "TypeError", "argument x: expected dtype bfloat16, got int64"),
    "bool": (arguments(x={"dtype": ["bool", 8]}), "TypeError", "argument x: expected dtype bfloat16, got bool"),
    "lanes": (arguments(x={"lanes": 2}), "TypeError", "argument x: expected dtype bfloat16, got bfloat16x2"),
    "cpu": (arguments(x={"device": [CPU, 0]}), "ValueError", "argument x: expected a CUDA tensor, got one on cpu"),
    "managed": (
        arguments(x={"device": [13, 0]}),
        "ValueError",
        "argument x: expected a CUDA tensor, got one on device 0 of DLPack type 13",
    ),
    "two devices": (
        arguments(weight={"device": [CUDA, 1]}),
        "ValueError",
        "argument weight: expected cuda:0, the device of x, got cuda:1",
    ),
    "device 64": (
        arguments(x={"device": [CUDA, 64]}),
        "ValueError",
        "argument x: expected a device below cuda:64, got cuda:64",
    ),
    "weight 2-d": (
        arguments(weight=matrix([1, 128])),
        "ValueError",
        "argument weight: expected 1 dimensions, got 2: shape [1, 128]",
    ),
    "x 0-d": (
        arguments(x={"shape": [], "strides": []}),
        "ValueError",
        "argument x: expected at least 1 dimensions, got 0: shape []",
    ),
    "x 17-d": (
        arguments(x=matrix([1] * 16 + [128])),
        "ValueError",
        "argument x: expected at least 1 dimensions, got 17: shape [" + "1, " * 16 + "128]",
    ),
    "width": (
        arguments(x=matrix([3, 5, 64])),
        "ValueError",
        "argument x: expected shape [rows, 128] = [15, 128] after folding, got [3, 5, 64]",
    ),
    "rows": (
        arguments(y=matrix([14, 128])),
        "ValueError",
        "argument y: expected shape [rows, 128] = [15, 128], got [14, 128]",
    ),
    "weight short": (
        arguments(weight=matrix([64])),
        "ValueError",
        "argument weight: expected shape [128] = [128], got [64]",
    ),
    "too many rows": (
        arguments(rows=ROWS_HIGH + 1),
        "ValueError",
        "argument x: dimension 0, rows: expected 0 to 17179869176, got 17179869177",
    ),
    "overflow": (
        arguments(x=matrix([2**40, 2**40, 128], strides=[1, 1, 1])),
        "ValueError",
        f"argument x: expected fewer than 2^63 elements, got shape [{2**40}, {2**40}, 128]",
    ),
    "row stride": (
        arguments(z={"strides": [256, 1]}),
        "ValueError",
        "argument z: expected strides [128, 1] = [128, 1], got [256, 1] for shape [15, 128]",
    ),
    "transposed": (
        arguments(x={"strides": [1, 15]}),
        "ValueError",
        "argument x: expected strides [128, 1] = [128, 1], got [1, 15] for shape [15, 128]",
    ),
    "expanded": (
        arguments(x=matrix([3, 5, 128], strides=[0, 128, 1])),
        "ValueError",
        "argument x: expected strides [128, 1] = [128, 1] after folding contiguous leading dimensions, "
        "got [0, 128, 1] for shape [3, 5, 128]",
    ),
    "leading swapped": (
        arguments(x=matrix([3, 5, 128], strides=[128, 384, 1])),
        "ValueError",
        "argument x: expected strides [128, 1] = [128, 1] after folding contiguous leading dimensions, "
        "got [128, 384, 1] for shape [3, 5, 128]",
    ),
    "null": (
        arguments(y={"data": 0}),
        "ValueError",
        "argument y: expected data, got a null pointer for 1920 elements (a fake tensor?)",
    ),
    "address": (
        arguments(x={"data": X + 2}),
        "ValueError",
        "argument x: expected data aligned to 16 bytes, got address 0x7f0000000002 (2 bytes past)",
    ),
    "offset": (
        arguments(weight={"offset": 8}),
        "ValueError",
        "argument weight: expected data aligned to 16 bytes, got address 0x7f2000000008 (8 bytes past)",
    ),
    "eps none": ([*arguments()[:4], ["none", 0]], "TypeError", "argument eps: expected a float, got None"),
    "eps bool": ([*arguments()[:4], ["bool", 1]], "TypeError", "argument eps: expected a float, got bool"),
    "eps tensor": ([*arguments()[:4], arguments()[2]], "TypeError", "argument eps: expected a float, got tensor"),
    **{
        f"eps {value}": (
            arguments(eps=value),
            "ValueError",
            f"argument eps: expected a finite number from 0 to 3.40282e+38, got {value}",
        )
        for value in ("-1e-06", "nan", "inf", "-inf", "1e+39")
    },
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal(case: str, refusing: HostProcess) -> None:
    args, kind, message = REFUSALS[case]
    assert refusing.call("run", args) == [-1, kind, f"{NAME}: {message}", -7]


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        ([], "TypeError", "expected 1 arguments (device), got 0"),
        ([["float", 0.0]], "TypeError", "argument device: expected an int, got float"),
        ([["int", -1]], "ValueError", "argument device: expected 0 to 63, got -1"),
        ([["int", 64]], "ValueError", "argument device: expected 0 to 63, got 64"),
    ],
)
def test_prepare_refusal(args: list[Any], kind: str, message: str, refusing: HostProcess) -> None:
    assert refusing.call("prepare", args) == [-1, kind, f"{NAME}: {message}", -7]


# ---- launches ----


def test_first_call_sets_up_and_launches_on_the_current_stream(host: HostProcess) -> None:
    host.set_context(0)
    host.set_stream(0, 0xABC)
    assert host.call("run", arguments()) == [0, "", "", 0]
    assert host.record() == [
        "cuInit 0",
        "cuDevicePrimaryCtxRetain 0",
        "cuLibraryLoadData \x7fFAKE-CU aligned 1 capture 2",
        f"cuLibraryGetKernel {NAME}",
        "cuKernelGetFunction in 0",
        "cuLaunchKernelEx 0x3000 grid 2 1 1 block 128 1 1 shared 0 stream 0xabc in 0 capture 0:"
        f" {X:#x} {Z:#x} {WEIGHT:#x} {Y:#x} 0xf 0x358637bd",
    ]


def test_later_calls_only_launch(host: HostProcess) -> None:
    host.set_context(0)
    host.call("run", arguments())
    host.reset()
    assert host.call("run", arguments(rows=17, eps=0))[0] == 0
    assert host.record() == [
        "cuLaunchKernelEx 0x3000 grid 3 1 1 block 128 1 1 shared 0 stream 0x0 in 0 capture 0:"
        f" {X:#x} {Z:#x} {WEIGHT:#x} {Y:#x} 0x11 0x0"
    ]


@pytest.mark.parametrize(
    ("shape", "strides", "rows"),
    [
        ([128], [1], 1),
        ([3, 5, 128], None, 15),
        ([2, 1, 5, 128], [640, 77, 128, 1], 10),
        ([1, 1, 128], [5, 7, 1], 1),
        ([4, 1, 128], [128, 999, 1], 4),
    ],
)
def test_leading_dimensions_fold(shape: list[int], strides: list[int] | None, rows: int, host: HostProcess) -> None:
    host.set_context(0)
    changed = {"shape": shape, "strides": strides}
    assert host.call("run", arguments(rows, x=changed))[:3] == [0, "", ""]
    assert f" {Y:#x} {rows:#x} " in host.launches()[0]
    assert host.call("run", arguments(rows, y=changed))[:3] == [0, "", ""]


def test_the_offset_of_a_tensor_is_part_of_its_address(host: HostProcess) -> None:
    host.set_context(0)
    host.call("run", arguments(x={"offset": 4096}))
    assert f": {X + 4096:#x} {Z:#x}" in host.launches()[0]


def test_tvm_ffi_tensors_and_integer_eps_are_taken(host: HostProcess) -> None:
    host.set_context(0)
    args = [["tensor", value] if kind == "dltensor" else ["int", 2] for kind, value in arguments()]
    assert host.call("run", args) == [0, "", "", 0]
    assert host.launches()[0].endswith(f"{X:#x} {Z:#x} {WEIGHT:#x} {Y:#x} 0xf 0x40000000")


def test_no_rows_launch_nothing_and_need_no_driver(library: Path) -> None:
    host = HostProcess(library, None)
    assert host.call("run", arguments(rows=0, x={"data": 0}, y={"data": 0})) == [0, "", "", 0]
    assert host.call("run", arguments(x=matrix([0, 5, 128]), z=matrix([5, 0, 128]), y=matrix([0, 128]))) == [
        0,
        "",
        "",
        0,
    ]
    host.close()


def test_the_greatest_grid(host: HostProcess) -> None:
    host.set_context(0)
    assert host.call("run", arguments(rows=ROWS_HIGH))[0] == 0
    assert "grid 2147483647 1 1" in host.launches()[0]
    assert " 0x3fffffff8 " in host.launches()[0]


# ---- contexts, devices, threads ----


def test_a_thread_without_a_context_takes_the_primary_one(host: HostProcess) -> None:
    assert host.call("run", arguments())[0] == 0
    assert host.get_context() == 0
    assert "cuCtxSetCurrent 0" in host.record()


def test_another_device_is_switched_to_and_back(host: HostProcess) -> None:
    on_one = {name: {"device": [CUDA, 1]} for name in ("x", "z", "weight", "y")}
    host.set_context(0)
    host.set_stream(1, 0x111)
    assert host.call("run", arguments(**on_one))[0] == 0
    assert "stream 0x111 in 1" in host.launches()[0]
    assert host.get_context() == 0
    host.reset()
    assert host.call("run", arguments(**on_one))[0] == 0
    assert [line.split(" 0x")[0] for line in host.record()] == [
        "cuCtxSetCurrent 1",
        "cuLaunchKernelEx",
        "cuCtxSetCurrent 0",
    ]
    host.reset()
    assert host.call("run", arguments())[0] == 0
    assert [line.split(" 0x")[0] for line in host.record()] == [
        "cuDevicePrimaryCtxRetain 0",
        "cuKernelGetFunction in 0",
        "cuLaunchKernelEx",
    ]


def test_the_context_is_restored_after_a_failed_launch(host: HostProcess) -> None:
    on_one = {name: {"device": [CUDA, 1]} for name in ("x", "z", "weight", "y")}
    host.set_context(0)
    host.fail("cuLaunchKernelEx", 1, 1)
    assert host.call("run", arguments(**on_one))[0] == -1
    assert host.get_context() == 0


def test_threads_that_start_together_load_once(host: HostProcess) -> None:
    assert host.threads("run", arguments(), 8) == [[0, "", "", 0, 0]] * 8
    record = [line.split()[0] for line in host.record()]
    assert (record.count("cuLibraryLoadData"), record.count("cuInit"), record.count("cuLaunchKernelEx")) == (1, 1, 8)


def test_prepare_loads_and_does_not_launch(host: HostProcess) -> None:
    assert host.call("prepare", [["int", 1]]) == [0, "", "", 0]
    assert [line.split()[0] for line in host.record()] == [
        *("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuLibraryLoadData", "cuLibraryGetKernel"),
        "cuKernelGetFunction",
    ]
    host.reset()
    assert host.call("prepare", [["int", 1]]) == [0, "", "", 0]
    assert host.record() == []


# ---- failures of the driver ----


def test_without_a_driver_the_call_says_so(library: Path) -> None:
    host = HostProcess(library, None)
    code, kind, message, _ = host.call("run", arguments())
    assert (code, kind) == (-1, "RuntimeError")
    assert message.startswith(f"{NAME}: no CUDA driver: libcuda.so.1: cannot open shared object file")
    host.close()


def test_a_library_for_another_architecture_says_so(library: Path, driver: Path) -> None:
    host = HostProcess(library, driver)
    host.capability(10, 3)
    assert host.call("run", arguments())[1:3] == [
        "RuntimeError",
        f"{NAME}: this library is for sm_90a (compute capability 9.0), cuda:0 has 10.3",
    ]
    assert [line.split()[0] for line in host.record()] == ["cuInit"]
    host.close()


@pytest.mark.parametrize(
    "function",
    [
        *("cuInit", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxGetDevice"),
        *("cuCtxSetCurrent", "cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"),
        "cuThreadExchangeStreamCaptureMode",
    ],
)
def test_a_failing_driver_call_is_named_and_may_succeed_later(function: str, host: HostProcess) -> None:
    host.fail(function, 2, 1)
    assert host.call("run", arguments())[:3] == [
        -1,
        "RuntimeError",
        f"{NAME}: {function} failed with CUDA_ERROR_OUT_OF_MEMORY (2): out of memory",
    ]
    assert host.launches() == []
    assert host.call("run", arguments())[:3] == [0, "", ""]
    assert host.launches()[0].split(":")[0].endswith("in 0 capture 0")


def test_a_failing_launch_tells_its_configuration(host: HostProcess) -> None:
    host.fail("cuLaunchKernelEx", 1, 1)
    assert host.call("run", arguments())[2] == (
        f"{NAME}: cuLaunchKernelEx failed with CUDA_ERROR_INVALID_VALUE (1): invalid argument "
        "(grid 2 x 1 x 1, 128 threads, 0 dynamic shared bytes, cuda:0)"
    )


def test_an_unknown_driver_error_keeps_its_number(host: HostProcess) -> None:
    host.fail("cuLaunchKernelEx", 4242, 1)
    assert (
        "cuLaunchKernelEx failed with an unknown error (4242): no description (grid" in host.call("run", arguments())[2]
    )


# ---- other programs ----


def everything() -> LoweredProgram:
    """A program that uses what the norm does not: every scalar type, a named constant, a cluster, dynamic shared memory."""
    n, m = Var("n", i32, 0, 1 << 20), Var("m", i64, 1, 64)
    block = Const(32, i32, "block")

    def scalar(name: str, **facts: Any) -> ScalarParameter:
        return ScalarParameter(name, BY_NAME[name.removeprefix("a_")], **facts)

    parameters: tuple[Parameter, ...] = (
        ScalarParameter("n", i32, 0, 1 << 20, multiple_of=4, bound_to=("t", 0)),
        ScalarParameter("m", i64, 1, 64, bound_to=("t", 1)),
        TensorParameter("t", f32, (n, m), (m, integer(1)), "update", 4),
        scalar("a_i8"),
        scalar("a_u8"),
        scalar("a_i16"),
        scalar("a_u32", low=1, high=10, multiple_of=5),
        scalar("a_i64"),
        scalar("a_u64"),
        scalar("a_f32"),
        scalar("a_f64", minimum=-2.0),
        ScalarParameter("flag", boolean),
    )
    grid: tuple[Expr, Expr, Expr] = (
        Binary("*", Call("min", (Binary("/", n, block), Const(1000, i32)), i32), integer(2)),
        m,
        integer(1),
    )
    return LoweredProgram(
        *("other", "everything", "sm_90a", "uses everything"),
        parameters,
        constants=(NamedConstant(block, block, "rows a block"), NamedConstant(Const(7, i32, "unused"), block, "")),
        asserts=(),
        launch=Launch(256, grid, cluster=(2, 1, 8), dynamic_shared_bytes=200_000),
        body=(),
        instructions=(),
    )


@pytest.fixture
def other(tmp_path: Path, driver: Path) -> Iterator[HostProcess]:
    program = replace(everything(), launch=replace(everything().launch, cluster=(2, 1, 1)))
    process = HostProcess(build_binding(program, tmp_path), driver)
    process.arguments([4, 8, 8, 1, 1, 2, 4, 8, 8, 4, 8, 1])
    process.set_context(0)
    yield process
    process.close()


def other_arguments(**changes: Any) -> list[list[Any]]:
    values = {
        "t": ["dltensor", matrix([64, 3], dtype=["float", 32])],
        "a_i8": ["int", -1],
        "a_u8": ["int", 255],
        "a_i16": ["int", -32768],
        "a_u32": ["int", 10],
        "a_i64": ["int", -(2**63)],
        "a_u64": ["int", 2**63 - 1],
        "a_f32": ["float", -1.5],
        "a_f64": ["float", 0.1],
        "flag": ["bool", 1],
    }
    return list((values | changes).values())


def test_every_kind_of_scalar_reaches_the_kernel_with_its_type(other: HostProcess) -> None:
    assert other.call("run", other_arguments())[:3] == [0, "", ""]
    assert "cuKernelSetAttribute 8 = 200000 on 0" in other.record()
    head, values = other.launches()[0].split(":")
    assert head == "cuLaunchKernelEx 0x3000 grid 4 3 1 block 256 1 1 shared 200000 stream 0x0 in 0 capture 0"
    assert values.split() == [
        *("0x40", "0x3", "0x7f0000000000", "0xff", "0xff", "0x8000", "0xa"),
        *("0x8000000000000000", "0x7fffffffffffffff", "0xbfc00000", "0x3fb999999999999a", "0x1"),
        *("attribute", "4", "=", "2", "1", "1"),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a_i8": ["int", 128]}, "argument a_i8: expected -128 to 127, got 128"),
        ({"a_u8": ["int", -1]}, "argument a_u8: expected 0 to 255, got -1"),
        ({"a_u32": ["int", 11]}, "argument a_u32: expected 1 to 10, got 11"),
        ({"a_u32": ["int", 4]}, "argument a_u32: expected a multiple of 5, got 4"),
        ({"a_u64": ["int", -1]}, "argument a_u64: expected 0 to 9223372036854775807, got -1"),
        ({"a_i16": ["float", 1.0]}, "argument a_i16: expected an int, got float"),
        ({"flag": ["int", 1]}, "argument flag: expected a bool, got int"),
        ({"a_f64": ["float", -2.5]}, "argument a_f64: expected a finite number from -2 to 1.79769e+308, got -2.5"),
        (
            {"a_f32": ["float", "nan"]},
            "argument a_f32: expected a finite number from -3.40282e+38 to 3.40282e+38, got nan",
        ),
        (
            {"t": ["dltensor", matrix([6, 3], dtype=["float", 32])]},
            "argument t: dimension 0, n: expected a multiple of 4, got 6",
        ),
        (
            {"t": ["dltensor", matrix([64, 3], dtype=["float", 32], strides=[4, 1])]},
            "argument t: expected strides [m, 1] = [3, 1], got [4, 1] for shape [64, 3]",
        ),
    ],
)
def test_other_refusals(changes: dict[str, Any], message: str, other: HostProcess) -> None:
    code, _, got, _ = other.call("run", other_arguments(**changes))
    assert (code, got) == (-1, f"other_everything: {message}")


def test_grid_limits(tmp_path: Path, driver: Path) -> None:
    """z is at most 65535 blocks, and a cluster divides the grid; more than 8 blocks in a cluster need leave."""
    n = Var("n", i64, 0, 100_000)
    program = LoweredProgram(
        *("other", "grid", "sm_90a", ""),
        (
            TensorParameter("t", f64, (n,), (integer(1),), "read", 8),
            ScalarParameter("n", i64, 0, 100_000, bound_to=("t", 0)),
            ScalarParameter("k", u8),
        ),
        *((), ()),
        Launch(32, (n, integer(1), n), cluster=(16, 1, 1)),
        *((), ()),
    )
    host = HostProcess(build_binding(program, tmp_path), driver)

    def call(n: int) -> str:
        return str(host.call("run", [["dltensor", matrix([n], dtype=["float", 64])], ["int", 1]])[2])

    assert call(24) == "other_grid: grid x: expected a multiple of the cluster's 16 blocks, got 24"
    assert call(65536) == "other_grid: grid z: expected at most 65535 blocks, got 65536"
    assert call(32) == ""
    assert "cuKernelSetAttribute 14 = 1 on 0" in host.record()
    host.close()

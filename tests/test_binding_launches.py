"""What a binding asks of the driver: set-up, launches, contexts, devices, threads and failures, on a fake driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.binding_fixtures import NAME, WEIGHT, X, Y, Z, arguments, driver, host, library, refusing
from support.host import CUDA, HostProcess, matrix
from support.sample_program import ROWS_HIGH

__all__ = ["driver", "host", "library", "refusing"]  # fixtures

pytestmark = pytest.mark.nvcc  # cuda.h and a C compiler; no machine code is made


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
    apart = {name: {"data": place << 44} for place, name in enumerate(("x", "z", "weight", "y"), 1)}
    assert host.call("run", arguments(rows=ROWS_HIGH, **apart))[:3] == [0, "", ""]
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


def test_a_driver_that_does_not_start_is_opened_once(library: Path, driver: Path) -> None:
    """One hold by the test, one by the binding, however often the caller tries."""
    host = HostProcess(library, driver)
    host.fail("cuInit", 100, 5)
    for _ in range(5):
        assert "cuInit failed with CUDA_ERROR_NO_DEVICE (100)" in host.call("run", arguments())[2]
    assert host.references() == 2
    host.close()


def test_tensors_may_touch_and_inputs_may_overlap(host: HostProcess) -> None:
    host.set_context(0)
    assert host.call("run", arguments(z={"data": X + 16}, y={"data": X + 16 + 3840}))[:3] == [0, "", ""]
    assert host.call("run", arguments(0, y={"data": X + 16}))[:3] == [0, "", ""]


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

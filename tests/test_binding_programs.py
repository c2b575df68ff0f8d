"""Bindings of other programs: every type of scalar, clusters, dynamic shared memory, limits of the grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.binding_fixtures import driver, host, library, refusing
from support.everything_program import everything
from support.host import TRAPS, HostProcess, build_binding, matrix

from kernwright.generator.ir.expr import Var, integer
from kernwright.generator.ir.program import Launch, LoweredProgram, ScalarParameter, TensorParameter
from kernwright.generator.ir.types import f64, i64, u8

__all__ = ["driver", "host", "library", "refusing"]  # fixtures

pytestmark = pytest.mark.nvcc  # cuda.h and a C compiler; no machine code is made


# ---- other programs ----


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


def test_sizes_that_overflow_are_refused(tmp_path: Path, driver: Path) -> None:
    """2^40 rows of 2^40 columns: neither number breaks a limit."""
    n, m = Var("n", i64, 0, 2**62), Var("m", i64, 0, 2**62)
    parameters = (
        TensorParameter("t", f64, (n, m), (m, integer(1)), "write", 8),
        ScalarParameter("n", i64, 0, 2**62, bound_to=("t", 0)),
        ScalarParameter("m", i64, 0, 2**62, bound_to=("t", 1)),
    )
    launch = Launch(32, (integer(1), integer(1), integer(1)))
    program = LoweredProgram("other", "huge", "sm_90a", "", parameters, *((), ()), launch, *((), ()))
    host = HostProcess(build_binding(program, tmp_path, TRAPS), driver)
    tensor = matrix([2**40, 2**40], strides=[2**40, 1], dtype=["float", 64])
    assert host.call("run", [["dltensor", tensor]])[1:3] == [
        "ValueError",
        f"other_huge: argument t: expected fewer than 2^63 elements, got shape [{2**40}, {2**40}]",
    ]
    host.close()


def test_a_message_that_is_too_long_shows_that_it_was_cut(tmp_path: Path, driver: Path) -> None:
    shape = tuple(Var(f"{letter * 90}", i64, 0, 9) for letter in "abcdefghijkl")
    scalars = tuple(ScalarParameter(v.name, i64, 0, 9, bound_to=("t", d)) for d, v in enumerate(shape))
    tensors = tuple(TensorParameter(name, f64, shape, shape, "read", 8) for name in ("t", "u"))
    launch = Launch(32, (integer(1), integer(1), integer(1)))
    program = LoweredProgram("other", "wide", "sm_90a", "", (*tensors, *scalars), *((), ()), launch, *((), ()))
    host = HostProcess(build_binding(program, tmp_path), driver)
    tensor = matrix([1] * 12, dtype=["float", 64])
    other = matrix([1] * 11 + [2], dtype=["float", 64])
    message = host.call("run", [["dltensor", tensor], ["dltensor", other]])[2]
    assert len(message) == 1023
    assert message.startswith("other_wide: argument u: expected shape [aaa") and message.endswith("kkk...")
    host.close()

"""Bindings of tensor-core programs: tensor maps, absent tensors, attributes of a launch; on a fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.binding_fixtures import WEIGHT, X, Y, Z, driver, library
from support.everything_program import everything
from support.host import CUDA, TRAPS, HostProcess, build_binding, matrix

from kernwright.generator.emit.binding import print_binding
from kernwright.generator.ir.expr import Binary, Const, Expr, Var, integer
from kernwright.generator.ir.program import (
    Launch,
    LoweredProgram,
    NamedConstant,
    ScalarParameter,
    TensorMap,
    TensorParameter,
)
from kernwright.generator.ir.types import bf16, boolean, f16, f32, f64, i32, i64

__all__ = ["driver", "library"]  # fixtures

pytestmark = pytest.mark.nvcc  # cuda.h and a C compiler; no machine code is made

NAME = "other_maps"
HIGH = 2**31 - 1
M, K, G, R, C = (Var(name, i32, 0, HIGH) for name in ("m", "k", "g", "r", "c"))
BYTES = Const(2, i32, "kBytes")
A = TensorParameter("a", bf16, (M, K), (K, integer(1)), "read", 2)
S = TensorParameter("s", f32, (G, R, C), (Binary("*", R, C), C, integer(1)), "read", 4)
BIAS = TensorParameter("bias", f32, (K,), (integer(1),), "read", 16, optional=True)
OUT = TensorParameter("out", bf16, (M, K), (K, integer(1)), "write", 16)
SCALE = ScalarParameter("scale", f32)


def bound(name: str, tensor: str, dimension: int) -> ScalarParameter:
    return ScalarParameter(name, i32, 0, HIGH, bound_to=(tensor, dimension))


def times(*factors: Expr) -> Expr:
    product, *others = factors
    for factor in others:
        product = Binary("*", product, factor)
    return product


A_MAP = TensorMap("a", "a", bf16, (K, M), (times(K, BYTES),), (64, 128), 128)
S_MAP = TensorMap("s_map", "s", f32, (C, R, G), (times(C, integer(4)), times(R, C, integer(4))), (8, 16, 2), 32)
ROWS = bound("m", "a", 0)


def maps_program(*maps: TensorMap) -> LoweredProgram:
    """a and s through tensor maps, bias and out by address; bias may be absent. A block for each row of a."""
    return LoweredProgram(
        *("other", "maps", "sm_90a", "uses tensor maps"),
        parameters=(
            *(A, S, BIAS, OUT),
            *(ROWS, bound("k", "a", 1), bound("g", "s", 0), bound("r", "s", 1), bound("c", "s", 2), SCALE),
        ),
        constants=(NamedConstant(BYTES, BYTES),),
        asserts=(),
        launch=Launch(256, (M, integer(1), integer(1))),
        body=(),
        instructions=(),
        arguments=(*(maps or (A_MAP, S_MAP)), BIAS, OUT, SCALE, ROWS),
    )


def arguments(m: int = 3, k: int = 128, grc: tuple[int, int, int] = (2, 5, 8), **changes: Any) -> list[list[Any]]:
    """The five arguments; `changes` alter the named tensors, None passes None in place of one."""
    tensors = {
        "a": matrix([m, k], data=X),
        "s": matrix(list(grc), data=Z, dtype=["float", 32]),
        "bias": matrix([k], data=WEIGHT, dtype=["float", 32]),
        "out": matrix([m, k], data=Y),
    }
    passed = [["dltensor", value | (changes.get(name) or {})] for name, value in tensors.items()]
    passed = [["none", 0] if changes.get(name, 0) is None else item for name, item in zip(tensors, passed, strict=True)]
    return [*passed, ["float", 1.5]]


@pytest.fixture(scope="module")
def maps_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_binding(maps_program(), tmp_path_factory.mktemp("maps"), TRAPS)


@pytest.fixture
def host(maps_library: Path, driver: Path) -> Iterator[HostProcess]:
    process = HostProcess(maps_library, driver)
    process.arguments([128, 128, 8, 8, 4, 4])
    process.set_context(0)
    yield process
    process.close()


def encodes(host: HostProcess) -> list[str]:
    return [line for line in host.record() if line.startswith("cuTensorMapEncodeTiled")]


def words(address: int) -> str:
    """The 128 bytes of a map that the fake driver made with this address."""
    return ",".join(f"{address + place:#x}" for place in range(16))


# ---- the text ----


def test_a_map_is_a_row_of_numbers() -> None:
    text = print_binding(maps_program())
    assert "#define KW_SHARED_BYTES 0\n#define KW_TENSOR_MAPS 2\n#include" in text
    assert "  const int kBytes = 2;\n" in text
    assert text[text.index("  KwMap") : text.index("  ffi_result->type")].splitlines() == [
        '  KwMap kw_map_a = {.tensor = &a, .name = "a", .rank = 2,',
        "      .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,",
        "      .extents = {k, m}, .strides = {(long long)k * kBytes}, .box = {64, 128}};",
        '  KwMap kw_map_s_map = {.tensor = &s, .name = "s_map", .rank = 3,',
        "      .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32, .swizzle = CU_TENSOR_MAP_SWIZZLE_32B,",
        "      .extents = {c, r, g}, .strides = {(long long)c * 4, (long long)r * c * 4}, .box = {8, 16, 2}};",
        "  void* kw_arguments[] = {&kw_map_a.map, &kw_map_s_map.map, &bias.data, &out.data, (void*)&scale, (void*)&m};",
        "  if (kw_launch_with_maps(kw_call.device, kw_grid, kw_arguments, KW_MAPS(&kw_map_a, &kw_map_s_map))) return -1;",
    ]


def test_an_optional_tensor_is_said_to_be_one() -> None:
    text = print_binding(maps_program())
    assert " *   bias: f32 [k], or None, 16-byte aligned, read\n" in text
    assert 'if (kw_optional_tensor(&kw_call, 2, "bias", KW_F32, 1, KW_EXACT, &bias)) return -1;' in text


def test_lines_stay_short_however_many_maps_there_are() -> None:
    wide = TensorMap("", "s", f32, (C, R, G), S_MAP.strides, (8, 16, 2), 32)
    extents = (times(C, integer(1000)), times(R, integer(2000)), times(G, R, integer(3000)))
    maps = tuple(replace(wide, name=f"a_rather_long_name_{place}", extents=extents) for place in range(6))
    assert all(len(line) <= 120 for line in print_binding(maps_program(*maps)).splitlines())


def test_a_long_signature_is_printed_in_pieces(tmp_path: Path, driver: Path) -> None:
    tensors = tuple(replace(OUT, name=f"a_tensor_named_{place}", access="read") for place in range(8))
    program = maps_program()
    program = replace(program, parameters=(*program.parameters[:-1], *tensors, SCALE), arguments=())
    assert all(len(line) <= 120 for line in print_binding(program).splitlines())
    host = HostProcess(build_binding(program, tmp_path), driver)
    names = ", ".join(["a", "s", "bias", "out", *(tensor.name for tensor in tensors), "scale"])
    assert host.call("run", [])[2] == f"{NAME}: expected 13 arguments ({names}), got 0"
    host.close()


def test_a_program_that_states_no_arguments_passes_its_parameters() -> None:
    program = everything()
    assert print_binding(replace(program, arguments=program.parameters)) == print_binding(program)
    swapped = replace(program, arguments=(program.tensors[0], program.scalars[0]))
    assert "  void* kw_arguments[] = {&t.data, (void*)&n};\n" in print_binding(swapped)


def refused(program: LoweredProgram) -> str:
    with pytest.raises(ValueError) as caught:
        print_binding(program)
    return str(caught.value).removeprefix(f"{NAME}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor": "b"}, "tensor map a is of 'b', which is no tensor"),
        ({"tensor": "bias"}, "tensor map a is of 'bias', which may be absent"),
        ({"name": "a-b"}, "tensor map 'a-b' is not usable as a name in C; rename it"),
        (
            {"strides": ()},
            "tensor map a has 2 extents, 0 strides, 2 of the box; expected n, n - 1 and n, n from 1 to 5",
        ),
        (
            {"extents": (K,) * 6, "strides": (K,) * 5, "box": (8,) * 6},
            "tensor map a has 6 extents, 5 strides, 6 of the box; expected n, n - 1 and n, n from 1 to 5",
        ),
        ({"box": (64, 257)}, "tensor map a has a box of [64, 257]; each size is 1 to 256"),
        ({"box": (64, 0)}, "tensor map a has a box of [64, 0]; each size is 1 to 256"),
        ({"box": (4, 8)}, "tensor map a has box rows of 8 bytes; expected a multiple of 16, 128 at most"),
        ({"box": (128, 8)}, "tensor map a has box rows of 256 bytes; expected a multiple of 16, 128 at most"),
        ({"swizzle": 48}, "tensor map a has no type for bf16, swizzle 48"),
        ({"dtype": boolean, "box": (32, 8)}, "tensor map a has no type for boolean, swizzle 128"),
    ],
)
def test_a_map_that_no_call_can_use_is_refused(changes: dict[str, Any], message: str) -> None:
    assert refused(maps_program(replace(A_MAP, **changes))) == message


def test_arguments_that_a_binding_cannot_pass_are_refused() -> None:
    program = maps_program()
    assert refused(maps_program(A_MAP, A_MAP)) == "the kernel has two arguments named 'a'"
    other = replace(program, arguments=(A_MAP, ScalarParameter("n", i32)))
    assert refused(other) == "the kernel's argument 'n' is none of the parameters"
    named = replace(program, parameters=(*program.parameters, ScalarParameter("map_a", i32)))
    assert refused(named) == "'map_a' is the name of a tensor map in C; rename the parameter"
    length = replace(program, parameters=(*program.parameters, bound("n", "bias", 0)))
    assert refused(length) == "n is read from 'bias', which may be absent"
    alone = replace(program, parameters=(BIAS, SCALE), arguments=(BIAS,))
    assert refused(alone) == "every tensor may be absent; the device of one is where it launches"


# ---- what the driver is asked ----


def test_maps_are_encoded_and_their_bytes_reach_the_kernel(host: HostProcess) -> None:
    assert host.call("run", arguments(a={"offset": 256})) == [0, "", "", 0]
    assert encodes(host) == [
        f"cuTensorMapEncodeTiled {X + 256:#x} type 9 rank 2 extents 128 3 strides 256 box 64 128 steps 1 1"
        " interleave 0 swizzle 3 promotion 3 fill 0 aligned 1 in 0",
        f"cuTensorMapEncodeTiled {Z:#x} type 7 rank 3 extents 8 5 2 strides 32 160 box 8 16 2 steps 1 1 1"
        " interleave 0 swizzle 1 promotion 3 fill 0 aligned 1 in 0",
    ]
    head, values = host.launches()[0].split(": ")
    assert "grid 3 1 1 block 256 1 1" in head
    assert values.split() == [words(X + 256), words(Z), f"{WEIGHT:#x}", f"{Y:#x}", "0x3fc00000", "0x3"]


def test_each_launch_encodes_anew(host: HostProcess) -> None:
    host.call("run", arguments())
    host.reset()
    assert host.call("run", arguments(m=7, a={"data": X + 4096}))[:3] == [0, "", ""]
    assert [line.split()[0] for line in host.record()] == [*["cuTensorMapEncodeTiled"] * 2, "cuLaunchKernelEx"]
    assert f"{X + 4096:#x} type 9 rank 2 extents 128 7 " in encodes(host)[0]


def test_strides_are_computed_in_64_bits(host: HostProcess) -> None:
    assert host.call("run", arguments(m=1, k=2**30 + 8, grc=(2, 2**16, 2**15), bias=None, s={"data": 1 << 40}))[:3] == [
        *(0, "", "")
    ]
    assert f" extents {2**30 + 8} 1 strides {2**31 + 16} box" in encodes(host)[0]
    assert f" extents {2**15} {2**16} 2 strides {2**17} {2**33} box" in encodes(host)[1]


@pytest.mark.parametrize(
    ("dtype", "swizzle", "numbers"),
    [(f16, 0, (6, 0)), (f16, 16, (6, 0)), (f32, 64, (7, 2)), (f64, 32, (8, 1)), (i32, 64, (3, 2)), (i64, 128, (5, 3))],
)
def test_types_and_swizzles(dtype: Any, swizzle: int, numbers: tuple[int, int], tmp_path: Path, driver: Path) -> None:
    """The numbers are cuda.h's. A map of one dimension has no strides."""
    one = replace(A_MAP, dtype=dtype, swizzle=swizzle, extents=(K,), strides=(), box=(32 // dtype.bytes,))
    host = HostProcess(build_binding(maps_program(one), tmp_path), driver)
    assert host.call("run", arguments())[:3] == [0, "", ""]
    kind, swizzled = numbers
    assert f" type {kind} rank 1 extents 128 strides box {32 // dtype.bytes} steps 1 interleave" in encodes(host)[0]
    assert f" swizzle {swizzled} " in encodes(host)[0]
    host.close()


def test_maps_are_encoded_in_the_context_of_their_device(host: HostProcess) -> None:
    on_one = {name: {"device": [CUDA, 1]} for name in ("a", "s", "bias", "out")}
    assert host.call("run", arguments(**on_one))[:3] == [0, "", ""]
    assert [line[-4:] for line in encodes(host)] == ["in 1", "in 1"]
    host.fail("cuTensorMapEncodeTiled", 1, 1)
    assert host.call("run", arguments(**on_one))[0] == -1
    assert host.get_context() == 0


def test_a_grid_without_blocks_encodes_nothing_and_needs_no_driver(maps_library: Path) -> None:
    host = HostProcess(maps_library, None)
    assert host.call("run", arguments(m=0, a={"data": 0}, s={"data": Z + 4})) == [0, "", "", 0]
    host.close()


def test_a_program_without_maps_does_not_look_for_the_function(library: Path, maps_library: Path) -> None:
    assert b"cuTensorMapEncodeTiled" in maps_library.read_bytes()
    assert b"cuTensorMapEncodeTiled" not in library.read_bytes()


def test_a_failing_encode_tells_its_numbers(host: HostProcess) -> None:
    host.fail("cuTensorMapEncodeTiled", 1, 1)
    assert host.call("run", arguments())[1:3] == [
        "RuntimeError",
        f"{NAME}: cuTensorMapEncodeTiled failed with CUDA_ERROR_INVALID_VALUE (1): invalid argument "
        "(tensor a, map a: extents [128, 3], strides [256] bytes, box [64, 128])",
    ]
    assert host.launches() == []


STRIDE = "expected a stride that is a multiple of 16 bytes and below 2^40, got "


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            arguments(s={"data": Z + 4}),
            f"argument s: tensor map s_map: expected data aligned to 16 bytes, got address {Z + 4:#x} (4 bytes past)",
        ),
        (
            arguments(a={"offset": 8}),
            f"argument a: tensor map a: expected data aligned to 16 bytes, got address {X + 8:#x} (8 bytes past)",
        ),
        (arguments(k=12), f"argument a: tensor map a: dimension 1: {STRIDE}24: strides [24] bytes"),
        (arguments(grc=(2, 4, 6)), f"argument s: tensor map s_map: dimension 1: {STRIDE}24: strides [24, 96] bytes"),
        (
            arguments(grc=(1, 2**20, 2**18), s={"data": 1 << 44}),
            f"argument s: tensor map s_map: dimension 2: {STRIDE}{2**40}: strides [{2**20}, {2**40}] bytes",
        ),
        (
            arguments(grc=(0, 5, 8)),
            "argument s: tensor map s_map: dimension 2: expected 1 to 2^32 elements, got 0: extents [8, 5, 0]",
        ),
    ],
)
def test_what_the_driver_would_refuse_is_refused_before(args: list[Any], message: str, host: HostProcess) -> None:
    assert host.call("run", args)[:3] == [-1, "ValueError", f"{NAME}: {message}"]
    assert host.record() == []


def test_more_elements_than_a_map_counts_are_refused(tmp_path: Path, driver: Path) -> None:
    over = replace(A_MAP, extents=(times(K, integer(2**26)), M))
    host = HostProcess(build_binding(maps_program(over), tmp_path, TRAPS), driver)
    assert host.call("run", arguments(k=64))[:3] == [0, "", ""]
    assert f" extents {2**32} 3 " in encodes(host)[0]
    assert host.call("run", arguments(k=72))[2] == (
        f"{NAME}: argument a: tensor map a: dimension 0: expected 1 to 2^32 elements, got {72 * 2**26}: "
        f"extents [{72 * 2**26}, 3]"
    )
    host.close()


# ---- absent tensors ----


def test_an_absent_tensor_is_a_null_pointer(host: HostProcess) -> None:
    assert host.call("run", arguments(bias=None)) == [0, "", "", 0]
    assert host.launches()[0].split(": ")[1].split()[2:4] == ["0x0", f"{Y:#x}"]


def test_an_optional_tensor_that_is_there_is_checked(host: HostProcess) -> None:
    assert host.call("run", arguments(bias={"shape": [64]}))[2] == (
        f"{NAME}: argument bias: expected shape [k] = [128], got [64]"
    )
    assert host.call("run", arguments(bias={"data": WEIGHT + 4}))[2].startswith(
        f"{NAME}: argument bias: expected data aligned to 16 bytes"
    )
    assert host.call("run", arguments(out={"data": WEIGHT}))[2].startswith(
        f"{NAME}: argument out: expected memory of its own"
    )
    given = arguments()
    given[2] = ["int", 3]
    assert host.call("run", given)[1:3] == ["TypeError", f"{NAME}: argument bias: expected a tensor, got int"]


@pytest.mark.parametrize("name", ["a", "s", "out"])
def test_any_other_tensor_must_be_there(name: str, host: HostProcess) -> None:
    assert host.call("run", arguments(**{name: None}))[:3] == [
        *(-1, "TypeError"),
        f"{NAME}: argument {name}: expected a tensor, got None",
    ]
    assert host.record() == []


@pytest.mark.parametrize("access", ["read", "write"])
def test_the_device_is_that_of_the_first_tensor_that_is_there(access: str, tmp_path: Path, driver: Path) -> None:
    program = maps_program()
    bias = replace(BIAS, access=access)
    first = replace(program, parameters=(bias, A, S, *program.parameters[3:]), arguments=(A_MAP, S_MAP, bias))
    host = HostProcess(build_binding(first, tmp_path), driver)
    a, s, _, out, scale = arguments(**{name: {"device": [CUDA, 1]} for name in ("a", "s", "out")})
    assert host.call("run", [["none", 0], a, s, out, scale])[:3] == [0, "", ""]
    assert " in 1 " in host.launches()[0]
    host.close()


# ---- attributes of a launch ----


@pytest.mark.parametrize(
    ("changes", "attributes"),
    [
        ({}, []),
        ({"dependent": True}, ["6 = 1"]),
        ({"oversized_shared_memory": True}, ["18 = 3"]),
        ({"cluster": (2, 1, 1), "dependent": True}, ["4 = 2 1 1", "6 = 1"]),
        (
            {"cluster": (2, 1, 1), "oversized_shared_memory": True, "dependent": True},
            ["4 = 2 1 1", "18 = 3", "6 = 1"],
        ),
    ],
)
def test_attributes_of_a_launch_combine(
    changes: dict[str, Any], attributes: list[str], tmp_path: Path, driver: Path
) -> None:
    """Numbers of cuda.h: 4 cluster, 6 programmatic stream serialization, 18 shared memory mode with 3 for oversized.

    In that mode CUDA ignores the limit of dynamic shared memory (attribute 8 of a kernel), and refuses oversized ones.
    """
    program = maps_program()
    launch = replace(program.launch, dynamic_shared_bytes=200_000, **changes)
    if "cluster" in changes:
        launch = replace(launch, grid=(times(M, integer(2)), integer(1), integer(1)))
    host = HostProcess(build_binding(replace(program, launch=launch), tmp_path), driver)
    assert host.call("run", arguments())[:3] == [0, "", ""]
    launched = host.launches()[0]
    assert " shared 200000 " in launched
    assert [part.strip() for part in launched.split(" attribute ")[1:]] == attributes
    limits = [line for line in host.record() if line.startswith("cuKernelSetAttribute")]
    assert limits == ([] if launch.oversized_shared_memory else ["cuKernelSetAttribute 8 = 200000 on 0"])
    host.close()

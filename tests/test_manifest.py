"""build.json: what a valid one says, and that every complaint names the file and the field."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sample_program import ROWS_HIGH, write_package

from kernwright.generator.ir.types import ALL_DTYPES
from kernwright.runtime import manifest
from kernwright.runtime.manifest import ManifestError, ScalarRecord, TensorRecord

SYMBOL = "rmsnorm_silu_gate_forward_w_bf16"
PROGRAM = f"/programs/{SYMBOL}"
TARGET = f"{PROGRAM}/architectures/sm_90a"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return write_package(tmp_path, architectures=("sm_90a", "sm_107a"))


@pytest.fixture
def document(package: Path) -> dict[str, Any]:
    return json.loads(package.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_a_valid_file_is_read_whole(package: Path) -> None:
    read = manifest.load(package)
    assert read.generator_digest == "0" * 64
    assert read.architectures["sm_107a"].capability == (10, 7)
    assert read.architectures["sm_107a"].minimum_cuda == (13, 4)
    assert read.architectures["sm_90a"].code == "90a"
    assert read.architectures["sm_90a"].limits.shared_memory_per_block == 232448
    program = read.program(SYMBOL)
    assert (program.family, program.name) == ("rmsnorm_silu_gate", "forward_w_bf16")
    matrix = ("bf16", ("rows", "128"), ("128", "1"))
    assert program.parameters == (
        TensorRecord("x", *matrix, "read", 16, True),
        TensorRecord("z", *matrix, "read", 16, True),
        TensorRecord("weight", "bf16", ("128",), ("1",), "read", 16, False),
        TensorRecord("y", *matrix, "write", 16, True),
        ScalarRecord("rows", "i64", 0, ROWS_HIGH, 1, None, ("x", 0)),
        ScalarRecord("eps", "f32", None, None, 1, 0.0, None),
    )
    target = read.target(SYMBOL, "sm_90a")
    assert target.kernel == "generated/rmsnorm_silu_gate/forward_w_bf16.cu"
    assert target.flags == ("-O3", "-std=c++17")
    assert target.launch.threads == 128
    assert target.launch.grid == ("(rows + 7) / 8ll", "1", "1")
    assert target.library == f"{SYMBOL}.sm_90a"
    assert manifest.changed_files(target, package.parent) == {}
    assert target.key != read.target(SYMBOL, "sm_107a").key


def test_hand_edits_are_seen_and_line_ends_are_not(package: Path) -> None:
    target = manifest.load(package).target(SYMBOL, "sm_90a")
    kernel, binding = package.parent / target.kernel, package.parent / target.binding
    kernel.write_bytes(kernel.read_bytes().replace(b"\n", b"\r\n"))
    assert manifest.changed_files(target, package.parent) == {}
    kernel.write_bytes(kernel.read_bytes() + b"// by hand\n")
    binding.unlink()
    assert manifest.changed_files(target, package.parent) == {target.kernel: "edited", target.binding: "missing"}


def test_closure_digest_is_over_sorted_lines() -> None:
    one, two = "1" * 64, "2" * 64
    assert manifest.closure_digest({"b": two, "a": one}) == manifest.text_digest(f"a {one}\nb {two}\n")
    assert manifest.text_digest("a\r\nb\r\n") == manifest.text_digest(b"a\nb\n")


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the document: the member at `path` becomes `value`, or goes when that is `...`."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        if value is ...:
            del document[path[-1]]
        else:
            document[path[-1]] = value

    return change


P = ("programs", SYMBOL)
T = (*P, "architectures", "sm_90a")
BROKEN = {
    "/schema: is missing": put("schema", value=...),
    "/schema: is schema 2, this version of kernwright reads schema 1": put("schema", value=2),
    "/schema: expected an integer, got True": put("schema", value=True),
    "/extra: is not a field of this schema": put("extra", value=1),
    "/generator/digest: expected a string like [0-9a-f]{64}, got 'abc'": put("generator", "digest", value="abc"),
    "/architectures/sm_90a/capability: expected 2 integers, got [9]": put(
        "architectures", "sm_90a", "capability", value=[9]
    ),
    "/architectures/sm_90a/minimum_cuda: expected a string, got 12.0": put(
        "architectures", "sm_90a", "minimum_cuda", value=12.0
    ),
    "/architectures/sm_90a/limits/blocks_per_sm: expected an integer >= 1, got 0": put(
        "architectures", "sm_90a", "limits", "blocks_per_sm", value=0
    ),
    "/architectures/hopper: is not an architecture name such as sm_90a": put("architectures", "hopper", value={}),
    "/programs: expected an object, got []": put("programs", value=[]),
    f"{PROGRAM}/family: expected a string, got None": put(*P, "family", value=None),
    f"{PROGRAM}/name: is 'forward' of family 'rmsnorm_silu_gate', which makes rmsnorm_silu_gate_forward, not {SYMBOL}": put(
        *P, "name", value="forward"
    ),
    f"{PROGRAM}/parameters/0/dtype: expected one of boolean, i8, i16, i32, i64, u8, u16, u32, u64, bf16, f16, f32, f64, "
    "got 'bfloat16'": put(*P, "parameters", 0, "dtype", value="bfloat16"),
    f"{PROGRAM}/parameters/0/kind: is 'array', expected 'tensor' or 'scalar'": put(
        *P, "parameters", 0, "kind", value="array"
    ),
    f"{PROGRAM}/parameters/0/strides: has 1 entries, the shape has 2": put(*P, "parameters", 0, "strides", value=["1"]),
    f"{PROGRAM}/parameters/0/folded: expected true or false, got 1": put(*P, "parameters", 0, "folded", value=1),
    f"{PROGRAM}/parameters/1: a second parameter named 'x'": put(*P, "parameters", 1, "name", value="x"),
    f"{PROGRAM}/parameters/4/bound_to: names 'q', which is not a tensor parameter; known: weight, x, y, z": put(
        *P, "parameters", 4, "bound_to", value=["q", 0]
    ),
    f"{PROGRAM}/parameters/4/bound_to: names dimension 2 of x, which has 2": put(
        *P, "parameters", 4, "bound_to", value=["x", 2]
    ),
    f"{PROGRAM}/parameters/4/minimum: is for floats; i64 has low and high": put(
        *P, "parameters", 4, "minimum", value=0.0
    ),
    f"{PROGRAM}/parameters/5/low: is for integers; f32 has a minimum": put(*P, "parameters", 5, "low", value=0),
    f"{PROGRAM}/parameters/5/minimum: expected a finite number, got inf": put(
        *P, "parameters", 5, "minimum", value=float("inf")
    ),
    f"{PROGRAM}/architectures/sm_80: is not in /architectures; known: sm_107a, sm_90a": put(
        *P, "architectures", "sm_80", value={}
    ),
    f"{TARGET}/kernel: 'kernel.cu' is not among the files": put(*T, "kernel", value="kernel.cu"),
    f"{TARGET}/files/..~1secret: is not a path inside the package": put(*T, "files", "../secret", value="0" * 64),
    f"{TARGET}/lowered: is missing": put(*T, "lowered", value=...),
    f"{TARGET}/flags/0: expected a string, got 3": put(*T, "flags", 0, value=3),
    f"{TARGET}/launch/grid: has 2 entries, expected 3": put(*T, "launch", "grid", value=["1", "1"]),
    f"{TARGET}/launch/cluster/1: expected an integer >= 1, got 0": put(*T, "launch", "cluster", value=[1, 0, 1]),
    f"{TARGET}/launch/min_blocks: expected an integer, got 'two'": put(*T, "launch", "min_blocks", value="two"),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_file_names_the_field(message: str, document: dict[str, Any]) -> None:
    broken = copy.deepcopy(document)
    BROKEN[message](broken)
    with pytest.raises(ManifestError) as caught:
        manifest.parse(broken, Path("/p/build.json"))
    assert str(caught.value) == f"/p/build.json#{message}"


def test_a_closure_that_the_files_do_not_give(document: dict[str, Any]) -> None:
    files = document["programs"][SYMBOL]["architectures"]["sm_90a"]["files"]
    files["generated/include/binding.h"] = "f" * 64
    with pytest.raises(ManifestError, match=rf"{TARGET}/closure: is [0-9a-f]{{12}}…, the files give [0-9a-f]{{12}}…"):
        manifest.parse(document, Path("build.json"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "build.json"
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        manifest.load(file)
    file.write_text(" \n")
    with pytest.raises(ManifestError, match="is empty: run regenerate-kernels"):
        manifest.load(file)
    file.write_bytes(b'{"schema": "\xff"}')
    with pytest.raises(ManifestError, match=r"build.json: is not JSON: byte 12 is not UTF-8"):
        manifest.load(file)
    file.write_text('{"schema": 1,\n "x"}')
    with pytest.raises(ManifestError, match="is not JSON: line 2 column 5: Expecting ':' delimiter"):
        manifest.load(file)


def test_the_types_are_those_of_the_generator() -> None:
    """The manifest stands alone, so it has a list of its own; the generator's is the other one."""
    assert tuple(dtype.name for dtype in ALL_DTYPES) == manifest.DTYPES
    assert tuple(dtype.name for dtype in ALL_DTYPES if dtype.is_float) == manifest.FLOATS


def test_names_that_do_not_exist(package: Path) -> None:
    read = manifest.load(package)
    with pytest.raises(ManifestError, match=rf"#/programs: no program 'norm'; known: {SYMBOL}"):
        read.target("norm", "sm_90a")
    with pytest.raises(ManifestError, match=rf"#{PROGRAM}/architectures: no 'sm_80'; known: sm_107a, sm_90a"):
        read.target(SYMBOL, "sm_80")


def test_importing_is_light() -> None:
    """Neither torch nor tvm_ffi nor the generator is imported by the manifest, the loader, the build or the command."""
    code = (
        "import sys, kernwright, kernwright.cli, kernwright.runtime.loader, kernwright.runtime.evidence;"
        "heavy = {'torch', 'tvm_ffi', 'jinja2', 'numpy', 'sympy'} & set(sys.modules);"
        "ours = [m for m in sys.modules if m.startswith('kernwright.generator') or m == 'kernwright.runtime.ops'];"
        "maps = open('/proc/self/maps').read();"
        "print(sorted(heavy), ours, 'libcuda' in maps)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] [] False"

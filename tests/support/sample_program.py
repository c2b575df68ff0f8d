"""A small lowered program made by hand, with the host side of the real norm: the tests' stand-in for a description."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernwright.generator.emit.binding import print_binding, print_binding_header
from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.expr import Binary, Const, Expr, Var, integer
from kernwright.generator.ir.program import Launch, LoweredProgram, ScalarParameter, TensorParameter
from kernwright.generator.ir.types import DType, bf16, f32, i64
from kernwright.runtime.manifest import closure_digest, text_digest

ROWS_HIGH = 8 * (2**31 - 1)
ARCHITECTURES = {
    "sm_90a": ((9, 0), "12.0"),
    "sm_100a": ((10, 0), "12.8"),
    "sm_103a": ((10, 3), "12.9"),
    "sm_107a": ((10, 7), "13.4"),
}
LIMITS = {
    "threads_per_block": 1024,
    "threads_per_sm": 2048,
    "blocks_per_sm": 32,
    "shared_memory_per_block": 232448,
    "shared_memory_per_sm": 233472,
    "registers_per_sm": 65536,
}
# One warp a row, plainly: ptxas accepts it, and on a GPU it gives the right values.
KERNEL = """\
#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(128)
SYMBOL(const __nv_bfloat16* x, const __nv_bfloat16* z, const WEIGHT* weight, __nv_bfloat16* y, long long rows,
       float eps) {
  for (int i = 0; i < 2; ++i) {
    const long long row = blockIdx.x * 8ll + threadIdx.x / 32 * 2 + i;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = threadIdx.x % 32; c < 128; c += 32) {
      const float v = __bfloat162float(x[row * 128 + c]);
      sum += v * v;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    const float r = rsqrtf(sum / 128.0f + eps);
    for (int c = threadIdx.x % 32; c < 128; c += 32) {
      const float g = __bfloat162float(z[row * 128 + c]);
      const float n = __bfloat162float(x[row * 128 + c]) * r;
      y[row * 128 + c] = __float2bfloat16(n * (float)weight[c] * (g / (1.0f + __expf(-g))));
    }
  }
}
"""


def sample_program(arch: str = "sm_90a", weight: DType = bf16) -> LoweredProgram:
    """The forward norm: x, z, y bf16 [rows, 128] with folding, weight [128], rows from x, eps from the caller."""
    rows = Var("rows", i64, 0, ROWS_HIGH)
    wide: tuple[Expr, ...] = (rows, integer(128))

    def matrix(name: str, access: str) -> TensorParameter:
        return TensorParameter(name, bf16, wide, (integer(128), integer(1)), access, 16, folded=True)

    blocks = Binary("/", Binary("+", rows, integer(7)), Const(8, i64))
    return LoweredProgram(
        family="rmsnorm_silu_gate",
        name=f"forward_w_{weight}",
        arch=arch,
        doc="y = rmsnorm(x) * weight * silu(z)",
        parameters=(
            matrix("x", "read"),
            matrix("z", "read"),
            TensorParameter("weight", weight, (integer(128),), (integer(1),), "read", 16),
            matrix("y", "write"),
            ScalarParameter("rows", i64, 0, ROWS_HIGH, bound_to=("x", 0)),
            ScalarParameter("eps", f32, minimum=0.0),
        ),
        constants=(),
        asserts=(),
        launch=Launch(128, (blocks, integer(1), integer(1))),
        body=(),
        instructions=(),
    )


def kernel_text(program: LoweredProgram) -> str:
    """CUDA text for the sample's kernel, under the program's symbol."""
    weight = next(tensor for tensor in program.tensors if tensor.name == "weight")
    return KERNEL.replace("SYMBOL", program.symbol).replace("WEIGHT", weight.dtype.cpp)


def write_package(
    root: Path,
    programs: list[LoweredProgram] | None = None,
    architectures: tuple[str, ...] = ("sm_90a",),
    kernel: dict[str, str] | None = None,
) -> Path:
    """Write generated files and build.json of `programs` under `root`; returns the path of build.json."""
    records: dict[str, Any] = {}
    files = {"generated/include/binding.h": print_binding_header()}
    for program in programs or [sample_program()]:
        stem = f"generated/{program.family}/{program.name}"
        own = {
            f"{stem}.cu": (kernel or {}).get(program.symbol) or kernel_text(program),
            f"{stem}_binding.c": print_binding(program),
        }
        files |= own
        digests = {path: text_digest(files[path]) for path in (*own, "generated/include/binding.h")}
        target = {
            "kernel": f"{stem}.cu",
            "binding": f"{stem}_binding.c",
            "files": digests,
            "closure": closure_digest(digests),
            "lowered": hashlib.sha256(program.symbol.encode()).hexdigest(),
            "flags": ["-O3", "-std=c++17"],
            "launch": {
                "threads": program.launch.threads,
                "grid": [print_expression(extent) for extent in program.launch.grid],
                "cluster": list(program.launch.cluster),
                "dynamic_shared_bytes": program.launch.dynamic_shared_bytes,
                "min_blocks": None,
            },
        }
        records[program.symbol] = {
            "family": program.family,
            "name": program.name,
            "doc": program.doc,
            "parameters": [_parameter(p) for p in program.parameters],
            "architectures": dict.fromkeys(architectures, target),
        }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    document = {
        "schema": 1,
        "generator": {"digest": "0" * 64},
        "architectures": {
            name: {"capability": list(ARCHITECTURES[name][0]), "minimum_cuda": ARCHITECTURES[name][1], "limits": LIMITS}
            for name in architectures
        },
        "programs": records,
    }
    (root / "build.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return root / "build.json"


def _parameter(parameter: TensorParameter | ScalarParameter) -> dict[str, Any]:
    if isinstance(parameter, TensorParameter):
        return {
            "kind": "tensor",
            "name": parameter.name,
            "dtype": parameter.dtype.name,
            "shape": [print_expression(extent) for extent in parameter.shape],
            "strides": [print_expression(stride) for stride in parameter.strides],
            "access": parameter.access,
            "alignment": parameter.alignment,
            "folded": parameter.folded,
        }
    record: dict[str, Any] = {"kind": "scalar", "name": parameter.name, "dtype": parameter.dtype.name}
    if parameter.dtype.is_integer:
        record |= {"low": parameter.low, "high": parameter.high, "multiple_of": parameter.multiple_of}
    if parameter.minimum is not None:
        record["minimum"] = parameter.minimum
    if parameter.bound_to is not None:
        record["bound_to"] = list(parameter.bound_to)
    return record


def with_launch(program: LoweredProgram, launch: Launch) -> LoweredProgram:
    """The same program with another launch."""
    return replace(program, launch=launch)

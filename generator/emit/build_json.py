"""build.json: what the generator wrote, as data. Pure output of the generator; runtime/manifest.py states and checks the schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernwright.generator.arch import Architecture
from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.digest import digest
from kernwright.generator.ir.expr import Expr, without_names
from kernwright.generator.ir.program import Launch, LoweredProgram, Parameter, TensorParameter
from kernwright.runtime.manifest import SCHEMA, closure_digest

# Contraction is off: the text says where a multiplication and an addition are fused, and nowhere else does it happen.
COMPILE_FLAGS = ("-O3", "-std=c++17", "-fmad=false")


@dataclass(frozen=True, slots=True)
class Target:
    """A lowered program with the paths of its files: `files` maps every file its library is built from to its SHA-256."""

    program: LoweredProgram
    kernel: str
    binding: str
    files: Mapping[str, str]


def print_build_json(targets: Iterable[Target], architectures: Iterable[Architecture], generator_digest: str) -> str:
    """The text of build.json, sorted, one fact a line, so that merges of two programs do not meet."""
    programs: dict[str, dict[str, object]] = {}
    for target in targets:
        program = target.program
        record = programs.setdefault(program.symbol, _program(program))
        on_arch = record["architectures"]
        assert isinstance(on_arch, dict)
        on_arch[program.arch] = _target(target)
    document = {
        "schema": SCHEMA,
        "generator": {"digest": generator_digest},
        "architectures": {arch.name: _architecture(arch) for arch in architectures},
        "programs": programs,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _architecture(arch: Architecture) -> dict[str, object]:
    return {
        "capability": list(arch.capability),
        "minimum_cuda": arch.minimum_cuda,
        "limits": {
            "threads_per_block": arch.threads_per_block,
            "threads_per_sm": arch.threads_per_sm,
            "blocks_per_sm": arch.blocks_per_sm,
            "shared_memory_per_block": arch.shared_memory_per_block,
            "shared_memory_per_sm": arch.shared_memory_per_sm,
            "registers_per_sm": arch.registers_per_sm,
        },
    }


def _program(program: LoweredProgram) -> dict[str, object]:
    return {
        "family": program.family,
        "name": program.name,
        "doc": program.doc.splitlines()[0],
        "parameters": [_parameter(parameter) for parameter in program.parameters],
        "architectures": {},
    }


def _parameter(parameter: Parameter) -> dict[str, object]:
    if isinstance(parameter, TensorParameter):
        return {
            "kind": "tensor",
            "name": parameter.name,
            "dtype": parameter.dtype.name,
            "shape": [_text(extent) for extent in parameter.shape],
            "strides": [_text(stride) for stride in parameter.strides],
            "access": parameter.access,
            "alignment": parameter.alignment,
            "folded": parameter.folded,
        }
    facts: dict[str, object] = {"kind": "scalar", "name": parameter.name, "dtype": parameter.dtype.name}
    if parameter.dtype.is_integer:
        facts |= {"low": parameter.low, "high": parameter.high, "multiple_of": parameter.multiple_of}
    elif parameter.minimum is not None:
        facts["minimum"] = parameter.minimum
    if parameter.bound_to is not None:
        facts["bound_to"] = list(parameter.bound_to)
    return facts


def _target(target: Target) -> dict[str, object]:
    return {
        "kernel": target.kernel,
        "binding": target.binding,
        "files": dict(target.files),
        "closure": closure_digest(target.files),
        "lowered": digest(target.program),
        "flags": list(COMPILE_FLAGS),
        "launch": _launch(target.program.launch),
    }


def _launch(launch: Launch) -> dict[str, object]:
    return {
        "threads": launch.threads,
        "grid": [_text(extent) for extent in launch.grid],
        "cluster": list(launch.cluster),
        "dynamic_shared_bytes": launch.dynamic_shared_bytes,
        "min_blocks": launch.min_blocks,
    }


def _text(expr: Expr) -> str:
    """An expression with numbers in place of named constants: the record stands alone, without the kernel's table."""
    return print_expression(without_names(expr))

"""The host side of a build: C and C++ compilers, tvm-ffi's headers and library, ninja. Imports none of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernwright.runtime.build.errors import BuildError


@dataclass(frozen=True, slots=True)
class Host:
    """Command of the C compiler, host compiler for nvcc (None: its own choice), ninja, tvm-ffi's folder and version."""

    cc: tuple[str, ...]
    ccbin: str | None
    ninja: Path
    tvm_ffi: Path
    tvm_ffi_version: str


def find_host(environment: Mapping[str, str] | None = None) -> Host:
    """What a build uses; CC and CXX are honoured. Raises BuildError naming the variable or the missing package."""
    values = os.environ if environment is None else environment
    cc = _command("CC", values, ("gcc", "cc", "clang"))
    cxx = _command("CXX", values, ()) if values.get("CXX", "").strip() else ()
    if len(cxx) > 1:
        raise BuildError(f"CXX={values['CXX']!r}: nvcc takes one program as its host compiler, without arguments")
    return Host(cc, cxx[0] if cxx else None, _ninja(), _package("tvm_ffi", "apache-tvm-ffi"), tvm_ffi_version())


def _command(variable: str, values: Mapping[str, str], defaults: tuple[str, ...]) -> tuple[str, ...]:
    search = values.get("PATH", os.defpath)
    words = shlex.split(values.get(variable, ""))
    if words:
        found = shutil.which(words[0], path=search)
        if found is None:
            raise BuildError(
                f"{variable}={values[variable]!r}: looked for the program {words[0]!r}, which does not exist"
            )
        return (found, *words[1:])
    for name in defaults:
        if found := shutil.which(name, path=search):
            return (found,)
    raise BuildError(f"no C compiler: set {variable}, or install one of {', '.join(defaults)}")


def _package(module: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise BuildError(f"the Python package {distribution} is not installed; libraries are linked with it")
    return Path(spec.origin).resolve().parent


def tvm_ffi_version() -> str:
    """Version of the installed tvm-ffi, which libraries are linked with. Raises BuildError when there is none."""
    try:
        return importlib.metadata.version("apache-tvm-ffi")
    except importlib.metadata.PackageNotFoundError as error:
        raise BuildError(f"the Python package {error.name} is not installed; libraries are linked with it") from error


def _ninja() -> Path:
    try:
        import ninja
    except ImportError as error:
        raise BuildError("the Python package ninja is not installed; libraries are built with it") from error
    return Path(ninja.BIN_DIR) / "ninja"

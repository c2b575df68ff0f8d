"""Builds bindings and the fake driver with the C compiler alone, and talks to a process that runs a binding on it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernwright.generator.emit.binding import print_binding, print_binding_header
from kernwright.generator.ir.program import LoweredProgram
from kernwright.runtime.build.ninja_file import C_FLAGS
from kernwright.runtime.toolchain import discover

HERE = Path(__file__).resolve().parent
CUDA, CPU = 2, 1
CUBIN = b"\x7fFAKE-CUBIN"


def tvm_folder() -> Path:
    """Folder of the installed tvm_ffi package, without importing it."""
    spec = importlib.util.find_spec("tvm_ffi")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def build_driver(folder: Path) -> Path:
    """The fake driver as `<folder>/libcuda.so.1`."""
    path = folder / "libcuda.so.1"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    include = ["-isystem", str(discover().include)]
    subprocess.run(["gcc", *flags, *include, "-o", str(path), str(HERE / "fake_driver.c"), "-pthread"], check=True)
    return path


TRAPS = ("-fsanitize=signed-integer-overflow,shift,bounds", "-fsanitize-undefined-trap-on-error")


def build_binding(program: LoweredProgram, folder: Path, flags: tuple[str, ...] = ()) -> Path:
    """The binding of `program` as a library, warnings being errors, around a few bytes instead of machine code.

    With `flags=TRAPS` the process dies where C leaves the behaviour undefined.
    """
    text = folder / "generated" / program.family / f"{program.name}_binding.c"
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(print_binding(program), encoding="utf-8")
    header = folder / "generated" / "include" / "binding.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(print_binding_header(), encoding="utf-8")
    (folder / "fake.cubin").write_bytes(CUBIN)
    path = folder / f"{program.symbol}.sm_90a.so"
    tvm = tvm_folder()
    command = [
        "gcc",
        *C_FLAGS,
        *flags,
        "-Wshadow",
        "-Werror",
        f"-I{tvm / 'include'}",
        "-isystem",
        str(discover().include),
    ]
    command += ['-DKW_CUBIN="fake.cubin"', '-DKW_ARCHITECTURE="sm_90a"', "-DKW_MAJOR=9", "-DKW_MINOR=0"]
    command += ["-o", str(path), str(text), f"-L{tvm / 'lib'}", "-ltvm_ffi", "-ldl"]
    subprocess.run(command, check=True, cwd=folder)
    return path


def matrix(shape: list[int], **changes: Any) -> dict[str, Any]:
    """A contiguous BF16 tensor on cuda:0 at a 256-byte aligned address; `changes` replace any of it."""
    strides, run = [0] * len(shape), 1
    for index in reversed(range(len(shape))):
        strides[index] = run
        run *= shape[index]
    return {
        "shape": shape,
        "strides": strides,
        "dtype": ["bfloat", 16],
        "device": [CUDA, 0],
        "data": 0x7F0000000000,
    } | changes


class HostProcess:
    """A process with the fake driver; methods are the commands of host_worker.py."""

    def __init__(self, library: Path, driver: Path | None) -> None:
        environment = dict(os.environ)
        environment["LD_LIBRARY_PATH"] = str(driver.parent) if driver else str(library.parent / "nowhere")
        command = [sys.executable, str(HERE / "host_worker.py"), str(tvm_folder() / "lib" / "libtvm_ffi.so")]
        self.process = subprocess.Popen(
            [*command, str(library), "driver" if driver else "none"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __getattr__(self, command: str) -> Any:
        def send(*arguments: Any) -> Any:
            stdin, stdout = self.process.stdin, self.process.stdout
            assert stdin is not None and stdout is not None
            stdin.write(json.dumps([command, *arguments]) + "\n")
            stdin.flush()
            answer = stdout.readline()
            assert answer, f"the process died of {self.process.wait()} at {command}{arguments}"
            return json.loads(answer)

        return send

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()

    def launches(self) -> list[str]:
        """The recorded launches."""
        return [line for line in self.record() if line.startswith("cuLaunchKernelEx")]

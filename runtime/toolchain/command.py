"""The `toolchain` command: install the pinned compiler, print its folder, or check what a build would use."""

from __future__ import annotations

import argparse
import sys

from kernwright.runtime import manifest
from kernwright.runtime.toolchain import discover, folder
from kernwright.runtime.toolchain.errors import ToolchainError
from kernwright.runtime.toolchain.install import install
from kernwright.runtime.toolchain.pins import CUDA, NVCC

ACTIONS = {
    "install": f"fetch CUDA {CUDA} into its own folder; does nothing when it is there",
    "path": "print the home of the compiler that a build would use",
    "check": "say which compiler a build would use and which architectures it can build",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions."""
    parser.add_argument("action", choices=list(ACTIONS), help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))


def run(action: str) -> int:
    """Exit code 0, or 1 when `check` finds an architecture that the compiler is too old for."""
    if action == "install":
        done = install()
        print(f"CUDA {CUDA} {'installed into' if done else 'is in'} {folder()}", file=sys.stderr)
        return 0
    toolchain = discover()
    if action == "path":
        print(toolchain.home)
        return 0
    pinned = "the pinned version" if toolchain.version == NVCC else f"the pinned version is {NVCC}"
    print(f"nvcc {toolchain.version} at {toolchain.home} (found by {toolchain.found_by}; {pinned})")
    code = 0
    try:
        architectures = manifest.load().architectures
    except manifest.ManifestError as error:
        print(f"architectures unknown: {error}")
        return 1
    for name, architecture in architectures.items():
        major, minor = architecture.minimum_cuda
        able = toolchain.release >= architecture.minimum_cuda
        print(f"{name}: needs CUDA {major}.{minor}: {'ok' if able else 'too old'}")
        code = code if able else 1
    return code


def main(arguments: list[str]) -> int:
    """Run the command by itself; errors go to stderr with exit code 2."""
    parser = argparse.ArgumentParser(prog="kernwright toolchain", description=__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments).action)
    except ToolchainError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

"""Shared fixtures: descriptions written in a test file are traced through a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernwright.generator.dsl import ALL, program
from kernwright.generator.dsl.program import Registry
from kernwright.generator.ir.description import Description
from kernwright.runtime.toolchain import Toolchain, ToolchainError, discover

Trace = Callable[..., Description]


@pytest.fixture
def trace() -> Trace:
    """`trace(function, **program_arguments)`: register the function alone and trace it."""

    def run(function: Callable[..., None], **arguments: Any) -> Description:
        registry = Registry()
        program(**{"family": "test", "archs": ALL, "registry": registry, **arguments})(function)
        (source,) = registry.programs.values()
        return source.trace()

    return run


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """A compiler that knows every architecture, with its disassembler; without one the test is skipped."""
    try:
        found = discover()
        found.tool("nvdisasm")
        found.require("sm_107a", (13, 4))
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    return found

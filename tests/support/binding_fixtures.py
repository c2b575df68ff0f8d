"""Fixtures of the binding's tests: the fake driver, the sample's binding, a process that runs it, its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.host import TRAPS, HostProcess, build_binding, build_driver, matrix
from support.sample_program import sample_program

X, Z, WEIGHT, Y = 0x7F0000000000, 0x7F1000000000, 0x7F2000000000, 0x7F3000000000
NAME = "rmsnorm_silu_gate_forward_w_bf16"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_binding(sample_program(), tmp_path_factory.mktemp("binding"))


@pytest.fixture
def host(library: Path, driver: Path) -> Iterator[HostProcess]:
    process = HostProcess(library, driver)
    process.arguments([8, 8, 8, 8, 8, 4])
    yield process
    process.close()


@pytest.fixture(scope="module")
def refusing(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """One process for all refusals: none of them may reach the driver, or rely on what C leaves undefined."""
    process = HostProcess(build_binding(sample_program(), tmp_path_factory.mktemp("trapping"), TRAPS), driver)
    yield process
    assert process.record() == []
    process.close()


def arguments(rows: int = 15, eps: Any = 1e-6, **changes: dict[str, Any]) -> list[list[Any]]:
    """The five arguments of the sample for `rows` rows; `changes` alter the named tensors."""
    tensors = {
        "x": matrix([rows, 128], data=X),
        "z": matrix([rows, 128], data=Z),
        "weight": matrix([128], data=WEIGHT),
        "y": matrix([rows, 128], data=Y),
    }
    return [["dltensor", tensors[name] | changes.get(name, {})] for name in tensors] + [["float", eps]]

"""What the loader's tests share: a package without libraries, an empty cache, and libraries that nothing loads."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from support.sample_program import write_package

from kernwright.runtime import manifest
from kernwright.runtime.build import records
from kernwright.runtime.toolchain import ToolchainError, discover

SYMBOL = "rmsnorm_silu_gate_forward_w_bf16"
NAME = f"{SYMBOL}.sm_90a"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> manifest.Manifest:
    """A package without libraries, and an empty cache."""
    empty_cache(tmp_path, monkeypatch)
    monkeypatch.delenv("KERNWRIGHT_LIBRARIES", raising=False)
    monkeypatch.delenv("KERNWRIGHT_JIT", raising=False)
    return manifest.load(write_package(tmp_path / "package", architectures=("sm_90a", "sm_103a")))


def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cache for libraries, and the same compiler, which by default lies in the cache too."""
    with contextlib.suppress(ToolchainError):
        monkeypatch.setenv("KERNWRIGHT_CUDA_HOME", str(discover().home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def place(folder: Path, programs: manifest.Manifest, data: bytes = b"library", **changes: object) -> Path:
    """A library file with its record; nothing loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    target = programs.target(SYMBOL, "sm_90a")
    values = {
        "sha256": records.digest(data),
        "closure": target.closure,
        "flags": target.flags,
        "toolchain": "13.4.92",
        "tvm_ffi": "0.1.9",
        "text_sha256": {},
        "resources": {},
    }
    records.write(folder, {NAME: records.LibraryRecord(**(values | changes))})  # type: ignore[arg-type]
    path = folder / f"{NAME}.so"
    path.write_bytes(data)
    return path

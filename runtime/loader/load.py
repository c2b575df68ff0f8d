"""Serves the functions of a program's library for a device: found or built once, verified, loaded, prepared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernwright.runtime.loader.jit import build_into_cache
from kernwright.runtime.loader.search import architecture_of, find
from kernwright.runtime.manifest import Manifest
from kernwright.runtime.manifest import load as load_manifest


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded library. `run(*tensors, *scalars)` launches, `prepare(device_index)` makes a device ready beforehand."""

    path: Path
    run: Callable[..., None]
    prepare: Callable[[int], None]


_lock = threading.RLock()
_modules: dict[Path, Loaded] = {}
_prepared: dict[tuple[str, int], Loaded] = {}


@cache
def default_manifest() -> Manifest:
    """The package's own build.json, read once."""
    return load_manifest()


def locate(
    symbol: str, capability: tuple[int, int], manifest: Manifest | None = None, device: str = "the device"
) -> Path:
    """Path of the verified library of program `symbol` for a compute capability, built into the cache when missing.

    Raises LoadError: unknown capability, damaged library, or a missing one that may not or cannot be built. Raises
    ManifestError when there is no such program or it is not made for this architecture.
    """
    manifest = manifest or default_manifest()
    target = manifest.target(symbol, architecture_of(capability, manifest, device).name)
    path, why = find(target, manifest)
    return path if path is not None else build_into_cache(target, manifest, why)


def open_library(path: Path) -> Loaded:
    """Load a library that `locate` returned. Needs no GPU and no driver."""
    import tvm_ffi

    with _lock:
        if path not in _modules:
            module = tvm_ffi.load_module(path)
            _modules[path] = Loaded(path, module.get_function("run"), module.get_function("prepare"))
        return _modules[path]


def load(symbol: str, device: int) -> Loaded:
    """The library of program `symbol` for CUDA device `device` (its index), ready to launch there.

    The first call for a device reads its capability, finds or builds the library and loads the kernel on the device;
    later calls are a look-up. Errors as for `locate`, and RuntimeError from the driver.
    """
    known = _prepared.get((symbol, device))
    if known is not None:
        return known
    import torch

    with _lock:
        capability = torch.cuda.get_device_capability(device)
        library = open_library(locate(symbol, capability, device=f"cuda:{device}"))
        library.prepare(device)
        return _prepared.setdefault((symbol, device), library)

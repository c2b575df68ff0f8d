"""Finds the library of a program for an architecture and verifies it before anything loads it.

Loading a damaged library kills the process, so the file's digest is compared with libraries.json first, and what the
library was built from with build.json. Imports neither torch nor tvm-ffi.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from kernwright.runtime.build import records
from kernwright.runtime.loader.errors import LoadError
from kernwright.runtime.manifest import Architecture, Manifest, TargetRecord
from kernwright.runtime.paths import user_cache

VARIABLE = "KERNWRIGHT_LIBRARIES"


def architecture_of(capability: tuple[int, int], manifest: Manifest, device: str = "the device") -> Architecture:
    """The row of the architecture table for a compute capability; LoadError names both sides when there is none."""
    for architecture in manifest.architectures.values():
        if architecture.capability == capability:
            return architecture
    supported = ", ".join(f"{a.name} ({a.capability[0]}.{a.capability[1]})" for a in manifest.architectures.values())
    got = f"{capability[0]}.{capability[1]}"
    raise LoadError(f"{device} has compute capability {got}; kernwright has programs for {supported or 'none'}")


def cache_entry(target: TargetRecord, environment: Mapping[str, str] | None = None) -> Path:
    """The folder of the user's cache that holds this library, and never another one."""
    return user_cache(environment) / "libraries" / target.library / target.key[:32]


def places(target: TargetRecord, manifest: Manifest, environment: Mapping[str, str] | None = None) -> list[Path]:
    """Folders that may hold the library, in the order of the search.

    KERNWRIGHT_LIBRARIES (one or more absolute folders, separated as in PATH), the package's `libraries` folder,
    `build/libraries`, the user's cache. Raises LoadError when the variable names no folder.
    """
    values = os.environ if environment is None else environment
    named = []
    for text in values.get(VARIABLE, "").split(os.pathsep):
        if text.strip():
            folder = Path(text.strip()).expanduser()
            if not folder.is_absolute() or not folder.is_dir():
                raise LoadError(f"{VARIABLE} names {text!r}: expected an absolute path of a folder with {records.FILE}")
            named.append(folder)
    return [
        *named,
        manifest.root / "libraries",
        manifest.root / "build" / "libraries",
        cache_entry(target, values),
    ]


def find(
    target: TargetRecord, manifest: Manifest, environment: Mapping[str, str] | None = None
) -> tuple[Path | None, str]:
    """Path of the first library that is built from what build.json records, verified; else None and why not.

    A library built from other text is passed over. A damaged file or a folder that others can write is a LoadError.
    """
    reasons = []
    for folder in places(target, manifest, environment):
        path = folder / f"{target.library}.so"
        record = records.read(folder).get(target.library)
        if record is None or not path.is_file():
            reasons.append(f"{folder}: not there")
        elif record.closure != target.closure or record.flags != target.flags:
            reasons.append(f"{folder}: built from other text than build.json records")
        else:
            verify(path, record.sha256)
            return path, ""
    return None, "\n  ".join(reasons)


def verify(path: Path, digest: str) -> None:
    """Raise LoadError when `path` is not the file with this sha256, or when other users could replace it."""
    for place in (path.parent, path):
        if place.stat().st_mode & stat.S_IWOTH:
            raise LoadError(f"{place} can be written by every user, so the library in it is not trusted; chmod o-w it")
    got = records.digest(path.read_bytes())
    if got != digest:
        raise LoadError(
            f"{path} is damaged: {records.FILE} records sha256 {digest[:16]}…, the file has {got[:16]}…; "
            f"it was not loaded. Build it again with `kernwright build`, or delete {path.parent}"
        )

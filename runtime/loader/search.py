"""Finds the library of a program for an architecture and verifies it before anything loads it.

Loading a damaged library kills the process, so the file's digest is compared with libraries.json first, and what the
library was built from with build.json. Imports neither torch nor tvm-ffi.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from kernwright.runtime.build import BuildError, records
from kernwright.runtime.build.host import tvm_ffi_version
from kernwright.runtime.loader.errors import LoadError
from kernwright.runtime.manifest import Architecture, Manifest, TargetRecord
from kernwright.runtime.paths import NoHomeError, user_cache
from kernwright.runtime.toolchain import ToolchainError, discover
from kernwright.runtime.toolchain.pins import NVCC

VARIABLE = "KERNWRIGHT_LIBRARIES"
PUBLISHING = 0.05  # seconds in which a build that has replaced a library also replaces its record


class DamagedError(LoadError):
    """A library is not the file that its record describes."""


def architecture_of(capability: tuple[int, int], manifest: Manifest, device: str = "the device") -> Architecture:
    """The row of the architecture table for a compute capability; LoadError names both sides when there is none."""
    for architecture in manifest.architectures.values():
        if architecture.capability == capability:
            return architecture
    supported = ", ".join(f"{a.name} ({a.capability[0]}.{a.capability[1]})" for a in manifest.architectures.values())
    got = f"{capability[0]}.{capability[1]}"
    raise LoadError(f"{device} has compute capability {got}; kernwright has programs for {supported or 'none'}")


def cache_entry(
    target: TargetRecord, environment: Mapping[str, str] | None = None, compiler: str | None = None
) -> Path:
    """The folder of the user's cache that holds this library, and never another one.

    It depends on what the library is made from, on `compiler` (a version of nvcc; by default the one a build would use,
    or the pinned one where there is none) and on the ABI of tvm-ffi, which changes with its minor version. Raises
    NoHomeError without a cache, and BuildError without tvm-ffi.
    """
    folder = user_cache(environment) / "libraries" / target.library
    if compiler is None:
        try:
            compiler = discover(environment).version
        except ToolchainError:
            compiler = NVCC
    abi = ".".join(tvm_ffi_version().split(".")[:2])
    return folder / hashlib.sha256(f"{target.key}\nnvcc {compiler}\ntvm-ffi {abi}".encode()).hexdigest()[:32]


def places(manifest: Manifest, environment: Mapping[str, str] | None = None) -> list[Path]:
    """Folders that may hold a library built ahead of time, in the order of the search; the user's cache comes last.

    KERNWRIGHT_LIBRARIES (one or more absolute folders, separated as in PATH), the package's `libraries` folder,
    `build/libraries`. Raises LoadError when the variable names no folder.
    """
    values = os.environ if environment is None else environment
    named = []
    for text in values.get(VARIABLE, "").split(os.pathsep):
        if text.strip():
            folder = Path(text.strip()).expanduser()
            if not folder.is_absolute() or not folder.is_dir():
                raise LoadError(f"{VARIABLE} names {text!r}: expected an absolute path of a folder with {records.FILE}")
            named.append(folder)
    return [*named, manifest.root / "libraries", manifest.root / "build" / "libraries"]


def find(
    target: TargetRecord, manifest: Manifest, environment: Mapping[str, str] | None = None
) -> tuple[Path | None, str]:
    """Path of the first library that is built from what build.json records, verified; else None and why not.

    A library built from other text is passed over. A damaged file or a folder that others can write is a LoadError.
    Compiler and tvm-ffi are part of the name of a cache entry; of libraries built ahead of time any is taken.
    """
    reasons = []
    for folder in places(manifest, environment):
        path, why = _find_in(folder, target)
        if path is not None:
            return path, ""
        reasons.append(why)
    try:
        path, why = _find_in(cache_entry(target, environment), target)
    except (NoHomeError, BuildError) as error:
        path, why = None, str(error)
    return (path, "") if path is not None else (None, "\n  ".join([*reasons, why]))


def _find_in(folder: Path, target: TargetRecord) -> tuple[Path | None, str]:
    try:
        try:
            return _look(folder, target)
        except DamagedError:  # or a build replaced the library after its record was read
            time.sleep(PUBLISHING)
            return _look(folder, target)
    except (FileNotFoundError, PermissionError) as error:
        return None, f"{folder}: {error.strerror}"


def _look(folder: Path, target: TargetRecord) -> tuple[Path | None, str]:
    path = folder / f"{target.library}.so"
    record = records.read(folder).get(target.library)
    if record is None or not path.is_file():
        return None, f"{folder}: not there"
    if record.closure != target.closure or record.flags != target.flags:
        return None, f"{folder}: built from other text than build.json records"
    verify(path, record.sha256)
    return path, ""


def trusted_owners() -> set[int]:
    """Users whose libraries are loaded: root, this one, and the owner of this package, whose code runs anyhow."""
    return {0, os.geteuid(), Path(__file__).stat().st_uid}


def verify(path: Path, digest: str) -> None:
    """Raise LoadError when `path` is not the file with this sha256, or when users who are not trusted could replace it.

    File and folder must belong to one of `trusted_owners` and be closed to everybody else. A group may write there: that
    is what umask 002 gives a user's own files, and the owner has chosen the group.
    """
    for place in (path.parent, path):
        found = place.stat()
        if found.st_uid not in trusted_owners():
            raise LoadError(
                f"{place} belongs to user {found.st_uid}, not to you, root or the owner of kernwright, so the library in "
                "it is not trusted; chown it, or copy it into a folder of your own"
            )
        if found.st_mode & stat.S_IWOTH:
            raise LoadError(f"{place} can be written by every user, so the library in it is not trusted; chmod o-w it")
    got = records.digest(path.read_bytes())
    if got != digest:
        raise DamagedError(
            f"{path} is damaged: {records.FILE} records sha256 {digest[:16]}…, the file has {got[:16]}…; "
            f"it was not loaded. Build it again with `kernwright build`, or delete {path.parent}"
        )

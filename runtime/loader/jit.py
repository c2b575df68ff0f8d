"""Builds a missing library into the user's cache, once, however many processes ask for it at the same time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from kernwright.runtime.build import BuildError, build
from kernwright.runtime.loader.errors import LoadError
from kernwright.runtime.loader.search import cache_entry, find
from kernwright.runtime.locking import locked, staging_folder
from kernwright.runtime.manifest import Manifest, TargetRecord
from kernwright.runtime.paths import WORK, NoHomeError
from kernwright.runtime.toolchain import ToolchainError, discover

VARIABLE = "KERNWRIGHT_JIT"


def allowed(environment: Mapping[str, str] | None = None) -> bool:
    """False when KERNWRIGHT_JIT=0 forbids to compile at run time. Raises LoadError for anything but 0 and 1."""
    text = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if text not in ("", "0", "1"):
        raise LoadError(f"{VARIABLE}={text!r}: expected 0 (never compile at run time) or 1 (the default)")
    return text != "0"


def build_into_cache(target: TargetRecord, manifest: Manifest, why: str) -> Path:
    """Path of the library in the user's cache, built now unless another process just did.

    The build runs in a private folder beside the entry, which is then renamed into place, so an entry is always whole
    and never changes. Raises LoadError when compiling is forbidden or fails; `why` says where it was looked for.
    """
    advice = f"`kernwright build --arch {target.architecture.name} {target.symbol}` builds it ahead of time"
    if not allowed():
        raise LoadError(f"no library {target.library} and {VARIABLE}=0; {advice}. Looked at:\n  {why}")
    try:
        return _build_into_cache(target, manifest)
    except (BuildError, ToolchainError, NoHomeError, OSError) as error:
        raise LoadError(f"no library {target.library}, and it cannot be built now: {error}\n{advice}") from error


def _build_into_cache(target: TargetRecord, manifest: Manifest) -> Path:
    toolchain = discover()
    entry = cache_entry(target, compiler=toolchain.version)
    entry.parent.mkdir(parents=True, exist_ok=True)
    with locked(entry.parent / f".{entry.name}.lock"):
        path, _ = find(target, manifest)
        if path is not None:
            return path
        with staging_folder(entry) as staging:
            build([target.symbol], [target.architecture.name], staging, manifest=manifest, toolchain=toolchain)
            shutil.rmtree(staging / WORK)
            staging.chmod(0o755)
            shutil.rmtree(entry, ignore_errors=True)
            staging.rename(entry)
    return entry / f"{target.library}.so"

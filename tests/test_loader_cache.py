"""The user's cache: where it is, what names an entry, and that libraries built ahead of time do without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.libraries import NAME, SYMBOL, place, programs

from kernwright.runtime import loader, manifest, paths
from kernwright.runtime.loader import LoadError, search
from kernwright.runtime.toolchain import ToolchainError
from kernwright.runtime.toolchain.pins import NVCC

__all__ = ["programs"]  # a fixture


def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no account."""

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(paths.pwd, "getpwuid", nobody)
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)


def test_libraries_built_ahead_of_time_need_no_home(
    programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_home(monkeypatch)
    uid = os.getuid()
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (9, 0), programs)
    assert f"no library {NAME}, and it cannot be built now: no cache folder: user {uid} has no account" in str(
        caught.value
    )
    monkeypatch.setenv("KERNWRIGHT_JIT", "0")
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (9, 0), programs)
    assert str(caught.value).splitlines()[-1] == (
        f"  no cache folder: user {uid} has no account, and neither XDG_CACHE_HOME nor HOME is an absolute path"
    )
    path = place(programs.root / "build" / "libraries", programs)
    assert loader.locate(SYMBOL, (9, 0), programs) == path


def test_the_cache_is_where_the_given_environment_says(programs: manifest.Manifest) -> None:
    target = programs.target(SYMBOL, "sm_90a")
    assert paths.user_cache({"HOME": "/h"}) == Path("/h/.cache/kernwright")
    assert paths.user_cache({"HOME": "/h", "XDG_CACHE_HOME": "/c"}) == Path("/c/kernwright")
    assert loader.cache_entry(target, {"HOME": "/h"}, "13.4.92").parent == Path("/h/.cache/kernwright/libraries") / NAME


def test_a_cache_that_may_not_be_read_is_passed_over(
    programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home directory of somebody else, as when HOME is left at root's in a container."""

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(search.records, "read", refuse)
    path, why = loader.find(programs.target(SYMBOL, "sm_90a"), programs)
    assert path is None and why.count(": Permission denied") == 3


def test_a_cache_entry_is_of_one_compiler_and_one_tvm_ffi(
    programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = programs.target(SYMBOL, "sm_90a")
    entries = {loader.cache_entry(target, compiler=compiler) for compiler in ("13.4.92", "13.5.37")}
    for version in ("0.2.0", "0.1.10", "0.1.9"):
        monkeypatch.setattr(search, "tvm_ffi_version", lambda version=version: version)
        entries.add(loader.cache_entry(target, compiler="13.4.92"))
    assert len(entries) == 3, "two compilers, two ABIs of tvm-ffi"

    def none(environment: object = None) -> None:
        raise ToolchainError("no CUDA compiler")

    monkeypatch.setattr(search, "discover", none)
    assert loader.cache_entry(target) == loader.cache_entry(target, compiler=NVCC), (
        "without a compiler: the pinned one's"
    )
    place(loader.cache_entry(target, compiler="13.5.37"), programs)
    assert loader.find(target, programs)[0] is None
    path = place(loader.cache_entry(target), programs)
    assert loader.find(target, programs) == (path, "")

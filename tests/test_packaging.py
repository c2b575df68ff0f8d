"""Wheel, sdist and sdist-to-wheel hold the whole product, and what they hold works from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kernwright.generator.errors import repository_root

ROOT = repository_root()
FOLDERS = ("generator", "runtime", "templates", "generated", "kernwright")
PARTS = (*FOLDERS, "build.json", "evidence.json", "README.md", "LICENSE", "pyproject.toml")


def copy_of_the_tree(folder: Path) -> Path:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(
                source, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "libraries")
            )
        else:
            shutil.copy(source, folder / part)
    return folder


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    merged = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=merged, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, tree: Path, out: Path) -> Path:
    out.mkdir()
    script = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    name = run(sys.executable, "-c", script, cwd=tree).splitlines()[-1]
    return out / name


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("packaging")
    tree = copy_of_the_tree(base / "tree" if (base / "tree").mkdir() is None else base)
    wheel = build("wheel", tree, base / "wheel")
    sdist = build("sdist", tree, base / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # the first releases of Python 3.11 have none
        archive.extractall(base / "unpacked")
    (inner,) = (base / "unpacked").iterdir()
    again = build("wheel", inner, base / "again")
    return {"wheel": wheel, "again": again}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith("kernwright/")}


def test_a_wheel_holds_every_file_of_the_tree(built):
    held = contents(built["wheel"])
    for part in ("generator", "runtime", "templates", "generated"):
        for path in (ROOT / part).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert held[f"kernwright/{path.relative_to(ROOT).as_posix()}"] == path.read_bytes()
    for name in ("build.json", "evidence.json", "py.typed", "cli.py", "__init__.py"):
        assert f"kernwright/{name}" in held


def test_a_wheel_made_from_the_sdist_is_the_same(built):
    assert contents(built["wheel"]) == contents(built["again"])


def test_the_wheel_works_from_an_empty_folder(built, tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(built["wheel"]) as archive:
        archive.extractall(site)
    environment = {"PYTHONPATH": str(site), "HOME": str(elsewhere)}
    where = run(sys.executable, "-c", "import kernwright; print(kernwright.__file__)", cwd=elsewhere, **environment)
    assert where.startswith(str(site))
    assert "nothing to do" in run(
        sys.executable, "-m", "kernwright.generator.cli", "--check", cwd=elsewhere, **environment
    )
    assert "KW0404" in run(sys.executable, "-m", "kernwright.cli", "explain", "KW0404", cwd=elsewhere, **environment)


def test_rooms_cannot_be_imported_under_a_second_name():
    for room in ("generator", "runtime"):
        done = subprocess.run([sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True)
        assert f"import kernwright.{room}" in done.stderr


def test_importing_the_package_imports_nothing_heavy():
    script = (
        "import sys, kernwright, kernwright.cli, kernwright.runtime.manifest, kernwright.generator.pipeline\n"
        "print(sorted({'torch', 'tvm_ffi', 'sympy', 'numpy'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", script, cwd=ROOT).strip() == "[]"

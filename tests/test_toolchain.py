"""Finding and fetching the compiler: the order of the search, odd values, versions, and an installation without network."""

from __future__ import annotations

import importlib
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from kernwright.runtime import paths
from kernwright.runtime.toolchain import ToolchainError, command, discover, folder
from kernwright.runtime.toolchain.pins import HOME_IN_WHEELS, NVCC, REQUIREMENTS

DISCOVER = importlib.import_module("kernwright.runtime.toolchain.discover")
INSTALL = importlib.import_module("kernwright.runtime.toolchain.install")


def toolkit(home: Path, version: str = "13.4.92") -> Path:
    """A folder that looks like a CUDA toolkit: an nvcc that tells its version, and cuda.h."""
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "cuda.h").write_text("")
    release = ".".join(version.split(".")[:2])
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{version}'\n")
    nvcc.chmod(0o755)
    return home


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which nothing is found."""
    monkeypatch.setattr(DISCOVER, "SYSTEM", tmp_path / "no-system")
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "empty")}


def own_folder(tmp_path: Path, version: str = NVCC) -> Path:
    own = tmp_path / "cache" / "kernwright" / "toolchain" / "13.4.3"
    toolkit(own / HOME_IN_WHEELS, version)
    (own / "kernwright-pins.txt").write_text("\n".join(REQUIREMENTS) + "\n")
    return own


def test_pins_are_exact() -> None:
    assert [requirement.split("==")[0] for requirement in REQUIREMENTS] == [
        *("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl"),
        *("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm"),
    ]
    assert {requirement.split("==")[1] for requirement in REQUIREMENTS} == {"13.4.92", "13.3.4.3.1"}


def test_search_order(tmp_path: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place is taken when all before it are gone."""
    toolkit(tmp_path / "named", "13.5.37")
    toolkit(tmp_path / "home", "13.1.1")
    toolkit(tmp_path / "path", "13.2.1")
    toolkit(tmp_path / "on-path", "13.3.1")
    toolkit(tmp_path / "system", "12.8.93")
    own_folder(tmp_path)
    monkeypatch.setattr(DISCOVER, "SYSTEM", tmp_path / "system")
    values |= {
        "KERNWRIGHT_CUDA_HOME": str(tmp_path / "named"),
        "CUDA_HOME": str(tmp_path / "home"),
        "CUDA_PATH": str(tmp_path / "path"),
        "PATH": str(tmp_path / "on-path" / "bin"),
    }
    found = []
    for gone in ("KERNWRIGHT_CUDA_HOME", "own", "CUDA_HOME", "CUDA_PATH", "PATH", "system"):
        toolchain = discover(values)
        found.append((toolchain.found_by.removeprefix(str(tmp_path)), toolchain.version))
        if gone == "own":
            values["XDG_CACHE_HOME"] = str(tmp_path / "other")
        elif gone == "PATH":
            values["PATH"] = "/nowhere"
        elif gone != "system":
            del values[gone]
    assert found == [
        ("KERNWRIGHT_CUDA_HOME", "13.5.37"),
        ("the pinned compiler's folder", "13.4.92"),
        ("CUDA_HOME", "13.1.1"),
        ("CUDA_PATH", "13.2.1"),
        ("PATH", "13.3.1"),
        ("/system", "12.8.93"),
    ]


@pytest.mark.parametrize("suffix", ["", "/", "/bin", "/bin/", "/bin/nvcc", "/../kit"])
def test_what_a_variable_may_name(suffix: str, tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "kit")
    for quoted in (f"{home}{suffix}", f"  {home}{suffix} ", f'"{home}{suffix}"'):
        toolchain = discover(values | {"CUDA_HOME": quoted})
        assert (toolchain.home / "bin" / "nvcc").samefile(home / "bin" / "nvcc")
        assert (toolchain.release, toolchain.include.name) == ((13, 4), "include")


def test_the_folder_of_the_wheels_may_be_named(tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "wheels" / HOME_IN_WHEELS)
    assert discover(values | {"KERNWRIGHT_CUDA_HOME": str(tmp_path / "wheels")}).home == home


@pytest.mark.parametrize("variable", ["KERNWRIGHT_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"])
def test_a_variable_that_names_nothing_is_an_error(variable: str, tmp_path: Path, values: dict[str, str]) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ToolchainError) as caught:
        discover(values | {variable: str(missing)})
    assert str(caught.value) == f"{variable}='{missing}': looked for {missing}/bin/nvcc, which does not exist"
    with pytest.raises(ToolchainError) as caught:
        discover(values | {variable: "cuda"})
    assert str(caught.value) == f"{variable}='cuda' is not an absolute path; looked for <folder>/bin/nvcc"
    with pytest.raises(ToolchainError, match="no CUDA compiler: looked at KERNWRIGHT_CUDA_HOME, CUDA_HOME, CUDA_PATH"):
        discover(values | {variable: "  "})


def test_a_toolkit_without_headers_or_version(tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "kit")
    (home / "bin" / "nvcc").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(ToolchainError, match=r"nvcc \(found by CUDA_HOME\) tells no version: 'hello'"):
        discover(values | {"CUDA_HOME": str(home)})
    (home / "include" / "cuda.h").unlink()
    with pytest.raises(ToolchainError, match=r"kit \(found by CUDA_HOME\) has no include/cuda.h"):
        discover(values | {"CUDA_HOME": str(home)})


def test_headers_of_a_cross_toolkit(tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "kit")
    headers = home / "targets" / "x86_64-linux" / "include"
    headers.parent.mkdir(parents=True)
    (home / "include").rename(headers)
    assert discover(values | {"CUDA_HOME": str(home)}).include == headers


def test_a_wrapper_on_path_tells_its_toolkit(tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "kit")
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\necho '#$ TOP={home}'\n")
    wrapper.chmod(0o755)
    assert discover(values | {"PATH": str(wrapper.parent)}).home == home


def test_too_old_says_needed_found_and_where(tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "kit", "13.0.88")
    toolchain = discover(values | {"CUDA_HOME": str(home)})
    toolchain.require("sm_90a", (12, 0))
    toolchain.require("sm_103a", (13, 0))
    with pytest.raises(ToolchainError) as caught:
        toolchain.require("sm_107a", (13, 4))
    assert str(caught.value).startswith(
        f"sm_107a needs CUDA 13.4 or newer, found 13.0.88 at {home} (found by CUDA_HOME); `kernwright toolchain install`"
    )
    with pytest.raises(ToolchainError, match=r"kit \(found by CUDA_HOME\) has no bin/cuobjdump"):
        toolchain.tool("cuobjdump")


def test_where_the_own_folder_is(tmp_path: Path) -> None:
    assert folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/kernwright/toolchain/13.4.3")
    assert folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/kernwright/toolchain/13.4.3")
    assert folder({"KERNWRIGHT_TOOLCHAIN": f" {tmp_path} "}) == tmp_path
    with pytest.raises(ToolchainError, match="KERNWRIGHT_TOOLCHAIN='here' is not an absolute path"):
        folder({"KERNWRIGHT_TOOLCHAIN": "here"})


def test_without_a_home_the_other_places_are_searched(
    tmp_path: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(paths.pwd, "getpwuid", nobody)
    del values["XDG_CACHE_HOME"]
    with pytest.raises(ToolchainError, match=r"has no account, .*; set one of them, or KERNWRIGHT_TOOLCHAIN"):
        folder(values)
    with pytest.raises(
        ToolchainError, match=r"no CUDA compiler: looked at (?s:.*) into the folder that KERNWRIGHT_TOOL"
    ):
        discover(values)
    home = toolkit(tmp_path / "kit")
    assert discover(values | {"CUDA_HOME": str(home)}).home == home


def test_an_own_folder_that_may_not_be_read_is_none(
    tmp_path: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(target: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(target))

    monkeypatch.setattr(INSTALL, "_is_complete", refuse)
    home = toolkit(tmp_path / "kit")
    assert discover(values | {"CUDA_HOME": str(home)}).home == home


def test_a_named_folder_without_the_wheels_is_an_error(tmp_path: Path, values: dict[str, str]) -> None:
    home = toolkit(tmp_path / "home")
    with pytest.raises(ToolchainError) as caught:
        discover(values | {"KERNWRIGHT_TOOLCHAIN": str(tmp_path / "own"), "CUDA_HOME": str(home)})
    assert str(caught.value).startswith(
        f"KERNWRIGHT_TOOLCHAIN='{tmp_path / 'own'}' does not hold the pinned wheels of CUDA 13.4.3; `kernwright toolchain"
    )


def test_installing_is_atomic_and_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def fetch(staging: Path) -> None:
        calls.append(staging)
        assert not target.exists() or not (target / HOME_IN_WHEELS).exists()
        toolkit(staging / HOME_IN_WHEELS)

    monkeypatch.setattr(INSTALL, "_pip", fetch)
    target = tmp_path / "tools" / "13.4.3"
    (target.parent / ".13.4.3.staging-killed" / "nvidia").mkdir(parents=True)
    assert INSTALL.install(target) is True
    assert INSTALL.install(target) is False
    assert [staging.parent for staging in calls] == [target.parent]
    assert (target / "kernwright-pins.txt").read_text().split() == list(REQUIREMENTS)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert [p.name for p in target.parent.iterdir() if p.is_dir()] == ["13.4.3"]


@pytest.mark.parametrize("variable", ["PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET"])
def test_settings_of_pip_do_not_move_the_folder(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip itself runs, on a distribution of one file instead of the compiler."""
    wheel = tmp_path / "one-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("one.py", "")
        archive.writestr("one-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1.0\n")
        archive.writestr("one-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("one-1.0.dist-info/RECORD", "")
    monkeypatch.setattr(INSTALL, "REQUIREMENTS", (str(wheel),))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv(variable, "1" if variable == "PIP_USER" else str(tmp_path / "elsewhere"))
    (tmp_path / "staging").mkdir()
    INSTALL._pip(tmp_path / "staging")
    assert (tmp_path / "staging" / "one.py").is_file() and not (tmp_path / "elsewhere").exists()


def test_a_failed_installation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(arguments: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert "--no-deps" in arguments and arguments[-len(REQUIREMENTS) :] == list(REQUIREMENTS)
        return subprocess.CompletedProcess(arguments, 1, "", "ERROR: No matching distribution\n")

    monkeypatch.setattr(INSTALL.subprocess, "run", refuse)
    with pytest.raises(ToolchainError, match="pip could not fetch the compiler:\nERROR: No matching distribution"):
        INSTALL.install(tmp_path / "13.4.3")
    assert [path.name for path in tmp_path.iterdir()] == [".13.4.3.lock"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo").write_text("")
    with pytest.raises(ToolchainError, match="is not a folder of compiler wheels; it is left alone"):
        INSTALL.install(tmp_path)
    assert (tmp_path / "photo").exists()


def test_an_old_version_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_folder(tmp_path, "13.3.1")
    (own / "kernwright-pins.txt").write_text("nvidia-cuda-nvcc==13.3.1\n")
    monkeypatch.setattr(INSTALL, "_pip", lambda staging: toolkit(staging / HOME_IN_WHEELS))
    assert INSTALL.install(own) is True
    assert "13.4.92" in (own / HOME_IN_WHEELS / "bin" / "nvcc").read_text()


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    own = own_folder(tmp_path)
    monkeypatch.setenv("KERNWRIGHT_TOOLCHAIN", str(own))
    monkeypatch.delenv("KERNWRIGHT_CUDA_HOME", raising=False)
    assert command.main(["path"]) == 0
    assert capsys.readouterr().out == f"{own / HOME_IN_WHEELS}\n"
    assert command.main(["install"]) == 0
    assert capsys.readouterr().err == f"CUDA 13.4.3 is in {own}\n"
    monkeypatch.setenv("KERNWRIGHT_CUDA_HOME", "x")
    assert command.main(["path"]) == 2
    assert capsys.readouterr().err.startswith("error: KERNWRIGHT_CUDA_HOME='x' is not an absolute path")

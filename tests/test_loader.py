"""Finding, verifying and building libraries on demand; loading one through tvm-ffi on the fake driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.host import build_driver
from support.libraries import NAME, SYMBOL, empty_cache, place, programs
from support.sample_program import kernel_text, sample_program, write_package

from kernwright.runtime import loader, manifest
from kernwright.runtime.build import build
from kernwright.runtime.loader import LoadError, jit, search

HERE = Path(__file__).resolve().parent

__all__ = ["programs"]  # a fixture


def test_search_order(programs: manifest.Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KERNWRIGHT_LIBRARIES, the package's libraries, build/libraries, the cache: each is taken when all before are gone."""
    target = programs.target(SYMBOL, "sm_90a")
    folders = [
        *(tmp_path / "first", tmp_path / "second", programs.root / "libraries", programs.root / "build" / "libraries"),
        loader.cache_entry(target),
    ]
    for folder in folders:
        place(folder, programs, str(folder).encode())
    monkeypatch.setenv("KERNWRIGHT_LIBRARIES", f"{folders[0]}{os.pathsep} {folders[1]}{os.pathsep}")
    assert loader.places(programs) == folders[:-1]
    for folder in folders:
        assert loader.find(target, programs) == (folder / f"{NAME}.so", "")
        assert loader.locate(SYMBOL, (9, 0), programs) == folder / f"{NAME}.so"
        (folder / "libraries.json").unlink()
    path, why = loader.find(target, programs)
    assert path is None
    assert why.split("\n  ") == [f"{folder}: not there" for folder in folders]


@pytest.mark.parametrize("text", ["relative", "/nowhere/at/all"])
def test_a_variable_that_names_no_folder(
    text: str, programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNWRIGHT_LIBRARIES", text)
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (9, 0), programs)
    assert str(caught.value) == (
        f"KERNWRIGHT_LIBRARIES names {text!r}: expected an absolute path of a folder with libraries.json"
    )


def test_a_library_of_other_text_is_passed_over(programs: manifest.Manifest) -> None:
    target = programs.target(SYMBOL, "sm_90a")
    place(programs.root / "libraries", programs, closure="f" * 64)
    place(programs.root / "build" / "libraries", programs, flags=("-O1",))
    path, why = loader.find(target, programs)
    assert path is None
    assert why.count("built from other text than build.json records") == 2


def test_a_damaged_library_is_never_loaded(programs: manifest.Manifest) -> None:
    path = place(programs.root / "libraries", programs)
    path.write_bytes(b"librarz")
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (9, 0), programs)
    assert str(caught.value).startswith(f"{path} is damaged: libraries.json records sha256 ")
    assert "it was not loaded. Build it again with `kernwright build`" in str(caught.value)


def test_a_library_that_is_being_replaced_is_looked_at_again(
    programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a new library and its record a reader waits a moment and reads the record once more."""
    path = place(programs.root / "libraries", programs)
    old = (path.parent / "libraries.json").read_bytes()
    place(path.parent, programs, b"new library")
    new = (path.parent / "libraries.json").read_bytes()
    (path.parent / "libraries.json").write_bytes(old)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        (path.parent / "libraries.json").write_bytes(new)

    monkeypatch.setattr(search.time, "sleep", wait)
    assert loader.locate(SYMBOL, (9, 0), programs) == path
    assert len(waits) == 1


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_belongs_to_somebody_else_is_not_trusted(
    what: str, programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place(programs.root / "libraries", programs)
    place_of_it = path if what == "file" else path.parent
    real = Path.stat

    def stat(self: Path, **options: bool) -> os.stat_result:
        found = real(self, **options)
        return os.stat_result((*found[:4], 4242, *found[5:10])) if self == place_of_it else found

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (9, 0), programs)
    assert str(caught.value) == (
        f"{place_of_it} belongs to user 4242, not to you, root or the owner of kernwright, so the library in it is not "
        "trusted; chown it, or copy it into a folder of your own"
    )
    monkeypatch.setattr(search, "trusted_owners", lambda: {real(path).st_uid, 4242})
    assert loader.locate(SYMBOL, (9, 0), programs) == path


def test_owners_and_groups_that_are_trusted(programs: manifest.Manifest) -> None:
    """umask 002 gives a user's own files to the group; that alone refuses nothing."""
    assert search.trusted_owners() == {0, os.geteuid(), Path(search.__file__).stat().st_uid}
    path = place(programs.root / "libraries", programs)
    for place_of_it in (path.parent, path):
        place_of_it.chmod(place_of_it.stat().st_mode | 0o020)
    assert loader.locate(SYMBOL, (9, 0), programs) == path


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_everyone_can_write_is_not_trusted(what: str, programs: manifest.Manifest) -> None:
    path = place(programs.root / "libraries", programs)
    place_of_it = path if what == "file" else path.parent
    place_of_it.chmod(place_of_it.stat().st_mode | 0o002)
    with pytest.raises(
        LoadError, match=f"{place_of_it} can be written by every user, so the library in it is not trusted"
    ):
        loader.locate(SYMBOL, (9, 0), programs)


def test_an_unknown_capability_names_both_sides(programs: manifest.Manifest) -> None:
    assert search.architecture_of((10, 3), programs).name == "sm_103a"
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (8, 0), programs, "cuda:1")
    assert str(caught.value) == (
        "cuda:1 has compute capability 8.0; kernwright has programs for sm_90a (9.0), sm_103a (10.3)"
    )


def test_without_jit_the_error_says_what_is_missing_and_what_to_do(
    programs: manifest.Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNWRIGHT_JIT", "0")
    with pytest.raises(LoadError) as caught:
        loader.locate(SYMBOL, (9, 0), programs)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        f"no library {NAME} and KERNWRIGHT_JIT=0; `kernwright build --arch sm_90a {SYMBOL}` builds it ahead of time. Looked at:"
    )
    assert len(lines) == 4 and lines[1] == f"  {programs.root / 'libraries'}: not there"


def test_jit_variable() -> None:
    assert [jit.allowed({"KERNWRIGHT_JIT": text}) for text in ("", "1", " 0 ")] == [True, True, False]
    assert jit.allowed({}) is True
    with pytest.raises(LoadError, match=r"KERNWRIGHT_JIT='no': expected 0 \(never compile at run time\) or 1"):
        jit.allowed({"KERNWRIGHT_JIT": "no"})


@pytest.mark.nvcc
def test_a_missing_library_is_built_once_into_the_cache(programs: manifest.Manifest) -> None:
    """Eight at a time: one builds, all get the same file, and the entry holds the library and its record only."""
    entry = loader.cache_entry(programs.target(SYMBOL, "sm_90a"))
    (entry.parent / f".{entry.name}.staging-killed" / ".work").mkdir(parents=True)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: loader.locate(SYMBOL, (9, 0), programs), range(8)))
    assert found == {entry / f"{NAME}.so"}
    assert sorted(path.name for path in entry.iterdir()) == ["libraries.json", f"{NAME}.so"]
    assert [path.name for path in entry.parent.iterdir() if path.is_dir()] == [entry.name]
    written = entry.stat().st_mtime_ns
    assert loader.locate(SYMBOL, (9, 0), programs) == entry / f"{NAME}.so"
    assert entry.stat().st_mtime_ns == written


@pytest.mark.nvcc
def test_a_build_that_fails_says_why_and_leaves_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_cache(tmp_path, monkeypatch)
    text = kernel_text(sample_program()) + "oops\n"
    programs = manifest.load(write_package(tmp_path / "package", kernel={SYMBOL: text}))
    with pytest.raises(LoadError, match=rf"no library {NAME}, and it cannot be built now: (?s:.*)oops"):
        loader.locate(SYMBOL, (9, 0), programs)
    entry = loader.cache_entry(programs.target(SYMBOL, "sm_90a"))
    assert [path.name for path in entry.parent.iterdir()] == [f".{entry.name}.lock"]


PROGRAM = """
import ctypes, json, sys, time
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from support.host_worker import DLTensor, tensor
from support.host import matrix
import tvm_ffi
from kernwright.runtime.loader import open_library

class Managed(ctypes.Structure):
    _fields_ = (("dl", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))

keep = []
class Array:
    def __init__(self, shape, **changes):
        changes["data"] = 0x7F0000000000 + (len(keep) << 20)
        self.managed = Managed(tensor(matrix(shape, **changes), keep), None, None)
        keep.append(self)
    def __dlpack__(self, **options):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), b"dltensor", None)
    def __dlpack_device__(self):
        return (2, 0)

driver = ctypes.CDLL("libcuda.so.1")
driver.fake_record.restype = ctypes.c_char_p
library = open_library(Path(sys.argv[1]))
assert open_library(Path(sys.argv[1])) is library
x, z, y = (tvm_ffi.from_dlpack(Array([3, 5, 128])) for _ in range(3))
weight = tvm_ffi.from_dlpack(Array([128]))
library.prepare(0)
library.run(x, z, weight, y, 1e-6)
record = driver.fake_record().decode().splitlines()
errors = []
for args in ((x, z, weight, y), (x, z, weight, y, -1.0), (x, None, weight, y, 1e-6)):
    try:
        library.run(*args)
    except Exception as error:
        errors.append([type(error).__name__, str(error).splitlines()[0]])
start = time.perf_counter()
for _ in range(100):
    library.run(x, z, weight, y, 1e-6)
print(json.dumps([record[-1], errors, (time.perf_counter() - start) / 100 * 1e9]))
"""


@pytest.mark.nvcc
def test_a_built_library_runs_through_tvm_ffi(programs: manifest.Manifest, tmp_path: Path) -> None:
    """The oldest tvm-ffi that is allowed loads what we build; errors arrive as Python's own exceptions."""
    result = build(archs=["sm_90a"], manifest=programs)
    path = result.folder / f"{NAME}.so"
    driver = build_driver(tmp_path)
    environment = os.environ | {"LD_LIBRARY_PATH": str(driver.parent)}
    command = [sys.executable, "-c", PROGRAM, str(path), str(driver), str(HERE)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, answer.stderr
    launch, errors, _ = json.loads(answer.stdout)
    assert launch.startswith("cuLaunchKernelEx 0x3000 grid 2 1 1 block 128 1 1 shared 0 stream 0x0 in 0")
    assert errors == [
        ["TypeError", f"{SYMBOL}: expected 5 arguments (x, z, weight, y, eps), got 4"],
        ["ValueError", f"{SYMBOL}: argument eps: expected a finite number from 0 to 3.40282e+38, got -1"],
        ["TypeError", f"{SYMBOL}: argument z: expected a tensor, got None"],
    ]


@pytest.mark.nvcc
@pytest.mark.gpu
def test_a_library_runs_on_a_gpu(programs: manifest.Manifest) -> None:
    """On streams, in a graph, on a thread that never used CUDA: the sample kernel gives the reference's values."""
    import threading

    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from kernwright.runtime.ops.reference import rmsnorm_silu_gate_forward

    capability = torch.cuda.get_device_capability(0)
    library = loader.open_library(loader.locate(SYMBOL, capability, programs))
    torch.manual_seed(1)
    x, z = (torch.randn(3, 333, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.randn(128, device="cuda", dtype=torch.bfloat16)
    expected = rmsnorm_silu_gate_forward(x, z, weight, 1e-6).float()

    def right(y: torch.Tensor) -> bool:
        torch.cuda.synchronize()
        return bool(torch.allclose(y.float(), expected, rtol=2**-7, atol=1e-6))

    y = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):  # the very first launch: loading inside a capture must not break it
        library.run(x, z, weight, y, 1e-6)
    assert not y.any()
    graph.replay()
    assert right(y)

    y.zero_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        library.run(x, z, weight, y, 1e-6)
    assert right(y)

    y.zero_()
    thread = threading.Thread(target=library.run, args=(x, z, weight, y, 1e-6))
    thread.start()
    thread.join()
    assert right(y)
    with pytest.raises(ValueError, match="argument weight: expected a CUDA tensor, got one on cpu"):
        library.run(x, z, weight.cpu(), y, 1e-6)


@pytest.mark.nvcc
def test_a_library_moved_with_its_record_is_found(
    programs: manifest.Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `kernwright build --out` made may be copied anywhere, as a wheel would hold it."""
    result = build(archs=["sm_90a"], out=tmp_path / "out", manifest=programs)
    shutil.copytree(result.folder, tmp_path / "moved", ignore=shutil.ignore_patterns(".work"))
    monkeypatch.setenv("KERNWRIGHT_LIBRARIES", str(tmp_path / "moved"))
    monkeypatch.setenv("KERNWRIGHT_JIT", "0")
    assert loader.locate(SYMBOL, (9, 0), programs) == tmp_path / "moved" / f"{NAME}.so"

"""Building libraries: what comes out, that it is reproducible, and every reason for which a build fails."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
from pathlib import Path

import pytest
from support.sample_program import ARCHITECTURES, kernel_text, sample_program, write_package

from kernwright.generator.ir.types import f32
from kernwright.runtime import manifest
from kernwright.runtime.build import BuildError, LibrariesError, build, elf, ptxas, records, select
from kernwright.runtime.build.host import find_host
from kernwright.runtime.build.progress import Stderr
from kernwright.runtime.manifest import ManifestError
from kernwright.runtime.toolchain import Toolchain, ToolchainError, discover

SYMBOL = "rmsnorm_silu_gate_forward_w_bf16"
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    240 bytes stack frame, 232 bytes spill stores, 308 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 240 bytes cumulative stack size, 256 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


# ---- reading what the compiler says ----


def test_resources_of_every_kernel() -> None:
    assert ptxas.resources(LOG) == {
        "one": ptxas.Resources(32, 240, 232, 308, 256, 1),
        "two": ptxas.Resources(8, 0, 0, 0, 0, 0),
    }
    assert ptxas.complaints(LOG) == ["one spills: 232 bytes stored, 308 bytes loaded, with 32 registers a thread"]


@pytest.mark.parametrize(
    "line",
    [
        "ptxas warning : Value of threads per SM for entry k is out of range. .minnctapersm will be ignored",
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
        "non wgmma instructions defining accumulator registers in the function 'k'",
        'k.cu(1): warning #177-D: variable "unused" was declared but never referenced',
    ],
)
def test_remarks_that_fail_a_build(line: str) -> None:
    log = f'{line}\nRemark: The warnings can be suppressed with "-diag-suppress <warning-number>"\n'
    assert ptxas.complaints(log) == [line]


def test_elf_reader_refuses_what_is_no_elf_file() -> None:
    for data in (b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(100), bytes(200)):
        with pytest.raises(ValueError, match="not a 64-bit little-endian ELF file"):
            elf.sections(data)
    whole = Path("/bin/true").resolve().read_bytes()
    assert ".rodata" in elf.sections(whole)
    with pytest.raises(ValueError, match="cut off"):
        elf.sections(whole[: len(whole) // 2])


# ---- choosing ----


def test_select(tmp_path: Path) -> None:
    programs = manifest.load(
        write_package(tmp_path, [sample_program(), sample_program(weight=f32)], ("sm_90a", "sm_107a"))
    )
    other = SYMBOL.replace("bf16", "f32")
    names = [target.library for target in select(programs)]
    assert names == [f"{symbol}.{arch}" for symbol in (SYMBOL, other) for arch in ("sm_90a", "sm_107a")]
    assert [target.library for target in select(programs, archs=["sm_107a"])] == [
        f"{SYMBOL}.sm_107a",
        f"{other}.sm_107a",
    ]
    assert [target.library for target in select(programs, [other], ["sm_90a"])] == [f"{other}.sm_90a"]
    with pytest.raises(ManifestError, match="no program 'norm'"):
        select(programs, ["norm"])
    with pytest.raises(ManifestError, match="#/architectures: no 'sm_80'; known: sm_107a, sm_90a"):
        select(programs, archs=["sm_80"])


def test_host_compilers(tmp_path: Path) -> None:
    path = os.environ["PATH"]
    assert find_host({"PATH": path, "CC": "gcc -m64"}).cc[1:] == ("-m64",)
    assert find_host({"PATH": path}).ccbin is None
    assert find_host({"PATH": path, "CXX": "g++"}).ccbin is not None
    with pytest.raises(BuildError, match="CC='no-such-cc': looked for the program 'no-such-cc', which does not exist"):
        find_host({"PATH": path, "CC": "no-such-cc"})
    with pytest.raises(BuildError, match=r"CXX='g\+\+ -O2': nvcc takes one program"):
        find_host({"PATH": path, "CXX": "g++ -O2"})
    with pytest.raises(BuildError, match="no C compiler: set CC, or install one of gcc, cc, clang"):
        find_host({"PATH": str(tmp_path)})


def test_progress_is_a_line_a_library_or_one_line_on_a_terminal() -> None:
    plain, terminal = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for stream in (plain, terminal):
        progress = Stderr(stream)
        progress(1, 2, None)
        progress(2, 2, "a.sm_90a")
    assert plain.getvalue() == "built a.sm_90a\n"
    assert terminal.getvalue() == "\r\x1b[K[1/2] \r\x1b[K[2/2] a.sm_90a\n"


def test_nothing_is_built_from_an_edited_file(tmp_path: Path) -> None:
    programs = manifest.load(write_package(tmp_path))
    header = tmp_path / "generated/include/binding.h"
    header.write_text(header.read_text() + "\n")
    with pytest.raises(BuildError, match=rf"{SYMBOL}.sm_90a: {header} is edited, it is not what build.json records"):
        build(manifest=programs)


def test_a_compiler_that_is_too_old(tmp_path: Path) -> None:
    programs = manifest.load(write_package(tmp_path, architectures=("sm_90a", "sm_107a")))
    with pytest.raises(ToolchainError, match=r"sm_107a needs CUDA 13\.4 or newer, found 13\.0\.88"):
        build(manifest=programs, toolchain=Toolchain(tmp_path, "13.0.88", "CUDA_HOME"))


def test_libraries_json_is_validated(tmp_path: Path) -> None:
    assert records.read(tmp_path) == {}
    file = tmp_path / "libraries.json"
    file.write_text("{")
    with pytest.raises(LibrariesError, match=r"libraries.json: cannot be read: Expecting"):
        records.read(tmp_path)
    file.write_text('{"schema": 1, "libraries": {"a": {"sha256": "x"}}}')
    with pytest.raises(LibrariesError, match=r"libraries.json#/libraries/a/closure: is missing"):
        records.read(tmp_path)


# ---- with the compiler ----


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> manifest.Manifest:
    """The sample package, built for all architectures once."""
    root = tmp_path_factory.mktemp("package")
    programs = manifest.load(write_package(root, architectures=tuple(ARCHITECTURES)))
    build(manifest=programs)
    return programs


@pytest.mark.nvcc
def test_what_a_build_makes(package: manifest.Manifest) -> None:
    folder = package.root / "build" / "libraries"
    written = records.read(folder)
    assert sorted(written) == sorted(f"{SYMBOL}.{arch}" for arch in ARCHITECTURES)
    for name, record in written.items():
        data = (folder / f"{name}.so").read_bytes()
        assert hashlib.sha256(data).hexdigest() == record.sha256
        assert 15_000 < len(data) < 60_000
        assert record.closure == package.target(*name.split(".")).closure
        assert (record.toolchain, record.tvm_ffi) == (discover().version, "0.1.9")
        used = record.resources[SYMBOL]
        assert 16 <= used.registers <= 64
        assert (used.stack_bytes, used.spill_store_bytes, used.static_shared_bytes, used.barriers) == (0, 0, 0, 0)
    assert json.loads((folder / "libraries.json").read_text())["schema"] == 1


@pytest.mark.nvcc
def test_the_machine_code_digest_is_that_of_the_text_section(package: manifest.Manifest, tmp_path: Path) -> None:
    """Our ELF reader and cuobjdump agree about the kernel, its registers and its code."""
    folder = package.root / "build" / "libraries"
    cubin = folder / ".work" / f"{SYMBOL}.sm_90a.cubin"
    record = records.read(folder)[f"{SYMBOL}.sm_90a"]
    usage = subprocess.run(
        [discover().tool("cuobjdump"), "-res-usage", cubin], capture_output=True, text=True, check=True
    ).stdout
    assert f"Function {SYMBOL}:" in usage and f"REG:{record.resources[SYMBOL].registers} STACK:0" in usage
    code = tmp_path / "text"
    subprocess.run(["objcopy", "-O", "binary", f"--only-section=.text.{SYMBOL}", cubin, code], check=False)
    if code.is_file() and code.stat().st_size:
        assert hashlib.sha256(code.read_bytes()).hexdigest() == record.text_sha256[SYMBOL]
    assert cubin.read_bytes() in (folder / f"{SYMBOL}.sm_90a.so").read_bytes()


@pytest.mark.nvcc
def test_libraries_are_the_same_bytes_in_another_folder(package: manifest.Manifest, tmp_path: Path) -> None:
    root = tmp_path / "else where (é)"
    programs = manifest.load(write_package(root, architectures=tuple(ARCHITECTURES)))
    result = build(archs=["sm_90a"], out=root / "out:put", manifest=programs)
    first = records.read(package.root / "build" / "libraries")[f"{SYMBOL}.sm_90a"]
    assert result.libraries == {f"{SYMBOL}.sm_90a": first}
    library = (root / "out:put" / f"{SYMBOL}.sm_90a.so").read_bytes()
    assert str(root).encode() not in library


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "variable",
    [
        *("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LD_RUN_PATH"),
        *("COMPILER_PATH", "LIBRARY_PATH"),
    ],
)
def test_the_environment_adds_nothing_to_the_flags(
    variable: str, package: manifest.Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that compilers and linker read by themselves would change a library under an unchanged record."""
    trap = tmp_path / "trap"
    trap.mkdir()
    for name in ("stdio.h", "cuda.h", "dlfcn.h", "cuda_bf16.h", "cuda_runtime.h"):
        (trap / name).write_text("#error a header of the environment\n")
    for name in ("as", "ld", "cc1"):
        (trap / name).write_text("#!/bin/sh\nexit 1\n")
        (trap / name).chmod(0o755)
    (trap / "libtvm_ffi.so").write_text("no library")
    monkeypatch.setenv(variable, "--no-such-option" if variable.startswith("NVCC") else str(trap))
    result = build(archs=["sm_90a"], out=tmp_path / "out", manifest=package)
    first = records.read(package.root / "build" / "libraries")[f"{SYMBOL}.sm_90a"]
    assert result.libraries == {f"{SYMBOL}.sm_90a": first}


@pytest.mark.nvcc
def test_a_second_build_touches_nothing(package: manifest.Manifest) -> None:
    folder = package.root / "build" / "libraries"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}
    steps: list[str | None] = []
    build(manifest=package, progress=lambda done, total, library: steps.append(library))
    assert steps == []
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()} == before


SPILLS = """\
extern "C" __global__ void __launch_bounds__(1024, 2) SYMBOL(float* a) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = a[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) a[(63 - i) * 1024 + threadIdx.x] = v[i] * v[(i + 7) % 64];
}
"""
FAILING = {
    "spills": (
        SPILLS,
        rf"complains about .*\n  {SYMBOL} spills: \d+ bytes stored, \d+ bytes loaded, with 32 registers",
    ),
    "dropped bounds": (
        'extern "C" __global__ void __launch_bounds__(1024, 4) SYMBOL(float* a) { a[threadIdx.x] = 1.0f; }\n',
        rf"ptxas warning : Value of threads per SM for entry {SYMBOL} is out of range. .minnctapersm will be ignored",
    ),
    "warning": (
        'extern "C" __global__ void SYMBOL(float* a) { int unused = 3; a[0] = 1.0f; }\n',
        'warning #177-D: variable "unused" was declared but never referenced',
    ),
    "error": ('extern "C" __global__ void SYMBOL(float* a) { a[0] = b; }\n', 'identifier "b" is undefined'),
    "other name": (
        'extern "C" __global__ void k(float* a) { a[0] = 1.0f; }\n',
        rf"defines no kernel {SYMBOL}; it has \['k'\]",
    ),
}


@pytest.mark.nvcc
@pytest.mark.parametrize("reason", FAILING)
def test_a_failing_program_is_quoted_and_not_published(reason: str, tmp_path: Path) -> None:
    """A second program that is right is published all the same; the failing one leaves no file and no record."""
    text, message = FAILING[reason]
    pair = [sample_program(), sample_program(weight=f32)]
    programs = manifest.load(write_package(tmp_path, pair, kernel={SYMBOL: text.replace("SYMBOL", SYMBOL)}))
    with pytest.raises(BuildError, match=message):
        build(manifest=programs)
    folder = tmp_path / "build" / "libraries"
    good = SYMBOL.replace("bf16", "f32")
    assert sorted(records.read(folder)) == [f"{good}.sm_90a"]
    assert [path.name for path in folder.glob("*.so")] == [f"{good}.sm_90a.so"]


@pytest.mark.nvcc
def test_a_library_that_breaks_later_is_withdrawn(tmp_path: Path) -> None:
    """A build that fails after one that worked must not leave the old library under the new record."""
    programs = manifest.load(write_package(tmp_path))
    build(manifest=programs)
    folder = tmp_path / "build" / "libraries"
    assert (folder / f"{SYMBOL}.sm_90a.so").is_file()
    broken = manifest.load(write_package(tmp_path, kernel={SYMBOL: kernel_text(sample_program()) + "oops\n"}))
    with pytest.raises(BuildError, match=rf"{SYMBOL}.sm_90a: not built, from generated/"):
        build(manifest=broken)
    assert not (folder / f"{SYMBOL}.sm_90a.so").exists()
    assert records.read(folder) == {}


@pytest.mark.nvcc
def test_g02_machine_code_tells_a_change_of_names_from_a_change_of_arithmetic(tmp_path: Path) -> None:
    """Texts that differ in names and comments have one digest of machine code; one more multiplication has another."""
    program = sample_program()
    text = kernel_text(program)
    variants = {
        "as it is": text,
        "renamed": text.replace("row", "line_of_the_matrix") + "\n// a comment\n",
        "changed": text.replace("eps", "(eps * 3.0f)").replace("float (eps * 3.0f)", "float eps"),
    }
    digests = {}
    for name, variant in variants.items():
        programs = manifest.load(write_package(tmp_path / name.replace(" ", "_"), kernel={program.symbol: variant}))
        built = build(manifest=programs).libraries[f"{program.symbol}.sm_90a"]
        digests[name] = built.text_sha256[program.symbol]
    assert digests["as it is"] == digests["renamed"] != digests["changed"]

"""Builds libraries: checks the generated files, runs ninja, judges what ptxas said, publishes what passed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.runtime.build import elf, ptxas, records
from kernwright.runtime.build.errors import BuildError
from kernwright.runtime.build.host import Host, find_host
from kernwright.runtime.build.ninja_file import ninja_text
from kernwright.runtime.build.progress import Progress, silent
from kernwright.runtime.build.records import LibraryRecord
from kernwright.runtime.locking import locked, write_atomically
from kernwright.runtime.manifest import Manifest, ManifestError, TargetRecord, changed_files, known
from kernwright.runtime.manifest import load as load_manifest
from kernwright.runtime.paths import LIBRARIES, WORK
from kernwright.runtime.toolchain import Toolchain, discover

IGNORED = (
    *("NINJA_STATUS", "MAKEFLAGS"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("LD_RUN_PATH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CCC_OVERRIDE_OPTIONS"),
)
"""Variables that would add to the flags of the compilers or the linker without the record of a library telling so."""
STEP = re.compile(r"\[(\d+)/(\d+)\] (cubin|library) (\S+)\.(?:cubin|so)$")


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The folder of the libraries and the records of those that were asked for, by library name."""

    folder: Path
    libraries: dict[str, LibraryRecord]


def select(
    manifest: Manifest, programs: Sequence[str] | None = None, archs: Sequence[str] | None = None
) -> list[TargetRecord]:
    """Targets of `programs` for `archs` (None: all), in build.json's order. An unknown name is a ManifestError."""
    for arch in archs or ():
        if arch not in manifest.architectures:
            raise ManifestError(
                manifest.root / "build.json", "/architectures", f"no {arch!r}; {known(manifest.architectures)}"
            )
    if programs is None:
        everything = [target for program in manifest.programs.values() for target in program.targets.values()]
        return [target for target in everything if archs is None or target.architecture.name in archs]
    chosen = []
    for symbol in programs:
        manifest.program(symbol)
        chosen += [manifest.target(symbol, arch) for arch in archs or manifest.programs[symbol].targets]
    return chosen


def build(
    programs: Sequence[str] | None = None,
    archs: Sequence[str] | None = None,
    out: Path | None = None,
    jobs: int | None = None,
    progress: Progress = silent,
    manifest: Manifest | None = None,
    toolchain: Toolchain | None = None,
) -> BuildResult:
    """Build `<out>/<symbol>.<arch>.so` and `<out>/libraries.json`; unchanged libraries are not built again.

    `programs` and `archs` default to all of build.json, `out` to `build/libraries` beside it, `jobs` to the number
    of processors. One process builds in a folder at a time. Libraries that fail do not keep the others from being
    published; then BuildError quotes every failure. Raises ToolchainError when the compiler is missing or too old.
    """
    manifest = manifest or load_manifest()
    folder = (out or manifest.root / LIBRARIES).resolve()
    targets = select(manifest, programs, archs)
    _check_files(targets, manifest.root)
    toolchain = toolchain or discover()
    for architecture in {target.architecture.name: target.architecture for target in targets}.values():
        toolchain.require(architecture.name, architecture.minimum_cuda)
    host = find_host()
    work = folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    with locked(work / "lock"):
        write_atomically(work / "build.ninja", ninja_text(targets, manifest.root, toolchain, host).encode())
        failures, unfinished = _run_ninja(host.ninja, work, jobs, progress) if targets else ("", set())
        built: dict[str, LibraryRecord] = {}
        files: dict[str, bytes] = {}
        problems: list[str] = []
        for target in targets:
            try:
                if target.library in unfinished:
                    raise BuildError(f"{target.library}: not built, from {target.kernel} and {target.binding}")
                built[target.library], files[target.library] = _judge(target, work, toolchain, host)
            except BuildError as error:
                problems.append(str(error))
        kept = {} if not (folder / records.FILE).is_file() else records.read(folder)
        failed = {target.library for target in targets} - set(built)
        current = {t.library for program in manifest.programs.values() for t in program.targets.values()}
        for name in (set(kept) - current) | failed:
            kept.pop(name, None)
            (folder / f"{name}.so").unlink(missing_ok=True)
        # One after the other and then the record, so that a reader meets new files under old records for a moment only.
        for name, data in files.items():
            write_atomically(folder / f"{name}.so", data)
        records.write(folder, kept | built)
    if problems:
        raise BuildError("\n".join(([failures.strip()] if failures.strip() else []) + problems))
    return BuildResult(folder, built)


def _check_files(targets: Iterable[TargetRecord], root: Path) -> None:
    """Build only what build.json describes: a hand-edited file would make a library that no record knows."""
    for target in targets:
        for path, state in changed_files(target, root).items():
            raise BuildError(
                f"{target.library}: {root / path} is {state}, it is not what build.json records; run regenerate-kernels"
            )


def _run_ninja(ninja: Path, work: Path, jobs: int | None, progress: Progress) -> tuple[str, set[str]]:
    """Run ninja to the end, whatever fails; returns the output of failed commands and the libraries left unfinished."""
    command = [str(ninja), "-C", str(work), "-k", "0", *(["-j", str(jobs)] if jobs else [])]
    environment = {key: value for key, value in os.environ.items() if key not in IGNORED}
    environment |= {"LC_ALL": "C", "NINJA_STATUS": "[%f/%t] "}
    output = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if step := STEP.match(line.rstrip()):
                progress(int(step[1]), int(step[2]), step[4] if step[3] == "library" else None)
            elif not line.startswith("ninja: "):
                output.append(line)
    if process.returncode == 0:
        return "", set()
    rest = subprocess.run([*command, "-n"], capture_output=True, text=True, env=environment).stdout
    unfinished = {step[4] for line in rest.splitlines() if (step := STEP.match(line.rstrip()))}
    return "".join(output), unfinished


def _judge(target: TargetRecord, work: Path, toolchain: Toolchain, host: Host) -> tuple[LibraryRecord, bytes]:
    """Record and contents of one library that may be published; BuildError says what is wrong with it."""
    cubin, library = work / f"{target.library}.cubin", work / f"{target.library}.so"
    log = Path(f"{cubin}.log")
    text = log.read_text(encoding="utf-8", errors="replace")
    if quoted := ptxas.complaints(text):
        raise BuildError(f"{target.library}: the compiler complains about {target.kernel}:\n  " + "\n  ".join(quoted))
    digests = elf.text_digests(cubin.read_bytes())
    if target.symbol not in digests:
        raise BuildError(
            f"{target.library}: {target.kernel} defines no kernel {target.symbol}; it has {sorted(digests)}"
        )
    data = library.read_bytes()
    record = LibraryRecord(
        records.digest(data),
        target.closure,
        target.flags,
        toolchain.version,
        host.tvm_ffi_version,
        digests,
        dict(sorted(ptxas.resources(text).items())),
    )
    return record, data

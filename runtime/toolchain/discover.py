"""Finds a CUDA compiler and says which version it is.

Order: KERNWRIGHT_CUDA_HOME, the pinned compiler's own folder, CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda. A
variable that is set and unusable is an error, not a reason to look further: silently taking another compiler would
change machine code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernwright.runtime.toolchain.errors import ToolchainError
from kernwright.runtime.toolchain.install import VARIABLE as FOLDER_VARIABLE
from kernwright.runtime.toolchain.install import folder, is_complete
from kernwright.runtime.toolchain.pins import CUDA, HOME_IN_WHEELS

VARIABLES = ("KERNWRIGHT_CUDA_HOME", "CUDA_HOME", "CUDA_PATH")
SYSTEM = Path("/usr/local/cuda")
RELEASE = re.compile(r"release (\d+)\.(\d+), V(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler: its home (with `bin/nvcc` and `include/cuda.h`), its full version, and what led to it."""

    home: Path
    version: str
    found_by: str

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def include(self) -> Path:
        """The folder of cuda.h."""
        return include_folder(self.home) or self.home / "include"

    def tool(self, name: str) -> Path:
        """Path of `bin/<name>`. Raises ToolchainError when this compiler comes without it."""
        path = self.home / "bin" / name
        if not path.is_file():
            raise ToolchainError(f"{self.home} (found by {self.found_by}) has no bin/{name}")
        return path

    def require(self, architecture: str, minimum: tuple[int, int]) -> None:
        """Raise ToolchainError when this compiler is older than `architecture` needs."""
        if self.release < minimum:
            raise ToolchainError(
                f"{architecture} needs CUDA {minimum[0]}.{minimum[1]} or newer, found {self.version} at {self.home} "
                f"(found by {self.found_by}); `kernwright toolchain install` fetches CUDA {CUDA} into its own folder"
            )


def include_folder(home: Path) -> Path | None:
    """The folder under `home` that holds cuda.h, None when there is none."""
    candidates = [home / "include", *sorted(home.glob("targets/*/include"))]
    return next((folder for folder in candidates if (folder / "cuda.h").is_file()), None)


def discover(environment: Mapping[str, str] | None = None) -> Toolchain:
    """The first compiler in the search order. Raises ToolchainError when a variable is odd or nothing is found."""
    values = os.environ if environment is None else environment
    if (home := _from_variable("KERNWRIGHT_CUDA_HOME", values)) is not None:
        return _toolchain(home, "KERNWRIGHT_CUDA_HOME")
    own: Path | None = None
    try:
        own = folder(values)
    except ToolchainError:
        if values.get(FOLDER_VARIABLE, "").strip():
            raise  # else there is no home directory, and so no such folder
    if own is not None and is_complete(own):
        return _toolchain(own / HOME_IN_WHEELS, "the pinned compiler's folder")
    if values.get(FOLDER_VARIABLE, "").strip():
        raise ToolchainError(
            f"{FOLDER_VARIABLE}={values[FOLDER_VARIABLE]!r} does not hold the pinned wheels of CUDA {CUDA}; "
            "`kernwright toolchain install` completes it"
        )
    for variable in VARIABLES[1:]:
        if (home := _from_variable(variable, values)) is not None:
            return _toolchain(home, variable)
    if nvcc := shutil.which("nvcc", path=values.get("PATH", os.defpath)):
        return _toolchain(home_of(Path(nvcc)), "PATH")
    if (SYSTEM / "bin" / "nvcc").is_file():
        return _toolchain(SYSTEM, str(SYSTEM))
    looked = ", ".join([*VARIABLES, *([str(own)] if own else [])])
    where = own or f"the folder that {FOLDER_VARIABLE} names"
    raise ToolchainError(
        f"no CUDA compiler: looked at {looked}, PATH and {SYSTEM}; "
        f"`kernwright toolchain install` fetches CUDA {CUDA} into {where}"
    )


def _from_variable(variable: str, values: Mapping[str, str]) -> Path | None:
    """The home that a variable names, None when it is unset or blank; a path to bin or to nvcc itself is understood."""
    text = values.get(variable, "").strip().strip("\"'")
    if not text:
        return None
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ToolchainError(f"{variable}={values[variable]!r} is not an absolute path; looked for <folder>/bin/nvcc")
    if path.name == "nvcc" and path.is_file():
        path = path.parent
    if path.name == "bin" and (path / "nvcc").is_file():
        path = path.parent
    for home in (path, path / HOME_IN_WHEELS):
        if (home / "bin" / "nvcc").is_file():
            return home
    raise ToolchainError(f"{variable}={values[variable]!r}: looked for {path / 'bin' / 'nvcc'}, which does not exist")


def home_of(nvcc: Path) -> Path:
    """The toolkit's folder of an nvcc: its grandparent, or what nvcc itself says when it is a wrapper script."""
    resolved = nvcc.resolve()
    if include_folder(resolved.parent.parent) is not None:
        return resolved.parent.parent
    for line in _run(nvcc, "--dryrun", "-cubin", "-x", "cu", "/dev/null", "-o", "/dev/null").splitlines():
        name, _, value = line.removeprefix("#$ ").partition("=")
        if name == "TOP" and value.strip():
            return Path(value.strip()).resolve()
    return resolved.parent.parent


def _toolchain(home: Path, found_by: str) -> Toolchain:
    if include_folder(home) is None:
        raise ToolchainError(f"{home} (found by {found_by}) has no include/cuda.h")
    output = _run(home / "bin" / "nvcc", "--version")
    match = RELEASE.search(output)
    if match is None:
        raise ToolchainError(f"{home / 'bin' / 'nvcc'} (found by {found_by}) tells no version: {output.strip()!r}")
    return Toolchain(home, match[3], found_by)


def _run(program: Path, *arguments: str) -> str:
    """Standard output and error of a compiler call, together."""
    try:
        result = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{program} cannot be run: {error}") from error
    return result.stdout + result.stderr

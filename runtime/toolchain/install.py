"""Puts the pinned compiler into a folder of its own; never into the user's environment.

torch's CUDA builds pin other versions of the same wheels in the same site-packages folder, so a compiler there would
break either side. The folder is written beside its final place and renamed: a kill leaves nothing half done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kernwright.runtime.locking import locked, staging_folder
from kernwright.runtime.paths import NoHomeError, user_cache
from kernwright.runtime.toolchain.errors import ToolchainError
from kernwright.runtime.toolchain.pins import CUDA, HOME_IN_WHEELS, REQUIREMENTS

VARIABLE = "KERNWRIGHT_TOOLCHAIN"
RECEIPT = "kernwright-pins.txt"
ELSEWHERE = ("PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET")
"""Settings of pip that contradict a folder of its own."""


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the pinned compiler lives: KERNWRIGHT_TOOLCHAIN, or `~/.cache/kernwright/toolchain/13.4.3`.

    Raises ToolchainError when the variable holds a path that is not absolute, and when it is unset without a home.
    """
    values = os.environ if environment is None else environment
    text = values.get(VARIABLE, "").strip()
    if not text:
        try:
            return user_cache(values) / "toolchain" / CUDA
        except NoHomeError as error:
            raise ToolchainError(f"{error}; set one of them, or {VARIABLE}") from error
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise ToolchainError(f"{VARIABLE}={text!r} is not an absolute path; it names the folder of the pinned compiler")
    return path


def is_complete(target: Path) -> bool:
    """True when `target` holds exactly the pinned wheels: its receipt, or the wheels' own records, name them all.

    A folder that this user may not look into holds nothing for it.
    """
    try:
        return _is_complete(target)
    except PermissionError:
        return False


def _is_complete(target: Path) -> bool:
    if not (target / HOME_IN_WHEELS / "bin" / "nvcc").is_file():
        return False
    receipt = target / RECEIPT
    if receipt.is_file():
        return receipt.read_text(encoding="utf-8").split() == list(REQUIREMENTS)
    return all((target / f"{_record(requirement)}.dist-info").is_dir() for requirement in REQUIREMENTS)


def _record(requirement: str) -> str:
    name, version = requirement.split("==")
    return f"{name.replace('-', '_')}-{version}"


def install(target: Path | None = None) -> bool:
    """Install the pinned wheels into `target` (default: `folder()`); True when anything was done.

    A complete folder is left alone without any network access; a folder with other versions is replaced. Needs pip.
    """
    destination = target or folder()
    if is_complete(destination):
        return False
    if destination.exists() and not _is_ours(destination):
        raise ToolchainError(f"{destination} exists and is not a folder of compiler wheels; it is left alone")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with locked(destination.parent / f".{destination.name}.lock"):
        if is_complete(destination):
            return False
        with staging_folder(destination) as staging:
            _pip(staging)
            (staging / RECEIPT).write_text("\n".join(REQUIREMENTS) + "\n", encoding="utf-8")
            if not is_complete(staging):
                raise ToolchainError(f"pip left no {HOME_IN_WHEELS}/bin/nvcc in {staging}: is this platform supported?")
            staging.chmod(0o755)
            if destination.exists():
                shutil.rmtree(destination)
            staging.rename(destination)
    return True


def _is_ours(destination: Path) -> bool:
    return not any(destination.iterdir()) or (destination / "nvidia").is_dir()


def _pip(staging: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-user", "--target", str(staging), *REQUIREMENTS]
    environment = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode != 0:
        raise ToolchainError(f"pip could not fetch the compiler:\n{(result.stderr or result.stdout).strip()}")

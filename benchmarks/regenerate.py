"""How long `regenerate-kernels` takes in fresh interpreters: a check of a clean tree, and writing everything.

Works on a copy of the repository in a temporary folder. Prints the median of the rounds next to its limit, and ends
with exit code 1 when one is over it. The limits are for two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = ("generator", "runtime", "templates", "generated", "build.json", "evidence.json")
CHECK_LIMIT_SECONDS = 1.0
WRITE_LIMIT_SECONDS = 2.0


def copy_repository(root: Path) -> None:
    """Copies what the command reads or writes to `root`, with the import name laid out as in the repository."""
    (root / "kernwright").mkdir()
    shutil.copy(REPOSITORY / "kernwright" / "__init__.py", root / "kernwright")
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)
        (root / "kernwright" / name).symlink_to(Path("..") / name)


def seconds(root: Path, *arguments: str) -> float:
    """The wall time of one run in a fresh interpreter; RuntimeError when it does not end with 0."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "kernwright.generator.cli", *arguments]
    start = time.perf_counter()
    result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    if result.returncode:
        raise RuntimeError(f"{' '.join(arguments) or 'writing'} ended with {result.returncode}\n{result.stderr}")
    return taken


def write_everything(root: Path) -> float:
    """The wall time of a run into an empty `generated/`."""
    shutil.rmtree(root / "generated", ignore_errors=True)
    (root / "build.json").unlink(missing_ok=True)
    return seconds(root)


def main() -> int:
    """Prints the table; 1 when a median is over its limit."""
    parser = argparse.ArgumentParser(description="Time regenerate-kernels in fresh interpreters.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each kind (default 5)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_repository(root)
        write_everything(root)  # also fills the caches of compiled modules
        written = statistics.median(write_everything(root) for _ in range(rounds))
        checked = statistics.median(seconds(root, "--check") for _ in range(rounds))
        record = json.loads((root / "build.json").read_text(encoding="utf-8"))
    programs = len(record["programs"])
    units = sum(len(program["architectures"]) for program in record["programs"].values())
    print(f"{programs} programs, {units} programs times architectures, median of {rounds}, {os.cpu_count()} cores")
    print(f"{'run':<14} {'seconds':>8} {'limit':>6}")
    rows = (("--check", checked, CHECK_LIMIT_SECONDS), ("write all", written, WRITE_LIMIT_SECONDS))
    for name, taken, limit in rows:
        print(f"{name:<14} {taken:>8.2f} {limit:>6.1f}{'  over' if taken > limit else ''}")
    return int(any(taken > limit for _, taken, limit in rows))


if __name__ == "__main__":
    sys.exit(main())

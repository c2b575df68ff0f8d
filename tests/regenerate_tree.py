"""Trees in a temporary folder on which tests run `regenerate-kernels` in fresh interpreters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regenerate_standin import Description

REPOSITORY = Path(__file__).resolve().parent.parent
STANDIN = Path(__file__).resolve().parent / "regenerate_standin.py"
LINKED = ("generator", "runtime", "templates", "generated", "build.json", "evidence.json")

ADD = Description("add", doc="c = a + b")
COPY = Description("copy", doc="y = x")
SCALE = Description("scale", doc="y = 2 x", helpers=("load", "store"), split=False)


@dataclass
class Tree:
    """A tree and the command in it."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self, *arguments: str, python: str = sys.executable, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs `regenerate-kernels` with `arguments` in a fresh interpreter."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        variables = {**kept, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [python, "-m", "kernwright.generator.cli", *arguments],
            cwd=cwd or self.root,
            env={**variables, **self.environment, **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    def describe(self, description: Description) -> None:
        """Writes the description of a program."""
        each = description
        path = self.root / "generator" / "kernels" / each.family / f"{each.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        names = ("family", "name", "doc", "archs", "helpers", "split")
        path.write_text("".join(f"{name.upper()} = {getattr(each, name)!r}\n" for name in names), encoding="utf-8")

    def forget(self, description: Description) -> None:
        """Deletes the description of a program."""
        (self.root / "generator" / "kernels" / description.family / f"{description.name}.py").unlink()

    def edit(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Changes the bytes of a file."""
        (self.root / path).write_bytes(change((self.root / path).read_bytes()))

    def snapshot(self) -> dict[str, tuple[bytes, int]]:
        """Bytes and time of change of each file that a run could touch."""
        return snapshot(self.root)

    def texts(self) -> dict[str, bytes]:
        """The bytes of each file that a run could touch."""
        return {path: content for path, (content, _) in self.snapshot().items()}


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of change of the files at `root` and below `generated/`, hidden ones too."""
    files = [path for path in root.iterdir() if path.is_file()] + [
        p for p in (root / "generated").rglob("*") if p.is_file()
    ]
    return {path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(files)}


def to_crlf(content: bytes) -> bytes:
    """What a checkout with CRLF makes of a text."""
    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def small_tree(root: Path, descriptions: Sequence[Description] = (ADD, COPY, SCALE)) -> Tree:
    """A tree with the real command, the stand-in pipeline and these descriptions; nothing is generated yet."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("generator/ir", "generator/workflow"):
        shutil.copytree(REPOSITORY / package, root / package, ignore=ignore)
    for path in ("generator/__init__.py", "generator/errors.py", "generator/cli.py"):
        shutil.copy(REPOSITORY / path, root / path)
    (root / "runtime").mkdir()
    for path in ("runtime/__init__.py", "runtime/manifest.py", "runtime/fields.py", "runtime/paths.py"):
        shutil.copy(REPOSITORY / path, root / path)
    shutil.copy(STANDIN, root / "generator" / "pipeline.py")
    (root / "templates").mkdir()
    (root / "templates" / "kernel.cu.j2").write_text("{{ body }}\n", encoding="utf-8")
    link_package(root)
    tree = Tree(root)
    for description in descriptions:
        tree.describe(description)
    return tree


def shipped_tree(root: Path, original: Path = REPOSITORY) -> Tree:
    """A copy of this repository, or of such a copy, as far as the command reads or writes it."""
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for name in LINKED:
        source = original / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=ignore)
        else:
            shutil.copy(source, root / name)
    link_package(root)
    return Tree(root)


def link_package(root: Path) -> None:
    """Lays the import name `kernwright` as the repository has it: an `__init__` and links."""
    (root / "kernwright").mkdir()
    shutil.copy(REPOSITORY / "kernwright" / "__init__.py", root / "kernwright" / "__init__.py")
    for name in LINKED:
        (root / "kernwright" / name).symlink_to(Path("..") / name)


def lines(output: str) -> list[tuple[str, str]]:
    """Class and path of each line of a report but the summary."""
    return [tuple(line.split(maxsplit=1)) for line in output.splitlines()[:-1]]


def check(tree: Tree) -> list[tuple[str, str]]:
    """What `--check` reports; holds its exit code against that, and that it changes no byte and no time."""
    before = snapshot(tree.root)
    result = tree.run("--check")
    assert snapshot(tree.root) == before
    found = lines(result.stdout)
    assert result.returncode == (1 if found else 0), result.stderr
    return found


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """An edit that must find what it replaces."""

    def edit(content: bytes) -> bytes:
        assert old in content
        return content.replace(old, new)

    return edit

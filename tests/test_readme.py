"""The README shows real things: its excerpts stand in the files that it names, its commands exist."""

from __future__ import annotations

import re

import pytest

from kernwright.generator.errors import repository_root

ROOT = repository_root()
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def named_file(pattern: str) -> str:
    (path,) = set(re.findall(pattern, README))
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_description_is_the_real_one():
    file = named_file(r"`(generator/kernels/[\w/]+\.py)`")
    block = next(text for kind, text in BLOCKS if kind == "python" and "@program" in text)
    for part in block.split("    ...\n"):
        assert part in file


def test_the_cuda_is_the_real_one():
    file = named_file(r"`(generated/[\w/]+\.cu)`")
    (block,) = (text for kind, text in BLOCKS if kind == "cuda")
    assert block in file


def test_the_call_runs_on_a_cpu():
    pytest.importorskip("torch")
    block = next(text for kind, text in BLOCKS if kind == "python" and "import torch" in text)
    scope: dict[str, object] = {}
    exec(block.replace('"cuda"', '"cpu"'), scope)
    assert list(scope["y"].shape) == [1024, 48, 128]


def test_make_targets_and_files_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^make ([\w-]+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in set(re.findall(r"`(docs/[\w./-]+)`", README)):
        assert (ROOT / path).exists(), path


def test_commands_exist():
    for command in set(re.findall(r"`kernwright (\w+)", README)):
        assert f'"{command}"' in (ROOT / "kernwright" / "cli.py").read_text(), command
    options = set(re.findall(r"regenerate-kernels (--[\w-]+)", README))
    assert all(option in (ROOT / "generator" / "cli.py").read_text() for option in options)

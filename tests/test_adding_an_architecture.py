"""Adding an architecture is a drill: take one away from a copy of the repository, generate, put it back, and compare every byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from regenerate_tree import REPOSITORY, Tree, check, shipped_tree

from kernwright.generator.arch import ARCHITECTURES

LAST = "sm_107a"
ONLY_THERE = "generator/kernels/tiles/mma_tile_deep.py"  # a program that exists for it alone
ROOMS = ("ir", "dsl", "passes", "emit")
MASK = re.compile(r"// The address field.*?(?=\n\n)", re.DOTALL)


def test_no_room_but_arch_knows_the_newest_architecture():
    """Nothing under ir/, dsl/, passes/, emit/ or templates/ changes for an architecture that is like the ones before it."""
    files = [path for room in ROOMS for path in (REPOSITORY / "generator" / room).rglob("*.py")]
    files += [path for path in (REPOSITORY / "templates").rglob("*") if path.is_file()]
    number, mask = LAST.removeprefix("sm_").removesuffix("a"), f"{ARCHITECTURES[LAST].descriptor_mask:#x}"
    named = re.compile(rf"sm_{number}|\b{number}0\b|{mask}\b", re.IGNORECASE)
    assert [str(path) for path in files if named.search(path.read_text(encoding="utf-8"))] == []


@pytest.fixture(scope="module")
def drilled(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Tree, dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """A tree after the drill, with its files before, without the architecture, and with it again."""
    tree = shipped_tree(tmp_path_factory.mktemp("drill"))
    before = tree.texts()
    arch, only = tree.root / "generator" / "arch", tree.root / ONLY_THERE
    kept = {path: path.read_bytes() for path in (arch / f"{LAST}.py", arch / "__init__.py", only)}
    name = LAST.upper()
    text = kept[arch / "__init__.py"].decode()
    text = re.sub(rf"from .* import {name}\n", "", text)
    text = re.sub(rf",? ?\"?{name}\"?", "", text)
    (arch / f"{LAST}.py").unlink(), only.unlink()
    (arch / "__init__.py").write_text(text)
    result = tree.run()
    assert result.returncode == 0, result.stdout + result.stderr
    without = tree.texts()
    for path, content in kept.items():
        path.write_bytes(content)
    result = tree.run()
    assert result.returncode == 0, result.stdout + result.stderr
    return tree, before, without, tree.texts()


def test_without_it_the_others_keep_their_text(drilled):
    """Only the mask of the shared header, which no longer has a choice to make, and what was for the architecture alone."""
    _, before, without, _ = drilled
    generated = {path for path in before if path.startswith("generated/")}
    gone = {path for path in generated if path not in without}
    assert gone == {path for path in generated if "mma_tile_deep" in path}
    changed = {path for path in generated - gone if before[path] != without[path]}
    assert changed == {"generated/include/sm_100a.cuh"}
    (header,) = changed
    assert MASK.sub("", before[header].decode()) == MASK.sub("", without[header].decode())
    assert "#if" not in without[header].decode() and LAST not in without[header].decode()
    assert LAST not in json.dumps(json.loads(without["build.json"]))


def test_put_back_every_byte_is_what_it_was(drilled):
    tree, before, _, again = drilled
    assert {path for path in before if before[path] != again.get(path)} == set()
    assert check(tree) == []


def test_the_page_names_what_the_second_commit_touches():
    page = (REPOSITORY / "docs" / "adding-an-architecture.md").read_text(encoding="utf-8")
    assert all(word in page for word in ("generator/arch/", "archs=", "build.json", "evidence.json", ONLY_THERE))
    assert Path(REPOSITORY / ONLY_THERE).is_file()

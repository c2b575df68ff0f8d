"""B01 to B08, the cases of the same numbers in the list of faults that users of such systems have met, on the command.

Each runs in fresh interpreters, on small trees or on a copy of this repository.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from regenerate_standin import Description
from regenerate_tree import ADD, COPY, REPOSITORY, Tree, check, lines, replaced, shipped_tree, small_tree, to_crlf

from kernwright.generator.ir.names import HEADER_MARK
from kernwright.generator.workflow.digest import bytes_sha256
from kernwright.generator.workflow.plan import carries_header
from kernwright.generator.workflow.select import render

KERNEL = "generated/toy/add.sm_90a.cu"
BOM = b"\xef\xbb\xbf"

# Interpreters of the other supported versions are looked for here; the second is for machines that keep them
# elsewhere.
INTERPRETERS = (Path.home() / ".pyenv" / "versions", Path(os.environ.get("KERNWRIGHT_TEST_PYTHONS", "/nonexistent")))

SHUFFLED = '''
"""Every directory listing of this interpreter comes in a random order."""
import os
import random

_listdir, _scandir = os.listdir, os.scandir


def listdir(*arguments):
    names = _listdir(*arguments)
    random.SystemRandom().shuffle(names)
    return names


class scandir:
    def __init__(self, *arguments):
        with _scandir(*arguments) as entries:
            self.entries = list(entries)
        random.SystemRandom().shuffle(self.entries)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.entries:
            raise StopIteration
        return self.entries.pop()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        pass


os.listdir, os.scandir = listdir, scandir
'''


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small tree that is clean."""
    tree = small_tree(tmp_path)
    assert tree.run().returncode == 0
    return tree


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A copy of this repository, regenerated; tests leave it as they find it."""
    tree = shipped_tree(tmp_path_factory.mktemp("shipped"))
    written = tree.run("--force")
    assert written.returncode == 0, written.stderr
    return tree


# ---- the repository itself


@pytest.fixture
def repository() -> Tree:
    if not (REPOSITORY / "build.json").stat().st_size:
        pytest.skip("nothing has been generated here yet")
    return Tree(REPOSITORY)


def test_the_committed_files_are_what_the_generator_writes(repository: Tree) -> None:
    result = repository.run("--check")
    assert (result.returncode, lines(result.stdout)) == (0, []), result.stdout + result.stderr


def test_every_generated_file_says_that_it_is_and_names_no_place_on_this_machine(shipped: Tree) -> None:
    texts = shipped.texts()
    texts.pop("evidence.json", None)
    assert len(texts) > 3
    for path, content in texts.items():
        assert carries_header(content) or path == "build.json", f"{path} lacks the line '{HEADER_MARK}'"
        assert str(shipped.root).encode() not in content, path


def test_the_merged_build_json_has_the_form_of_the_generated_one(shipped: Tree) -> None:
    text = (shipped.root / "build.json").read_text(encoding="utf-8")
    assert render(json.loads(text)) == text


def test_the_generator_imports_no_torch_and_the_command_no_generator_before_it_needs_it(shipped: Tree) -> None:
    program = (
        "import sys; from kernwright.generator.cli import main; "
        "assert not {'jinja2', 'sympy', 'kernwright.generator.pipeline'} & set(sys.modules), 'before'; "
        "code = main(['--check']); assert not {'torch', 'numpy'} & set(sys.modules), 'after'; sys.exit(code)"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(shipped.root)}
    result = subprocess.run([sys.executable, "-c", program], env=environment, cwd=shipped.root, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()


# ---- B01: line ends


@pytest.mark.parametrize(
    "converted",
    [("generated", "build.json"), ("generator/kernels",), ("generated", "build.json", "generator", "templates")],
    ids=["a-outputs", "b-descriptions", "c-everything"],
)
@pytest.mark.parametrize("kind", ["small", "shipped"])
def test_b01_a_crlf_checkout_is_clean_and_stays_as_it_is(tmp_path: Path, kind: str, converted: tuple[str, ...]) -> None:
    tree = small_tree(tmp_path) if kind == "small" else shipped_tree(tmp_path)
    assert tree.run("--force").returncode == 0
    for name in converted:
        path = tree.root / name
        for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
            file.write_bytes(to_crlf(file.read_bytes()))
    assert check(tree) == []
    before = tree.snapshot()
    assert tree.run().returncode == 0
    assert tree.snapshot() == before


def test_b01d_a_real_drift_in_a_crlf_tree_is_named(tree: Tree) -> None:
    for path in tree.texts():
        tree.edit(path, to_crlf)
    tree.edit(KERNEL, replaced(b"a + b", b"a - b"))
    assert check(tree) == [("hand-edited", KERNEL)]
    assert tree.run("--diff").stdout.count("\n-") == 1, "the diff shows the drift and not the line ends"


@pytest.mark.parametrize("kind", ["small", "shipped"])
def test_b01e_a_byte_order_mark_on_outputs_descriptions_and_templates_is_no_drift(tmp_path: Path, kind: str) -> None:
    tree = small_tree(tmp_path) if kind == "small" else shipped_tree(tmp_path)
    assert tree.run("--force").returncode == 0
    paths = [
        path for folder in ("generated", "templates", "generator/kernels") for path in (tmp_path / folder).rglob("*")
    ]
    for path in [*paths, tmp_path / "build.json"]:
        if path.is_file():
            path.write_bytes(BOM + path.read_bytes())
    assert check(tree) == []


def test_b01_git_attributes_pin_lf_for_what_is_generated() -> None:
    attributes = (REPOSITORY / ".gitattributes").read_text(encoding="utf-8")
    for pattern in ("generated/**", "build.json"):
        assert any(line.startswith(pattern) and "eol=lf" in line for line in attributes.splitlines()), pattern


# ---- B02: what --check must see


def test_b02a_a_new_program_whose_outputs_were_never_added(tree: Tree) -> None:
    tree.describe(Description("extra", archs=("sm_90a",)))
    assert check(tree) == [
        ("stale", "build.json"),
        ("missing", "generated/toy/extra.binding.c"),
        ("missing", "generated/toy/extra.sm_90a.cu"),
    ]


def test_b02b_a_deleted_program_whose_outputs_and_entry_remain(tree: Tree) -> None:
    tree.forget(COPY)
    assert check(tree) == [
        ("stale", "build.json"),
        ("orphan", "generated/toy/copy.binding.c"),
        ("orphan", "generated/toy/copy.sm_100a.cu"),
        ("orphan", "generated/toy/copy.sm_90a.cu"),
    ]


def test_b02c_a_deleted_output_of_a_present_program(tree: Tree) -> None:
    (tree.root / KERNEL).unlink()
    assert check(tree) == [("missing", KERNEL)]


def test_b02d_a_hand_edit_is_reported_refused_and_only_overwritten_by_force(tree: Tree) -> None:
    tree.edit(KERNEL, replaced(b"a + b", b"a - b"))
    tree.forget(COPY)
    assert ("hand-edited", KERNEL) in check(tree)
    before = tree.snapshot()
    refused = tree.run()
    assert refused.returncode == 1
    assert tree.snapshot() == before, "a refusal writes nothing at all"
    assert f"{KERNEL} was edited by hand" in refused.stderr
    assert "--force" in refused.stderr
    assert "refused, nothing was written" in refused.stdout
    forced = tree.run("--force")
    assert forced.returncode == 0
    assert ("hand-edited", KERNEL) in lines(forced.stdout)
    assert b"a + b" in (tree.root / KERNEL).read_bytes()
    assert check(tree) == []


def test_b02e_a_hand_edit_with_its_hash_fixed_by_hand_is_found(tree: Tree) -> None:
    before = bytes_sha256((tree.root / KERNEL).read_bytes()).encode()
    tree.edit(KERNEL, replaced(b"a + b", b"a - b"))
    tree.edit("build.json", replaced(before, bytes_sha256((tree.root / KERNEL).read_bytes()).encode()))
    assert check(tree) == [("stale", "build.json"), ("hand-edited", KERNEL)]


def test_b02_one_character_in_any_shipped_file_is_found(shipped: Tree) -> None:
    for path, content in shipped.texts().items():
        if path.startswith("generated/"):
            (shipped.root / path).write_bytes(content.replace(b";", b" ;", 1))
            try:
                assert check(shipped) == [("hand-edited", path)]
            finally:
                (shipped.root / path).write_bytes(content)


# ---- B04: a kill on the level of the command


def test_b04_the_command_repairs_what_a_killed_command_left(tree: Tree) -> None:
    killer = tree.root / "killer"
    killer.mkdir()
    (killer / "sitecustomize.py").write_text(
        "import os, signal\nreplace, calls = os.replace, []\n"
        "def dying(*paths):\n    calls.append(paths)\n    len(calls) == 2 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "    replace(*paths)\nos.replace = dying\n"
    )
    tree.describe(replace(ADD, doc="c = a - b"))
    killed = tree.run(PYTHONPATH=f"{killer}{os.pathsep}{tree.root}")
    assert killed.returncode == -signal.SIGKILL
    assert "temporary" in {kind for kind, _ in check(tree)}
    assert tree.run().returncode == 0
    assert check(tree) == []
    assert not [path for path in tree.texts() if "regenerate.tmp" in path]


# ---- B05: what is dropped


def test_b05_a_renamed_program_is_removed_listed_and_forgotten(tree: Tree) -> None:
    (tree.root / "generated/helper.cuh").write_text("inline int f();\n")
    (tree.root / "generated/toy/notes.txt").write_text("notes\n")
    tree.forget(ADD)
    tree.describe(replace(ADD, name="add2"))
    written = tree.run()
    assert written.returncode == 0
    assert {path for kind, path in lines(written.stdout) if kind == "orphan"} == {
        "generated/toy/add.binding.c",
        "generated/toy/add.sm_100a.cu",
        KERNEL,
    }
    assert set(json.loads((tree.root / "build.json").read_text())["programs"]) == {"toy_add2", "toy_copy", "toy_scale"}
    assert not list(tree.root.glob("generated/toy/add.*"))
    assert (tree.root / "generated/helper.cuh").read_text() == "inline int f();\n"
    assert (tree.root / "generated/toy/notes.txt").read_text() == "notes\n"
    assert check(tree) == []


def test_b05_evidence_that_still_names_a_dropped_architecture_is_reported_each_time(tree: Tree) -> None:
    records = {"toy_add": {arch: {"checks": []} for arch in ("sm_90a", "sm_100a")}}
    (tree.root / "evidence.json").write_text(json.dumps({"schema": 1, "records": records}))
    assert "evidence" not in tree.run("--check").stdout
    tree.describe(replace(ADD, archs=("sm_90a",)))
    line = "evidence     evidence.json names toy_add (sm_100a), which is not generated"
    for arguments in (("--check",), (), ("--check",)):
        assert line in tree.run(*arguments).stdout.splitlines(), arguments
    assert tree.run("--check").returncode == 0, "evidence is reported; regenerating cannot repair it"
    assert json.loads(tree.run("--check", "--format", "json").stdout)["evidence"] == [
        {"program": "toy_add", "arch": "sm_100a"}
    ]


# ---- B07 and B08: the same bytes everywhere


def regenerated(tree: Tree, *arguments: str, **options: object) -> dict[str, bytes]:
    """The texts that a run writes into an empty `generated/`."""
    shutil.rmtree(tree.root / "generated")
    (tree.root / "build.json").unlink()
    result = tree.run(*arguments, **options)
    assert result.returncode == 0, result.stderr
    return tree.texts()


@pytest.mark.parametrize("seed", ["0", "1", "2", "3", "4", "5", "random"])
def test_b07_the_bytes_do_not_depend_on_hash_seed_order_of_folders_jobs_place_time_or_user(
    shipped: Tree, tmp_path: Path, seed: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SHUFFLED)
    expected = shipped.texts()
    found = regenerated(
        shipped,
        *(("-j", "8") if seed in "024" else ("-j", "1")),
        cwd=Path("/") if seed in "135" else shipped.root,
        PYTHONHASHSEED=seed,
        PYTHONPATH=f"{tmp_path}{os.pathsep}{shipped.root}",
        TZ="Asia/Kathmandu" if seed in "024" else "UTC",
        LANG="tr_TR.ISO-8859-9" if seed in "135" else "C",
        LC_ALL="C" if seed in "024" else "de_DE.UTF-8",
        USER=f"user{seed}",
        HOME=str(tmp_path),
        COLUMNS="40",
    )
    assert found == expected


def test_b07_the_bytes_do_not_depend_on_the_path_of_the_tree(shipped: Tree, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another place, ünïcode"
    elsewhere.mkdir()
    assert regenerated(shipped_tree(elsewhere, shipped.root)) == shipped.texts()


def other_python(version: str) -> str:
    """An interpreter of `version` with the packages that the generator needs; skips when there is none."""
    names = [path for folder in INTERPRETERS for path in sorted(folder.glob(f"*{version}*/bin/python3"))]
    for python in names:
        probe = subprocess.run([python, "-c", "import jinja2, sympy"], capture_output=True, check=False)
        if probe.returncode == 0:
            return str(python)
    pytest.skip(f"no Python {version} with jinja2 and sympy (KERNWRIGHT_TEST_PYTHONS names a folder of environments)")


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_b08_the_bytes_do_not_depend_on_the_python_version(shipped: Tree, version: str) -> None:
    expected = shipped.texts()
    assert regenerated(shipped, python=other_python(version)) == expected


def test_b08_an_unsupported_python_is_refused_by_name(tree: Tree) -> None:
    (tree.root / "sitecustomize.py").write_text("import sys\nsys.version_info = (3, 10, 2, 'final', 0)\n")
    result = tree.run("--check")
    assert result.returncode == 2
    assert "Python 3.10 is not supported: the same text is promised for Python 3.11 to 3.13" in result.stderr


def test_b08_the_command_can_be_parsed_by_older_versions_that_it_refuses() -> None:
    for name in ("cli.py", "__init__.py"):
        ast.parse((REPOSITORY / "generator" / name).read_text(encoding="utf-8"), feature_version=(3, 9))


def test_check_is_fast_enough_to_run_at_every_commit(shipped: Tree) -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert shipped.run("--check").returncode == 0
        times.append(time.perf_counter() - start)
    assert min(times) < 2.0, "benchmarks/regenerate.py holds the median against 1 s; this only catches a lost import"


@pytest.mark.parametrize(
    ("text", "word", "line"),
    [
        ("x = (\n", "SyntaxError", 1),
        ("import nothing_of_this_name\n", "ModuleNotFoundError", 1),
        ("a = 1\nraise RuntimeError('broken')\n", "broken", 2),
        ("import sys\n\nsys.exit(0)\n", "SystemExit", 3),
        ("from kernwright.generator.dsl import program\n\n@program\ndef f(k):\n    pass\n", "TypeError", 3),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_line_and_nothing_is_written(
    shipped: Tree, text: str, word: str, line: int
) -> None:
    broken = shipped.root / "generator" / "kernels" / "broken.py"
    broken.write_text(text)
    try:
        result = shipped.run()
    finally:
        broken.unlink()
    assert result.returncode == 2
    assert "KW0608 broken.py cannot be imported" in result.stderr and word in result.stderr
    assert f"generator/kernels/broken.py:{line}" in result.stderr
    assert "Traceback" not in result.stderr

"""The command `regenerate-kernels` in fresh interpreters, on small trees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from regenerate_standin import Description
from regenerate_tree import ADD, COPY, REPOSITORY, Tree, check, lines, replaced, small_tree

from kernwright.generator.workflow.write import tree_lock

KERNEL = "generated/toy/add.sm_90a.cu"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small tree that is clean."""
    tree = small_tree(tmp_path)
    assert tree.run().returncode == 0
    return tree


# ---- writing and selecting


def test_a_run_writes_what_changed_and_a_second_run_touches_nothing(tree: Tree) -> None:
    before = tree.snapshot()
    assert tree.run().stdout == "10 unchanged, nothing to do\n"
    assert tree.snapshot() == before
    tree.describe(replace(ADD, doc="c = a - b"))
    written = tree.run()
    assert written.returncode == 0
    changed = {"build.json", KERNEL, "generated/toy/add.sm_100a.cu"}
    assert {path for path, state in tree.snapshot().items() if before[path] != state} == changed
    assert lines(written.stdout) == [("stale", path) for path in sorted(changed)]
    assert written.stdout.splitlines()[-1] == "wrote 3, removed 0 (3 stale), 7 unchanged"


def test_a_selection_leaves_the_others_and_the_merged_record_is_valid(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="new add"))
    tree.describe(replace(COPY, doc="new copy"))
    assert tree.run("toy_a*").returncode == 0
    assert b"new add" in (tree.root / KERNEL).read_bytes()
    assert tree.run("toy_add", "--check").returncode == 0
    assert tree.run("toy_copy", "--check").returncode == 1
    assert tree.run("--check").returncode == 1
    assert set(json.loads((tree.root / "build.json").read_text())["programs"]) == {"toy_add", "toy_copy", "toy_scale"}
    assert tree.run("toy_copy", "--arch", "sm_90a,sm_100a").returncode == 0
    assert check(tree) == []


def test_programs_that_share_a_changing_header_are_pulled_in_and_named(tree: Tree) -> None:
    tree.describe(replace(ADD, helpers=("load", "extra")))
    written = tree.run("toy_add", "--arch", "sm_90a")
    assert written.returncode == 0
    assert ("pulled", "toy_copy (sm_90a): it shares a file that changes") in lines(written.stdout)
    assert check(tree) == []


def test_an_unknown_program_is_an_error_that_names_close_ones(tree: Tree) -> None:
    result = tree.run("toy_ad")
    assert (result.returncode, result.stdout) == (2, "")
    assert "no program matches 'toy_ad'; did you mean toy_add" in result.stderr


def test_list_names_programs_architectures_and_kernels(tree: Tree) -> None:
    assert tree.run("--list", "toy_a*", "toy_s*", "--arch", "sm_90a").stdout == (
        f"toy_add\tsm_90a\t{KERNEL}\ntoy_scale\tsm_90a\tgenerated/toy/scale.cu\n"
    )
    assert json.loads(tree.run("--list", "toy_add", "--format", "json").stdout)[1] == {
        "program": "toy_add",
        "arch": "sm_90a",
        "kernel": KERNEL,
    }


# ---- reading


def test_check_diff_and_dry_run_write_nothing_and_differ_in_code_and_output(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="c = a - b"))
    before = tree.snapshot()
    checked, diffed, dry = tree.run("--check"), tree.run("--diff"), tree.run("--dry-run")
    assert tree.snapshot() == before
    assert [each.returncode for each in (checked, diffed, dry)] == [1, 1, 0]
    assert checked.stdout == dry.stdout
    assert "-// c = a + b\n+// c = a - b\n" in diffed.stdout
    assert "\033[" not in diffed.stdout
    assert diffed.stdout.startswith("--- a/build.json\n+++ b/build.json\n"), "standard output is a patch"
    assert checked.stdout.splitlines()[-1] in diffed.stderr


def test_standard_output_is_utf_8_in_every_locale(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="0 ≤ x"))
    assert "+// 0 ≤ x\n" in tree.run("--diff", PYTHONIOENCODING="latin-1").stdout


def test_the_diff_is_a_patch_that_makes_the_tree_clean(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="c = a - b"))
    tree.forget(COPY)
    tree.describe(Description("extra"))
    patch = tree.run("--diff").stdout
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=tree.root, input=patch, text=True, check=True)
    assert check(tree) == []


def test_json_is_one_object_with_class_reason_and_diff(tree: Tree) -> None:
    tree.edit(KERNEL, replaced(b"a + b", b"a - b"))
    data = json.loads(tree.run("--check", "--diff", "--format", "json").stdout)
    assert (data["schema"], data["exit"], data["written"]) == (1, 1, False)
    assert data["counts"] == {"unchanged": 9, "hand-edited": 1}
    (file,) = data["files"]
    assert (file["path"], file["class"], file["reason"]) == (KERNEL, "hand-edited", "not what build.json recorded")
    assert "-// c = a - b\n+// c = a + b\n" in file["diff"]


def test_github_gets_an_annotation_at_each_file(tree: Tree) -> None:
    (tree.root / KERNEL).unlink()
    output = tree.run("--check", "--format", "github").stdout
    assert f"::error file={KERNEL},line=1,title=missing::recorded in build.json and gone\n" in output


# ---- errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("--chekc",),
        ("--che",),
        ("--check", "--force"),
        ("--check", "--dry-run"),
        ("--list", "--check"),
        ("-j", "0"),
        ("--format", "xml"),
        ("--verify", "all"),
        ("--arch", "sm_80"),
    ],
)
def test_a_wrong_usage_is_2(tree: Tree, arguments: tuple[str, ...]) -> None:
    result = tree.run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr


def test_a_fault_of_a_description_is_2_and_its_whole_message_is_shown(tree: Tree) -> None:
    (tree.root / "generator/kernels/toy/bad.py").write_text("FAULT = 1\n")
    before = tree.snapshot()
    for arguments in ((), ("--check",), ("--dry-run",)):
        result = tree.run(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("KW0605 program stores nothing\n  generator/kernels/toy/bad.py:3\n")
    assert tree.snapshot() == before
    data = json.loads(tree.run("--check", "--format", "json").stdout)
    assert data["exit"] == 2
    assert data["error"].startswith("KW0605")
    annotation = tree.run("--check", "--format", "github").stdout
    assert annotation.startswith("::error file=generator/kernels/toy/bad.py,line=3,title=regenerate-kernels::KW0605")
    assert annotation.count("\n") == 1, "one annotation is one line"
    assert "%0A" in annotation


@pytest.mark.parametrize("statement", ["1 / 0", "raise SystemExit(0)", "raise MemoryError", "syntax error ("])
def test_any_exception_is_2_and_never_clean(tree: Tree, statement: str) -> None:
    (tree.root / "generator/kernels/toy/bad.py").write_text(f"{statement}\n")
    result = tree.run("--check")
    assert (result.returncode, result.stdout) == (2, "")
    assert "no verdict" in result.stderr


def test_a_file_that_cannot_be_read_is_2(tree: Tree) -> None:
    (tree.root / KERNEL).unlink()
    (tree.root / KERNEL).mkdir()
    result = tree.run("--check")
    assert result.returncode == 2
    assert KERNEL in result.stderr


def test_an_output_that_cannot_be_delivered_is_2(tree: Tree) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree.root)}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kernwright.generator.cli", "--check"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=tree.root, env=environment)
    assert result.returncode == 2
    assert b"cannot write to standard output: No space left on device" in result.stderr


def test_a_reader_that_goes_away_does_not_change_the_verdict(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="c = a - b"))
    reader, writer = os.pipe()
    os.close(reader)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree.root)}
    command = [sys.executable, "-m", "kernwright.generator.cli", "--diff"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tree.root, env=environment)
    os.close(writer)
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr
    assert b"BrokenPipe" not in result.stderr


def test_ctrl_c_is_130_and_changes_nothing(tree: Tree) -> None:
    (tree.root / "generator/kernels/toy/slow.py").write_text(
        "import sys, time\nprint('started', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    )
    before = tree.snapshot()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree.root)}
    command = [sys.executable, "-m", "kernwright.generator.cli"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tree.root, env=environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"started\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"interrupted\n"
    assert process.returncode == 130
    assert tree.snapshot() == before


def test_a_command_of_one_tree_is_refused_inside_another(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = small_tree(tmp_path_factory.mktemp("other"))
    (other.root / "build.json").write_text("{}")
    program = "import os, sys; from kernwright.generator.cli import main; os.chdir(sys.argv[1]); sys.exit(main([]))"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree.root)}
    command = [sys.executable, "-c", program, str(other.root / "generator" / "kernels")]
    result = subprocess.run(command, env=environment, cwd=tree.root, capture_output=True, text=True)
    assert result.returncode == 2
    assert f"this command works on {tree.root}, not on {other.root}" in result.stderr


# ---- several runs at once, and building


def test_a_second_writing_run_waits_and_then_gives_up_with_2_and_check_does_not_wait(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="c = a - b"))
    with tree_lock(tree.root):
        result = tree.run("--wait", "0.3")
        assert tree.run("--check").returncode == 1
    assert result.returncode == 2
    assert "another regenerate-kernels is writing here; waiting up to 0.3 s" in result.stderr
    assert "still writing here after 0.3 s" in result.stderr


def test_many_runs_at_once_leave_a_clean_tree(tree: Tree) -> None:
    tree.describe(replace(ADD, doc="c = a - b"))
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(tree.run().returncode)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 6
    assert check(tree) == []


def fake_build(tree: Tree, code: int) -> Path:
    """Puts a `kernwright.cli` into the tree that logs its arguments and ends with `code`."""
    log = tree.root / "build.log"
    (tree.root / "kernwright/cli.py").write_text(
        f"import sys\nprint('noise')\nopen({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\nsys.exit({code})\n"
    )
    return log


def test_verify_build_builds_the_selected_libraries_after_writing(tree: Tree) -> None:
    log = fake_build(tree, 0)
    tree.describe(replace(ADD, doc="c = a - b"))
    result = tree.run("toy_add", "toy_scale", "--arch", "sm_90a", "--verify", "build", "-j", "3")
    assert result.returncode == 0
    assert log.read_text() == (
        "build toy_add --arch sm_100a -j 3\n"  # its docstring, which build.json holds once, has changed
        "build toy_add toy_scale --arch sm_90a -j 3\n"
    )
    assert "noise" not in result.stdout, "what the build prints is no data of this command"


def test_verify_build_of_everything_goes_architecture_by_architecture(tree: Tree) -> None:
    log = fake_build(tree, 0)
    assert tree.run("--check", "--verify", "build").returncode == 0
    programs = "toy_add toy_copy toy_scale"
    assert log.read_text() == f"build {programs} --arch sm_100a\nbuild {programs} --arch sm_90a\n"


def test_a_failing_build_is_2_and_a_tree_that_is_off_is_not_built(tree: Tree) -> None:
    log = fake_build(tree, 1)
    assert tree.run("--verify", "build").returncode == 2
    log.unlink()
    tree.describe(replace(ADD, doc="c = a - b"))
    result = tree.run("--check", "--verify", "build")
    assert result.returncode == 1
    assert "nothing was built" in result.stderr
    assert not log.exists()


# ---- terminals and hooks


def test_progress_and_colour_are_for_terminals_only(tree: Tree) -> None:
    import pty

    tree.describe(replace(ADD, doc="c = a - b"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree.root), "TERM": "xterm"}
    seen = {}
    for name, more in (("plain", {}), ("no-color", {"NO_COLOR": "1"})):
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "kernwright.generator.cli", "--diff"]
        process = subprocess.Popen(command, stdout=slave, stderr=slave, cwd=tree.root, env={**environment, **more})
        os.close(slave)
        seen[name] = _read_all(master)
        assert process.wait() == 1
    assert b"generating" in seen["plain"]
    assert b"\033[31m-// c = a + b\033[0m" in seen["plain"]
    assert b"\033[31m" not in seen["no-color"]
    assert "generating" not in tree.run("--diff").stderr


def _read_all(descriptor: int) -> bytes:
    content = b""
    try:
        while piece := os.read(descriptor, 4096):
            content += piece
    except OSError:  # the other end of a pseudo-terminal is gone
        pass
    os.close(descriptor)
    return content


def test_g01_a_hook_for_pre_commit_runs_the_check_on_what_it_depends_on() -> None:
    import re

    text = (REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^[- ] (\w+): (.*)$", text, re.MULTILINE))
    assert fields["entry"] == "regenerate-kernels --check"
    assert fields["pass_filenames"] == "false"
    assert fields["language"] == "system", "a copy in an environment of its own would check itself"
    pattern = re.compile(fields["files"].strip("'"))
    for path in (
        "generator/kernels/a/b.py",
        "templates/kernel.cu.j2",
        "generated/a/b.cu",
        "build.json",
        "runtime/manifest.py",
    ):
        assert pattern.search(path), path
    for path in ("docs/index.md", "tests/test_a.py", "rebuild.json", "runtime/ops/a.py"):
        assert not pattern.search(path), path

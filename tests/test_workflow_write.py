"""B04: whatever happens while files are written, each is wholly old or wholly new, and the next run repairs the tree.

Faults are planted at each file operation in turn. `Faults` counts the operations that can leave something half done:
opening for writing, writing, syncing, renaming, removing, and making or removing folders.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from regenerate_standin import Description, generated_texts
from regenerate_tree import ADD, COPY, SCALE, snapshot

from kernwright.generator.workflow.plan import FileClass, find_temporaries, make_plan
from kernwright.generator.workflow.record import WorkflowError
from kernwright.generator.workflow.write import apply_plan

OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir")
OLD = (ADD, COPY, SCALE, Description("gone", family="gone"), Description("keep"))
NEW = (
    replace(ADD, doc="c = a - b"),
    COPY,
    replace(SCALE, helpers=("load", "store", "fence")),
    Description("fresh", family="fresh"),
    Description("keep"),
)
OLD_TEXTS, NEW_TEXTS = generated_texts(OLD), generated_texts(NEW)
NEWER_TEXTS = generated_texts((replace(NEW[0], doc="c = a / b"), *NEW[1:]), digest="2" * 64)


class Faults:
    """Calls `fault` before the k-th file operation (counted from 1) and counts them all."""

    def __init__(self, patch: pytest.MonkeyPatch, k: int, fault: Callable[[str], None]) -> None:
        self.count, self.names = 0, []
        for name in OPERATIONS:
            patch.setattr(os, name, self._watched(name, getattr(os, name), k, fault))

    def _watched(self, name: str, call: Callable[..., Any], k: int, fault: Callable[[str], None]) -> Callable[..., Any]:
        def watched(*arguments: Any, **keywords: Any) -> Any:
            if name != "open" or (len(arguments) > 1 and arguments[1] & os.O_WRONLY):
                self.count += 1
                self.names.append(name)
                if self.count == k:
                    fault(name)
            return call(*arguments, **keywords)

        return watched


def run(root: Path, files: dict[str, str]) -> None:
    """A writing run."""
    plan = make_plan(root, files)
    assert plan.hand_edited == ()
    apply_plan(root, plan)


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing takes no time here; that it is called is counted all the same."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree that is as OLD generates it, in a folder of its own."""
    (tmp_path / "tree").mkdir()
    run(tmp_path / "tree", OLD_TEXTS)
    return tmp_path / "tree"


def count_operations(tmp_path: Path) -> int:
    """How many file operations the run from OLD to NEW has."""
    tree = tmp_path / "counted"
    tree.mkdir()
    run(tree, OLD_TEXTS)
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, 0, lambda name: None)
        run(tree, NEW_TEXTS)
    assert {"open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir"} <= set(faults.names)
    return faults.count


def assert_old_or_new(root: Path) -> None:
    """Each file that is not a temporary is wholly old or wholly new, and none that both have is absent."""
    temporaries = set(find_temporaries(root))
    found = {path: content.decode() for path, (content, _) in snapshot(root).items() if path not in temporaries}
    for path, text in found.items():
        assert text in (OLD_TEXTS.get(path), NEW_TEXTS.get(path)), path
    assert set(found) >= set(OLD_TEXTS) & set(NEW_TEXTS)


def assert_is(root: Path, files: dict[str, str]) -> None:
    assert {path: content.decode() for path, (content, _) in snapshot(root).items()} == files


def die(root: Path, files: dict[str, str], k: int) -> bool:
    """Runs in a child process that kills itself before its k-th file operation; False when it ended before."""
    child = os.fork()
    if child == 0:
        Faults(pytest.MonkeyPatch(), k, lambda name: os.kill(os.getpid(), signal.SIGKILL))
        try:
            run(root, files)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_b04_a_run_killed_at_any_file_operation_leaves_whole_files_and_the_next_run_repairs(tmp_path: Path) -> None:
    operations = count_operations(tmp_path)
    mixtures = 0
    for k in range(1, operations + 1):
        root = tmp_path / f"killed{k}"
        root.mkdir()
        run(root, OLD_TEXTS)
        assert die(root, NEW_TEXTS, k), k
        assert_old_or_new(root)
        before = snapshot(root)
        done = {path: content.decode() for path, (content, _) in before.items()} == NEW_TEXTS
        assert bool(make_plan(root, NEW_TEXTS).changes) != done, "a check reports exactly what is left to do"
        assert snapshot(root) == before
        mixtures += (root / "build.json").read_text() == OLD_TEXTS["build.json"] and any(
            before.get(path, (b"",))[0].decode() == text != OLD_TEXTS.get(path) for path, text in NEW_TEXTS.items()
        )
        run(root, NEW_TEXTS)
        assert_is(root, NEW_TEXTS)
    assert mixtures > 5
    assert not die(root, OLD_TEXTS, 10 * operations)


def test_b04_after_a_kill_another_generation_takes_nothing_for_a_hand_edit(tmp_path: Path) -> None:
    for k in range(1, count_operations(tmp_path) + 1):
        root = tmp_path / f"killed{k}"
        root.mkdir()
        run(root, OLD_TEXTS)
        assert die(root, NEW_TEXTS, k)
        run(root, NEWER_TEXTS)
        assert_is(root, NEWER_TEXTS)


def test_b04_two_kills_in_a_row_are_repaired_too(tmp_path: Path) -> None:
    for k in range(3, count_operations(tmp_path) + 1, 4):
        root = tmp_path / f"killed{k}"
        root.mkdir()
        run(root, OLD_TEXTS)
        assert die(root, NEW_TEXTS, k)
        die(root, NEW_TEXTS, k)
        run(root, NEW_TEXTS)
        assert_is(root, NEW_TEXTS)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_b04_an_error_at_any_file_operation_is_reported_and_repaired(tmp_path: Path, code: int) -> None:
    for k in range(1, count_operations(tmp_path) + 1):
        root = tmp_path / f"failed{k}"
        root.mkdir()
        run(root, OLD_TEXTS)

        def fail(name: str) -> None:
            raise OSError(code, os.strerror(code))

        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, k, fail)
            try:
                run(root, NEW_TEXTS)
                message = ""
            except WorkflowError as error:
                message = str(error)
        assert_old_or_new(root)
        if "nothing was changed" in message:
            assert_is(root, OLD_TEXTS)
        elif message:
            assert "each file is wholly old or wholly new; run again" in message
            assert {Path(path).name.split(".")[1] for path in find_temporaries(root)} <= {"build"}, "the journal alone"
        next_texts = NEWER_TEXTS if k % 2 else NEW_TEXTS
        run(root, next_texts)
        assert_is(root, next_texts)


def test_b04_a_full_disk_on_the_third_write_changes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, writes, write = snapshot(root), [], os.write

    def full(descriptor: int, data: bytes) -> int:
        writes.append(descriptor)
        if len(writes) == 3:
            write(descriptor, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WorkflowError, match=r"No space left on device; nothing was changed"):
        run(root, NEW_TEXTS)
    assert snapshot(root) == before
    assert not (root / "generated" / "fresh").exists()


def test_b04_short_writes_are_completed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    run(root, NEW_TEXTS)
    assert_is(root, NEW_TEXTS)


def test_b04_build_json_is_replaced_last_and_all_texts_are_prepared_before_the_first_rename(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    for name in ("write", "replace", "unlink"):
        call = getattr(os, name)

        def watched(*arguments: Any, name: str = name, call: Callable[..., Any] = call, **keywords: Any) -> Any:
            events.append(f"{name} {Path(arguments[1]).name}" if name == "replace" else name)
            return call(*arguments, **keywords)

        monkeypatch.setattr(os, name, watched)
    run(root, NEW_TEXTS)
    renames = [event for event in events if event.startswith("replace")]
    assert renames[-1] == events[-1] == "replace build.json"
    assert "write" not in events[events.index(renames[0]) :]


def test_b04_an_unwritable_folder_fails_before_anything_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, opened = snapshot(root), os.open

    def closed(path: Any, flags: int, *rest: Any, **keywords: Any) -> int:
        if flags & os.O_WRONLY and Path(path).parent.name == "toy":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, flags, *rest, **keywords)

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(WorkflowError, match=r"cannot write generated/toy/.*: Permission denied; nothing was changed"):
        run(root, NEW_TEXTS)
    assert snapshot(root) == before


@pytest.mark.parametrize("path", ["generated/toy", "generated/toy/add.sm_90a.cu"])
def test_b04_read_only_folders_and_files_fail_before_anything_changes(path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        run(root, OLD_TEXTS)
        before = snapshot(root)
        message = run_without_privileges(root, path, NEW_TEXTS)
        assert path in message
        assert "nothing was changed" in message
        assert snapshot(root) == before


def run_without_privileges(root: Path, read_only: str, files: dict[str, str]) -> str:
    """Makes one path read-only, runs as a user whom that stops, and returns the message of the error."""
    nobody = 65534
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                for each in (root, *root.rglob("*")):
                    os.chown(each, nobody, nobody)
                os.setgid(nobody)
                os.setuid(nobody)
            (root / read_only).chmod(0o555)
            run(root, files)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        message = stream.read()
    os.waitpid(child, 0)
    (root / read_only).chmod(0o755)
    return message


def test_a_read_only_file_fails_before_anything_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, access = snapshot(root), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "add.sm_90a" not in str(path) and access(path, mode))
    with pytest.raises(WorkflowError, match=r"generated/toy/add\.sm_90a\.cu is read-only; nothing was changed"):
        run(root, NEW_TEXTS)
    assert snapshot(root) == before


def test_a_link_is_not_replaced_by_a_file(root: Path, tmp_path: Path) -> None:
    target = root / "generated/toy/add.sm_90a.cu"
    target.rename(tmp_path / "elsewhere.cu")
    target.symlink_to(tmp_path / "elsewhere.cu")
    with pytest.raises(WorkflowError, match=r"add\.sm_90a\.cu is not a plain file; nothing was changed"):
        run(root, NEW_TEXTS)
    assert target.is_symlink()


def test_a_file_that_is_saved_between_plan_and_writing_is_not_overwritten(root: Path) -> None:
    plan = make_plan(root, NEW_TEXTS)
    (root / "generated/toy/add.sm_90a.cu").write_text("saved by an editor\n")
    before = snapshot(root)
    with pytest.raises(
        WorkflowError, match=r"add\.sm_90a\.cu changed while this run was going on; nothing was changed"
    ):
        apply_plan(root, plan)
    assert snapshot(root) == before


def test_a_second_run_touches_nothing(root: Path) -> None:
    run(root, NEW_TEXTS)
    before = snapshot(root)
    folders = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_dir()}
    run(root, NEW_TEXTS)
    assert snapshot(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_dir()} == folders


def test_only_files_that_change_are_written(root: Path) -> None:
    before = snapshot(root)
    run(root, NEW_TEXTS)
    after = snapshot(root)
    for path in set(OLD_TEXTS) & set(NEW_TEXTS):
        assert (before[path] == after[path]) == (OLD_TEXTS[path] == NEW_TEXTS[path]), path


def test_texts_are_written_with_lf_whatever_they_replace(root: Path) -> None:
    path = root / "generated/toy/add.sm_90a.cu"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    run(root, NEW_TEXTS)
    assert path.read_bytes() == NEW_TEXTS["generated/toy/add.sm_90a.cu"].encode()


def test_permissions_of_a_file_outlive_its_replacement(root: Path) -> None:
    path = root / "generated/toy/add.sm_90a.cu"
    path.chmod(0o640)
    run(root, NEW_TEXTS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_temporaries_of_killed_runs_are_reported_and_removed(root: Path) -> None:
    for path in (".build.json.123.regenerate.tmp", "generated/toy/.add.cu.9.regenerate.tmp"):
        (root / path).write_text("half")
    (root / "generated/toy/.mine.tmp").write_text("")
    plan = make_plan(root, OLD_TEXTS)
    assert [(entry.path, entry.kind) for entry in plan.changes] == [
        (".build.json.123.regenerate.tmp", FileClass.TEMPORARY),
        ("generated/toy/.add.cu.9.regenerate.tmp", FileClass.TEMPORARY),
    ]
    apply_plan(root, plan)
    assert_is(root, {**OLD_TEXTS, "generated/toy/.mine.tmp": ""})


def test_an_interrupt_leaves_no_temporary(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(root, NEW_TEXTS)
    assert snapshot(root) == before

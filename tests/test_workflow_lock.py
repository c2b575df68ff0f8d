"""Runs that write exclude each other: the lock of the tree, its bounded wait, and what is said about it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from regenerate_tree import snapshot

from kernwright.generator.workflow.record import WorkflowError
from kernwright.generator.workflow.write import tree_lock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder to lock."""
    return tmp_path


def test_a_second_run_waits_for_the_first_and_says_so(root: Path) -> None:
    said: list[str] = []
    with tree_lock(root):
        other = threading.Thread(target=lambda: _lock_and_say(root, said))
        other.start()
        while not said:
            pass
        assert other.is_alive()
    other.join(10)
    assert said == ["another regenerate-kernels is writing here; waiting up to 10 s", "has it"]


def _lock_and_say(root: Path, said: list[str]) -> None:
    with tree_lock(root, 10, said.append):
        said.append("has it")


def test_a_second_run_gives_up_after_its_bounded_wait(root: Path) -> None:
    start = time.monotonic()
    with tree_lock(root), pytest.raises(WorkflowError, match=r"still writing here after 0\.2 s"), tree_lock(root, 0.2):
        pass
    assert 0.2 <= time.monotonic() - start < 3


def test_the_lock_ends_with_its_holder_and_leaves_no_file(root: Path) -> None:
    before = snapshot(root)
    child = os.fork()
    if child == 0:
        with tree_lock(root):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with tree_lock(root, 0):
        assert snapshot(root) == before


def test_a_file_system_without_locks_is_said_and_does_not_stop_the_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    said: list[str] = []
    with tree_lock(root, 1, said.append):
        assert said == ["this file system has no locks (No locks available); make sure that no other run writes here"]

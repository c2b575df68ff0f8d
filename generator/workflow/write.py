"""Carrying out a plan so that no file is ever half written, whatever happens to the process.

The order is: every new text goes into a temporary next to its target and is synced (nothing visible has changed yet,
and a full disk or an unwritable folder ends the run here); each temporary is renamed over its target; what is no
longer generated is removed; `build.json` is replaced last. A killed run leaves each file wholly old or wholly new,
the next one repairs the tree and removes the temporaries. The temporary of `build.json` doubles as the journal: as
long as it lies there, the texts that the killed run wrote are known to be its own and not someone's edits.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernwright.generator.workflow.plan import Entry, FileClass, Plan, is_journal, temporary_name
from kernwright.generator.workflow.record import BUILD_JSON, WorkflowError

LOCK_WAIT_SECONDS = 30.0


@contextmanager
def tree_lock(
    root: Path, wait: float = LOCK_WAIT_SECONDS, say: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Holds the tree for one writing run. It is a lock of the folder itself, so it leaves no file and ends with the
    process.

    Waits up to `wait` seconds while another run holds it, saying so once through `say`, then raises WorkflowError.
    Where the file system has no locks the run goes on without one, and says so.
    """
    import fcntl

    descriptor = os.open(root, os.O_RDONLY)
    try:
        deadline = time.monotonic() + wait
        said = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WorkflowError(f"another regenerate-kernels is still writing here after {wait:g} s") from None
                if not said:
                    say(f"another regenerate-kernels is writing here; waiting up to {wait:g} s")
                    said = True
                time.sleep(0.05)
            except OSError as error:
                say(f"this file system has no locks ({error.strerror}); make sure that no other run writes here")
                break
        yield
    finally:
        os.close(descriptor)


def apply_plan(root: Path, plan: Plan) -> None:
    """Writes and removes what `plan` says; unchanged files keep their bytes and times. Hold `tree_lock` around plan
    and call.

    Raises WorkflowError, with nothing changed, when a target cannot be written or has changed since the plan was
    made. An error after the first rename leaves complete files only, and the next run repairs the rest.
    """
    writes = [entry for entry in plan.changes if entry.content is not None]
    removals = [entry for entry in plan.changes if entry.content is None and entry.kind is not FileClass.TEMPORARY]
    leftovers = [entry for entry in plan.changes if entry.kind is FileClass.TEMPORARY]
    for entry in (*writes, *removals):
        _check_target(root, entry)
    for entry in leftovers:
        if not is_journal(entry.path):
            (root / entry.path).unlink(missing_ok=True)

    staged: dict[str, Path] = {}
    created: list[Path] = []
    replaced = False
    try:
        for entry in writes:
            staged[entry.path] = root / temporary_name(entry.path)
            _make_folders(staged[entry.path].parent, created)
            _stage(root / entry.path, staged[entry.path], entry.content or b"")
        for path in sorted(staged.keys() - {BUILD_JSON}):
            replaced = True
            os.replace(staged[path], root / path)
        for entry in removals:
            replaced = True
            (root / entry.path).unlink()
            _remove_empty_folders(root, (root / entry.path).parent)
        _sync_folders({(root / entry.path).parent for entry in (*writes, *removals)})
        if BUILD_JSON in staged:
            os.replace(staged[BUILD_JSON], root / BUILD_JSON)
            _sync_folders({root})
    except BaseException as error:
        _abandon(staged, created, keep_journal=replaced)
        if isinstance(error, OSError):
            state = "each file is wholly old or wholly new; run again" if replaced else "nothing was changed"
            raise WorkflowError(f"cannot write {_subject(root, error)}: {error.strerror}; {state}") from error
        raise
    for entry in leftovers:
        (root / entry.path).unlink(missing_ok=True)


def _check_target(root: Path, entry: Entry) -> None:
    target = root / entry.path
    try:
        status = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        current = None
    else:
        if not stat.S_ISREG(status.st_mode):
            raise WorkflowError(f"{entry.path} is not a plain file; nothing was changed")
        if not os.access(target, os.W_OK):
            raise WorkflowError(f"{entry.path} is read-only; nothing was changed")
        current = target.read_bytes()
    if current != entry.current:
        raise WorkflowError(f"{entry.path} changed while this run was going on; nothing was changed, run again")
    if entry.content is None and not os.access(target.parent, os.W_OK | os.X_OK):
        raise WorkflowError(f"{entry.path} cannot be removed: its folder is read-only; nothing was changed")


def _make_folders(folder: Path, created: list[Path]) -> None:
    """Creates `folder` and its missing parents, and appends those it created, outermost first."""
    if not folder.is_dir():
        _make_folders(folder.parent, created)
        folder.mkdir()
        created.append(folder)


def _stage(target: Path, temporary: Path, content: bytes) -> None:
    """Writes `content` to `temporary` with the permissions of `target`, and makes sure that it is on the disk."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty_folders(root: Path, folder: Path) -> None:
    """Removes `folder` and its parents below `generated/` as far as they are empty now."""
    with suppress(OSError):
        while folder != root / "generated":
            folder.rmdir()
            folder = folder.parent


def _sync_folders(folders: set[Path]) -> None:
    """Makes renames durable where the file system can; it is no error where it cannot."""
    for folder in sorted(folders):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _abandon(staged: dict[str, Path], created: list[Path], keep_journal: bool) -> None:
    """Removes what a failed run prepared; the journal stays when a file was replaced."""
    for path, temporary in staged.items():
        if not (keep_journal and path == BUILD_JSON):
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    for folder in reversed(created):
        with suppress(OSError):
            folder.rmdir()


def _subject(root: Path, error: OSError) -> str:
    """The path that an error is about, relative to the tree."""
    name = error.filename2 or error.filename
    if not isinstance(name, str):
        return "the generated files"
    return os.path.relpath(name, root)

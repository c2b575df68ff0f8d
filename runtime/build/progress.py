"""How a build tells what it does: one line that is overwritten on a terminal, else one line a library, on stderr."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO


class Progress(Protocol):
    """Called after every step with steps done, steps in all, and the library that is now finished, if one is."""

    def __call__(self, done: int, total: int, library: str | None) -> None: ...


def silent(done: int, total: int, library: str | None) -> None:
    """Tells nothing."""


class Stderr:
    """Progress on a stream, stderr by default."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()

    def __call__(self, done: int, total: int, library: str | None) -> None:
        """Show one step."""
        if self.terminal:
            end = "\n" if done == total else ""
            self.stream.write(f"\r\x1b[K[{done}/{total}] {library or ''}{end}")
            self.stream.flush()
        elif library is not None:
            self.stream.write(f"built {library}\n")

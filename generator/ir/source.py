"""Where a node comes from: the author's file and line, carried by every node and ignored by every comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A line of a description. `file` is relative to the repository (or to the package) and uses forward slashes."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


UNKNOWN = Source("<generated>", 0)

"""Unified diffs of a plan, as `git apply` reads them, with colour where a person looks."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import TextIO

from kernwright.generator.workflow.digest import lf_bytes
from kernwright.generator.workflow.plan import Entry

_RESET = "\033[0m"
_COLOURS = (("---", "\033[1m"), ("+++", "\033[1m"), ("@@", "\033[36m"), ("-", "\033[31m"), ("+", "\033[32m"))


def unified_diff(entry: Entry, colour: bool = False) -> str:
    """What would change in the file of `entry`, or nothing. Line ends and a byte order mark do not count."""
    old, new = _lines(entry.current), _lines(entry.content)
    before = "/dev/null" if entry.current is None else f"a/{entry.path}"
    after = "/dev/null" if entry.content is None else f"b/{entry.path}"
    lines = _marked(difflib.unified_diff(old, new, before, after))
    return "".join(_coloured(line) if colour else line for line in lines)


def wants_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Colour is for terminals, and not where NO_COLOR is set to anything but nothing."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _lines(content: bytes | None) -> list[str]:
    """The lines with their ends; only LF ends a line, as in `diff` and unlike `str.splitlines`."""
    text = lf_bytes(content or b"").decode(errors="replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [text.rpartition("\n")[2]] if text[-1:] not in ("", "\n") else []
    )


def _marked(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _coloured(line: str) -> str:
    for start, colour in _COLOURS:
        if line.startswith(start):
            return f"{colour}{line[:-1]}{_RESET}\n"
    return line

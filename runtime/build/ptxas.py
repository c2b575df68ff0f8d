"""What ptxas says about a compilation: resources of every kernel, and the remarks that must not pass.

A dropped launch bound, a serialised wgmma or a spill keeps the result right and makes it slow, so nobody would notice;
here each is an error that quotes the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REMARKS = re.compile(r"\bwarning\b|\(C7[0-9]{3}\)|Potential Performance Loss", re.IGNORECASE)
HARMLESS = re.compile(r"^Remark: The warnings can be suppressed")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel uses: registers a thread, bytes of stack and of spills a thread, static shared bytes a block."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    barriers: int

    def as_json(self) -> dict[str, int]:
        """The fields by name, as libraries.json and evidence.json hold them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def resources(log: str) -> dict[str, Resources]:
    """Resources of every kernel that a `-Xptxas -v` log reports, by symbol."""
    found: dict[str, Resources] = {}
    entry, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := ENTRY.search(line):
            entry, frame = match[1], (0, 0, 0)
        elif (match := FRAME.search(line)) and entry:
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif "Used " in line and " registers" in line and entry:
            used = (_number(line, r"Used (\d+) registers"), *frame, _number(line, r"(\d+) bytes smem"))
            found[entry] = Resources(*used, _number(line, r"used (\d+) barriers"))
            entry = ""
    return found


def _number(line: str, pattern: str) -> int:
    match = re.search(pattern, line)
    return int(match[1]) if match else 0


def complaints(log: str) -> list[str]:
    """What fails a build: every warning and every serialised wgmma of a compiler log, and spills with their kernel."""
    lines = [line.strip() for line in log.splitlines() if REMARKS.search(line) and not HARMLESS.search(line.strip())]
    for kernel, used in resources(log).items():
        if used.spill_store_bytes or used.spill_load_bytes:
            lines.append(
                f"{kernel} spills: {used.spill_store_bytes} bytes stored, {used.spill_load_bytes} bytes loaded, "
                f"with {used.registers} registers a thread"
            )
    return lines

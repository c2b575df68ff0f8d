"""Operand lists of inline assembly, which are too long to write out for every width."""

from __future__ import annotations


def listed(words: list[str], head: str, tail: str = "", each: int = 8) -> str:
    """Words with commas between them, `each` to a line; lines stand between `head` and `tail`: a string's ends, or a margin."""
    lines = [", ".join(words[i : i + each]) for i in range(0, len(words), each)]
    comma = ", " if tail else ","
    last = len(lines) - 1
    return "\n".join(f"{head}{line}{comma if i < last else ''}{tail}" for i, line in enumerate(lines))

"""The digest of a lowered program: its content without sources, so that moving a line of a description changes nothing."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from enum import Enum


def canonical(node: object) -> str:
    """A text that two nodes share exactly when they are equal: class names and field values, without `source`."""
    if is_dataclass(node) and not isinstance(node, type):
        inner = ",".join(f"{f.name}={canonical(getattr(node, f.name))}" for f in fields(node) if f.compare)
        return f"{type(node).__name__}({inner})"
    if isinstance(node, tuple | list):
        return "[" + ",".join(canonical(item) for item in node) + "]"
    if isinstance(node, Enum):
        return f"{type(node).__name__}.{node.name}"
    return repr(node)


def digest(node: object) -> str:
    """SHA-256, in hexadecimal, of the canonical text."""
    return hashlib.sha256(canonical(node).encode()).hexdigest()

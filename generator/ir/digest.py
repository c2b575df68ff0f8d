"""The digest of a lowered program: its content without sources, so that moving a line of a description changes nothing."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from enum import Enum

_COMPARED: dict[type, tuple[str, ...]] = {}


def _compared(kind: type) -> tuple[str, ...]:
    """The fields of a node class that take part in comparisons; empty for anything else. Remembered by class."""
    if kind not in _COMPARED:
        _COMPARED[kind] = tuple(f.name for f in fields(kind) if f.compare) if is_dataclass(kind) else ()
    return _COMPARED[kind]


def canonical(node: object) -> str:
    """A text that two nodes share exactly when they are equal: class names and field values, without `source`."""
    kind = type(node)
    if names := _compared(kind):
        inner = ",".join([f"{name}={canonical(getattr(node, name))}" for name in names])
        return f"{kind.__name__}({inner})"
    if isinstance(node, tuple | list):
        return "[" + ",".join([canonical(item) for item in node]) + "]"
    if isinstance(node, Enum):
        return f"{kind.__name__}.{node.name}"
    return repr(node)


def digest(node: object) -> str:
    """SHA-256, in hexadecimal, of the canonical text."""
    return hashlib.sha256(canonical(node).encode()).hexdigest()

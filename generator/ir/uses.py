"""Which values an operation of a description reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from kernwright.generator.ir.description import Consume, Operation
from kernwright.generator.ir.expr import Var


def names_read(operation: Operation) -> set[str]:
    """Names of the values and scalars in the operation itself, without the body of a block."""
    inner = [getattr(operation, f.name) for f in fields(operation) if f.compare and f.name != "body"]
    ordered = set(operation.after) if isinstance(operation, Consume) else set()
    return ordered | {name for part in inner for name in _variables(part)}


def _variables(node: object) -> Iterator[str]:
    if isinstance(node, Var):
        yield node.name
    elif isinstance(node, tuple):
        for item in node:
            yield from _variables(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for f in fields(node):
            if f.compare:
                yield from _variables(getattr(node, f.name))

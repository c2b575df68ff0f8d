"""Which values an operation of a description reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from kernwright.generator.ir.description import Consume, Operation
from kernwright.generator.ir.expr import Const, Var


def names_read(operation: Operation) -> set[str]:
    """Names of the values and scalars in the operation itself, without the body of a block."""
    inner = [getattr(operation, f.name) for f in fields(operation) if f.compare and f.name != "body"]
    ordered = set(operation.after) if isinstance(operation, Consume) else set()
    return ordered | {name for part in inner for name in _variables(part)}


def definitions_read(operation: Operation) -> set[int]:
    """Identities of the sources at which the values that an operation reads were named: two blocks may name two values alike."""
    inner = [getattr(operation, f.name) for f in fields(operation) if f.compare and f.name != "body"]
    return {id(variable.source) for part in inner for variable in variables(part)}


def _variables(node: object) -> Iterator[str]:
    yield from (variable.name for variable in variables(node))


def constants(node: object) -> Iterator[Const]:
    """Every constant inside a node, bodies of blocks included, with repetitions."""
    yield from (leaf for leaf in _leaves(node) if isinstance(leaf, Const))


def variables(node: object) -> Iterator[Var]:
    """Every variable inside a node, bodies of blocks included, with repetitions."""
    yield from (leaf for leaf in _leaves(node) if isinstance(leaf, Var))


def _leaves(node: object) -> Iterator[Const | Var]:
    if isinstance(node, Const | Var):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from _leaves(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for f in fields(node):
            if f.compare:
                yield from _leaves(getattr(node, f.name))

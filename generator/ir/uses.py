"""Which values an operation of a description reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from kernwright.generator.ir.description import Consume, Operation
from kernwright.generator.ir.expr import Const, Var


def names_read(operation: Operation) -> set[str]:
    """Names of the values and scalars in the operation itself, without the body of a block."""
    ordered = set(operation.after) if isinstance(operation, Consume) else set()
    return ordered | names_of(operation, skip=("body",))


def definitions_read(operation: Operation) -> set[int]:
    """Identities of the sources at which the values that an operation reads were named: two blocks may name two values alike."""
    return {id(variable.source) for variable in variables(operation, skip=("body",))}


def constants(node: object) -> Iterator[Const]:
    """Every constant inside a node, bodies of blocks included, with repetitions."""
    yield from (leaf for leaf in _leaves(node, ()) if isinstance(leaf, Const))


def variables(node: object, skip: tuple[str, ...] = ()) -> Iterator[Var]:
    """Every variable inside a node, with repetitions; bodies of blocks included, unless `skip` names that field."""
    yield from (leaf for leaf in _leaves(node, skip) if isinstance(leaf, Var))


def names_of(node: object, skip: tuple[str, ...] = ()) -> set[str]:
    """Names of the variables inside a node, as `variables` finds them."""
    return {variable.name for variable in variables(node, skip)}


def _leaves(node: object, skip: tuple[str, ...]) -> Iterator[Const | Var]:
    if isinstance(node, Const | Var):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from _leaves(item, skip)
    elif is_dataclass(node) and not isinstance(node, type):
        for f in fields(node):
            if f.compare and f.name not in skip:
                yield from _leaves(getattr(node, f.name), skip)

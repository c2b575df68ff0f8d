"""How many stages of a pipeline each role goes through in a block: sums of products of loop trips, and how two ends compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Binary, Cast, Const, Expr, Var, children, integer, substitute, without_names
from kernwright.generator.ir.types import f32
from kernwright.generator.passes.ranges import range_of
from kernwright.generator.passes.simplify import simplify

Terms = dict[tuple[Expr, ...], int]
"""A sum of products: factors in the order of their text -> coefficient. No factor is the constant."""
Known = dict[str, Expr]


@dataclass(frozen=True, slots=True)
class Turns:
    """What one role does with one pipeline in a block: how often, shown and to compare, and its first block."""

    role: str
    terms: Terms
    block: ir.Produce | ir.Consume

    @property
    def shown(self) -> str:
        """The sum as text."""
        return _sum_text(self.terms)


def check_turns(description: Description, pipeline: ir.Pipeline) -> tuple[str, ...]:
    """Refuse ends that certainly differ; returns what could not be compared, in words."""
    (producer,) = _turns(description, pipeline.name, ir.Produce)
    notes: list[str] = []
    for reader in _turns(description, pipeline.name, ir.Consume):
        difference = _sum(producer.terms, reader.terms, -1)
        if not difference:
            continue
        if len({number > 0 for number in difference.values()}) == 2:
            notes.append(
                f"stages a block: {producer.shown} produced by role {producer.role}, {reader.shown} consumed by role "
                f"{reader.role}: not compared, the author answers for it"
            )
            continue
        waits = reader.role if min(difference.values()) < 0 else producer.role
        raise PipelineFault(
            "KW0413",
            f"pipeline {pipeline.name!r} is produced {producer.shown} times and consumed {reader.shown} times in a block",
            reader.block.source,
            where=f"in role {reader.role!r}",
            detail=f"role {producer.role!r} produces at {producer.block.source}; role {waits!r} would wait for ever.",
            fix="Give both roles the same loops and the same number of blocks in a step.",
        )
    return tuple(notes)


def constant_trips(loop: ir.Steps) -> int | None:
    """Trips of a loop whose ends and step are numbers."""
    match tuple(simplify(_plain(part, {})).expr for part in (loop.count, loop.first, loop.step)):
        case (Const(value=end), Const(value=first), Const(value=step)):
            return max(0, -(-(int(end) - int(first)) // int(step)))
        case _:
            return None


def _turns(description: Description, name: str, kind: type[ir.Produce] | type[ir.Consume]) -> list[Turns]:
    known: Known = {}
    _learn(tuple(op for op in description.body if not isinstance(op, ir.RoleBody)), known, "")
    found: list[Turns] = []
    for body in description.role_bodies:
        uses = [
            (operation, times)
            for operation, times in _repeated(body.body, {(): 1}, dict(known), 0, body.role)
            if isinstance(operation, kind) and operation.pipeline == name
        ]
        total: Terms = {}
        for _, times in uses:
            total = _sum(total, times, 1)
        if uses:
            found.append(Turns(body.role, total, uses[0][0]))
    return found


def _repeated(
    operations: tuple[ir.Operation, ...], times: Terms, known: Known, depth: int, role: str
) -> Iterator[tuple[ir.Operation, Terms]]:
    """Every operation with how often it is executed. The index of a loop is known by its depth and by what it runs through."""
    for operation in operations:
        yield operation, times
        _learn((operation,), known, role)
        if isinstance(operation, ir.Steps):
            trips = _trips(operation, known)
            index = f"step {depth} of {_sum_text(trips)} from {_text(operation.first)} by {_text(operation.step)}"
            inner = {**known, operation.index.name: Var(index, operation.index.dtype, operation.index.low)}
            yield from _repeated(operation.body, _product(times, trips), inner, depth + 1, role)
        elif isinstance(operation, ir.Block):
            yield from _repeated(operation.body, times, known, depth, role)


def _learn(operations: tuple[ir.Operation, ...], known: Known, role: str) -> None:
    """Named scalars stand for their formula; what is loaded or fetched is a value of its role alone."""
    for operation in operations:
        if isinstance(operation, ir.Elementwise) and operation.extent is ir.Extent.SCALAR:
            known[operation.name] = _plain(operation.value, known)
        elif isinstance(operation, ir.Elementwise | ir.LoadTile | ir.ReadShared | ir.ReadAccumulator | ir.RowReduce):
            known[operation.name] = Var(f"{role}.{operation.name}", getattr(operation, "dtype", f32))


def _plain(expr: Expr, known: Known) -> Expr:
    """Without names of values and constants."""
    return substitute(without_names(expr), known)


def _trips(loop: ir.Steps, known: Known) -> Terms:
    number = constant_trips(loop)
    if number is not None:
        return {(): number} if number else {}
    end, first, step = (simplify(_plain(part, known)).expr for part in (loop.count, loop.first, loop.step))
    if all(isinstance(part, Const) for part in (end, first, step)):
        return _trips(ir.Steps(loop.index, end, (), first, step), {})
    if isinstance(first, Const) and step == integer(1):
        if range_of(end).low >= int(first.value):
            return _sum(_terms(end), {(): int(first.value)}, -1)
        if first.value == 0:
            return {(end,): 1}
    return {(Var(f"trips of {_text(first)} .. {_text(end)} by {_text(step)}", end.dtype),): 1}


def _terms(expr: Expr) -> Terms:
    match expr:
        case Const(value=value):
            return {(): int(value)} if value else {}
        case Binary("+" | "-" as sign, left, right):
            return _sum(_terms(left), _terms(right), 1 if sign == "+" else -1)
        case Binary("*", left, right):
            return _product(_terms(left), _terms(right))
        case Cast(dtype, operand) if dtype.is_integer and operand.dtype.is_integer:
            return _terms(operand)
        case _:
            return {(expr,): 1}


def _sum(left: Terms, right: Terms, sign: int) -> Terms:
    both = {key: left.get(key, 0) + sign * right.get(key, 0) for key in (*left, *right)}
    return {key: number for key, number in both.items() if number}


def _product(left: Terms, right: Terms) -> Terms:
    found: Terms = {}
    for a, m in left.items():
        for b, n in right.items():
            key = tuple(sorted((*a, *b), key=_text))
            found[key] = found.get(key, 0) + m * n
    return found


def _sum_text(terms: Terms) -> str:
    parts = [
        " x ".join([str(number)] * (number != 1 or not factors) + [_text(factor) for factor in factors])
        for factors, number in terms.items()
    ]
    return " + ".join(parts) or "0"


def _text(expr: Expr) -> str:
    """An expression in words that two roles share where they mean the same."""
    match expr:
        case Const(value=value):
            return str(value)
        case Var(name=name):
            return name
        case Binary(op, left, right):
            return f"({_text(left)} {op} {_text(right)})"
        case _:
            return f"{type(expr).__name__.lower()}({', '.join(_text(operand) for operand in children(expr))})"

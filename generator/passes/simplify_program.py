"""The pass that simplifies every expression of a lowered body and folds the branches that ranges decide.

Facts grow on the way down: the index of a `Repeat` is in 0..count - 1, a `Let` has the range of its value. Conditions
add no facts, and a variable that is assigned has none but its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernwright.generator.ir.expr import Call, Cast, Const, Element, Expr, Var, children
from kernwright.generator.ir.statement import (
    AdvanceRing,
    ArrayOperand,
    Assign,
    Blank,
    CallFunction,
    Declare,
    DeclareRing,
    DeclareShared,
    Execute,
    If,
    Let,
    MapOperand,
    Operand,
    Pointer,
    RegisterArray,
    Remark,
    Repeat,
    SharedOperand,
    Statement,
    expressions_of,
    map_operand,
    name_of,
    root,
)
from kernwright.generator.ir.types import boolean
from kernwright.generator.passes.ranges import Facts, Range, Ranges, full
from kernwright.generator.passes.simplify import Applied, simplify


def simplify_statements(
    statements: tuple[Statement, ...], facts: Facts | None = None
) -> tuple[tuple[Statement, ...], tuple[Applied, ...]]:
    """The same statements over simplified expressions, and the rewrites in the order of the text.

    An `If` whose condition is proved becomes the branch that runs. Raises ValueError where facts and declarations leave
    a variable no value.
    """
    applied: list[Applied] = []
    return _block(statements, dict(facts or {}), applied), tuple(applied)


def _block(statements: tuple[Statement, ...], facts: dict[str, Range], applied: list[Applied]) -> tuple[Statement, ...]:
    facts = dict(facts)  # what a block learns ends with it
    result: list[Statement] = []
    for position, statement in enumerate(statements):
        new = _statement(statement, facts, applied)
        if not isinstance(new, If):
            result.append(new)
            continue
        decided = Ranges(facts).decided(new.condition)
        branch = new.then if decided else new.otherwise
        others = (*statements[:position], *statements[position + 1 :])
        if decided is None or _declared(branch) & _names(others):  # a name of the branch would meet one outside
            result.append(new)
            continue
        applied.append(Applied(f"if {str(decided).lower()}", new.condition, Const(int(decided), boolean)))
        result += branch
    return tuple(result)


def _statement(statement: Statement, facts: dict[str, Range], applied: list[Applied]) -> Statement:
    def smaller(expr: Expr) -> Expr:
        done = simplify(expr, facts)
        applied.extend(done.applied)
        return done.expr

    match statement:
        case Let(var, value):
            value = smaller(value)
            facts.pop(var.name, None)
            if var.dtype.is_integer and value.dtype.is_integer:
                values = Ranges(facts).of(Cast(var.dtype, value)).meet(Ranges({}).of(var))
                if values != full(var.dtype):
                    facts[var.name] = values
            return replace(statement, value=value)
        case Declare(var, value):
            value = smaller(value)
            facts.pop(var.name, None)
            return replace(statement, value=value)
        case Assign(target, value):
            if isinstance(target, Element):
                target = replace(target, index=smaller(target.index))
            return replace(statement, target=target, value=smaller(value))
        case Repeat(index, count, body, _, first, step):
            count, first, step = smaller(count), smaller(first), smaller(step)
            inner = {name: values for name, values in facts.items() if name != index.name}
            most, least = Ranges(facts).of(count).high, max(0, Ranges(facts).of(first).low)
            if most > least:
                inner[index.name] = Range(least, min(most - 1, index.dtype.high))
            return replace(statement, count=count, first=first, step=step, body=_block(body, inner, applied))
        case If(condition, then, otherwise):
            condition = smaller(condition)
            then, otherwise = _block(then, facts, applied), _block(otherwise, facts, applied)
            return replace(statement, condition=condition, then=then, otherwise=otherwise)
        case Execute(_, operands):
            return replace(statement, operands=tuple(_operand(operand, facts, applied) for operand in operands))
        case _:
            return statement


def _operand(operand: Operand, facts: Facts, applied: list[Applied]) -> Operand:
    def smaller(expr: Expr) -> Expr:
        done = simplify(expr, facts)
        applied.extend(done.applied)
        return done.expr

    return map_operand(operand, smaller)


def _declared(statements: tuple[Statement, ...]) -> set[str]:
    """The names that a block declares itself, not in a block inside it."""
    found = {statement.var.name for statement in statements if isinstance(statement, Let | Declare)}
    return found | {statement.name for statement in statements if isinstance(statement, RegisterArray)}


def _names(statements: tuple[Statement, ...]) -> set[str]:
    """Every name that occurs in the statements, declared or used."""
    return {name for statement in statements for name in _occurring(statement)}


def _occurring(node: Statement | Operand) -> Iterator[str]:
    match node:
        case Let(var, value) | Declare(var, value) | Assign(var, value):
            yield from _occurring(var)
            yield from _occurring(value)
        case RegisterArray(name, _, size):
            yield name
            yield from _occurring(size)
        case Repeat(index, count, body, _, first, step):
            yield index.name
            for part in (count, first, step):
                yield from _occurring(part)
            yield from _names(body)
        case If(condition, then, otherwise):
            yield from _occurring(condition)
            yield from _names(then) | _names(otherwise)
        case Execute(_, operands):
            for operand in operands:
                if found := name_of(operand):
                    yield found
                for expr in expressions_of(operand):
                    yield from _occurring(expr)
        case DeclareRing(name) | AdvanceRing(name):
            yield name
        case CallFunction(_, arguments):
            yield from arguments
        case DeclareShared() | Remark() | Blank() | Pointer() | ArrayOperand() | SharedOperand() | MapOperand():
            return
        case Var(name) | Const(_, _, str(name)):
            yield root(name)
        case Element(array, index):
            yield root(array)
            yield from _occurring(index)
        case Call() | _:
            for operand in children(node):
                yield from _occurring(operand)

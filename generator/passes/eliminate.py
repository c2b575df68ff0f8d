"""Removes what nothing reads after simplification: values, arrays, loads and loops whose results a folded branch no longer needs.

A description that is specialised by constants folds to less than it says; what is left over would be warnings of the compiler. Only
pure work goes: everything that reaches memory stays. Comments go with the statement that they stand before.
"""

from __future__ import annotations

from dataclasses import replace

from kernwright.generator.instructions import lookup
from kernwright.generator.ir.expr import Element, Expr, Var, children
from kernwright.generator.ir.statement import (
    AdvanceRing,
    ArrayOperand,
    Assign,
    Blank,
    CallFunction,
    Declare,
    DeclareRing,
    Execute,
    If,
    Let,
    Operand,
    RegisterArray,
    Remark,
    Repeat,
    Statement,
    expressions_of,
    name_of,
    root,
)


def eliminate(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements without dead ones, to a fixpoint."""
    while True:
        needed = names_in(statements)
        kept = _tidy(_keep(statements, needed))
        if kept == statements:
            return kept
        statements = kept


def _keep(statements: tuple[Statement, ...], needed: set[str]) -> tuple[Statement, ...]:
    kept: list[Statement] = []
    remarks: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Remark):
            remarks.append(statement)
            continue
        new = _kept(statement, needed)
        if new is not None:
            kept += [*remarks, new]
        remarks = []
    return tuple(kept)


def _kept(statement: Statement, needed: set[str]) -> Statement | None:
    """The statement, perhaps with a smaller body, or None."""
    match statement:
        case Let(var=Var(name=name)) | Declare(var=Var(name=name)) | RegisterArray(name=name):
            return statement if name in needed else None
        case Assign(target=target):
            name = root(target.array if isinstance(target, Element) else target.name)
            return statement if name in needed else None
        case Execute(instruction=instruction, operands=operands) if _only_fills_registers(instruction):
            return statement if needed & {root(o.name) for o in operands if isinstance(o, ArrayOperand)} else None
        case Repeat(body=body):
            inner = _keep(body, needed)
            return replace(statement, body=inner) if inner else None
        case If(then=then, otherwise=otherwise):
            left, right = _keep(then, needed), _keep(otherwise, needed)
            return replace(statement, then=left, otherwise=right) if left or right else None
        case _:
            return statement


def _only_fills_registers(instruction: str) -> bool:
    effects = lookup(instruction).effects
    return effects.writes == ("registers",) and "registers" not in effects.reads


def _tidy(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """No blank line at the ends of a block, and never two of them."""
    kept: list[Statement] = []
    for statement in statements:
        match statement:
            case Repeat(body=body):
                kept.append(replace(statement, body=_tidy(body)))
            case If(then=then, otherwise=otherwise):
                kept.append(replace(statement, then=_tidy(then), otherwise=_tidy(otherwise)))
            case Blank() if not kept or isinstance(kept[-1], Blank):
                pass
            case _:
                kept.append(statement)
    while kept and isinstance(kept[-1], Blank):
        kept.pop()
    return tuple(kept)


def names_in(statements: tuple[Statement, ...]) -> set[str]:
    """Names that some statement reads, named constants among them; an accumulation does not read its own target."""
    names: set[str] = set()
    for statement in statements:
        match statement:
            case Let(value=value) | Declare(value=value):
                names |= variables_of(value)
            case RegisterArray(size=size, rows=rows, alias=alias):
                names |= variables_of(size) | (variables_of(rows) if rows else set()) | ({alias} if alias else set())
            case Assign(target=target, value=value):
                own = root(target.array if isinstance(target, Element) else target.name)
                names |= variables_of(value) - {own}
                names |= variables_of(target.index) if isinstance(target, Element) else set()
            case Repeat(count=count, body=body, first=first, step=step):
                names |= variables_of(count) | variables_of(first) | variables_of(step) | names_in(body)
            case If(condition=condition, then=then, otherwise=otherwise):
                names |= variables_of(condition) | names_in(then) | names_in(otherwise)
            case Execute(instruction=instruction, operands=operands):
                filled = _only_fills_registers(instruction)
                names |= {name for operand in operands for name in _operand(operand, filled)}
            case DeclareRing(name, stages, _, first_stage):
                names |= {name} | variables_of(stages) | (variables_of(first_stage) if first_stage else set())
            case AdvanceRing(name, steps):
                names |= {name} | (variables_of(steps) if steps else set())
            case CallFunction(_, arguments):
                names |= set(arguments)
            case _:
                pass
    return names


def _operand(operand: Operand, filled: bool) -> set[str]:
    found = {inner for expr in expressions_of(operand) for inner in variables_of(expr)}
    name = name_of(operand)
    return found | ({name} if name and not (filled and isinstance(operand, ArrayOperand)) else set())


def variables_of(expr: Expr) -> set[str]:
    """Names of the variables, arrays and named constants of an expression; of a path, the variable that it begins with."""
    own = {root(expr.array)} if isinstance(expr, Element) else set()
    name = getattr(expr, "name", None)
    own |= {root(name)} if name else set()
    return own | {inner for child in children(expr) for inner in variables_of(child)}

"""Removes what nothing reads after simplification: values, arrays, loads and loops whose results a folded branch no longer needs.

A description that is specialised by constants folds to less than it says; what is left over would be warnings of the compiler. Only
pure work goes: everything that reaches memory stays. Comments go with the statement that they stand before.
"""

from __future__ import annotations

from kernwright.generator.instructions import lookup
from kernwright.generator.ir.expr import Element, Expr, Var, children
from kernwright.generator.ir.statement import (
    ArrayOperand,
    Assign,
    Blank,
    Declare,
    Execute,
    If,
    Let,
    Operand,
    Pointer,
    RegisterArray,
    Remark,
    Repeat,
    Statement,
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
            name = target.array if isinstance(target, Element) else target.name
            return statement if name in needed else None
        case Execute(instruction=instruction, operands=operands) if _only_fills_registers(instruction):
            return statement if needed & {o.name for o in operands if isinstance(o, ArrayOperand)} else None
        case Repeat(index, count, body, unroll, source):
            inner = _keep(body, needed)
            return Repeat(index, count, inner, unroll, source) if inner else None
        case If(condition, then, otherwise, why, source):
            left, right = _keep(then, needed), _keep(otherwise, needed)
            return If(condition, left, right, why, source) if left or right else None
        case _:
            return statement


def _only_fills_registers(instruction: str) -> bool:
    effects = lookup(instruction).effects
    return effects.writes == ("registers",)


def _tidy(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """No blank line at the ends of a block, and never two of them."""
    kept: list[Statement] = []
    for statement in statements:
        match statement:
            case Repeat(index, count, body, unroll, source):
                kept.append(Repeat(index, count, _tidy(body), unroll, source))
            case If(condition, then, otherwise, why, source):
                kept.append(If(condition, _tidy(then), _tidy(otherwise), why, source))
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
            case RegisterArray(size=size):
                names |= variables_of(size)
            case Assign(target=target, value=value):
                own = target.array if isinstance(target, Element) else target.name
                names |= variables_of(value) - {own}
                names |= variables_of(target.index) if isinstance(target, Element) else set()
            case Repeat(count=count, body=body):
                names |= variables_of(count) | names_in(body)
            case If(condition=condition, then=then, otherwise=otherwise):
                names |= variables_of(condition) | names_in(then) | names_in(otherwise)
            case Execute(instruction=instruction, operands=operands):
                names |= {
                    name for operand in operands for name in _operand(operand, _only_fills_registers(instruction))
                }
            case _:
                pass
    return names


def _operand(operand: Operand, filled: bool) -> set[str]:
    match operand:
        case Pointer(offset=offset):
            return variables_of(offset)
        case ArrayOperand(name):
            return set() if filled else {name}
        case _:
            return variables_of(operand)


def variables_of(expr: Expr) -> set[str]:
    """Names of the variables, arrays and named constants of an expression."""
    own = {expr.array} if isinstance(expr, Element) else set()
    name = getattr(expr, "name", None)
    own |= {name} if name else set()
    return own | {inner for child in children(expr) for inner in variables_of(child)}

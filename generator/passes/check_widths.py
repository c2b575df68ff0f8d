"""No index or size of a lowered body may leave its type: C++ would overflow (int) or wrap (unsigned) silently.

Facts grow on the way down, as in simplification: loop indices and the ranges of `Let` values. What the ranges do not prove to stay
is refused with the author's line, never widened behind the author's back: a description says i64 where it means it. Arithmetic on
the elements of integer tiles is data, not an index: nothing bounds it but the author, and it is left alone.
"""

from __future__ import annotations

from kernwright.generator.errors import TensorFault
from kernwright.generator.ir.expr import Element, Expr, Var, children
from kernwright.generator.ir.source import UNKNOWN, Source
from kernwright.generator.ir.statement import Assign, Declare, Execute, If, Let, Repeat, Statement, expressions_of
from kernwright.generator.passes.ranges import Range, range_of, width_proof


def check_widths(statements: tuple[Statement, ...]) -> None:
    """Raise TensorFault KW0206 for the first integer expression that can leave its type."""
    _block(statements, {}, frozenset())


def _block(statements: tuple[Statement, ...], facts: dict[str, Range], data: frozenset[str]) -> None:
    """Check a block; `data` are the names of values that come from elements or floats."""
    known = dict(facts)
    for statement in statements:
        match statement:
            case Let(var, value):
                _check(value, known, data, statement.source)
                if _is_data(value, data):
                    data |= {var.name}
                elif var.dtype.is_integer:
                    known[var.name] = range_of(value, known).meet(range_of(var))  # a definition may promise more
            case Declare(value=value) | Assign(value=value):
                _check(value, known, data, statement.source)
            case Repeat(index, count, body, _, first, step):
                for part in (count, first, step):
                    _check(part, known, data, statement.source)
                least, most = max(0, range_of(first, known).low), range_of(count, known).high - 1
                _block(body, known | {index.name: Range(least, max(least, most))}, data)
            case If(condition, then, otherwise):
                _check(condition, known, data, statement.source)
                _block(then, known, data)
                _block(otherwise, known, data)
            case Execute(operands=operands):
                for operand in operands:
                    for expr in expressions_of(operand):
                        _check(expr, known, data, statement.source)
            case _:
                pass


def _check(expr: Expr, facts: dict[str, Range], data: frozenset[str], source: Source) -> None:
    """Check the largest parts of an expression that are integers and no data; floats around them cannot overflow silently."""
    if not expr.dtype.is_integer or _is_data(expr, data):
        for child in children(expr):
            _check(child, facts, data, source)
        return
    proof = width_proof(expr, facts)
    if proof.leaving is not None:
        at = next((s for s in (proof.leaving.source, expr.source, source) if s != UNKNOWN), UNKNOWN)
        raise TensorFault(
            "KW0206",
            "integer arithmetic can leave its type",
            at,
            detail=str(proof),
            fix="Lower the `high` of the scalars in it, or convert one operand first: value.to(i64).",
        )


def _is_data(expr: Expr, data: frozenset[str]) -> bool:
    """Whether a value comes from tile elements or from floats, of which no range is known."""
    named = isinstance(expr, Var) and expr.name in data
    return (
        named
        or isinstance(expr, Element)
        or expr.dtype.is_float
        or any(_is_data(child, data) for child in children(expr))
    )

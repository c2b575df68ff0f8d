"""The pass that applies the rule table to an expression, bottom-up, until no rule applies.

It terminates because each step lowers (nodes that are not casts, casts), compared in this order: a rule deletes an
operator or merges two constants, and may add casts; the rules over casts delete one. It is idempotent because a node is
finished only when no rule applies to it or below it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from kernwright.generator.ir.expr import Binary, Cast, Expr, Select, Unary, children, rebuild
from kernwright.generator.passes.patterns import instantiate, match_pattern
from kernwright.generator.passes.ranges import Facts, Ranges
from kernwright.generator.passes.rules import RULES, Rule


@dataclass(frozen=True, slots=True)
class Applied:
    """One rewrite: the rule's name, and the node before and after it."""

    rule: str
    before: Expr
    after: Expr


@dataclass(frozen=True, slots=True)
class Simplified:
    """The simplified expression, of the same C++ type and value, and the rewrites in the order of their application."""

    expr: Expr
    applied: tuple[Applied, ...]


def simplify(expr: Expr, facts: Facts | None = None, rules: tuple[Rule, ...] = RULES) -> Simplified:
    """The expression after every rule that the ranges of `facts` and of its own nodes allow.

    Value and C++ type are kept for all inputs for which the original is defined, the author's order of terms is kept.
    Raises ValueError where facts and declarations leave a variable no value.
    """
    table = ALL_BY_ROOT if rules is RULES else _by_root(rules)
    pass_ = _Pass(Ranges(facts or {}), table, [])
    result = pass_.visit(expr)
    return Simplified(result, tuple(pass_.applied))


def measure(expr: Expr) -> tuple[int, int]:
    """(nodes that are not casts, casts): every rewrite lowers it."""
    casts = int(isinstance(expr, Cast))
    parts = [measure(operand) for operand in children(expr)]
    return 1 - casts + sum(nodes for nodes, _ in parts), casts + sum(inner for _, inner in parts)


def _root(expr: Expr) -> str | None:
    match expr:
        case Binary(op, _, _):
            return f"binary {op}"
        case Unary(op, _):
            return f"unary {op}"
        case Cast():
            return "cast"
        case Select():
            return "select"
    return None


def _by_root(rules: tuple[Rule, ...]) -> dict[str | None, list[Rule]]:
    table: dict[str | None, list[Rule]] = defaultdict(list)
    for rule in rules:
        table[_root(rule.pattern)].append(rule)
    return table


ALL_BY_ROOT = _by_root(RULES)


@dataclass(frozen=True, slots=True)
class _Pass:
    ranges: Ranges
    table: dict[str | None, list[Rule]]
    applied: list[Applied]

    def visit(self, expr: Expr) -> Expr:
        """`expr` with no rule left to apply anywhere in it."""
        before = children(expr)
        operands = tuple(self.visit(operand) for operand in before)
        if any(new is not old for new, old in zip(operands, before, strict=True)):
            expr = rebuild(expr, operands)
        for rule in self.table.get(_root(expr), ()):
            found = match_pattern(rule.pattern, expr, self.ranges)
            if found is None or not all(found.proves(condition) for condition in rule.conditions):
                continue
            after = instantiate(rule.replacement, found, expr)
            if after is not None:
                self.applied.append(Applied(rule.name, expr, after))
                return self.visit(after)
        return expr

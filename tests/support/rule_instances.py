"""Concrete expressions for every rule of the simplifier: wildcards become variables of known ranges and small constants."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from kernwright.generator.ir.expr import Const, Expr, Var, children, rebuild
from kernwright.generator.ir.types import ALL_DTYPES, DType, Kind, boolean, i16, i32, i64, u8, u32
from kernwright.generator.passes.patterns import ANY_TYPE, OTHER_TYPE, Value
from kernwright.generator.passes.ranges import Range
from kernwright.generator.passes.rules import Rule

CONSTANTS = (0, 1, 2, 3, 3, 6, 8, -3, -6, 65536)
VARIABLE_TYPES = (i32, i32, u32, i64, i16, u8, boolean)
CONSTANT_TYPES = (i32, i32, u32, i64)
SMALL = {0: [], 1: [Range(-40, 40), Range(0, 40), Range(-40, -1), Range(0, 1), Range(2, 2), Range(0, 0)]}
SMALL[2] = [
    Range(-40, 40),
    Range(-9, 9),
    Range(0, 9),
    Range(0, 2),
    Range(8, 11),
    Range(-2, 0),
    Range(1, 1),
    Range(0, 0),
]


@dataclass(frozen=True)
class Instance:
    """An expression and the ranges to enumerate, by variable."""

    expr: Expr
    ranges: dict[str, Range]

    def inputs(self) -> Iterator[dict[str, int]]:
        names = list(self.ranges)
        for values in itertools.product(*(range(r.low, r.high + 1) for r in self.ranges.values())):
            yield dict(zip(names, values, strict=True))


def wildcards(pattern: Expr) -> list[Var]:
    """The wildcards of a pattern, each once."""
    found = [pattern] if isinstance(pattern, Var) else []
    for operand in children(pattern):
        found += [inner for inner in wildcards(operand) if inner not in found]
    return found


def substitute(pattern: Expr, values: dict[str, Expr], types: dict[str, DType], work: DType) -> Expr:
    """The pattern over these operands and cast types; its own constants take the type `work`."""
    match pattern:
        case Var(name):
            return values[name]
        case Const(value):
            return Const(value, work)
    operands = tuple(substitute(operand, values, types, work) for operand in children(pattern))
    built = rebuild(pattern, operands)
    if pattern.dtype.name in types and not isinstance(built, Var | Const):
        return type(built)(types[pattern.dtype.name], operands[0])  # a Cast to a wildcard type
    return built


def _ends(dtype: DType) -> Range:
    return Range(dtype.high - 5, dtype.high)


def instances(rule: Rule, attempts: int) -> Iterator[Instance]:
    """Random combinations of small constants, of ranges, and of types; the same ones each time for a rule."""
    pick = random.Random(rule.name)
    parts = wildcards(rule.pattern)
    constants = [part for part in parts if isinstance(part, Value)]
    variables = [part for part in parts if not isinstance(part, Value)]
    integers = [dtype for dtype in ALL_DTYPES if dtype.is_integer]
    for _ in range(attempts):
        mixed = pick.random() < 0.4  # types of their own for all operands, or one for variables and one for constants
        dtype, kind = pick.choice(VARIABLE_TYPES), pick.choice(CONSTANT_TYPES)
        ranges: dict[str, Range] = {}
        values: dict[str, Expr] = {}
        for part in variables:
            own = pick.choice(VARIABLE_TYPES) if mixed else dtype
            spans = [span for span in SMALL[min(2, len(variables))] if own.low <= span.low and span.high <= own.high]
            ranges[part.name] = span = pick.choice([*spans, *([_ends(own)] if own.kind is Kind.UNSIGNED else [])])
            values[part.name] = Var(part.name, own, span.low, span.high)
        for part in constants:
            own = pick.choice(CONSTANT_TYPES) if mixed else kind
            values[part.name] = Const(pick.choice([c for c in CONSTANTS if c >= own.low]), own)
        types = {ANY_TYPE.name: pick.choice(integers), OTHER_TYPE.name: pick.choice(integers)}
        yield Instance(substitute(rule.pattern, values, types, kind), ranges)

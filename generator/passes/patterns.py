"""Patterns of rewrite rules: ordinary nodes in which wildcards stand for operands, and how they match and instantiate.

A pattern reads as C++ reads: all arithmetic in it happens in one type T, the type that C++ gives the matched root (for
a comparison the type in which it compares). A wildcard's range and a constant's value are those after the conversion
to T.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernwright.generator.ir.expr import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    SHIFTS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
)
from kernwright.generator.ir.types import DType, Kind, boolean, common, i32, promote
from kernwright.generator.passes.ranges import Range, Ranges, compare, exact, full, wrap


@dataclass(frozen=True, slots=True)
class Anything(Var):
    """Matches any integer expression; the same name matches the same expression again."""


@dataclass(frozen=True, slots=True)
class Opaque(Var):
    """Matches any expression, floats too: the rule hands it on untouched."""


@dataclass(frozen=True, slots=True)
class Value(Var):
    """Matches any integer constant, named or not. The same name matches the same value again."""


@dataclass(frozen=True, slots=True)
class Literal(Value):
    """Matches an integer constant without a name: the only kind that may merge into another number."""


ANY_TYPE = DType("A", "A", 32, Kind.SIGNED)
OTHER_TYPE = DType("B", "B", 32, Kind.SIGNED)
BITS = Var("bits", i32)
"""In a condition: the width of T."""


def constant(formula: Expr) -> Expr:
    """In a replacement: the literal with this value. It must fit a signed T; in an unsigned T it wraps, as C++ does."""
    return Call("constant", (formula,), i32)


def fits(formula: Expr) -> Expr:
    """Condition: the mathematical value is one of T, by range."""
    return Call("fits", (formula,), boolean)


def keeps(conversion: Expr) -> Expr:
    """Condition: the conversion changes no value of its operand, by range."""
    return Call("keeps", (conversion,), boolean)


def same_type(conversion: Expr) -> Expr:
    """Condition: the operand already has the type."""
    return Call("same_type", (conversion,), boolean)


def integer_type(conversion: Expr) -> Expr:
    """Condition: the conversion is to an integer type."""
    return Call("integer_type", (conversion,), boolean)


def truncates(outer: Expr, inner: Expr) -> Expr:
    """Condition: both conversions are between integers, and the outer one keeps no more bits than the inner one."""
    return Call("truncates", (outer, inner), boolean)


@dataclass(slots=True)
class Match:
    """What the wildcards of a pattern stand for. `work` is T, None while no arithmetic has been met."""

    ranges: Ranges
    work: DType | None = None
    bound: dict[str, Expr] = field(default_factory=dict)
    context: dict[str, DType] = field(default_factory=dict)
    types: dict[str, DType] = field(default_factory=dict)

    def value(self, name: str) -> int:
        """The value of a matched constant after the conversion to its context."""
        node = self.bound[name]
        assert isinstance(node, Const)
        return wrap(int(node.value), self.context[name])

    def range(self, formula: Expr) -> Range | None:
        """The range of a condition's formula over unbounded integers."""
        match formula:
            case Const(value):
                return Range(int(value), int(value))
            case Var("bits") if self.work is not None:
                return Range(self.work.bits, self.work.bits)
            case Var(name):
                return self.ranges.converted(self.bound[name], self.context[name])
            case Unary("-" | "~" as op, operand):
                inner = self.range(operand)
                return None if inner is None else exact("-", Range(0, 0) if op == "-" else Range(-1, -1), inner)
            case Binary(op, left, right):
                a, b = self.range(left), self.range(right)
                return None if a is None or b is None else exact(op, a, b)
            case _:
                raise TypeError(f"a condition cannot contain {formula}")

    def proves(self, condition: Expr) -> bool:
        """True when the condition holds for every value of the operands."""
        match condition:
            case Binary(op, left, right) if op in COMPARISONS:
                a, b = self.range(left), self.range(right)
                return a is not None and b is not None and compare(op, a, b) is True
            case Call("fits", (formula,)):
                values = self.range(formula)
                return values is not None and self.work is not None and values.within(full(self.work))
            case Call("same_type", (Cast(dtype, Var(name)),)):
                return self.types[dtype.name] == self.bound[name].dtype
            case Call("integer_type", (Cast(dtype, _),)):
                return self.types[dtype.name].is_integer
            case Call("keeps", (Cast(dtype, Var(name)),)):
                target = self.types[dtype.name]
                return target.is_integer and self.ranges.of(self.bound[name]).within(full(target))
            case Call("truncates", (Cast(outer, _), Cast(inner, _))):
                a_type, b_type = self.types[outer.name], self.types[inner.name]
                plain = a_type.is_integer and b_type.is_integer and boolean not in (a_type, b_type)
                return plain and a_type.bits <= b_type.bits
            case _:
                raise TypeError(f"unknown condition {condition}")


def identical(left: Expr, right: Expr) -> bool:
    """True for the same tree with the same constants; unlike `==` it tells -0.0 from 0.0 and true from 1."""
    return left == right and repr(left) == repr(right)


def match_pattern(pattern: Expr, expr: Expr, ranges: Ranges) -> Match | None:
    """How `pattern` matches at the root of `expr`, or None."""
    found = Match(ranges)
    return found if _match(pattern, expr, expr.dtype, found) else None


def _match(pattern: Expr, expr: Expr, context: DType, found: Match) -> bool:
    match pattern, expr:
        case Var(name), _:
            return _bind(pattern, name, expr, context, found)
        case Const(wanted), Const(value):
            return expr.dtype.is_integer and context.is_integer and wrap(int(value), context) == wanted
        case Unary(op, inner), Unary(op_too, operand) if op == op_too:
            if op == "!":
                return _match(inner, operand, operand.dtype, found)
            return _works_in(expr.dtype, found) and _match(inner, operand, expr.dtype, found)
        case Cast(dtype, inner), Cast(actual, operand):
            found.types[dtype.name] = actual
            return _match(inner, operand, operand.dtype, found)
        case Select(condition, then, otherwise), Select(test, yes, no):
            pairs = ((condition, test), (then, yes), (otherwise, no))
            return all(_match(part, side, side.dtype, found) for part, side in pairs)
        case Binary(op, left, right), Binary(op_too, a, b) if op == op_too:
            if op in ARITHMETIC + BITWISE + COMPARISONS:
                own = common(a.dtype, b.dtype)
                return _works_in(own, found) and _match(left, a, own, found) and _match(right, b, own, found)
            own = promote(a.dtype) if op in SHIFTS else a.dtype
            if op in SHIFTS and not _works_in(own, found):
                return False
            return _match(left, a, own, found) and _match(right, b, b.dtype, found)
    return False


def _works_in(dtype: DType, found: Match) -> bool:
    """All arithmetic of a pattern happens in one integer type."""
    if found.work is None:
        found.work = dtype
    return dtype.is_integer and dtype == found.work


def _bind(wildcard: Expr, name: str, expr: Expr, context: DType, found: Match) -> bool:
    if not isinstance(wildcard, Opaque) and not expr.dtype.is_integer:
        return False
    if isinstance(wildcard, Value) and not isinstance(expr, Const):
        return False
    if isinstance(wildcard, Literal) and isinstance(expr, Const) and expr.name is not None:
        return False
    if name not in found.bound:
        found.bound[name], found.context[name] = expr, context
        return True
    if isinstance(wildcard, Value) and isinstance(expr, Const):
        return found.context[name] == context and wrap(int(expr.value), context) == found.value(name)
    return identical(found.bound[name], expr)


def instantiate(template: Expr, found: Match, old: Expr) -> Expr | None:
    """The replacement for `old`, of exactly its type (a cast is added where the type would change).

    None when a new constant does not fit the type.
    """
    new = _build(template, found, old, old.dtype)
    if new is None or new.dtype == old.dtype:
        return new
    return Cast(old.dtype, new, old.source)


def _build(template: Expr, found: Match, old: Expr, dtype: DType) -> Expr | None:
    match template:
        case Const(value):
            return Const(int(value), dtype, source=old.source)
        case Var(name):
            return found.bound[name]
        case Call("constant", (formula,)):
            values = found.range(formula)
            if values is None or values.low != values.high:
                return None
            number = values.low if dtype.kind is Kind.SIGNED else wrap(values.low, dtype)
            return Const(number, dtype, source=old.source) if number in full(dtype) else None
        case Cast(variable, Var(name)):
            return Cast(found.types[variable.name], found.bound[name], old.source)
        case Binary(op, left, right):
            assert found.work is not None
            a, b = _build(left, found, old, found.work), _build(right, found, old, found.work)
            if a is None or b is None:
                return None
            a = _short(a, b, found) if isinstance(left, Call) else a
            b = _short(b, a, found) if isinstance(right, Call) else b
            if common(a.dtype, b.dtype) != found.work:  # the operands alone would compute in another type than before
                a = Cast(found.work, a, old.source)
            return Binary(op, a, b, old.source)
    raise TypeError(f"a replacement cannot contain {template}")


def _short(new: Expr, other: Expr, found: Match) -> Expr:
    """A merged constant in the type of the last one that it replaces, where the operation keeps its type."""
    assert isinstance(new, Const)
    last = [node for node in found.bound.values() if isinstance(node, Const)][-1].dtype
    usable = int(new.value) in full(last) and last.kind is not Kind.BOOL and common(other.dtype, last) == found.work
    return Const(new.value, last, source=new.source) if usable else new

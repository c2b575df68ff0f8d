"""Ranges of integer expressions under C++ semantics: inclusive intervals, proved from declared facts and nothing else.

Where a result could leave its type, nothing is claimed: the range is then the whole type (signed overflow is undefined,
unsigned arithmetic wraps). `/` and `%` truncate toward zero. Floats have no range. Facts map the name of a variable or
of an array to the range of its values, next to the `low` and `high` that a `Var` carries itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernwright.generator.instructions.table import limits_of
from kernwright.generator.ir.evaluate import quotient, remainder
from kernwright.generator.ir.expr import (
    COMPARISONS,
    LOGICAL,
    SHIFTS,
    Binary,
    Call,
    Cast,
    Const,
    Element,
    Expr,
    Select,
    Unary,
    Var,
)
from kernwright.generator.ir.types import DType, Kind, common, promote


@dataclass(frozen=True, slots=True)
class Range:
    """The integers `low..high`, both included. Raises ValueError when there is none."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"empty range {self.low}..{self.high}")

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def within(self, other: Range) -> bool:
        """True when every value of this range is one of `other`."""
        return other.low <= self.low and self.high <= other.high

    def join(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def meet(self, other: Range) -> Range:
        """The integers that both hold. Raises ValueError when there is none."""
        return Range(max(self.low, other.low), min(self.high, other.high))


Facts = Mapping[str, Range]
"""What is known beside the declarations: from the name of a variable or of an array to the range of its values."""


def full(dtype: DType) -> Range:
    """Every value of an integer type."""
    return Range(dtype.low, dtype.high)


def wrap(value: int, dtype: DType) -> int:
    """`value` converted to an integer type: modulo 2^bits, and 0 or 1 for bool."""
    if dtype.kind is Kind.BOOL:
        return int(value != 0)
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind is Kind.SIGNED and value > dtype.high else value


def convert(values: Range, dtype: DType) -> Range:
    """The range after a conversion to `dtype`: exact where all values shift by the same multiple of 2^bits."""
    if values.within(full(dtype)):
        return values
    if dtype.kind is Kind.BOOL:
        return Range(1, 1) if 0 not in values else Range(0, 1)
    low, high = wrap(values.low, dtype), wrap(values.high, dtype)
    return Range(low, high) if high - low == values.high - values.low else full(dtype)


def exact(op: str, left: Range, right: Range) -> Range | None:
    """`left op right` over unbounded integers, for arithmetic, shifts and bit operations.

    Operands for which C++ leaves the result undefined (a zero divisor, a negative shift) are left out; None when that
    leaves nothing, or when no useful bound exists (bit operations on negative values).
    """
    match op:
        case "+":
            return Range(left.low + right.low, left.high + right.high)
        case "-":
            return Range(left.low - right.high, left.high - right.low)
        case "*":
            return _hull(a * b for a in (left.low, left.high) for b in (right.low, right.high))
        case "/":
            return _hull(quotient(a, b) for a in (left.low, left.high) for b in _divisors(right))
        case "%":
            return _remainders(left, right)
        case "<<" | ">>":
            amounts = [min(max(amount, 0), 64) for amount in (right.low, right.high)]
            if right.high < 0 or right.low > 64 or (op == "<<" and left.low < 0):
                return None
            ends = (left.low, left.high)
            return _hull(value << by if op == "<<" else value >> by for value in ends for by in amounts)
        case "&" if left.low >= 0 or right.low >= 0:
            return Range(0, min(side.high for side in (left, right) if side.low >= 0))
        case "|" | "^" if left.low >= 0 and right.low >= 0:
            high = (1 << max(left.high, right.high).bit_length()) - 1
            return Range(max(left.low, right.low) if op == "|" else 0, high)
    return None


def _hull(values: Iterable[int]) -> Range | None:
    found = list(values)
    return Range(min(found), max(found)) if found else None


def _divisors(right: Range) -> list[int]:
    """The divisors at which a quotient is extreme: the ends of the negative and of the positive part."""
    inner = [value for value in (-1, 1) if value in right]
    return [value for value in (right.low, right.high) if value != 0] + inner


def _remainders(left: Range, right: Range) -> Range | None:
    divisors = _divisors(right)
    if not divisors:
        return None
    most = max(abs(value) for value in divisors) - 1
    low, high = max(left.low, -most) if left.low < 0 else 0, min(left.high, most) if left.high > 0 else 0
    if right.low == right.high and (left.low >= 0 or left.high <= 0 or left.within(Range(-most, most))):
        c = right.low
        if quotient(left.low, c) == quotient(left.high, c):  # one quotient for all: the remainder runs along
            return Range(remainder(left.low, c), remainder(left.high, c))
    return Range(low, high)


def compare(op: str, left: Range, right: Range) -> bool | None:
    """What `left op right` is for all values, or None when both answers occur."""
    match op:
        case "<":
            return True if left.high < right.low else False if left.low >= right.high else None
        case "<=":
            return True if left.high <= right.low else False if left.low > right.high else None
        case ">" | ">=":
            return compare("<" if op == ">" else "<=", right, left)
        case "==":
            if left.low == left.high == right.low == right.high:
                return True
            return False if left.high < right.low or right.high < left.low else None
        case _:
            equal = compare("==", left, right)
            return None if equal is None else not equal


def truth(values: Range) -> bool | None:
    """Whether a value converts to true: None when both answers occur."""
    return True if 0 not in values else False if values.low == values.high else None


@dataclass(slots=True)
class Ranges:
    """The analysis of one set of facts; it remembers the nodes that it has seen.

    With `unbounded`, arithmetic gives the mathematical value even outside the type, and the nodes where that matters
    are collected in `leaving`. `used` collects the facts that the answers rest on, in the order in which they were met.
    """

    facts: Facts = field(default_factory=dict)
    unbounded: bool = False
    leaving: list[Expr] = field(default_factory=list)
    used: dict[str, Range] = field(default_factory=dict)
    _seen: dict[int, tuple[Expr, Range]] = field(default_factory=dict)

    def of(self, expr: Expr) -> Range:
        """The range of an integer expression.

        Raises TypeError for a float and ValueError for facts that exclude each other.
        """
        if not expr.dtype.is_integer:
            raise TypeError(f"a {expr.dtype} expression has no integer range")
        seen = self._seen.get(id(expr))
        if seen is None:
            self._seen[id(expr)] = seen = (expr, self._compute(expr))  # the node is kept, so that its id stays taken
        return seen[1]

    def converted(self, expr: Expr, dtype: DType) -> Range:
        """The range of an operand after the conversion that C++ applies to it."""
        values = self.of(expr)
        return values if self.unbounded else convert(values, dtype)

    def decided(self, expr: Expr) -> bool | None:
        """Whether a condition is true: None when that is open (a float is always open)."""
        return truth(self.of(expr)) if expr.dtype.is_integer else None

    def _compute(self, expr: Expr) -> Range:
        dtype = expr.dtype
        match expr:
            case Const(value):
                return Range(int(value), int(value))
            case Var(name, _, low, high):
                return self._fact(name, dtype, low, high)
            case Element(array, index):
                if self.unbounded:
                    self.of(index)
                return self._fact(array, dtype, None, None)
            case Unary("!", operand):
                return _answer(self.decided(operand), negate=True)
            case Unary(op, operand):
                zero, values = (Range(0, 0) if op == "-" else Range(-1, -1)), self.converted(operand, dtype)
                if op == "~" and dtype.kind is Kind.UNSIGNED:
                    return Range(dtype.high - values.high, dtype.high - values.low)
                found = exact("-", zero, values)
                wraps = found is not None and dtype.kind is Kind.UNSIGNED and not self.unbounded
                return convert(found, dtype) if found and wraps else self._settle(expr, found)
            case Cast(_, operand):
                return convert(self.of(operand), dtype) if operand.dtype.is_integer else full(dtype)
            case Select(condition, then, otherwise):
                chosen = self.decided(condition)
                sides = [side for side, live in ((then, True), (otherwise, False)) if chosen in (None, live)]
                return _join([self.converted(side, dtype) for side in sides])
            case Call(function, args):
                return self._call(function, args, dtype)
            case Binary():
                return self._binary(expr, dtype)

    def _fact(self, name: str, dtype: DType, low: int | None, high: int | None) -> Range:
        known = self.facts.get(name, full(dtype))
        bottom = max(known.low, dtype.low, dtype.low if low is None else low)
        top = min(known.high, dtype.high, dtype.high if high is None else high)
        if bottom > top:
            raise ValueError(f"the facts about {name} exclude each other: none of its {dtype} values is left")
        values = Range(bottom, top)
        if values != full(dtype):
            self.used[name] = values
        return values

    def _call(self, function: str, args: tuple[Expr, ...], dtype: DType) -> Range:
        if function in ("min", "max") and args and all(arg.dtype.is_integer for arg in args):
            pick, parts = (min if function == "min" else max), [self.converted(arg, dtype) for arg in args]
            return Range(pick(part.low for part in parts), pick(part.high for part in parts))
        if self.unbounded:
            for arg in args:
                if arg.dtype.is_integer:
                    self.of(arg)
        limits = limits_of(function)
        return Range(*limits) if limits is not None else full(dtype)

    def _binary(self, expr: Binary, dtype: DType) -> Range:
        op, left, right = expr.op, expr.left, expr.right
        if op in LOGICAL:
            first, second, absorbing = self.decided(left), self.decided(right), op == "||"
            if absorbing in (first, second):
                return _answer(absorbing)
            return _answer(None if None in (first, second) else not absorbing)
        if not (left.dtype.is_integer and right.dtype.is_integer):
            return Range(0, 1)  # a comparison of floats
        inner = promote(left.dtype) if op in SHIFTS else common(left.dtype, right.dtype)
        a = self.converted(left, inner)
        b = self.of(right) if op in SHIFTS else self.converted(right, inner)
        if self.unbounded and not (a.within(full(inner)) and (op in SHIFTS or b.within(full(inner)))):
            self.leaving.append(expr)
        if op in COMPARISONS:
            return _answer(compare(op, a, b))
        found = exact(op, a, b)
        if op == "-" and (divided := remainder_of(expr)) is not None:
            found = exact("%", a, Range(divided, divided))
        return self._settle(expr, found)

    def _settle(self, expr: Expr, found: Range | None) -> Range:
        """The range of a result that was computed over unbounded integers."""
        if found is None:
            return full(expr.dtype)
        if found.within(full(expr.dtype)):
            return found
        if self.unbounded:
            self.leaving.append(expr)
            return found
        return full(expr.dtype)


def remainder_of(expr: Binary) -> int | None:
    """The divisor c where `expr` is `x - (x / c) * c` or `x - c * (x / c)`, all in one type: that is `x % c`."""
    match expr:
        case Binary("-", x, Binary("*", Binary("/", y, Const(c)) as ratio, Const(d)) as product):
            pass
        case Binary("-", x, Binary("*", Const(d), Binary("/", y, Const(c)) as ratio) as product):
            pass
        case _:
            return None
    same = expr.dtype == product.dtype == ratio.dtype and x == y and c == d
    return int(c) if same and isinstance(c, int) and c > 0 else None


def _answer(known: bool | None, negate: bool = False) -> Range:
    return Range(0, 1) if known is None else Range(int(known != negate), int(known != negate))


def _join(parts: list[Range]) -> Range:
    return Range(min(part.low for part in parts), max(part.high for part in parts))


def range_of(expr: Expr, facts: Facts | None = None) -> Range:
    """The inclusive range of an integer expression; the whole type where nothing better is proved.

    Raises TypeError for a float expression, ValueError where facts and declarations leave a variable no value.
    """
    return Ranges(facts or {}).of(expr)


def fits(expr: Expr, dtype: DType, facts: Facts | None = None) -> bool:
    """True when every value of `expr`, computed without a wrap at any node, is proved to be one of `dtype`."""
    proof = width_proof(expr, facts)
    return proof.leaving is None and proof.values.within(full(dtype))


@dataclass(frozen=True, slots=True)
class WidthProof:
    """Why the types inside an expression are wide enough, or which node is not.

    `values` is the mathematical range of the whole. `leaving` is the first node (operands before operators) whose value
    can leave its type, or whose operand changes its value when C++ converts it; None when there is none. `used` are the
    facts that this rests on.
    """

    expr: Expr
    values: Range
    leaving: Expr | None
    used: tuple[tuple[str, Range], ...]

    def __str__(self) -> str:
        facts = ", ".join(f"{name} in {values}" for name, values in self.used) or "no facts"
        verdict = "stays in its types" if self.leaving is None else f"can leave {self.leaving.dtype}"
        return f"{verdict}: {self.values} ({facts})"


def width_proof(expr: Expr, facts: Facts | None = None) -> WidthProof:
    """The range of `expr` over unbounded integers, the first node that can leave its type, and the facts used."""
    analysis = Ranges(facts or {}, unbounded=True)
    values = analysis.of(expr)
    return WidthProof(expr, values, next(iter(analysis.leaving), None), tuple(analysis.used.items()))


def must_widen(expr: Expr, facts: Facts | None = None) -> bool:
    """True when some node of an offset or size is not proved to keep its mathematical value in its own type."""
    return width_proof(expr, facts).leaving is not None

"""The exact conversion between sympy's integer formulas (shapes, grids, workspace sizes) and nodes of the program.

sympy divides as mathematics does and rounds `floor` down; C++ truncates. A quotient or remainder is therefore converted
only where ranges prove its operands non-negative, and never through floating point. sympy is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Element, Expr, Select, Unary, Var, integer
from kernwright.generator.ir.types import DType, Kind, boolean, common, i32, i64
from kernwright.generator.passes.ranges import Facts, Range, Ranges, full
from kernwright.generator.passes.widen import widen

LARGEST_POWER = 4
"""A power is written as a product; larger exponents than this are refused."""


class SymbolicError(ValueError):
    """A formula has no exact integer meaning in C++. The message names the term and the reason."""


def from_sympy(formula: Any, variables: Mapping[str, Var], dtype: DType = i32, facts: Facts | None = None) -> Expr:
    """The nodes for an integer formula over `variables` (by the names of its symbols).

    Understands integers, symbols, sums, products, small powers, `floor(a/b)`, `ceiling(a/b)`, `Mod`, `Min`, `Max`,
    `Piecewise`, relations and And/Or/Not. `ceiling(a/b)` becomes `(a + b - 1) / b`. The result is computed in `dtype`,
    and in i64 from the first operation on that ranges do not prove to fit. Relations are boolean whatever `dtype` is.
    Raises SymbolicError for everything that has no exact integer meaning, naming the term.
    """
    if dtype not in (i32, i64):
        raise SymbolicError(f"a formula is computed in i32 or i64, not in {dtype}")
    import sympy

    expr = widen(_Reader(sympy, variables, facts or {}).read(sympy.sympify(formula)), facts)
    analysis = Ranges(facts or {}, unbounded=True)
    analysis.of(expr)
    for part in analysis.leaving:
        raise SymbolicError(f"{formula}: a part of it can be {analysis.of(part)}, outside i64: declare smaller ranges")
    if expr.dtype in (boolean, dtype) or expr.dtype == i64:
        return expr
    return Const(expr.value, dtype) if isinstance(expr, Const) and expr.name is None else Cast(dtype, expr)


class _Reader:
    """From sympy to nodes; terms stand in sympy's printing order, which depends on nothing but the formula."""

    def __init__(self, sympy: Any, variables: Mapping[str, Var], facts: Facts) -> None:
        self.sympy, self.variables, self.facts = sympy, variables, facts

    def read(self, term: Any) -> Expr:
        sympy = self.sympy
        match term:
            case sympy.Integer():
                return self._integer(int(term), term)
            case sympy.Symbol():
                if term.name not in self.variables:
                    known = ", ".join(sorted(self.variables)) or "none"
                    raise SymbolicError(f"{term}: no variable of this name (known: {known})")
                variable = self.variables[term.name]
                if not variable.dtype.is_integer:
                    raise SymbolicError(f"{term} is a {variable.dtype}; a formula is over integers")
                return variable
            case sympy.Add():
                return self._sum(term.as_ordered_terms())
            case sympy.Mul():
                return self._product(term)
            case sympy.Pow():
                base, exponent = term.args
                if not (exponent.is_Integer and 1 <= int(exponent) <= LARGEST_POWER):
                    raise SymbolicError(
                        f"{term}: only powers with an exponent of 1 to {LARGEST_POWER} are integers in C++"
                    )
                factor = self.read(base)
                return reduce(lambda left, _: Binary("*", left, factor), range(int(exponent) - 1), factor)
            case sympy.floor() | sympy.ceiling():
                return self._quotient(term)
            case sympy.Mod():
                dividend, divisor = self.read(term.args[0]), self.read(term.args[1])
                self._require(dividend, 0, term, "Mod rounds down and C++'s % truncates")
                self._require(divisor, 1, term, "a remainder needs a positive divisor")
                return Binary("%", dividend, divisor)
            case sympy.Min() | sympy.Max():
                name = "min" if isinstance(term, sympy.Min) else "max"
                return self._chain(term, lambda a, b: _extreme(name, a, b))
            case sympy.Piecewise():
                return self._piecewise(term)
        return self.condition(term)

    def condition(self, term: Any) -> Expr:
        sympy = self.sympy
        match term:
            case sympy.logic.boolalg.BooleanTrue() | sympy.logic.boolalg.BooleanFalse():
                return Const(int(bool(term)), boolean)
            case sympy.core.relational.Relational():
                return Binary(str(term.rel_op), self.read(term.lhs), self.read(term.rhs))
            case sympy.And():
                return self._chain(term, lambda a, b: Binary("&&", a, b))
            case sympy.Or():
                return self._chain(term, lambda a, b: Binary("||", a, b))
            case sympy.Not():
                return Unary("!", self.condition(term.args[0]))
        raise SymbolicError(f"{term}: {type(term).__name__} has no exact integer meaning in C++")

    def _integer(self, value: int, term: Any) -> Const:
        for dtype in (i32, i64):
            if value in full(dtype):
                return Const(value, dtype)
        raise SymbolicError(f"{term} is outside i64 ({i64.low}..{i64.high})")

    def _chain(self, term: Any, join: Callable[[Expr, Expr], Expr]) -> Expr:
        return reduce(join, (self.read(arg) for arg in sorted(term.args, key=self.sympy.default_sort_key)))

    def _sum(self, terms: list[Any]) -> Expr:
        positive = next((place for place, part in enumerate(terms) if not part.could_extract_minus_sign()), 0)
        terms = [terms[positive], *terms[:positive], *terms[positive + 1 :]]  # `m - n`, not `-n + m`
        total = self.read(terms[0])
        for part in terms[1:]:
            minus = bool(part.could_extract_minus_sign())
            total = Binary("-" if minus else "+", total, self.read(-part if minus else part))
        return total

    def _product(self, term: Any) -> Expr:
        factors = list(term.as_ordered_factors())
        for factor in factors:
            if (factor.is_Rational and not factor.is_Integer) or (factor.is_Pow and not factor.exp.is_positive):
                raise SymbolicError(f"{term}: a fraction is no integer; write floor({term}) or ceiling({term})")
        negative = factors[0] == -1 and len(factors) > 1
        result = reduce(lambda a, b: Binary("*", a, b), (self.read(factor) for factor in factors[negative:]))
        return Unary("-", result) if negative else result

    def _quotient(self, term: Any) -> Expr:
        sympy = self.sympy
        over, under = sympy.fraction(sympy.together(term.args[0]))
        dividend, divisor = self.read(over), self.read(under)
        if under == 1:
            return dividend
        rounds = (
            "floor rounds down and C++'s / truncates" if isinstance(term, sympy.floor) else "(a + b - 1) / b truncates"
        )
        self._require(dividend, 0, term, rounds)
        self._require(divisor, 1, term, "a quotient needs a positive divisor")
        if isinstance(term, sympy.floor):
            return Binary("/", dividend, divisor)
        if isinstance(divisor, Const):
            return Binary("/", Binary("+", dividend, integer(int(divisor.value) - 1, divisor.dtype)), divisor)
        return Binary("/", Binary("-", Binary("+", dividend, divisor), integer(1)), divisor)

    def _require(self, expr: Expr, least: int, term: Any, why: str) -> None:
        extent = Ranges(self.facts, unbounded=True).of(expr)
        if extent.low < least:
            from kernwright.generator.emit.expressions import print_expression

            raise SymbolicError(f"{term}: {print_expression(expr)} can be {extent}, not proved >= {least}; {why}")

    def _piecewise(self, term: Any) -> Expr:
        *cases, (last, always) = term.args
        if always != True:  # noqa: E712  (sympy's true is no Python bool)
            raise SymbolicError(f"{term}: the last piece needs the condition True, or some input has no value")
        result = self.read(last)
        for value, condition in reversed(cases):
            result = Select(self.condition(condition), self.read(value), result)
        return result


def _extreme(name: str, left: Expr, right: Expr) -> Call:
    """`min` or `max` in one type, as the overloads of CUDA and of C++ ask."""
    dtype = common(left.dtype, right.dtype)
    return Call(name, tuple(arg if arg.dtype == dtype else Cast(dtype, arg) for arg in (left, right)), dtype)


def to_sympy(expr: Expr, facts: Facts | None = None) -> Any:
    """The formula with the value of `expr` at every input where C++ defines it: `/` and `%` truncate in it too.

    Raises SymbolicError where sympy's unbounded integers would differ: a lossy cast, an unsigned result that can wrap,
    bit operations, floats, memory and calls other than min and max.
    """
    import sympy

    return _Writer(sympy, Ranges(facts or {})).write(expr)


class _Writer:
    """From nodes to sympy."""

    def __init__(self, sympy: Any, ranges: Ranges) -> None:
        self.sympy, self.ranges = sympy, ranges

    def write(self, expr: Expr) -> Any:
        sympy = self.sympy
        match expr:
            case _ if not expr.dtype.is_integer:
                raise self._refuse(expr, "is no integer")
            case Const(value) if expr.dtype != boolean:
                return sympy.Integer(int(value))
            case Var(name) if expr.dtype != boolean:
                return sympy.Symbol(name, integer=True, nonnegative=True if self.ranges.of(expr).low >= 0 else None)
            case Unary("-", operand):
                return -self.number(operand, expr, expr.dtype)
            case Binary("+" | "-" | "*" | "/" | "%" as op, left, right):
                return self._arithmetic(
                    op, expr, self.number(left, expr, expr.dtype), self.number(right, expr, expr.dtype)
                )
            case Cast(dtype, operand) if dtype != boolean:
                return self.number(operand, expr, dtype)
            case Select(condition, then, otherwise):
                yes, no = self.number(then, expr, expr.dtype), self.number(otherwise, expr, expr.dtype)
                return sympy.Piecewise((yes, self.truth(condition)), (no, True))
            case Call("min" | "max" as name, args):
                pick = sympy.Min if name == "min" else sympy.Max
                return pick(*(self.number(arg, expr, expr.dtype) for arg in args))
            case _ if expr.dtype == boolean:
                return self.truth(expr)
            case Call() | Element() | _:
                raise self._refuse(expr, "has no formula over unbounded integers")

    def number(self, operand: Expr, parent: Expr, dtype: DType) -> Any:
        """An operand after its conversion to `dtype`, which must keep its value."""
        if not operand.dtype.is_integer or not self.ranges.of(operand).within(full(dtype)):
            raise self._refuse(parent, f"converts a {operand.dtype} operand to {dtype}, which can change its value")
        if operand.dtype != boolean:
            return self.write(operand)
        return self.sympy.Piecewise((1, self.truth(operand)), (0, True))

    def truth(self, expr: Expr) -> Any:
        sympy = self.sympy
        match expr:
            case Const(value):
                return sympy.true if value else sympy.false
            case Unary("!", operand):
                return sympy.Not(self.truth(operand))
            case Binary("&&" | "||" as op, left, right):
                return (sympy.And if op == "&&" else sympy.Or)(self.truth(left), self.truth(right))
            case Binary("<" | "<=" | ">" | ">=" | "==" | "!=" as op, left, right):
                inner = common(left.dtype, right.dtype)
                return sympy.Rel(self.number(left, expr, inner), self.number(right, expr, inner), op)
            case Cast(_, operand) if expr.dtype == boolean:
                return self.truth(operand)
            case Var(name) if expr.dtype == boolean:
                return sympy.Ne(sympy.Symbol(name, integer=True, nonnegative=True), 0)
            case _ if expr.dtype != boolean:
                return sympy.Ne(self.write(expr), 0)
        raise self._refuse(expr, "has no formula over unbounded integers")

    def _arithmetic(self, op: str, expr: Binary, a: Any, b: Any) -> Any:
        sympy = self.sympy
        wide = Ranges(self.ranges.facts, unbounded=True)
        if not wide.of(expr).within(full(expr.dtype)) and expr.dtype.kind is Kind.UNSIGNED:
            raise self._refuse(expr, f"can wrap in {expr.dtype}")
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
        plain = self.ranges.of(expr.left).low >= 0 and self.ranges.of(expr.right).low >= 1
        ratio = (
            sympy.floor(a / b) if plain else sympy.sign(a) * sympy.sign(b) * sympy.floor(sympy.Abs(a) / sympy.Abs(b))
        )
        if op == "/":
            return ratio
        return sympy.Mod(a, b) if plain else a - b * ratio

    def _refuse(self, expr: Expr, why: str) -> SymbolicError:
        from kernwright.generator.emit.expressions import print_expression

        return SymbolicError(f"{print_expression(expr)} {why}")


def proved_range(formula: Any, variables: Mapping[str, Var], facts: Facts | None = None) -> Range:
    """The inclusive range of an integer formula, from the ranges of its variables. Raises as `from_sympy` does."""
    return Ranges(facts or {}, unbounded=True).of(from_sympy(formula, variables, i64, facts))

"""The pass that makes offsets wide enough: 64 bits before the multiplication, where the ranges do not prove 32."""

from __future__ import annotations

from kernwright.generator.ir.expr import Binary, Call, Cast, Const, Expr, Unary, children, rebuild
from kernwright.generator.ir.types import DType, common, i64
from kernwright.generator.passes.ranges import Facts, Ranges


def widen(expr: Expr, facts: Facts | None = None) -> Expr:
    """The same offset with a cast to 64 bits on the left operand of every operation that could leave a narrower type.

    Operations above a widened one become 64-bit by C++'s own conversions. The result has the mathematical value of
    `expr` wherever that fits 64 bits; an expression that already has it comes back unchanged.
    """
    operands = tuple(widen(operand, facts) if operand.dtype.is_integer else operand for operand in children(expr))
    node = (
        expr if all(new is old for new, old in zip(operands, children(expr), strict=True)) else rebuild(expr, operands)
    )
    match node:
        case Call("min" | "max" as function, (first, *rest), dtype) if dtype.is_integer:
            wide = dtype
            for operand in (first, *rest):
                wide = common(wide, operand.dtype)
            args = node.args if wide == dtype else tuple(_cast(arg, wide) for arg in node.args)
            return Call(function, args, wide, node.source)
        case Binary(op, left, right) if left.dtype.is_integer and right.dtype.is_integer:
            widest = max(left.dtype.bits, right.dtype.bits if op not in ("<<", ">>") else 0)
            if widest < i64.bits and _leaves(node, facts):
                return Binary(op, _cast(left, i64), right, node.source)
        case Unary(op, operand) if operand.dtype.is_integer and operand.dtype.bits < i64.bits and _leaves(node, facts):
            return Unary(op, _cast(operand, i64), node.source)
    return node


def _leaves(node: Expr, facts: Facts | None) -> bool:
    analysis = Ranges(facts or {}, unbounded=True)
    analysis.of(node)
    return any(leaving is node for leaving in analysis.leaving)


def _cast(operand: Expr, dtype: DType) -> Expr:
    """A conversion; an unnamed constant takes the type itself."""
    if operand.dtype == dtype:
        return operand
    if isinstance(operand, Const) and operand.name is None and dtype.low <= operand.value <= dtype.high:
        return Const(operand.value, dtype, source=operand.source)
    return Cast(dtype, operand, operand.source)

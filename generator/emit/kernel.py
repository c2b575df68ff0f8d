"""The text of a kernel file: what it computes, the table of constants with reasons, and the kernel, as a reviewer reads it."""

from __future__ import annotations

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.emit.headers import include_of
from kernwright.generator.emit.templates import environment, header_line
from kernwright.generator.instructions import lookup
from kernwright.generator.ir.expr import Expr
from kernwright.generator.ir.program import LoweredProgram, NamedConstant, Parameter, StaticAssert, TensorParameter
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

INDENT = "  "


def print_kernel(program: LoweredProgram) -> str:
    """The CUDA text of one lowered program, ending in a newline."""
    return (
        environment()
        .get_template("kernel.cu.j2")
        .render(
            header=header_line(program.source),
            symbol=program.symbol,
            doc=program.doc.splitlines(),
            include=include_of(program),
            constants=[_constant(row) for row in program.constants],
            asserts=[_assert(item) for item in program.asserts],
            parameters=[_parameter(parameter) for parameter in program.parameters],
            body=print_statements(program.body, 1),
        )
    )


def print_statements(statements: tuple[Statement, ...], depth: int) -> list[str]:
    """The lines of some statements, indented `depth` levels."""
    lines: list[str] = []
    for statement in statements:
        lines += _statement(statement, depth)
    return lines


def _statement(statement: Statement, depth: int) -> list[str]:
    pad = INDENT * depth
    match statement:
        case Let(var, value, why):
            return [f"{pad}const {var.dtype.cpp} {var.name} = {_expression(value)};{_why(why)}"]
        case Declare(var, value, why):
            return [f"{pad}{var.dtype.cpp} {var.name} = {_expression(value)};{_why(why)}"]
        case RegisterArray(name, dtype, size, why, zero):
            start = " = {}" if zero else ""
            return [f"{pad}{dtype.cpp} {name}[{_expression(size)}]{start};{_why(why)}"]
        case Assign(target, value, op):
            return [f"{pad}{_expression(target)} {op} {_expression(value)};"]
        case Repeat(index, count, body, unroll):
            head = f"{pad}for (int {index.name} = 0; {index.name} < {_expression(count)}; ++{index.name}) {{"
            pragma = ["#pragma unroll"] if unroll else []
            return [*pragma, head, *print_statements(body, depth + 1), f"{pad}}}"]
        case If(condition, then, otherwise, why):
            head = f"{pad}if ({_expression(condition)}) {{{_why(why)}"
            alternative = [f"{pad}}} else {{", *print_statements(otherwise, depth + 1)] if otherwise else []
            return [head, *print_statements(then, depth + 1), *alternative, f"{pad}}}"]
        case Execute(instruction, operands, why):
            arguments = ", ".join(_operand(operand) for operand in operands)
            return [f"{pad}{_spell(instruction)}({arguments});{_why(why)}"]
        case Remark(text):
            return [f"{pad}// {text}"]
        case Blank():
            return [""]


def _operand(operand: Operand) -> str:
    match operand:
        case Pointer(array, offset):
            address = _expression(offset)
            return array if address == "0" else f"{array} + {address}"
        case ArrayOperand(name):
            return name
        case _:
            return _expression(operand)


def _expression(expr: Expr) -> str:
    return print_expression(expr, _spell)


def _spell(name: str) -> str:
    return lookup(name).spelling


def _why(why: str) -> str:
    return f"  // {why}" if why else ""


def _constant(row: NamedConstant) -> str:
    return f"constexpr {row.constant.dtype.cpp} {row.constant.name} = {_expression(row.value)};{_why(row.reason)}"


def _assert(item: StaticAssert) -> str:
    return f'static_assert({_expression(item.condition)}, "{item.reason}");'


def _parameter(parameter: Parameter) -> str:
    if isinstance(parameter, TensorParameter):
        const = "const " if parameter.access == "read" else ""
        return f"{const}{parameter.dtype.cpp}* __restrict__ {parameter.name}"
    return f"{parameter.dtype.cpp} {parameter.name}"

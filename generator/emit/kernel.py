"""The text of a kernel file: what it computes, the table of constants with reasons, and the kernel, as a reviewer reads it."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import ARCHITECTURES, Architecture
from kernwright.generator.emit.expressions import print_call, print_expression
from kernwright.generator.emit.headers import include_of
from kernwright.generator.emit.templates import environment, header_line
from kernwright.generator.instructions import lookup
from kernwright.generator.ir import names
from kernwright.generator.ir.expr import Expr, without_names
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
            contract=_contract(program),
            bounds=", ".join([names.THREADS] + ([names.BLOCKS_PER_SM] if program.launch.min_blocks else [])),
            constants=[_constant(row) for row in program.constants],
            asserts=[_assert(item) for item in program.asserts],
            parameters=[_parameter(parameter) for parameter in program.parameters],
            body=print_statements(program.body, 1, ARCHITECTURES[program.arch]),
        )
    )


def print_statements(statements: tuple[Statement, ...], depth: int, arch: Architecture | None = None) -> list[str]:
    """The lines of some statements, indented `depth` levels; instructions are spelled as on `arch`."""
    return _Printer(arch).lines(statements, depth)


@dataclass(frozen=True, slots=True)
class _Printer:
    """Statements to lines. Instructions are spelled as the table spells them on the architecture."""

    arch: Architecture | None

    def lines(self, statements: tuple[Statement, ...], depth: int) -> list[str]:
        return [line for statement in statements for line in self._statement(statement, depth)]

    def _statement(self, statement: Statement, depth: int) -> list[str]:
        pad = INDENT * depth
        match statement:
            case Let(var, value, why):
                return [f"{pad}const {var.dtype.cpp} {var.name} = {self._expression(value)};{_why(why)}"]
            case Declare(var, value, why):
                return [f"{pad}{var.dtype.cpp} {var.name} = {self._expression(value)};{_why(why)}"]
            case RegisterArray(name, dtype, size, why, zero):
                start = " = {}" if zero else ""
                return [f"{pad}{dtype.cpp} {name}[{self._expression(size)}]{start};{_why(why)}"]
            case Assign(target, value, op):
                return [f"{pad}{self._expression(target)} {op} {self._expression(value)};"]
            case Repeat(index, count, body, unroll):
                head = f"{pad}for (int {index.name} = 0; {index.name} < {self._expression(count)}; ++{index.name}) {{"
                pragma = ["#pragma unroll"] if unroll else []
                return [*pragma, head, *self.lines(body, depth + 1), f"{pad}}}"]
            case If(condition, then, otherwise, why):
                head = f"{pad}if ({self._expression(condition)}) {{{_why(why)}"
                alternative = [f"{pad}}} else {{", *self.lines(otherwise, depth + 1)] if otherwise else []
                return [head, *self.lines(then, depth + 1), *alternative, f"{pad}}}"]
            case Execute(instruction, operands, why):
                call = print_call(self._spell(instruction), [self._operand(operand) for operand in operands])
                return [f"{pad}{call};{_why(why)}"]
            case Remark(text):
                return [f"{pad}// {text}"]
            case Blank():
                return [""]

    def _operand(self, operand: Operand) -> str:
        match operand:
            case Pointer(array, offset):
                address = self._expression(offset)
                return array if address == "0" else f"{array} + {address}"
            case ArrayOperand(name):
                return name
            case _:
                return self._expression(operand)

    def _expression(self, expr: Expr) -> str:
        return print_expression(expr, self._spell)

    def _spell(self, name: str) -> str:
        return lookup(name, self.arch).spelling


def _contract(program: LoweredProgram) -> list[str]:
    """How the kernel is to be launched, for a reader who has only the text."""
    table = frozenset(str(row.constant.name) for row in program.constants)
    grid = [print_expression(without_names(extent, table)) for extent in program.launch.grid]
    while len(grid) > 1 and grid[-1] == "1":
        grid.pop()
    alignments = sorted({tensor.alignment for tensor in program.tensors})
    aligned = " or ".join(str(number) for number in alignments)
    lines = [f"Launch: {' x '.join(grid)} blocks of {names.THREADS} threads."]
    written = [tensor.name for tensor in program.tensors if tensor.access != "read"]
    apart = (
        f"{written[0]} overlaps no other"
        if len(written) == 1
        else f"{', '.join(written)} overlap no other and not each other"
    )
    lines.append(f"Tensors are contiguous and {aligned}-byte aligned; {apart}.")
    return lines


def _why(why: str) -> str:
    return f"  // {why}" if why else ""


def _constant(row: NamedConstant) -> str:
    return f"constexpr {row.constant.dtype.cpp} {row.constant.name} = {print_expression(row.value)};{_why(row.reason)}"


def _assert(item: StaticAssert) -> str:
    return f'static_assert({print_expression(item.condition)}, "{item.reason}");'


def _parameter(parameter: Parameter) -> str:
    if isinstance(parameter, TensorParameter):
        const = "const " if parameter.access == "read" else ""
        return f"{const}{parameter.dtype.cpp}* __restrict__ {parameter.name}"
    return f"{parameter.dtype.cpp} {parameter.name}"

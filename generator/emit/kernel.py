"""The text of a kernel file: what it computes, the table of constants with reasons, and the kernel, as a reviewer reads it."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import ARCHITECTURES, Architecture
from kernwright.generator.emit.expressions import print_call, print_expression
from kernwright.generator.emit.headers import include_of
from kernwright.generator.emit.templates import environment, header_line
from kernwright.generator.emit.wrap import wrapped
from kernwright.generator.instructions import lookup
from kernwright.generator.ir import names
from kernwright.generator.ir.expr import Const, Expr, Var, without_names
from kernwright.generator.ir.program import (
    Argument,
    Function,
    LoweredProgram,
    NamedConstant,
    ScalarParameter,
    SharedField,
    StaticAssert,
    TensorMap,
    TensorParameter,
)
from kernwright.generator.ir.statement import (
    AdvanceRing,
    ArrayOperand,
    Assign,
    Blank,
    CallFunction,
    Declare,
    DeclareRing,
    DeclareShared,
    Execute,
    If,
    Let,
    MapOperand,
    Operand,
    Pointer,
    RegisterArray,
    Remark,
    Repeat,
    SharedOperand,
    Statement,
)
from kernwright.generator.ir.types import u32, u64

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
            bounds=_bounds(program),
            constants=[_constant(row) for row in program.constants],
            asserts=[line for item in program.asserts for line in wrapped(_assert(item))],
            shared=[_field(field) for field in program.shared],
            shared_bytes=program.launch.dynamic_shared_bytes,
            functions=[_function(function, ARCHITECTURES[program.arch]) for function in program.functions],
            parameters=[_parameter(parameter) for parameter in program.arguments],
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
        found: list[str] = []
        for position, statement in enumerate(statements):
            loop = depth == 1 and isinstance(statement, Repeat) and not statement.unroll
            if loop and position and found[-1]:
                found.append("")
            found += self._statement(statement, depth)
            if loop and position + 1 < len(statements):
                found.append("")
        return found

    def _statement(self, statement: Statement, depth: int) -> list[str]:
        pad = INDENT * depth
        match statement:
            case Let(var, value, why):
                return wrapped(f"{pad}const {var.dtype.cpp} {var.name} = {self._expression(value)};{_why(why)}")
            case Declare(var, value, why):
                return [f"{pad}{var.dtype.cpp} {var.name} = {self._expression(value)};{_why(why)}"]
            case RegisterArray():
                return [pad + self._array(statement)]
            case Assign(target, value, op):
                return wrapped(f"{pad}{self._expression(target)} {op} {self._expression(value)};")
            case Repeat(index, count, body, unroll, first, step):
                begin, end, by = (self._expression(part) for part in (first, count, step))
                advance = f"++{index.name}" if by == "1" else f"{index.name} += {by}"
                head = f"{pad}for ({index.dtype.cpp} {index.name} = {begin}; {index.name} < {end}; {advance}) {{"
                pragma = ["#pragma unroll"] if unroll else []
                return [*pragma, head, *self.lines(body, depth + 1), f"{pad}}}"]
            case If(condition, then, otherwise, why):
                head = f"{pad}if ({self._expression(condition)}) {{{_why(why)}"
                alternative = [f"{pad}}} else {{", *self.lines(otherwise, depth + 1)] if otherwise else []
                if len(otherwise) == 1 and isinstance(otherwise[0], If):
                    branch, *rest = self._statement(otherwise[0], depth)
                    return [head, *self.lines(then, depth + 1), f"{pad}}} else {branch.lstrip()}", *rest]
                return [head, *self.lines(then, depth + 1), *alternative, f"{pad}}}"]
            case Execute(instruction, operands, why):
                call = print_call(self._spell(instruction), [self._operand(operand) for operand in operands])
                return wrapped(f"{pad}{call};{_why(why)}")
            case DeclareRing(name, stages, side, first_stage):
                ring = f"Ring<{self._expression(stages)}>"
                start = self._expression(first_stage) if first_stage is not None else ""
                return [f"{pad}{ring} {name} = {ring}::{side}({start});"]
            case AdvanceRing(name, steps):
                return [f"{pad}{name}.advance({self._expression(steps) if steps is not None else ''});"]
            case CallFunction(name, arguments, why):
                return wrapped(f"{pad}{name}({', '.join(arguments)});{_why(why)}")
            case DeclareShared(alignment):
                return [
                    f"{pad}extern __shared__ __align__({alignment}) unsigned char shared_bytes[];",
                    f"{pad}Shared& {names.SHARED} = *reinterpret_cast<Shared*>(shared_bytes);",
                ]
            case Remark(text):
                return [f"{pad}// {text}"]
            case Blank():
                return [""]

    def _array(self, item: RegisterArray) -> str:
        rows = f"[{self._expression(item.rows)}]" if item.rows is not None else ""
        extents = f"{rows}[{self._expression(item.size)}]"
        if item.alias is not None:
            return f"{item.dtype.cpp} (&{item.name}){extents} = {item.alias};{_why(item.why)}"
        return f"{item.dtype.cpp} {item.name}{extents}{' = {}' if item.zero else ''};{_why(item.why)}"

    def _operand(self, operand: Operand) -> str:
        match operand:
            case Pointer(array, offset):
                return self._plus(array, offset)
            case ArrayOperand(name, row, offset):
                return self._plus(name if row is None else f"{name}[{self._expression(row)}]", offset)
            case SharedOperand(member, index, offset):
                path = f"{names.SHARED}.{member}"
                return self._plus(path if index is None else f"{path}[{self._expression(index)}]", offset)
            case MapOperand(name):
                return name
            case _:
                return self._expression(operand)

    def _plus(self, start: str, offset: Expr | None) -> str:
        address = "0" if offset is None else self._expression(offset)
        return start if address == "0" else f"{start} + {address}"

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
    memory = ", sizeof(Shared) bytes of dynamic shared memory" if program.shared else ""
    blocks = "1 block" if grid == ["1"] else f"{' x '.join(grid)} blocks"
    lines = [f"Launch: {blocks} of {names.THREADS} threads{memory}."]
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
    value = print_expression(row.value)
    if (
        isinstance(row.value, Const) and row.value.dtype in (u32, u64) and row.value.value > 0xFFFF
    ):  # words of descriptors
        value = f"0x{int(row.value.value):0{row.value.dtype.bits // 4}X}{row.value.dtype.suffix}"
    return f"constexpr {row.constant.dtype.cpp} {row.constant.name} = {value};{_why(row.reason)}"


def _assert(item: StaticAssert) -> str:
    return f'static_assert({print_expression(item.condition)}, "{item.reason}");'


def _parameter(parameter: Argument) -> str:
    match parameter:
        case TensorParameter(name, dtype, access=access):
            const = "const " if access == "read" else ""
            return f"{const}{dtype.cpp}* __restrict__ {name}"
        case TensorMap(name):
            return f"const __grid_constant__ CUtensorMap {name}"
        case ScalarParameter(name, dtype):
            return f"{dtype.cpp} {name}"


def _passed(argument: Argument | Var) -> str:
    """A parameter of a device function."""
    match argument:
        case TensorMap(name):
            return f"const CUtensorMap& {name}"
        case Var(name, dtype):
            return f"{dtype.cpp} {name}"
        case _:
            return _parameter(argument)


def _function(function: Function, arch: Architecture) -> dict[str, object]:
    """The parts of a device function for the template."""
    parameters = ", ".join([f"Shared& {names.SHARED}", *(_passed(item) for item in function.arguments)])
    return {
        "remarks": function.remarks,
        "head": wrapped(f"__device__ __forceinline__ void {function.name}({parameters}) {{"),
        "body": print_statements(function.body, 1, arch),
    }


def _field(field: SharedField) -> str:
    """A member of struct Shared."""
    extents = "".join(f"[{print_expression(extent)}]" for extent in (field.count, field.size) if extent is not None)
    natural = field.alignment <= field.dtype.bytes
    align = "" if natural else f"alignas({field.alignment}) "
    return f"{align}{field.dtype.cpp} {field.name}{extents};{_why(field.why)}"


def _bounds(program: LoweredProgram) -> str:
    blocks = program.launch.min_blocks
    named = any(row.constant.name == names.BLOCKS_PER_SM for row in program.constants)
    return ", ".join([names.THREADS, *([names.BLOCKS_PER_SM if named else str(blocks)] if blocks else [])])

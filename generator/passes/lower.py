"""From a description to the lowered program of one architecture: choose the lowering, simplify, collect what is used."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernwright.generator.arch import Architecture
from kernwright.generator.errors import LayoutFault, ProgramFault
from kernwright.generator.instructions import lookup, table
from kernwright.generator.ir import names
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Call, Expr, children
from kernwright.generator.ir.program import LoweredProgram, NamedConstant
from kernwright.generator.ir.statement import (
    Assign,
    Declare,
    DeclareRing,
    Execute,
    If,
    Let,
    Repeat,
    Statement,
    expressions_of,
)
from kernwright.generator.passes.check_widths import check_widths
from kernwright.generator.passes.eliminate import eliminate, names_in, variables_of
from kernwright.generator.passes.lower_rows import lower_rows
from kernwright.generator.passes.roles import lower_roles
from kernwright.generator.passes.simplify import Applied, simplify
from kernwright.generator.passes.simplify_program import simplify_statements


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered program and the rewrites that simplified it, in the order of the text."""

    program: LoweredProgram
    applied: tuple[Applied, ...]


def lower(description: Description, arch: Architecture) -> Lowered:
    """Lower `description` for `arch`. Raises LayoutFault KW0305 for operations that have no lowering there yet."""
    if description.roles:
        return _with_roles(description, arch)
    if description.pipelines or description.accumulators:
        raise LayoutFault(
            "KW0305",
            "pipelines and products outside roles are not lowered",
            description.source,
            where=f"on {arch.name}",
            fix='Put the work into `with k.role("name", ...):`.',
        )
    raw_body, launch = lower_rows(description, arch)
    check_widths(raw_body)
    simplified, applied = simplify_statements(raw_body)
    body = eliminate(simplified)
    instructions = instructions_of(body)
    if not any(not lookup(name).pure and "global" in lookup(name).effects.writes for name in instructions):
        raise ProgramFault(
            "KW0605",
            f"program {description.symbol!r} stores nothing",
            description.source,
            where=f"on {arch.name}",
            detail="its stores stand in conditions that its limits and constants prove false.",
        )
    x, y, z = (simplify(extent).expr for extent in launch.grid)
    program = LoweredProgram(
        family=description.family,
        name=description.name,
        arch=arch.name,
        doc=description.doc,
        parameters=description.parameters,
        constants=_used_constants(description, body),
        asserts=description.asserts,
        launch=replace(launch, grid=(x, y, z)),
        body=body,
        instructions=instructions,
        arguments=description.parameters,
        source=description.source,
    )
    return Lowered(program, applied)


def _with_roles(description: Description, arch: Architecture) -> Lowered:
    """A program with roles: functions, shared memory, and the kernel that dispatches them."""
    parts = lower_roles(description, arch)
    bodies = (parts.body, *(function.body for function in parts.functions))
    used = {name for body in bodies for name in names_in(body)} | {names.THREADS, names.BLOCKS_PER_SM}
    used |= {name for item in parts.asserts for name in variables_of(item.condition)}
    used |= {
        str(size.name) for item in parts.shared for size in (item.count, item.size) if size is not None and size.name
    }
    for row in reversed(parts.constants):
        if row.constant.name in used:
            used |= variables_of(row.value)
    x, y, z = (simplify(extent).expr for extent in parts.launch.grid)
    program = LoweredProgram(
        family=description.family,
        name=description.name,
        arch=arch.name,
        doc=description.doc,
        parameters=description.parameters,
        constants=tuple(row for row in parts.constants if row.constant.name in used),
        asserts=parts.asserts,
        launch=replace(parts.launch, grid=(x, y, z)),
        body=parts.body,
        instructions=instructions_of(tuple(statement for body in bodies for statement in body)),
        arguments=parts.arguments,
        shared=parts.shared,
        functions=parts.functions,
        tensor_memory_columns=parts.derived.tmem_columns,
        source=description.source,
    )
    return Lowered(program, parts.applied)


def _used_constants(description: Description, body: tuple[Statement, ...]) -> tuple[NamedConstant, ...]:
    """The rows of the table that the text still speaks of: in the body, in an assertion, in a launch bound or in another row."""
    used = names_in(body) | {names.THREADS, names.BLOCKS_PER_SM}
    used |= {name for item in description.asserts for name in variables_of(item.condition)}
    for row in reversed(description.constants):
        if row.constant.name in used:
            used |= variables_of(row.value)
    return tuple(row for row in description.constants if row.constant.name in used)


def instructions_of(body: tuple[Statement, ...]) -> tuple[str, ...]:
    """The table entries that a body uses, in the order of the table."""
    used: set[str] = set()

    def scan(expr: Expr) -> None:
        if isinstance(expr, Call):
            used.add(lookup(expr.function).name)
        for child in children(expr):
            scan(child)

    def visit(statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            match statement:
                case Let(value=value) | Declare(value=value) | Assign(value=value):
                    scan(value)
                case Repeat(count=count, body=inner, first=first, step=step):
                    for part in (count, first, step):
                        scan(part)
                    visit(inner)
                case If(condition=condition, then=then, otherwise=otherwise):
                    scan(condition)
                    visit(then)
                    visit(otherwise)
                case Execute(instruction=name, operands=operands):
                    used.add(lookup(name).name)
                    for operand in operands:
                        for expr in expressions_of(operand):
                            scan(expr)
                case DeclareRing():
                    used.add("Ring")
                case _:
                    pass

    visit(body)
    return tuple(entry.name for entry in table() if entry.name in used)

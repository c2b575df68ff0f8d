"""The parts of a program with roles: its functions, its kernel, its constants with assertions, its arguments and its launch."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.expr import Binary, Expr, Var, integer
from kernwright.generator.ir.names import THREADS
from kernwright.generator.ir.program import (
    Argument,
    Function,
    Launch,
    NamedConstant,
    ScalarParameter,
    SharedField,
    StaticAssert,
    TensorParameter,
)
from kernwright.generator.ir.statement import Let, Statement
from kernwright.generator.ir.types import i32
from kernwright.generator.passes.check_widths import check_widths
from kernwright.generator.passes.derive import Derived, derive
from kernwright.generator.passes.eliminate import eliminate, names_in
from kernwright.generator.passes.roles.context import Context, plus, times
from kernwright.generator.passes.roles.copies import pointers
from kernwright.generator.passes.roles.frame import AXES, Part, frame
from kernwright.generator.passes.roles.operands import check_carry
from kernwright.generator.passes.roles.tcgen05_issuer import IssuerRole
from kernwright.generator.passes.roles.tcgen05_threads import ThreadsRole
from kernwright.generator.passes.roles.tcgen05_turns import issues, placement
from kernwright.generator.passes.roles.wgmma_role import WgmmaRole
from kernwright.generator.passes.simplify import Applied
from kernwright.generator.passes.simplify_program import simplify_statements


@dataclass(frozen=True, slots=True)
class RoleProgram:
    """What lowering makes of a description with roles."""

    derived: Derived
    constants: tuple[NamedConstant, ...]
    asserts: tuple[StaticAssert, ...]
    arguments: tuple[Argument, ...]
    shared: tuple[SharedField, ...]
    functions: tuple[Function, ...]
    body: tuple[Statement, ...]
    launch: Launch
    applied: tuple[Applied, ...]


def lower_roles(description: Description, arch: Architecture) -> RoleProgram:
    """Lower a description with roles; raises the fault of what has no lowering."""
    derived = derive(description, arch)
    check_carry(derived)
    context = Context(description, derived, arch)
    for row in description.constants:
        context.constants[str(row.constant.name)] = row
    context.constant("threads", derived.threads, _warpgroups(derived))
    applied: list[Applied] = []
    values = _values(description)
    parts: list[Part] = []
    for role_body in description.role_bodies:
        for part in _parts(context, role_body):
            check_widths(part.body)
            smaller, rewrites = simplify_statements(part.body)
            applied += rewrites
            parts.append(Part(part.name, part.role, part.remarks, eliminate(smaller), part.warp, part.one_thread))
    arguments = _arguments(context, parts, values)
    functions = tuple(_function(part, arguments, values) for part in parts)
    raw = frame(context, parts, functions, values)
    check_widths(raw)
    simplified, rewrites = simplify_statements(raw)
    applied += rewrites
    body = eliminate(simplified)
    fields = context.fields
    asserts = (*description.asserts, *_asserts(context), *context.asserts)
    return RoleProgram(
        derived,
        _sorted(context),
        asserts,
        arguments,
        fields,
        functions,
        body,
        _launch(context),
        tuple(applied),
    )


# The table of constants by topic: words that a generated name ends in, in the order of the text.
TOPICS = ("Threads", "BlocksPerSm", "Stages", "Buffers", "Copies", "Bytes", "Panels", "Barrier", "Columns", "Registers")


def _sorted(context: Context) -> tuple[NamedConstant, ...]:
    """The author's constants, then the generated ones by topic."""
    own = {str(row.constant.name) for row in context.description.constants}

    def topic(row: NamedConstant) -> int:
        name = str(row.constant.name)
        if name in own:
            return -1
        return next((place for place, word in enumerate(TOPICS) if name.endswith(word)), TOPICS.index("Barrier"))

    return tuple(sorted(context.constants.values(), key=topic))


def _warpgroups(derived: Derived) -> str:
    groups = derived.threads // 128
    return f"{groups} warpgroup{'' if groups == 1 else 's'}"


def _parts(context: Context, body: ir.RoleBody) -> list[Part]:
    """The functions of a role: one, or on a tcgen05 machine one for the products and one for the threads."""
    facts = context.role(body.role)
    one_thread = len(body.body) == 1 and isinstance(body.body[0], ir.OneThread)
    short = body.role.removesuffix("_role")
    if context.arch.machine is Machine.WGMMA or not issues(body):
        lowering = (WgmmaRole if context.arch.machine is Machine.WGMMA else ThreadsRole)(context, body)
        statements = lowering.statements()
        remarks = (_runs_in(facts.warps, facts.role, one_thread),)
        return [Part(f"role_{short}", facts.role.name, remarks, statements, facts.first_warp, one_thread)]
    warp, why = placement(context, body)
    issuer = IssuerRole(context, body)
    threads = ThreadsRole(context, body)
    return [
        Part(
            f"issue_{short}",
            facts.role.name,
            (f"Runs in one elected thread of warp {warp}: {why}.",),
            issuer.statements(),
            warp,
            True,
        ),
        Part(
            f"role_{short}",
            facts.role.name,
            (_runs_in(facts.warps, facts.role, one_thread),),
            threads.statements(),
            facts.first_warp,
            one_thread,
        ),
    ]


def _runs_in(warps: int, role: ir.Role, one_thread: bool) -> str:
    if one_thread:
        return "Runs in one elected thread."
    if role.replicas > 1:
        return f"Runs in {role.replicas} copies of {warps // role.replicas} warps, which take turns."
    return (
        "Runs in one warp." if warps == 1 else f"Runs in all {32 * warps} threads of its warpgroup{'s' * (warps > 4)}."
    )


def _values(description: Description) -> tuple[Let, ...]:
    """Block indices and the values that the author computed from them outside the roles: the kernel makes them once."""
    found: list[Let] = []
    for operation in description.body:
        match operation:
            case ir.GridAxis(index, _, axis):
                found.append(Let(index, Var(AXES[axis], i32, index.low, index.high), source=operation.source))
            case ir.Elementwise(name, value, dtype, ir.Extent.SCALAR):
                found.append(Let(Var(name, dtype), value, source=operation.source))
            case _:
                pass
    return tuple(found)


def _arguments(context: Context, parts: list[Part], values: tuple[Let, ...]) -> tuple[Argument, ...]:
    """The kernel's arguments in the author's order, without what it does not read."""
    used = {name for part in parts for name in names_in(part.body)}
    for let in reversed(values):
        if let.var.name in used:
            used |= names_in((let,))
    reached = pointers(context)
    found: list[Argument] = []
    for parameter in context.description.parameters:
        match parameter:
            case TensorParameter():
                if parameter.name in reached:
                    found.append(parameter)
                found += [item for item in context.maps.values() if item.tensor == parameter.name]
            case ScalarParameter() if parameter.name in used:
                found.append(parameter)
    return tuple(found)


def _function(part: Part, arguments: tuple[Argument, ...], values: tuple[Let, ...]) -> Function:
    used = names_in(part.body)
    passed = [item for item in arguments if item.name in used]
    own = [let.var for let in values if let.var.name in used]
    return Function(part.name, part.remarks, (*passed, *own), part.body)


def _asserts(context: Context) -> list[StaticAssert]:
    """What the constants promise each other: sizes that keep the swizzle's period, and budgets that the launch can give."""
    found: list[StaticAssert] = []
    threads = context.constants[THREADS].constant
    budgets = [
        (item, context.constant(f"{item.role.name}_registers", item.role.registers, "a thread, by setmaxnreg"))
        for item in context.derived.roles
        if item.role.registers and item.change.startswith("setmaxnreg")
    ]
    if budgets:
        launch = context.derived.roles[0].launch_registers
        given = context.constant("launch_registers", launch, "a thread, which the launch bounds leave")
        total: Expr = integer(0)
        for item, registers in budgets:
            part = times(integer(item.role.all_warpgroups), registers)
            total = plus(total, part)
        spare = sum(
            item.role.all_warpgroups
            for item in context.derived.roles
            if item.role.warpgroups and not item.change.startswith("setmaxnreg")
        )
        if spare:
            total = Binary("+", total, Binary("*", integer(spare), given))
        groups = Binary("/", threads, integer(128))
        found.append(
            StaticAssert(Binary("<=", total, Binary("*", groups, given)), "budgets come from the launch count")
        )
    return found


def _launch(context: Context) -> Launch:
    derived = context.derived
    axes = context.description.grid
    one: Expr = integer(1)
    x, y, z = (*(axis.extent for axis in axes), one, one, one)[:3]
    alignment = max((slot.alignment for slot in derived.shared), default=16)
    size = -(-derived.shared_bytes // alignment) * alignment
    return Launch(
        threads=derived.threads,
        grid=(x, y, z),
        dynamic_shared_bytes=size,
        min_blocks=context.description.blocks_per_sm or 1,
        oversized_shared_memory=size > context.arch.shared_memory_per_block,
    )

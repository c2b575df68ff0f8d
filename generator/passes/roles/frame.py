"""The kernel of a program with roles: shared memory, barriers, tensor memory, and which warps run which role."""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.ir.expr import Binary, Const, Var, integer
from kernwright.generator.ir.names import SHARED
from kernwright.generator.ir.program import Function
from kernwright.generator.ir.statement import (
    CallFunction,
    DeclareShared,
    If,
    Let,
    Repeat,
    SharedOperand,
    Statement,
)
from kernwright.generator.ir.types import i32, u32
from kernwright.generator.passes.derive import BarrierCount, RoleFacts
from kernwright.generator.passes.roles.context import ELECT, TENSOR_MEMORY, Context, both

WARP = Var("warp", i32, 0, 31)  # of the block
AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


@dataclass(frozen=True, slots=True)
class Part:
    """A function of the text and the warps that run it, from warp `warp` on; `one_thread` is elected by the kernel."""

    name: str
    role: str
    remarks: tuple[str, ...]
    body: tuple[Statement, ...]
    warp: int
    one_thread: bool


def frame(
    context: Context, parts: list[Part], functions: tuple[Function, ...], values: tuple[Let, ...]
) -> tuple[Statement, ...]:
    """The kernel's body."""
    alignment = max((slot.alignment for slot in context.derived.shared), default=16)
    shared: tuple[Statement, ...] = (DeclareShared(alignment),) if context.derived.shared else ()
    called = {item.name: item for item in functions}
    return (
        *shared,
        Let(WARP, context.call("warp_index", i32)),
        *values,
        *_initialise(context),
        *_roles(context, parts, called),
        *_free(context),
    )


def _initialise(context: Context) -> tuple[Statement, ...]:
    barriers = _init(context)
    if not barriers and not context.derived.tmem_columns:
        return ()
    body: tuple[Statement, ...] = (
        *barriers,
        context.execute("fence_mbarrier_init"),
        context.execute("fence_proxy_async", why="asynchronous copies and products signal these barriers"),
    )
    found: list[Statement] = [If(both(Binary("==", WARP, integer(0)), ELECT), body)] if barriers else []
    why = "the barriers are visible to all roles"
    if context.derived.tmem_columns:
        columns = context.constant("tensor_memory_columns", context.derived.tmem_columns, "a power of two, from 32 on")
        allocate = (
            context.execute("tcgen05_alloc", columns, SharedOperand(TENSOR_MEMORY)),
            context.execute("tcgen05_relinquish"),
        )
        found.append(If(Binary("==", WARP, integer(_allocator(context))), allocate))
        found.append(context.execute("tcgen05_fence_before"))
        why = "the barriers and the address of tensor memory are visible to all roles"
    found.append(context.execute("sync_threads", why=why))
    if context.derived.tmem_columns:
        found.append(context.execute("tcgen05_fence_after"))
    return tuple(found)


def _allocator(context: Context) -> int:
    """The warp that allocates tensor memory and frees it: the first one of a role that multiplies."""
    role = context.derived.accumulators[0].role
    return context.role(role).first_warp


def _free(context: Context) -> tuple[Statement, ...]:
    """All roles are done with tensor memory before the warp that allocated it gives it back."""
    if not context.derived.tmem_columns:
        return ()
    columns = context.constant("tensor_memory_columns", context.derived.tmem_columns)
    free = (
        context.execute("tcgen05_fence_after"),
        context.execute("tcgen05_dealloc", columns, Var(f"{SHARED}.{TENSOR_MEMORY}", u32)),
    )
    return (
        context.execute("tcgen05_fence_before"),
        context.execute("sync_threads", why="every role is done with tensor memory"),
        If(Binary("==", WARP, integer(_allocator(context))), free),
    )


def _barriers(context: Context) -> list[tuple[str, BarrierCount, Const | None]]:
    """Every mbarrier of the block with its count, in the order of the shared-memory map."""
    counts: dict[str, tuple[BarrierCount, Const | None]] = {}
    for facts in context.derived.pipelines:
        stages = context.stages(facts.pipeline.name)
        counts[f"{facts.pipeline.name}_full"] = (facts.full, stages)
        counts[f"{facts.pipeline.name}_empty"] = (facts.empty, stages)
    for item in context.derived.accumulators:
        buffers = context.accumulator_buffers(item.accumulator.name)
        for side, count in (("full", item.full), ("empty", item.empty)):
            if count is not None:
                counts[f"{item.accumulator.name}_{side}"] = (count, buffers)
    for operand in context.derived.operand_columns:
        for side, count in (("full", operand.full), ("empty", operand.empty)):
            if count is not None:
                counts[f"{operand.operand}_{side}"] = (count, None)
    return [(slot.name, *counts[slot.name]) for slot in context.derived.shared if slot.name in counts]


def _init(context: Context) -> tuple[Statement, ...]:
    """The barriers of one ring in one loop, those that stand alone one by one."""
    found: list[Statement] = []
    rings: dict[str, tuple[Const, list[Statement]]] = {}
    stage = Var("stage", i32)
    for name, count, copies in _barriers(context):
        arrivals = integer(count.arrivals)
        if copies is None:
            found.append(context.execute("mbarrier_init", SharedOperand(name), arrivals))
            continue
        _, body = rings.setdefault(str(copies.name), (copies, []))
        body.append(context.execute("mbarrier_init", SharedOperand(name, stage), arrivals))
    loops = [
        Repeat(Var("stage", i32, 0, int(copies.value) - 1), copies, tuple(body), False)
        for copies, body in rings.values()
    ]
    return (*loops, *found)


def _roles(context: Context, parts: list[Part], functions: dict[str, Function]) -> tuple[Statement, ...]:
    """`if (warp < 4) { … } else if (…) { … }`: a branch a warpgroup, inside it one for each of its roles."""
    groups: list[tuple[int, int, list[Statement]]] = []
    for facts in context.derived.roles:
        if facts.role.shares is None:
            groups.append((facts.first_warp, facts.warps, _group(context, facts, parts, functions)))
    statements: tuple[Statement, ...] = ()
    for position, (first, warps, body) in reversed(list(enumerate(groups))):
        if len(groups) == 1:
            return tuple(body)
        last = position == len(groups) - 1
        if last and not statements:
            statements = tuple(body)
            continue
        statements = (If(Binary("<", WARP, integer(first + warps)), tuple(body), statements),)
    return statements


def _group(context: Context, facts: RoleFacts, parts: list[Part], functions: dict[str, Function]) -> list[Statement]:
    """What the warps of one role's warpgroups do: take or give registers, then run the functions that live there."""
    found: list[Statement] = []
    if facts.change.startswith("setmaxnreg"):
        assert facts.role.registers is not None
        word = "inc" if ".inc" in facts.change else "dec"
        registers = context.constant(f"{facts.role.name}_registers", facts.role.registers, "a thread, by setmaxnreg")
        found.append(context.execute(f"setmaxnreg_{word}", registers))
    here = [part for part in parts if facts.first_warp <= part.warp < facts.first_warp + facts.warps]
    narrow = [part for part in here if _one_warp(context, part)]
    wide = [part for part in here if part not in narrow]
    branches: tuple[Statement, ...] = ()
    for part in reversed(narrow):
        call = _call(functions[part.name])
        inside: tuple[Statement, ...] = (call,)
        if part.one_thread:
            inside = (
                If(ELECT, (call,)),
                *((context.execute("sync_warp"),) if wide or context.derived.tmem_columns else ()),
            )
        branches = (If(Binary("==", WARP, integer(part.warp)), inside, branches),)
    found += branches
    found += [_call(functions[part.name]) for part in wide]
    return found


def _one_warp(context: Context, part: Part) -> bool:
    role = context.description.role(part.role)
    return part.one_thread or role.shares is not None


def _call(function: Function) -> CallFunction:
    return CallFunction(function.name, (SHARED, *(item.name for item in function.arguments)))

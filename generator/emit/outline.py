"""A program as text: what the author said, and everything that was derived from it for one architecture, with reasons."""

from __future__ import annotations

from collections.abc import Iterable

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.instructions.descriptors import Descriptor, tcgen05_instruction_descriptor
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Expr, Var
from kernwright.generator.ir.layout import TmemLayout, VectorRows, WgmmaOperandA
from kernwright.generator.ir.program import ScalarParameter, TensorParameter
from kernwright.generator.passes.derive import (
    AccumulatorFacts,
    BarrierCount,
    BufferFacts,
    Derived,
    MmaFacts,
    PipelineFacts,
    RegisterEstimate,
    RoleFacts,
    TensorMapFacts,
)
from kernwright.generator.passes.roles.operands import proofs


def print_outline(derived: Derived) -> str:
    """The outline of one program on one architecture, ending in a newline."""
    description = derived.description
    head = f"{description.symbol} on {derived.arch.name}: {derived.threads} threads"
    if derived.shared_bytes:
        head += f", {derived.shared_bytes} bytes of shared memory"
    if derived.tmem_columns:
        head += f", {derived.tmem_columns} columns of tensor memory"
    sections = [
        ("", [head, f"described in {description.source.file}", "", *description.doc.splitlines()]),
        ("parameters", [_parameter(p) for p in description.parameters]),
        (
            "constants",
            [f"{c.constant.name} = {print_expression(c.value)}  ({c.reason})" for c in description.constants],
        ),
        ("grid", _grid(derived)),
        ("roles", [_role(role) for role in derived.roles]),
        ("pipelines", [line for facts in derived.pipelines for line in _pipeline(facts)]),
        ("buffers", [line for facts in derived.buffers for line in _buffer(facts)]),
        ("accumulators", [line for facts in derived.accumulators for line in _accumulator(facts)]),
        ("products", [line for facts in derived.products for line in _product(facts)]),
        ("no carry out of a descriptor's address field", [proof.text for proof in proofs(derived)]),
        ("register arrays (those named together take turns)", _arrays(derived)),
        ("registers a thread (addresses and counters come on top)", [_estimate(e) for e in derived.registers]),
        ("tensor maps", [_tensor_map(facts) for facts in derived.tensor_maps]),
        ("shared memory (offset, bytes)", [f"{s.offset:>7} {s.size:>7}  {s.name}: {s.what}" for s in derived.shared]),
        ("layouts", _layouts(description)),
        ("body", _body(description.body, 0)),
    ]
    lines: list[str] = []
    for title, content in sections:
        if content:
            lines += ([""] if lines else []) + ([title] if title else [])
            lines += [f"  {line}".rstrip() if title else line for line in content]
    return "\n".join(lines) + "\n"


def _parameter(parameter: TensorParameter | ScalarParameter) -> str:
    if isinstance(parameter, TensorParameter):
        shape = ", ".join(print_expression(extent) for extent in parameter.shape)
        notes = ", leading dimensions folded" * parameter.folded + ", may be absent" * parameter.optional
        return f"{parameter.name}: {parameter.dtype} [{shape}], {parameter.access}, {parameter.alignment}-byte aligned{notes}"
    limits = f", {parameter.low} .. {parameter.high}" if parameter.dtype.is_integer else ""
    if parameter.minimum is not None:
        limits = f", at least {parameter.minimum}"
    if parameter.multiple_of != 1:
        limits += f", a multiple of {parameter.multiple_of}"
    origin = (
        f", from {parameter.bound_to[0]}.shape[{parameter.bound_to[1]}]"
        if parameter.bound_to
        else ", passed by the caller"
    )
    return f"{parameter.name}: {parameter.dtype}{limits}{origin}"


def _grid(derived: Derived) -> list[str]:
    blocks = derived.description.blocks
    if blocks is None:
        axes = derived.description.grid
        return [
            f"{'xyz'[op.axis]}: one block for each {op.index.name} below {print_expression(op.extent)}" for op in axes
        ]
    return [f"one block for every {print_expression(blocks.step)} of {print_expression(blocks.extent)}"]


def _role(facts: RoleFacts) -> str:
    last = facts.first_warp + facts.warps - 1
    warps = f"warp {facts.first_warp}" if facts.warps == 1 else f"warps {facts.first_warp} .. {last}"
    turns = f"; {facts.role.replicas} copies take turns" if facts.role.replicas > 1 else ""
    named = ""
    if facts.barrier is not None:
        numbers = ", ".join(str(facts.barrier.first + copy) for copy in range(facts.barrier.copies))
        named = f"; named barrier {numbers} of {facts.barrier.threads} threads ({facts.barrier.reason})"
    return f"{facts.role.name}: {warps}; registers at launch {facts.launch_registers}, {facts.change}{turns}{named}"


def _pipeline(facts: PipelineFacts) -> list[str]:
    pipeline = facts.pipeline
    lines = [f"{pipeline.name}: {_count(pipeline.stages, 'stage')}, filled by role {facts.producer}"]
    lines += [f"  {tile.name}: {tile.layout.formula}" for tile in pipeline.tiles]
    lines += [_barrier("full", facts.full), _barrier("empty", facts.empty)]
    lines += [f"  in flight in role {role}: {depth} ({why})" for role, depth, why in facts.in_flight]
    lines += [f"  producer waits {facts.acquire}"]
    lines += [
        f"  role {a.role} waits {_count(a.steps, 'step')} ahead, if there is a next step: it fetches {' and '.join(a.names)} early"
        for a in facts.ahead
    ]
    lines += [f"  {note}" for note in facts.not_compared]
    return [*lines, f"  fence: {facts.fence}"]


def _barrier(name: str, count: BarrierCount) -> str:
    amount = _count(count.arrivals, "arrival") + (f" + {count.bytes} bytes" if count.bytes else "")
    return f"  {name}: {amount} ({count.reason})"


def _buffer(facts: BufferFacts) -> list[str]:
    copies = f", {facts.copies} copies, one for each of the role" if facts.copies > 1 else ""
    lines = [
        f"{facts.buffer.name}: of role {facts.role}{copies}, written by {facts.writers}",
        f"  {facts.buffer.layout.formula}",
        f"  fence: {facts.fence}",
        f"  barrier: {facts.barrier}",
        f"  issuer: {facts.issuer}",
        f"  wait: {facts.wait}",
    ]
    return lines + ([_barrier("full", facts.full)] if facts.full else [])


def _arrays(derived: Derived) -> list[str]:
    arrays = [(a.role, a.accumulators, a.registers) for a in derived.accumulator_registers]
    arrays += [(o.role, o.operands, o.registers) for o in derived.operands]
    lines = [f"role {role}: {' and '.join(names)}, {registers} registers a thread" for role, names, registers in arrays]
    return lines + [
        f"role {o.role}: {o.operand} in tensor memory, {o.columns} columns from {o.first_column}, two values each"
        for o in derived.operand_columns
    ]


def _estimate(facts: RegisterEstimate) -> str:
    parts = f"{facts.accumulators} accumulators + {facts.operands} operands + {facts.tiles} named tiles"
    return f"role {facts.role}: arrays of {parts} = {facts.total}, at most {facts.live} live at once, of {facts.budget}"


def _tensor_map(facts: TensorMapFacts) -> str:
    panel = "" if facts.panel_dimension is None else f", panels along dimension {facts.panel_dimension}"
    box = ", ".join(str(extent) for extent in facts.box)
    boxes = _count(facts.boxes, "box").replace("boxs", "boxes")
    return (
        f"{facts.tensor} for {facts.tile}: rank {facts.rank}, box {{{box}}} of {facts.swizzle}-byte swizzle rows{panel}, "
        f"{boxes} a tile ({facts.reason})"
    )


def _accumulator(facts: AccumulatorFacts) -> list[str]:
    place = "tensor memory" if isinstance(facts.layout, TmemLayout) else f"{facts.layout.registers} registers a thread"
    lines = [
        f"{facts.accumulator.name}: [{facts.accumulator.rows}, {facts.accumulator.columns}] of role {facts.role}, in {place}"
    ]
    lines.append(f"  {facts.layout.formula}")
    if facts.readback is not None:
        lines.append(f"  read back by tcgen05.ld.32x32b: {facts.readback.formula}")
    lines += [_barrier(name, count) for name, count in (("full", facts.full), ("empty", facts.empty)) if count]
    return lines


def _product(facts: MmaFacts) -> list[str]:
    mma = facts.mma
    lines = [
        f"{_operation(mma)}",
        f"  {facts.instruction}, {_count(facts.instructions, 'instruction')}, issued by {facts.issuer}",
        f"  complete {facts.wait}",
    ]
    for name, side in (("a", facts.a), ("b", facts.b)):
        match side:
            case Descriptor():
                steps = ", ".join(str(step) for step in side.k_steps)
                lines.append(
                    f"  {name}: descriptor 0x{side.template:016X} | ((address + step) >> 4 & 0x{side.mask:X}), "
                    f"steps {steps} bytes; {side.layout.formula}; "
                    f"LBO {side.layout.leading_byte_offset}, SBO {side.layout.stride_byte_offset}"
                )
            case WgmmaOperandA():
                lines.append(f"  {name}: registers, {side.formula}")
            case _:
                lines.append(f"  {name}: {side}")
    if facts.instruction.startswith("tcgen05") and isinstance(facts.a, Descriptor):
        columns = facts.b.layout.rows
        word = tcgen05_instruction_descriptor(
            facts.a.layout.rows, columns, facts.a.layout.major == "MN", facts.b.layout.major == "MN"
        )
        lines.append(f"  instruction descriptor 0x{word:08X}")
    return lines


def _layouts(description: ir.Description) -> list[str]:
    """Register layouts that the body uses beside accumulators, each once."""
    found: dict[str, list[str]] = {}
    for operation in ir.walk(description.body):
        layout = getattr(operation, "layout", None)
        name = getattr(operation, "name", None)
        if isinstance(layout, VectorRows) and name:
            found.setdefault(layout.formula, []).append(name)
    return [f"{', '.join(names)}: {formula}" for formula, names in found.items()]


def _body(operations: Iterable[ir.Operation], depth: int) -> list[str]:
    lines: list[str] = []
    for operation in operations:
        lines.append("  " * depth + _operation(operation))
        if isinstance(operation, ir.Block):
            lines += _body(operation.body, depth + 1)
    return lines


def _operation(operation: ir.Operation) -> str:
    match operation:
        case ir.GridAxis(index, extent, axis):
            text = f"{index.name} = block index {'xyz'[axis]}, below {_expr(extent)}"
        case ir.LoadTile(name, tile, dtype):
            text = f"{name} = load {_box(tile)} as {dtype}"
        case ir.StoreTile(tile, value):
            text = f"store {_expr(value)} to {_box(tile)}"
        case ir.Elementwise(name, value, dtype, extent):
            text = f"{name} = {_expr(value)}  ({extent.value} of {dtype})"
        case ir.RowReduce(name, op, value):
            text = f"{name} = row_{op}({_expr(value)})"
        case ir.CopyIn(tile, target, engine):
            text = f"{engine} copy {_box(tile)} -> {_shared(target)}"
        case ir.CopyOut(origin, tile):
            text = f"tma copy {_shared(origin)} -> {_box(tile)}"
        case ir.WriteShared(target, value, dtype, extent):
            text = f"write {_expr(value)} -> {_shared(target)}  ({extent.value}, rounded to {dtype})"
        case ir.ReadShared(name, origin, dtype, extent, _, transposed):
            early = ", one step ahead" if operation.ahead else ""
            element = f"[{operation.index}]" if extent is ir.Extent.SCALAR else ".T" if transposed else ""
            text = f"{name} = read {_shared(origin)}{element}  ({extent.value} of {dtype}{early})"
        case ir.Mma(accumulator, a, b, a_turned, b_turned, accumulate):
            left = a.name if isinstance(a, Var) else _shared(a) + (".T" if a_turned else "")
            text = f"mma {accumulator} (+)= {left} @ {_shared(b)}{'.T' if b_turned else ''}, accumulate {_expr(accumulate)}"
        case ir.SetAccumulator(accumulator, value):
            text = f"{accumulator} := {_expr(value)}"
        case ir.ReadAccumulator(name, accumulator):
            text = f"{name} = read {accumulator}"
        case ir.Produce(pipeline):
            text = f"produce {pipeline}{', next stage acquired at the end of the step' if operation.ahead else ''}:"
        case ir.Consume(pipeline, _, relayed_by, after):
            relay = f", full vouched for by {relayed_by}" if relayed_by else ""
            text = f"consume {pipeline}{relay}{', after ' + ', '.join(after) if after else ''}:"
        case ir.Steps(index, count):
            text = f"for {index.name} in 0 .. {_expr(count)} - 1:"
        case ir.OneThread():
            text = "one elected thread:"
        case ir.When(condition):
            text = f"when {_expr(condition)}:"
        case ir.WhenPresent(tensor):
            text = f"if {tensor} is there:"
        case ir.RoleBody(role):
            text = f"role {role}:"
    return f"{text}  [{operation.source.file.rpartition('/')[2]}:{operation.source.line}]"


def _box(tile: ir.GlobalTile) -> str:
    shape = " of " + " x ".join(str(extent) for extent in tile.shape) if tile.shape else ""
    return f"{tile.tensor}[{', '.join(_expr(first) for first in tile.origin)}]{shape}"


def _shared(tile: ir.SharedTile) -> str:
    return f"{tile.pipeline}.{tile.name}" if tile.pipeline else tile.name


def _expr(expr: Expr) -> str:
    return print_expression(expr)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

"""How many stages a pipeline needs: products in flight, blocks inside each other, and copies of a role hold some at once."""

from __future__ import annotations

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.passes.derive.checks import nested
from kernwright.generator.passes.derive.readers import Around, Reader
from kernwright.generator.passes.derive.turns import constant_trips

Use = tuple[ir.Produce | ir.Consume, Around]


def check_stages(
    description: Description, pipeline: ir.Pipeline, readers: tuple[Reader, ...], arch: Architecture
) -> None:
    """Refuse a pipeline in which a role would wait for a stage that it holds itself, or mistake one phase for another."""
    for body in description.role_bodies:
        replicas = description.role(body.role).replicas
        for kind in (ir.Produce, ir.Consume):
            uses: list[Use] = [
                (op, around)
                for op, around in nested(body.body)
                if isinstance(op, kind) and op.pipeline == pipeline.name
            ]
            in_flight = next((r.in_flight for r in readers if r.role == body.role and kind is ir.Consume), 0)
            held = in_flight * replicas if arch.machine is Machine.WGMMA else 0
            _check_held(pipeline, body.role, kind, uses, in_flight, held)
            if replicas > 1:
                _check_copies(pipeline, body.role, replicas, uses)


def _check_held(
    pipeline: ir.Pipeline,
    role: str,
    kind: type[ir.Produce] | type[ir.Consume],
    uses: list[Use],
    in_flight: int,
    held: int,
) -> None:
    """A block holds a stage, one inside it another; each copy of a role holds those of its own steps before, too."""
    depths = [1 + sum(isinstance(b, kind) and b.pipeline == pipeline.name for b in around) for _, around in uses]
    deepest = max(depths, default=0)
    needed = deepest * (held + 1)
    if needed <= pipeline.stages:
        return
    fix = f"Use at least {needed} stages."
    if deepest == 1:
        raise PipelineFault(
            "KW0405",
            _has(pipeline),
            pipeline.source,
            where=f"role {role!r} keeps {in_flight} product in flight",
            detail=f"stage k - {held} is released while product k runs, so the producer would never find room.",
            fix=fix,
        )
    word = "produce" if kind is ir.Produce else "consume"
    flight = f", and keeps {in_flight} product in flight over them" if held else ""
    raise PipelineFault(
        "KW0405",
        _has(pipeline),
        uses[depths.index(deepest)][0].source,
        where=f"in role {role!r}",
        detail=f"{deepest} {word} blocks stand inside each other and hold a stage each{flight}: "
        "the role would wait for a stage that it holds itself.",
        fix=f"{fix[:-1]}, or end a block before the next one begins.",
    )


def _check_copies(pipeline: ir.Pipeline, role: str, replicas: int, uses: list[Use]) -> None:
    """Between two uses of one copy lie those of the others. A barrier shows the parity of its last phase alone, and a fresh
    one that of a complete phase 1: a copy whose stage has gone round since its last use mistakes an older phase for its own."""
    for use, around in uses:
        if not any(isinstance(block, ir.Steps) for block in around):
            raise PipelineFault(
                "KW0413",
                f"role {role!r} has {replicas} copies and uses pipeline {pipeline.name!r} outside a loop",
                use.source,
                detail="copies take turns at the steps of a loop; here each of them would take a stage.",
                fix="Put the block inside `with k.steps(...)`, or use one copy.",
            )
    if not uses:
        return
    a_step = max(_uses_a_step(uses, loop) for loop in (_outermost(around) for _, around in uses))
    needed = (replicas - 1) * a_step + 1
    if pipeline.stages < needed:
        each = f" with {a_step} stages a step" if a_step > 1 else ""
        raise PipelineFault(
            "KW0405",
            _has(pipeline),
            pipeline.source,
            where=f"role {role!r} has {replicas} copies{each}",
            detail="a copy would wait for a phase while the one before is open: the parity of a barrier, complete when it is "
            "fresh, lets it through, and it would read what is not there yet.",
            fix=f"Use at least {needed} stages, or fewer copies.",
        )


def _outermost(around: Around) -> ir.Steps:
    return next(block for block in around if isinstance(block, ir.Steps))


def _uses_a_step(uses: list[Use], loop: ir.Steps) -> int:
    """Stages in one step of the loop at whose steps the copies take turns; an inner loop of unknown trips counts once."""
    found = 0
    for _, around in uses:
        if _outermost(around) is loop:
            trips = 1
            for inner in [block for block in around if isinstance(block, ir.Steps)][1:]:
                trips *= constant_trips(inner) or 1
            found += trips
    return found


def _has(pipeline: ir.Pipeline) -> str:
    return f"pipeline {pipeline.name!r} has {pipeline.stages} stage{'s' if pipeline.stages > 1 else ''}"

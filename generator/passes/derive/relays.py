"""Relays: where one pipeline's full barrier may stand for another's, step by step."""

from __future__ import annotations

from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description
from kernwright.generator.passes.derive.checks import nested
from kernwright.generator.passes.derive.readers import Around, writer_of

Placed = list[tuple[ir.Consume, Around]]


def check_relays(description: Description) -> None:
    """A relayed wait is legal where the relay's producer itself waits for the stage around each of its produce blocks, this role
    waits for the relay first, and both use as many stages a step of the relay; else a stage would be read that nobody saw full."""
    for body in description.role_bodies:
        for consume, around in nested(body.body):
            if isinstance(consume, ir.Consume) and consume.relayed_by is not None:
                _check(description, body, consume, around)


def _check(description: Description, body: ir.RoleBody, consume: ir.Consume, around: Around) -> None:
    relay = next(pipeline for pipeline in description.pipelines if pipeline.name == consume.relayed_by)
    role, blocks = writer_of(description, relay)
    vouching = [_waits(outer, consume.pipeline) for _, outer in blocks]
    inside = any(isinstance(block, ir.Consume) and block.pipeline == relay.name for block in around)
    if not (all(vouching) and inside):
        raise PipelineFault(
            "KW0406",
            f"pipeline {relay.name!r} does not vouch for {consume.pipeline!r}",
            consume.source,
            where=f"in role {body.role!r}",
            detail=f"role {role!r} must consume {consume.pipeline!r} around producing {relay.name!r}, and this role must "
            f"consume {relay.name!r} around {consume.pipeline!r}.",
            fix="Drop relayed_by: the role then waits itself.",
        )
    maker = next(other for other in description.role_bodies if other.role == role)
    seen = [sum(_directly(wait, outer) for wait in waits) for waits, (_, outer) in zip(vouching, blocks, strict=True)]
    waited = len(_consumes(maker, consume.pipeline))
    steps = _consumes(body, relay.name)
    uses = _consumes(body, consume.pipeline)
    taken = [sum(_directly(step, outer) for _, outer in uses) for step, _ in steps]
    if len({*seen, *taken}) == 1 and sum(seen) == waited and sum(taken) == len(uses):
        return
    raise PipelineFault(
        "KW0406",
        f"pipeline {relay.name!r} does not vouch for as many stages of {consume.pipeline!r} as are used",
        consume.source,
        where=f"in role {body.role!r}",
        detail=f"role {role!r} has {_blocks(waited)} of {consume.pipeline!r}, of which {_list(seen)} around each produce block of "
        f"{relay.name!r}; role {body.role!r} has {_blocks(len(uses))}, of which {_list(taken)} in each step of {relay.name!r}.",
        fix="Use the same number in each step of the relay, without a loop in between, or drop relayed_by.",
    )


def _waits(around: Around, name: str) -> list[ir.Block]:
    """The blocks around a produce block in which the role itself waits for a stage of `name`."""
    return [
        block for block in around if isinstance(block, ir.Consume) and block.pipeline == name and not block.relayed_by
    ]


def _directly(step: ir.Block, around: Around) -> bool:
    """Whether something inside `around` is this very block (blocks compare by content, so identity decides), without a loop."""
    at = next((number for number, block in enumerate(around) if block is step), None)
    return at is not None and not any(isinstance(block, ir.Steps) for block in around[at + 1 :])


def _consumes(body: ir.RoleBody, name: str) -> Placed:
    return [(op, around) for op, around in nested(body.body) if isinstance(op, ir.Consume) and op.pipeline == name]


def _blocks(number: int) -> str:
    return f"{number} consume block{'' if number == 1 else 's'}"


def _list(numbers: list[int]) -> str:
    return " and ".join(str(number) for number in numbers)

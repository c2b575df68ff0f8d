"""Who may touch what: tiles of a pipeline inside its blocks, a standing buffer in one role, a warp in one role."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.generator.errors import PipelineFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.description import Description


def check_use(description: Description) -> None:
    """Refuse uses of shared memory that no derived barrier orders."""
    owners: dict[str, str] = {}
    for body in description.role_bodies:
        for operation, around in nested(body.body):
            _check_ahead(operation, around)
            _check_always(operation, around, body.role)
            for tile, written in tiles_of(operation):
                if tile.pipeline is not None:
                    _check_stage(operation, tile, written, around, body.role)
                elif owners.setdefault(tile.name, body.role) != body.role:
                    raise PipelineFault(
                        "KW0409",
                        f"buffer {tile.name!r} is used by roles {owners[tile.name]!r} and {body.role!r}",
                        operation.source,
                        detail="nothing orders their accesses.",
                        fix="Give each role a k.buffer of its own, or hand the tile over in a pipeline.",
                    )
        _check_host(description, body)


def nested(
    operations: tuple[ir.Operation, ...], around: tuple[ir.Block, ...] = ()
) -> Iterator[tuple[ir.Operation, tuple[ir.Block, ...]]]:
    """Every operation with the blocks around it, in program order."""
    for operation in operations:
        yield operation, around
        if isinstance(operation, ir.Block):
            yield from nested(operation.body, (*around, operation))


def tiles_of(operation: ir.Operation) -> list[tuple[ir.SharedTile, bool]]:
    """Shared tiles that an operation uses, and whether it writes them."""
    match operation:
        case ir.CopyIn(target=tile) | ir.WriteShared(target=tile):
            return [(tile, True)]
        case ir.CopyOut(origin=tile) | ir.ReadShared(origin=tile):
            return [(tile, False)]
        case ir.Mma(a=a, b=b):
            return [(side, False) for side in (a, b) if isinstance(side, ir.SharedTile)]
        case _:
            return []


def _check_stage(
    operation: ir.Operation, tile: ir.SharedTile, written: bool, around: tuple[ir.Block, ...], role: str
) -> None:
    produced = any(isinstance(block, ir.Produce) and block.pipeline == tile.pipeline for block in around)
    consumed = any(isinstance(block, ir.Consume) and block.pipeline == tile.pipeline for block in around)
    if produced or (consumed and not written):
        return
    what = "written to a stage that the role consumes" if consumed else "used outside a block of its pipeline"
    raise PipelineFault(
        "KW0408",
        f"tile {tile.name!r} of pipeline {tile.pipeline!r} is {what}",
        operation.source,
        where=f"in role {role!r}",
        detail="other readers of the stage may still be reading it, and its producer fills it again."
        if consumed
        else "",
        fix=f"Write it inside `with {tile.pipeline}.produce()`, read it inside `with {tile.pipeline}.consume()`.",
    )


def _check_ahead(operation: ir.Operation, around: tuple[ir.Block, ...]) -> None:
    """What is fetched a step ahead comes from a stage that changes in each step."""
    if not isinstance(operation, ir.ReadShared) or not operation.ahead:
        return
    loop = max((at for at, block in enumerate(around) if isinstance(block, ir.Steps)), default=-1)
    stages = [block.pipeline for block in around[loop + 1 :] if isinstance(block, ir.Consume)]
    if operation.origin.pipeline not in stages:
        raise PipelineFault(
            "KW0410",
            f"fetch of {operation.origin.name!r} has no stage of the next step",
            operation.source,
            detail="its tile does not belong to a stage that the loop around it consumes in each step.",
            fix="Put the consume block of the tile inside the loop, or fetch without ahead=.",
        )


def _check_always(operation: ir.Operation, around: tuple[ir.Block, ...], role: str) -> None:
    """Both ends of a pipeline turn by the same steps, whether an optional tensor is there or not."""
    optional = [block.tensor for block in around if isinstance(block, ir.WhenPresent)]
    if optional and isinstance(operation, ir.Produce | ir.Consume):
        raise PipelineFault(
            "KW0401",
            f"pipeline {operation.pipeline!r} is used only if {optional[0]!r} is there",
            operation.source,
            where=f"in role {role!r}",
            detail="without it the other end would wait for ever.",
            fix="Put the produce or consume block around `when_present`, not inside.",
        )


def _check_host(description: Description, body: ir.RoleBody) -> None:
    """A role whose warpgroup lends warps to others does all its work in one thread of its first warp."""
    guests = [role for role in description.roles if role.shares == body.role]
    wide = next(
        (
            operation
            for operation, around in nested(body.body)
            if not isinstance(operation, ir.Block) and not any(isinstance(block, ir.OneThread) for block in around)
        ),
        None,
    )
    if guests and wide is not None:
        raise PipelineFault(
            "KW0403",
            f"role {body.role!r} works with all warps of its warpgroup",
            wide.source,
            detail=f"role {guests[0].name!r} has warp {guests[0].warp} of it.",
            fix="Put the work of the host inside `with k.one_thread():`, or give the other role a warpgroup.",
        )

"""Shared tiles that the threads of a role write: where a chunk lies under the swizzle, and the turns of standing buffers."""

from __future__ import annotations

from kernwright.generator.ir import description as ir
from kernwright.generator.ir.expr import Expr, integer
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.statement import If
from kernwright.generator.ir.types import u32
from kernwright.generator.passes.roles.base import LEADER, RoleLowering
from kernwright.generator.passes.roles.context import plus, times

CHUNK = 16  # bytes that the swizzle moves as one


class SharedTiles(RoleLowering):
    """What roles on every machine do with shared tiles. `freed` are buffers that were waited for and not written yet."""

    freed: set[str]

    def run(self) -> None:
        self.freed = set()
        super().run()

    def swizzled(self, tile: ir.SharedTile, row: Expr, chunk: Expr, panel: Expr) -> Expr:
        """The byte offset of a 16-byte chunk in a row of a panel."""
        layout = tile.layout
        pitch = layout.panel_elements * layout.dtype.bytes
        start = times(panel, self.context.panel_bytes(tile))
        if layout.swizzle > CHUNK:
            return plus(start, self.context.call(f"swizzle_{layout.swizzle}", u32, row, chunk))
        return plus(plus(start, times(row, integer(pitch))), times(chunk, integer(CHUNK)))

    def own_stage(self, tile: ir.SharedTile) -> Expr | None:
        """The element of a standing buffer that is written; None for a pipeline's tile, whose ring says it."""
        return self.copy_index(tile) if tile.pipeline is None else None

    # ---- standing buffers

    def free(self, write: ir.WriteShared) -> None:
        """Wait until the issuer's stores have read the buffer, if it may be written a second time."""
        name = write.target.name
        if name in self.freed or not self.context.buffer(name).again:
            return
        self.freed.add(name)
        if any(isinstance(op, ir.CopyOut) and op.origin == write.target for op in ir.walk(self.body.body)):
            self._wait_for_stores("the store before has left the buffer", write.source)
        self.meet(write.source)

    def hand_over_buffer(self, write: ir.WriteShared) -> None:
        """From the threads that wrote the buffer to whoever reads it."""
        facts = self.context.buffer(write.target.name)
        self.freed.discard(write.target.name)
        if facts.fence != "none":
            self.execute(
                "fence_proxy_async", why="ordinary stores, read by the asynchronous proxy", source=write.source
            )
        if not facts.barrier.startswith("none"):
            self.meet(write.source)

    def drain_stores(self) -> None:
        """Shared memory must outlive the reads of the last store."""
        if any(isinstance(op, ir.CopyOut) and op.origin.pipeline is None for op in ir.walk(self.body.body)):
            self._wait_for_stores("shared memory must outlive the reads of the store", self.body.source)

    def _wait_for_stores(self, why: str, source: Source) -> None:
        wait = self.context.execute("bulk_wait_group_read", integer(0), source=source)
        self.add(If(LEADER, (wait,), why=why, source=source))

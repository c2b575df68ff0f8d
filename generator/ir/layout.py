"""Layouts: which thread holds which element of a register tile, and where an element of a shared or TMEM tile lies.

A distributed layout maps (thread, register) to (row, column); elementwise code, row reductions, masks and conversions follow
from that map. Sources of the fragment maps: PTX ISA, sections on wgmma register fragments and tcgen05.ld shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from kernwright.generator.ir.types import DType

WARP = 32  # threads
WARPGROUP = 128  # threads
WARPS_PER_GROUP = WARPGROUP // WARP
MMA_ROWS = 64  # rows of one wgmma
MMA_K = 16  # 16-bit values of K that one wgmma or tcgen05.mma takes
CELL_BYTES = 4  # bytes of a register, and of a column of tensor memory in one lane


class Distributed(Protocol):
    """A register tile over threads: `registers` per thread, each holding `packed` elements side by side."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def registers(self) -> int: ...

    @property
    def packed(self) -> int: ...

    @property
    def formula(self) -> str: ...

    def coordinate(self, thread: int, register: int, half: int = 0) -> tuple[int, int]: ...


def coordinates(layout: Distributed) -> Iterator[tuple[int, int]]:
    """Every (row, column) that the layout assigns, once per holder."""
    for thread in layout.holders if isinstance(layout, TmemLoadRows) else range(layout.threads):
        for register in range(layout.registers):
            for half in range(layout.packed):
                yield layout.coordinate(thread, register, half)


def covers_exactly_once(layout: Distributed) -> bool:
    """True when every element of the tile has exactly one holder."""
    seen = sorted(coordinates(layout))
    return seen == [(row, column) for row in range(layout.rows) for column in range(layout.columns)]


@dataclass(frozen=True, slots=True)
class VectorRows:
    """`columns / vector` neighbouring lanes share a row; each holds `vector` neighbouring values of it.

    Made for row-wise work: one global access per thread and a reduction inside one warp.
    """

    threads: int
    columns: int
    vector: int

    def __post_init__(self) -> None:
        if self.vector < 1 or self.columns < 1:
            raise ValueError(f"{self.vector} values of {self.columns} columns: both must be positive")
        if self.columns % self.vector:
            raise ValueError(f"a row of {self.columns} is no whole number of accesses of {self.vector} values")
        if self.lanes_per_row > 32 or 32 % self.lanes_per_row:
            raise ValueError(f"{self.lanes_per_row} lanes share a row: they must divide a warp of 32")
        if self.threads % 32 or not 32 <= self.threads <= 1024:
            raise ValueError(f"{self.threads} threads: need whole warps, at most 1024 threads")

    @property
    def lanes_per_row(self) -> int:
        return self.columns // self.vector

    @property
    def rows(self) -> int:
        return self.threads // self.lanes_per_row

    @property
    def registers(self) -> int:
        return self.vector

    @property
    def packed(self) -> int:
        return 1

    @property
    def formula(self) -> str:
        lanes = self.lanes_per_row
        return f"thread t, register r: row t / {lanes}, column {self.vector} * (t % {lanes}) + r"

    def coordinate(self, thread: int, register: int, half: int = 0) -> tuple[int, int]:
        return thread // self.lanes_per_row, self.vector * (thread % self.lanes_per_row) + register


@dataclass(frozen=True, slots=True)
class WgmmaAccumulator:
    """FP32 accumulator of wgmma.m64nNk16: `rows` split over `warpgroups`, 64 rows a fragment, fragments stacked in registers."""

    rows: int
    columns: int
    warpgroups: int = 1

    def __post_init__(self) -> None:
        if self.rows % (MMA_ROWS * self.warpgroups):
            raise ValueError(f"{self.rows} rows over {self.warpgroups} warpgroups: wgmma needs 64 rows a warpgroup")
        if self.columns % 8 or not 8 <= self.columns <= 256:
            raise ValueError(f"{self.columns} columns: wgmma takes 8 to 256 in steps of 8")

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups

    @property
    def fragments(self) -> int:
        """m64 fragments that one warpgroup stacks."""
        return self.rows // (MMA_ROWS * self.warpgroups)

    @property
    def registers(self) -> int:
        return self.fragments * self.columns // 2

    @property
    def packed(self) -> int:
        return 1

    @property
    def formula(self) -> str:
        stacked = f"64 * (r / {self.columns // 2}) + " if self.fragments > 1 else ""
        group = f"{self.rows // self.warpgroups} * (t / 128) + " if self.warpgroups > 1 else ""
        within = f"(r % {self.columns // 2})" if self.fragments > 1 else "r"
        thread = "(t % 128)" if self.warpgroups > 1 else "t"
        return (
            f"thread t, register r: row {group}{stacked}16 * ({thread} / 32) + t % 32 / 4 + 8 * ({within} / 2 % 2), "
            f"column 8 * ({within} / 4) + 2 * (t % 4) + r % 2"
        )

    def coordinate(self, thread: int, register: int, half: int = 0) -> tuple[int, int]:
        group, lane = divmod(thread, WARPGROUP)
        fragment, r = divmod(register, self.columns // 2)
        row = (
            self.rows // self.warpgroups * group + 64 * fragment + 16 * (lane // 32) + lane % 32 // 4 + 8 * (r >> 1 & 1)
        )
        return row, 8 * (r >> 2) + 2 * (thread % 4) + (r & 1)


@dataclass(frozen=True, slots=True)
class WgmmaOperandA:
    """16-bit A operand of wgmma from registers: two neighbouring columns (values of K) a register, 16 columns an instruction.

    `rows` are split over `warpgroups`, 64 rows a fragment, fragments stacked in registers as in the accumulator.
    """

    rows: int
    columns: int
    warpgroups: int = 1

    def __post_init__(self) -> None:
        if self.rows % (MMA_ROWS * self.warpgroups):
            raise ValueError(
                f"{self.rows} rows over {self.warpgroups} warpgroups: a register operand has 64 rows a warpgroup"
            )
        if self.columns % MMA_K:
            raise ValueError(f"{self.columns} columns: wgmma takes 16 values of K at a time")

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups

    @property
    def fragments(self) -> int:
        """m64 fragments that one warpgroup stacks."""
        return self.rows // (MMA_ROWS * self.warpgroups)

    @property
    def registers(self) -> int:
        return self.fragments * self.columns // 4

    @property
    def packed(self) -> int:
        return 2

    @property
    def formula(self) -> str:
        each = self.columns // 4
        stacked = f"64 * (r / {each}) + " if self.fragments > 1 else ""
        group = f"{self.rows // self.warpgroups} * (t / 128) + " if self.warpgroups > 1 else ""
        within = f"(r % {each})" if self.fragments > 1 else "r"
        thread = "(t % 128)" if self.warpgroups > 1 else "t"
        return (
            f"thread t, register r, half h: row {group}{stacked}16 * ({thread} / 32) + t % 32 / 4 + 8 * ({within} % 2), "
            f"column 16 * ({within} / 4) + 8 * ({within} / 2 % 2) + 2 * (t % 4) + h"
        )

    def coordinate(self, thread: int, register: int, half: int = 0) -> tuple[int, int]:
        group, lane = divmod(thread, WARPGROUP)
        fragment, within = divmod(register, self.columns // 4)
        step, r = divmod(within, 4)
        row = self.rows // self.warpgroups * group + 64 * fragment + 16 * (lane // 32) + lane % 32 // 4 + 8 * (r & 1)
        return row, 16 * step + 8 * (r >> 1) + 2 * (thread % 4) + half


@dataclass(frozen=True, slots=True)
class TmemLoadRows:
    """What tcgen05.ld.32x32b leaves in registers: thread t holds lane t of the accumulator, register r column r.

    128 rows fill all lanes. 64 rows lie on the first 16 lanes of each warp's quarter: the other half of the threads hold nothing.
    Several warpgroups share the columns, since each warp reaches the lanes of its quarter alone, but every column.
    """

    columns: int
    rows: int = WARPGROUP
    warpgroups: int = 1

    def __post_init__(self) -> None:
        if self.columns % self.warpgroups:
            raise ValueError(
                f"{self.columns} columns over {self.warpgroups} warpgroups: each reads a whole number of them"
            )

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups

    @property
    def rows_per_warp(self) -> int:
        return self.rows // WARPS_PER_GROUP

    @property
    def holders(self) -> tuple[int, ...]:
        """Threads whose lane holds a row."""
        return tuple(thread for thread in range(self.threads) if thread % WARP < self.rows_per_warp)

    @property
    def registers(self) -> int:
        return self.columns // self.warpgroups

    @property
    def packed(self) -> int:
        return 1

    @property
    def formula(self) -> str:
        thread = "t" if self.warpgroups == 1 else "t % 128"
        row = thread if self.rows == WARPGROUP else f"{self.rows_per_warp} * ({thread} / 32) + t % 32"
        column = "r" if self.warpgroups == 1 else f"{self.registers} * (t / 128) + r"
        idle = "" if self.rows == WARPGROUP else f"; lanes from {self.rows_per_warp} of each warp hold nothing"
        return (
            f"thread t, register r: row {row}, column {column} "
            f"(warp w reads lanes 32 * (w % 4) .. 32 * (w % 4) + 31 alone{idle})"
        )

    def coordinate(self, thread: int, register: int, half: int = 0) -> tuple[int, int]:
        group, lane = divmod(thread, WARPGROUP)
        return self.rows_per_warp * (lane // WARP) + lane % WARP, self.registers * group + register


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A tile in shared memory, in panels of one swizzle row. `major` "K": the second dimension is contiguous; "MN": the first.

    The swizzle XORs the 16-byte chunk index with the row index; it repeats every 8 rows, so a tile starts on `alignment` bytes.
    """

    rows: int
    columns: int
    dtype: DType
    swizzle: int = 0
    major: str = "K"

    def __post_init__(self) -> None:
        if self.swizzle not in (0, 32, 64, 128):
            raise ValueError(f"swizzle {self.swizzle}: hardware has 0, 32, 64 and 128 bytes")
        if self.major not in ("K", "MN"):
            raise ValueError(f"major {self.major!r}: 'K' or 'MN'")
        contiguous = (self.columns if self.major == "K" else self.rows) * self.dtype.bytes
        if self.swizzle and contiguous % self.swizzle:
            raise ValueError(
                f"a contiguous extent of {contiguous} bytes is no whole number of {self.swizzle}-byte swizzle rows"
            )

    @property
    def bytes(self) -> int:
        return self.rows * self.columns * self.dtype.bytes

    @property
    def alignment(self) -> int:
        """Bytes on which the tile starts, so that the swizzle pattern begins at its first row."""
        return 8 * self.swizzle if self.swizzle else 128 if self.columns > 1 and self.rows > 1 else 16

    @property
    def panel_elements(self) -> int:
        """Elements of one swizzle row, which is also the inner extent of a TMA box."""
        contiguous = self.columns if self.major == "K" else self.rows
        return self.swizzle // self.dtype.bytes if self.swizzle else contiguous

    @property
    def panels(self) -> int:
        contiguous = self.columns if self.major == "K" else self.rows
        return contiguous // self.panel_elements

    @property
    def panel_bytes(self) -> int:
        return self.bytes // self.panels

    @property
    def stride(self) -> int:
        """Bytes from one of several such tiles to the next, so that each of them is aligned."""
        return -(-self.bytes // self.alignment) * self.alignment

    def offset(self, row: int, column: int) -> int:
        """Byte offset of an element from the (aligned) start of the tile."""
        outer, inner = (row, column) if self.major == "K" else (column, row)
        panel, within = divmod(inner, self.panel_elements)
        linear = panel * self.panel_bytes + (outer * self.panel_elements + within) * self.dtype.bytes
        mask = {0: 0, 32: 1, 64: 3, 128: 7}[self.swizzle]
        return linear ^ ((linear >> 7 & mask) << 4)

    @property
    def leading_byte_offset(self) -> int:
        """LBO of an MMA descriptor: the step to the next panel (MN-major); ignored, so 16, for swizzled K-major tiles."""
        return 16 if self.major == "K" else self.panel_bytes

    @property
    def stride_byte_offset(self) -> int:
        """SBO of an MMA descriptor: the step to the next group of 8 swizzle rows."""
        return 8 * self.swizzle

    def k_step_bytes(self, step: int, depth: int = MMA_K) -> int:
        """Bytes to add to the start address for the `step`-th instruction, each `depth` values of K."""
        first = depth * step
        if self.major == "K":
            panel, within = divmod(first, self.panel_elements)
            return panel * self.panel_bytes + within * self.dtype.bytes
        return first * self.panel_elements * self.dtype.bytes

    @property
    def formula(self) -> str:
        name = f"{self.swizzle}-byte swizzle" if self.swizzle else "no swizzle"
        panels = f", {self.panels} panels of {self.panel_bytes} bytes" if self.panels > 1 else ""
        shape = f"{self.dtype} [{self.rows}, {self.columns}] {self.major}-major"
        return f"{shape}, {name}{panels}, {self.bytes} bytes on {self.alignment}"


@dataclass(frozen=True, slots=True)
class TmemLayout:
    """An FP32 accumulator in tensor memory: column n in 32-bit column `first_column + n`, row m on lane m (of 128 rows) or, of 64
    rows, on lane 32 * (m / 16) + m % 16, so that each warp's quarter of the lanes holds a quarter of the rows."""

    rows: int
    columns: int
    first_column: int = 0

    def __post_init__(self) -> None:
        if self.rows not in (MMA_ROWS, WARPGROUP):
            raise ValueError(f"{self.rows} rows: tcgen05.mma accumulates 64 or 128 rows")
        if self.columns % 16 or not 16 <= self.columns <= 256:
            raise ValueError(f"{self.columns} columns: tcgen05.mma takes 16 to 256 in steps of 16")

    @property
    def allocated_columns(self) -> int:
        """Columns that tcgen05.alloc reserves: the next power of two, at least 32."""
        return allocated_columns(self.columns)

    def lane(self, row: int) -> int:
        """The lane that holds a row."""
        quarter = self.rows // WARPS_PER_GROUP
        return WARP * (row // quarter) + row % quarter

    @property
    def formula(self) -> str:
        lane = "m" if self.rows == WARPGROUP else "32 * (m / 16) + m % 16"
        return (
            f"f32 [{self.rows}, {self.columns}]: row m on lane {lane}, column n in TMEM column {self.first_column} + n"
        )


def allocated_columns(columns: int) -> int:
    """Columns of tensor memory that tcgen05.alloc reserves for so many: the next power of two, at least 32."""
    return max(32, 1 << (columns - 1).bit_length())

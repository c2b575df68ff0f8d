"""Names that the generator itself puts into a text: stated here once, refused to authors, used by the lowering."""

from __future__ import annotations

ROW = "row"
COLUMN = "column"
OFFSET = "offset"
IN_RANGE = "in_range"
ELEMENT = "i"
SHARED = "shared"
RING = "ring"
GENERATED = frozenset({ROW, COLUMN, OFFSET, IN_RANGE, ELEMENT, SHARED, RING})

THREADS = "kThreads"
VECTOR = "kVector"
LANES_PER_ROW = "kLanesPerRow"
ROWS_PER_BLOCK = "kRowsPerBlock"
BLOCKS_PER_SM = "kBlocksPerSm"


def constant_name(words: str) -> str:
    """The name of a constant in the text: `rows_per_block` is `kRowsPerBlock`."""
    return "k" + "".join(part.capitalize() for part in words.split("_"))


def partial_name(reduction: str) -> str:
    """The variable in which a thread collects its part of a reduction."""
    return f"{reduction}_partial"


def stored_name(tensor: str) -> str:
    """The registers of a tile that is stored without having a name of its own."""
    return f"{tensor}_row"

"""The instruction table and its entries, one file a topic."""

from kernwright.generator.instructions import (
    arithmetic,
    barriers,
    global_memory,
    matrix_descriptors,
    matrix_moves,
    shared_memory,
    tcgen05,
    tensor_copies,
    warp,
    wgmma,
)
from kernwright.generator.instructions.table import Confirmed, Effects, Instruction, instruction, lookup, table

__all__ = [
    "Confirmed",
    "Effects",
    "Instruction",
    "arithmetic",
    "barriers",
    "global_memory",
    "instruction",
    "lookup",
    "matrix_descriptors",
    "matrix_moves",
    "shared_memory",
    "table",
    "tcgen05",
    "tensor_copies",
    "warp",
    "wgmma",
    "wrapper_names",
]


def wrapper_names() -> frozenset[str]:
    """Names that a program may not use for its own values."""
    return frozenset(entry.spelling.partition("<")[0] for entry in table())

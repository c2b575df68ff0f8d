"""The instruction table and its entries, one file a topic."""

from kernwright.generator.instructions import arithmetic, global_memory, warp
from kernwright.generator.instructions.table import Confirmed, Effects, Instruction, instruction, lookup, table

__all__ = [
    "Confirmed",
    "Effects",
    "Instruction",
    "arithmetic",
    "global_memory",
    "instruction",
    "lookup",
    "table",
    "warp",
    "wrapper_names",
]


def wrapper_names() -> frozenset[str]:
    """Names that a program may not use for its own values."""
    return frozenset(entry.spelling for entry in table())

"""Instructions that a lowering asks for: in the table, and on this architecture."""

from __future__ import annotations

from kernwright.generator.arch import Architecture
from kernwright.generator.errors import LayoutFault
from kernwright.generator.instructions import lookup
from kernwright.generator.ir.source import Source


def require_instruction(name: str, arch: Architecture, source: Source) -> str:
    """The name, after checking that the table and `arch` have it. Raises LayoutFault KW0305 or KW0306."""
    try:
        entry = lookup(name, arch)
    except KeyError:
        raise LayoutFault("KW0305", f"no instruction {name!r} in the table", source, where=f"on {arch.name}") from None
    if not entry.exists_on(arch):
        raise LayoutFault("KW0306", f"{name} does not exist on {arch.name}", source)
    return name

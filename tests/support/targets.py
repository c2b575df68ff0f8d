"""The hand-written targets as text: their code lines, their named constants, and the facts derived for the same programs."""

from __future__ import annotations

import re
from pathlib import Path

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.passes.derive import Derived, PipelineFacts, derive
from kernwright.generator.pipeline import discover

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "targets"
NORM, WGMMA_TILE, TCGEN05_TILE, SCAN = (
    "rmsnorm_silu_gate_forward.cu",
    "mma_tile.sm_90a.cu",
    "mma_tile.sm_100a.cu",
    "gdn_scan.sm_90a.cu",
)
TARGETS = (NORM, WGMMA_TILE, TCGEN05_TILE, SCAN)


def is_code(line: str) -> bool:
    """Neither blank, nor a comment alone, nor braces alone."""
    text = line.strip()
    return bool(text) and not text.startswith("//") and re.fullmatch(r"[{}]+;?", text) is None


def code_lines(target: str) -> dict[int, str]:
    """Line number to code, with single blanks."""
    lines = (FOLDER / target).read_text(encoding="utf-8").splitlines()
    return {number: " ".join(line.split()) for number, line in enumerate(lines, 1) if is_code(line)}


def constants(text: str) -> dict[str, int]:
    """Named integers of a target: `constexpr int kStages = 3;`."""
    return {name: int(value) for name, value in re.findall(r"constexpr int (k\w+) = (\d+);", text)}


def text_of(target: str) -> str:
    """A file of docs/targets."""
    return (FOLDER / target).read_text(encoding="utf-8")


def derived_of(symbol: str, arch: str) -> Derived:
    """The facts of a program on an architecture."""
    return derive(discover()[symbol].trace(), ARCHITECTURES[arch])


def pipeline_of(derived: Derived, name: str) -> PipelineFacts:
    """The facts of one pipeline."""
    return next(item for item in derived.pipelines if item.pipeline.name == name)


def slot_sizes(derived: Derived) -> dict[str, tuple[int, int]]:
    """Size and alignment of every slot of the shared-memory map, in bytes."""
    return {slot.name: (slot.size, slot.alignment) for slot in derived.shared}


def init_count(text: str, barrier: str) -> str:
    """What the text passes to mbarrier_init for a barrier."""
    return re.search(rf"mbarrier_init\(shared\.{barrier}(?:\[\w+\])?, (.+)\);", text)[1]

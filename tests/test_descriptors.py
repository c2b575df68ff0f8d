"""Matrix descriptors: published words, and a decoder written from the field table."""

from __future__ import annotations

import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.instructions.descriptors import decode, describe_operand, tcgen05_instruction_descriptor
from kernwright.generator.ir.layout import SharedLayout
from kernwright.generator.ir.types import bf16

HOPPER, BLACKWELL, RUBIN = (ARCHITECTURES[name] for name in ("sm_90a", "sm_100a", "sm_107a"))

# (MN, K, swizzle, major) of BF16 tiles at byte address 0x400, as the documents' tables give them for wgmma and tcgen05.
WORDS = [
    ((64, 64, 128, "K"), 0x4000004000010040, 0x4000404000010040),
    ((64, 64, 64, "K"), 0x8000002000010040, 0x8000402000010040),
    ((64, 64, 32, "K"), 0xC000001000010040, 0xC000401000010040),
    ((64, 64, 128, "MN"), 0x4000004002000040, 0x4000404002000040),
    ((128, 64, 128, "K"), 0x4000004000010040, 0x4000404000010040),
    ((128, 64, 128, "MN"), 0x4000004002000040, 0x4000404002000040),
    ((64, 128, 128, "K"), 0x4000004000010040, 0x4000404000010040),
]


@pytest.mark.parametrize(("tile", "wgmma", "tcgen05"), WORDS, ids=lambda item: str(item))
def test_published_words(tile, wgmma, tcgen05):
    rows, columns, swizzle, major = tile
    layout = SharedLayout(rows, columns, bf16, swizzle, major)
    assert describe_operand(layout, HOPPER).at(0x400) == wgmma
    assert describe_operand(layout, BLACKWELL).at(0x400) == tcgen05
    assert describe_operand(layout, RUBIN).at(0x400) == tcgen05


def test_above_256_kib_only_the_wider_mask_keeps_the_address():
    layout = SharedLayout(128, 64, bf16, 128)
    assert describe_operand(layout, RUBIN).at(0x48400) == 0x4000404000014840
    assert describe_operand(layout, BLACKWELL).at(0x48400) == 0x4000404000010840, "14 bits wrap"
    assert decode(describe_operand(layout, RUBIN).at(0x48400), RUBIN).start == 0x48400
    assert decode(describe_operand(layout, BLACKWELL).at(0x48400), BLACKWELL).start != 0x48400


@pytest.mark.parametrize("arch", [HOPPER, BLACKWELL, RUBIN], ids=lambda arch: arch.name)
@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("major", ["K", "MN"])
def test_decoding_gives_back_what_was_encoded_at_every_step(arch, swizzle, major):
    layout = SharedLayout(128, 64, bf16, swizzle, major)
    descriptor = describe_operand(layout, arch)
    for step in range(4):
        fields = decode(descriptor.at(0x8000, step), arch)
        assert fields.start == 0x8000 + layout.k_step_bytes(step)
        assert fields.stride_byte_offset == 8 * swizzle
        assert fields.leading_byte_offset == (16 if major == "K" else layout.panel_bytes)
        assert fields.swizzle == swizzle
        assert fields.version == (0 if arch is HOPPER else 1)


@pytest.mark.parametrize("arch", [HOPPER, BLACKWELL, RUBIN], ids=lambda arch: arch.name)
def test_no_step_of_a_legal_tile_carries_out_of_the_address_field(arch):
    """The last address that a block can have, plus the largest step, still fits the field."""
    layout = SharedLayout(64, 128, bf16, 128)
    limit = arch.oversized_shared_memory_per_block or arch.shared_memory_per_block
    start = (limit - layout.bytes) // 1024 * 1024
    descriptor = describe_operand(layout, arch)
    for step in range(8):
        assert descriptor.at(start, step) >> 14 & 3 == (start + descriptor.k_steps[step]) >> 18 & 3
        assert decode(descriptor.at(start, step), arch).start == start + descriptor.k_steps[step]


def test_instruction_descriptor_words():
    assert tcgen05_instruction_descriptor(128, 64) == 0x08100490
    assert tcgen05_instruction_descriptor(64, 256) == 0x04400490
    assert tcgen05_instruction_descriptor(128, 128, b_mn_major=True) == 0x08210490

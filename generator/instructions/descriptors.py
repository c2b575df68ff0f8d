"""Shared-memory matrix descriptors of wgmma and tcgen05: encoder, and a decoder written from the field table on its own.

Fields (PTX ISA, matrix descriptors): bits 13:0 start address / 16 (14:0 where the architecture addresses 327 KiB), 29:16 leading
byte offset / 16, 45:32 stride byte offset / 16, 48:46 the constant 1 on tcgen05, and the swizzle mode in the top bits (63:62 on
wgmma, 63:61 on tcgen05). The mask is applied after every addition, so that no carry can reach a neighbouring field.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernwright.generator.arch import Architecture, Machine
from kernwright.generator.ir.layout import SharedLayout

_SWIZZLE_TOP_BITS = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A descriptor without its start address, and what an address is masked with. Offsets are bytes."""

    layout: SharedLayout
    template: int
    mask: int
    k_steps: tuple[int, ...]

    def at(self, address: int, step: int = 0) -> int:
        """The 64-bit descriptor of the `step`-th instruction of a tile at shared-memory `address` (bytes)."""
        return self.template | ((address + self.k_steps[step]) >> 4 & self.mask)


@dataclass(frozen=True, slots=True)
class DecodedDescriptor:
    """What the hardware reads from a descriptor; addresses and offsets in bytes."""

    start: int
    leading_byte_offset: int
    stride_byte_offset: int
    version: int
    swizzle: int


def describe_operand(layout: SharedLayout, arch: Architecture) -> Descriptor:
    """The descriptor of a BF16 operand tile of [MN, K] (`rows` is MN, `columns` is K) on `arch`."""
    top = _SWIZZLE_TOP_BITS[layout.swizzle] << 62
    fixed = 1 << 46 if arch.machine is Machine.TCGEN05 else 0
    offsets = layout.leading_byte_offset >> 4 << 16 | layout.stride_byte_offset >> 4 << 32
    steps = tuple(layout.k_step_bytes(step) for step in range(layout.columns // 16))
    return Descriptor(layout, offsets | fixed | top, arch.descriptor_mask, steps)


def decode(word: int, arch: Architecture) -> DecodedDescriptor:
    """Split a descriptor into its fields, as the documents list them."""
    address_bits = arch.descriptor_mask.bit_length()
    tcgen05 = arch.machine is Machine.TCGEN05
    mode = word >> 61 & 7 if tcgen05 else (word >> 62 & 3) * 2
    return DecodedDescriptor(
        start=(word & ((1 << address_bits) - 1)) * 16,
        leading_byte_offset=(word >> 16 & 0x3FFF) * 16,
        stride_byte_offset=(word >> 32 & 0x3FFF) * 16,
        version=word >> 46 & 7,
        swizzle={0: 0, 2: 128, 4: 64, 6: 32}[mode],
    )


def tcgen05_instruction_descriptor(rows: int, columns: int, a_mn_major: bool = False, b_mn_major: bool = False) -> int:
    """The 32-bit instruction descriptor of tcgen05.mma.kind::f16 for BF16 inputs and an FP32 accumulator."""
    return (
        1 << 4
        | 1 << 7
        | 1 << 10
        | int(a_mn_major) << 15
        | int(b_mn_major) << 16
        | (columns >> 3) << 17
        | (rows >> 4) << 24
    )

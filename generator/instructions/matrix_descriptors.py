"""The shared-memory descriptor of an operand, from its constant part and its address; the address field's width is the chip's.

The mask is applied after every addition to the address. `advance` adds to a finished descriptor: a program may use it where its
no-carry proof shows that both orders give the same word.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.arch import ARCHITECTURES, Architecture, Feature, Machine
from kernwright.generator.instructions.table import instruction
from kernwright.generator.ir.types import u64


def _mask(machine: Machine) -> str:
    """The mask of a machine's header: one number, or one for each chip where they differ."""
    archs = [arch for arch in ARCHITECTURES.values() if arch.machine is machine]
    masks: dict[int, list[Architecture]] = {}
    for arch in archs:
        masks.setdefault(arch.descriptor_mask, []).append(arch)
    reach = "\n".join(
        f"//   {', '.join(arch.name for arch in chips)}: {mask.bit_length()} bits, {(mask + 1) * 16 // 1024} KiB"
        for mask, chips in masks.items()
    )
    head = f"// The address field of a shared-memory descriptor, in units of 16 bytes:\n{reach}"
    (common, _), *others = masks.items()
    line = "constexpr unsigned kDescriptorMask = 0x{:X};"
    if not others:
        return f"{head}\n{line.format(common)}"
    lines = [head]
    for position, (mask, chips) in enumerate(others):
        test = " || ".join(f"__CUDA_ARCH__ == {arch.cuda_arch}" for arch in chips)
        test = f"({test})" if len(chips) > 1 else test
        lines += [f"#{'elif' if position else 'if'} defined(__CUDA_ARCH__) && {test}", line.format(mask)]
    return "\n".join([*lines, "#else", line.format(common), "#endif"])


def _entries(machine: Machine, feature: Feature, header: str) -> None:
    """Register the two functions for one machine."""

    def matrix_descriptor(template: Any, address: Any, mask: int = 0x3FFF) -> Any:
        """Descriptor of an operand at a shared-window address: the constant part, and the address over 16, masked last.

        `mask` is the architecture's descriptor mask.
        """
        import numpy as np

        field = np.asarray(address, np.uint64) >> np.uint64(4) & np.uint64(mask)
        return np.asarray(template, np.uint64) | field

    def advance(descriptor: Any, bytes: Any) -> Any:
        """The same operand, a multiple of 16 bytes further on; the address field may not carry."""
        import numpy as np

        return np.asarray(descriptor, np.uint64) + (np.asarray(bytes, np.uint64) >> np.uint64(4))

    instruction(
        ptx=("shr.u32", "and.b32", "or.b64"),
        result=u64,
        needs=(feature,),
        header=header,
        cuda=f"""
{_mask(machine)}

// Descriptor of an operand at a shared-memory address; masked here, after all additions to the address.
__device__ __forceinline__ constexpr unsigned long long matrix_descriptor(unsigned long long constant, unsigned address) {{
  return constant | (address >> 4 & kDescriptorMask);
}}
""",
    )(matrix_descriptor)
    instruction(
        ptx=("add.s64",),
        result=u64,
        needs=(feature,),
        header=header,
        cuda="""
// The same operand some bytes further on; the program's no-carry proof says that the address field holds the sum.
__device__ __forceinline__ constexpr unsigned long long advance(unsigned long long descriptor, int bytes) {
  return descriptor + (bytes >> 4);
}
""",
    )(advance)


_entries(Machine.WGMMA, Feature.WGMMA, "sm_90a")
_entries(Machine.TCGEN05, Feature.TCGEN05, "sm_100a")

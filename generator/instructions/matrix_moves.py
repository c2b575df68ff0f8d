"""Matrices between registers and shared memory (ldmatrix, stmatrix), the swizzle that they address, and BF16 pairs in registers.

A matrix is 8 rows of 8 16-bit elements; lane l hands over the address of row l % 8 of matrix l / 8, a multiple of 16 bytes.
Register i of lane l holds element (l / 4, 2 (l % 4)) of matrix i and its right neighbour, with `.trans` those of the transpose.
Source: PTX ISA, ldmatrix and stmatrix; the swizzle as TMA and the tensor cores apply it.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.instructions.table import Confirmed, Effects, instruction
from kernwright.generator.ir.types import f32, u32

_READ = Effects(reads=("shared",), writes=("registers",), collective="warp")


_SHOWN = {128: "chunk ^ (row & 7)", 64: "chunk ^ (row >> 1 & 3)", 32: "chunk ^ (row >> 2 & 1)"}


def _swizzle(width: int) -> None:
    """Register the swizzle of rows of `width` bytes."""

    def swizzled(row: Any, chunk: Any) -> Any:
        import numpy as np

        chunks = width // 16
        rows, places = np.asarray(row, np.uint32), np.asarray(chunk, np.uint32)
        turn = rows // np.uint32(8 // chunks) % np.uint32(chunks)  # the same for all rows of one line of 128 bytes
        return rows * np.uint32(width) + ((places ^ turn) << np.uint32(4))

    swizzled.__name__ = f"swizzle_{width}"
    swizzled.__doc__ = (
        f"Byte offset of 16-byte chunk `chunk` (0 to {width // 16 - 1}) of {width}-byte row `row`, "
        f"from a tile's start on a multiple of {8 * width} bytes."
    )
    instruction(
        ptx=("and.b32", "xor.b32", "shl.b32"),
        sass=("LOP3.LUT",),
        result=u32,
        limits=(0, (1 << 20) - 1),  # tiles lie in shared memory
        confirmed=Confirmed.HARDWARE if width == 128 else Confirmed.DOCUMENTS,
        cuda=f"""
// Byte offset of a 16-byte chunk in a tile of {width}-byte rows: TMA writes it there and the tensor cores read it there.
__device__ __forceinline__ constexpr unsigned swizzle_{width}(unsigned row, unsigned chunk) {{
  return row * {width} + (({_SHOWN[width]}) << 4);
}}
""",
    )(swizzled)


for _width in (128, 64, 32):
    _swizzle(_width)


@instruction(
    ptx=("ldmatrix.sync.aligned.m8n8.x4.shared.b16",),
    sass=("LDSM.16.M88.4",),
    effects=_READ,
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Four 8x8 matrices -> registers; complete on return.
__device__ __forceinline__ void ldmatrix_x4(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_address(row)) : "memory");
}
""",
)
def ldmatrix_x4(rows: Any) -> Any:
    """Four 8x8 matrices into four registers a lane; complete on return.

    `rows` [32, 8] holds the 16-bit elements of the row that each lane addresses; the result is [32 lanes, 4 registers].
    """
    return _fragments(rows, transposed=False)


@instruction(
    ptx=("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",),
    sass=("LDSM.16.MT88.4",),
    effects=_READ,
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Four 8x8 matrices, transposed -> registers; complete on return.
__device__ __forceinline__ void ldmatrix_x4_transposed(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_address(row)) : "memory");
}
""",
)
def ldmatrix_x4_transposed(rows: Any) -> Any:
    """Four 8x8 matrices, each transposed, into four registers a lane; complete on return. Arguments as `ldmatrix_x4`."""
    return _fragments(rows, transposed=True)


@instruction(
    ptx=("stmatrix.sync.aligned.m8n8.x4.shared.b16",),
    sass=("STSM.16.M88.4",),
    effects=Effects(reads=("registers",), writes=("shared",), collective="warp"),
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Registers -> four 8x8 matrices; an ordinary shared-memory write, so the asynchronous proxy needs a fence.
__device__ __forceinline__ void stmatrix_x4(void* row, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(smem_address(row)), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}
""",
)
def stmatrix_x4(registers: Any) -> Any:
    """Four registers a lane into four 8x8 matrices, by ordinary writes: a reader in the asynchronous proxy needs a proxy fence.

    `registers` [32 lanes, 4]; the result [32, 8] is what is written to the row that each lane addresses.
    """
    import numpy as np

    words = np.asarray(registers, np.uint32)
    pairs = np.stack((words & np.uint32(0xFFFF), words >> np.uint32(16)), axis=-1).astype(np.uint16)
    # [row, pair of columns, matrix, half] -> [matrix, row, column]
    return pairs.reshape(8, 4, 4, 2).transpose(2, 0, 1, 3).reshape(32, 8)


@instruction(
    ptx=("cvt.rn.bf16x2.f32",),
    sass=("F2FP.BF16.F32.PACK_AB",),
    result=u32,
    confirmed=Confirmed.HARDWARE,
    cuda="""
// Two FP32 -> BF16 pair, round to nearest even.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
""",
)
def pack_bf16(low: Any, high: Any) -> Any:
    """Two FP32 values rounded to BF16, nearest even, `low` in the lower half; NaN becomes 0x7FFF, overflow infinity."""
    import numpy as np

    def half(value: Any) -> Any:
        number = np.asarray(value, np.float32)
        bits = number.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(number), np.uint32(0x7FFF), rounded)

    return half(low) | half(high) << np.uint32(16)


@instruction(
    ptx=("shl.b32",),
    result=f32,
    confirmed=Confirmed.HARDWARE,
    cuda="""
// The lower BF16 of a pair, widened exactly.
__device__ __forceinline__ float bf16_low(unsigned pair) { return __uint_as_float(pair << 16); }
""",
)
def bf16_low(pair: Any) -> Any:
    """The lower BF16 of a pair as FP32, exact."""
    import numpy as np

    return (np.asarray(pair, np.uint32) << np.uint32(16)).view(np.float32)


@instruction(
    ptx=("and.b32",),
    result=f32,
    confirmed=Confirmed.HARDWARE,
    cuda="""
// The upper BF16 of a pair, widened exactly.
__device__ __forceinline__ float bf16_high(unsigned pair) { return __uint_as_float(pair & 0xFFFF0000u); }
""",
)
def bf16_high(pair: Any) -> Any:
    """The upper BF16 of a pair as FP32, exact."""
    import numpy as np

    return (np.asarray(pair, np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _fragments(rows: Any, transposed: bool) -> Any:
    """The four registers of every lane, from the row that every lane addresses."""
    import numpy as np

    matrices = np.asarray(rows, np.uint16).reshape(4, 8, 8).astype(np.uint32)
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    words = matrices[..., 0::2] | matrices[..., 1::2] << np.uint32(16)  # [matrix, row, pair of columns]
    return words.transpose(1, 2, 0).reshape(32, 4)

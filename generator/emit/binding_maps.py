"""Tensor maps of a binding: what cuTensorMapEncodeTiled takes, and cuda.h's names for it."""

from __future__ import annotations

import re

from kernwright.generator.ir.program import TensorMap, TensorParameter

# Types of cuda.h for the elements of a tensor map, and for the swizzle of its box by the bytes of a swizzle row.
MAP_TYPES = {
    "u8": "UINT8",
    "i8": "UINT8",
    "i32": "INT32",
    "u32": "UINT32",
    "i64": "INT64",
    "u64": "UINT64",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
MAP_SWIZZLES = {0: "NONE", 16: "NONE", 32: "32B", 64: "64B", 128: "128B"}
MAX_MAP_DIMS = 5
MAX_BOX = 256  # elements of a box in one dimension


def check_map(symbol: str, item: TensorMap, tensors: dict[str, TensorParameter]) -> None:
    """Raise ValueError for a map that the driver would refuse whatever the caller passes, or whose tensor may be absent."""
    rank = len(item.extents)
    if not re.fullmatch(r"[A-Za-z_]\w*", item.name):
        raise ValueError(f"{symbol}: tensor map {item.name!r} is not usable as a name in C; rename it")
    if item.tensor not in tensors:
        raise ValueError(f"{symbol}: tensor map {item.name} is of {item.tensor!r}, which is no tensor")
    if tensors[item.tensor].optional:
        raise ValueError(f"{symbol}: tensor map {item.name} is of {item.tensor!r}, which may be absent")
    if not 1 <= rank <= MAX_MAP_DIMS or len(item.strides) != rank - 1 or len(item.box) != rank:
        sizes = f"{rank} extents, {len(item.strides)} strides, {len(item.box)} of the box"
        raise ValueError(
            f"{symbol}: tensor map {item.name} has {sizes}; expected n, n - 1 and n, n from 1 to {MAX_MAP_DIMS}"
        )
    if any(not 1 <= size <= MAX_BOX for size in item.box):
        raise ValueError(f"{symbol}: tensor map {item.name} has a box of {list(item.box)}; each size is 1 to {MAX_BOX}")
    if item.dtype.name not in MAP_TYPES or item.swizzle not in MAP_SWIZZLES:
        raise ValueError(f"{symbol}: tensor map {item.name} has no type for {item.dtype}, swizzle {item.swizzle}")
    row = item.box[0] * item.dtype.bytes
    if row % 16 or (item.swizzle > 16 and row > item.swizzle):
        most = f", {item.swizzle} at most" if item.swizzle > 16 else ""
        raise ValueError(
            f"{symbol}: tensor map {item.name} has box rows of {row} bytes; expected a multiple of 16{most}"
        )


def map_name(item: TensorMap) -> str:
    """The C variable of a map, whose own name may be its tensor's too."""
    return f"kw_map_{item.name}"


def map_types(item: TensorMap) -> list[str]:
    """The fields of a `KwMap` that are cuda.h's: type of the elements, swizzle of the box."""
    return [
        f".type = CU_TENSOR_MAP_DATA_TYPE_{MAP_TYPES[item.dtype.name]}",
        f".swizzle = CU_TENSOR_MAP_SWIZZLE_{MAP_SWIZZLES[item.swizzle]}",
    ]

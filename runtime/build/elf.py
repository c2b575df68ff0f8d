"""Reads the sections of a 64-bit little-endian ELF file (a cubin): enough to hash the machine code of each kernel."""

from __future__ import annotations

import hashlib
import struct

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
NO_BITS = 8
PREFIX = ".text."


def sections(data: bytes) -> dict[str, bytes]:
    """Contents of every section by name. Raises ValueError for anything but a whole 64-bit little-endian ELF file."""
    if len(data) < HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    fields = HEADER.unpack_from(data)
    offset, size, count, names = fields[6], fields[11], fields[12], fields[13]
    if size != SECTION.size or names >= count or offset + size * count > len(data):
        raise ValueError("the section table of the ELF file is cut off")
    rows = [SECTION.unpack_from(data, offset + size * index) for index in range(count)]
    strings = _contents(data, rows[names])
    result = {}
    for row in rows:
        name = strings[row[0] : strings.index(b"\0", row[0])].decode()
        result[name] = _contents(data, row)
    return result


def _contents(data: bytes, row: tuple[int, ...]) -> bytes:
    kind, start, size = row[1], row[4], row[5]
    if kind == NO_BITS:
        return b""
    if start + size > len(data):
        raise ValueError("a section of the ELF file is cut off")
    return data[start : start + size]


def kernel_text(data: bytes) -> dict[str, bytes]:
    """Machine code of every kernel and device function of a cubin, by symbol."""
    return {name.removeprefix(PREFIX): code for name, code in sections(data).items() if name.startswith(PREFIX)}


def text_digests(data: bytes) -> dict[str, str]:
    """sha256 of the machine code of every kernel of a cubin: equal digests mean the same instructions."""
    return {name: hashlib.sha256(code).hexdigest() for name, code in sorted(kernel_text(data).items())}

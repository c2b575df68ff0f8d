"""Scalar types with their C++ spelling, and the C++ rules by which arithmetic chooses a type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a scalar type holds."""

    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type: its kernwright name (`i32`), its C++ spelling (`int`), its width in bits, and how a literal ends."""

    name: str
    cpp: str
    bits: int
    kind: Kind
    suffix: str = ""

    @property
    def bytes(self) -> int:
        """Size of one value in bytes."""
        return max(1, self.bits // 8)

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers and for bool, which C++ promotes to int."""
        return self.kind is not Kind.FLOAT

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def low(self) -> int:
        """Smallest value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind is Kind.SIGNED else 0

    @property
    def high(self) -> int:
        """Largest value of an integer type."""
        if self.kind is Kind.BOOL:
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind is Kind.SIGNED else (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


boolean = DType("boolean", "bool", 1, Kind.BOOL)
i8 = DType("i8", "signed char", 8, Kind.SIGNED)
i16 = DType("i16", "short", 16, Kind.SIGNED)
i32 = DType("i32", "int", 32, Kind.SIGNED)
i64 = DType("i64", "long long", 64, Kind.SIGNED, "ll")
u8 = DType("u8", "unsigned char", 8, Kind.UNSIGNED)
u16 = DType("u16", "unsigned short", 16, Kind.UNSIGNED)
u32 = DType("u32", "unsigned", 32, Kind.UNSIGNED, "u")
u64 = DType("u64", "unsigned long long", 64, Kind.UNSIGNED, "ull")
bf16 = DType("bf16", "__nv_bfloat16", 16, Kind.FLOAT)
f16 = DType("f16", "__half", 16, Kind.FLOAT)
f32 = DType("f32", "float", 32, Kind.FLOAT, "f")
f64 = DType("f64", "double", 64, Kind.FLOAT)

ALL_DTYPES = (boolean, i8, i16, i32, i64, u8, u16, u32, u64, bf16, f16, f32, f64)
BY_NAME = {dtype.name: dtype for dtype in ALL_DTYPES}


def promote(dtype: DType) -> DType:
    """Integral promotion: every integer narrower than int becomes int."""
    return i32 if dtype.is_integer and dtype.bits < 32 else dtype


def common(left: DType, right: DType) -> DType:
    """The type in which C++ evaluates `left op right` (usual arithmetic conversions).

    Floats combine only with the same float type: a description converts explicitly, so that each rounding is visible.
    """
    if left is right:
        return promote(left)
    if left.is_float or right.is_float:
        if left != right:
            raise TypeError(f"{left} and {right} do not combine: convert one of them explicitly")
        return left
    left, right = promote(left), promote(right)
    if left.bits != right.bits:
        return left if left.bits > right.bits else right
    return left if left.kind is Kind.UNSIGNED else right

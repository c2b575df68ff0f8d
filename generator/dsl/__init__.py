"""The language of descriptions. A kernel file imports everything it needs from here."""

from kernwright.generator.arch import ALL
from kernwright.generator.dsl.kernel import Kernel
from kernwright.generator.dsl.memory import shared
from kernwright.generator.dsl.program import program
from kernwright.generator.dsl.rows import MAXIMUM_GRID, RowLayout
from kernwright.generator.dsl.value import Value
from kernwright.generator.ir.description import Extent, Fragment
from kernwright.generator.ir.types import DType, bf16, boolean, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64

__all__ = [
    "ALL",
    "MAXIMUM_GRID",
    "DType",
    "Extent",
    "Fragment",
    "Kernel",
    "RowLayout",
    "Value",
    "bf16",
    "boolean",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "program",
    "shared",
    "u8",
    "u16",
    "u32",
    "u64",
]

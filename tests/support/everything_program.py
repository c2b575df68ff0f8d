"""A lowered program that uses what the norm does not: every scalar type, a named constant, a cluster, shared memory."""

from __future__ import annotations

from typing import Any

from kernwright.generator.ir.expr import Binary, Call, Const, Expr, Var, integer
from kernwright.generator.ir.program import (
    Launch,
    LoweredProgram,
    NamedConstant,
    Parameter,
    ScalarParameter,
    TensorParameter,
)
from kernwright.generator.ir.types import BY_NAME, boolean, f32, i32, i64


def everything() -> LoweredProgram:
    """A program that uses what the norm does not: every scalar type, a named constant, a cluster, dynamic shared memory."""
    n, m = Var("n", i32, 0, 1 << 20), Var("m", i64, 1, 64)
    block = Const(32, i32, "block")

    def scalar(name: str, **facts: Any) -> ScalarParameter:
        return ScalarParameter(name, BY_NAME[name.removeprefix("a_")], **facts)

    parameters: tuple[Parameter, ...] = (
        ScalarParameter("n", i32, 0, 1 << 20, multiple_of=4, bound_to=("t", 0)),
        ScalarParameter("m", i64, 1, 64, bound_to=("t", 1)),
        TensorParameter("t", f32, (n, m), (m, integer(1)), "update", 4),
        scalar("a_i8"),
        scalar("a_u8"),
        scalar("a_i16"),
        scalar("a_u32", low=1, high=10, multiple_of=5),
        scalar("a_i64"),
        scalar("a_u64"),
        scalar("a_f32"),
        scalar("a_f64", minimum=-2.0),
        ScalarParameter("flag", boolean),
    )
    grid: tuple[Expr, Expr, Expr] = (
        Binary("*", Call("min", (Binary("/", n, block), Const(1000, i32)), i32), integer(2)),
        m,
        integer(1),
    )
    return LoweredProgram(
        *("other", "everything", "sm_90a", "uses everything"),
        parameters,
        constants=(NamedConstant(block, block, "rows a block"), NamedConstant(Const(7, i32, "unused"), block, "")),
        asserts=(),
        launch=Launch(256, grid, cluster=(2, 1, 8), dynamic_shared_bytes=200_000),
        body=(),
        instructions=(),
    )

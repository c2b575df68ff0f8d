"""The words an author writes with. `Kernel` is the program being traced: each call adds what it says to the description."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kernwright.generator.dsl.maths import MathWords
from kernwright.generator.dsl.names import assigned_name, author_source, check_name
from kernwright.generator.dsl.parameters import ParameterWords
from kernwright.generator.dsl.rows import RowWords
from kernwright.generator.dsl.schedule import ScheduleWords
from kernwright.generator.dsl.value import Number, Value, constant
from kernwright.generator.errors import ExpressionFault, LimitFault, NameFault, PipelineFault, ProgramFault, TensorFault
from kernwright.generator.ir import description as ir
from kernwright.generator.ir import names
from kernwright.generator.ir.description import Extent
from kernwright.generator.ir.evaluate import constant_value
from kernwright.generator.ir.expr import Const, Expr, Var, integer
from kernwright.generator.ir.program import NamedConstant, ScalarParameter, StaticAssert, TensorParameter
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import DType, boolean, i32
from kernwright.generator.passes.ranges import full, range_of


class Kernel(ParameterWords, RowWords, MathWords, ScheduleWords):
    """A program while it is traced. Made by `@program`; every method below is a word of the language."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self.names: dict[str, Source] = {}
        self.reserved = names.GENERATED | reserved
        self.parameters: list[TensorParameter | ScalarParameter] = []
        self.constants: dict[str, NamedConstant] = {}
        self.own_constants: set[str] = set()
        self.asserts: list[StaticAssert] = []
        self.blocks_of: ir.Blocks | None = None
        self.threads: int | None = None
        self.blocks_per_sm: int | None = None
        self.pipelines: list[ir.Pipeline] = []
        self.buffers: list[ir.SharedTile] = []
        self.accumulators: list[ir.Accumulator] = []
        self.roles: list[ir.Role] = []
        self.bodies: list[list[ir.Operation]] = [[]]
        self.current_role: ir.Role | None = None
        self.present: set[str] = set()  # optional tensors that are known to be there
        self.loops = 0  # loops around what is being described
        self.finished = False

    def __getattr__(self, name: str) -> Any:
        """Only reached for a word that does not exist: say which one was probably meant."""
        if name.startswith("_"):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, [word for word in dir(type(self)) if not word.startswith("_")], n=2)
        raise ProgramFault(
            "KW0609",
            f"the language has no word {name!r}",
            author_source(),
            fix=f"Did you mean {' or '.join(f'k.{word}' for word in near)}?"
            if near
            else "The words are listed in docs/language.md.",
        )

    # ---- parameters and constants

    def constant(self, name: str, value: int, reason: str = "") -> Value:
        """An int with a name of its own in the table at the top of the text: `constant("columns", 128)` is `kColumns`."""
        source = author_source()
        if isinstance(value, bool) or not isinstance(value, int) or not i32.low <= value <= i32.high:
            raise ExpressionFault(
                "KW0701", f"constant {name!r}: {value!r}", source, detail="a named constant is an int of 32 bits."
            )
        named = self.named_constant(name, integer(value), value, i32, reason, source)
        self.own_constants.add(str(named.name))
        return Value(self, named)

    def named_constant(
        self, name: str, value: Expr, number: int | float, dtype: DType, reason: str, source: Source
    ) -> Const:
        """A row of the constants' table; `value` is what the text shows, `number` what it is."""
        spelled = names.constant_name(name)
        check_name(name, source, "constant")
        if spelled in self.names:
            raise NameFault(
                "KW0102",
                f"constant {spelled!r} is already taken",
                source,
                detail=f"first used at {self.names[spelled]}.",
            )
        _check_reason(reason, source)
        row = NamedConstant(Const(number, dtype, spelled, source), value, reason)
        known = self.constants.get(spelled)
        if known is not None and (known.value, known.constant) != (row.value, row.constant):
            raise NameFault(
                "KW0102",
                f"constant {spelled!r} is defined twice",
                source,
                detail=f"first as {known.constant.value} at {known.constant.source}, now as {number}.",
            )
        if known is None:
            self.constants[spelled] = row
        return self.constants[spelled].constant

    def require(self, condition: Value | bool, reason: str) -> None:
        """A `static_assert` of the text over constants; it is checked here as well."""
        source = author_source()
        _check_reason(reason, source)
        holds = constant_value(condition.expr) if isinstance(condition, Value) else int(condition)
        if not holds:
            raise ExpressionFault(
                "KW0703",
                "a required condition does not hold" if holds == 0 else "a required condition is not constant",
                source,
                detail=f"{reason}.",
                fix="Conditions are over numbers and k.constant(...) values.",
            )
        if isinstance(condition, Value):
            self.asserts.append(StaticAssert(condition.expr, reason))

    def occupancy(self, blocks_per_sm: int) -> None:
        """Blocks that an SM is to hold at once: fixes the registers a thread has at launch, from which setmaxnreg moves."""
        source = author_source()
        if not 1 <= blocks_per_sm <= 32:
            raise LimitFault("KW0502", f"{blocks_per_sm} blocks an SM", source, detail="an SM holds at most 32 blocks.")
        self.blocks_per_sm = blocks_per_sm
        self.named_constant(
            "blocks_per_sm", integer(blocks_per_sm), blocks_per_sm, i32, "blocks that an SM is to hold", source
        )

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """The body is executed where `condition` holds: a scalar condition, the same in all threads of the block.

        Names of the body are its own. Pipelines and roles stand outside: a stage skipped on one side alone would be waited for.
        """
        source = author_source()
        if not isinstance(condition, Value) or condition.dtype != boolean or condition.extent is not Extent.SCALAR:
            raise TensorFault(
                "KW0201",
                "k.when takes a scalar condition",
                source,
                fix="Use k.where(condition, a, b) for a choice by element.",
            )
        self.own(condition.kernel, "condition", source)
        with self.scope(), self.body() as body:
            yield
        if not body:
            raise ProgramFault(
                "KW0606", "the block of k.when is empty", source, fix="Put something into it, or remove it."
            )
        if any(isinstance(op, ir.Produce | ir.Consume | ir.RoleBody) for op in ir.walk(tuple(body))):
            raise PipelineFault(
                "KW0411", "a pipeline or a role inside k.when", source, fix="Put the condition inside the stage."
            )
        self.emit(ir.When(condition.expr, tuple(body), source))

    def let(self, name: str, value: Value) -> Value:
        """Give a value its name in words, where there is no plain assignment."""
        return self.materialize(self.claim_name(name, "value", author_source()), value)

    # ---- bookkeeping, used by the other rooms of the language

    def record(self, expr: Expr, extent: Extent, layout: ir.TileLayout | None) -> Value:
        """A new elementwise value: named if the author assigns it, otherwise part of the expression that uses it."""
        return self.named(Value(self, expr, extent, layout))

    def lift(self, item: Value | Number, like: DType, source: Source) -> Value:
        """A value, or a Python number as a literal of the type it has beside `like`."""
        if isinstance(item, Value):
            self.own(item.kernel, "value", source)
            return item
        return Value(self, constant(item, like, source))

    def emit(self, operation: ir.Operation) -> None:
        """Append to the block that is being described."""
        self.own(self, "the program", author_source())
        self.check_present(operation)
        self.bodies[-1].append(operation)

    @contextmanager
    def body(self) -> Iterator[list[ir.Operation]]:
        """Collect the operations of a nested block."""
        self.bodies.append([])
        try:
            yield self.bodies[-1]
        finally:
            self.bodies.pop()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names claimed inside are the block's own: another block may use them again. Parameters are the whole kernel's."""
        outer = dict(self.names)
        try:
            yield
        finally:
            self.names = outer | {p.name: self.names[p.name] for p in self.parameters if p.name in self.names}

    def claim(self, name: str, what: str) -> Source:
        """Register a name given in words; returns where."""
        source = author_source()
        self.claim_name(name, what, source)
        return source

    def claim_name(self, name: str, what: str, source: Source) -> str:
        """Register a name of the text; refuse keywords, names in use, and the generator's own names."""
        check_name(name, source, what)
        if name in self.reserved or name in self.constants:
            raise NameFault(
                "KW0102",
                f"{what} {name!r} collides with a name that the generator uses",
                source,
                fix="Choose another name.",
            )
        if name in self.names:
            raise NameFault(
                "KW0102",
                f"{what} {name!r} is already taken",
                source,
                detail=f"first used at {self.names[name]}.",
                fix="Choose another name.",
            )
        self.names[name] = source
        return name

    def local(self, name: str | None, what: str, source: Source) -> str:
        """The name of a value that must have one."""
        if name is None:
            raise NameFault(
                "KW0103", f"this {what} has no name", source, fix='Assign it to a variable, or pass name="...".'
            )
        return self.claim_name(name, what, source)

    def own(self, kernel: object, name: str, source: Source) -> None:
        """Refuse a handle of another program, and any handle once its trace is over."""
        if kernel is not self or self.finished:
            raise TensorFault(
                "KW0202", f"{name!r} belongs to another program", source, fix="Declare it in this program."
            )

    # ---- naming, for the other words of the language

    def named(self, value: Value) -> Value:
        """The value under the author's name for it, if the running expression is assigned; otherwise the value itself."""
        self.own(value.kernel, "value", author_source())
        name = assigned_name()
        if name is None or isinstance(value.expr, Const | Var):
            return value
        return self.materialize(self.claim_name(name, "value", author_source()), value)

    def materialize(self, name: str, value: Value) -> Value:
        """The value as a variable of the text with a (claimed) name."""
        source = author_source()
        self.emit(ir.Elementwise(name, value.expr, value.dtype, value.extent, value.layout, source))
        low, high = _limits(value.expr)
        return replace(value, expr=Var(name, value.dtype, low, high, source))


def _limits(expr: Expr) -> tuple[int | None, int | None]:
    """What the declared facts prove of a named integer; nothing of a float, or where the whole type remains."""
    if not expr.dtype.is_integer or expr.dtype == boolean:
        return None, None
    values = range_of(expr)
    return (None, None) if values == full(expr.dtype) else (values.low, values.high)


def _check_reason(reason: str, source: Source) -> None:
    """A reason stands in a comment or a string of the text: one line, without quotes and backslashes."""
    if any(char in reason for char in '"\\\n\r'):
        raise NameFault(
            "KW0104",
            f"reason {reason!r} cannot stand in the text",
            source,
            fix="One line without quotes and backslashes.",
        )

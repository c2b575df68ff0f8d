"""`@program`: from a Python function to a traced description, and the registry of all programs."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernwright.generator.arch import ALL, ARCHITECTURES
from kernwright.generator.dsl.kernel import Kernel
from kernwright.generator.dsl.names import check_name, source_of
from kernwright.generator.errors import KernelError, ProgramFault
from kernwright.generator.instructions import wrapper_names
from kernwright.generator.ir import description as ir
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.uses import constants, definitions_read

Function = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A registered program: a function and the arguments of one variant of it."""

    family: str
    name: str
    archs: tuple[str, ...]
    function: Function
    arguments: Mapping[str, Any]
    source: Source
    shipped: bool = True

    @property
    def symbol(self) -> str:
        return f"{self.family}_{self.name}"

    def trace(self) -> ir.Description:
        """Run the function once and return what it described."""
        kernel = Kernel(reserved=wrapper_names() | {self.symbol})
        try:
            self.function(kernel, **self.arguments)
        except KernelError:
            raise
        except Exception as error:
            raise self._wrapped(error) from error
        finally:
            kernel.finished = True
        body = tuple(kernel.bodies[0])
        if not any(isinstance(op, ir.StoreTile | ir.CopyOut) for op in ir.walk(body)):
            raise ProgramFault("KW0605", f"program {self.symbol!r} stores nothing", self.source)
        _check_used(body)
        _check_constants(kernel, body)
        return ir.Description(
            family=self.family,
            name=self.name,
            archs=self.archs,
            doc=inspect.cleandoc(self.function.__doc__ or ""),
            parameters=tuple(kernel.parameters),
            constants=tuple(kernel.constants.values()),
            asserts=tuple(kernel.asserts),
            blocks=kernel.blocks_of,
            threads=kernel.threads,
            blocks_per_sm=kernel.blocks_per_sm,
            pipelines=tuple(kernel.pipelines),
            buffers=tuple(kernel.buffers),
            accumulators=tuple(kernel.accumulators),
            roles=tuple(kernel.roles),
            body=body,
            source=self.source,
        )

    def _wrapped(self, error: Exception) -> ProgramFault:
        file = self.function.__code__.co_filename
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        at = source_of(file, lines[-1]) if lines and lines[-1] else self.source
        return ProgramFault(
            "KW0604",
            f"description of {self.symbol!r} fails while it is traced",
            at,
            detail=f"{type(error).__name__}: {error}",
        )


@dataclass
class Registry:
    """Programs by symbol. Descriptions register in `REGISTRY`; tests make their own."""

    programs: dict[str, ProgramSource] = field(default_factory=dict)

    def add(self, item: ProgramSource) -> None:
        known = self.programs.get(item.symbol)
        if known is not None:
            raise ProgramFault(
                "KW0601",
                f"two programs are called {item.symbol!r}",
                item.source,
                detail=f"the other one is at {known.source}.",
                fix="The symbol is <family>_<name>: change one of them.",
            )
        self.programs[item.symbol] = item


REGISTRY = Registry()


def program(
    *,
    family: str,
    archs: tuple[str, ...] = ALL,
    name: str | None = None,
    variants: Mapping[str, Mapping[str, Any]] | None = None,
    shipped: bool = True,
    registry: Registry | None = None,
) -> Callable[[Function], Function]:
    """Register a description.

    `family` groups programs (a folder of generated/, the first part of the symbol); `variants` maps a program's name to the
    keyword arguments of the function, otherwise there is one program called `name` or like the function. Programs that can be
    traced and explained but not yet lowered say `shipped=False`.
    """

    def register(function: Function) -> Function:
        source = source_of(function.__code__.co_filename, function.__code__.co_firstlineno)
        _check_program(family, archs, function, source)
        for variant, arguments in (variants or {name or function.__name__: {}}).items():
            check_name(f"{family}_{variant}", source, "program")
            chosen = tuple(arch for arch in ARCHITECTURES if arch in archs)
            # A default registry is looked up late, so that tests can replace it.
            (registry or REGISTRY).add(
                ProgramSource(family, variant, chosen, function, dict(arguments), source, shipped)
            )
        return function

    return register


def _check_program(family: str, archs: tuple[str, ...], function: Function, source: Source) -> None:
    check_name(family, source, "family")
    if isinstance(archs, str):
        raise ProgramFault("KW0602", f"archs={archs!r} is a text", source, fix=f"archs= takes a tuple: ({archs!r},).")
    unknown = [arch for arch in archs if arch not in ARCHITECTURES]
    if unknown or not archs:
        raise ProgramFault(
            "KW0602",
            f"program {function.__name__!r} "
            + (f"names unknown architectures {unknown}" if unknown else "has no architectures"),
            source,
            fix=f"archs= takes a tuple of {', '.join(ARCHITECTURES)}.",
        )
    if not inspect.cleandoc(function.__doc__ or ""):
        raise ProgramFault(
            "KW0603",
            f"program {function.__name__!r} has no docstring",
            source,
            fix="Say what it computes, with shapes and types.",
        )


def _check_used(body: tuple[ir.Operation, ...]) -> None:
    """Every named value is read by something: an unused variable would be a compiler warning without the author's line."""
    operations = ir.walk(body)
    read = {definition for operation in operations for definition in definitions_read(operation)}
    ordered = {name for operation in operations if isinstance(operation, ir.Consume) for name in operation.after}
    for operation in operations:
        if not isinstance(operation, ir.LoadTile | ir.Elementwise | ir.RowReduce):
            continue
        if id(operation.source) not in read and operation.name not in ordered:
            raise ProgramFault(
                "KW0606", f"value {operation.name!r} is never used", operation.source, fix="Use it, or remove the line."
            )


def _check_constants(kernel: Kernel, body: tuple[ir.Operation, ...]) -> None:
    """Every constant that the author named is used; those of layouts and functions are the generator's own affair."""
    places = (
        body,
        tuple(kernel.parameters),
        tuple(kernel.asserts),
        tuple(row.value for row in kernel.constants.values()),
    )
    used = {constant.name for constant in constants((*places, kernel.blocks_of))}
    for name, row in kernel.constants.items():
        if name in kernel.own_constants and name not in used:
            raise ProgramFault(
                "KW0606", f"constant {name!r} is never used", row.constant.source, fix="Use it, or remove the line."
            )

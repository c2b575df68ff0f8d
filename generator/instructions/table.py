"""The instruction table: each hardware instruction (or fixed idiom of a few) is one entry, and nothing else knows it.

An entry is a decorated Python function. Its decorator holds the CUDA text, what architectures need to have, and what it orders; its
body *is* its meaning, executed by tests and by the emulator. An entry whose meaning is not written yet says so (`meaning=False`),
and whatever uses it is reported as unproved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kernwright.generator.arch import Architecture, Feature
from kernwright.generator.ir.types import DType


class Confirmed(Enum):
    """How far the meaning of an entry was confirmed."""

    HARDWARE = "run on an H200 against a reference"
    DOCUMENTS = "read from the PTX documents, never run"


@dataclass(frozen=True, slots=True)
class Effects:
    """What an instruction does beside its result. `proxy` is the path by which it reaches memory ("generic" or "async").

    `completion` names what tells that an asynchronous effect has landed; `orders` names what it orders, if it is a fence,
    a wait or an arrival.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    proxy: str = "generic"
    completion: str = ""
    orders: str = ""
    collective: str = "thread"  # "thread", "one thread", "warp", "warpgroup" or "block"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One entry. `spelling` is what a call prints (`name<{}>` takes its first operand in angle brackets); `cuda` its wrapper in
    a shared header, empty for an intrinsic of CUDA.
    """

    name: str
    spelling: str
    cuda: str
    ptx: tuple[str, ...]
    sass: tuple[str, ...]
    result: DType | None
    needs: frozenset[Feature]
    header: str
    effects: Effects
    bound: str
    confirmed: Confirmed
    summary: str
    meaning: Callable[..., Any] | None
    limits: tuple[int, int] | None = None

    @property
    def pure(self) -> bool:
        """True when a call is an expression: no effect beside its result."""
        return self.result is not None

    def exists_on(self, arch: Architecture) -> bool:
        return self.needs <= arch.features


_TABLE: dict[str, list[Instruction]] = {}


def instruction(
    *,
    ptx: Iterable[str],
    sass: Iterable[str] = (),
    cuda: str = "",
    spelling: str | None = None,
    result: DType | None = None,
    needs: Iterable[Feature] = (),
    header: str = "common",
    effects: Effects = Effects(),
    bound: str = "",
    confirmed: Confirmed = Confirmed.DOCUMENTS,
    meaning: bool = True,
    limits: tuple[int, int] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as an entry; its first docstring line is what the table and the header say of it.

    `bound` is the documented error of an approximate function, `limits` the least and the greatest integer result; `header` the
    file of generated/include that holds the wrapper.
    An architecture overrides an entry by a second one of the same name that `needs` a feature of its own and stands in its header.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        entry = Instruction(
            name=name,
            spelling=spelling or name,
            cuda=cuda.strip("\n"),
            ptx=tuple(ptx),
            sass=tuple(sass),
            result=result,
            needs=frozenset(needs),
            header=header,
            effects=effects,
            bound=bound,
            confirmed=confirmed,
            summary=(function.__doc__ or "").strip().splitlines()[0],
            meaning=function if meaning else None,
            limits=limits,
        )
        others = _TABLE.setdefault(name, [])
        if any(other.header == entry.header or other.needs == entry.needs for other in others):
            raise ValueError(f"instruction {name!r} is defined twice for {entry.header}")
        others.append(entry)
        return function

    return register


def lookup(name: str, arch: Architecture | None = None) -> Instruction:
    """The entry called `name`; on `arch`, the one that needs most of what `arch` has. KeyError when there is none of this name.

    An entry that `arch` lacks is returned too, so that the caller can say so: ask `exists_on`.
    """
    entries = _TABLE[name]
    if arch is None:
        return entries[0]
    fitting = [entry for entry in entries if entry.exists_on(arch)]
    return max(fitting, key=lambda entry: len(entry.needs)) if fitting else entries[0]


def limits_of(name: str) -> tuple[int, int] | None:
    """The least and the greatest integer result of an entry; None where nothing is known, or where there is no such entry."""
    entries = _TABLE.get(name, [])
    return entries[0].limits if entries else None


def table() -> tuple[Instruction, ...]:
    """Every entry, in the order of definition."""
    return tuple(entry for entries in _TABLE.values() for entry in entries)

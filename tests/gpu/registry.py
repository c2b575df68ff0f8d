"""A list of checks; each returns what it found, in words, and raises where that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Function = Callable[[], str]


@dataclass(frozen=True)
class Check:
    """One check of some programs: `name` is its key in evidence.json."""

    name: str
    programs: tuple[str, ...]
    function: Function


CHECKS: list[Check] = []


def check(*programs: str) -> Callable[[Function], Function]:
    """Register a check that speaks about `programs`."""

    def register(function: Function) -> Function:
        CHECKS.append(Check(function.__name__, programs, function))
        return function

    return register

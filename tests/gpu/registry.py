"""A list of checks; each returns what it found, in words, and raises where that is wrong. And the running of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Function = Callable[[], str]
Results = list[dict[str, str]]


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


def failure(error: BaseException) -> str:
    """The result of a check that raised: `FAILED: <kind>: <first line>`."""
    first, _, _ = str(error).partition("\n")
    return f"FAILED: {type(error).__name__}: {first}"[:300]


def run_checks(
    checks: Iterable[Check],
    machine_code: Mapping[str, str],
    common: Mapping[str, str],
    save: Callable[[Results], None],
    synchronize: Callable[[], None],
) -> Results:
    """Run the checks; one result a check and program, of passes and of failures.

    `machine_code` is the digest of each program, `common` the fields that all results share. Before a check starts, `save`
    gets the results with its failure among them: a process that dies in a check must not leave an older pass standing.
    """
    results: Results = []
    for item in checks:

        def judged(result: str, item: Check = item) -> Results:
            return [
                {
                    **common,
                    "program": program,
                    "check": item.name,
                    "text_sha256": machine_code[program],
                    "result": result,
                }
                for program in item.programs
            ]

        save(results + judged("FAILED: the process ended in this check"))
        start = time.perf_counter()
        try:
            found = item.function()
            synchronize()
            print(f"ok     {item.name}: {found} ({time.perf_counter() - start:.1f} s)", flush=True)
        except Exception as error:
            found = failure(error)
            print(f"FAILED {item.name}\n{traceback.format_exc()}", flush=True)
        results += judged(found)
        save(results)
    return results

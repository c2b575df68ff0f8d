"""The C++ oracle: printed expressions, compiled with warnings as errors and undefined behaviour trapped, and run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.ir.expr import Const, Expr, Var, children

FLAGS = ("-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all")
MEANING_WARNINGS = tuple(
    f"-Wno-{name}"
    for name in (
        *(
            "sign-compare",
            "bool-compare",
            "bool-operation",
            "int-in-bool-context",
            "tautological-compare",
            "type-limits",
        ),
        *("div-by-zero", "overflow", "shift-count-overflow", "shift-count-negative", "shift-negative-value"),
        *("shift-overflow", "unused-function"),
    )
)
"""Warnings about what a random tree computes, not about how it is written; -Wparentheses and its kin stay errors."""


@dataclass(frozen=True)
class Case:
    """Two spellings of one value. `runs` are inputs for which both are defined, each with the value it must give."""

    before: Expr
    after: Expr
    runs: Sequence[tuple[Mapping[str, int], int]]


def _named(expr: Expr) -> Iterable[Const]:
    if isinstance(expr, Const) and expr.name is not None:
        yield expr
    for operand in children(expr):
        yield from _named(operand)


def source_of(cases: Sequence[Case], variables: Sequence[Var], literals: Sequence[Const] = ()) -> str:
    """One translation unit: a struct with the variables, and for each case both texts, their types and their runs."""
    named = {const.name: const for case in cases for tree in (case.before, case.after) for const in _named(tree)}
    lines = [
        "#include <algorithm>",
        "#include <cmath>",
        "#include <cstdio>",
        "#include <type_traits>",
        "#include <utility>",
    ]
    lines += ["using std::max; using std::min;", "namespace {"]
    for name, const in sorted(named.items(), key=lambda item: str(item[0])):
        value = print_expression(Const(const.value, const.dtype))
        lines.append(f"[[maybe_unused]] constexpr {const.dtype.cpp} {name} = {value};")
    lines += ["struct Inputs {", *(f"  {v.dtype.cpp} {v.name};" for v in variables), "};", "int failures = 0;"]
    lines += ['void check(int number, bool same) { if (!same) { ++failures; std::printf("case %d\\n", number); } }']
    for number, case in enumerate(cases):
        before, after = print_expression(case.before), print_expression(case.after)
        lines += [f"struct Case{number} : Inputs {{", f"  auto before() const {{ return {before}; }}"]
        lines += [f"  auto after() const {{ return {after}; }}", "};"]
        for side in ("before", "after"):
            result = f"decltype(std::declval<Case{number}>().{side}())"
            lines.append(f"static_assert(std::is_same_v<{result}, {case.before.dtype.cpp}>);")
    for const in literals:
        lines.append(f"static_assert(std::is_same_v<decltype({print_expression(const)}), {const.dtype.cpp}>);")
    lines += ["}", "int main() {"]
    for number, case in enumerate(cases):
        for values, expected in case.runs:
            members = ", ".join(print_expression(Const(values[v.name], v.dtype)) for v in variables)
            wanted = print_expression(Const(expected, case.before.dtype))
            lines.append(f"  {{ const Case{number} c{{{{{members}}}}};")
            lines.append(f"    check({number}, c.before() == {wanted} && c.after() == {wanted}); }}")
    return "\n".join([*lines, "  return failures != 0;", "}", ""])


def run(text: str, folder: Path) -> None:
    """Compiles and runs one translation unit; the test fails with the compiler's or the program's words."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    file, program = folder / "oracle.cpp", folder / "oracle"
    file.write_text(text, encoding="utf-8")
    built = subprocess.run(
        [compiler, *FLAGS, *MEANING_WARNINGS, str(file), "-o", str(program)], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout[:2000]}{ran.stderr[:2000]}"

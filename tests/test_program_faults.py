"""What an author may get wrong with a program as a whole, and the catalogue of all codes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.refusal import place_of, refuse

from kernwright.generator.dsl import Kernel, bf16, i64, program
from kernwright.generator.dsl.program import Registry
from kernwright.generator.errors import CATALOGUE, KernelError

SOURCES = Path(__file__).resolve().parent.parent / "generator"


def test_a_program_without_architectures(trace):
    def described(k: Kernel) -> None:
        """For nothing."""

    refuse(
        trace,
        described,
        "KW0602",
        "program 'described' has no architectures",
        "sm_90a, sm_100a, sm_103a, sm_107a",
        archs=(),
    )


def test_an_unknown_architecture(trace):
    def described(k: Kernel) -> None:
        """For the next but one."""

    refuse(
        trace,
        described,
        "KW0602",
        "unknown architectures ['sm_80']",
        "archs= takes a tuple of sm_90a",
        archs=("sm_80",),
    )


def test_a_program_without_docstring(trace):
    def described(k: Kernel) -> None:
        pass

    refuse(trace, described, "KW0603", "program 'described' has no docstring", "Say what it computes")


def test_a_description_that_fails_by_itself(trace):
    def described(k: Kernel) -> None:
        """Divides by nothing."""
        1 / 0  # noqa: B018  # fault

    refuse(trace, described, "KW0604", "description of 'test_described' fails", "ZeroDivisionError: division by zero")


def test_a_program_that_stores_nothing(trace):
    def described(k: Kernel) -> None:
        """A load."""
        rows = k.scalar("rows", i64, high=1 << 20)
        source = k.tensor("source", bf16, (rows, 128))
        layout = k.vector_rows(128)
        k.load(source[k.blocks(rows, step=layout)], layout, name="value")

    refuse(trace, described, "KW0605", "program 'test_described' stores nothing")


def test_two_programs_of_one_name():
    registry = Registry()

    def first(k: Kernel) -> None:
        """One."""

    def second(k: Kernel) -> None:
        """Two."""

    program(family="test", name="same", registry=registry)(first)
    with pytest.raises(KernelError) as caught:
        program(family="test", name="same", registry=registry)(second)
    message = str(caught.value)
    assert caught.value.code == "KW0601" and "'test_same'" in message and "The symbol is <family>_<name>" in message
    assert all(place_of(function) in message for function in (first, second)), "both lines are named"


# ---- the catalogue


def raised_codes() -> set[str]:
    """Codes that stand in a string of the sources outside the catalogue, as a fault's first argument."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")).endswith(
                ("Fault", "KernelError")
            ):
                found |= {
                    arg.value
                    for arg in node.args[:1]
                    if isinstance(arg, ast.Constant) and str(arg.value).startswith("KW")
                }
    return found


def test_every_raised_code_is_in_the_catalogue_and_the_other_way_round():
    raised = raised_codes()
    assert len(raised) > 25
    assert raised - set(CATALOGUE) == set()
    assert set(CATALOGUE) - raised == set(), "an entry that nothing raises is no entry"


def test_every_entry_of_the_catalogue_explains_itself():
    for code, entry in CATALOGUE.items():
        assert code == entry.code and len(entry.explanation) > 40 and entry.title[0].islower(), code

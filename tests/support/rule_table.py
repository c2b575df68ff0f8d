"""The rule table of docs/passes/simplify.md, from the rules themselves.

`.venv/bin/python tests/support/rule_table.py` writes it anew into the page.
"""

from __future__ import annotations

from pathlib import Path

from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.passes.rules import RULES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "passes" / "simplify.md"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"


def rule_table() -> str:
    """One row a rule, in the order in which the simplifier tries them."""
    rows = ["| rule | pattern | becomes | where |", "| --- | --- | --- | --- |"]
    for rule in RULES:
        conditions = ", ".join(_code(print_expression(condition)) for condition in rule.conditions)
        cells = (_cell(rule.name), _code(print_expression(rule.pattern)), _code(print_expression(rule.replacement)))
        rows.append(f"| {' | '.join(cells)} | {conditions} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def page_with(table: str, page: str) -> str:
    """`page` with this table between its two markers."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with(rule_table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")

"""The hand-written targets against the representation: every code line has a node of the representation that derives it."""

from __future__ import annotations

import re

import pytest
from support.targets import FOLDER, NORM, TARGETS, code_lines, is_code

from kernwright.generator.dsl.program import ProgramSource
from kernwright.generator.instructions import descriptors, lookup, table
from kernwright.generator.ir import description, layout, statement
from kernwright.generator.ir import program as lowered
from kernwright.generator.passes import derive as facts
from kernwright.generator.pipeline import generate

# Concepts that the representation lacks. A concept that is added leaves this list and the table together; the list ends empty.
ALLOWED_MISSING: set[str] = set()


# ---- every line has a node


def rows_of(target: str) -> list[tuple[int, int, str, str]]:
    """(first line, last line, quoted words, node) of each row of the target's table."""
    text = (FOLDER / "nodes.md").read_text(encoding="utf-8")
    section = re.split(r"^## \(\w\) ", text, flags=re.M)[1:]
    (mine,) = [part for part in section if part.startswith(target)]
    found = []
    for row in re.findall(r"^\| \d.*\|$", mine, re.M):
        span, words, node, why = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert why, f"a row says what its lines follow from: {row}"
        first, _, last = span.partition("-")
        found.append((int(first), int(last or first), words.strip("`").replace("\\|", "|"), node.strip("`")))
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_code_line_is_in_exactly_one_row(target):
    lines = code_lines(target)
    seen = [number for first, last, _, _ in rows_of(target) for number in range(first, last + 1) if number in lines]
    twice = {number for number in seen if seen.count(number) > 1}
    assert not twice
    assert sorted(seen) == sorted(lines), {n: lines[n] for n in set(lines) - set(seen)}
    assert len(lines) > 30


@pytest.mark.parametrize("target", TARGETS)
def test_the_quoted_words_stand_at_the_start_of_the_line(target):
    lines = code_lines(target)
    for first, last, words, _ in rows_of(target):
        assert len(words) >= 3 and lines[first].startswith(words), f"{target}:{first} no longer starts with {words!r}"
        assert last in lines, f"{target}:{last}: a row ends with a code line"


def exists(node: str) -> bool:
    """A class of the representation, a field or property of it, a function of the descriptors, or a table entry."""
    name, _, attribute = node.partition(".")
    if name in {entry.name for entry in table()}:
        return not attribute
    for module in (description, layout, lowered, statement, facts, descriptors):
        found = getattr(module, name, None) if name != "ProgramSource" else ProgramSource
        if found is not None:
            known = set(getattr(found, "__dataclass_fields__", ())) | set(dir(found))
            return not attribute or attribute in known
    return False


@pytest.mark.parametrize("target", TARGETS)
def test_every_node_exists(target):
    unknown = {
        node
        for _, _, _, node in rows_of(target)
        if not node.startswith("MISSING") and node != "frame" and not exists(node)
    }
    assert not unknown


def test_what_is_missing_is_listed_and_nothing_else_is():
    missing = {node for target in TARGETS for _, _, _, node in rows_of(target) if node.startswith("MISSING")}
    assert missing == ALLOWED_MISSING


def test_the_frame_stays_small():
    framed = [
        n
        for target in TARGETS
        for first, last, _, node in rows_of(target)
        if node == "frame"
        for n in range(first, last + 1)
    ]
    assert len(framed) < 45


# ---- length


def test_the_generated_norm_is_about_as_long_as_the_one_by_hand():
    files = generate().files
    (path,) = [path for path in files if path.endswith("forward_w_bf16.cu")]
    generated = sum(is_code(line) for line in files[path].splitlines())
    by_hand = len(code_lines(NORM))
    assert generated <= 1.3 * by_hand, f"{generated} code lines generated, {by_hand} by hand"
    assert lookup("sum_over_lanes").name in files[path]

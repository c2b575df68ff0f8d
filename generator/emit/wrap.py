"""Long lines of C++: broken at the outermost brackets that help, continuations under what they belong to."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 128  # columns of a line of text
CONTINUATION = 4  # of a statement that breaks outside of all brackets
WEAKEST_FIRST = ((",",), ("?", ":"), ("||",), ("&&",), ("<=", ">=", "=="), ("+", "-"), ("=", "+=", "*="))


@dataclass(frozen=True, slots=True)
class _Break:
    """A blank where a line may end: the bracket that it stands in, and the operator that begins the next line ("," ends one)."""

    place: int
    bracket: int
    depth: int
    mark: str


def wrapped(line: str) -> list[str]:
    """One statement as one line, or as several where it is longer than `WIDTH`; a remark then stands above it."""
    if len(line) <= WIDTH:
        return [line]
    code, _, why = line.partition("  // ")
    pad = code[: len(code) - len(code.lstrip())]
    remark = [f"{pad}// {why}"] if why else []
    return remark + _fill(code, len(pad), 0)


def _fill(text: str, pad: int, column: int) -> list[str]:
    """Lines of `text`, whose first one begins at `column`; `pad` is the indentation of the statement."""
    if column + len(text) <= WIDTH:
        return [text]
    chosen = _outermost(_breaks(text))
    if not chosen:
        return [text]
    indent = column + chosen[0].bracket + 1 if chosen[0].bracket >= 0 else pad + CONTINUATION
    if indent > WIDTH * 3 // 4:
        indent = pad + CONTINUATION
    ends = [item.place for item in chosen]
    pieces = [text[a:b].strip() if a else text[:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    lines: list[str] = []
    for piece in pieces:
        here = len(lines[-1]) + (column if len(lines) == 1 else 0) if lines else column
        if lines and here + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
            continue
        first, *rest = _fill(piece, pad, indent if lines else column)
        lines += [" " * indent + first if lines else first, *rest]
    return lines


def _outermost(breaks: list[_Break]) -> list[_Break]:
    """The breaks of one bracket, the outermost that has any, at its weakest operator."""
    if not breaks:
        return []
    depth = min(item.depth for item in breaks)
    brackets: dict[int, list[_Break]] = {}
    for item in breaks:
        if item.depth == depth:
            brackets.setdefault(item.bracket, []).append(item)
    group = max(brackets.values(), key=lambda items: items[-1].place - items[0].bracket)
    for marks in WEAKEST_FIRST:
        found = [item for item in group if item.mark in marks]
        if found:
            return found
    return []


def _breaks(text: str) -> list[_Break]:
    marks = {mark for marks in WEAKEST_FIRST for mark in marks}
    open_brackets: list[int] = []
    found: list[_Break] = []
    quoted = False
    for place, letter in enumerate(text):
        quoted ^= letter == '"'
        if quoted:
            continue
        template = letter == "<" and text[place - 1].isalnum() and text[place + 1 : place + 2] not in ("=", "<", " ")
        closes = letter == ">" and text[place + 1 : place + 2] == "(" and text[place - 1] not in " -"
        if letter in "([{" or template:
            open_brackets.append(place)
        elif (letter in ")]}" or closes) and open_brackets:
            open_brackets.pop()
        elif letter == " " and text[:place].strip():
            word = text[place + 1 :].partition(" ")[0]
            mark = "," if text[place - 1] == "," else word if word in marks else ""
            if mark:
                bracket = open_brackets[-1] if open_brackets else -1
                found.append(_Break(place, bracket, len(open_brackets), mark))
    return found

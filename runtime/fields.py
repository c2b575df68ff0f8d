"""A cursor over decoded JSON that knows its file and its JSON pointer, so that every complaint names both."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, cast


class FieldError(ValueError):
    """A JSON file breaks its schema. `file`, `pointer` and `problem` are the parts of the message."""

    def __init__(self, file: Path, pointer: str, problem: str) -> None:
        super().__init__(f"{file}{'#' + pointer if pointer else ''}: {problem}")
        self.file, self.pointer, self.problem = file, pointer, problem


def read_json(file: Path, error: type[FieldError]) -> object:
    """The decoded JSON of a file, None for a blank one. Raises `error` for what is no JSON, and OSError as `open` does."""
    try:
        text = file.read_text(encoding="utf-8")
        return json.loads(text) if text.strip() else None
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno} column {problem.colno}"
        raise error(file, "", f"is not JSON: {where}: {problem.msg}") from problem
    except RecursionError as problem:
        raise error(file, "", "is not JSON of a record: it is nested too deeply") from problem
    except UnicodeDecodeError as problem:
        raise error(file, "", f"is not JSON: byte {problem.start} is not UTF-8") from problem


class Field:
    """One value of a JSON document and where it stands. The readers return a checked Python value or raise `error`."""

    __slots__ = ("error", "file", "pointer", "value")

    def __init__(self, value: object, file: Path, pointer: str, error: type[FieldError] = FieldError) -> None:
        self.value, self.file, self.pointer, self.error = value, file, pointer, error

    def fail(self, problem: str) -> NoReturn:
        """Raise the error of this document, at this field."""
        raise self.error(self.file, self.pointer, problem)

    def expected(self, what: str) -> NoReturn:
        """Raise: `expected <what>, got <value>`."""
        shown = repr(self.value)
        self.fail(f"expected {what}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")

    def at(self, key: str | int) -> Field:
        """The member or element under `key`, which must exist."""
        token = str(key).replace("~", "~0").replace("/", "~1")
        pointer = f"{self.pointer}/{token}"
        try:
            value = self.value[key]  # type: ignore[index]
        except (KeyError, IndexError):
            self.error_at(pointer, "is missing")
        except TypeError:
            self.expected("an array" if isinstance(key, int) else "an object")
        return Field(value, self.file, pointer, self.error)

    def error_at(self, pointer: str, problem: str) -> NoReturn:
        """Raise the error of this document at another pointer."""
        raise self.error(self.file, pointer, problem)

    def __getitem__(self, key: str) -> Field:
        return self.at(key)

    def optional(self, key: str) -> Field | None:
        """The member under `key`, or None when it is absent or null."""
        members = self.object()
        return self.at(key) if members.get(key) is not None else None

    def object(self) -> dict[str, object]:
        """The value as an object."""
        if not isinstance(self.value, dict):
            self.expected("an object")
        return cast("dict[str, object]", self.value)

    def keys(self, required: set[str], optional: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        """Check that an object has all of `required` and nothing that is in neither set."""
        members = set(self.object())
        for name in sorted(required - members):
            self.error_at(f"{self.pointer}/{name}", "is missing")
        for name in sorted(members - required - optional):
            self.at(name).fail("is not a field of this schema")

    def items(self) -> Iterator[tuple[str, Field]]:
        """The members of an object, in the file's order."""
        for key in self.object():
            yield key, self.at(key)

    def elements(self) -> list[Field]:
        """The elements of an array."""
        if not isinstance(self.value, list):
            self.expected("an array")
        return [self.at(index) for index in range(len(self.value))]

    def text(self, pattern: re.Pattern[str] | None = None) -> str:
        """A string, matching all of `pattern` when one is given."""
        if not isinstance(self.value, str):
            self.expected("a string")
        if pattern is not None and not pattern.fullmatch(self.value):
            self.expected(f"a string like {pattern.pattern}")
        return self.value

    def choice(self, choices: tuple[str, ...]) -> str:
        """A string out of `choices`."""
        if self.value not in choices:
            self.expected("one of " + ", ".join(choices))
        return str(self.value)

    def integer(self, low: int | None = None) -> int:
        """An integer (true and false are none), not below `low`."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.expected("an integer")
        if low is not None and self.value < low:
            self.expected(f"an integer >= {low}")
        return self.value

    def integers(self, count: int, low: int | None = None) -> tuple[int, ...]:
        """An array of exactly `count` integers."""
        items = self.elements()
        if len(items) != count:
            self.expected(f"{count} integers")
        return tuple(item.integer(low) for item in items)

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)) or not math.isfinite(self.value):
            self.expected("a finite number")
        return float(self.value)

    def boolean(self) -> bool:
        """true or false."""
        if not isinstance(self.value, bool):
            self.expected("true or false")
        return self.value

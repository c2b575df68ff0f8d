"""Names of values are the author's: read from the assignment that the running call stands in.

A tracer sees calls, not assignments. Since Python 3.11 every instruction knows the columns it came from, so the expression that is
running is matched exactly with the right-hand sides of the assignments in the author's file: `y = k.load(x)` names the value `y`,
also on lines with several statements and in tuple assignments. Anything else has no name and must be named in words.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from types import FrameType

from kernwright.generator.errors import NameFault, repository_root
from kernwright.generator.ir.reserved import is_reserved, looks_like_a_macro
from kernwright.generator.ir.source import Source

_DSL = __name__.rpartition(".")[0]
_Span = tuple[int | None, int | None, int | None, int | None]


@cache
def _assignments(file: str) -> dict[_Span, str]:
    """Span of a right-hand side -> the single name it is assigned to, for a whole file."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, SyntaxError):
        return {}
    found: dict[_Span, str] = {}

    def pair(target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                found[(value.lineno, value.end_lineno, value.col_offset, value.end_col_offset)] = name
            case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))):
                for inner_target, inner_value in zip(targets, values, strict=False):
                    pair(inner_target, inner_value)
            case _:
                pass

    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=value):
                pair(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                pair(target, value)
            case _:
                pass
    return found


def _author_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _belongs_to_language(frame):
        frame = frame.f_back
    return frame


def _belongs_to_language(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module == _DSL or module.startswith(f"{_DSL}.") or module == "contextlib"


def author_source() -> Source:
    """File and line of the author's running statement."""
    frame = _author_frame()
    if frame is None:
        return Source("<unknown>", 0)
    return source_of(frame.f_code.co_filename, frame.f_lineno)


def source_of(file: str, line: int) -> Source:
    """A source whose path is relative to the repository where the file lies inside it."""
    return Source(_shown(file), line)


@cache
def _shown(file: str) -> str:
    """The path as sources name it; a description asks for it with every statement."""
    path, root = Path(file).resolve(), repository_root()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file


def assigned_name() -> str | None:
    """The name to which the author assigns the value of the running expression, if the statement does exactly that."""
    frame = _author_frame()
    if frame is None or frame.f_lasti < 0:
        return None
    span = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return _assignments(frame.f_code.co_filename).get(span)


def check_name(name: str, source: Source, what: str) -> None:
    """Refuse a name that C++ or CUDA would misunderstand; nothing is renamed silently."""
    problem = None
    if not name.isascii() or not name.isidentifier():
        problem = "it is no ASCII identifier"
    elif not name[0].isalpha():
        problem = "it must start with a letter"
    elif "__" in name:
        problem = "a double underscore is reserved in C++"
    elif looks_like_a_macro(name):
        problem = "a name of capitals alone may be a macro of a header"
    elif is_reserved(name):
        problem = "C++ or CUDA gives it a meaning of its own"
    if problem:
        raise NameFault(
            "KW0101",
            f"{what} {name!r} cannot be used in the text",
            source,
            detail=f"{problem}.",
            fix=f"Choose another name, for example {_suggestion(name)!r}.",
        )


def _suggestion(name: str) -> str:
    kept = name.lower().strip("_").replace("__", "_")
    if not kept.isascii() or not kept.isidentifier():
        return "value"
    return kept if not is_reserved(kept) and kept != name else f"{kept}_value"

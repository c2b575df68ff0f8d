"""Hashes over text as reviewers see it: LF line ends and no byte order mark, whatever a checkout made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernwright.generator.errors import repository_root
from kernwright.runtime.manifest import SHA256, closure_digest

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The rooms that decide what a description lowers to. The descriptions themselves, the command and this room are left
# out: they change without changing what the same description becomes.
DIGESTED_ROOMS = ("ir", "arch", "instructions", "dsl", "passes", "emit")


def lf_bytes(data: bytes) -> bytes:
    """`data` without a leading byte order mark and with CRLF line ends turned into LF; a lone CR stays."""
    return data.removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n")


def bytes_sha256(data: bytes) -> str:
    """The SHA-256, in hexadecimal, of a file's bytes after `lf_bytes`."""
    return hashlib.sha256(lf_bytes(data)).hexdigest()


def text_sha256(text: str) -> str:
    """The SHA-256, in hexadecimal, of a text's UTF-8 bytes after `lf_bytes`: what `build.json` records of a file."""
    return bytes_sha256(text.encode())


def closure_sha256(files: Mapping[str, str]) -> str:
    """One hash for a set of files: `files` maps each path to its SHA-256, as the `files` entries of `build.json` do.

    It follows from the record alone, so a reader can check a record without opening a file. The order of `files` does
    not count; a path that moves does. Raises ValueError when a value is not a SHA-256 (a text was passed, perhaps).
    """
    for path, value in files.items():
        if not SHA256.fullmatch(value):
            raise ValueError(f"closure_sha256 takes the SHA-256 of each file; the value for {path!r} is none")
    return closure_digest(files)


def digested_sources(root: Path) -> Iterator[str]:
    """The paths, relative to `root` and sorted, of the sources that decide what a description lowers to."""
    sources = [path for room in DIGESTED_ROOMS for path in (root / "generator" / room).rglob("*.py")]
    sources += [path for path in (root / "templates").rglob("*") if path.is_file()]
    relative = (path.relative_to(root) for path in sources)
    return iter(sorted(path.as_posix() for path in relative if not any(_is_clutter(part) for part in path.parts)))


def generator_digest(root: Path | None = None) -> str:
    """The SHA-256 of the lowering and emitting sources and the templates: `generator.digest` of `build.json`.

    It holds for `generator/{ir,arch,instructions,dsl,passes,emit}/**/*.py` and `templates/**` below `root` (the
    repository when left out): path, length and LF bytes of each file, in the order of the paths.
    """
    base = repository_root() if root is None else root
    digest = hashlib.sha256()
    for relative in digested_sources(base):
        content = lf_bytes((base / relative).read_bytes())
        digest.update(f"{relative}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _is_clutter(part: str) -> bool:
    """Whether a file or folder is one that interpreters and editors leave behind."""
    return part == "__pycache__" or part.startswith(".") or part.endswith("~")

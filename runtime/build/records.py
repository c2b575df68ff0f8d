"""libraries.json: what stands beside a folder of libraries, so that a library is checked before it is ever loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernwright.runtime.build.ptxas import Resources
from kernwright.runtime.fields import Field, FieldError
from kernwright.runtime.locking import write_atomically
from kernwright.runtime.manifest import SHA256

SCHEMA = 1
FILE = "libraries.json"


class LibrariesError(FieldError):
    """libraries.json cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class LibraryRecord:
    """One library: digest of the file, what it was built from and by, machine code digest and resources a kernel."""

    sha256: str
    closure: str
    flags: tuple[str, ...]
    toolchain: str
    tvm_ffi: str
    text_sha256: Mapping[str, str]
    resources: Mapping[str, Resources]


def read(folder: Path) -> dict[str, LibraryRecord]:
    """Records of a folder by library name (`<symbol>.<architecture>`); empty without a libraries.json."""
    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        top = Field(json.loads(file.read_text(encoding="utf-8")), file, "", LibrariesError)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LibrariesError(file, "", f"cannot be read: {error}") from error
    top.keys({"schema", "libraries"})
    if (schema := top["schema"].integer()) != SCHEMA:
        top["schema"].fail(f"is schema {schema}, this version of kernwright reads schema {SCHEMA}")
    return {name: _record(field) for name, field in top["libraries"].items()}


def _record(field: Field) -> LibraryRecord:
    field.keys(set(LibraryRecord.__dataclass_fields__))
    resources = {}
    for kernel, used in field["resources"].items():
        used.keys(set(Resources.__dataclass_fields__))
        resources[kernel] = Resources(*(used[name].integer(low=0) for name in Resources.__dataclass_fields__))
    return LibraryRecord(
        field["sha256"].text(SHA256),
        field["closure"].text(SHA256),
        tuple(flag.text() for flag in field["flags"].elements()),
        field["toolchain"].text(),
        field["tvm_ffi"].text(),
        {kernel: digest.text(SHA256) for kernel, digest in field["text_sha256"].items()},
        resources,
    )


def write(folder: Path, libraries: Mapping[str, LibraryRecord]) -> None:
    """Write libraries.json, sorted, in one step."""
    document = {"schema": SCHEMA, "libraries": {name: as_json(libraries[name]) for name in sorted(libraries)}}
    write_atomically(folder / FILE, (json.dumps(document, indent=2) + "\n").encode())


def as_json(record: LibraryRecord) -> dict[str, object]:
    """A record as libraries.json holds it."""
    return {
        "sha256": record.sha256,
        "closure": record.closure,
        "flags": list(record.flags),
        "toolchain": record.toolchain,
        "tvm_ffi": record.tvm_ffi,
        "text_sha256": dict(record.text_sha256),
        "resources": {kernel: used.as_json() for kernel, used in record.resources.items()},
    }


def digest(data: bytes) -> str:
    """sha256 of a library's bytes."""
    return hashlib.sha256(data).hexdigest()

"""build.json as data: which programs exist, for which architectures, from which files, launched how.

The generator writes the file and this module reads and validates it; nothing heavy is imported, so that the generator
may use it too (to see hand edits). Every complaint names the file and the field as a JSON pointer, for example
`build.json#/programs/rmsnorm_silu_gate_forward_w_bf16/architectures/sm_90a/closure`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kernwright.runtime.fields import Field, FieldError, read_json

SCHEMA = 1
ROOT = Path(__file__).resolve().parent.parent
SYMBOL = re.compile(r"[a-z][a-z0-9_]*")
ARCHITECTURE = re.compile(r"sm_[0-9]+[af]?")
SHA256 = re.compile(r"[0-9a-f]{64}")
DTYPES = ("boolean", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64")
FLOATS = ("bf16", "f16", "f32", "f64")


class ManifestError(FieldError):
    """build.json cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one multiprocessor and one block may use; sizes in bytes."""

    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_memory_per_block: int
    shared_memory_per_sm: int
    registers_per_sm: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row of the architecture table: `sm_90a` runs on compute capability (9, 0) only, and needs `minimum_cuda`."""

    name: str
    capability: tuple[int, int]
    minimum_cuda: tuple[int, int]
    limits: Limits

    @property
    def code(self) -> str:
        """The name without `sm_`, as `-gencode` wants it: `90a`."""
        return self.name.removeprefix("sm_")


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor argument. Shapes and strides (in elements) are texts over the scalars; `alignment` is in bytes."""

    name: str
    dtype: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    access: str
    alignment: int
    folded: bool


@dataclass(frozen=True, slots=True)
class ScalarRecord:
    """A scalar argument, or one read from a shape when `bound_to` is (tensor, dimension). Limits are inclusive."""

    name: str
    dtype: str
    low: int | None
    high: int | None
    multiple_of: int
    minimum: float | None
    bound_to: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """Block size, grid texts over the scalars, cluster, dynamic shared memory in bytes, blocks per SM asked for."""

    threads: int
    grid: tuple[str, str, str]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int
    min_blocks: int | None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """One library to be: its kernel and binding text, every generated file it is built from, and digests over them."""

    symbol: str
    architecture: Architecture
    kernel: str
    binding: str
    files: Mapping[str, str]
    closure: str
    lowered: str
    flags: tuple[str, ...]
    launch: LaunchRecord

    @property
    def library(self) -> str:
        """Name of the library without its suffix, and its key in libraries.json."""
        return f"{self.symbol}.{self.architecture.name}"

    @property
    def key(self) -> str:
        """Digest of what the library is built from: its files, flags and architecture."""
        return hashlib.sha256("\n".join([self.library, self.closure, *self.flags]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """One program: its arguments in order, and its target for each architecture it is made for."""

    symbol: str
    family: str
    name: str
    doc: str
    parameters: tuple[TensorRecord | ScalarRecord, ...]
    targets: Mapping[str, TargetRecord]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole of build.json. `root` is the folder its paths are relative to."""

    root: Path
    generator_digest: str
    architectures: Mapping[str, Architecture]
    programs: Mapping[str, ProgramRecord]

    def program(self, symbol: str) -> ProgramRecord:
        """The record of one program. Raises ManifestError when there is none of this name."""
        if symbol not in self.programs:
            raise ManifestError(self.root / "build.json", "/programs", f"no program {symbol!r}; {known(self.programs)}")
        return self.programs[symbol]

    def target(self, symbol: str, architecture: str) -> TargetRecord:
        """The record of one library. Raises ManifestError when the program is not made for this architecture."""
        targets = self.program(symbol).targets
        if architecture not in targets:
            pointer = f"/programs/{symbol}/architectures"
            raise ManifestError(self.root / "build.json", pointer, f"no {architecture!r}; {known(targets)}")
        return targets[architecture]


def known(names: Mapping[str, object]) -> str:
    """`known: a, b`, for messages."""
    return "known: " + (", ".join(sorted(names)) or "none")


def text_digest(text: bytes | str) -> str:
    """sha256 of a text with LF line ends, so that a checkout with CRLF has the same digest."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def closure_digest(files: Mapping[str, str]) -> str:
    """sha256 over the lines `<path> <sha256>` sorted by path: one digest for everything a library is built from."""
    return hashlib.sha256("".join(f"{path} {files[path]}\n" for path in sorted(files)).encode()).hexdigest()


def changed_files(target: TargetRecord, root: Path) -> dict[str, str]:
    """Files of a target that are not what build.json recorded: path to `missing` or `edited`. Empty when all agree."""
    changed: dict[str, str] = {}
    for path, digest in target.files.items():
        file = root / path
        if not file.is_file():
            changed[path] = "missing"
        elif text_digest(file.read_bytes()) != digest:
            changed[path] = "edited"
    return changed


def load(path: Path | None = None) -> Manifest:
    """Read and validate build.json (the package's own by default).

    Raises ManifestError for a file that is missing, is not JSON, or breaks the schema; the message names both.
    """
    file = path or ROOT / "build.json"
    try:
        document = read_json(file, ManifestError)
    except OSError as error:
        raise ManifestError(file, "", f"cannot be read: {error.strerror}") from error
    if document is None:
        raise ManifestError(file, "", "is empty: run regenerate-kernels to write it")
    return parse(document, file)


def parse(document: object, file: Path) -> Manifest:
    """Validate a decoded build.json; `file` names it in messages and its folder is the root of the paths."""
    top = Field(document, file, "", ManifestError)
    top.keys({"schema", "generator", "architectures", "programs"})
    if (schema := top["schema"].integer()) != SCHEMA:
        top["schema"].fail(f"is schema {schema}, this version of kernwright reads schema {SCHEMA}")
    architectures = {}
    for name, field in top["architectures"].items():
        if not ARCHITECTURE.fullmatch(name):
            field.fail("is not an architecture name such as sm_90a")
        architectures[name] = _architecture(name, field)
    programs = {}
    for symbol, field in top["programs"].items():
        if not SYMBOL.fullmatch(symbol):
            field.fail("is not a symbol: lower-case letters, digits and underscores")
        programs[symbol] = _program(symbol, field, architectures)
    top["generator"].keys({"digest"})
    digest = top["generator"]["digest"].text(SHA256)
    return Manifest(file.parent, digest, MappingProxyType(architectures), MappingProxyType(programs))


def _architecture(name: str, field: Field) -> Architecture:
    field.keys({"capability", "minimum_cuda", "limits"})
    major, minor = field["capability"].integers(2)
    cuda = field["minimum_cuda"].text(re.compile(r"[0-9]+\.[0-9]+")).split(".")
    limits = field["limits"]
    limits.keys(set(Limits.__dataclass_fields__))
    values = {key: limits[key].integer(low=1) for key in Limits.__dataclass_fields__}
    return Architecture(name, (major, minor), (int(cuda[0]), int(cuda[1])), Limits(**values))


def _program(symbol: str, field: Field, architectures: Mapping[str, Architecture]) -> ProgramRecord:
    field.keys({"family", "name", "doc", "parameters", "architectures"})
    family, name = field["family"].text(), field["name"].text()
    if f"{family}_{name}" != symbol:
        field["name"].fail(f"is {name!r} of family {family!r}, which makes {family}_{name}, not {symbol}")
    parameters = tuple(_parameter(item) for item in field["parameters"].elements())
    names = [parameter.name for parameter in parameters]
    for position, item in enumerate(parameters):
        if item.name in names[:position]:
            field["parameters"].at(position).fail(f"a second parameter named {item.name!r}")
        if isinstance(item, ScalarRecord) and item.bound_to is not None:
            _check_bound(field["parameters"].at(position), item.bound_to, parameters)
    targets = {}
    for arch, target in field["architectures"].items():
        if arch not in architectures:
            target.fail(f"is not in /architectures; {known(architectures)}")
        targets[arch] = _target(symbol, architectures[arch], target)
    return ProgramRecord(symbol, family, name, field["doc"].text(), parameters, MappingProxyType(targets))


def _check_bound(field: Field, bound: tuple[str, int], parameters: tuple[TensorRecord | ScalarRecord, ...]) -> None:
    tensors = {p.name: p for p in parameters if isinstance(p, TensorRecord)}
    tensor, dimension = bound
    if tensor not in tensors:
        field["bound_to"].fail(f"names {tensor!r}, which is not a tensor parameter; {known(tensors)}")
    if not 0 <= dimension < len(tensors[tensor].shape):
        field["bound_to"].fail(f"names dimension {dimension} of {tensor}, which has {len(tensors[tensor].shape)}")


def _parameter(field: Field) -> TensorRecord | ScalarRecord:
    kind = field["kind"].text()
    if kind == "tensor":
        field.keys({"kind", "name", "dtype", "shape", "strides", "access", "alignment", "folded"})
        shape = tuple(item.text() for item in field["shape"].elements())
        strides = tuple(item.text() for item in field["strides"].elements())
        if len(shape) != len(strides):
            field["strides"].fail(f"has {len(strides)} entries, the shape has {len(shape)}")
        return TensorRecord(
            field["name"].text(),
            field["dtype"].choice(DTYPES),
            shape,
            strides,
            field["access"].choice(("read", "write", "update")),
            field["alignment"].integer(low=1),
            field["folded"].boolean(),
        )
    if kind != "scalar":
        field["kind"].fail(f"is {kind!r}, expected 'tensor' or 'scalar'")
    field.keys({"kind", "name", "dtype"}, {"low", "high", "multiple_of", "minimum", "bound_to"})
    dtype = field["dtype"].choice(DTYPES)
    low, high = field.optional("low"), field.optional("high")
    minimum, bound, multiple = field.optional("minimum"), field.optional("bound_to"), field.optional("multiple_of")
    if dtype in FLOATS and (low or high):
        (low or high or field).fail(f"is for integers; {dtype} has a minimum")
    if dtype not in FLOATS and minimum:
        minimum.fail(f"is for floats; {dtype} has low and high")
    return ScalarRecord(
        field["name"].text(),
        dtype,
        low.integer() if low else None,
        high.integer() if high else None,
        multiple.integer(low=1) if multiple else 1,
        minimum.number() if minimum else None,
        (bound.at(0).text(), bound.at(1).integer(low=0)) if bound else None,
    )


def _target(symbol: str, architecture: Architecture, field: Field) -> TargetRecord:
    field.keys({"kernel", "binding", "files", "closure", "lowered", "flags", "launch"})
    files = {path: digest.text(SHA256) for path, digest in field["files"].items()}
    for path in files:
        if path.startswith("/") or ".." in path.split("/") or "\\" in path:
            field["files"].at(path).fail("is not a path inside the package")
    for role in ("kernel", "binding"):
        if field[role].text() not in files:
            field[role].fail(f"{field[role].text()!r} is not among the files")
    closure = field["closure"].text(SHA256)
    if closure != (computed := closure_digest(files)):
        field["closure"].fail(f"is {closure[:12]}…, the files give {computed[:12]}…")
    return TargetRecord(
        symbol,
        architecture,
        field["kernel"].text(),
        field["binding"].text(),
        MappingProxyType(files),
        closure,
        field["lowered"].text(SHA256),
        tuple(flag.text() for flag in field["flags"].elements()),
        _launch(field["launch"]),
    )


def _launch(field: Field) -> LaunchRecord:
    field.keys({"threads", "grid", "cluster", "dynamic_shared_bytes", "min_blocks"})
    grid = tuple(item.text() for item in field["grid"].elements())
    if len(grid) != 3:
        field["grid"].fail(f"has {len(grid)} entries, expected 3")
    cluster = field["cluster"].integers(3, low=1)
    blocks = field.optional("min_blocks")
    return LaunchRecord(
        field["threads"].integer(low=1),
        (grid[0], grid[1], grid[2]),
        (cluster[0], cluster[1], cluster[2]),
        field["dynamic_shared_bytes"].integer(low=0),
        blocks.integer(low=1) if blocks else None,
    )

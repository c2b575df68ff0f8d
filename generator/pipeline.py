"""Every output of the generator, from the descriptions to build.json, as texts in memory: the one way in which files come to be."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl.names import source_of
from kernwright.generator.dsl.program import REGISTRY, ProgramSource
from kernwright.generator.emit.binding import HEADER as BINDING_HEADER
from kernwright.generator.emit.binding import print_binding, print_binding_header
from kernwright.generator.emit.build_json import Target, print_build_json
from kernwright.generator.emit.headers import headers_of, print_headers
from kernwright.generator.emit.kernel import print_kernel
from kernwright.generator.errors import KernelError, ProgramFault
from kernwright.generator.ir.program import LoweredProgram
from kernwright.generator.passes.lower import lower
from kernwright.generator.workflow.digest import generator_digest
from kernwright.runtime.manifest import text_digest

KERNELS = Path(__file__).resolve().parent / "kernels"


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """One program on one architecture: where its texts stand and every generated file that its library is built from."""

    symbol: str
    arch: str
    kernel: str
    binding: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Everything that a run generates: `files` maps repository-relative paths to LF texts, build.json among them."""

    files: Mapping[str, str]
    programs: tuple[ProgramOutput, ...]


def discover() -> Mapping[str, ProgramSource]:
    """Import every module under generator/kernels, in sorted order, and return the programs that registered."""
    for path in sorted(KERNELS.rglob("*.py")):
        relative = path.relative_to(KERNELS).with_suffix("").parts
        if "__pycache__" not in relative and relative[-1] != "__init__":
            _import(".".join(("kernwright.generator.kernels", *relative)), path)
    return dict(sorted(REGISTRY.programs.items()))


def _import(module: str, path: Path) -> None:
    """Import a file of descriptions; whatever it raises becomes a fault with the file and the line."""
    try:
        importlib.import_module(module)
    except KernelError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError) and error.lineno:
            line = error.lineno
        else:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno or 0 for f in reversed(frames) if Path(f.filename).resolve() == path.resolve()), 0)
        raise ProgramFault(
            "KW0608",
            f"{path.name} cannot be imported",
            source_of(str(path), line),
            detail=f"{type(error).__name__}: {error}",
            fix="Nothing was generated: a file that fails might have held any program.",
        ) from error


def generate(archs: Sequence[str] | None = None, sources: Iterable[ProgramSource] | None = None) -> Outputs:
    """Generate every shipped program for `archs` (all by default). Raises KernelError for a fault of a description."""
    chosen = [source for source in (discover().values() if sources is None else sources) if source.shipped]
    lowered: list[LoweredProgram] = []
    for source in chosen:
        description = source.trace()
        lowered += [
            lower(description, ARCHITECTURES[name]).program
            for name in description.archs
            if archs is None or name in archs
        ]
    files, targets = _texts(lowered)
    files["build.json"] = print_build_json(targets, ARCHITECTURES.values(), generator_digest())
    outputs = tuple(
        ProgramOutput(t.program.symbol, t.program.arch, t.kernel, t.binding, tuple(t.files)) for t in targets
    )
    return Outputs(dict(sorted(files.items())), outputs)


def _texts(programs: list[LoweredProgram]) -> tuple[dict[str, str], list[Target]]:
    files = print_headers(programs)
    if programs:
        files[BINDING_HEADER] = print_binding_header()
    targets: list[Target] = []
    for family in _by_symbol(programs):
        kernels = {program.arch: print_kernel(program) for program in family}
        bindings = {program.arch: print_binding(program) for program in family}
        for program in family:
            kernel = _path(program, kernels, ".cu")
            binding = _path(program, bindings, "_binding.c")
            files[kernel], files[binding] = kernels[program.arch], bindings[program.arch]
            used = sorted({kernel, binding, BINDING_HEADER, *headers_of(program)})
            targets.append(Target(program, kernel, binding, {path: text_digest(files[path]) for path in used}))
    return files, targets


def _by_symbol(programs: list[LoweredProgram]) -> list[list[LoweredProgram]]:
    groups: dict[str, list[LoweredProgram]] = {}
    for program in programs:
        groups.setdefault(program.symbol, []).append(program)
    return list(groups.values())


def _path(program: LoweredProgram, texts: Mapping[str, str], ending: str) -> str:
    """One file where a text serves every architecture of the program, else one a machine, named after its first architecture."""
    folder = f"generated/{program.family}"
    if len(set(texts.values())) == 1:
        return f"{folder}/{program.name}{ending}"
    first = next(arch for arch, text in texts.items() if text == texts[program.arch])
    return f"{folder}/{program.name}.{first}{ending}"

"""Author errors: one catalogue of stable codes, and messages that name file, line, numbers and what to do."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from pathlib import Path

from kernwright.generator.ir.source import UNKNOWN, Source


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """What `kernwright explain CODE` prints: the rule, why it exists, and how to obey it."""

    code: str
    title: str
    explanation: str


_ENTRIES = (
    # names
    CatalogueEntry(
        "KW0101",
        "name cannot be used in the text",
        """\
A name of the description becomes a name of the CUDA text, so it must be an ASCII identifier that is no C++ or CUDA keyword,
starts with a letter, holds no double underscore, and is none of the macros and built-in variables that CUDA headers define
(threadIdx, warpSize, NULL, INFINITY, min, float2, ...). Nothing is renamed silently: choose another name.""",
    ),
    CatalogueEntry(
        "KW0102",
        "name is taken",
        """\
Two things of one program would have the same name in the text, or a name is one that the generator itself uses (the layout
variables row, column, offset, in_range, the loop index i, a wrapper of the instruction table, a constant kName). The second
one would shadow or redefine the first. Choose another name, or give one in words with k.let("name", value).""",
    ),
    CatalogueEntry(
        "KW0103",
        "value has no name",
        """\
Loads, reductions and accumulators become variables of the text and need the author's name for it. The name is read from the
assignment (`x_row = k.load(...)`). Where there is no plain assignment, give the name in words: k.load(..., name="x_row").""",
    ),
    CatalogueEntry(
        "KW0104",
        "reason cannot stand in the text",
        """\
The reason of a constant or of a required condition becomes a comment or a string of the CUDA text: one line, without double
quotes and backslashes (a backslash at the end of a comment would swallow the next line).""",
    ),
    # tensors, scalars and types
    CatalogueEntry(
        "KW0201",
        "types do not combine",
        """\
Arithmetic happens in one type. BF16 and FP16 values are converted with .to(f32) before they are used, integers and floats are
converted explicitly, so that every rounding is visible in the description.""",
    ),
    CatalogueEntry(
        "KW0202",
        "unknown tensor or scalar",
        "A tensor, scalar or tile must belong to the program that uses it: handles of another program or trace are refused.",
    ),
    CatalogueEntry(
        "KW0203",
        "tensor is used against its access",
        """\
A tensor declared with access="read" is loaded through the read-only path, so the same program may not store to it; a tensor
declared "write" may not be read. Declare access="update" for both.""",
    ),
    CatalogueEntry(
        "KW0204",
        "shape does not fit",
        """\
Tiles combine when their shapes are equal, or when one is a row factor [rows, 1], a column factor [1, columns] or a scalar.""",
    ),
    CatalogueEntry(
        "KW0205",
        "scalar facts contradict each other",
        """\
low and high are inclusive limits inside the scalar's type; multiple_of is positive; a float has only `minimum`. The binding
refuses values outside them and every range proof of the generator relies on them.""",
    ),
    CatalogueEntry(
        "KW0206",
        "offset leaves its type",
        """\
An element offset must be proved to fit the integer type it is computed in at the largest legal shape. Lower the scalar's
`high`, or declare the dimension as i64 so that offsets are widened before the multiplication.""",
    ),
    CatalogueEntry(
        "KW0207",
        "optional tensor is used without asking",
        """\
A tensor declared with optional=True may be absent, and its pointer is then null: every use stands inside
`with k.when_present(tensor):`. A tensor that is always there needs no such block.""",
    ),
    CatalogueEntry(
        "KW0208",
        "alignment is not possible",
        """\
An alignment is a power of two in bytes, at least the size of one element. The binding refuses tensors that start elsewhere.""",
    ),
    # layouts, tiles, instructions
    CatalogueEntry(
        "KW0301",
        "layout does not cover the tile",
        "A distributed layout maps (thread, register) to (row, column) and must reach every element of the tile exactly once.",
    ),
    CatalogueEntry(
        "KW0302",
        "tile does not fit the instruction",
        """\
wgmma computes 64 rows a warpgroup and 8 to 256 columns in steps of 8, 16 values of K at a time for BF16; tcgen05.mma computes
64 or 128 rows and 16 to 256 columns in steps of 16. Operands in shared memory hold whole swizzle atoms. Change the tile.""",
    ),
    CatalogueEntry(
        "KW0303",
        "swizzle does not fit the rows of the tile",
        """\
With a 128-, 64- or 32-byte swizzle a panel row is exactly that many bytes, so the contiguous dimension of a shared tile is a
multiple of it; a TMA box is at most 256 elements a dimension.""",
    ),
    CatalogueEntry(
        "KW0304",
        "layouts differ",
        "Elementwise operations need operands in the same distributed layout. Convert one of them, or load both with one layout.",
    ),
    CatalogueEntry(
        "KW0305",
        "operation is not lowered on this architecture",
        """\
The description is legal and can be traced and explained, but no lowering for this operation exists on this architecture yet, so
no text is written. Drop the architecture from the program's list, or leave the program out of generator/kernels/.""",
    ),
    CatalogueEntry(
        "KW0306",
        "instruction does not exist on this architecture",
        "wgmma exists on sm_90a alone; tcgen05 and TMEM on sm_100a and later. Drop the architecture or choose another operation.",
    ),
    CatalogueEntry(
        "KW0307",
        "a row-wise program works on one range of rows in one layout",
        """\
A block of the grid works on one range of rows, which one vector-row layout spreads over its threads. A second range or layout is
a second program.""",
    ),
    CatalogueEntry(
        "KW0308",
        "operand lies beyond what a descriptor addresses",
        """\
The address field of a matrix descriptor counts 16 bytes in 14 bits (256 KiB) or, where blocks may have more shared memory, in 15
bits. A step of K is added to a finished descriptor, so no address of an operand may carry out of the field. `kernwright explain
PROGRAM --arch ARCH` prints the proof for every operand. Use fewer stages, or put the operands before other tiles.""",
    ),
    # pipelines and roles
    CatalogueEntry(
        "KW0401",
        "pipeline has no producer or no consumer",
        """\
Each stage of a pipeline is filled by exactly one role and read by at least one other. Without a producer its consumers wait for
ever; without a consumer its producer does.""",
    ),
    CatalogueEntry(
        "KW0402",
        "stage is filled incompletely",
        """\
Every tile of a stage is written once by each `produce` block: the transaction bytes that consumers wait for are derived from the
tiles, and a tile that is never copied would make them wait for ever.""",
    ),
    CatalogueEntry(
        "KW0403",
        "operation outside a role",
        "A program with roles does all its work inside them: code outside would be executed by every warp.",
    ),
    CatalogueEntry(
        "KW0404",
        "register budgets do not fit",
        """\
setmaxnreg moves registers between the warpgroups of a block: every budget is a multiple of 8 in 24..256, and the budgets of all
warpgroups together are at most what the launch gave them, that is 64 K registers an SM for one block. Where accumulators are in
tensor memory no budget is needed and none is moved.""",
    ),
    CatalogueEntry(
        "KW0405",
        "too few stages for the copies in flight",
        "A product in flight, each block inside a block and each further copy of a role hold one more stage of the pipeline.",
    ),
    CatalogueEntry(
        "KW0406",
        "relay does not vouch for the stage",
        """\
`a.consume(relayed_by=b)` skips the wait for `a` because the producer of `b` has waited for the same stage before it arrived on `b`.
That holds only when that producer consumes `a` around producing `b`, and this role consumes `b` around `a`.""",
    ),
    CatalogueEntry(
        "KW0407",
        "role needs more registers than its budget",
        """\
Accumulators and register operands occupy registers for as long as a product reads or writes them, and named tiles while they are
used. The most that are live at once, without addresses and counters, is the least that a role needs: a budget below it spills.
Raise `registers=`, use more warpgroups, or shorten lifetimes.""",
    ),
    CatalogueEntry(
        "KW0408",
        "tile of a pipeline is used outside its block",
        """\
A stage belongs to its producer inside `with p.produce()` and to its consumers, who only read it, inside `with p.consume()`:
anything else is ordered by no barrier. A result goes to another pipeline or to a k.buffer of its own.""",
    ),
    CatalogueEntry(
        "KW0409",
        "standing buffer is used by two roles",
        """\
A k.buffer is handed over between the threads of one role by that role's named barrier; nothing orders two roles. Give each role a
buffer of its own, or hand the tile over in a pipeline.""",
    ),
    CatalogueEntry(
        "KW0410",
        "nothing to be a step ahead of",
        """\
`ahead=1` moves a fetch or an acquisition to the end of the step before: it stands inside `with k.steps(...)`, and a fetch inside
the `consume` block of its tile. It is 0 or 1.""",
    ),
    CatalogueEntry(
        "KW0411",
        "pipeline or role inside a condition",
        """\
Both ends of a pipeline count its uses; one that is skipped by a condition on one side alone would be waited for. Produce and
consume the stage on every path, and put the condition inside.""",
    ),
    CatalogueEntry(
        "KW0412",
        "value is used outside the role, loop or block that names it",
        "A named value lives in the role, loop, condition or one_thread block that names it. Read it again, or hand it over.",
    ),
    CatalogueEntry(
        "KW0413",
        "ends of a pipeline go through different numbers of stages",
        "Roles go through equally many stages of a pipeline in a block; trips that are different expressions are only reported.",
    ),
    # limits
    CatalogueEntry(
        "KW0501",
        "shared memory over the limit",
        """\
A block can have at most 227 KiB of shared memory, where an architecture has an oversized mode what that allows, and all blocks of
an SM together 228 KiB, of which each reserves 1 KiB; generator/arch/ has the numbers. Use fewer stages, smaller tiles or fewer
blocks an SM.""",
    ),
    CatalogueEntry(
        "KW0502",
        "too many threads",
        "A block has at most 1024 threads, in whole warps; the blocks of an SM together have what generator/arch/ says.",
    ),
    CatalogueEntry(
        "KW0503",
        "tensor memory over the limit",
        "An SM has 512 columns of tensor memory for all its blocks; a block allocates them in powers of two from 32.",
    ),
    CatalogueEntry(
        "KW0504",
        "more named barriers than a block has",
        """\
A block has 16 named barriers; number 0 is __syncthreads. Every copy of a role that hands a buffer from its threads to a store or
to a product needs one of the other 15.""",
    ),
    # programs
    CatalogueEntry(
        "KW0601",
        "two programs have one name",
        "<family>_<name> is the C symbol, the file name and the key in build.json: it is unique. Rename one of the two programs.",
    ),
    CatalogueEntry(
        "KW0602",
        "program has no architectures",
        "archs= lists the architectures that the program is generated for, at least one of sm_90a, sm_100a, sm_103a, sm_107a.",
    ),
    CatalogueEntry(
        "KW0603",
        "program has no docstring",
        "The docstring is the first thing a reader of the generated text sees: what the program computes, shapes and types.",
    ),
    CatalogueEntry(
        "KW0604",
        "description fails while it is traced",
        "The description raised an exception of its own. The message quotes it with the author's file and line.",
    ),
    CatalogueEntry(
        "KW0605",
        "program stores nothing",
        "A program without a store has no effect; the last store is probably missing.",
    ),
    CatalogueEntry(
        "KW0606",
        "value is never used",
        """\
A named value becomes a variable of the text; one that nothing reads would be a compiler warning there. Use it or remove it.""",
    ),
    CatalogueEntry(
        "KW0607",
        "tensor is stored twice",
        "The second store of the same rows overwrites the first one; one of them is a mistake.",
    ),
    CatalogueEntry(
        "KW0608",
        "file of descriptions cannot be imported",
        """\
Every module under generator/kernels is imported. One that raises an exception on the way has no programs; the message quotes
it with the line of the file.""",
    ),
    CatalogueEntry(
        "KW0609",
        "word does not exist",
        "The words of the language are the methods of the kernel that the description gets, listed in docs/language.md.",
    ),
    # expressions
    CatalogueEntry(
        "KW0701",
        "constant leaves its type",
        "A constant folds to a value that its C++ type cannot hold; C++ would overflow. Use a wider type before the operation.",
    ),
    CatalogueEntry(
        "KW0702",
        "expression has no exact integer meaning",
        """\
Shapes, grids and strides are exact integers: only sums, products, floor, ceiling, Mod, Min, Max and Piecewise of them convert.""",
    ),
    CatalogueEntry(
        "KW0704",
        "division by zero",
        "The divisor is the constant zero, which C leaves undefined and the compiler warns of.",
    ),
    CatalogueEntry(
        "KW0703",
        "required condition does not hold",
        """\
k.require states a condition over named constants; it is checked when the program is described and stands as a static_assert in
the text.""",
    ),
)

CATALOGUE = {entry.code: entry for entry in _ENTRIES}


class KernelError(Exception):
    """Something in a description is wrong. `str()` is the whole message."""

    def __init__(
        self, code: str, what: str, source: Source = UNKNOWN, detail: str = "", fix: str = "", where: str = ""
    ) -> None:
        self.code = code
        self.what = what
        self.source = source
        self.detail = detail
        self.fix = fix
        self.where = where
        super().__init__(self._message())

    def _message(self) -> str:
        lines = [f"{self.code} {self.what}"]
        if self.source != UNKNOWN:
            lines.append(f"  {self.source}" + (f"  {self.where}" if self.where else ""))
            text = source_line(self.source)
            if text:
                lines.append(f"     {text}")
        lines += [f"  {line}" for line in (*self.detail.splitlines(), *self.fix.splitlines())]
        lines.append(f"  kernwright explain {self.code}")
        return "\n".join(lines)


class NameFault(KernelError):
    """KW01xx: names."""


class TensorFault(KernelError):
    """KW02xx: tensors, scalars and types."""


class LayoutFault(KernelError):
    """KW03xx: layouts, tiles and instructions."""


class PipelineFault(KernelError):
    """KW04xx: pipelines and roles."""


class LimitFault(KernelError):
    """KW05xx: limits of the machine."""


class ProgramFault(KernelError):
    """KW06xx: programs as a whole."""


class ExpressionFault(KernelError):
    """KW07xx: expressions."""


def repository_root() -> Path:
    """The folder that holds generator/, templates/, generated/ and build.json (the package folder in a wheel)."""
    return Path(__file__).resolve().parent.parent


def source_line(source: Source) -> str:
    """The author's line, stripped, or nothing where the file cannot be read."""
    path = Path(source.file)
    if not path.is_absolute():
        path = repository_root() / path
    return linecache.getline(str(path), source.line).strip()

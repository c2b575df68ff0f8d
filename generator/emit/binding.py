"""The committed plain-C binding of a program: what it checks, which scalars it reads from shapes, how it launches.

All helpers stand in one shared header; a program's own file is its tables of checks and of tensor maps and nothing else.
The argument order of the function `run` is: tensors in the program's order, then the scalars that no shape gives, in the
program's order. The kernel gets `program.arguments`, or the parameters where a program states none.
"""

from __future__ import annotations

import re
import textwrap

from kernwright.generator.emit.binding_maps import check_map, map_name, map_types
from kernwright.generator.emit.expressions import print_expression
from kernwright.generator.emit.templates import environment, header_line
from kernwright.generator.ir.expr import Binary, Const, Expr, children, without_names
from kernwright.generator.ir.program import Argument, LoweredProgram, ScalarParameter, TensorMap, TensorParameter
from kernwright.generator.ir.reserved import is_reserved
from kernwright.generator.ir.source import Source
from kernwright.generator.ir.types import ALL_DTYPES, DType, Kind, bf16, boolean, f64
from kernwright.generator.ir.uses import names_of
from kernwright.generator.passes.widen import widen

TEMPLATE = Source("templates/include/binding.h.j2", 1)
HEADER = "generated/include/binding.h"
WIDTH = 120
INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1  # also the most blocks that a grid has along x
MAX_DIMS = 16
MACROS = {dtype: "KW_BOOL" if dtype == boolean else f"KW_{dtype.name.upper()}" for dtype in ALL_DTYPES}
DLPACK_CODES = {Kind.BOOL: "kDLBool", Kind.SIGNED: "kDLInt", Kind.UNSIGNED: "kDLUInt", Kind.FLOAT: "kDLFloat"}
GREATEST = {"f32": "FLT_MAX", "f64": "DBL_MAX"}
FUNCTIONS = {"min": "kw_min", "max": "kw_max"}


def print_binding(program: LoweredProgram) -> str:
    """The C text of `<program>_binding.c`.

    Raises ValueError for what a binding cannot serve: a program without a tensor that is always there, a name that C or
    C++ reserves, a tensor that has no or too many dimensions or an alignment that is no power of two, a scalar of a type
    that no caller can pass or bound to a dimension that may not exist, a kernel argument that is no parameter, or a
    tensor map that the driver would refuse whatever the caller passes.
    """
    _check(program)
    tensors = program.tensors
    passed = [scalar for scalar in program.scalars if scalar.bound_to is None]
    names = [tensor.name for tensor in tensors] + [scalar.name for scalar in passed]
    position = {name: index for index, name in enumerate(names)}
    return (
        environment()
        .get_template("binding.c.j2")
        .render(
            header=header_line(program.source),
            title=f"{program.symbol}: the host side of its kernel.",
            symbol=program.symbol,
            doc=_doc(names, [*map(_describe, tensors), *map(_describe_scalar, passed)]),
            count=_count(names),
            threads=program.launch.threads,
            cluster="{" + ", ".join(str(extent) for extent in program.launch.cluster) + "}",
            shared_bytes=program.launch.dynamic_shared_bytes,
            options=_options(program),
            maps=[line for item in program.maps for line in _map(item)],
            launch=_launch(program),
            constants=_constants(program),
            tensors=_wrapped([tensor.name for tensor in tensors], len("  KwTensor "), len(";")),
            argument_checks=[_argument_check(tensor, position[tensor.name]) for tensor in tensors],
            scalars=[line for scalar in program.scalars for line in _scalar(scalar, program, position)]
            + _unused(program),
            layout_checks=[line for tensor in tensors for line in _layout_check(tensor)],
            apart_checks=[line for tensor in tensors for line in _apart_check(tensor, tensors)],
            grid=", ".join(_print(extent) for extent in program.launch.grid),
            kernel_arguments=_kernel_arguments(program),
        )
    )


def print_binding_header() -> str:
    """The C text of `generated/include/binding.h`, which every binding includes."""
    dtypes = [{"macro": MACROS[dtype], "code": _dlpack_code(dtype), "bits": 8 * dtype.bytes} for dtype in ALL_DTYPES]
    template = environment().get_template("include/binding.h.j2")
    return template.render(header=header_line(TEMPLATE), dtypes=dtypes, max_dims=MAX_DIMS)


def _dlpack_code(dtype: DType) -> str:
    return "kDLBfloat" if dtype == bf16 else DLPACK_CODES[dtype.kind]


def _check(program: LoweredProgram) -> None:
    tensors = {tensor.name: tensor for tensor in program.tensors}
    if not tensors:
        raise ValueError(f"{program.symbol}: a binding needs a tensor, whose device it launches on")
    if all(tensor.optional for tensor in program.tensors):
        raise ValueError(f"{program.symbol}: every tensor may be absent; the device of one is where it launches")
    for parameter in program.parameters:
        name = parameter.name
        if (
            is_reserved(name)
            or name.startswith(("kw_", "KW_", "ffi_", "Kw"))
            or not re.fullmatch(r"[A-Za-z_]\w*", name)
        ):
            raise ValueError(f"{program.symbol}: parameter {name!r} is not usable as a name in C; rename it")
    for scalar in program.scalars:
        if scalar.bound_to is not None:
            tensor, dimension = scalar.bound_to
            if tensor not in tensors or not 0 <= dimension < len(tensors[tensor].shape):
                raise ValueError(f"{program.symbol}: {scalar.name} is bound to dimension {dimension} of {tensor!r}")
            if not scalar.dtype.is_integer or scalar.dtype == boolean:
                raise ValueError(f"{program.symbol}: {scalar.name} is a {scalar.dtype}, a dimension is an integer")
        elif scalar.dtype.is_float and scalar.dtype.name not in GREATEST:
            raise ValueError(f"{program.symbol}: {scalar.name} is a {scalar.dtype}; pass an f32 and convert it")
    for tensor_parameter in program.tensors:
        _check_tensor(program.symbol, tensor_parameter)
    for scalar in program.scalars:
        if scalar.bound_to is not None and tensors[scalar.bound_to[0]].optional:
            raise ValueError(
                f"{program.symbol}: {scalar.name} is read from {scalar.bound_to[0]!r}, which may be absent"
            )
    _check_arguments(program)
    for item in program.maps:
        check_map(program.symbol, item, tensors)


def _check_arguments(program: LoweredProgram) -> None:
    names = [argument.name for argument in program.arguments]
    for argument in program.arguments:
        if names.count(argument.name) > 1:
            raise ValueError(f"{program.symbol}: the kernel has two arguments named {argument.name!r}")
        if not isinstance(argument, TensorMap) and argument not in program.parameters:
            raise ValueError(f"{program.symbol}: the kernel's argument {argument.name!r} is none of the parameters")
    for scalar in program.scalars:
        if any(scalar.name == f"map_{item.name}" for item in program.maps):
            raise ValueError(
                f"{program.symbol}: {scalar.name!r} is the name of a tensor map in C; rename the parameter"
            )


def _check_tensor(symbol: str, tensor: TensorParameter) -> None:
    alignment = tensor.alignment
    if not tensor.shape:
        raise ValueError(f"{symbol}: {tensor.name} has no dimensions; declare it as [1]")
    if len(tensor.shape) > MAX_DIMS:
        raise ValueError(f"{symbol}: {tensor.name} has {len(tensor.shape)} dimensions; a binding takes {MAX_DIMS}")
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"{symbol}: {tensor.name} is aligned to {alignment} bytes; expected a power of two")


def _print(expr: Expr) -> str:
    return print_expression(expr, lambda function: FUNCTIONS.get(function, function))


def _text(exprs: tuple[Expr, ...]) -> str:
    """`[rows, 128]` for messages: numbers in place of named constants, without the suffixes of literals."""
    return "[" + ", ".join(re.sub(r"\b(\d+)(?:ull|ll|u)\b", r"\1", _print(without_names(expr))) for expr in exprs) + "]"


def _list(exprs: tuple[Expr, ...]) -> str:
    return f"KW_LIST({', '.join(_wide(exprs))})"


def _wide(exprs: tuple[Expr, ...]) -> list[str]:
    """Texts of integers, computed in 64 bits wherever 32 may not hold them."""
    return [_print(widen(expr)) for expr in exprs]


def _doc(names: list[str], arguments: list[str]) -> list[str]:
    """The comment's lines on `run` and its arguments."""
    run = f"run({', '.join(names)}) checks its arguments and launches the kernel on the current stream of the tensors' device."
    lines = textwrap.wrap(run, WIDTH - len(" * "))
    return lines + [
        line
        for argument in arguments
        for line in textwrap.wrap(argument, WIDTH - len(" * "), initial_indent="  ", subsequent_indent="    ")
    ]


def _count(names: list[str]) -> str:
    """The check of how many arguments came; the text of a long signature goes in pieces, a piece a line."""
    head, tail, signature = f"if (kw_count(ffi_count, {len(names)},", ")) return -1;", ", ".join(names)
    if len(f'  {head} "{signature}"{tail}') <= WIDTH:
        return f'{head} "{signature}"{tail}'
    indent = " " * len("  if (kw_count(")
    first, *others = textwrap.wrap(signature, WIDTH - len(f'{indent}""{tail}') - 1)
    pieces = [f'"{first}', *(f" {other}" for other in others)]
    return head + "\n" + indent + f'"\n{indent}"'.join(pieces) + '"' + tail


def _describe(tensor: TensorParameter) -> str:
    verb = {"read": "read", "write": "written", "update": "read and written"}[tensor.access]
    folds = ", leading dimensions fold" if tensor.folded else ""
    folds += ", or None" if tensor.optional else ""
    return f"{tensor.name}: {tensor.dtype} {_text(tensor.shape)}{folds}, {tensor.alignment}-byte aligned, {verb}"


def _describe_scalar(scalar: ScalarParameter) -> str:
    if scalar.dtype == boolean:
        return f"{scalar.name}: boolean"
    if scalar.dtype.is_float:
        return f"{scalar.name}: {scalar.dtype}, finite" + ("" if scalar.minimum is None else f", >= {scalar.minimum:g}")
    low, high = _limits(scalar)
    multiple = f", a multiple of {scalar.multiple_of}" if scalar.multiple_of != 1 else ""
    return f"{scalar.name}: {scalar.dtype}, {low} to {high}{multiple}"


def _expressions(program: LoweredProgram) -> list[Expr]:
    """What the binding computes: the grid, the shapes and strides of tensors and of their maps."""
    exprs = [*program.launch.grid, *(e for t in program.tensors for e in (*t.shape, *t.strides))]
    return exprs + [e for item in program.maps for e in (*item.extents, *item.strides)]


def _unused(program: LoweredProgram) -> list[str]:
    """Scalars that are checked and that neither the kernel nor an expression takes: the compiler is told so."""
    used = {
        argument.name for argument in program.arguments or program.parameters if not isinstance(argument, TensorMap)
    }
    used |= names_of(tuple(_expressions(program)))
    return [f"(void){scalar.name};" for scalar in program.scalars if scalar.name not in used]


def _constants(program: LoweredProgram) -> list[str]:
    """Definitions of the named constants that shapes, strides, maps and grid mention, in the order of the program's table."""
    used = {constant.name for expr in _expressions(program) for constant in _named(expr)}
    rows = [row.constant for row in program.constants if row.constant.name in used]
    return [f"const {row.dtype.cpp} {row.name} = {_print(Const(row.value, row.dtype))};" for row in rows]


def _named(expr: Expr) -> list[Const]:
    if isinstance(expr, Const):
        return [expr] if expr.name is not None else []
    return [constant for child in children(expr) for constant in _named(child)]


def _argument_check(tensor: TensorParameter, position: int) -> str:
    folded = "KW_FOLDED" if tensor.folded else "KW_EXACT"
    arguments = f'{position}, "{tensor.name}", {MACROS[tensor.dtype]}, {len(tensor.shape)}, {folded}, &{tensor.name}'
    function = "kw_optional_tensor" if tensor.optional else "kw_tensor"
    return f"if ({function}(&kw_call, {arguments})) return -1;"


def _limits(scalar: ScalarParameter) -> tuple[int, int]:
    low = scalar.dtype.low if scalar.low is None else scalar.low
    high = scalar.dtype.high if scalar.high is None else scalar.high
    return low, min(high, INT64_MAX)


def _integer(value: int) -> str:
    return f"({value + 1} - 1)" if value == -(1 << 63) else str(value)


def _grid_limit(high: int, grid: Expr, name: str) -> str:
    """The upper limit of scalar `name`; as `INT32_MAX * kRowsPerBlock` when it is the longest grid times a divisor in it."""
    blocks = [part for part in _parts(grid) if isinstance(part, Binary) and part.op == "/"]
    for part in blocks:
        divisor = part.right
        if isinstance(divisor, Const) and high == INT32_MAX * divisor.value and name in names_of(part.left):
            return f"(long long)INT32_MAX * {_print(divisor)}"
    return _integer(high)


def _parts(expr: Expr) -> list[Expr]:
    return [expr, *(part for child in children(expr) for part in _parts(child))]


def _scalar(scalar: ScalarParameter, program: LoweredProgram, position: dict[str, int]) -> list[str]:
    """The check of a scalar and its definition with the kernel's type."""
    name, dtype = scalar.name, scalar.dtype
    low, high = _limits(scalar) if dtype.is_integer else (0, 0)
    limits = f"{_integer(low)}, {_grid_limit(high, program.launch.grid[0], name)}, {scalar.multiple_of}"
    if scalar.bound_to is not None:
        tensor, dimension = scalar.bound_to
        return [
            f'if (kw_dimension(&{tensor}, {dimension}, "{name}", {limits})) return -1;',
            f"const {dtype.cpp} {name} = {_narrow(dtype)}{tensor}.shape[{dimension}];",
        ]
    head = f'&kw_call, {position[name]}, "{name}"'
    if dtype == boolean:
        return [f"bool {name};", f"if (kw_boolean({head}, &{name})) return -1;"]
    if dtype.kind is Kind.FLOAT:
        greatest = GREATEST[dtype.name]
        minimum = f"-{greatest}" if scalar.minimum is None else _print(Const(scalar.minimum, f64))
        return [
            f"double kw_{name};",
            f"if (kw_real({head}, {minimum}, {greatest}, &kw_{name})) return -1;",
            f"const {dtype.cpp} {name} = {'(float)' if dtype.bits == 32 else ''}kw_{name};",
        ]
    return [
        f"long long kw_{name};",
        f"if (kw_integer({head}, {limits}, &kw_{name})) return -1;",
        f"const {dtype.cpp} {name} = {_narrow(dtype)}kw_{name};",
    ]


def _narrow(dtype: DType) -> str:
    """The cast from a 64-bit integer that was checked to fit."""
    return "" if dtype.name == "i64" else f"({dtype.cpp})"


def _layout_check(tensor: TensorParameter) -> list[str]:
    shape, strides = _list(tensor.shape), _list(tensor.strides)
    head = f'if (kw_layout(&{tensor.name}, "{_text(tensor.shape)}", {shape},'
    tail = f'"{_text(tensor.strides)}", {strides}, {tensor.alignment})) return -1;'
    if len(head) + len(tail) + 3 <= WIDTH:
        return [f"{head} {tail}"]
    return [head, " " * len("if (kw_layout(") + tail]


def _apart_check(tensor: TensorParameter, tensors: tuple[TensorParameter, ...]) -> list[str]:
    """A written tensor against every other one; two written ones are compared once, by the first."""
    if tensor.access == "read":
        return []
    before = tensors[: tensors.index(tensor)]
    others = [
        f"&{other.name}" for other in tensors if other != tensor and not (other in before and other.access != "read")
    ]
    if not others:
        return []
    head = f"if (kw_apart(&{tensor.name}, KW_OTHERS("
    return [head + _wrapped(others, 2 + len(head), len("))) return -1;")) + "))) return -1;"]


def _options(program: LoweredProgram) -> list[str]:
    """What the shared header is to hold beside the usual."""
    found = [f"#define KW_TENSOR_MAPS {len(program.maps)}"] if program.maps else []
    found += ["#define KW_OVERSIZED 1"] if program.launch.oversized_shared_memory else []
    return found + (["#define KW_DEPENDENT 1"] if program.launch.dependent else [])


def _map(item: TensorMap) -> list[str]:
    """The definition of a tensor map, with the numbers of this call; the launch encodes it."""
    numbers = {"extents": _wide(item.extents), "strides": _wide(item.strides), "box": [str(size) for size in item.box]}
    sizes = [f".{name} = {{{', '.join(texts)}}}" for name, texts in numbers.items() if texts]
    head = f'KwMap {map_name(item)} = {{.tensor = &{item.tensor}, .name = "{item.name}", .rank = {len(item.extents)},'
    return [head, f"    {', '.join(map_types(item))},", f"    {_wrapped(sizes, len('      '), len('};'))}}};"]


def _launch(program: LoweredProgram) -> str:
    if not program.maps:
        return "if (kw_launch(kw_call.device, kw_grid, kw_arguments)) return -1;"
    head, tail = "if (kw_launch_with_maps(kw_call.device, kw_grid, kw_arguments, KW_MAPS(", "))) return -1;"
    return head + _wrapped([f"&{map_name(item)}" for item in program.maps], 2 + len(head), len(tail)) + tail


def _kernel_arguments(program: LoweredProgram) -> str:
    """Addresses of the kernel's arguments, in its order, as many to a line as fit."""
    addresses = [_address(item) for item in program.arguments or program.parameters]
    return _wrapped(addresses, len("  void* kw_arguments[] = {"), len("};"))


def _address(item: Argument) -> str:
    if isinstance(item, TensorMap):
        return f"&{map_name(item)}.map"
    return f"&{item.name}.data" if isinstance(item, TensorParameter) else f"(void*)&{item.name}"


def _wrapped(words: list[str], indent: int, tail: int) -> str:
    """`a, b, c` after `indent` columns and before `tail` more, as many words to a line as fit."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + indent + tail + 2 > WIDTH:
            lines.append("")
        lines[-1] += word + ", "
    return ("\n" + " " * indent).join(line.rstrip() for line in lines).removesuffix(",")

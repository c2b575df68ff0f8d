"""Programs with roles as text and as machine code: length beside the targets, products in the SASS, descriptors, no spill."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
from support.chained_products import PROGRAMS as WRITTEN_LATER
from support.targets import FOLDER, code_lines, is_code

from kernwright.generator.arch import ARCHITECTURES, Machine
from kernwright.generator.dsl.program import ProgramSource
from kernwright.generator.emit.headers import print_headers
from kernwright.generator.emit.kernel import print_kernel
from kernwright.generator.errors import LayoutFault
from kernwright.generator.explain import explain
from kernwright.generator.ir.program import LoweredProgram
from kernwright.generator.passes.derive import derive
from kernwright.generator.passes.lower import lower
from kernwright.generator.passes.roles import operands
from kernwright.generator.pipeline import discover

SOURCES: dict[str, ProgramSource] = {
    symbol: source for symbol, source in {**discover(), **WRITTEN_LATER.programs}.items() if source.trace().roles
}
CASES = [(symbol, arch) for symbol, source in SOURCES.items() for arch in source.trace().archs]


def lowered(symbol: str, arch: str) -> LoweredProgram:
    return lower(SOURCES[symbol].trace(), ARCHITECTURES[arch]).program


# ---- text


@pytest.mark.parametrize(
    ("symbol", "arch", "target"),
    [
        ("tiles_mma_tile", "sm_90a", "mma_tile.sm_90a.cu"),
        ("tiles_mma_tile", "sm_100a", "mma_tile.sm_100a.cu"),
        ("tiles_mma_tile", "sm_107a", "mma_tile.sm_100a.cu"),
        ("gated_delta_rule_scan_step", "sm_90a", "gdn_scan.sm_90a.cu"),
    ],
)
def test_the_text_is_about_as_long_as_the_target(symbol, arch, target):
    text = print_kernel(lowered(symbol, arch)).splitlines()
    assert len(text) <= 1.3 * len((FOLDER / target).read_text().splitlines())
    assert sum(is_code(line) for line in text) <= 1.3 * len(code_lines(FOLDER / target))


@pytest.mark.parametrize(("symbol", "arch"), CASES)
def test_lines_fit_and_every_constant_is_used(symbol, arch):
    text = print_kernel(lowered(symbol, arch))
    assert [line for line in text.splitlines() if len(line) > 140] == []
    names = re.findall(r"^constexpr .*? (k\w+) =", text, re.M)
    assert names and len(names) == len(set(names))
    assert [name for name in names if len(re.findall(rf"\b{name}\b", text)) < 2] == []


def test_tcgen05_machines_share_one_text():
    texts = {print_kernel(lowered("tiles_mma_tile", arch)) for arch in ("sm_100a", "sm_103a", "sm_107a")}
    assert len(texts) == 1


def test_lowering_twice_gives_the_same_bytes():
    for symbol, arch in CASES:
        assert print_kernel(lowered(symbol, arch)) == print_kernel(lowered(symbol, arch))


# ---- descriptors beyond 256 KiB


def test_the_no_carry_proof_is_printed():
    text = explain("tiles_mma_tile_deep", "sm_107a")
    (line,) = [line for line in text.splitlines() if line.strip().startswith("operands.b: addresses")]
    start, last, field, mask = (
        int(n, 0) for n in re.search(r"(\d+) \.\. (\d+),.* = (0x\w+) <= (0x\w+)", line).groups()
    )
    assert last > 256 * 1024 and field == last >> 4 <= mask == ARCHITECTURES["sm_107a"].descriptor_mask
    assert start % 1024 == 0 and line.endswith("no carry")


def test_fourteen_bits_do_not_reach_the_deep_operands():
    arch = dataclasses.replace(ARCHITECTURES["sm_107a"], descriptor_mask=0x3FFF)
    with pytest.raises(LayoutFault) as caught:
        operands.check_carry(derive(SOURCES["tiles_mma_tile_deep"].trace(), arch))
    assert caught.value.code == "KW0308" and "CARRIES" in str(caught.value) and "262144 bytes" in str(caught.value)


def test_more_shared_memory_than_a_block_has_is_refused_where_there_is_no_such_mode():
    program = lowered("tiles_mma_tile_deep", "sm_107a")
    assert program.launch.oversized_shared_memory and program.launch.dynamic_shared_bytes > 256 * 1024
    assert not lowered("tiles_mma_tile", "sm_107a").launch.oversized_shared_memory


# ---- machine code


def assemble(
    toolchain, program: LoweredProgram, folder: Path, *, headers: dict[str, str] | None = None
) -> tuple[str, str]:
    """The SASS of a program, and what ptxas said."""
    (folder / "text").mkdir(parents=True), (folder / "include").mkdir()
    for path, text in (headers or print_headers([program])).items():
        (folder / "include" / Path(path).name).write_text(text)
    source, cubin = folder / "text" / "kernel.cu", folder / "kernel.cubin"
    source.write_text(print_kernel(program))
    number = program.arch.removeprefix("sm_")
    flags = [
        "-std=c++17",
        "-O3",
        "-cubin",
        "-gencode",
        f"arch=compute_{number},code={program.arch}",
        f"-I{toolchain.include}",
    ]
    command = [
        str(toolchain.tool("nvcc")),
        *flags,
        "-Xptxas",
        "-v,-warn-spills,-warn-lmem-usage",
        str(source),
        "-o",
        str(cubin),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    dumped = subprocess.run([str(toolchain.tool("nvdisasm")), str(cubin)], capture_output=True, text=True, check=True)
    return dumped.stdout, built.stderr


@pytest.mark.nvcc
@pytest.mark.parametrize(("symbol", "arch"), CASES)
def test_products_reach_the_tensor_cores_without_a_spill_or_a_warning(symbol, arch, toolchain, tmp_path):
    program = lowered(symbol, arch)
    sass, log = assemble(toolchain, program, tmp_path)
    wgmma = ARCHITECTURES[arch].machine is Machine.WGMMA
    assert ("HGMMA" in sass, "UTCHMMA" in sass) == (wgmma, not wgmma)
    assert "UTMALDG" in sass and "UTMASTG" in sass
    assert not re.search(r"warning|serializ|ignored|out of range", log, re.I), log
    assert re.search(r"\b0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", log), log


@pytest.mark.nvcc
def test_the_deep_tile_differs_from_a_build_of_fourteen_bits(toolchain, tmp_path):
    """With the narrow mask the machine code is another one: its descriptors would address 256 KiB lower."""
    program = lowered("tiles_mma_tile_deep", "sm_107a")
    headers = print_headers([program])
    narrow = {
        path: text.replace("kDescriptorMask = 0x7FFF", "kDescriptorMask = 0x3FFF") for path, text in headers.items()
    }
    assert narrow != headers
    right, _ = assemble(toolchain, program, tmp_path / "right")
    wrong, _ = assemble(toolchain, program, tmp_path / "wrong", headers=narrow)
    fields = [
        {int(mask, 16) for mask in re.findall(r"LOP3\.LUT .*?, (0x[0-9a-f]+), U?RZ, 0xc0", text)}
        for text in (right, wrong)
    ]
    # Tiles start at multiples of 1024 bytes, so the compiler knows the lower six bits of the field to be zero.
    assert 0x7FFF & ~0x3F in fields[0] and 0x3FFF & ~0x3F not in fields[0]
    assert 0x3FFF & ~0x3F in fields[1] and 0x7FFF & ~0x3F not in fields[1]
    (proof,) = [
        item
        for item in operands.proofs(derive(SOURCES["tiles_mma_tile_deep"].trace(), ARCHITECTURES["sm_107a"]))
        if item.operand == "operands.b"
    ]
    last_stage = proof.end - 64 * 64 * 2
    assert (last_stage >> 4 & 0x7FFF) * 16 == last_stage and (last_stage >> 4 & 0x3FFF) * 16 == last_stage - 256 * 1024

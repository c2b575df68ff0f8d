"""The reader of disassemblies: functions, instructions, branches, predicates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernwright.generator.sass import SassError, disassemble, parse
from kernwright.generator.sass.flow import blocks, conditional, plop3, predicates_written, successors
from kernwright.runtime.toolchain import ToolchainError, discover

SMALL = r"""
	.section	.text.twice,"ax",@progbits
        .type           twice,@function
twice:
.text.twice:
        /*0000*/                   ISETP.GE.AND P0, PT, R2, 0x4, PT ;
        /*0010*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4+0x10], R3 ;
        /*0030*/              @!P1 BRA `(.L_x_1) ;
        /*0040*/              @P0  STS.64 [R5+UR4+0x12000], R56 ;
.L_x_0:
        /*0050*/                   EXIT ;
        /*0060*/                   PLOP3.LUT P2, PT, PT, PT, UP0, 0x80, 0x0 ;
.L_x_2:
        /*0070*/                   BRA `(.L_x_2);
        .type           $helper,@function
$helper:
        /*0080*/                   RET.REL.NODEC R2 `(twice) ;
"""


def test_a_section_holds_the_kernel_and_the_functions_behind_it() -> None:
    functions = parse(SMALL).functions
    assert list(functions) == ["twice", "$helper"]
    assert [len(function.instructions) for function in functions.values()] == [8, 1]
    store = functions["twice"].instructions[4]
    assert (store.address, store.guard, store.negated) == (0x40, "P0", False)
    assert (store.opcode, store.root, store.operands) == ("STS.64", "STS", ("[R5+UR4+0x12000]", "R56"))
    assert str(store) == "0x0040 @P0 STS.64 [R5+UR4+0x12000], R56"


def test_blocks_and_successors_follow_labels_and_guards() -> None:
    function = parse(SMALL).functions["twice"]
    assert [(block.first, block.last) for block in blocks(function)] == [(0, 1), (2, 3), (4, 4), (5, 5), (6, 6), (7, 7)]
    assert [successors(function, at) for at in (1, 3, 5, 7)] == [(5, 2), (2, 4), (), (7,)]
    assert conditional(function.instructions[3]) == ("P1", True)


def test_predicates_that_are_written_and_copied() -> None:
    function = parse(SMALL).functions["twice"]
    assert [predicates_written(function.instructions[at]) for at in (0, 2, 4, 6)] == [("P0",), ("P1",), (), ("P2",)]
    assert plop3(function.instructions[6]) == ("P2=UP0", 2)


def test_what_is_no_disassembly_is_refused() -> None:
    with pytest.raises(SassError, match="holds no function"):
        parse("nothing")
    with pytest.raises(SassError, match="not an instruction"):
        parse(SMALL.replace("EXIT ;", "?"))
    lost = parse(SMALL.replace(".L_x_0:\n", "")).functions["twice"]
    with pytest.raises(SassError, match=r"no label \.L_x_0 in this function"):
        blocks(lost)


SOURCE = """
extern "C" __global__ void sums(float* values, int count) {
  __shared__ float parts[64];
  parts[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  float total = 0;
  for (int i = 0; i < count; ++i) total += parts[(threadIdx.x + i) % 64];
  if (threadIdx.x < 7) values[threadIdx.x] = total;
}
"""


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["90a", "100a"])
def test_a_compiled_kernel_is_read_whole(tmp_path: Path, arch: str) -> None:
    try:
        toolchain = discover()
        toolchain.require(f"sm_{arch}", (12, 8))
    except ToolchainError as error:
        pytest.skip(str(error))
    (tmp_path / "sums.cu").write_text(SOURCE)
    command = [str(toolchain.tool("nvcc")), "-cubin", f"-gencode=arch=compute_{arch},code=sm_{arch}", "sums.cu"]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    text = disassemble(tmp_path / "sums.cubin", toolchain)
    function = parse(text).functions["sums"]
    addresses = [instruction.address for instruction in function.instructions]
    assert addresses == list(range(0, 16 * len(addresses), 16))
    roots = [instruction.root for instruction in function.instructions]
    assert roots.index("STS") < roots.index("BAR") < roots.index("LDS")
    parts = blocks(function)
    assert [block.first for block in parts[1:]] == [block.last + 1 for block in parts[:-1]]
    assert any(block.first in block.successors for block in parts), "the loop, or the trap at the end, leads to itself"
    with pytest.raises(SassError, match="nvdisasm cannot read"):
        disassemble(tmp_path / "sums.cu", toolchain)

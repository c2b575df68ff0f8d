"""The entries of the instruction table: where they exist, what their effects say, that their wrappers compile, and that the page is
up to date. Meanings that are easy to state are executed against fragment maps written down independently."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.wrapper_kernels import CALLS, source_text

from kernwright.generator.arch import ARCHITECTURES, Machine
from kernwright.generator.instructions import lookup, table, wrapper_names
from kernwright.generator.instructions.descriptors import decode
from kernwright.generator.instructions.document import COLLECTIVES, COMPLETIONS, ORDERS, PAGE, PLACES, PROXIES, page
from kernwright.generator.instructions.table import Confirmed
from kernwright.generator.ir.layout import SharedLayout, WgmmaOperandA
from kernwright.generator.ir.types import bf16

INCLUDE = Path(__file__).resolve().parent.parent / "docs" / "targets" / "include"
HEADERS = [INCLUDE / name for name in ("common.cuh", "sm_90a.cuh", "sm_100a.cuh", "vector.cuh")]
RANDOM = random.Random(907)
ENTRIES = {entry.name: entry for entry in table()}
WGMMA_COLUMNS = range(8, 257, 8)
# Beside tcgen05: what no check on an H200 has run.
UNCONFIRMED = {
    *(
        f"wgmma_m64n{columns}k16_bf16_{kind}"
        for columns in WGMMA_COLUMNS
        if columns not in (64, 128)
        for kind in ("ss", "rs")
    ),
    *(f"tma_{way}_{rank}d" for way in ("load", "store") for rank in (1, 4, 5)),
    *("bulk_prefetch_l2", "prefetch_tensor_map", "swizzle_32", "swizzle_64"),
    *("load_shared_f32x4", "store_shared_b32x4", "store_shared_f32x4"),
    *("load_shared_f32x2", "store_shared_f32x2", "load_global_f32x2", "store_global_f32x2"),
    *("matrix_descriptor", "advance", "mbarrier_wait_after"),
}
FUNCTION = re.compile(r"^__device__ __forceinline__ (?:constexpr )?[\w ]+? (\w+)\(", re.M)
# Products take operands of either major here, loads of tensor memory come in several widths, steps are ints.
OWN_TEXT = {"wgmma_m64n64k16_bf16_ss", "wgmma_m64n128k16_bf16_ss", "tcgen05_ld_32x32b_x16", "advance"}


# ---- where entries exist


def test_entries_that_need_a_feature_do_not_exist_without_it():
    on = {arch: {entry.name for entry in table() if entry.exists_on(ARCHITECTURES[arch])} for arch in ARCHITECTURES}
    wgmma = {name for name in ENTRIES if name.startswith("wgmma_")} | {"pin_registers"}
    tcgen05 = {name for name in ENTRIES if name.startswith("tcgen05_")}
    assert (len(wgmma), len(tcgen05)) == (2 * len(WGMMA_COLUMNS) + 4, 17)
    assert on["sm_90a"] == set(ENTRIES) - tcgen05
    for arch in ("sm_100a", "sm_103a", "sm_107a"):
        assert on[arch] == set(ENTRIES) - wgmma


def test_the_header_of_a_wrapper_is_that_of_the_machine_it_needs():
    for entry in table():
        machines = {arch.machine for arch in ARCHITECTURES.values() if entry.exists_on(arch)}
        wanted = (
            {Machine.WGMMA: "sm_90a", Machine.TCGEN05: "sm_100a"}[machines.pop()] if len(machines) == 1 else "common"
        )
        assert entry.header == wanted, entry.name


def test_what_never_ran_says_so():
    unconfirmed = {(entry.name, entry.header) for entry in table() if entry.confirmed is Confirmed.DOCUMENTS}
    assert {(entry.name, entry.header) for entry in table() if entry.header == "sm_100a"} <= unconfirmed
    assert {name for name, header in unconfirmed if header != "sm_100a"} == UNCONFIRMED


def test_every_wrapper_is_a_reserved_name():
    assert {
        "elect_one",
        "mbarrier_wait",
        "tma_load_2d",
        "__syncthreads",
        "tcgen05_commit",
        "wgmma_fence",
    } <= wrapper_names()


# ---- effects


def test_effects_use_the_documented_words_only():
    for entry in ENTRIES.values():
        effects = entry.effects
        assert set(effects.reads) | set(effects.writes) <= set(PLACES), entry.name
        assert effects.proxy in PROXIES and effects.collective in COLLECTIVES, entry.name
        assert effects.completion in {"", *COMPLETIONS} and effects.orders in {"", *ORDERS}, entry.name
    used = {(e.effects.orders, e.effects.completion, e.effects.collective) for e in ENTRIES.values()}
    assert {order for order, _, _ in used} == {"", *ORDERS}, "no word without a user"
    assert {completion for _, completion, _ in used} == {"", *COMPLETIONS}
    assert {collective for _, _, collective in used} == set(COLLECTIVES)


def test_whatever_goes_through_the_asynchronous_proxy_says_what_completes_it():
    """PTX: TMA and bulk copies, wgmma and tcgen05.mma operands, and the arrival of a commit; nothing else."""
    asynchronous = {name for name, entry in ENTRIES.items() if entry.effects.proxy == "async"}
    loads = {f"tma_load_{rank}d" for rank in range(1, 6)} | {"bulk_load"}
    stores = {f"tma_store_{rank}d" for rank in range(1, 6)}
    products = {f"wgmma_m64n{n}k16_bf16_{kind}" for n in WGMMA_COLUMNS for kind in ("ss", "rs")}
    tcgen05 = {"tcgen05_mma_f16_ss", "tcgen05_mma_f16_ts", "tcgen05_commit"}
    assert asynchronous == loads | stores | products | tcgen05 | {"bulk_prefetch_l2"}
    assert {ENTRIES[name].effects.completion for name in loads} == {"mbarrier bytes"}
    assert {ENTRIES[name].effects.completion for name in stores} == {"bulk group"}
    assert {ENTRIES[name].effects.completion for name in products} == {"wgmma group"}
    assert ENTRIES["tcgen05_mma_f16_ss"].effects.completion == "tcgen05 commit"
    assert ENTRIES["tcgen05_commit"].effects.completion == "mbarrier arrival"
    assert ENTRIES["bulk_prefetch_l2"].effects.completion == "nothing to wait for"
    waited = {name for name, entry in ENTRIES.items() if entry.effects.completion} - asynchronous
    assert waited == {f"tcgen05_st_32x32b_x{columns}" for columns in (8, 16, 32, 64)}


def test_directions_of_copies_and_moves():
    directions = {
        "tma_load_2d": (("global",), ("shared",)),
        "tma_store_3d": (("shared",), ("global",)),
        "ldmatrix_x4": (("shared",), ("registers",)),
        "stmatrix_x4": (("registers",), ("shared",)),
        "tcgen05_ld_32x32b_x16": (("tensor memory",), ("registers",)),
        "tcgen05_alloc": ((), ("shared", "tensor memory columns")),
        "fence_proxy_async": ((), ()),
        "elect_one": ((), ()),
    }
    for name, (reads, writes) in directions.items():
        assert (ENTRIES[name].effects.reads, ENTRIES[name].effects.writes) == (reads, writes), name


def test_who_executes_what():
    """`.sync.aligned` instructions are collective: a warp for tcgen05 and matrices, a warpgroup for wgmma and setmaxnreg."""
    for entry in ENTRIES.values():
        text = " ".join(entry.ptx)
        if ".sync.aligned" in text:
            whole = "warpgroup" if text.startswith(("wgmma", "setmaxnreg")) else "warp"
            assert entry.effects.collective == whole, entry.name
    one = {name for name, entry in ENTRIES.items() if entry.effects.collective == "one thread"}
    assert {"tcgen05_mma_f16_ss", "tcgen05_commit", "tma_load_2d", "bulk_commit_group", "bulk_wait_group_read"} <= one
    assert ENTRIES["fence_proxy_async"].effects.collective == ENTRIES["mbarrier_arrive"].effects.collective == "thread"


# ---- meanings


def test_swizzle_is_the_shared_layouts():
    layout = SharedLayout(64, 64, bf16, 128)
    meaning = lookup("swizzle_128").meaning
    assert [int(meaning(row, chunk)) for row in range(64) for chunk in range(8)] == [
        layout.offset(row, 8 * chunk) for row in range(64) for chunk in range(8)
    ]


def _addressed(tile: np.ndarray) -> np.ndarray:
    """The rows that the lanes of a warp hand over for a 16 x 16 block: lane l row l % 16, columns 8 (l / 16) .. + 7."""
    return np.stack([tile[lane % 16, 8 * (lane // 16) : 8 * (lane // 16) + 8] for lane in range(32)])


def test_ldmatrix_of_a_block_is_the_register_operand_of_wgmma():
    tile = np.arange(256, dtype=np.uint16).reshape(16, 16)
    registers = lookup("ldmatrix_x4").meaning(_addressed(tile))
    operand = WgmmaOperandA(64, 16)
    for lane in range(32):
        for register in range(4):
            low, high = (tile[operand.coordinate(lane, register, half)] for half in (0, 1))
            assert int(registers[lane, register]) == int(low) | int(high) << 16


def test_ldmatrix_transposed_by_the_documents_table():
    """Register i of lane l: elements [2 (l % 4)][l / 4] and [2 (l % 4) + 1][l / 4] of matrix i as it is stored."""
    stored = np.array([[RANDOM.getrandbits(16) for _ in range(8)] for _ in range(32)], np.uint16)
    registers = lookup("ldmatrix_x4_transposed").meaning(stored)
    for lane in range(32):
        for matrix in range(4):
            low, high = (stored[8 * matrix + 2 * (lane % 4) + half][lane // 4] for half in (0, 1))
            assert int(registers[lane, matrix]) == int(low) | int(high) << 16


def test_stmatrix_undoes_ldmatrix_and_places_one_word_where_the_table_says():
    stored = np.array([[RANDOM.getrandbits(16) for _ in range(8)] for _ in range(32)], np.uint16)
    assert np.array_equal(lookup("stmatrix_x4").meaning(lookup("ldmatrix_x4").meaning(stored)), stored)
    registers = np.zeros((32, 4), np.uint32)
    registers[13, 2] = 0xBEEF1234  # row 13 / 4 = 3, columns 2 (13 % 4) = 2 and 3 of matrix 2
    rows = lookup("stmatrix_x4").meaning(registers)
    assert (int(rows[16 + 3, 2]), int(rows[16 + 3, 3])) == (0x1234, 0xBEEF)
    assert int(np.count_nonzero(rows)) == 2


def test_bf16_pairs():
    pack, low, high = (lookup(name).meaning for name in ("pack_bf16", "bf16_low", "bf16_high"))
    assert int(pack(np.float32(1.0), np.float32(-2.0))) == 0xC0003F80
    # Halves of the last place: 1 + 2^-8 is a tie and stays even, 1 + 3 * 2^-8 goes up to 1 + 2^-6.
    assert int(pack(np.float32(1 + 2**-8), np.float32(1 + 3 * 2**-8))) == 0x3F823F80
    assert int(pack(np.float32(np.nan), np.float32(3.4028234e38))) == 0x7F807FFF
    for _ in range(200):
        pair = RANDOM.getrandbits(32) & 0x7F7FFF7F | 0x00800080
        values = [
            struct.unpack("<f", struct.pack("<I", bits))[0] for bits in (pair << 16 & 0xFFFFFFFF, pair & 0xFFFF0000)
        ]
        if all(np.isfinite(values)):
            assert [float(low(pair)), float(high(pair))] == values
            assert int(pack(low(pair), high(pair))) == pair


def test_warps_and_tensor_memory_rows():
    assert [int(w) for w in lookup("warp_index").meaning(np.array([0, 31, 32, 255]))] == [0, 0, 1, 7]
    words = np.arange(512, dtype=np.float32).reshape(32, 16)
    assert float(lookup("tcgen05_ld_32x32b_x16").meaning(words)[5, 3]) == 5 * 16 + 3


def test_descriptor_words():
    """The published words at byte address 0x400, the fields at another one, and what a mask of too few bits makes of a far one."""
    describe, advance = lookup("matrix_descriptor").meaning, lookup("advance").meaning
    k_major, mn_major, tcgen05 = 0x4000004000010000, 0x4000004002000000, 0x4000404000010000
    assert int(describe(k_major, 0x400)) == 0x4000004000010040
    assert int(describe(mn_major, 0x400)) == 0x4000004002000040
    assert int(describe(tcgen05, 0x400)) == 0x4000404000010040
    assert int(describe(tcgen05, 0x48400, 0x7FFF)) == 0x4000404000014840
    fields = decode(int(advance(describe(mn_major, 0x8000), 2048)), ARCHITECTURES["sm_90a"])
    assert (fields.start, fields.leading_byte_offset, fields.stride_byte_offset, fields.swizzle) == (
        0x8800,
        8192,
        1024,
        128,
    )
    far = 0x48400
    assert decode(int(describe(tcgen05, far, 0x7FFF)), ARCHITECTURES["sm_107a"]).start == far
    assert decode(int(describe(tcgen05, far, 0x3FFF)), ARCHITECTURES["sm_107a"]).start == far - 0x40000, (
        "256 KiB too low"
    )


def test_the_mask_of_each_architecture_stands_in_the_header_of_its_machine():
    """The preprocessor's choice, read by a compiler of its own: the branch for an architecture's number, or the common one."""
    for entry in table():
        if entry.name == "matrix_descriptor":
            for arch in ARCHITECTURES.values():
                if entry.exists_on(arch):
                    branch = re.search(rf"__CUDA_ARCH__ == {arch.cuda_arch}\b.*?\n(.*?)\n#", entry.cuda, re.DOTALL)
                    text = branch.group(1) if branch else entry.cuda.rpartition("#else")[2]
                    assert f"kDescriptorMask = 0x{arch.descriptor_mask:X};" in text, arch.name


# ---- text


def _code(text: str) -> str:
    """A wrapper without its comments and with single blanks."""
    return " ".join(re.sub(r"//[^\n]*", "", text).split())


def test_wrappers_are_those_of_the_targets():
    """A wrapper of a target's name has the target's text: what was measured there is what is generated here."""
    known = [_code(path.read_text()) for path in HEADERS]
    names = {name for path in HEADERS for name in FUNCTION.findall(path.read_text())}
    apart = {e.name for e in table() if e.name in names and not any(_code(e.cuda) in text for text in known)}
    assert apart == OWN_TEXT


def test_every_wrapper_of_the_targets_has_an_entry():
    """But for descriptors, which the generator makes from layouts."""
    names = {name for path in HEADERS for name in FUNCTION.findall(path.read_text())}
    derived = {"descriptor", "descriptor_k_major", "descriptor_mn_major", "instruction_descriptor_bf16", "k_step_bytes"}
    assert names - set(ENTRIES) == derived


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m kernwright.generator.instructions.document"


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", list(ARCHITECTURES))
def test_every_wrapper_compiles_and_becomes_the_instructions_that_it_names(arch, toolchain, tmp_path):
    """One kernel a wrapper; the machine code of the file holds every opcode that the entries name, and nothing is warned of."""
    entries = [entry for entry in ENTRIES.values() if entry.cuda and entry.exists_on(ARCHITECTURES[arch])]
    assert {entry.name for entry in entries} <= set(CALLS), "a wrapper without a call here is not tested"
    source = tmp_path / "wrappers.cu"
    source.write_text(source_text(entries))
    number = arch.removeprefix("sm_")
    cubin = tmp_path / "wrappers.cubin"
    command = [
        toolchain.tool("nvcc"),
        "-std=c++17",
        "-cubin",
        f"-I{toolchain.include}",
        "-gencode",
        f"arch=compute_{number},code={arch}",
    ]
    built = subprocess.run([*map(str, command), str(source), "-o", str(cubin)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr.lower(), built.stderr
    dumped = subprocess.run(
        [str(toolchain.tool("nvdisasm")), str(cubin)], capture_output=True, text=True, check=True
    ).stdout
    # sm_107a executes some of them in the uniform datapath, under the same name with a U before it.
    opcodes = {
        name
        for op in re.findall(r"\b[A-Z][A-Z0-9_]+(?:\.[A-Za-z0-9_]+)*", dumped)
        for name in (op, op.removeprefix("U"))
    }
    missing = {
        f"{entry.name}: {wanted}"
        for entry in entries
        for wanted in entry.sass
        if not any(found == wanted or found.startswith(f"{wanted}.") for found in opcodes)
    }
    assert not missing

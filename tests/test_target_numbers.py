"""Every number that a hand-written target and the derivation both state is the same, or differs for a reason that is given here."""

from __future__ import annotations

import re

import pytest
from support.targets import (
    SCAN,
    TCGEN05_TILE,
    WGMMA_TILE,
    constants,
    derived_of,
    init_count,
    pipeline_of,
    slot_sizes,
    text_of,
)

from kernwright.generator.emit.outline import print_outline
from kernwright.generator.instructions.descriptors import tcgen05_instruction_descriptor

TILES = [(WGMMA_TILE, "sm_90a"), *((TCGEN05_TILE, arch) for arch in ("sm_100a", "sm_103a", "sm_107a"))]


@pytest.mark.parametrize(("target", "arch"), TILES, ids=lambda item: item)
def test_tile_barriers_and_stages(target, arch):
    text = text_of(target)
    named = constants(text)
    operands = pipeline_of(derived_of("tiles_mma_tile", arch), "operands")
    assert (operands.pipeline.stages, operands.full.arrivals, operands.full.bytes, operands.empty.arrivals) == (
        3,
        1,
        24576,
        1,
    )
    assert named["kStages"] == 3
    assert init_count(text, "operands_full") == init_count(text, "operands_empty") == "1"
    assert "operands_full[ring.stage], kOperandsABytes + kOperandsBBytes)" in text
    assert named["kOperandsABytes"] + named["kOperandsBBytes"] == 24576
    assert re.search(r"operands_full\[kStages\];\s+// 1 arrival .* \+ 24576 bytes", text)


@pytest.mark.parametrize(("target", "arch"), TILES, ids=lambda item: item)
def test_tile_shared_memory(target, arch):
    text = text_of(target)
    named = constants(text)
    derived = derived_of("tiles_mma_tile", arch)
    wanted = {
        "operands.a": named["kStages"] * named["kOperandsABytes"],
        "operands.b": named["kStages"] * named["kOperandsBBytes"],
    }
    wanted["staged"] = named["kResultPanels"] * named["kResultPanelBytes"]
    assert wanted == {"operands.a": 49152, "operands.b": 24576, "staged": 32768}
    assert {name: slot_sizes(derived)[name] for name in wanted} == {name: (size, 1024) for name, size in wanted.items()}
    assert len(re.findall(r"alignas\(1024\) unsigned char", text)) == 3
    # The text of (c) holds 12 bytes more, the barrier of the result and its address, which the facts lack. Either way a block gets
    # the same: sizeof of a C++ struct is a multiple of its alignment, while the map ends with its last barrier.
    more = 12 if arch != "sm_90a" else 0
    assert ("unsigned long long result_full;" in text and "unsigned result_address;" in text) == (more == 12)
    assert derived.shared_bytes == 106544
    assert {-(-size // 1024) * 1024 for size in (derived.shared_bytes, derived.shared_bytes + more)} == {107520}


def test_tile_registers_of_the_wgmma_machine():
    text = text_of(WGMMA_TILE)
    named = constants(text)
    load, multiply = derived_of("tiles_mma_tile", "sm_90a").roles
    assert (load.launch_registers, multiply.launch_registers) == (named["kLaunchRegisters"],) * 2 == (128, 128)
    assert (
        (load.role.registers, multiply.role.registers)
        == (named["kLoadRegisters"], named["kMultiplyRegisters"])
        == (40, 168)
    )
    assert (load.change, multiply.change) == ("setmaxnreg.dec to 40", "setmaxnreg.inc to 168")
    assert "setmaxnreg_dec<kLoadRegisters>" in text and "setmaxnreg_inc<kMultiplyRegisters>" in text
    assert (load.first_warp, multiply.first_warp, named["kThreads"], named["kBlocksPerSm"]) == (0, 4, 256, 2)
    assert "if (warp < 4)" in text


def test_tile_products_of_the_wgmma_machine():
    text = text_of(WGMMA_TILE)
    header = text_of("include/sm_90a.cuh")
    named = constants(text)
    derived = derived_of("tiles_mma_tile", "sm_90a")
    (product,) = derived.products
    leading, stride = map(
        int,
        re.search(
            r"descriptor_k_major\(unsigned address\) \{ return descriptor\(address, (\d+), (\d+)\)", header
        ).groups(),
    )
    for side in (product.a, product.b):
        assert (side.layout.leading_byte_offset, side.layout.stride_byte_offset) == (leading, stride) == (16, 1024)
        assert side.k_steps == tuple(32 * step for step in range(named["kStepsK"])) == (0, 32, 64, 96)
        assert side.mask == int(re.search(r"kDescriptorMask = (0x\w+);", header)[1], 16) == 0x3FFF
    assert text.count("+ 32 * step)") == 3
    (accumulator,) = derived.accumulators
    assert accumulator.layout.fragments == named["kHalves"] == 2
    assert product.instructions == named["kHalves"] * named["kStepsK"] == 8
    # The second fragment starts 64 rows on, in the text and in the layout of A.
    assert named["kOperandsABytes"] // named["kHalves"] == product.a.layout.offset(64, 0) == 8192
    assert accumulator.layout.registers == 64 and re.findall(r"float (\w+)\[32\];", text) == ["upper", "lower"]


def test_tile_depth_of_the_wgmma_machine_is_one():
    text = text_of(WGMMA_TILE)
    operands = pipeline_of(derived_of("tiles_mma_tile", "sm_90a"), "operands")
    assert [(role, depth) for role, depth, _ in operands.in_flight] == [("multiply", 1)]
    assert re.findall(r"wgmma_wait_group<(\d)>", text) == ["1", "0"], "one in the loop, the drain behind it"
    assert "mbarrier_arrive(shared.operands_empty[previous])" in text
    assert "static_assert(kStages >= 2" in text


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_107a"])
def test_tile_of_the_tcgen05_machines(arch):
    text = text_of(TCGEN05_TILE)
    header = text_of("include/sm_100a.cuh")
    named = constants(text)
    derived = derived_of("tiles_mma_tile", arch)
    (product,) = derived.products
    word = tcgen05_instruction_descriptor(product.a.layout.rows, product.b.layout.rows)
    assert word == 0x08100490
    assert f"instruction_descriptor_bf16({product.a.layout.rows}, {product.b.layout.rows}) == 0x{word:08X}u" in header
    assert "kInstruction = instruction_descriptor_bf16(kTileM, kTileN)" in text
    assert f"instruction descriptor 0x{word:08X}" in print_outline(derived)
    assert derived.tmem_columns == named["kResultColumns"] == 64
    assert product.instructions == named["kStepsK"] == 4
    masks = re.findall(r"kDescriptorMask = (0x\w+);", header)
    assert product.a.mask == int(masks[0 if arch == "sm_107a" else 1], 16)
    assert (product.a.layout.leading_byte_offset, product.a.layout.stride_byte_offset) == (16, 1024)
    assert product.a.at(0x400) == int(re.search(r"descriptor_k_major\(0x400\) == (0x\w+?)ull", header)[1], 16)
    # A commit releases a stage, so all stages may be in flight and the issuer waits for none of its products.
    assert [depth for _, depth, _ in pipeline_of(derived, "operands").in_flight] == [named["kStages"]]
    assert "tcgen05_commit(shared.operands_empty[ring.stage])" in text and "wait_group" not in text.replace(
        "bulk_wait_group", ""
    )
    # Facts state what a launch could give a thread; the text sets no budget, and ptxas takes 75 of them.
    assert {role.launch_registers for role in derived.roles} == {128} and "setmaxnreg" not in text.split(
        "// ---- constants"
    )[1]
    assert "setmaxnreg" not in "".join(role.change for role in derived.roles)
    assert derived.roles[1].first_warp == named["kMultiplyWarp"] == 4


def scan_warps(text: str, expression: str) -> int:
    """Arrivals of the scan target for V = 64 with P computed: one panel, so four state warps."""
    values = {"kStateWarps": 4, "kOutputWarps": 4}
    chosen = re.sub(r"\(C::kLoadP \? (\w+) : (\w+)\)", r"\2", expression)
    return sum(values[part] if part in values else int(part) for part in chosen.split(" + "))


def test_scan_rings_and_bytes():
    text = text_of(SCAN)
    named = constants(text)
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    stages = {item.pipeline.name: item.pipeline.stages for item in scan.pipelines}
    assert stages == {"key_ring": 3, "value_ring": 3, "factor_ring": 2, "state_ring": 2}
    assert "kStagesKQ = 3;" in text and "kStagesVT = kPanels == 1 && !kLoadP ? 3 : 2;" in text
    assert "kBuffers = kPanels == 1 ? 2 : 1;" in text and "Factors factors[2];" in text
    keys = 2 * named["kKeyTileBytes"] + named["kGateBytes"]
    assert "mbarrier_arrive_expect_tx(kq_full, 2 * kKeyTileBytes + kGateBytes)" in text
    assert pipeline_of(scan, "key_ring").full.bytes == keys == 33024
    values = 1 * named["kPanelBytes"] + 1 * named["kPanelBytes"]  # kValueBytes of one panel, and T'
    assert "mbarrier_arrive_expect_tx(vt_full, C::kValueBytes + (C::kLoadP ? 2 : 1) * kPanelBytes)" in text
    assert pipeline_of(scan, "value_ring").full.bytes == values == 16384


# Barrier of the text, pipeline, (arrivals of the text, arrivals of the facts), why they differ.
SCAN_COUNTS = [
    ("kq_full", "key_ring", "full", 1, 1, ""),
    (
        "kq_empty",
        "key_ring",
        "empty",
        9,
        6,
        "role state: one arrival a warp in the text, one for the warpgroup's wait in the facts",
    ),
    ("vt_full", "value_ring", "full", 1, 1, ""),
    (
        "vt_empty",
        "value_ring",
        "empty",
        4,
        5,
        "role factors waits but reads no tile: in the text its relayed arrival orders it already",
    ),
    ("factors_full", "factor_ring", "full", 1, 1, ""),
    ("factors_empty", "factor_ring", "empty", 4, 4, ""),
    ("v_new_full", "state_ring", "full", 4, 4, ""),
    (
        "v_new_empty",
        "state_ring",
        "empty",
        4,
        1,
        "role output: one arrival a warp in the text, one for the warpgroup's wait in the facts",
    ),
]


@pytest.mark.parametrize(
    ("barrier", "ring", "side", "in_text", "in_facts", "why"), SCAN_COUNTS, ids=lambda item: str(item)[:13]
)
def test_scan_arrivals(barrier, ring, side, in_text, in_facts, why):
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    assert scan_warps(text_of(SCAN), init_count(text_of(SCAN), barrier)) == in_text
    assert getattr(pipeline_of(scan, ring), side).arrivals == in_facts
    assert (in_text == in_facts) == (why == "")


def test_scan_roles_and_budgets():
    text = text_of(SCAN)
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    assert {
        name: int(value)
        for name, value in re.findall(r"int (k(?:Load|Output|State)Registers) = (?:kPanels == 1 \? )?(\d+)", text)
    } == {"kLoadRegisters": 40, "kOutputRegisters": 136, "kStateRegisters": 200}
    budgets = {item.role.name: (item.role.registers, item.role.all_warpgroups, item.change) for item in scan.roles}
    assert budgets == {
        "load": (40, 1, "setmaxnreg.dec to 40"),
        "factors": (None, 0, "as its warpgroup"),
        "output_role": (136, 2, "setmaxnreg.inc to 136"),
        "state_role": (200, 1, "setmaxnreg.inc to 200"),
    }
    assert 40 + 2 * 136 + 200 == 4 * 128, "the sum is exact"
    assert scan.threads == 512 and "kThreads = 128 * (1 + kOutputGroups + kPanels)" in text
    assert {item.launch_registers for item in scan.roles} == {128} and "kLaunchRegisters = 128" in text
    assert [item.first_warp for item in scan.roles] == [0, 1, 4, 12] and "else if (warp == 1)" in text
    assert "kOutputGroups = kPanels == 1 ? 2 : 1" in text


def test_scan_operands_share_registers_as_in_the_text():
    text = text_of(SCAN)
    shared = {
        (item.role, item.operands): item.registers
        for item in derived_of("gated_delta_rule_scan_step", "sm_90a").operands
    }
    assert shared == {
        ("output_role", ("query_operand",)): 32,
        ("output_role", ("score_operand",)): 16,
        ("state_role", ("state_operand",)): 32,
        ("state_role", ("residual_operand", "update_operand")): 16,
    }
    assert re.search(r"unsigned x\[16\];\s+// BF16 X\^T, then the scaled Vnew\^T", text)
    assert (
        "unsigned a[32];" in text
        and "unsigned q_registers[C::kQueryInRegisters ? 32 : 1];" in text
        and "unsigned p[16];" in text
    )


def test_scan_fence_and_views():
    text = text_of(SCAN)
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    fences = {item.pipeline.name: item.fence.split(" ")[0] for item in scan.pipelines}
    assert fences == {
        "key_ring": "none",
        "value_ring": "none",
        "factor_ring": "none",
        "state_ring": "fence.proxy.async",
    }
    publication = text.index("mbarrier_arrive(shared.v_new_full[publish.stage])")
    assert "fence_proxy_async();" in text[publication - 300 : publication], "by the writers, before they arrive"
    # One tile, two views: K-major in S^T K^T, MN-major in the update of the state, where it advances 16 tokens a step.
    views = [item.b for item in scan.products if item.b.layout.major == "MN"]
    assert [(v.layout.leading_byte_offset, v.layout.stride_byte_offset, v.k_steps) for v in views] == [
        (8192, 1024, (0, 2048, 4096, 6144))
    ]
    assert "descriptor_mn_major(smem_address(shared.kq[kq.stage].k), kPanelBytes)" in text
    assert "advance(k_transposed, 16 * 128 * step)" in text and 16 * 128 == 2048
    k_major = next(item.b for item in scan.products if item.mma.accumulator == "projected")
    assert k_major.k_steps == tuple(step // 4 * 8192 + step % 4 * 32 for step in range(8))
    assert "return step / 4 * panel_bytes + step % 4 * 32;" in text_of("include/sm_90a.cuh")


def test_scan_shared_memory():
    """The text has a staging tile for each copy of role output; the facts have one: 8192 bytes less. See nodes.md."""
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    rings = 3 * (2 * 16384 + 8192 + 8192) + 2 * (16384 + 8192)
    factors = 2 * (256 + 256 + 16)
    barriers = 8 * 2 * (3 + 3 + 2 + 2)
    assert scan.shared_bytes == rings + 8192 + 3 * 256 + factors + barriers == 206784
    in_text = rings + 2 * 8192 + 3 * 256 + factors + barriers + 8 * 2 * 2  # and two barriers of a state published apart
    assert -(-in_text // 1024) * 1024 == 215040
    assert "| 215040 |" in text_of("README.md")

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
    # Target (c) has the barrier of the result and the address of its columns, 12 bytes. sizeof of a C++ struct is a multiple of its
    # alignment, while the map ends with its last slot: a block gets 107520 bytes in each case.
    more = {"result_full": (8, 8), "tensor_memory": (4, 4)} if arch != "sm_90a" else {}
    assert ("unsigned long long result_full;" in text and "unsigned result_address;" in text) == bool(more)
    assert {name: slot_sizes(derived).get(name) for name in more} == more
    assert derived.shared_bytes == 106544 + sum(size for size, _ in more.values())
    assert -(-derived.shared_bytes // 1024) * 1024 == 107520 and "| 107520" in text_of("README.md")


@pytest.mark.parametrize(("target", "arch"), TILES, ids=lambda item: item)
def test_tile_hand_over_and_maps(target, arch):
    text = text_of(target)
    derived = derived_of("tiles_mma_tile", arch)
    load, multiply = derived.roles
    assert load.barrier is None and (multiply.barrier.first, multiply.barrier.copies, multiply.barrier.threads) == (
        1,
        1,
        128,
    )
    assert constants(text)["kMultiplyBarrier"] == 1 and "named_barrier_sync<128>(kMultiplyBarrier)" in text
    (staged,) = derived.buffers
    assert staged.fence.startswith("fence.proxy.async by each writer, before the barrier")
    assert text.index(
        "fence_proxy_async();     // the stores" if arch != "sm_90a" else "fence_proxy_async();  // the stores"
    ) < (text.index("named_barrier_sync<128>(kMultiplyBarrier)"))
    assert staged.wait.startswith("bulk_wait_group_read<0> by the issuer at the role's end")
    assert text.index("bulk_wait_group_read<0>") > text.index("bulk_commit_group")
    maps = {item.tensor: (item.rank, item.box, item.boxes) for item in derived.tensor_maps}
    assert maps == {"a": (2, (64, 128), 1), "b": (2, (64, 64), 1), "c": (2, (32, 128), 2)}
    assert "a {K, 128} box {64, 128}, b {K, 64} box {64, 64}, c {64, 128} box {32, 128} FP32" in text
    assert constants(text)["kResultPanels"] == 2 and "tma_store_2d(c, shared.c[panel], 32 * panel, 0)" in text


@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_107a"])
def test_tile_barrier_of_the_accumulator(arch):
    text = text_of(TCGEN05_TILE)
    (result,) = derived_of("tiles_mma_tile", arch).accumulators
    assert (result.full.arrivals, result.empty) == (1, None), "no product follows the read"
    assert init_count(text, "result_full") == "1" and "mbarrier_wait(shared.result_full, 0)" in text
    assert text.count("tcgen05_commit(shared.result_full)") == 1 and "result_empty" not in text


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
    # Facts count the accumulator alone; ptxas takes 87, with addresses, descriptors and a slab's loop.
    assert [(item.role, item.total, item.budget) for item in derived_of("tiles_mma_tile", "sm_90a").registers] == [
        ("load", 0, 40),
        ("multiply", 64, 168),
    ]
    assert "multiply 168 (87)" in text_of("README.md")


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
        4,
        "",
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
    arrays = {
        (item.role, item.accumulators): item.registers
        for item in derived_of("gated_delta_rule_scan_step", "sm_90a").accumulator_registers
    }
    # Role output: the text gives scores and o arrays of their own, so that Q S can be issued under the arithmetic of P where S^T is
    # published early (V = 128). In the order of V = 64 the scores are used up before Q S is issued.
    assert arrays == {
        ("output_role", ("scores", "output")): 32,
        ("state_role", ("state",)): 64,
        ("state_role", ("projected", "corrected")): 32,
    }
    assert re.search(r"float y\[32\];\s+// S\^T K\^T, then Vnew\^T", text) and "float scores[32];" in text
    assert re.search(r"unsigned x\[16\];\s+// BF16 X\^T, then the scaled Vnew\^T", text)
    assert (
        "unsigned a[32];" in text
        and "unsigned q_registers[C::kQueryInRegisters ? 32 : 1];" in text
        and "unsigned p[16];" in text
    )


def test_scan_registers_fit_their_budgets():
    """The text's arrays of role state are 176 registers, and ptxas takes 178 of 200."""
    text = text_of(SCAN)
    estimates = {item.role: item for item in derived_of("gated_delta_rule_scan_step", "sm_90a").registers}
    state, output = estimates["state_role"], estimates["output_role"]
    assert (state.accumulators, state.operands, state.tiles, state.budget) == (64 + 32, 32 + 16, 16 + 16, 200)
    role = text[text.index("void role_state(") :]
    arrays = re.findall(r"^  (float2|float|unsigned) (\w+)\[(\d+)\];", role, re.M)
    assert sum(int(count) * (2 if kind == "float2" else 1) for kind, _, count in arrays) == state.total == 176
    assert [name for _, name, _ in arrays] == ["s", "y", "a", "x", "values", "factors"]
    # Role output: 32 less than the text, see above; ptxas takes 119 of 136.
    assert (output.accumulators, output.operands, output.tiles, output.total) == (32, 48, 18, 98)
    assert "2 x output 136 (119 / 101), state 200 (178)" in text_of("README.md")


def test_scan_hand_over_and_steps_ahead():
    text = text_of(SCAN)
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    barriers = {item.role.name: item.barrier for item in scan.roles}
    assert {name for name, barrier in barriers.items() if barrier} == {"output_role"}
    assert (barriers["output_role"].first, barriers["output_role"].copies, barriers["output_role"].threads) == (
        1,
        2,
        128,
    )
    assert "named_barrier_sync<128>(kOutputBarrier + group)" in text and constants(text)["kOutputBarrier"] == 1
    (staged,) = scan.buffers
    assert (staged.copies, staged.wait.count("bulk_wait_group_read<0>")) == (
        2,
        1,
    ) and "and at the role's end" in staged.wait
    assert text.count("bulk_wait_group_read<0>()") == 2, "before the tile is written again, and at the end"
    assert pipeline_of(scan, "state_ring").acquire.startswith(
        "for the next stage at the end of each step, also of the last"
    )
    throttle = "mbarrier_wait(shared.v_new_empty[publish.stage], publish.phase)"
    assert text.index(throttle, text.index("publish.advance();")) < text.index("if (chunk + 1 < args.chunks)")
    (ahead,) = pipeline_of(scan, "factor_ring").ahead
    assert (ahead.role, ahead.names) == ("state_role", ("value", "decay"))
    assert pipeline_of(scan, "value_ring").ahead[0].names == ("value",) and "kFetchAhead = kPanels == 1;" in text
    assert [item.wait for item in scan.products if item.role == "state_role"] == [
        "before projected is read",
        "before corrected is read",
        "before the stage of key_ring is released",
    ]


def test_scan_maps_and_grid():
    text = text_of(SCAN)
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    maps = {item.tensor: (item.rank, item.box, item.panel_dimension, item.boxes) for item in scan.tensor_maps}
    heads = (3, (64, 64, 2), 2, 1)
    assert maps["keys"] == maps["queries"] == heads and "as {64, T, 2 H}, box {64, 64, 2}" in text
    assert (
        maps["inputs"] == maps["outputs"] == (3, (64, 64, 1), 2, 1) and "as {64, T, 2 HV}, box {64, 64, panels}" in text
    )
    assert maps["inverse"] == (2, (64, 64), None, 1) and "as {64, HV T}, box {64, 64}" in text
    assert [(op.index.name, op.axis) for op in scan.description.grid] == [("block", 0)]
    assert "kBlocksPerHead = 2 / C::kPanels" in text
    optional = {item.name for item in scan.description.parameters if getattr(item, "optional", False)}
    assert optional == {"initial_state", "final_state"}
    assert "args.initial_state ?" in text and "if (args.final_state)" in text


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
    """The text holds two barriers more, of a state that is published apart (V = 128); a block gets the same."""
    scan = derived_of("gated_delta_rule_scan_step", "sm_90a")
    rings = 3 * (2 * 16384 + 8192 + 8192) + 2 * (16384 + 8192)
    factors = 2 * (256 + 256 + 16)
    barriers = 8 * 2 * (3 + 3 + 2 + 2)
    assert scan.shared_bytes == rings + 2 * 8192 + 3 * 256 + factors + barriers == 214976
    in_text = scan.shared_bytes + 8 * 2 * 2
    assert {-(-size // 1024) * 1024 for size in (scan.shared_bytes, in_text)} == {215040}
    assert "| 215040 |" in text_of("README.md")

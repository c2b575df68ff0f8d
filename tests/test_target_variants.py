"""The four programs of the scan target from one description: threads, budgets, memory, arrivals and registers against the text."""

from __future__ import annotations

import re

import pytest
from support.targets import SCAN, init_count, pipeline_of, text_of

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.kernels.gated_delta_rule.scan_step import scan_step
from kernwright.generator.passes.derive import Derived, derive

PROGRAMS = {
    "gdn_scan_v64": {"values": 64},
    "gdn_scan_v64_load_p": {"values": 64, "load_p": True},
    "gdn_scan_v128": {"values": 128},
    "gdn_scan_v128_load_p": {"values": 128, "load_p": True},
}
# Highest register that ptxas used in role output and in a state warpgroup: docs/targets/README.md.
USED = {
    "gdn_scan_v64": (119, 178),
    "gdn_scan_v64_load_p": (101, 178),
    "gdn_scan_v128": (134, 157),
    "gdn_scan_v128_load_p": (101, 155),
}


def scan(trace, name: str) -> Derived:
    return derive(trace(scan_step, variants={name: PROGRAMS[name]}), ARCHITECTURES["sm_90a"])


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_memory_and_budgets(trace, name):
    derived = scan(trace, name)
    wide, load_p = "128" in name, "load_p" in name
    assert derived.threads == 512 and {role.launch_registers for role in derived.roles} == {128}
    # A struct is padded to its alignment of 1024; see test_target_numbers.py for the bytes of V = 64.
    in_text = {"v64": 215040, "v128": 231424 if load_p else 215040}["v128" if wide else "v64"]
    assert -(-derived.shared_bytes // 1024) * 1024 == in_text and str(in_text) in text_of("README.md")
    budgets = {role.role.name: (role.role.registers, role.role.all_warpgroups) for role in derived.roles}
    assert budgets == {
        "load": (32 if wide else 40, 1),
        "factors": (None, 0),
        "output_role": (136, 1 if wide else 2),
        "state_role": (168 if wide else 200, 2 if wide else 1),
    }
    assert "kLoadRegisters = kPanels == 1 ? 40 : 32;" in text_of(SCAN)
    assert "kStateRegisters = kPanels == 1 ? 200 : 168;" in text_of(SCAN)


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_bytes_and_steps_ahead(trace, name):
    derived = scan(trace, name)
    wide, load_p = "128" in name, "load_p" in name
    panels = 2 if wide else 1
    values = pipeline_of(derived, "value_ring")
    assert values.pipeline.stages == (3 if not wide and not load_p else 2)
    assert values.full.bytes == panels * 8192 + (2 if load_p else 1) * 8192
    assert pipeline_of(derived, "key_ring").full.bytes == 33024
    state = pipeline_of(derived, "state_ring")
    assert state.pipeline.stages == (1 if wide else 2)
    assert state.acquire.startswith("at the start" if wide else "for the next stage at the end of each step")
    assert bool(values.ahead) is not wide and "kFetchAhead = kPanels == 1;" in text_of(SCAN)
    assert [item.pipeline.name for item in derived.pipelines][4:] == (["fresh_ring"] if wide else [])


@pytest.mark.parametrize("name", PROGRAMS)
def test_arrivals(trace, name):
    """One arrival a warp in the text, also where wgmma alone reads: then the facts take one for each warpgroup's wait."""
    derived = scan(trace, name)
    wide, load_p = "128" in name, "load_p" in name
    warps = {"kStateWarps": 8 if wide else 4, "kOutputWarps": 4}
    groups = warps["kStateWarps"] // 4

    def in_text(barrier: str) -> int:
        chosen = re.sub(
            r"\(C::kLoadP \? (\w+) : (\w+)\)", r"\1" if load_p else r"\2", init_count(text_of(SCAN), barrier)
        )
        return sum(warps[part] if part in warps else int(part) for part in chosen.split(" + "))

    fresh = "fresh_ring" if wide else "state_ring"
    same = [
        ("vt_empty", "value_ring", "empty"),
        ("factors_empty", "factor_ring", "empty"),
        ("v_new_full", fresh, "full"),
    ]
    same += [
        ("kq_full", "key_ring", "full"),
        ("vt_full", "value_ring", "full"),
        ("factors_full", "factor_ring", "full"),
    ]
    same += [("state_full", "state_ring", "full")]
    for barrier, ring, side in same:
        assert getattr(pipeline_of(derived, ring), side).arrivals == in_text(barrier), barrier
    assert (in_text("kq_empty"), pipeline_of(derived, "key_ring").empty.arrivals) == (4 * groups + 5, groups + 5)
    assert (in_text("v_new_empty"), pipeline_of(derived, fresh).empty.arrivals) == (4, 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_live_at_once_is_less_than_ptxas_takes(trace, name):
    """A bound from below: it must not refuse what fits. ptxas takes 11 to 37 registers more, for addresses and loads in flight."""
    estimates = {item.role: item for item in scan(trace, name).registers}
    output, state = estimates["output_role"], estimates["state_role"]
    assert (output.live, state.live) == {
        "gdn_scan_v64": (82, 160),
        "gdn_scan_v64_load_p": (82, 160),
        "gdn_scan_v128": (114, 144),
        "gdn_scan_v128_load_p": (82, 144),
    }[name]
    for estimate, used in zip((output, state), USED[name], strict=True):
        assert estimate.live <= used - 11 and used <= estimate.budget


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_and_maps(trace, name):
    derived = scan(trace, name)
    wide, load_p = "128" in name, "load_p" in name
    shapes = [
        (item.mma.accumulator, re.search(r"m\d+n\d+k\d+", item.instruction)[0], item.instructions)
        for item in derived.products
    ]
    width = "m64n128k16" if wide else "m64n64k16"
    expected = [] if load_p else [("scores", "m64n64k16", 8)]
    expected += [("output", width, 8), ("output", width, 4)]
    expected += [("projected", "m64n64k16", 8), ("corrected", "m64n64k16", 4), ("state", "m64n128k16", 4)]
    assert shapes == expected
    boxes = {item.tensor: item.box for item in derived.tensor_maps}
    assert boxes["inputs"] == boxes["outputs"] == (64, 64, 2 if wide else 1) and boxes["keys"] == (64, 64, 2)
    assert ("prepared" in boxes) == load_p

"""Shared headers: the wrappers that programs use, those that these call, nothing else; and every CUDA header that they need."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.emit.headers import headers_of, include_of, print_headers
from kernwright.generator.instructions import lookup, table
from kernwright.generator.passes.lower import lower
from kernwright.generator.pipeline import discover


def using(arch: str, *names: str):
    """The norm, made to use these instructions."""
    description = discover()["rmsnorm_silu_gate_forward_w_bf16"].trace()
    return replace(lower(description, ARCHITECTURES["sm_90a"]).program, arch=arch, instructions=names)


def functions(text: str) -> list[str]:
    return re.findall(r"__device__ __forceinline__ [\w ]+?(\w+)\(", text)


def test_only_what_is_used_in_the_order_of_the_table():
    (text,) = print_headers([using("sm_90a", "store_bf16x8", "exp2_approx", "fused_multiply_add")]).values()
    assert functions(text) == ["exp2_approx", "store_bf16x8"], "__fmaf_rn is CUDA's own"
    assert "#include <cuda_bf16.h>" in text


def test_a_wrapper_brings_those_that_it_calls():
    wrappers = [e for e in table() if e.cuda]
    wrappers = [e for e in wrappers if e.name != "Ring"]  # a type
    calls = {e.name: {o.name for o in wrappers if o is not e and re.search(rf"\b{o.name}\(", e.cuda)} for e in wrappers}
    callers = [e for e in wrappers if calls[e.name]]
    assert "mbarrier_wait" in {e.name for e in callers}, "it takes the address of its barrier"
    for caller in callers:
        arch = next(name for name, item in ARCHITECTURES.items() if caller.exists_on(item))
        texts = print_headers([using(arch, caller.name)])
        assert {caller.name} | calls[caller.name] <= {name for text in texts.values() for name in functions(text)}


def test_a_machine_header_includes_the_common_one_and_the_kernel_includes_the_machine_s():
    entry = next(e for e in table() if e.header == "sm_90a" and e.cuda)
    program = using("sm_90a", entry.name, "exp2_approx")
    texts = print_headers([program])
    assert '#include "common.cuh"' in texts["generated/include/sm_90a.cuh"]
    assert include_of(program) == ["../include/sm_90a.cuh"]
    assert headers_of(program) == ("generated/include/common.cuh", "generated/include/sm_90a.cuh")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_wrapper_of_a_header_is_reached_by_its_own_name(arch):
    names = [e.name for e in table() if e.exists_on(ARCHITECTURES[arch])]
    assert all(lookup(name, ARCHITECTURES[arch]).exists_on(ARCHITECTURES[arch]) for name in names)
    texts = print_headers([using(arch, *names)])
    bodies = [e.cuda for e in table() if e.cuda and e.exists_on(ARCHITECTURES[arch])]
    whole = "\n".join(texts.values())
    assert [whole.count(body) for body in bodies] == [1] * len(bodies), "every wrapper stands once"

"""What follows from a description and an architecture: layouts, arrival and byte counts, in-flight depth, budgets, memory maps.

The author writes none of these numbers. Each is derived here once, with its reason, and everything else (lowering, explain, checks)
reads it from here.
"""

from __future__ import annotations

from kernwright.generator.arch import Architecture
from kernwright.generator.ir.description import Description
from kernwright.generator.ir.layout import WARPGROUP
from kernwright.generator.passes.derive.accumulators import accumulator_facts, operand_columns, tensor_memory_columns
from kernwright.generator.passes.derive.buffers import buffer_facts
from kernwright.generator.passes.derive.checks import check_use
from kernwright.generator.passes.derive.facts import (
    AccumulatorFacts,
    AccumulatorRegisters,
    BarrierCount,
    BufferFacts,
    Derived,
    FetchAhead,
    MmaFacts,
    NamedBarrier,
    OperandColumns,
    OperandRegisters,
    PipelineFacts,
    RegisterEstimate,
    RoleFacts,
    SharedSlot,
    TensorMapFacts,
)
from kernwright.generator.passes.derive.pipelines import pipeline_facts
from kernwright.generator.passes.derive.products import product_facts
from kernwright.generator.passes.derive.registers import register_facts
from kernwright.generator.passes.derive.roles import check_threads, role_facts
from kernwright.generator.passes.derive.shared_map import shared_map
from kernwright.generator.passes.derive.tensor_maps import tensor_maps


def derive(description: Description, arch: Architecture) -> Derived:
    """Derive every count and layout of `description` on `arch`; raises the fault that the numbers show."""
    check_use(description)
    threads = description.threads or WARPGROUP * sum(role.all_warpgroups for role in description.roles)
    check_threads(description, threads, arch)
    roles = role_facts(description, arch)
    pipelines = tuple(pipeline_facts(description, pipeline, arch) for pipeline in description.pipelines)
    buffers = buffer_facts(description, roles, arch)
    accumulators = accumulator_facts(description, arch)
    products = product_facts(description, pipelines, arch)
    operands, accumulator_registers, registers = register_facts(description, roles, accumulators, pipelines, arch)
    in_columns = operand_columns(description, accumulators, arch)
    slots, total = shared_map(description, pipelines, buffers, accumulators, in_columns, arch)
    return Derived(
        description=description,
        arch=arch,
        threads=threads,
        roles=roles,
        pipelines=pipelines,
        buffers=buffers,
        accumulators=accumulators,
        products=products,
        operands=operands,
        accumulator_registers=accumulator_registers,
        operand_columns=in_columns,
        registers=registers,
        tensor_maps=tensor_maps(description),
        shared=slots,
        shared_bytes=total,
        tmem_columns=tensor_memory_columns(description, accumulators, in_columns, arch),
    )


__all__ = [
    "AccumulatorFacts",
    "AccumulatorRegisters",
    "BarrierCount",
    "BufferFacts",
    "Derived",
    "FetchAhead",
    "MmaFacts",
    "NamedBarrier",
    "OperandColumns",
    "OperandRegisters",
    "PipelineFacts",
    "RegisterEstimate",
    "RoleFacts",
    "SharedSlot",
    "TensorMapFacts",
    "derive",
]

"""wgmma: products of a warpgroup, with accumulators in its registers. Exists on sm_90a alone.

The four warps execute every one of these together, warp ranks aligned to four. Operands in shared memory are read through the
asynchronous proxy; what TMA wrote needs the mbarrier wait alone, what ordinary stores wrote a proxy fence and a barrier. From the
issue to the wait for its group neither accumulators nor register operands may be touched, not even read. The completion of a group
includes its shared-memory reads, so a stage can be released after the wait. Source: PTX ISA, asynchronous warpgroup-level matrix
instructions and their descriptors.
"""

from __future__ import annotations

from typing import Any

from kernwright.generator.arch import Feature
from kernwright.generator.instructions.operand_lists import listed
from kernwright.generator.instructions.table import Confirmed, Effects, instruction

_PRODUCT = Effects(
    reads=("shared", "registers"),
    writes=("registers",),
    proxy="async",
    completion="wgmma group",
    collective="warpgroup",
)


@instruction(
    ptx=("wgmma.fence.sync.aligned",),
    sass=("WARPGROUP.ARRIVE",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(orders="registers before wgmma", collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Orders earlier accesses to accumulators and register operands before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
""",
)
def wgmma_fence() -> Any:
    """Orders earlier accesses to accumulators and register operands before the wgmmas that follow; says nothing of shared memory.

    Needed before the first wgmma and after any other access to those registers, not between wgmmas of one shape.
    """


@instruction(
    ptx=("wgmma.commit_group.sync.aligned",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(orders="close wgmma group", collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Closes the group of wgmmas issued so far.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
""",
)
def wgmma_commit_group() -> Any:
    """Closes the group of the wgmmas issued so far. Waits for nothing."""


@instruction(
    ptx=("wgmma.wait_group.sync.aligned",),
    spelling="wgmma_wait_group<{}>",
    sass=("WARPGROUP.DEPBAR.LE",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(orders="wgmma group complete", collective="warpgroup"),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Waits until at most the kGroups newest groups run: the older ones have written their accumulators and read their operands.
template <int kGroups>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
""",
)
def wgmma_wait_group() -> Any:
    """Waits until at most the kGroups newest groups of the executing threads run.

    The accumulators of the older ones are valid, their register and shared operands have been read, and no proxy fence is needed
    before shared memory is written again. It says nothing of what other warpgroups still read.
    """


@instruction(
    ptx=("no instruction",),
    needs=(Feature.WGMMA,),
    header="sm_90a",
    effects=Effects(reads=("registers",), writes=("registers",)),
    confirmed=Confirmed.HARDWARE,
    meaning=False,
    cuda="""
// Emits nothing; the compiler moves no read of these registers above it and no write below it (needed around waits).
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin_registers(unsigned (&r)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
""",
)
def pin_registers(registers: Any) -> Any:
    """Emits nothing; the compiler moves no read of the registers above it and no write below it. Needed around waits."""


# ---- products, one entry for each width and place of A


def _wrapper(columns: int, registers_a: bool) -> str:
    """The CUDA text of D[64, columns] (+)= A[64, 16] B[columns, 16]^T."""
    count = columns // 2
    name = f"wgmma_m64n{columns}k16_bf16_{'rs' if registers_a else 'ss'}"
    next_operand = count + (6 if registers_a else 3)  # after the accumulators, A, B and the predicate's source
    results = listed([f"%{i}" for i in range(count)], '      "', '"', each=16)
    outputs = listed([f'"+f"(d[{i}])' for i in range(count)], "        ").replace("        ", "      : ", 1)
    if registers_a:
        a, operands = "const unsigned* a", f"}}, {{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}, %{count + 4}"
        turns, inputs = f"%{next_operand}", '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)'
        template, flags = "template <int kTransposeB = 0>", '"n"(kTransposeB)'
        where = "A in four registers a thread, B in shared memory (kTransposeB: MN-major)"
    else:
        a, operands = "unsigned long long a", f"}}, %{count}, %{count + 1}"
        turns, inputs = f"%{next_operand}, %{next_operand + 1}", '"l"(a), "l"(b)'
        template, flags = "template <int kTransposeA = 0, int kTransposeB = 0>", '"n"(kTransposeA), "n"(kTransposeB)'
        where = "both in shared memory (kTranspose: MN-major)"
    indent = " " * len(f"__device__ __forceinline__ void {name}(")
    return f"""
// D[64, {columns}] (+)= A[64, 16] B[{columns}, 16]^T, {where};
// asynchronous until wait_group.
{template}
__device__ __forceinline__ void {name}(float (&d)[{count}], {a}, unsigned long long b,
{indent}bool accumulate) {{
  asm volatile(
      "{{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %{next_operand - 1}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{"
{results}
      "{operands}, accumulate, 1, 1, {turns};\\n}}"
{outputs}
      : {inputs}, "r"(static_cast<int>(accumulate)),
        {flags});
}}
"""


def _product(columns: int, registers_a: bool) -> None:
    """Register the entry of one product."""

    def entry(d: Any, a: Any, b: Any, accumulate: Any) -> Any:
        raise NotImplementedError

    shape = f"D[64, {columns}] (+)= A[64, 16] B[{columns}, 16]^T"
    if registers_a:
        entry.__name__ = f"wgmma_m64n{columns}k16_bf16_rs"
        entry.__doc__ = f"""{shape}, A in four registers a thread; B may be MN-major (kTransposeB).

        A group with register operands may not be in flight over a loop's back edge: ptxas then serialises every wgmma.
        """
    else:
        entry.__name__ = f"wgmma_m64n{columns}k16_bf16_ss"
        entry.__doc__ = (
            f"{shape}, both in shared memory, MN-major by kTransposeA, kTransposeB; `accumulate` false starts at 0."
        )
    instruction(
        ptx=(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16",),
        sass=(f"HGMMA.64x{columns}x16.F32.BF16",),
        spelling=f"{entry.__name__}<{{}}>" if registers_a else f"{entry.__name__}<{{}}, {{}}>",
        needs=(Feature.WGMMA,),
        header="sm_90a",
        effects=_PRODUCT,
        confirmed=Confirmed.HARDWARE if columns in CONFIRMED_COLUMNS else Confirmed.DOCUMENTS,
        meaning=False,
        cuda=_wrapper(columns, registers_a),
    )(entry)


COLUMNS = tuple(range(8, 257, 8))
CONFIRMED_COLUMNS = (64, 128)

for _columns in COLUMNS:
    _product(_columns, registers_a=False)
    _product(_columns, registers_a=True)

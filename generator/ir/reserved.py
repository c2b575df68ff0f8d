"""Names that C, C++ or CUDA headers give a meaning: no name of a description may be one of them, and none is renamed silently."""

from __future__ import annotations

import re

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq typeof restrict
"""
_LIBRARY = """
threadIdx blockIdx blockDim gridDim warpSize dim3 uint2 uint3 uint4 int2 int3 int4 float2 float3 float4 double2
short2 short4 char4 NULL INFINITY NAN HUGE_VAL EOF assert errno stdin stdout stderr main min max abs fabs fabsf exp
expf exp2 exp2f log logf sqrt sqrtf rsqrt rsqrtf rcp pow powf sin cos tan floor ceil round trunc fma fmaf signbit
isnan isinf isfinite size_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t clock
clock64 printf malloc free memcpy memset std cuda nv unix linux
"""

RESERVED = frozenset(re.findall(r"\w+", _KEYWORDS + _LIBRARY))
_PREFIXES = ("kw_", "KW_", "Kw", "ffi_")  # the bindings' own
_MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*|[A-Z][A-Z0-9]{2,}")
_VECTOR_TYPE = re.compile(r"(u?(char|short|int|long|longlong)|float|double|half|dim)[1-4]")


def is_reserved(name: str) -> bool:
    """Whether C, C++ or CUDA gives `name` a meaning of its own."""
    return name in RESERVED or _VECTOR_TYPE.fullmatch(name) is not None or name.startswith(_PREFIXES)


def looks_like_a_macro(name: str) -> bool:
    """Whether a name of capitals alone may be a macro of some header: `M_PI`, `INT_MAX`, `EOF`."""
    return _MACRO.fullmatch(name) is not None

"""The instruction table: every entry that a shipped program uses has a meaning, executed here against an independent oracle."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.instructions import lookup, table
from kernwright.generator.passes.lower import lower
from kernwright.generator.pipeline import discover

RANDOM = random.Random(20260101)
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    1.17549435e-38,
    3.4028234e38,
    math.inf,
    -math.inf,
    math.nan,
    0.5,
    65504.0,
]


def f32_of(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits_of(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def random_floats(count: int) -> list[float]:
    """Any finite FP32 bit pattern."""
    found = [f32_of(RANDOM.getrandbits(32)) for _ in range(count)]
    return [value for value in found if math.isfinite(value)]


def round_to_bf16(value: float) -> int:
    """Nearest-even rounding by exact comparison with both neighbours; the oracle of the store."""
    if math.isnan(value):
        return 0x7FFF
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return sign | 0x7F80
    magnitude = Fraction(abs(value))
    low = bits_of(abs(value)) >> 16
    lower_value = Fraction(f32_of(low << 16))
    upper = low + 1
    upper_value = Fraction(2) ** 128 if upper == 0x7F80 else Fraction(f32_of(upper << 16))
    below, above = magnitude - lower_value, upper_value - magnitude
    return sign | (low if below < above or (below == above and low % 2 == 0) else upper)


def exact_fma(a: float, b: float, c: float) -> float:
    """a * b + c rounded once to FP32, by rational arithmetic and comparison with neighbours."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    guess = np.float32(float(exact)) if abs(exact) < Fraction(2) ** 128 else np.float32(math.copysign(math.inf, exact))
    options = [guess, np.nextafter(guess, np.float32(math.inf)), np.nextafter(guess, np.float32(-math.inf))]
    finite = [option for option in options if np.isfinite(option)]
    best = min(finite, key=lambda option: (abs(Fraction(float(option)) - exact), bits_of(float(option)) & 1))
    limit = Fraction(2) ** 128 - Fraction(2) ** 103
    return float(best) if abs(exact) < limit else math.copysign(math.inf, exact)


def test_every_instruction_of_a_shipped_program_without_roles_has_a_meaning():
    """Those of roles (barriers, copies, products) need an emulator of their own; the page of instructions says which have none."""
    for source in discover().values():
        description = source.trace()
        if source.shipped and not description.roles:
            for arch in description.archs:
                used = lower(description, ARCHITECTURES[arch]).program.instructions
                assert used, "a program without instructions cannot store"
                assert [name for name in used if lookup(name).meaning is None] == []


def test_entries_are_complete():
    for entry in table():
        assert entry.summary.endswith("."), entry.name
        assert entry.ptx, entry.name
        called = f" {entry.name}(" in entry.cuda or f"struct {entry.name} {{" in entry.cuda
        assert called == bool(entry.cuda), f"{entry.name}: the wrapper is called like its entry"
        assert not entry.cuda or entry.cuda.startswith("//"), (
            f"{entry.name}: a wrapper starts with why or what in one line"
        )


def test_bf16_loads_widen_exactly():
    meaning = lookup("load_bf16x8").meaning
    patterns = np.array([RANDOM.getrandbits(16) for _ in range(80)], np.uint16)
    widened = meaning(patterns)
    assert [bits_of(float(v)) for v in widened if not math.isnan(v)] == [
        int(p) << 16 for p, v in zip(patterns, widened, strict=True) if not math.isnan(v)
    ]


def test_fp32_loads_keep_bits():
    values = np.array(random_floats(8)[:8], np.float32)
    assert lookup("load_f32x8").meaning(values).tobytes() == values.tobytes()


def test_bf16_stores_round_once_to_nearest_even():
    halfway = [f32_of(bits_of(v) & 0xFFFF0000 | 0x8000) for v in random_floats(200)]
    values = [*SPECIAL, *random_floats(2000), *halfway, f32_of(0x7F7F8000), f32_of(0x7F7F7FFF)]
    rounded = lookup("store_bf16x8").meaning(np.array(values, np.float32))
    assert [int(r) for r in rounded] == [round_to_bf16(float(np.float32(v))) for v in values]


def test_fma_rounds_once():
    meaning = lookup("fused_multiply_add").meaning
    triples = [
        tuple(np.float32(RANDOM.uniform(-2, 2) * 2.0 ** RANDOM.randint(-20, 20)) for _ in range(3)) for _ in range(2000)
    ]
    # Products that cancel against the addend, where two roundings would differ from one.
    for _ in range(500):
        a, b = (np.float32(RANDOM.uniform(1, 2)) for _ in range(2))
        triples.append((a, b, np.float32(-(float(a) * float(b)))))
        # A sum that lies a hair off a tie between two FP32 values: rounding the FP64 sum first would hide the hair.
        triples.append((np.float32(1 + 2**-23), np.float32(1 + 2**-23), np.float32(2.0**30 * RANDOM.choice((1, -1)))))
    a, b, c = (np.array(column, np.float32) for column in zip(*triples, strict=True))
    wanted = np.array([exact_fma(float(x), float(y), float(z)) for x, y, z in triples], np.float32)
    assert meaning(a, b, c).tobytes() == wanted.tobytes() or np.array_equal(meaning(a, b, c), wanted)


@pytest.mark.parametrize(
    ("name", "oracle", "low", "high"),
    [
        (
            "exp2_approx",
            lambda x: math.ldexp(math.exp(math.log(2) * (x - math.floor(x))), math.floor(x)),
            -120.0,
            120.0,
        ),
        ("reciprocal_approx", lambda x: 1.0 / x, 1e-30, 1e30),
        ("rsqrt_approx", lambda x: x**-0.5, 1e-30, 1e30),
    ],
)
def test_approximate_functions_mean_the_rounded_value_and_state_a_bound(name, oracle, low, high):
    entry = lookup(name)
    assert entry.bound, "an approximate function states how far it may be off"
    values = [
        np.float32(RANDOM.uniform(low, high) if low < 0 else math.exp(RANDOM.uniform(math.log(low), math.log(high))))
        for _ in range(500)
    ]
    got = entry.meaning(np.array(values, np.float32))
    for value, result in zip(values, got, strict=True):
        exact = oracle(float(value))
        assert abs(float(result) - exact) <= abs(exact) * 2.0**-23.5


def test_approximate_functions_at_their_ends():
    assert lookup("exp2_approx").meaning(np.float32(-math.inf)) == 0.0
    assert lookup("exp2_approx").meaning(np.float32(200.0)) == math.inf
    assert lookup("reciprocal_approx").meaning(np.float32(math.inf)) == 0.0
    assert lookup("reciprocal_approx").meaning(np.float32(0.0)) == math.inf
    assert lookup("rsqrt_approx").meaning(np.float32(0.0)) == math.inf
    assert math.isnan(lookup("rsqrt_approx").meaning(np.float32(-1.0)))


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_lane_sums_add_halves_first_and_leave_the_same_bits_everywhere(lanes):
    values = np.array([np.float32(RANDOM.uniform(-1e3, 1e3)) for _ in range(32)], np.float32)
    total = lookup("sum_over_lanes").meaning(lanes, values)

    def tree(part: list[np.float32]) -> np.float32:
        if len(part) == 1:
            return part[0]
        half = len(part) // 2
        return tree([np.float32(part[i] + part[i + half]) for i in range(half)])

    for start in range(0, 32, lanes):
        wanted = tree(list(values[start : start + lanes]))
        assert {bits_of(float(v)) for v in total[start : start + lanes]} == {bits_of(float(wanted))}

"""The operations that people call, with torch. Importing this imports torch and starts no CUDA."""

from kernwright.runtime.loader import load as _load
from kernwright.runtime.ops.programs import ALL as _PROGRAMS
from kernwright.runtime.ops.rmsnorm_silu_gate import rmsnorm_silu_gate

__all__ = ["prepare", "rmsnorm_silu_gate"]


def prepare(device: int = 0) -> None:
    """Load every program for CUDA device `device`, so that no later call compiles or loads.

    Raises what the first call would raise: LoadError, or RuntimeError from the driver.
    """
    for symbol in _PROGRAMS:
        _load(symbol, device)

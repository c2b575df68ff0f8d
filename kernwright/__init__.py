"""kernwright: GPU kernels described in Python, reviewed as CUDA C++, served to PyTorch.

Importing this package imports neither torch nor the generator and touches no GPU; each name below is resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kernwright.runtime.ops import prepare, rmsnorm_silu_gate

__all__ = ["__version__", "prepare", "rmsnorm_silu_gate"]


def __getattr__(name: str) -> Any:
    if name in ("prepare", "rmsnorm_silu_gate"):
        from kernwright.runtime import ops

        return getattr(ops, name)
    raise AttributeError(f"module 'kernwright' has no attribute {name!r}")

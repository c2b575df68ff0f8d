"""Finds or fetches the CUDA compiler. `python -m kernwright.runtime.toolchain install|path|check`."""

from kernwright.runtime.toolchain.discover import Toolchain, discover
from kernwright.runtime.toolchain.errors import ToolchainError
from kernwright.runtime.toolchain.install import folder

__all__ = ["Toolchain", "ToolchainError", "discover", "folder"]

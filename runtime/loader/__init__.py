"""Finds, verifies, builds when missing, and loads libraries. Importing it starts neither torch nor CUDA."""

from kernwright.runtime.loader.errors import LoadError
from kernwright.runtime.loader.load import Loaded, load, locate, open_library
from kernwright.runtime.loader.search import architecture_of, cache_entry, find, places

__all__ = ["LoadError", "Loaded", "architecture_of", "cache_entry", "find", "load", "locate", "open_library", "places"]

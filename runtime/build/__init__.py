"""From generated text to libraries: ninja, nvcc and a C compiler, records of what came out."""

from kernwright.runtime.build.builder import BuildResult, build, select
from kernwright.runtime.build.errors import BuildError
from kernwright.runtime.build.records import LibrariesError, LibraryRecord

__all__ = ["BuildError", "BuildResult", "LibrariesError", "LibraryRecord", "build", "select"]

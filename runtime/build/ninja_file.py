"""The text of build.ninja: per library one edge from CUDA text to machine code and one from the binding to the library.

Commands run in the work folder and name their outputs relative to it, so that no absolute path reaches a library.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from kernwright.runtime.build.host import Host
from kernwright.runtime.manifest import TargetRecord
from kernwright.runtime.toolchain import Toolchain

C_FLAGS = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-s", "-pthread"),
    *("-Wall", "-Wextra", "-Wl,--build-id=none"),
)

FRAME = """\
# Written by kernwright for every build.
ninja_required_version = 1.10
builddir = .

rule cubin
  command = {nvcc} $flags -Xptxas -v {ccbin}-gencode arch=compute_$code,code=sm_$code -MMD -MF $out.d \
-cubin -o $out $in > $out.log 2>&1 || {{ cat $out.log; rm -f $out; exit 1; }}
  depfile = $out.d
  deps = gcc
  description = cubin $out

rule library
  command = {cc} {c_flags} -MMD -MF $out.d {includes} '-DKW_CUBIN="$cubin"' '-DKW_ARCHITECTURE="$architecture"' \
-DKW_MAJOR=$major -DKW_MINOR=$minor -o $out $in -L{tvm_lib} -ltvm_ffi -ldl
  depfile = $out.d
  deps = gcc
  description = library $out
"""

EDGES = """
build {library}.cubin: cubin {kernel} | {nvcc}
  code = {code}
  flags = {flags}
build {library}.so: library {binding} | {library}.cubin
  cubin = {library}.cubin
  architecture = {architecture}
  major = {major}
  minor = {minor}
"""


def ninja_text(targets: Iterable[TargetRecord], root: Path, toolchain: Toolchain, host: Host) -> str:
    """build.ninja for `targets`, whose files lie under `root`."""
    nvcc = toolchain.tool("nvcc")
    text = FRAME.format(
        nvcc=_shell(nvcc),
        ccbin=f"-ccbin {_shell(host.ccbin)} " if host.ccbin else "",
        cc=" ".join(_shell(word) for word in host.cc),
        c_flags=" ".join(C_FLAGS),
        includes=f"-I{_shell(host.tvm_ffi / 'include')} -isystem {_shell(toolchain.include)}",
        tvm_lib=_shell(host.tvm_ffi / "lib"),
    )
    for target in targets:
        major, minor = target.architecture.capability
        text += EDGES.format(
            library=target.library,
            kernel=_path(root / target.kernel),
            binding=_path(root / target.binding),
            nvcc=_path(nvcc),
            code=target.architecture.code,
            flags=" ".join(_shell(flag) for flag in target.flags),
            architecture=target.architecture.name,
            major=major,
            minor=minor,
        )
    return text


def _shell(word: str | Path) -> str:
    """A word of a command: quoted for the shell, then for ninja."""
    return shlex.quote(str(word)).replace("$", "$$")


def _path(path: Path) -> str:
    """A path of a build statement."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")

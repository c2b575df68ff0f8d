"""A start for tests of row-wise programs: two tensors over the same rows, the text, and refusals."""

from __future__ import annotations

import re

import pytest

from kernwright.generator.arch import ARCHITECTURES
from kernwright.generator.dsl import Kernel, bf16, i64
from kernwright.generator.emit.kernel import print_kernel
from kernwright.generator.errors import KernelError
from kernwright.generator.passes.lower import lower

HIGH = 1 << 20


class Rows:
    """The usual start of a row-wise program: two tensors over the same rows."""

    def __init__(self, k: Kernel, **source: object) -> None:
        self.k = k
        self.rows = k.scalar("rows", i64, high=HIGH)
        self.source = k.tensor("source", bf16, (self.rows, 128), **source)  # type: ignore[arg-type]
        self.target = k.tensor("target", bf16, (self.rows, 128), access="write")
        self.layout = k.vector_rows(128)
        self.block = k.blocks(self.rows, step=self.layout)


def text_of(description, arch: str = "sm_90a") -> str:
    """The CUDA text of a traced description."""
    return print_kernel(lower(description, ARCHITECTURES[arch]).program)


def refused(trace, function, code: str, *words: str) -> str:
    """The message of a description that is refused with `code`, at a line of the test, with these words."""
    with pytest.raises(KernelError) as caught:
        text_of(trace(function))
    message = str(caught.value)
    assert caught.value.code == code, message
    assert re.search(r"tests/(support/rows|test_rows\w*)\.py:\d+", message) and "kernwright explain" in message
    assert all(word in message for word in words), message
    return message

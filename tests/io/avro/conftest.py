"""Tests of the codec run on the compiled kernels from the first byte, unless they ask for plain Python."""

from __future__ import annotations

import pytest

from neve.io.avro.jit import load_compiled


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    load_compiled()

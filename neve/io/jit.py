"""Compile kernels with numba, which is slow to load and therefore imported only when a kernel is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compile_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is written in numba's subset of Python; raises ImportError if numba is not installed."""
    import numba  # noqa: PLC0415 - slow to import

    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # there is no writable cache directory
        compiled = numba.njit(nogil=True)(function)
    return compiled

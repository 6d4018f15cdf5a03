"""Chooses how the kernels run: compiled by numba when it is installed, else as the plain Python they are written in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neve.io.avro import kernel

__all__ = ["PYTHON", "Backend", "default_backend"]


@dataclass(frozen=True, slots=True)
class Backend:
    """The kernels, and how memory is handed to them."""

    decode: Callable[..., int]
    gather: Callable[..., None]
    encode: Callable[..., None]
    array: Callable[[np.ndarray[Any, Any]], Any]  # a numpy array as the kernels want it
    bytes: Callable[[Any], Any]  # the bytes of a file as the kernels want them


# Indexing bytes and memory views gives Python integers, which are faster and wider than numpy's scalars.
PYTHON = Backend(kernel.decode, kernel.gather, kernel.encode, lambda a: a.data, lambda b: b)

_lock = threading.Lock()
_chosen: list[Backend] = []


def default_backend() -> Backend:
    """The fastest backend of this machine; made on first use, because numba takes a while to import."""
    if not _chosen:
        with _lock:
            if not _chosen:
                _chosen.append(_compiled() or PYTHON)
    return _chosen[0]


def _compiled() -> Backend | None:
    try:
        import numba  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        return None

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(nogil=True, cache=True)(function)
        except RuntimeError:  # no directory to cache in can be written
            return numba.njit(nogil=True)(function)

    kernels = (compiled(kernel.decode), compiled(kernel.gather), compiled(kernel.encode))
    return Backend(*kernels, lambda a: a, lambda b: np.frombuffer(b, np.uint8))

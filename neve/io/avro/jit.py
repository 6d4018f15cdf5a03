"""Choose how the kernels run: as plain Python, or compiled by numba when there is enough data.

Loading numba and the cached machine code takes two seconds of CPU, in which plain Python reads thousands of entries. So
a process that reads a small table never loads it, and one that reads more loads it soon (`WARM_UP_BYTES`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neve.io.avro.decode_kernel import decode, gather
from neve.io.avro.encode_kernel import encode
from neve.io.jit import compile_kernel

WARM_UP_BYTES = 1 << 20  # uncompressed bytes that a process handles in plain Python, at about 0.2 µs each
LARGE_FILE_BYTES = 1 << 18  # a larger file is handled by numba at once


@dataclass(frozen=True, slots=True)
class Backend:
    """The kernels, and the conversions of their arguments."""

    decode: Callable[..., int]
    gather: Callable[..., None]
    encode: Callable[..., None]
    array: Callable[[np.ndarray[Any, Any]], Any]  # converts a numpy array for the kernels
    bytes: Callable[[Any], Any]  # converts the bytes of a file for the kernels


# Indexing bytes and memory views gives Python integers, which are faster and wider than numpy's scalars.
PYTHON_BACKEND = Backend(decode, gather, encode, lambda a: a.data, lambda b: b)


class BackendChooser:
    """Counts the bytes that the process has handled, and keeps the compiled kernels once they are loaded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handled = 0
        self._compiled: Backend | None = None

    def backend_for(self, size: int) -> Backend:
        """Return the backend for a file of `size` uncompressed bytes."""
        if self._compiled is None:
            with self._lock:
                self._handled += size
                if size <= LARGE_FILE_BYTES and self._handled <= WARM_UP_BYTES:
                    return PYTHON_BACKEND
        return self.load_compiled()

    def load_compiled(self) -> Backend:
        """Load the compiled kernels now and use them from here on; plain Python if numba is not installed."""
        with self._lock:
            if self._compiled is None:
                self._compiled = _compile_with_numba() or PYTHON_BACKEND
            return self._compiled


def _compile_with_numba() -> Backend | None:
    try:
        kernels = (compile_kernel(decode), compile_kernel(gather), compile_kernel(encode))
    except ImportError:
        return None
    return Backend(*kernels, lambda a: a, lambda b: np.frombuffer(b, np.uint8))


_chooser = BackendChooser()
backend_for, load_compiled = _chooser.backend_for, _chooser.load_compiled

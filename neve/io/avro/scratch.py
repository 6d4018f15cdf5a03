"""Scratch memory of the decoder: one zeroed arena cut into a column per slot, that grows with the lists of the file."""

from __future__ import annotations

from typing import Any

import numpy as np

from neve.errors import LimitExceeded
from neve.io.avro.program import Program

__all__ = ["Scratch"]

Array = np.ndarray[Any, Any]
UNBOUNDED = 1 << 62
FIRST_ITEMS = 64  # room for the items of a list before anything is known about it
MARGIN = 1.125  # of items over what the part read so far lets expect


class Scratch:
    """Columns under construction. `room` and `filled` count rows by context; context 0 holds the records."""

    def __init__(self, program: Program, records: int, path: str, budget: int) -> None:
        self.program, self.path, self.budget = program, path, budget
        self.room = np.full(program.contexts, UNBOUNDED, np.int64)
        self.room[program.slot_context] = FIRST_ITEMS  # a context without slots needs no memory
        self.room[0] = records
        self.filled = np.zeros(program.contexts, np.int64)
        self.filled[0] = records
        self._allocate()

    def _allocate(self) -> None:
        program = self.program
        sizes = (self.room[program.slot_context] * program.slot_width + 7) // 8 * 8
        total = int(sizes.sum())
        if total > self.budget:
            hint = "Decode fewer fields, or raise Limits.max_decoded_bytes."
            raise LimitExceeded(f"the decoded size of {self.path}", self.budget, hint)
        self.starts = np.cumsum(sizes) - sizes
        self.base = self.starts // program.slot_unit
        self.bytes = np.zeros(max(total, 8), np.uint8)

    def grow(self, context: int, wanted: int, share: float) -> None:
        """Make room for `wanted` rows in a context, and for what every list will hold if the file goes on as it began.

        `share` is the part of the file read so far.
        """
        expected = (self.filled / max(share, 1e-9) * MARGIN).astype(np.int64) + FIRST_ITEMS
        lists = self.room < UNBOUNDED
        lists[0] = False
        old_bytes, old_starts = self.bytes, self.starts
        old_rows = self.room[self.program.slot_context]
        self.room[lists] = np.maximum(self.room, expected)[lists]
        self.room[context] = max(self.room[context], wanted + wanted // 2)
        self._allocate()
        for slot, rows in enumerate(old_rows):
            size = int(rows * self.program.slot_width[slot])
            old, new = int(old_starts[slot]), int(self.starts[slot])
            self.bytes[new : new + size] = old_bytes[old : old + size]

    def rows(self, slot: int, dtype: Any, count: int) -> Array:
        """The first rows of a slot, still inside the scratch: copy what is to live longer."""
        start, width = int(self.starts[slot]), int(self.program.slot_width[slot])
        return self.bytes[start : start + count * width].view(dtype)

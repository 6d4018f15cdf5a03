"""Which delete applies to which data file, as row numbers side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Pairs", "Rows"]

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Rows of an entry table of data files, and the rows of the deletes that apply to them."""

    file: Rows
    delete: Rows

    @classmethod
    def of(cls, attached: pa.Table) -> Pairs:
        """The pairs of a scan plan."""
        return cls(attached["file"].to_numpy(), attached["delete"].to_numpy())

    def of_files(self, rows: Rows) -> Pairs:
        """The pairs of some files, renumbered by their place among `rows`, which ascend."""
        chosen = np.isin(self.file, rows)
        return Pairs(np.searchsorted(rows, self.file[chosen]), self.delete[chosen])

    def of_deletes(self, chosen: NDArray[np.bool_]) -> Pairs:
        """The pairs of the deletes a mask selects."""
        mine = chosen[self.delete]
        return Pairs(self.file[mine], self.delete[mine])

    def to_deletes(self, rows: Rows) -> Pairs:
        """The same pairs, their deletes renumbered by their place among `rows`, which ascend and hold them all."""
        return Pairs(self.file, np.searchsorted(rows, self.delete))

    def touched(self, files: int) -> NDArray[np.bool_]:
        """Which of so many files have a delete."""
        mask = np.zeros(files, bool)
        mask[self.file] = True
        return mask

    def table(self) -> pa.Table:
        """The pairs as a plan holds them, sorted by file."""
        order = np.argsort(self.file, kind="stable")
        return pa.table({"file": self.file[order], "delete": self.delete[order]})

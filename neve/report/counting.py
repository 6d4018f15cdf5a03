"""Sum up data files by group, column by column and never file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.report.values import FileTotals
from neve.tree.entries import Content, EntryTable

Numbers: TypeAlias = NDArray[Any]


def totals_of(totals_by_group: dict[str, Numbers], group: int) -> FileTotals:
    """Return the totals of one of many groups."""
    return FileTotals(**{name: values[group].item() for name, values in totals_by_group.items()})


@dataclass(frozen=True)
class FileMeasures:
    """The live data files, with the values of each that are summed up."""

    files: EntryTable
    columns: dict[str, Numbers]

    @classmethod
    def of(
        cls,
        files: EntryTable,
        deletes: EntryTable,
        pairs: pa.Table,
        *,
        min_file_size: int,
        taken: Numbers,
        undecided: Numbers,
        outside: Numbers,
    ) -> FileMeasures:
        """Measure data files: `pairs` are the delete files that apply to them, the masks what was decided on each."""
        file, delete = pairs["file"].to_numpy(), pairs["delete"].to_numpy()
        size, content = files.numpy("file_size_in_bytes"), deletes.numpy("content")
        # The deleted rows of a delete file that applies to several data files are divided evenly between them.
        uses = np.maximum(np.bincount(delete, minlength=len(deletes)), 1)
        deleted_rows = np.where(content == Content.POSITION_DELETES, deletes.numpy("record_count") / uses, 0.0)[delete]
        is_equality = (content == Content.EQUALITY_DELETES)[delete]
        columns = {
            "bytes": size,
            "rows": files.numpy("record_count"),
            "small_files": size < min_file_size,
            "delete_files": np.bincount(file, minlength=len(files)),
            "deleted_rows": np.bincount(file, weights=deleted_rows, minlength=len(files)),
            "has_equality_deletes": np.bincount(file[is_equality], minlength=len(files)) > 0,
            "taken": taken,
            "undecided": undecided,
            "outside": outside,
        }
        return cls(files, columns)

    def __getitem__(self, name: str) -> Numbers:
        return self.columns[name]

    def totals_by_group(self, groups: Numbers, count: int) -> dict[str, Numbers]:
        """Return the sums of `count` groups as columns; `groups` has the group number of every file."""
        totals: dict[str, Numbers] = {"files": np.bincount(groups, minlength=count)}
        for name, values in self.columns.items():
            sums = np.bincount(groups, weights=values, minlength=count)
            totals[name] = sums > 0 if name == "has_equality_deletes" else np.rint(sums).astype(np.int64)
        return totals

    def total(self) -> FileTotals:
        """Return the sums of all files."""
        return totals_of(self.totals_by_group(np.zeros(len(self.files), np.int64), 1), 0)

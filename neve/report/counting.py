"""Data files counted by columns: in groups of any kind, never one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neve.report.values import FileTotals
from neve.tree.entries import Content, EntryTable

Numbers: TypeAlias = NDArray[Any]
_SUMMED_COLUMNS = ("bytes", "rows", "small_files", "delete_files", "deleted_rows", "taken", "undecided", "outside")


@dataclass(frozen=True)
class GroupTotals:
    """What `FileTotals` says, of many groups at once."""

    columns: dict[str, Numbers]

    def totals_of(self, group: int) -> FileTotals:
        """The amounts of one group."""
        found = {name: int(values[group]) for name, values in self.columns.items() if name != "by_value"}
        return FileTotals(**found, has_equality_deletes=bool(self.columns["by_value"][group]))


@dataclass(frozen=True)
class FileMeasures:
    """The live data files, and of each what is to be summed up."""

    files: EntryTable
    columns: dict[str, Numbers]

    @classmethod
    def of(
        cls,
        files: EntryTable,
        deletes: EntryTable,
        pairs: pa.Table,
        *,
        least: int,
        taken: Numbers,
        undecided: Numbers,
        outside: Numbers,
    ) -> FileMeasures:
        """Data files with the delete files that apply to them, and what was decided about each."""
        file, delete = pairs["file"].to_numpy(), pairs["delete"].to_numpy()
        size = files.numpy("file_size_in_bytes")
        by_value = (deletes.numpy("content") == Content.EQUALITY_DELETES)[delete]
        columns = {
            "bytes": size,
            "rows": files.numpy("record_count"),
            "small_files": size < least,
            "delete_files": np.bincount(file, minlength=len(files)),
            "deleted_rows": np.bincount(file, weights=_dead_rows(deletes, delete), minlength=len(files)),
            "by_value": np.bincount(file[by_value], minlength=len(files)) > 0,
            "taken": taken,
            "undecided": undecided,
            "outside": outside,
        }
        return cls(files, columns)

    def __getitem__(self, name: str) -> Numbers:
        return self.columns[name]

    def totals_by_group(self, groups: Numbers, count: int) -> GroupTotals:
        """The sums of each of so many groups; `groups` has the number of the group of every file."""
        made = {name: self._sum(name, groups, count) for name in (*_SUMMED_COLUMNS, "by_value")}
        return GroupTotals({"files": np.bincount(groups, minlength=count), **made})

    def _sum(self, name: str, groups: Numbers, count: int) -> Numbers:
        return np.rint(np.bincount(groups, weights=self.columns[name], minlength=count)).astype(np.int64)

    def total(self) -> FileTotals:
        """The sums of all files."""
        return self.totals_by_group(np.zeros(len(self.files), np.int64), 1).totals_of(0)

    def adding_snapshots(self, chosen: Numbers) -> list[int]:
        """The snapshots that added some of the files, each once."""
        ids = self.files["snapshot_id"].filter(pa.array(chosen))
        return [i for i in pc.unique(ids).to_pylist() if i is not None]


def _dead_rows(deletes: EntryTable, attached: Numbers) -> Numbers:
    """For each pair the rows a delete file takes from one data file: those about several are shared out evenly."""
    fanout = np.maximum(np.bincount(attached, minlength=len(deletes)), 1)
    by_position = deletes.numpy("content") == Content.POSITION_DELETES
    return np.asarray(np.where(by_position, deletes.numpy("record_count") / fanout, 0.0)[attached])

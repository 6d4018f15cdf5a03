"""Tally the rows that a statement changes, by file and clause, compressed so that it fits into the driver's memory.

A task adds the rows that pass through it, and returns a small table with one row per file. The driver unites the
tallies of all tasks. The result has the positions to remove, the number of rows per clause, and the files in which a
row was matched twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.io.deletion_vectors import PositionSet, decode_vector

# The columns of a row to be changed, in addition to those of the table.
FILE_COLUMN = "__neve_file"  # the number of its file in the plan; null: a new row
POSITION_COLUMN = "__neve_pos"
CLAUSE_COLUMN = "__neve_clause"  # the clause that applies to it
CHANGE_COLUMNS = (FILE_COLUMN, POSITION_COLUMN, CLAUSE_COLUMN)
SOURCE_COLUMN = "__neve_source"  # the number of the matching source row; only if requested

_MAX_UNCOMPRESSED_ROWS = 4 << 20  # positions in memory before they are compressed
_NEW_ROWS, _SOURCE_ROWS = -1, -2  # instead of a file number: rows without a file, and the rows of a source
_SCHEMA = pa.schema(
    [("file", pa.int32()), ("gone", pa.binary()), ("idle", pa.binary()), ("rows", pa.list_(pa.int64()))]
)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Effects:
    """The effect of each clause of a statement on a row, by the number of the clause."""

    removes: tuple[bool, ...]  # the row is removed from its file
    writes: tuple[bool, ...]  # a row is written

    def __len__(self) -> int:
        return len(self.removes)


@dataclass(frozen=True)
class _MatchedRows:
    """The rows of one file that a statement matched."""

    removed_positions: PositionSet = field(default_factory=PositionSet)
    unchanged_positions: PositionSet = field(default_factory=PositionSet)  # matched, but not removed
    rows_by_clause: tuple[int, ...] = ()

    @property
    def is_ambiguous(self) -> bool:
        """True if a row was matched more than once."""
        return sum(self.rows_by_clause) > self.removed_positions.union(self.unchanged_positions).cardinality

    def union(self, other: _MatchedRows) -> _MatchedRows:
        rows = other.rows_by_clause
        if self.rows_by_clause:
            rows = tuple(a + b for a, b in zip(self.rows_by_clause, rows, strict=True))
        return _MatchedRows(
            self.removed_positions.union(other.removed_positions),
            self.unchanged_positions.union(other.unchanged_positions),
            rows,
        )


@dataclass(frozen=True)
class Tally:
    """The changes of a statement by file; files are numbered as in the plan."""

    rows_by_file: dict[int, _MatchedRows]
    clause_count: int

    @classmethod
    def from_tables(cls, parts: Iterable[pa.Table], clauses: int) -> Tally:
        """Unite the tallies of all tasks."""
        by_file: dict[int, _MatchedRows] = defaultdict(_MatchedRows)
        for part in parts:
            for file, removed, unchanged, rows in zip(*(part[name].to_pylist() for name in _SCHEMA.names), strict=True):
                matched = _MatchedRows(_decode_positions(removed), _decode_positions(unchanged), tuple(rows))
                by_file[file] = by_file[file].union(matched)
        return cls(dict(by_file), clauses)

    @property
    def rows_by_clause(self) -> tuple[int, ...]:
        """The number of rows that each clause applied to."""
        counts = [m.rows_by_clause for m in self.rows_by_file.values()]
        return tuple(int(n) for n in np.sum(counts, axis=0)) if counts else (0,) * self.clause_count

    @property
    def removed_positions(self) -> dict[int, PositionSet]:
        """The positions to remove, of each file that loses rows, in the order of the plan."""
        by_file = {file: m.removed_positions for file, m in sorted(self.rows_by_file.items()) if file >= 0}
        return {file: positions for file, positions in by_file.items() if positions.cardinality}

    @property
    def has_new_rows(self) -> bool:
        """True if there are rows that are in no file yet."""
        return _NEW_ROWS in self.rows_by_file

    @property
    def matched_source_rows(self) -> PositionSet:
        """The numbers of the source rows that matched, if the rows had a `SOURCE_COLUMN`."""
        return self.rows_by_file.get(_SOURCE_ROWS, _MatchedRows()).unchanged_positions

    def ambiguous_files(self) -> list[int]:
        """Return the files in which a row was matched more than once."""
        return sorted(file for file, m in self.rows_by_file.items() if file >= 0 and m.is_ambiguous)

    def union(self, other: Tally) -> Tally:
        """Unite two tallies."""
        own = self.rows_by_file
        united = {file: own.get(file, _MatchedRows()).union(m) for file, m in other.rows_by_file.items()}
        return Tally({**own, **united}, self.clause_count)


class TallyBuilder:
    """Counts the rows that pass through one task."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._removes = np.array(effects.removes, bool)
        self._uncompressed: list[list[Ints]] = []  # the numbers of files, positions and clauses of each batch
        self._rows = 0
        self._by_file: dict[int, _MatchedRows] = defaultdict(_MatchedRows)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch that has the columns of `CHANGE_COLUMNS`."""
        columns = (batch.column(name).fill_null(_NEW_ROWS) for name in CHANGE_COLUMNS)
        self._uncompressed.append([np.asarray(c.to_numpy(zero_copy_only=False), np.int64) for c in columns])
        if SOURCE_COLUMN in batch.schema.names:
            numbers = PositionSet.of(batch.column(SOURCE_COLUMN).drop_null())
            matched = _MatchedRows(unchanged_positions=numbers, rows_by_clause=(0,) * len(self._effects))
            self._by_file[_SOURCE_ROWS] = self._by_file[_SOURCE_ROWS].union(matched)
        self._rows += batch.num_rows
        if self._rows >= _MAX_UNCOMPRESSED_ROWS:
            self._compress()

    def table(self) -> pa.Table:
        """Return the tally, one row per file."""
        self._compress()
        files = sorted(self._by_file)
        columns = [
            files,
            [_encode_positions(self._by_file[f].removed_positions) for f in files],
            [_encode_positions(self._by_file[f].unchanged_positions) for f in files],
            [list(self._by_file[f].rows_by_clause) for f in files],
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)

    def _compress(self) -> None:
        if not self._rows:
            return
        files, positions, clauses = (np.concatenate(parts) for parts in zip(*self._uncompressed, strict=True))
        order = np.argsort(files, kind="stable")
        numbers, starts = np.unique(files[order], return_index=True)
        for file, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            rows_by_clause = tuple(np.bincount(clauses[rows], minlength=len(self._effects)).tolist())
            matched = _MatchedRows(rows_by_clause=rows_by_clause)
            if file != _NEW_ROWS:
                is_removed = self._removes[clauses[rows]]
                removed, unchanged = positions[rows[is_removed]], positions[rows[~is_removed]]
                matched = _MatchedRows(PositionSet.of(removed), PositionSet.of(unchanged), rows_by_clause)
            self._by_file[file] = self._by_file[file].union(matched)
        self._uncompressed, self._rows = [], 0


def _encode_positions(positions: PositionSet) -> bytes | None:
    return positions.encode() if positions.cardinality else None


def _decode_positions(data: bytes | None) -> PositionSet:
    return PositionSet() if data is None else decode_vector(data, "the tally of a task")

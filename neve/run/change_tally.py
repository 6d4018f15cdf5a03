"""Which rows of which files a statement met, and what it did to them: compressed, so that it fits the driver.

A task adds the rows that pass through it; what it found travels as a small table, one row per file. United on the
driver, the tallies of all tasks say which positions go, how many rows each clause changed, and whether a row was met
twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.io.deletion_vectors import PositionSet, decode_vector

# The columns of a row on its way to be changed, beside those of the table.
FILE_COLUMN = "__neve_file"  # the place of its file in the plan; null: a new row
POSITION_COLUMN = "__neve_pos"
CLAUSE_COLUMN = "__neve_clause"  # the clause that applies to it
CHANGE_COLUMNS = (FILE_COLUMN, POSITION_COLUMN, CLAUSE_COLUMN)
SOURCE_COLUMN = "__neve_source"  # the number of the source row it is paired with; only where that is asked for

_MAX_UNCOMPRESSED_ROWS = 4 << 20  # positions held uncompressed at once
_NEW_ROWS, _SOURCE_ROWS = -1, -2  # in place of files: rows without one, and the rows of a source
_SCHEMA = pa.schema(
    [("file", pa.int32()), ("gone", pa.binary()), ("idle", pa.binary()), ("rows", pa.list_(pa.int64()))]
)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Effects:
    """What each clause of a statement does to a row, by the number of the clause."""

    removes: tuple[bool, ...]  # the row leaves its file
    writes: tuple[bool, ...]  # a row is written

    def __len__(self) -> int:
        return len(self.removes)


@dataclass(frozen=True)
class _MatchedRows:
    """The rows of one file that a statement met."""

    removed_positions: PositionSet = field(default_factory=PositionSet)  # positions that leave the file
    unchanged_positions: PositionSet = field(default_factory=PositionSet)  # positions that were matched and stay
    rows_by_clause: tuple[int, ...] = ()  # by clause

    @property
    def is_ambiguous(self) -> bool:
        """Whether a row was met more than once."""
        return sum(self.rows_by_clause) > self.removed_positions.union(self.unchanged_positions).cardinality

    def union(self, other: _MatchedRows) -> _MatchedRows:
        rows = (
            tuple(a + b for a, b in zip(self.rows_by_clause, other.rows_by_clause, strict=True))
            if self.rows_by_clause
            else other.rows_by_clause
        )
        return _MatchedRows(
            self.removed_positions.union(other.removed_positions),
            self.unchanged_positions.union(other.unchanged_positions),
            rows,
        )


@dataclass(frozen=True)
class Tally:
    """What a statement did, file by file; files by their place in the plan."""

    rows_by_file: dict[int, _MatchedRows]
    clause_count: int

    @classmethod
    def from_tables(cls, parts: Iterable[pa.Table], clauses: int) -> Tally:
        """The tallies of all tasks as one."""
        met: dict[int, _MatchedRows] = defaultdict(_MatchedRows)
        for part in parts:
            for file, gone, idle, rows in zip(*(part[name].to_pylist() for name in _SCHEMA.names), strict=True):
                met[file] = met[file].union(_MatchedRows(_decode_positions(gone), _decode_positions(idle), tuple(rows)))
        return cls(dict(met), clauses)

    @property
    def rows_by_clause(self) -> tuple[int, ...]:
        """How many rows each clause applied to."""
        counts = [m.rows_by_clause for m in self.rows_by_file.values()]
        return tuple(int(n) for n in np.sum(counts, axis=0)) if counts else (0,) * self.clause_count

    @property
    def removed_positions(self) -> dict[int, PositionSet]:
        """The positions that leave each file that any leave, in the order of the plan."""
        return {
            file: m.removed_positions
            for file, m in sorted(self.rows_by_file.items())
            if file >= 0 and m.removed_positions.cardinality
        }

    @property
    def has_new_rows(self) -> bool:
        """Whether rows were met that belong to no file yet."""
        return _NEW_ROWS in self.rows_by_file

    @property
    def matched_source_rows(self) -> PositionSet:
        """The numbers of the source rows that were met, where rows tell."""
        return (
            self.rows_by_file[_SOURCE_ROWS].unchanged_positions if _SOURCE_ROWS in self.rows_by_file else PositionSet()
        )

    def ambiguous_files(self) -> list[int]:
        """The files a row of which was met more than once."""
        return sorted(file for file, m in self.rows_by_file.items() if file >= 0 and m.is_ambiguous)

    def union(self, other: Tally) -> Tally:
        """Both tallies as one."""
        met = {file: self.rows_by_file.get(file, _MatchedRows()).union(m) for file, m in other.rows_by_file.items()}
        return Tally({**self.rows_by_file, **met}, self.clause_count)


class TallyBuilder:
    """Counts the rows that pass through one task."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._removes = np.array(effects.removes, bool)
        self._held: list[tuple[Ints, Ints, Ints]] = []
        self._rows = 0
        self._met: dict[int, _MatchedRows] = defaultdict(_MatchedRows)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch that has the columns of `CHANGE_COLUMNS`."""
        file, position, clause = (_numbers(batch.column(name)) for name in CHANGE_COLUMNS)
        self._held.append((file, position, clause))
        if SOURCE_COLUMN in batch.schema.names:
            self._see(batch.column(SOURCE_COLUMN))
        self._rows += len(file)
        if self._rows >= _MAX_UNCOMPRESSED_ROWS:
            self._compress()

    def table(self) -> pa.Table:
        """What was counted, one row per file."""
        self._compress()
        files = sorted(self._met)
        columns = [
            files,
            [_encode_positions(self._met[f].removed_positions) for f in files],
            [_encode_positions(self._met[f].unchanged_positions) for f in files],
            [list(self._met[f].rows_by_clause) for f in files],
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)

    def _see(self, source: Any) -> None:
        seen = _MatchedRows(
            unchanged_positions=PositionSet.of(source.drop_null()), rows_by_clause=(0,) * len(self._effects)
        )
        self._met[_SOURCE_ROWS] = self._met[_SOURCE_ROWS].union(seen)

    def _compress(self) -> None:
        if not self._rows:
            return
        file, position, clause = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        for place, some in _rows_by_file(file):
            self._met[place] = self._met[place].union(self._matched_rows(place, position[some], clause[some]))
        self._held, self._rows = [], 0

    def _matched_rows(self, file: int, position: Ints, clause: Ints) -> _MatchedRows:
        rows = tuple(np.bincount(clause, minlength=len(self._effects)).tolist())
        if file == _NEW_ROWS:
            return _MatchedRows(rows_by_clause=rows)
        goes = self._removes[clause]
        return _MatchedRows(PositionSet.of(position[goes]), PositionSet.of(position[~goes]), rows)


def _rows_by_file(file: Ints) -> Iterator[tuple[int, NDArray[np.intp]]]:
    order = np.argsort(file, kind="stable")
    places, starts = np.unique(file[order], return_index=True)
    for place, some in zip(places, np.split(order, starts[1:]), strict=True):
        yield int(place), some


def _numbers(column: Any) -> Ints:
    return np.asarray(column.fill_null(_NEW_ROWS).to_numpy(zero_copy_only=False), np.int64)


def _encode_positions(positions: PositionSet) -> bytes | None:
    return positions.encode() if positions.cardinality else None


def _decode_positions(data: bytes | None) -> PositionSet:
    return PositionSet() if data is None else decode_vector(data, "a task's answer")

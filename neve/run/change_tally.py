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

from neve.io.deletion_vectors import PositionSet, decode

# The columns of a row on its way to be changed, beside those of the table.
FILE = "__neve_file"  # the place of its file in the plan; null: a new row
POSITION = "__neve_pos"
CLAUSE = "__neve_clause"  # the clause that applies to it
CHANGE_COLUMNS = (FILE, POSITION, CLAUSE)
SOURCE = "__neve_source"  # the number of the source row it is paired with; only where that is asked for

_FOLD_ROWS = 4 << 20  # positions held uncompressed at once
_NEW, _SOURCE = -1, -2  # in place of files: rows without one, and the rows of a source
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
class _Met:
    """The rows of one file that a statement met."""

    gone: PositionSet = field(default_factory=PositionSet)  # positions that leave the file
    idle: PositionSet = field(default_factory=PositionSet)  # positions that were matched and stay
    rows: tuple[int, ...] = ()  # by clause

    @property
    def is_ambiguous(self) -> bool:
        """Whether a row was met more than once."""
        return sum(self.rows) > self.gone.union(self.idle).cardinality

    def united(self, other: _Met) -> _Met:
        rows = tuple(a + b for a, b in zip(self.rows, other.rows, strict=True)) if self.rows else other.rows
        return _Met(self.gone.union(other.gone), self.idle.union(other.idle), rows)


@dataclass(frozen=True)
class Tally:
    """What a statement did, file by file; files by their place in the plan."""

    met: dict[int, _Met]
    clauses: int

    @classmethod
    def together(cls, parts: Iterable[pa.Table], clauses: int) -> Tally:
        """The tallies of all tasks as one."""
        met: dict[int, _Met] = defaultdict(_Met)
        for part in parts:
            for file, gone, idle, rows in zip(*(part[name].to_pylist() for name in _SCHEMA.names), strict=True):
                met[file] = met[file].united(_Met(_unpacked(gone), _unpacked(idle), tuple(rows)))
        return cls(dict(met), clauses)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each clause applied to."""
        counts = [m.rows for m in self.met.values()]
        return tuple(int(n) for n in np.sum(counts, axis=0)) if counts else (0,) * self.clauses

    @property
    def gone(self) -> dict[int, PositionSet]:
        """The positions that leave each file that any leave, in the order of the plan."""
        return {file: m.gone for file, m in sorted(self.met.items()) if file >= 0 and m.gone.cardinality}

    @property
    def has_new_rows(self) -> bool:
        """Whether rows were met that belong to no file yet."""
        return _NEW in self.met

    @property
    def seen(self) -> PositionSet:
        """The numbers of the source rows that were met, where rows tell."""
        return self.met[_SOURCE].idle if _SOURCE in self.met else PositionSet()

    def ambiguous_files(self) -> list[int]:
        """The files a row of which was met more than once."""
        return sorted(file for file, m in self.met.items() if file >= 0 and m.is_ambiguous)

    def united(self, other: Tally) -> Tally:
        """Both tallies as one."""
        met = {file: self.met.get(file, _Met()).united(m) for file, m in other.met.items()}
        return Tally({**self.met, **met}, self.clauses)


class TallyKeeper:
    """Counts the rows that pass through one task."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._removes = np.array(effects.removes, bool)
        self._held: list[tuple[Ints, Ints, Ints]] = []
        self._rows = 0
        self._met: dict[int, _Met] = defaultdict(_Met)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch that has the columns of `CHANGE_COLUMNS`."""
        file, position, clause = (_numbers(batch.column(name)) for name in CHANGE_COLUMNS)
        self._held.append((file, position, clause))
        if SOURCE in batch.schema.names:
            self._see(batch.column(SOURCE))
        self._rows += len(file)
        if self._rows >= _FOLD_ROWS:
            self._fold()

    def table(self) -> pa.Table:
        """What was counted, one row per file."""
        self._fold()
        files = sorted(self._met)
        columns = [
            files,
            [_packed(self._met[f].gone) for f in files],
            [_packed(self._met[f].idle) for f in files],
            [list(self._met[f].rows) for f in files],
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)

    def _see(self, source: Any) -> None:
        seen = _Met(idle=PositionSet.of(source.drop_null()), rows=(0,) * len(self._effects))
        self._met[_SOURCE] = self._met[_SOURCE].united(seen)

    def _fold(self) -> None:
        if not self._rows:
            return
        file, position, clause = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        for place, some in _by_file(file):
            self._met[place] = self._met[place].united(self._of(place, position[some], clause[some]))
        self._held, self._rows = [], 0

    def _of(self, file: int, position: Ints, clause: Ints) -> _Met:
        rows = tuple(np.bincount(clause, minlength=len(self._effects)).tolist())
        if file == _NEW:
            return _Met(rows=rows)
        goes = self._removes[clause]
        return _Met(PositionSet.of(position[goes]), PositionSet.of(position[~goes]), rows)


def _by_file(file: Ints) -> Iterator[tuple[int, NDArray[np.intp]]]:
    order = np.argsort(file, kind="stable")
    places, starts = np.unique(file[order], return_index=True)
    for place, some in zip(places, np.split(order, starts[1:]), strict=True):
        yield int(place), some


def _numbers(column: Any) -> Ints:
    return np.asarray(column.fill_null(_NEW).to_numpy(zero_copy_only=False), np.int64)


def _packed(positions: PositionSet) -> bytes | None:
    return positions.encode() if positions.cardinality else None


def _unpacked(data: bytes | None) -> PositionSet:
    return PositionSet() if data is None else decode(data, "a task's answer")

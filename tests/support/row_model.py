"""A table as plain Python: columns, rows, and what statements make of them.

The model never looks at the table to learn what a statement did. Only row ids come from there: a row that is new to the
model is bound to the id that the table gave it, and must keep it from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from tests.support.expressions import Expression
from tests.support.spark_oracle import plain
from tests.support.text_rows import arrow_type

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"

Values = dict[str, Any]


class Ambiguous(Exception):
    """A row of the table matches several rows of a source: the statement must be refused."""


@dataclass(frozen=True)
class ColumnDef:
    """A column: `key` stays when it is renamed, `default` is what rows written before it was added have in it."""

    name: str
    kind: str
    key: int
    default: Any = None


@dataclass
class Line:
    """A row and its lineage: the id it has, and the number of the commit that changed it last."""

    values: Values
    row_id: int | None = None
    number: int | None = None
    is_changed: bool = True  # by the latest statement


@dataclass(frozen=True)
class Clause:
    """One WHEN clause of a MERGE; `assignments` are None for a delete, and `is_all` takes every column by name."""

    kind: str  # matched, not matched, not matched by source
    condition: Expression | None = None
    assignments: Mapping[str, Expression] | None = None
    is_all: bool = False

    @property
    def is_delete(self) -> bool:
        return self.assignments is None and not self.is_all

    def applies(self, row: Mapping[str, Any]) -> bool:
        return self.condition is None or self.condition.of(row) is True


@dataclass
class Model:
    """The rows a table must hold."""

    columns: tuple[ColumnDef, ...]
    lines: list[Line] = field(default_factory=list)
    retired: set[int] = field(default_factory=set)  # ids of rows that are gone: no other row may have them

    # --- statements ---

    def append(self, rows: Iterable[Values]) -> None:
        self.lines += [Line(dict(row)) for row in rows]

    def update(self, assignments: Mapping[str, Expression], where: Expression | None) -> None:
        for line in self.lines:
            if where is None or where.of(line.values) is True:
                self._assign(line, {name: new.of(line.values) for name, new in assignments.items()})

    def delete(self, where: Expression | None) -> None:
        self._keep(lambda line: where is not None and where.of(line.values) is not True)

    def merge(self, source: Sequence[Values], on: Expression, clauses: Sequence[Clause]) -> None:
        """Apply the first fitting clause to every pair, and to every row without a partner, as all were before."""
        pairs = [(line, row) for line in self.lines for row in source if on.of(_both(line.values, row)) is True]
        matched = [c for c in clauses if c.kind == "matched"]
        deletes_all = len(matched) == 1 and matched[0].is_delete and matched[0].condition is None
        if matched and not deletes_all and max(Counter(id(line) for line, _ in pairs).values(), default=0) > 1:
            raise Ambiguous
        met_lines, met_rows = {id(line) for line, _ in pairs}, {id(row) for _, row in pairs}
        inserted = [new for row in source if id(row) not in met_rows for new in self._inserted(row, clauses)]
        partners = {id(line): row for line, row in pairs}
        alone = [c for c in clauses if c.kind == "not matched by source"]
        gone = {
            id(line)
            for line in self.lines
            if self._changed(line, partners.get(id(line), {}), matched if id(line) in met_lines else alone)
        }
        self._keep(lambda line: id(line) not in gone)
        self.append(inserted)

    def _inserted(self, row: Values, clauses: Sequence[Clause]) -> list[Values]:
        seen = _both({}, row)
        for clause in clauses:
            if clause.kind == "not matched" and clause.applies(seen):
                if clause.is_all:
                    return [{c.name: row[c.name] for c in self.columns}]
                given = clause.assignments or {}
                return [{c.name: given[c.name].of(seen) if c.name in given else c.default for c in self.columns}]
        return []

    def _changed(self, line: Line, partner: Values, clauses: Sequence[Clause]) -> bool:
        """Change a row by the first clause that applies; whether it is deleted."""
        seen = _both(line.values, partner)
        for clause in clauses:
            if clause.applies(seen):
                if clause.is_all:
                    self._assign(line, {c.name: partner[c.name] for c in self.columns})
                elif clause.assignments is not None:
                    self._assign(line, {name: new.of(seen) for name, new in clause.assignments.items()})
                return clause.is_delete
        return False

    def _assign(self, line: Line, new: Values) -> None:
        line.values = {**line.values, **new}
        line.is_changed = True

    def _keep(self, stays: Callable[[Line], bool]) -> None:
        kept = [line for line in self.lines if stays(line)]
        there = {line.row_id for line in kept}
        self.retired |= {line.row_id for line in self.lines if line.row_id is not None} - there
        self.lines = kept

    # --- columns ---

    def rename(self, old: str, new: str) -> None:
        self.columns = tuple(replace(c, name=new) if c.name == old else c for c in self.columns)
        for line in self.lines:
            line.values = {new if name == old else name: value for name, value in line.values.items()}

    def add(self, column: ColumnDef) -> None:
        self.columns = (*self.columns, column)
        for line in self.lines:
            line.values[column.name] = column.default

    def drop(self, name: str) -> None:
        self.columns = tuple(c for c in self.columns if c.name != name)
        for line in self.lines:
            del line.values[name]

    def promote(self, name: str, kind: str) -> None:
        self.columns = tuple(replace(c, kind=kind) if c.name == name else c for c in self.columns)
        for line in self.lines:
            line.values[name] = promoted(line.values[name], kind)

    # --- what the table must show ---

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def arrow(self) -> pa.Table:
        """The rows in the types of the columns."""
        arrays = [pa.array([line.values[c.name] for line in self.lines], arrow_type(c.kind)) for c in self.columns]
        return pa.table(arrays, pa.schema([(c.name, arrow_type(c.kind)) for c in self.columns]))

    def settled(self) -> None:
        """Nothing is changed by a statement that has not come yet."""
        for line in self.lines:
            line.is_changed = False

    def bind(self, found: Sequence[Values], commit: int | None) -> str:
        """Check the lineage of rows the table shows; what is wrong with it in words, or nothing.

        `found` are rows with lineage columns that were compared by value before; `commit` is the sequence number of
        the snapshot the latest statement made, if it made one.
        """
        ids = [row[ROW_ID] for row in found]
        if all(i is None for i in ids):  # an upgraded table gives ids with its next commit
            known = [line.row_id for line in self.lines if line.row_id is not None]
            return f"rows lost their ids {known}" if known or (commit is not None and found) else ""
        if None in ids or len(set(ids)) < len(ids):
            return f"row ids are missing or given twice: {sorted(ids, key=repr)}"
        return self._bound({row[ROW_ID]: row for row in found}, commit)

    def _bound(self, found: dict[int, Values], commit: int | None) -> str:
        known = [line for line in self.lines if line.row_id is not None]
        for line in known:
            row = found.pop(line.row_id or 0, None)
            if row is None or _text(row, self.names) != _text(line.values, self.names):
                return f"row {line.row_id} was {line.values}, but the table has {row} under that id"
            if (wrong := _wrong_number(line, row[LAST_UPDATED], commit)) is not None:
                return wrong
            line.number = row[LAST_UPDATED]
        if old := found.keys() & self.retired:
            return f"new rows have the ids {sorted(old)} of rows that are gone"
        new = sorted((line for line in self.lines if line.row_id is None), key=lambda line: line.is_changed)
        for line in new:
            if (wrong := self._take_id(line, found, commit)) is not None:
                return wrong
        return ""

    def _take_id(self, line: Line, found: dict[int, Values], commit: int | None) -> str | None:
        """Give a row the id of a row of equal values; which of several equal rows it is makes no difference."""
        wanted = _text(line.values, self.names)
        fitting = [i for i, row in found.items() if _text(row, self.names) == wanted]
        at = min(fitting, key=lambda i: found[i][LAST_UPDATED] or 0)
        line.row_id, line.number = at, found.pop(at)[LAST_UPDATED]
        if line.is_changed and line.number != commit:
            return f"row {at} is new, but its number is {line.number} and not {commit}"
        return None


def _wrong_number(line: Line, number: int | None, commit: int | None) -> str | None:
    wanted = commit if line.is_changed else line.number
    if number == wanted:
        return None
    return f"row {line.row_id} {'changed' if line.is_changed else 'did not change'}: number {number}, expected {wanted}"


def _both(line: Values, row: Values) -> Values:
    return {**{f"t.{k}": v for k, v in line.items()}, **{f"s.{k}": v for k, v in row.items()}}


def _text(row: Values, names: Sequence[str]) -> str:
    return repr([plain(row[name]) for name in names])


def promoted(value: Any, kind: str) -> Any:
    """A value in the wider type its column has got."""
    if kind == "timestamp_ntz" and isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time())
    return value

"""Evaluate predicates with column statistics: which files may hold a matching row, and which hold only matching rows.

The counts and bounds of a file are lists of (field id, value). They are read as one typed column per field of the
predicate, so a few column operations evaluate a million files.

A missing, negative or corrupt statistic counts as unknown: the file may match, but a match is not proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.types import DateType, DoubleType, FloatType, NestedField, UUIDType

from neve.model.values import decode_comparable, to_comparable
from neve.plan import ranges
from neve.plan.ranges import FieldRange, Mask, safe_uuid_bounds
from neve.tree.entries import EntryTable, statistic_column

STATISTICS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def may_match(entries: EntryTable, bound: BooleanExpression) -> Mask:
    """Return in which files some row may satisfy a bound predicate in normal form; an empty file never matches."""
    rows = _record_counts(entries)
    return (rows != 0) & ranges.may_match(FileRanges(entries), bound)


def must_match(entries: EntryTable, bound: BooleanExpression) -> Mask:
    """Return in which files every row satisfies a bound predicate in normal form; an empty file always matches."""
    rows = _record_counts(entries)
    return (rows == 0) | ((rows > 0) & ranges.must_match(FileRanges(entries), bound))


def values_of_field(column: Any, field_id: int) -> pa.Array:
    """Return the value of one field from each list of (field id, value), or null."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    values = [_values_of_field_in_chunk(chunk, field_id) for chunk in chunks]
    return pa.concat_arrays(values) if values else pa.nulls(0, column.type.value_type.field("value").type)


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The statistics of tracked files as ranges; a statistic that was not read is unknown."""

    entries: EntryTable

    def __len__(self) -> int:
        return len(self.entries)

    def of(self, field: NestedField) -> FieldRange:
        """Return the range of one column in each file."""
        rows = _record_counts(self.entries)
        values, nulls, nans = (self._count(name, field.field_id) for name in STATISTICS[:3])
        if not isinstance(field.field_type, FloatType | DoubleType):
            nans = np.zeros(len(self), np.int64)
        lower, upper = (self._bound(name, field, rows >= 0) for name in STATISTICS[3:])
        if isinstance(field.field_type, UUIDType):
            lower, upper = safe_uuid_bounds(lower, upper)
        # Only nulls and NaNs if the counts add up. A value count of 0 comes from writers that did not count.
        only_null_or_nan = (values > 0) & (np.maximum(nulls, 0) + np.maximum(nans, 0) == values)
        may_hold = (nulls != 0, nans != 0, ~only_null_or_nan)
        return FieldRange(lower, upper, *((rows < 0) | ((rows > 0) & mask) for mask in may_hold))

    def _count(self, name: str, field_id: int) -> np.ndarray[Any, Any]:
        """Return a count of each file, or -1 if unknown."""
        counts = self._statistic(name, field_id)
        if counts is None:
            return np.full(len(self), -1, np.int64)
        return np.asarray(np.maximum(counts.fill_null(-1).to_numpy(zero_copy_only=False), -1), np.int64)

    def _statistic(self, name: str, field_id: int) -> pa.Array | None:
        """Return a statistic of one column in each file, typed or in bytes as it was read; None if it was not read."""
        typed = statistic_column(name, field_id)
        if self.entries.has(typed):
            return self.entries[typed].combine_chunks()
        return values_of_field(self.entries[name], field_id) if self.entries.has(name) else None

    def _bound(self, name: str, field: NestedField, trusted: Mask) -> pa.Array:
        bound = self._statistic(name, field.field_id)
        if bound is None:
            return decode_comparable(pa.nulls(len(self), pa.binary()), field.field_type)
        is_typed = self.entries.has(statistic_column(name, field.field_id))
        if is_typed and isinstance(field.field_type, DateType) and pa.types.is_timestamp(bound.type):
            bound = bound.cast(pa.date32(), safe=False)  # the column was promoted after the schema of this read
        values = (to_comparable if is_typed else decode_comparable)(bound, field.field_type)
        return values if trusted.all() else pc.if_else(pa.array(trusted), values, pa.scalar(None, values.type))


def _record_counts(entries: EntryTable) -> np.ndarray[Any, Any]:
    """Return the row count of each file, or -1 if unknown: old imports of Avro files did not count."""
    return np.asarray(entries["record_count"].fill_null(-1).to_numpy(), np.int64)


def _values_of_field_in_chunk(lists: pa.Array, field_id: int) -> pa.Array:
    offsets = lists.offsets.to_numpy()
    keys = lists.values.field("key").to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    hits = np.flatnonzero(keys == field_id) + offsets[0]
    rows = np.searchsorted(offsets, hits, side="right") - 1
    index = np.full(len(lists), -1, np.int64)
    index[rows] = hits
    index[lists.is_null().to_numpy(zero_copy_only=False)] = -1
    return lists.values.field("value").take(pa.array(index, mask=index < 0))

"""Files judged by their column statistics: which may hold a matching row, and which hold nothing else.

The counts and bounds of a file are lists of (field id, value). They are read as one typed column per field a predicate
names, so a million files are judged by a handful of column operations.

A statistic that is missing, negative or corrupt is not known: the file may match, and it need not.
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
    """The files in which some row may satisfy a predicate bound in normal form; an empty file has no row."""
    rows = _record_counts(entries)
    return (rows != 0) & ranges.may_match(FileRanges(entries), bound)


def must_match(entries: EntryTable, bound: BooleanExpression) -> Mask:
    """The files in which every row satisfies a predicate bound in normal form; in an empty file every row does."""
    rows = _record_counts(entries)
    return (rows == 0) | ((rows > 0) & ranges.must_match(FileRanges(entries), bound))


def values_of_field(column: Any, field_id: int) -> pa.Array:
    """The value each list of (field id, value) has for one field; null where it has none."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_values_of_field_in_chunk(chunk, field_id) for chunk in chunks]
    return pa.concat_arrays(found) if found else pa.nulls(0, column.type.value_type.field("value").type)


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The statistics of tracked files as ranges; a statistic that was not read is not known."""

    entries: EntryTable

    def __len__(self) -> int:
        return len(self.entries)

    def of(self, field: NestedField) -> FieldRange:
        """The range of one column in each file."""
        rows = _record_counts(self.entries)
        values, nulls, nans = (self._count(name, field.field_id) for name in STATISTICS[:3])
        if not isinstance(field.field_type, FloatType | DoubleType):
            nans = np.zeros(len(self), np.int64)
        lower, upper = self._bounds(field, rows >= 0)
        # only nulls and NaNs when the counts add up; a count of no values comes from writers that did not count
        filled = (values > 0) & (np.maximum(nulls, 0) + np.maximum(nans, 0) == values)
        some, unknown = rows > 0, rows < 0
        return FieldRange(lower, upper, *(unknown | (some & mask) for mask in (nulls != 0, nans != 0, ~filled)))

    def _count(self, name: str, field_id: int) -> np.ndarray[Any, Any]:
        """A count of each file, -1 where it is not known."""
        found = self._statistic(name, field_id)
        if found is None:
            return np.full(len(self), -1, np.int64)
        return np.asarray(np.maximum(found.fill_null(-1).to_numpy(zero_copy_only=False), -1), np.int64)

    def _statistic(self, name: str, field_id: int) -> pa.Array | None:
        """A statistic of one column in each file, typed or in bytes as it was read; None when it was not."""
        alone = statistic_column(name, field_id)
        if self.entries.has(alone):
            return self.entries[alone].combine_chunks()
        return values_of_field(self.entries[name], field_id) if self.entries.has(name) else None

    def _bounds(self, field: NestedField, trusted: Mask) -> tuple[pa.Array, pa.Array]:
        lower, upper = (self._bound(name, field, trusted) for name in STATISTICS[3:])
        return safe_uuid_bounds(lower, upper) if isinstance(field.field_type, UUIDType) else (lower, upper)

    def _bound(self, name: str, field: NestedField, trusted: Mask) -> pa.Array:
        known = self._statistic(name, field.field_id)
        if known is None:
            return decode_comparable(pa.nulls(len(self), pa.binary()), field.field_type)
        is_typed = self.entries.has(statistic_column(name, field.field_id))
        if is_typed and isinstance(field.field_type, DateType) and pa.types.is_timestamp(known.type):
            known = known.cast(pa.date32(), safe=False)  # the column was promoted since the schema that is asked
        found = (to_comparable if is_typed else decode_comparable)(known, field.field_type)
        return found if trusted.all() else pc.if_else(pa.array(trusted), found, pa.scalar(None, found.type))


def _record_counts(entries: EntryTable) -> np.ndarray[Any, Any]:
    """The rows of each file, -1 where they are not known: old imports of Avro files did not count."""
    return np.asarray(entries["record_count"].fill_null(-1).to_numpy(), np.int64)


def _values_of_field_in_chunk(lists: pa.Array, field_id: int) -> pa.Array:
    offsets = lists.offsets.to_numpy()
    keys = lists.values.field("key").to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
    hits = np.flatnonzero(keys == field_id) + offsets[0]
    rows = np.searchsorted(offsets, hits, side="right") - 1
    place = np.full(len(lists), -1, np.int64)
    place[rows] = hits
    place[lists.is_null().to_numpy(zero_copy_only=False)] = -1
    return lists.values.field("value").take(pa.array(place, mask=place < 0))

"""The column `readable_metrics`: the statistics of files as typed values, by the names of the table's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from neve.model.pyiceberg_private import fields_by_id
from neve.model.v3_types import GEO_TYPES, VariantType
from neve.model.values import combine_chunks, decode_values_exactly
from neve.run.read.conversions import conversion
from neve.run.read.types import ArrowFlavor, arrow_type
from neve.tree.entries import EntryTable

_COUNTS = {
    "column_size": "column_sizes",
    "value_count": "value_counts",
    "null_value_count": "null_value_counts",
    "nan_value_count": "nan_value_counts",
}
_BOUNDS = {"lower_bound": "lower_bounds", "upper_bound": "upper_bounds"}
_Ints = np.ndarray[Any, np.dtype[np.int64]]
_NOT_DECODED = GEO_TYPES | VariantType
_FILES_AT_ONCE = 1 << 14  # the bounds of so many files of a wide table fit into one Arrow array


def readable_metrics(files: EntryTable, schema: Schema, flavor: ArrowFlavor) -> pa.ChunkedArray:
    """Return a struct for each file, with a struct of statistics for each primitive column, sorted by name."""
    primitive = {i: f.field_type for i, f in fields_by_id(schema).items() if f.field_type.is_primitive}
    named = {str(schema.find_column_name(i)): (i, kind) for i, kind in primitive.items()}
    columns = {name: named[name] for name in sorted(named, key=_java_order)}
    details = files.columns.select([*_COUNTS.values(), *_BOUNDS.values()])
    starts = range(0, max(len(files), 1), _FILES_AT_ONCE)
    return pa.chunked_array(
        [_metrics_of(details.slice(at, _FILES_AT_ONCE).combine_chunks(), columns, flavor) for at in starts]
    )


def _java_order(name: str) -> bytes:
    """Return a key that sorts names as Java does, by their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _metrics_of(
    details: pa.Table, columns: Mapping[str, tuple[int, ice.IcebergType]], flavor: ArrowFlavor
) -> pa.StructArray:
    by_field = {name: _ValuesByField.of(details[name]) for name in details.column_names}
    structs = []
    for field_id, kind in columns.values():
        values = {metric: by_field[detail].values_of(field_id) for metric, detail in _COUNTS.items()}
        for metric, detail in _BOUNDS.items():
            values[metric] = _decode_bounds(by_field[detail].values_of(field_id), kind, flavor)
        structs.append(pa.StructArray.from_arrays(list(values.values()), names=list(values)))
    return pa.StructArray.from_arrays(structs, names=list(columns))


def _decode_bounds(bounds: pa.Array, kind: ice.IcebergType, flavor: ArrowFlavor) -> pa.Array:
    if isinstance(kind, _NOT_DECODED):
        return bounds
    if isinstance(kind, ice.UnknownType):
        return pa.nulls(len(bounds), arrow_type(kind, flavor))
    values = decode_values_exactly(bounds, kind)
    convert = conversion(values.type, kind, flavor)
    return values if convert is None else convert(values)


@dataclass(frozen=True)
class _ValuesByField:
    """Lists of pairs of field id and value, sorted by field once, so that each field is found at once."""

    pairs: pa.StructArray
    field_ids: _Ints  # of all pairs, ascending
    pair_numbers: _Ints  # of the same pairs
    rows: _Ints  # the list that each pair is in, by the number of the pair
    row_count: int

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> _ValuesByField:
        lists = combine_chunks(column)
        lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        pairs = lists.flatten()  # without those of null lists
        keys = pairs.field("key").to_numpy(zero_copy_only=False)
        order = np.argsort(keys, kind="stable")
        return cls(pairs, keys[order], order, np.repeat(np.arange(len(lists)), lengths), len(lists))

    def values_of(self, field_id: int) -> pa.Array:
        """Return the value of a field in each list, or null."""
        start, end = np.searchsorted(self.field_ids, [field_id, field_id + 1])
        numbers = self.pair_numbers[start:end]
        chosen = np.full(self.row_count, -1, np.int64)
        chosen[self.rows[numbers]] = numbers
        return self.pairs.field("value").take(pa.array(chosen, mask=chosen < 0))

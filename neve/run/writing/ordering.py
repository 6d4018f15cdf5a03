"""Rows in a table's sort order, for writes that need no Spark.

NaN is greater than every number, as in Spark and in Iceberg.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder

from neve.run.writing.partitioning import apply_transform, column_at

__all__ = ["sorted_rows"]

Key = tuple[pa.Array, str]


def sorted_rows(rows: pa.RecordBatch, schema: Schema, order: SortOrder) -> pa.RecordBatch:
    """The rows sorted by a sort order."""
    if not order.fields or rows.num_rows < 2:
        return rows
    keys = [key for field in order.fields for key in _keys(rows, schema, field)]
    table = pa.table([values for values, _ in keys], names=[str(at) for at in range(len(keys))])
    wanted = [(str(at), direction) for at, (_, direction) in enumerate(keys)]
    return rows.take(pc.sort_indices(table, sort_keys=wanted))


def _keys(rows: pa.RecordBatch, schema: Schema, field: SortField) -> list[Key]:
    """A sort field as plain keys: nulls and NaNs have keys of their own, since Arrow puts both at one end."""
    source = column_at(rows, schema, field.source_id)
    values = apply_transform(field.transform, schema.find_type(field.source_id), source)
    direction = "descending" if field.direction == SortDirection.DESC else "ascending"
    keys = [(values.is_null(), "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending")]
    if pa.types.is_floating(values.type):
        keys.append((pc.fill_null(pc.is_nan(values), False), direction))
    sortable = values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
    return [*keys, (sortable, direction)]

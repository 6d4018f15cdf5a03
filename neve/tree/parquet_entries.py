"""Read Parquet manifests whose rows are entries of an older version, as some writers of version 4 tables write them.

The rows are those of an Avro manifest and have the same field ids. Here they get their Avro names back, so that the
reader of Avro manifests can read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from neve.io.avro import ALL_FIELDS, Projection
from neve.io.parquet_by_field_id import IdTable
from neve.tree.avro_schemas import data_file_field_names, entry_field_names

_FILE = 2
_PARTITION = 102


@dataclass(frozen=True, slots=True)
class ParquetEntries:
    """A Parquet manifest with the interface of an Avro file."""

    table: IdTable

    def decode(self, projection: Projection = ALL_FIELDS, backend: Any = None, rows: Any = None) -> pa.RecordBatch:
        """Return the projected fields of all entries, or of the given rows, by their Avro names."""
        outer = {i: name for i, name in entry_field_names().items() if _is_projected(projection, name)}
        names = data_file_field_names().items()
        inner = {i: name for i, name in names if _is_projected(projection, f"data_file.{name}")}
        by_path = self.table.read([*((i,) for i in outer), *((_FILE, i) for i in inner)], rows)
        columns = {name: by_path[(i,)] for i, name in outer.items() if (i,) in by_path}
        files = {name: _as_avro(by_path[_FILE, i], i) for i, name in inner.items() if (_FILE, i) in by_path}
        if files:
            columns["data_file"] = pa.StructArray.from_arrays(list(files.values()), names=list(files))
        elif self.table.has((_FILE,)):
            columns["data_file"] = pa.StructArray.from_buffers(pa.struct([]), self.table.rows, [None])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _is_projected(projection: Projection, name: str) -> bool:
    return projection.fields is None or not projection.fields.isdisjoint({name, name.split(".", maxsplit=1)[0]})


def _as_avro(values: pa.Array, field_id: int) -> pa.Array:
    """Return a column as the Avro decoder would: maps as lists of pairs, field ids of tuples under the Avro key."""
    if pa.types.is_map(values.type):
        pairs = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
        return pa.ListArray.from_arrays(values.offsets, pairs, mask=values.is_null() if values.null_count else None)
    if field_id == _PARTITION and pa.types.is_struct(values.type):
        fields = [f.with_metadata({b"field-id": _field_id(f)}) if _field_id(f) else f for f in values.type]
        return pa.StructArray.from_arrays([values.field(i) for i in range(len(fields))], fields=fields)
    return values


def _field_id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(b"PARQUET:field_id")

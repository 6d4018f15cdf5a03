"""Entries of older versions in Parquet: what some writers of version 4 tables put into their manifests.

The rows are those of an Avro manifest, found by the same field ids; the names are given back here, so that the reader
of Avro manifests reads them too.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """A manifest of entries in Parquet, decoded as an Avro file is."""

    table: IdTable

    def decode(self, projection: Projection = ALL_FIELDS, backend: Any = None, rows: Any = None) -> pa.RecordBatch:
        """The projected fields of all entries, or of those with the numbers given, by their Avro names."""
        outer = {i: name for i, name in entry_field_names().items() if _is_projected(projection, name)}
        inner = {
            i: name for i, name in data_file_field_names().items() if _is_projected(projection, f"data_file.{name}")
        }
        paths = [*((i,) for i in outer), *((_FILE, i) for i in inner)]
        found = self.table.read(paths, rows)
        columns = {name: found[(i,)] for i, name in outer.items() if (i,) in found}
        files = {name: _as_avro(found[_FILE, i], i) for i, name in inner.items() if (_FILE, i) in found}
        if files:
            columns["data_file"] = _struct(files.items())
        elif self.table.has((_FILE,)):
            columns["data_file"] = pa.StructArray.from_buffers(pa.struct([]), self.table.rows, [None])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _is_projected(projection: Projection, name: str) -> bool:
    return projection.fields is None or not projection.fields.isdisjoint({name, name.split(".", maxsplit=1)[0]})


def _struct(pairs: Iterable[tuple[str, pa.Array]]) -> pa.StructArray:
    names, arrays = zip(*pairs, strict=True)
    return pa.StructArray.from_arrays(list(arrays), names=list(names))


def _as_avro(values: pa.Array, field_id: int) -> pa.Array:
    """A column in the shape the Avro decoder gives it: maps as lists of pairs, field ids of tuples under their key."""
    if pa.types.is_map(values.type):
        pairs = pa.StructArray.from_arrays([values.keys, values.items], names=["key", "value"])
        mask = values.is_null()
        return pa.ListArray.from_arrays(values.offsets, pairs, mask=mask if values.null_count else None)
    if field_id == _PARTITION and pa.types.is_struct(values.type):
        fields = [f.with_metadata({b"field-id": _field_id(f)}) if _field_id(f) else f for f in values.type]
        return pa.StructArray.from_arrays([values.field(i) for i in range(len(fields))], fields=fields)
    return values


def _field_id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(b"PARQUET:field_id")

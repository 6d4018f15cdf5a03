"""Metadata tables whose columns are found by field id: Parquet, and Avro where a writer chose it.

Names and positions of columns mean nothing to a reader of format version 4. A column is addressed by the ids that lead
to it: `(147, 0)` is the field 0 of the struct 147.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.errors import CorruptFile, LimitExceeded
from neve.io.avro import AvroFile, open_avro

__all__ = ["IdPath", "IdTable", "encode_by_id", "is_parquet", "open_by_id"]

IdPath: TypeAlias = tuple[int, ...]

_PARQUET_MAGIC = b"PAR1"
_PARQUET_ID, _AVRO_ID = b"PARQUET:field_id", b"field-id"
_LIMIT = 4 << 30  # bytes of a table after decompression
_LEVEL = 3
_UNIQUE = ("location", "lower_bound", "upper_bound", "record_count", "file_size_in_bytes", "value_count")
"""Columns whose values rarely repeat, so that a dictionary would be dropped again."""


def is_parquet(data: bytes) -> bool:
    """Whether bytes claim to be a Parquet file."""
    return data[:4] == _PARQUET_MAGIC


@dataclass(frozen=True)
class IdTable:
    """A table in memory, read column by column."""

    path: str
    source: pq.ParquetFile | AvroFile

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the file, each with its id as metadata."""
        return self.source.schema_arrow if isinstance(self.source, pq.ParquetFile) else self._avro.schema

    @cached_property
    def rows(self) -> int:
        """How many rows the file has."""
        return int(self.source.metadata.num_rows if isinstance(self.source, pq.ParquetFile) else self._avro.num_rows)

    @cached_property
    def pairs(self) -> Mapping[str, bytes]:
        """The key-value pairs of the footer or header."""
        if isinstance(self.source, AvroFile):
            return self.source.header.metadata
        found = self.source.metadata.metadata or {}
        return {key.decode(errors="replace"): value for key, value in found.items()}

    @cached_property
    def fields(self) -> Mapping[IdPath, pa.Field]:
        """Every column and field of a struct, by the ids that lead to it."""
        return {ids: field for ids, field, _ in self._walked}

    @cached_property
    def names(self) -> Mapping[IdPath, str]:
        """The dotted name of every column and field of a struct."""
        return {ids: name for ids, _, name in self._walked}

    @cached_property
    def _walked(self) -> list[tuple[IdPath, pa.Field, str]]:
        return list(_walk(self.schema, (), ""))

    def has(self, *wanted: IdPath) -> bool:
        """Whether the file has all these columns."""
        return all(path in self.fields for path in wanted)

    def below(self, path: IdPath) -> list[int]:
        """The ids of the fields of a struct; none where there is no such struct."""
        return [found[-1] for found in self.fields if found[:-1] == path] if path in self.fields else []

    def read(self, wanted: Collection[IdPath], rows: Any = None) -> dict[IdPath, pa.Array]:
        """The columns wanted that the file has, of all rows or of those with the numbers given.

        A field of a struct is null where the struct is.
        """
        present = [path for path in wanted if path in self.fields]
        table = self._table(present)
        places = None if rows is None else pa.array(rows, pa.int64())
        whole = {_id_of(f): _one(table.column(i), places) for i, f in enumerate(table.schema)}
        return {path: _inner(whole[path[0]], path[1:]) for path in present}

    def _table(self, present: Iterable[IdPath]) -> pa.Table:
        if isinstance(self.source, AvroFile):
            return pa.Table.from_batches([self._avro])
        try:
            return self.source.read(columns=[self.names[path] for path in present], use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as e:
            raise CorruptFile(self.path, "a readable Parquet file", str(e)) from e

    @cached_property
    def _avro(self) -> pa.RecordBatch:
        return cast(AvroFile, self.source).decode()


def open_by_id(data: bytes, path: str) -> IdTable:
    """A table from the bytes of a file; what it holds is read later. Every column must have an id."""
    source = _open_parquet(data, path) if is_parquet(data) else open_avro(data, path)
    found = IdTable(path, source)
    if nameless := [f.name for f in found.schema if _id_of(f) is None]:
        raise CorruptFile(path, "a field id for every column", f"none for {nameless[0]!r}")
    return found


def _open_parquet(data: bytes, path: str) -> pq.ParquetFile:
    try:
        opened = pq.ParquetFile(pa.BufferReader(data))
        size = sum(opened.metadata.row_group(i).total_byte_size for i in range(opened.metadata.num_row_groups))
    except (pa.ArrowException, OSError, ValueError) as e:
        raise CorruptFile(path, "a Parquet file", str(e)) from e
    if size > _LIMIT:
        raise LimitExceeded(f"{path} ({size} bytes when decompressed)", _LIMIT, "Rewrite the manifests of the table.")
    return opened


def encode_by_id(table: pa.Table, pairs: Mapping[str, str]) -> bytes:
    """The bytes of a Parquet file of a table whose fields carry their ids, with pairs for its footer."""
    target = pa.BufferOutputStream()
    with pq.ParquetWriter(
        target,
        table.schema,
        compression="zstd",
        compression_level=_LEVEL,
        store_schema=False,
        write_statistics=False,
        use_dictionary=[name for name in _leaf_names(table.schema) if not name.endswith(_UNIQUE)],
        store_decimal_as_integer=True,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(dict(pairs))
    return bytes(target.getvalue())


def _leaf_names(fields: Iterable[pa.Field], prefix: str = "") -> Iterable[str]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaf_names(field.type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}" + (".list.element" if pa.types.is_list(field.type) else "")


def _id_of(field: pa.Field) -> int | None:
    metadata = field.metadata or {}
    raw = metadata.get(_PARQUET_ID, metadata.get(_AVRO_ID))
    return None if raw is None else int(raw)


def _walk(fields: Iterable[pa.Field], above: IdPath, prefix: str) -> Iterable[tuple[IdPath, pa.Field, str]]:
    for field in fields:
        if (own := _id_of(field)) is not None:
            yield (*above, own), field, prefix + field.name
            if pa.types.is_struct(field.type):
                yield from _walk(field.type, (*above, own), f"{prefix}{field.name}.")


def _one(column: pa.ChunkedArray, places: pa.Array | None) -> pa.Array:
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return whole if places is None else whole.take(places)


def _inner(values: pa.Array, path: IdPath) -> pa.Array:
    for wanted in path:
        at = next(i for i, field in enumerate(values.type) if _id_of(field) == wanted)
        values = pc.struct_field(values, [at])
    return values

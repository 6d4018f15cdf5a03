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
from neve.io.files import DEFAULT_LIMIT, out_of_memory_error
from neve.model.values import combine_chunks

IdPath: TypeAlias = tuple[int, ...]

_PARQUET_MAGIC = b"PAR1"
_PARQUET_ID, _AVRO_ID = b"PARQUET:field_id", b"field-id"
_LIMIT = 4 << 30  # bytes of a table after decompression
_ROWS_ALWAYS_ALLOWED = 1 << 20  # a file may have so many rows whatever its size
_DICTIONARY_COLUMNS = ["file_format"]  # few values, many rows
_READ_OPTIONS: dict[str, Any] = {
    "page_checksum_verification": True,
    "pre_buffer": False,
    "arrow_extensions_enabled": False,
}
_COMPRESSION_LEVEL = 1  # what is worth compressing here, paths for the most part, gets no smaller by higher levels
_SAMPLE_SIZE = 1024  # values of a column that tell whether it is worth a dictionary
_MIN_SAMPLE_SIZE = 8  # values too few to look at
_DICTIONARY = "DICTIONARY"


def is_parquet(data: bytes) -> bool:
    """Whether bytes claim to be a Parquet file."""
    return data[:4] == _PARQUET_MAGIC


@dataclass(frozen=True, slots=True)
class FileField:
    """Where a field of a file is: its position beside others, and the columns of a Parquet file it takes."""

    field: pa.Field
    name: str
    position: int
    columns: range


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns of a Parquet file to read, and the position of each field wanted among what was read."""

    columns: list[int]
    positions: Mapping[IdPath, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """The fields of a file by the ids that lead to them; found out once for all files with the same columns."""

    schema: pa.Schema
    key: pa.Buffer
    """The schema as bytes: they are compared in no time, schemas field by field."""
    fields_by_path: Mapping[IdPath, FileField]
    selections: dict[tuple[IdPath, ...], ColumnSelection]
    """What was asked for before."""

    @classmethod
    def of(cls, schema: pa.Schema) -> Layout:
        """The layout of a schema; the last ones are remembered."""
        key = schema.serialize()
        for layout in _LAYOUT_CACHE:
            if layout.key.equals(key):
                return layout
        made = cls(schema, key, dict(_fields_with_ids(schema, (), "", 0)), {})
        _LAYOUT_CACHE[:] = [made, *_LAYOUT_CACHE[: _LAYOUT_CACHE_SIZE - 1]]
        return made

    @cached_property
    def columns_without_id(self) -> list[str]:
        """The columns that have no id."""
        return [f.name for f in self.schema if _field_id(f) is None]

    @cached_property
    def struct_lists(self) -> Mapping[IdPath, frozenset[int | None]]:
        """The columns that are lists of structs, with the ids of the fields of those."""
        kinds = {path: place.field.type for path, place in self.fields_by_path.items() if len(path) == 1}
        lists = {path: kind.value_type for path, kind in kinds.items() if pa.types.is_list(kind)}
        return {path: frozenset(map(_field_id, item)) for path, item in lists.items() if pa.types.is_struct(item)}

    @cached_property
    def children(self) -> Mapping[IdPath, list[IdPath]]:
        """The fields of each struct."""
        found: dict[IdPath, list[IdPath]] = {}
        for path in self.fields_by_path:
            found.setdefault(path[:-1], []).append(path)
        return found

    def select(self, paths: tuple[IdPath, ...]) -> ColumnSelection:
        """What to read of a Parquet file for some fields, and where they are then."""
        if paths not in self.selections:
            columns = {c for path in paths for c in self.fields_by_path[path].columns}
            positions = {path: tuple(self._rank(up, columns) for up in _ancestor_paths(path)) for path in paths}
            self.selections[paths] = ColumnSelection(sorted(columns), positions)
        return self.selections[paths]

    def _rank(self, path: IdPath, columns: set[int]) -> int:
        """The position of a field when only some columns are read."""
        own, beside = self.fields_by_path[path], (self.fields_by_path[other] for other in self.children[path[:-1]])
        return sum(p.position < own.position and not columns.isdisjoint(p.columns) for p in beside)

    def select_all(self, paths: Iterable[IdPath]) -> ColumnSelection:
        """Where fields are when everything is read."""
        return ColumnSelection(
            [], {path: tuple(self.fields_by_path[up].position for up in _ancestor_paths(path)) for path in paths}
        )


def _ancestor_paths(path: IdPath) -> Iterable[IdPath]:
    """A field and the structs it lies in, the outermost first."""
    return (path[: depth + 1] for depth in range(len(path)))


_LAYOUT_CACHE: list[Layout] = []
_LAYOUT_CACHE_SIZE = 32


@dataclass(frozen=True)
class IdTable:
    """A table in memory, read column by column."""

    path: str
    source: pq.ParquetFile | AvroFile

    @cached_property
    def layout(self) -> Layout:
        """Where the columns of the file are."""
        schema = self._avro_batch.schema if isinstance(self.source, AvroFile) else self.source.schema_arrow
        return Layout.of(schema.remove_metadata())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file, each with its id as metadata."""
        return self.layout.schema

    @cached_property
    def rows(self) -> int:
        """How many rows the file has."""
        return int(
            self.source.metadata.num_rows if isinstance(self.source, pq.ParquetFile) else self._avro_batch.num_rows
        )

    @cached_property
    def key_value_metadata(self) -> Mapping[str, bytes]:
        """The key-value pairs of the footer or header."""
        if isinstance(self.source, AvroFile):
            return self.source.header.metadata
        found = self.source.metadata.metadata or {}
        return {key.decode(errors="replace"): value for key, value in found.items()}

    def has(self, *wanted: IdPath) -> bool:
        """Whether the file has all these columns."""
        return all(path in self.layout.fields_by_path for path in wanted)

    def field(self, path: IdPath) -> pa.Field | None:
        """A column or a field of a struct; None where the file has none."""
        place = self.layout.fields_by_path.get(path)
        return None if place is None else place.field

    def child_ids(self, path: IdPath) -> list[int]:
        """The ids of the fields of a struct; those of the columns for no path."""
        return [found[-1] for found in self.layout.children.get(path, [])]

    def read(self, paths: Collection[IdPath], rows: Any = None) -> dict[IdPath, pa.Array]:
        """The columns wanted that the file has, of all rows or of those with the numbers given.

        A field of a struct is null where the struct is.
        """
        present = tuple(path for path in paths if path in self.layout.fields_by_path)
        if not present:
            return {}
        is_avro = isinstance(self.source, AvroFile)
        order = self.layout.select_all(present) if is_avro else self.layout.select(present)
        columns = [
            combine_chunks(column)
            for column in (self._avro_batch.columns if is_avro else self._read_columns(order.columns))
        ]
        found = {path: _inner(columns[at[0]], at[1:]) for path, at in order.positions.items()}
        if rows is None:
            return found
        places = pa.array(rows, pa.int64())
        return {path: values.take(places) for path, values in found.items()}

    def _read_columns(self, indices: list[int]) -> list[pa.ChunkedArray]:
        try:
            table: pa.Table = cast(pq.ParquetFile, self.source).reader.read_all(indices, use_threads=False)
        except MemoryError as e:
            raise out_of_memory_error(self.path) from e
        except (pa.ArrowException, OSError, ValueError, OverflowError) as e:
            raise CorruptFile(self.path, "a readable Parquet file", str(e)) from e
        return table.columns

    @cached_property
    def _avro_batch(self) -> pa.RecordBatch:
        return cast(AvroFile, self.source).decode()


def open_id_table(data: bytes | pa.NativeFile, path: str) -> IdTable:
    """A table from the bytes of a file, or from a file; what it holds is read later. Every column must have an id."""
    if not isinstance(data, bytes) and not is_parquet(data.read_at(len(_PARQUET_MAGIC), 0)):
        if data.size() > DEFAULT_LIMIT:
            raise LimitExceeded(f"{path} ({data.size()} bytes)", DEFAULT_LIMIT, "No manifest is that long.")
        data = data.read()
    source = open_avro(data, path) if isinstance(data, bytes) and not is_parquet(data) else _open_parquet(data, path)
    found = IdTable(path, source)
    if nameless := found.layout.columns_without_id:
        raise CorruptFile(path, "a field id for every column", f"none for {nameless[0]!r}")
    return found


def _open_parquet(data: bytes | pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        opened = _open_with_dictionaries(pa.BufferReader(data) if isinstance(data, bytes) else data)
        groups = [opened.metadata.row_group(i) for i in range(opened.metadata.num_row_groups)]
        size, rows = sum(g.total_byte_size for g in groups), sum(g.num_rows for g in groups)
    except MemoryError as e:
        raise out_of_memory_error(path) from e
    except (pa.ArrowException, OSError, ValueError, OverflowError) as e:
        raise CorruptFile(path, "a Parquet file", str(e)) from e
    if size > _LIMIT:
        raise LimitExceeded(f"{path} ({size} bytes when decompressed)", _LIMIT, "Rewrite the manifests of the table.")
    # Rows that track files take some bytes each, however well they compress.
    stored = len(data) if isinstance(data, bytes) else data.size()
    if not 0 <= rows <= max(_ROWS_ALWAYS_ALLOWED, stored):
        raise CorruptFile(path, f"at most {max(_ROWS_ALWAYS_ALLOWED, stored)} rows in {stored} bytes", f"{rows}")
    return opened


class _ColumnIndexedFile(pq.ParquetFile):
    """A file read by the numbers of its columns: an index of their names takes as long as a half of the rest."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}


def _open_with_dictionaries(source: pa.NativeFile) -> pq.ParquetFile:
    """A file whose columns of few values are read as dictionaries, when it has them under the usual name."""
    try:
        return _ColumnIndexedFile(source, read_dictionary=_DICTIONARY_COLUMNS, **_READ_OPTIONS)
    except KeyError:
        return _ColumnIndexedFile(source, **_READ_OPTIONS)


def encode_parquet(table: pa.Table, key_value_metadata: Mapping[str, str]) -> bytes:
    """The bytes of a Parquet file of a table whose fields carry their ids, with pairs for its footer."""
    target = pa.BufferOutputStream()
    encodings = {name: _encoding(values) for name, values in _leaf_columns(table)}
    with pq.ParquetWriter(
        target,
        table.schema,
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        store_schema=False,
        write_statistics=False,
        use_dictionary=[name for name, encoding in encodings.items() if encoding == _DICTIONARY],
        column_encoding={name: encoding for name, encoding in encodings.items() if encoding != _DICTIONARY},
        store_decimal_as_integer=True,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(dict(key_value_metadata))
    return bytes(target.getvalue())


def _leaf_columns(table: pa.Table) -> Iterable[tuple[str, pa.Array]]:
    """The columns of a Parquet file by their paths."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        yield from _leaf_arrays(name, combine_chunks(column))


def _leaf_arrays(name: str, values: pa.Array) -> Iterable[tuple[str, pa.Array]]:
    if pa.types.is_struct(values.type):
        for at, inner in enumerate(values.type):
            yield from _leaf_arrays(f"{name}.{inner.name}", values.field(at))
    elif pa.types.is_list(values.type):
        yield f"{name}.list.element", values.values
    else:
        yield name, values


def _encoding(values: pa.Array) -> str:
    """What makes a column small and quick to read: a dictionary where values come back, else what suits their type."""
    seen, kind = _sample(values), values.type
    if len(seen) < _MIN_SAMPLE_SIZE:
        return "PLAIN"
    if pa.types.is_boolean(kind) or _values_repeat(seen):
        return _DICTIONARY
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    return "DELTA_BINARY_PACKED" if pa.types.is_integer(kind) or pa.types.is_temporal(kind) else "PLAIN"


def _sample(values: pa.Array) -> pa.Array:
    """Values of both ends: in a root the rows of leaves come first, and those of files behind them."""
    if len(values) > _SAMPLE_SIZE:
        half = _SAMPLE_SIZE // 2
        values = pa.concat_arrays([values.slice(0, half), values.slice(len(values) - half)])
    return values.drop_null()


def _values_repeat(sample: pa.Array) -> bool:
    """Whether values return after others. Those that only follow themselves are small as numbers, but not as text."""
    distinct = pc.count_distinct(sample).as_py()
    if distinct == 1 or not pa.types.is_primitive(sample.type):
        return bool(distinct <= len(sample) // 2)
    changes = pc.sum(pc.not_equal(sample.slice(1), sample.slice(0, len(sample) - 1))).as_py()
    return bool(distinct <= (changes + 1) // 2)


def _field_id(field: pa.Field) -> int | None:
    metadata = field.metadata or {}
    raw = metadata.get(_PARQUET_ID, metadata.get(_AVRO_ID))
    return None if raw is None else int(raw)


def _fields_with_ids(
    fields: Iterable[pa.Field], parent: IdPath, prefix: str, first: int
) -> Iterable[tuple[IdPath, FileField]]:
    """The fields that have an id; `first` is the first column of a Parquet file that they take."""
    for position, found in enumerate(fields):
        columns = range(first, first + _leaf_column_count(found.type))
        if (own := _field_id(found)) is not None:
            yield (*parent, own), FileField(found, prefix + found.name, position, columns)
            if pa.types.is_struct(found.type):
                yield from _fields_with_ids(found.type, (*parent, own), f"{prefix}{found.name}.", first)
        first = columns.stop


def _leaf_column_count(kind: pa.DataType) -> int:
    """How many columns of a Parquet file a type takes."""
    if pa.types.is_struct(kind):
        return sum(_leaf_column_count(f.type) for f in kind)
    if pa.types.is_map(kind):
        return _leaf_column_count(kind.key_type) + _leaf_column_count(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _leaf_column_count(kind.value_type)
    return 1


def _inner(values: pa.Array, places: Iterable[int]) -> pa.Array:
    for place in places:
        values = pc.struct_field(values, [place]) if values.null_count else values.field(place)
    return values

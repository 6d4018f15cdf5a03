"""Read and write metadata tables whose columns are found by field id: Parquet, or Avro if the writer chose it.

Readers of format version 4 ignore names and positions of columns. A column is addressed by a path of field ids:
`(147, 0)` is field 0 of struct 147.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
Positions: TypeAlias = Mapping[IdPath, tuple[int, ...]]  # of fields among the columns read: in each struct on the path

_PARQUET_MAGIC = b"PAR1"
_PARQUET_ID, _AVRO_ID = b"PARQUET:field_id", b"field-id"
_LIMIT = 4 << 30  # bytes of a table after decompression
_ROWS_ALWAYS_ALLOWED = 1 << 20  # a file of any size may have this many rows
_DICTIONARY_COLUMNS = ["file_format"]  # few values, many rows
_READ_OPTIONS: dict[str, Any] = {
    "page_checksum_verification": True,
    "pre_buffer": False,
    "arrow_extensions_enabled": False,
}
_COMPRESSION_LEVEL = 1  # mostly paths are compressed here, and higher levels do not make them smaller
_SAMPLE_SIZE = 1024  # values of a column that decide whether it gets a dictionary
_MIN_SAMPLE_SIZE = 8  # fewer values are not examined
_DICTIONARY = "DICTIONARY"
_LAYOUT_CACHE_SIZE = 32


def is_parquet(data: bytes) -> bool:
    """Return whether bytes start like a Parquet file."""
    return data[:4] == _PARQUET_MAGIC


@dataclass(frozen=True, slots=True)
class FileField:
    """Where a field is in a file: its position among its siblings, and the Parquet columns it takes."""

    field: pa.Field
    position: int
    columns: range


@dataclass(frozen=True)
class Layout:
    """The fields of a file by their id paths; computed once for all files with the same columns."""

    schema: pa.Schema
    key: pa.Buffer  # the serialized schema: comparing bytes is much faster than comparing fields
    fields_by_path: Mapping[IdPath, FileField]
    selections: dict[tuple[IdPath, ...], tuple[list[int], Positions]]  # cache of earlier selections

    @classmethod
    def of(cls, schema: pa.Schema) -> Layout:
        """Return the layout of a schema; recent layouts are cached."""
        key = schema.serialize()
        for layout in _LAYOUT_CACHE:
            if layout.key.equals(key):
                return layout
        layout = cls(schema, key, dict(_fields_with_ids(schema, (), 0)), {})
        _LAYOUT_CACHE[:] = [layout, *_LAYOUT_CACHE[: _LAYOUT_CACHE_SIZE - 1]]
        return layout

    @cached_property
    def columns_without_id(self) -> list[str]:
        """Names of the columns that have no id."""
        return [f.name for f in self.schema if _field_id(f) is None]

    @cached_property
    def struct_lists(self) -> Mapping[IdPath, frozenset[int | None]]:
        """The columns that are lists of structs, with the field ids of the structs."""
        kinds = {path: found.field.type for path, found in self.fields_by_path.items() if len(path) == 1}
        lists = {path: kind.value_type for path, kind in kinds.items() if pa.types.is_list(kind)}
        return {path: frozenset(map(_field_id, item)) for path, item in lists.items() if pa.types.is_struct(item)}

    @cached_property
    def children(self) -> Mapping[IdPath, list[IdPath]]:
        """The fields of each struct; the empty path has the columns."""
        children: dict[IdPath, list[IdPath]] = {}
        for path in self.fields_by_path:
            children.setdefault(path[:-1], []).append(path)
        return children

    def select(self, paths: tuple[IdPath, ...]) -> tuple[list[int], Positions]:
        """Return which columns of a Parquet file to read for these fields, and where the fields are in the result."""
        if paths not in self.selections:
            columns = {c for path in paths for c in self.fields_by_path[path].columns}

            def position_among_read(path: IdPath) -> int:
                own = self.fields_by_path[path]
                siblings = (self.fields_by_path[sibling] for sibling in self.children[path[:-1]])
                return sum(s.position < own.position and not columns.isdisjoint(s.columns) for s in siblings)

            positions = {path: tuple(map(position_among_read, _path_from_root(path))) for path in paths}
            self.selections[paths] = sorted(columns), positions
        return self.selections[paths]


def _path_from_root(path: IdPath) -> Iterable[IdPath]:
    """The structs around a field, the outermost first, and the field itself."""
    return (path[: depth + 1] for depth in range(len(path)))


_LAYOUT_CACHE: list[Layout] = []


@dataclass(frozen=True)
class IdTable:
    """A metadata table whose columns are read on demand."""

    path: str
    source: pq.ParquetFile | AvroFile

    @cached_property
    def layout(self) -> Layout:
        """The fields of the file by id."""
        schema = self._avro_batch.schema if isinstance(self.source, AvroFile) else self.source.schema_arrow
        return Layout.of(schema.remove_metadata())

    @cached_property
    def rows(self) -> int:
        """The number of rows in the file."""
        return int(self._avro_batch.num_rows if isinstance(self.source, AvroFile) else self.source.metadata.num_rows)

    @cached_property
    def key_value_metadata(self) -> Mapping[str, bytes]:
        """The key-value pairs of the footer or header."""
        if isinstance(self.source, AvroFile):
            return self.source.header.metadata
        pairs = self.source.metadata.metadata or {}
        return {key.decode(errors="replace"): value for key, value in pairs.items()}

    def has(self, *paths: IdPath) -> bool:
        """Return whether the file has all these columns."""
        return all(path in self.layout.fields_by_path for path in paths)

    def field(self, path: IdPath) -> pa.Field | None:
        """Return a column or a field of a struct; None if the file does not have it."""
        file_field = self.layout.fields_by_path.get(path)
        return None if file_field is None else file_field.field

    def child_ids(self, path: IdPath) -> list[int]:
        """Return the ids of the fields of a struct, or of the columns for an empty path."""
        return [child[-1] for child in self.layout.children.get(path, [])]

    def read(self, paths: Collection[IdPath], rows: Any = None) -> dict[IdPath, pa.Array]:
        """Read those of the columns that the file has, for all rows or for the given row numbers.

        A field of a struct is null where the struct is null.
        """
        fields = self.layout.fields_by_path
        present = tuple(path for path in paths if path in fields)
        if not present:
            return {}
        if isinstance(self.source, AvroFile):  # all columns are read
            columns = self._avro_batch.columns
            positions_by_path: Positions = {p: tuple(fields[up].position for up in _path_from_root(p)) for p in present}
        else:
            column_numbers, positions_by_path = self.layout.select(present)
            with _translate_unreadable(self.path):
                columns = self.source.reader.read_all(column_numbers, use_threads=False).columns
        columns, values = [combine_chunks(column) for column in columns], {}
        for path, positions in positions_by_path.items():
            value = columns[positions[0]]
            for at in positions[1:]:  # `struct_field` applies the nulls of the struct, `field` is faster without them
                value = pc.struct_field(value, [at]) if value.null_count else value.field(at)
            values[path] = value
        if rows is None:
            return values
        indices = pa.array(rows, pa.int64())
        return {path: column.take(indices) for path, column in values.items()}

    @cached_property
    def _avro_batch(self) -> pa.RecordBatch:
        return cast(AvroFile, self.source).decode()


def open_id_table(data: bytes | pa.NativeFile, path: str) -> IdTable:
    """Open a table from the bytes of a file, or from an open file. Every column must have an id; data is read later."""
    if not isinstance(data, bytes) and not is_parquet(data.read_at(len(_PARQUET_MAGIC), 0)):
        if data.size() > DEFAULT_LIMIT:
            raise LimitExceeded(f"{path} ({data.size()} bytes)", DEFAULT_LIMIT, "No manifest is that long.")
        data = data.read()
    source = open_avro(data, path) if isinstance(data, bytes) and not is_parquet(data) else _open_parquet(data, path)
    table = IdTable(path, source)
    if columns := table.layout.columns_without_id:
        raise CorruptFile(path, "a field id for every column", f"none for {columns[0]!r}")
    return table


@contextmanager
def _translate_unreadable(path: str) -> Iterator[None]:
    """Turn what Arrow raises about damaged bytes into an error that names the file."""
    try:
        yield
    except MemoryError as e:
        raise out_of_memory_error(path) from e
    except (pa.ArrowException, OSError, ValueError, OverflowError) as e:
        raise CorruptFile(path, "a readable Parquet file", str(e)) from e


def _open_parquet(data: bytes | pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        source = pa.BufferReader(data) if isinstance(data, bytes) else data
        try:
            opened = _ColumnIndexedFile(source, read_dictionary=_DICTIONARY_COLUMNS, **_READ_OPTIONS)
        except KeyError:  # the columns with few values have other names
            opened = _ColumnIndexedFile(source, **_READ_OPTIONS)
        groups = [opened.metadata.row_group(i) for i in range(opened.metadata.num_row_groups)]
        size, rows = sum(g.total_byte_size for g in groups), sum(g.num_rows for g in groups)
    except MemoryError as e:
        raise out_of_memory_error(path) from e
    except (pa.ArrowException, OSError, ValueError, OverflowError) as e:
        raise CorruptFile(path, "a Parquet file", str(e)) from e
    if size > _LIMIT:
        raise LimitExceeded(f"{path} ({size} bytes when decompressed)", _LIMIT, "Rewrite the manifests of the table.")
    # A row that tracks a file takes at least a byte, even with the best compression.
    stored = len(data) if isinstance(data, bytes) else data.size()
    if not 0 <= rows <= max(_ROWS_ALWAYS_ALLOWED, stored):
        raise CorruptFile(path, f"at most {max(_ROWS_ALWAYS_ALLOWED, stored)} rows in {stored} bytes", f"{rows}")
    return opened


class _ColumnIndexedFile(pq.ParquetFile):
    """A file read by column numbers. It skips pyarrow's index of column names, a third of the time to open a file."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}


def encode_parquet(table: pa.Table, key_value_metadata: Mapping[str, str]) -> bytes:
    """Encode a table, whose fields carry their ids, as a Parquet file with key-value pairs in its footer."""
    target = pa.BufferOutputStream()
    columns = zip(table.schema.names, map(combine_chunks, table.columns), strict=True)
    leaves = (leaf for name, column in columns for leaf in _leaf_arrays(name, column))
    encodings = {name: _encoding(values) for name, values in leaves}
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


def replace_columns(data: bytes, path: str, columns: Mapping[IdPath, pa.Array]) -> bytes:
    """Return a Parquet file with other values in some columns; everything else of it stays."""
    source = pq.ParquetFile(pa.BufferReader(data), **_READ_OPTIONS)
    with _translate_unreadable(path):
        table = source.read(use_threads=False)
    arrays = [
        _replace_fields(field, combine_chunks(values), columns, ())
        for field, values in zip(table.schema, table.columns, strict=True)
    ]
    target = pa.BufferOutputStream()
    with pq.ParquetWriter(target, table.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=table.schema))
        writer.add_key_value_metadata(dict(source.metadata.metadata or {}))
    return bytes(target.getvalue())


def _replace_fields(field: pa.Field, values: pa.Array, columns: Mapping[IdPath, pa.Array], parent: IdPath) -> pa.Array:
    own_id = _field_id(field)
    path = parent if own_id is None else (*parent, own_id)
    if path in columns:
        new = columns[path].cast(field.type)
        # Parquet needs a value of a required field, also where its struct is null.
        return new if field.nullable else pc.coalesce(new, values)
    if not pa.types.is_struct(field.type) or not any(changed[: len(path)] == path for changed in columns):
        return values
    inner = [_replace_fields(f, values.field(i), columns, path) for i, f in enumerate(field.type)]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(inner, fields=list(field.type), mask=mask)


def _leaf_arrays(name: str, values: pa.Array) -> Iterable[tuple[str, pa.Array]]:
    """The Parquet columns of an Arrow column, by their dotted names."""
    if pa.types.is_struct(values.type):
        for at, inner in enumerate(values.type):
            yield from _leaf_arrays(f"{name}.{inner.name}", values.field(at))
    elif pa.types.is_list(values.type):
        yield f"{name}.list.element", values.values
    else:
        yield name, values


def _encoding(values: pa.Array) -> str:
    """Choose an encoding that is small and fast to read: a dictionary if values repeat, else by type."""
    kind = values.type
    if len(values) > _SAMPLE_SIZE:  # both ends: in a root, rows for leaves come first and rows for files last
        half = _SAMPLE_SIZE // 2
        values = pa.concat_arrays([values.slice(0, half), values.slice(len(values) - half)])
    sample = values.drop_null()
    if len(sample) < _MIN_SAMPLE_SIZE:
        return "PLAIN"
    distinct, runs = pc.count_distinct(sample).as_py(), len(sample)
    if distinct > 1 and pa.types.is_primitive(kind):
        # Values that only repeat in a row make small deltas, but for text a dictionary is still worth it.
        runs = 1 + pc.sum(pc.not_equal(sample.slice(1), sample.slice(0, len(sample) - 1))).as_py()
    if pa.types.is_boolean(kind) or distinct <= runs // 2:
        return _DICTIONARY
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    return "DELTA_BINARY_PACKED" if pa.types.is_integer(kind) or pa.types.is_temporal(kind) else "PLAIN"


def _field_id(field: pa.Field) -> int | None:
    metadata = field.metadata or {}
    raw = metadata.get(_PARQUET_ID, metadata.get(_AVRO_ID))
    return None if raw is None else int(raw)


def _fields_with_ids(fields: Iterable[pa.Field], parent: IdPath, first: int) -> Iterable[tuple[IdPath, FileField]]:
    """Yield the fields that have an id; `first` is the number of their first column in a Parquet file."""
    for position, field in enumerate(fields):
        columns = range(first, first + _leaf_column_count(field.type))
        if (own_id := _field_id(field)) is not None:
            yield (*parent, own_id), FileField(field, position, columns)
            if pa.types.is_struct(field.type):
                yield from _fields_with_ids(field.type, (*parent, own_id), first)
        first = columns.stop


def _leaf_column_count(kind: pa.DataType) -> int:
    """Return how many columns a type takes in a Parquet file."""
    if pa.types.is_struct(kind):
        return sum(_leaf_column_count(f.type) for f in kind)
    if pa.types.is_map(kind):
        return _leaf_column_count(kind.key_type) + _leaf_column_count(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _leaf_column_count(kind.value_type)
    return 1

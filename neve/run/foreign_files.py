"""Describe data files that another engine wrote, from their footers: rows, sizes, statistics, and whether they fit.

A file fits a table if each of its columns that the table knows can be read as the table's column, and if it has the
columns that the table requires. Columns are matched as in every read (`neve.run.read.field_ids`). Files with equal
schemas are checked once.

Footers are untrusted, and other writers leave out or cut off statistics, so a bound is recorded only where every row
group has one that is surely a bound. ORC and Avro files have a record count, and no column statistics.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as at
from pyiceberg import types as ice
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from neve.errors import CorruptFile, UserError
from neve.io.files import file_size
from neve.io.parquet_footer import ChunkStatistics, parse_statistics, read_footer, row_counts, schema_bytes
from neve.io.untrusted import open_checked_file, translate_parse_errors
from neve.model.values import comparable_type
from neve.run.read.field_ids import (
    FileField,
    apply_name_mapping,
    assign_field_ids,
    name_mapping_of_all_schemas,
    nested_field_ids,
)
from neve.run.read.formats import AvroData, DataFile, open_file
from neve.run.read.projection import ProjectionSource, compile_projection
from neve.run.read.row_groups import footer_bound
from neve.run.read.types import ArrowFlavor
from neve.run.table_facts import TableFacts
from neve.run.write.metrics import LeafColumn, lower_bound, upper_bound
from neve.tree.entries import BOUNDS, COUNTS

_DETAILS = dict.fromkeys(("column_sizes", "value_counts", "null_value_counts"), COUNTS)
_DETAILS |= dict.fromkeys(("lower_bounds", "upper_bounds"), BOUNDS)
_EXACT = Context(prec=80)
_MAX_COUNT = 1 << 43  # of a row group; the sums of a file then fit a long


@dataclass(frozen=True)
class StoredPartition:
    """The range of a partition column that a file also stores: it must agree with the folder."""

    low: Any = None  # comparable as in `neve.model.values`; None: not in the footer
    high: Any = None
    nulls: int | None = None


@dataclass(frozen=True)
class DescribedFile:
    """What the footer of a file says."""

    record_count: int
    size: int
    split_offsets: list[int] | None = None
    details: Mapping[str, tuple[list[int], list[Any]]] | None = None  # field ids and values; None: no statistics
    stored_partitions: Mapping[int, StoredPartition] = field(default_factory=dict)  # by field id


@dataclass(frozen=True)
class _FileColumns:
    """What files with equal schemas have in common."""

    leaves: tuple[tuple[int, LeafColumn, pa.DataType], ...] = ()  # with the number of the leaf in the file
    leaf_count: int = 0


@dataclass(frozen=True)
class ForeignFileReader:
    """Describes files for one table; it is sent to executors."""

    facts: TableFacts  # with the name mapping that the table has, or will have
    table: str
    leaves: tuple[LeafColumn, ...]
    partition_ids: frozenset[int]  # columns whose value folders give
    has_full_mapping: bool = False  # a column that the name mapping lacks is none of the table's
    columns_by_schema: dict[bytes, _FileColumns] = field(default_factory=dict, compare=False)

    def describe(self, io: FileIO, path: str, size: int | None, file_format: str) -> DescribedFile:
        """Read the footer of a file; raises UserError if it does not fit the table."""
        if file_format == "PARQUET":
            return self._describe_parquet(io, path, size)
        with open_file(io, path, file_format, size, None) as data:
            self._check_columns(data, path)
            rows = data.stored_row_count() if isinstance(data, AvroData) else data.record_count
            return DescribedFile(rows or 0, file_size(io, path) if size is None else size)

    def _describe_parquet(self, io: FileIO, path: str, size: int | None) -> DescribedFile:
        with translate_parse_errors(path, "a Parquet footer"):
            stream, length = open_checked_file(io, path, size)
            with stream:
                footer = read_footer(stream, length, path)
            groups, rows = parse_statistics(footer), row_counts(footer)
            key = schema_bytes(footer)
            if key not in self.columns_by_schema:
                with open_file(io, path, "PARQUET", size, None) as data:
                    self.columns_by_schema[key] = self._check_columns(data, path)
            columns = self.columns_by_schema[key]
            if any(len(chunks) != columns.leaf_count for chunks in groups):
                widths = sorted({len(chunks) for chunks in groups})
                raise CorruptFile(path, f"row groups of {columns.leaf_count} columns, as the schema has,", f"{widths}")
            details, stored = self._statistics(columns, groups, rows, path)
            return DescribedFile(sum(rows), length, _split_offsets(groups, length), details, stored)

    def _statistics(
        self, columns: _FileColumns, groups: Sequence[Sequence[ChunkStatistics]], rows: Sequence[int], path: str
    ) -> tuple[dict[str, tuple[list[int], list[Any]]], dict[int, StoredPartition]]:
        details: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in _DETAILS}
        stored = {}

        def add(name: str, leaf: LeafColumn, value: Any) -> None:
            keys, values = details[name]
            keys.append(leaf.field_id)
            values.append(value)

        for ordinal, leaf, kind in columns.leaves:
            chunks = [group[ordinal] for group in groups]
            _check_counts(leaf, chunks, rows, path)
            sizes, nulls = [c.stored_bytes for c in chunks], [c.nulls for c in chunks]
            null_count = None if None in nulls else sum(nulls)  # type: ignore[arg-type]
            is_partition = leaf.field_id in self.partition_ids
            ends = _ends(leaf, chunks, kind) if leaf.has_bounds or is_partition else None
            if is_partition:
                is_exact = all(c.is_lower_exact and c.is_upper_exact for c in chunks)
                low, high = ends if ends is not None and is_exact else (None, None)
                stored[leaf.field_id] = StoredPartition(low, high, null_count)
            if None not in sizes:
                add("column_sizes", leaf, sum(sizes))
            if leaf.mode.counts:
                if all(c.values is not None for c in chunks):
                    add("value_counts", leaf, sum(c.values or 0 for c in chunks))
                if null_count is not None:
                    add("null_value_counts", leaf, null_count)
            if ends is not None and leaf.has_bounds:
                for name, value in zip(("lower_bounds", "upper_bounds"), _bounds(leaf, *ends), strict=True):
                    if value is not None:
                        add(name, leaf, value)
        return details, stored

    def _check_columns(self, data: DataFile, path: str) -> _FileColumns:
        """Return the columns of a file that the table has; raises UserError if they do not fit."""
        fields = data.fields
        self._refuse_foreign_ids(fields, path)
        with_ids = assign_field_ids(fields, path, self.facts.name_mapping, self.facts.schemas)
        ids = set(nested_field_ids(with_ids))
        schema = self.facts.schema
        if not self.has_full_mapping:
            self._refuse_other_case(with_ids, ids, path)
        # The folders have the values of partition columns that the file does not have.
        expected = [f for f in schema.fields if f.field_id in ids or f.field_id not in self.partition_ids]
        source = ProjectionSource(path, with_ids, {}, {}, {}, data.prunes_nested)
        try:
            compile_projection(Schema(*expected), source, ArrowFlavor.EXACT)
        except CorruptFile as e:
            raise self._misfit(path, f"expected {e.expected}, found {e.found}") from None
        by_id = {leaf.field_id: leaf for leaf in self.leaves}
        file_leaves = list(_leaves_of(with_ids))
        found = [(n, by_id[f.field_id], f.type) for n, f in enumerate(file_leaves) if f.field_id in by_id]
        for _, leaf, kind in found:
            if _may_overflow(kind, leaf.kind):
                raise self._misfit(path, f"expected {leaf.kind} for column {leaf.name!r}, found {kind}")
        if ids.isdisjoint(by_id):
            raise self._misfit(path, f"it has none of the table's columns, but {[f.name for f in fields][:8]}")
        return _FileColumns(tuple(found), len(file_leaves))

    def _refuse_foreign_ids(self, fields: tuple[FileField, ...], path: str) -> None:
        """Reject field ids that mean other columns here than their names say: they are those of another table."""
        if next(nested_field_ids(fields), None) is None:
            return
        bare, own_mapping = _without_ids(fields), self.facts.name_mapping
        mappings = [name_mapping_of_all_schemas(self.facts.schemas), own_mapping.root if own_mapping else []]
        by_name = [apply_name_mapping(bare, mapping) for mapping in mappings]
        for own, *named in zip(fields, *by_name, strict=True):
            if all(own.field_id != each.field_id for each in named):
                owner = self.facts.find_field_in_any_schema(-1 if own.field_id is None else own.field_id)
                here = "no column" if owner is None else repr(owner.name)
                problem = f"its column {own.name!r} has field id {own.field_id}, which is {here} in the table"
                raise self._misfit(path, f"{problem}; readers would follow the ids")

    def _refuse_other_case(self, fields: Iterable[FileField], ids: set[int], path: str) -> None:
        """Reject a column that differs from one of the table only in case: readers would return nulls for it."""
        missing = {f.name.lower(): f.name for f in self.facts.schema.fields if f.field_id not in ids}
        for own in fields:
            if own.field_id is None and own.name.lower() in missing:
                name = missing[own.name.lower()]
                raise self._misfit(
                    path,
                    f"its column {own.name!r} is {name!r} in the table; rename one, or add the name to "
                    "schema.name-mapping.default",
                )

    def _misfit(self, path: str, problem: str) -> UserError:
        return UserError(f"Cannot add {path} to table {self.table}: {problem}.")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "columns_by_schema": {}}


def describe_files(
    reader: ForeignFileReader, files: Sequence[tuple[str, int | None, str]], run: Callable[[Any, Any], Iterable[Any]]
) -> pa.Table:
    """Describe files, given by path, size and format, and return their columns of an entry table.

    `run` applies a function to each file, perhaps in threads.
    """
    io = reader.facts.io()
    return entry_columns(list(run(lambda file: reader.describe(io, *file), files)), reader)


def entry_columns(described: Sequence[DescribedFile], reader: ForeignFileReader) -> pa.Table:
    """Return what footers say as columns of an entry table, and the ranges of stored partition columns beside them."""
    columns: dict[str, Any] = {
        "record_count": pa.array([d.record_count for d in described], pa.int64()),
        "file_size_in_bytes": pa.array([d.size for d in described], pa.int64()),
        "split_offsets": pa.array([d.split_offsets for d in described], pa.list_(pa.int64())),
    }
    for name, kind in _DETAILS.items():
        columns[name] = _map_column([None if d.details is None else d.details[name] for d in described], kind)
    for field_id in sorted(reader.partition_ids):
        kind = comparable_type(reader.facts.schema.find_type(field_id))
        stored = [d.stored_partitions.get(field_id, StoredPartition()) for d in described]
        columns[f"low.{field_id}"] = pa.array([s.low for s in stored], kind)
        columns[f"high.{field_id}"] = pa.array([s.high for s in stored], kind)
        columns[f"nulls.{field_id}"] = pa.array([s.nulls for s in stored], pa.int64())
    return pa.table(columns)


def _map_column(rows: Sequence[tuple[list[int], list[Any]] | None], kind: pa.DataType) -> pa.Array:
    """Return maps from field ids to values, without a Python object for each pair."""
    keys = [key for row in rows if row is not None for key in row[0]]
    values = [value for row in rows if row is not None for value in row[1]]
    lengths = [0 if row is None else len(row[0]) for row in rows]
    offsets = pa.array(np.cumsum([0, *lengths], dtype=np.int32))
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.int32()), pa.array(values, kind.value_type.field("value").type)],
        fields=list(kind.value_type),
    )
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(offsets, pairs, type=kind, mask=mask)


def _leaves_of(fields: Iterable[FileField]) -> Iterator[FileField]:
    for each in fields:
        if each.children:
            yield from _leaves_of(each.children)
        else:
            yield each


def _without_ids(fields: Iterable[FileField]) -> tuple[FileField, ...]:
    return tuple(replace(f, field_id=None, children=_without_ids(f.children)) for f in fields)


def _may_overflow(stored: pa.DataType, kind: ice.PrimitiveType) -> bool:
    """Check whether a stored type has values that the column's type does not have."""
    if isinstance(kind, ice.DecimalType):
        return at.is_decimal(stored) and stored.precision > kind.precision
    if isinstance(kind, ice.IntegerType | ice.LongType):
        return at.is_unsigned_integer(stored) and stored.bit_width == (32 if isinstance(kind, ice.IntegerType) else 64)
    return False


def _check_counts(leaf: LeafColumn, chunks: Sequence[ChunkStatistics], rows: Sequence[int], path: str) -> None:
    for chunk, row_count in zip(chunks, rows, strict=True):
        has_wrong_values = not leaf.is_repeated and chunk.values not in (row_count, None)
        has_wrong_nulls = chunk.nulls is not None and chunk.values is not None and chunk.nulls > chunk.values
        if has_wrong_values or has_wrong_nulls or max(chunk.values or 0, chunk.stored_bytes or 0) > _MAX_COUNT:
            found = f"{chunk.values} values, {chunk.nulls} nulls and {chunk.stored_bytes} bytes"
            raise CorruptFile(path, f"statistics of {row_count} rows for column {leaf.name!r}", found)


def _ends(leaf: LeafColumn, chunks: Sequence[ChunkStatistics], stored: pa.DataType) -> tuple[Any, Any] | None:
    """Return the least and the greatest value in the units of the table's column; None if they are not known."""
    lows, highs = [], []
    for chunk in chunks:
        low, high = (footer_bound(raw, stored, leaf.kind) for raw in (chunk.lower, chunk.upper))
        if low is not None and high is not None:
            lows.append(low)
            highs.append(high)
        elif chunk.nulls is None or chunk.nulls != chunk.values:  # a chunk of nulls has nothing to bound
            return None
    return (min(lows), max(highs)) if lows and min(lows) <= max(highs) else None


def _bounds(leaf: LeafColumn, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    """Return the serialized bounds of a column; text that another writer cut within a character has none."""
    if isinstance(leaf.kind, ice.FloatType | ice.DoubleType):  # 0.0 in a footer may stand for -0.0
        low = low or -0.0
    if isinstance(low, Decimal):
        low, high = (int(_EXACT.scaleb(end, leaf.kind.scale)) for end in (low, high))  # type: ignore[attr-defined]
    try:
        return lower_bound(low, leaf.kind, leaf.mode.length), upper_bound(high, leaf.kind, leaf.mode.length)
    except (UnicodeDecodeError, OverflowError, struct.error):
        return None, None


def _split_offsets(groups: Sequence[Sequence[ChunkStatistics]], size: int) -> list[int] | None:
    """Return where row groups begin; None if that is no ascending list of places in the file."""
    starts = [chunks[0].start if chunks else None for chunks in groups]
    if None in starts or any(a >= b for a, b in zip(starts, [*starts[1:], size], strict=False)):  # type: ignore[operator]
        return None
    return starts  # type: ignore[return-value]

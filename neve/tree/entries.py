"""Tracked files as Arrow columns, the same for every format version.

An `EntryTable` has one row per tracked file, data or delete, of any format version. The partition is the union tuple
(one nullable column per partition field of any spec) together with `spec_id`; the key of a partition is always the pair
of both. A `Manifest` is one row of a manifest list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.model.partition import PartitionKey, Specs


class Status(IntEnum):
    """The state of an entry in its manifest."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2
    REPLACED = 3
    MODIFIED = 4


class Content(IntEnum):
    """The content of a tracked file; only rows of a version 4 root track manifests."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2
    DATA_MANIFEST = 3
    DELETE_MANIFEST = 4


LIVE_STATUSES = (Status.EXISTING, Status.ADDED, Status.MODIFIED)
MANIFESTS = (Content.DATA_MANIFEST, Content.DELETE_MANIFEST)

COUNTS = pa.list_(pa.struct([pa.field("key", pa.int32(), False), pa.field("value", pa.int64(), False)]))
BOUNDS = pa.list_(pa.struct([pa.field("key", pa.int32(), False), pa.field("value", pa.binary(), False)]))

CORE = pa.schema(
    [
        pa.field("manifest", pa.int32()),  # ordinal of the manifest in the list that was read; -1: in no manifest yet
        pa.field("row", pa.int32()),  # position in that manifest, counted over all entries
        pa.field("status", pa.int8()),
        pa.field("snapshot_id", pa.int64()),
        pa.field("sequence_number", pa.int64()),  # the data sequence number
        pa.field("file_sequence_number", pa.int64()),
        pa.field("first_row_id", pa.int64()),
        pa.field("content", pa.int8()),
        pa.field("file_path", pa.string()),
        pa.field("file_format", pa.dictionary(pa.int8(), pa.string())),
        pa.field("spec_id", pa.int32()),
        pa.field("record_count", pa.int64()),
        pa.field("file_size_in_bytes", pa.int64()),
        pa.field("sort_order_id", pa.int32()),
        pa.field("referenced_data_file", pa.string()),
        pa.field("content_offset", pa.int64()),
        pa.field("content_size_in_bytes", pa.int64()),
        pa.field("equality_ids", pa.list_(pa.int32())),
    ]
)

DETAIL = pa.schema(
    [
        pa.field("key_metadata", pa.binary()),
        pa.field("split_offsets", pa.list_(pa.int64())),
        pa.field("column_sizes", COUNTS),
        pa.field("value_counts", COUNTS),
        pa.field("null_value_counts", COUNTS),
        pa.field("nan_value_counts", COUNTS),
        pa.field("lower_bounds", BOUNDS),
        pa.field("upper_bounds", BOUNDS),
    ]
)


class FieldSummary(NamedTuple):
    """The range of one partition field over all files of a manifest; bounds are serialized single values."""

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


MANIFEST_COUNTS = ("added_files", "existing_files", "deleted_files", "added_rows", "existing_rows", "deleted_rows")
MIXED_SPECS = -1
"""The spec id of a manifest whose files are of several specs, or of a spec that is not stated."""


@dataclass(frozen=True, slots=True)
class LeafStatistics:
    """The column statistics of the manifests of a root, read when a filter needs them."""

    read: Callable[[], EntryTable]
    """One row for each manifest of a root, with the statistics of its files as if they were one file."""
    columns_without_nulls: Callable[[int], frozenset[int]] = lambda row: frozenset()
    """The columns known to have neither a null nor a NaN in any file of the manifest in a row."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a reader needs of a manifest in a version 4 tree, beyond its row in the list."""

    file: str  # the file with the rows; several manifests may be views of one file
    is_view: bool = False  # another manifest represents the file; this one shows the deletes stored with its data files
    is_tracked: bool = True  # the rows are tracked files; False: entries of an older version
    location: str = ""  # the location of the table; paths may be relative to it
    numbers: Mapping[int, int] = field(default_factory=dict)  # the sequence number of each snapshot
    rows: pa.Table | None = None  # the rows themselves, if they are in the root or will be
    hidden_bitmap: bytes | None = None  # the rows that are live in the file, but have been removed since
    hidden_count: int = 0  # the number of rows in `hidden_bitmap`
    removed_bitmaps: tuple[bytes | None, bytes | None] = (None, None)  # the rows that `hidden_by` deleted, and replaced
    hidden_by: int | None = None  # the snapshot that last changed `hidden_bitmap`
    shows_removed: bool = False  # the manifest shows only the rows in `removed_bitmaps`
    vectors: int | None = None  # the number of live rows with a deletion vector; None: unknown
    rows_without_ids: int | None = None  # table rows in live files without row ids yet; None: those of all live files
    root_row: tuple[Any, int] | None = None  # the rows of the root it was read from or will be in, and its number there


@dataclass(frozen=True, slots=True)
class Manifest:
    """One row of a manifest list: a manifest, its counts and the snapshot that wrote it.

    In a version 4 tree several manifests may be views of one file; each has a path of its own.
    """

    path: str
    length: int
    spec_id: int
    is_deletes: bool
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files: int | None
    existing_files: int | None
    deleted_files: int | None
    added_rows: int | None
    existing_rows: int | None
    deleted_rows: int | None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None
    replaced_files: int | None = 0
    replaced_rows: int | None = 0
    leaf: Leaf | None = field(default=None, compare=False, repr=False)
    # the statistics of all manifests of the root, and the row of this one
    statistics: tuple[LeafStatistics, int] | None = field(default=None, compare=False, repr=False)

    @property
    def file(self) -> str:
        """The file with the entries."""
        return self.path if self.leaf is None else self.leaf.file

    @property
    def is_tracked(self) -> bool:
        """True if the rows are tracked files of version 4; False: entries of an older version."""
        return self.leaf is not None and self.leaf.is_tracked

    @property
    def is_view(self) -> bool:
        """True if another manifest represents the file, and this one shows only its deletes."""
        return self.leaf is not None and self.leaf.is_view

    @property
    def is_inline(self) -> bool:
        """True if the manifest has no file of its own: its entries are in the file that lists manifests."""
        return self.leaf is not None and self.leaf.rows is not None

    @property
    def kind(self) -> str:
        """The kind of manifest, for people."""
        if not self.is_tracked:
            return "delete manifest" if self.is_deletes else "data manifest"
        return "rows of the root" if self.is_inline else "leaf"

    @property
    def hidden_files(self) -> int:
        """The number of entries that are live in the file, but have been removed since."""
        return 0 if self.leaf is None else self.leaf.hidden_count

    @property
    def hides_entries(self) -> bool:
        """True if the list marks entries of the file as removed."""
        return self.leaf is not None and self.leaf.hidden_bitmap is not None

    @property
    def changed_by(self) -> int:
        """The snapshot that wrote the manifest, or last hid entries of it."""
        by = self.leaf.hidden_by if self.leaf is not None and self.hides_entries else None
        return self.added_snapshot_id if by is None else by

    @property
    def may_hold_live_files(self) -> bool:
        """True if an entry may be live; v1 writers may omit the counts."""
        if self.added_files is None or self.existing_files is None:
            return True
        return self.added_files + self.existing_files > self.hidden_files


@dataclass(frozen=True)
class EntryTable:
    """Tracked files as Arrow columns, with the specs of their partitions."""

    columns: pa.Table
    specs: Specs

    @classmethod
    def schema(cls, specs: Specs, detail: Collection[str] = ()) -> pa.Schema:
        """Return the Arrow schema: the core columns, the union tuple, and the requested details in their order."""
        union = [pa.field(u.column, u.arrow_type) for u in specs.union]
        return pa.schema([*CORE, *union, *(DETAIL.field(name) for name in details_in_order(detail))])

    @classmethod
    def empty(cls, specs: Specs, detail: Collection[str] = ()) -> EntryTable:
        """Return a table without files."""
        return cls(cls.schema(specs, detail).empty_table(), specs)

    @classmethod
    def from_columns(cls, columns: dict[str, Any], specs: Specs, rows: int, detail: Collection[str] = ()) -> EntryTable:
        """Return a table of the given columns; missing columns are null."""
        schema = cls.schema(specs, detail)
        arrays = [fit_to_type(columns.get(f.name), f.type, rows) for f in schema]
        return cls(pa.Table.from_arrays(arrays, schema=schema), specs)

    @classmethod
    def concat(cls, tables: Iterable[EntryTable | None], specs: Specs) -> EntryTable:
        """Concatenate tables of the same specs; detail columns that only some tables have are null for the others."""
        present = [table for table in tables if table is not None]
        if not present:
            return cls.empty(specs)
        for table in present:
            specs = specs.with_learned_types(table.specs.learned_types)
        present = [table.with_specs(specs) for table in present]
        if len(present) == 1:
            return present[0]
        columns = pa.concat_tables([t.columns for t in present], promote_options="default").unify_dictionaries()
        return cls(columns, specs)

    def with_specs(self, specs: Specs) -> EntryTable:
        """Convert the files to the specs and types that the table has now; types learned while reading them stay."""
        if specs is self.specs:
            return self
        specs = specs.with_learned_types(self.specs.learned_types)
        columns = {name: self[name] for name in self.columns.schema.names}
        return EntryTable.from_columns(columns, specs, len(self), columns)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.columns.column(name)

    def numpy(self, name: str) -> np.ndarray[Any, Any]:
        """Return a column without nulls as a NumPy array."""
        return self[name].to_numpy()

    def has(self, *names: str) -> bool:
        """Check whether the table has the named columns."""
        return all(name in self.columns.schema.names for name in names)

    def filter(self, mask: Any) -> EntryTable:
        """Return the files that a boolean mask selects."""
        return replace(self, columns=self.columns.filter(mask))

    def take(self, rows: Any) -> EntryTable:
        """Return the files at the given row numbers, in that order."""
        return replace(self, columns=self.columns.take(pa.array(rows, pa.int64())))

    def with_columns(self, **columns: Any) -> EntryTable:
        """Return the files with some columns replaced; a scalar or None fills the whole column."""
        table = self.columns
        for name, values in columns.items():
            at = table.schema.get_field_index(name)
            field = table.schema.field(at) if at >= 0 else DETAIL.field(name)
            fitted = fit_to_type(values, field.type, len(self))
            table = table.set_column(at, field, fitted) if at >= 0 else table.append_column(field, fitted)
        return replace(self, columns=table)

    def with_details_where(self, mask: np.ndarray[Any, Any], details: pa.Table) -> EntryTable:
        """Return the files with the details of the selected ones, which are null for the others."""
        if mask.all():
            return self.with_columns(**{name: details[name] for name in details.column_names})
        arrays = {name: details[name].combine_chunks() for name in details.column_names}
        return self.with_columns(**{name: _spread_over_rows(values, mask) for name, values in arrays.items()})

    def blob_names(self) -> tuple[tuple[str, int | None], ...]:
        """Return the path of each file and its offset there, which a vector has: they identify it."""
        return tuple(zip(self["file_path"].to_pylist(), self["content_offset"].to_pylist(), strict=True))

    def live(self) -> EntryTable:
        """Return the files that are part of the table; DELETED and REPLACED entries are tombstones."""
        mask = np.isin(self.numpy("status"), LIVE_STATUSES)
        return self if mask.all() else self.filter(pa.array(mask))

    def of_content(self, *contents: Content) -> EntryTable:
        """Return the files of the given kinds."""
        mask = np.isin(self.numpy("content"), contents)
        return self if mask.all() else self.filter(pa.array(mask))

    def spec_ids(self) -> list[int]:
        """Return the ids of the specs of the files, in ascending order."""
        return distinct_spec_ids(self["spec_id"])

    def by_spec(self) -> Iterator[tuple[int, EntryTable]]:
        """Return the files of each spec, in ascending order of the spec id."""
        ids = self.spec_ids()
        if len(ids) == 1:
            yield ids[0], self
            return
        for spec_id in ids:
            yield spec_id, self.filter(pc.equal(self["spec_id"], spec_id))

    def count_by_spec(self) -> dict[int, int]:
        """Return the number of files of each partition spec."""
        return {spec_id: len(part) for spec_id, part in self.by_spec()} if len(self) else {}

    def partition_codes(self) -> tuple[np.ndarray[Any, Any], EntryTable]:
        """Number the partitions: return a number per file, and for each number the first file that has it.

        Equal nulls of different specs get different numbers: the key is always the pair of spec and tuple.
        """
        # Columns without values are skipped: they do not separate files. Most files of a manifest are of one spec.
        names = [u.column for u in self.specs.union if self[u.column].null_count < len(self)]
        is_mixed = self["spec_id"].null_count > 0 or len(self.spec_ids()) > 1
        first_name, *more_names = ["spec_id", *names] if is_mixed or not names else names
        codes, count = value_codes(self[first_name])
        for name in more_names:
            column_codes, width = value_codes(self[name])
            codes, count = codes * width + column_codes, count * width
            if count >= 1 << 31:  # before the product can exceed 64 bits
                codes, count = _renumber_codes(codes)
        codes, count = _renumber_codes(codes) if more_names else (codes, int(codes.max(initial=-1)) + 1)
        first = np.empty(count, np.int64)
        first[codes[::-1]] = np.arange(len(self))[::-1]
        return codes, self.take(first)

    def partition_key(self, row: int) -> PartitionKey:
        """Return the partition of one file; a date or time outside Python's calendar stays a count."""
        return self.partition_keys([row])[0]

    def partition_keys(self, rows: Any) -> list[PartitionKey]:
        """Return the partitions of some files."""
        spec_ids = self.numpy("spec_id")[rows].tolist()
        columns = {i: () if self.specs.is_unpartitioned(i) else self.specs.columns(i) for i in {*spec_ids}}
        names, chosen = {name for own in columns.values() for name in own}, pa.array(rows, pa.int64())
        values = {name: [*map(_python_value, self[name].take(chosen))] for name in names}
        return [
            PartitionKey(spec_id, tuple(values[name][at] for name in columns[spec_id]) if columns[spec_id] else None)
            for at, spec_id in enumerate(spec_ids)
        ]

    def stored_values(self, row: int) -> tuple[object, ...] | None:
        """Return the partition tuple of one file, dates and times as counts; None if its spec is unpartitioned."""
        spec_id = self["spec_id"][row].as_py()
        if self.specs.is_unpartitioned(spec_id):
            return None
        return tuple(_stored_value(self[c][row]) for c in self.specs.columns(spec_id))


class EntryFilter(Protocol):
    """Selects files while they are read: in two steps, so that little is read of files that do not match."""

    @property
    def columns(self) -> frozenset[int]:
        """The columns whose statistics the second step needs; empty: there is no second step."""

    def by_partition(self, entries: EntryTable) -> Any:
        """Return a flag for each file: True if its partition may match. Other columns may be missing."""

    def by_statistics(self, entries: EntryTable) -> Any:
        """Return a flag for each file of a matching partition: True if the file may match by its statistics."""


@dataclass(frozen=True, slots=True)
class FilteredEntries:
    """The live files that match a filter, with the number of all live files and of those in matching partitions."""

    entries: EntryTable
    live_count: int
    in_partitions: int


def details_in_order(names: Collection[str]) -> list[str]:
    """Return the detail columns among some names, in the order of `DETAIL`."""
    return [name for name in DETAIL.names if name in names]


def distinct_spec_ids(spec_ids: pa.ChunkedArray) -> list[int]:
    """Return the distinct specs of a column without nulls, in ascending order."""
    # The usual column has one spec: comparing minimum and maximum is cheaper than hashing.
    ends = pc.min_max(spec_ids)
    if ends["min"].is_valid and ends["min"] == ends["max"]:
        return [ends["min"].as_py()]
    return sorted(pc.unique(spec_ids).to_pylist())


def statistic_column(name: str, field_id: int) -> str:
    """Return the name of the entry column for one statistic of one table column, where each has its own column."""
    return f"{name}.{field_id}"


def _python_value(scalar: Any) -> object:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _stored_value(scalar)


def _stored_value(scalar: Any) -> object:
    is_counted = isinstance(scalar, pa.Date32Scalar | pa.Time64Scalar | pa.TimestampScalar)
    return scalar.value if is_counted else scalar.as_py()


def value_codes(column: pa.ChunkedArray) -> tuple[np.ndarray[Any, Any], int]:
    """Return a number per row, equal for equal values (null is a value), and the number of distinct values."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64), max(len(encoded.dictionary), 1)


def _renumber_codes(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """Renumber from 0 in the order of appearance, without gaps."""
    encoded = pa.array(codes).dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64), len(encoded.dictionary)


def count_by_status(rows: pa.Table) -> dict[str, Any]:
    """Return the counts in the row of a manifest: its files and their table rows, by status."""
    status = rows["status"].to_numpy()
    # The format has no count of MODIFIED rows yet; counted as existing ones, they show that the leaf is live.
    status = np.where(status == Status.MODIFIED, Status.EXISTING, status)
    files = np.bincount(status, minlength=4)
    sums = np.bincount(status, weights=rows["record_count"].to_numpy(), minlength=4).astype(np.int64)
    names = {s: s.name.lower() for s in (Status.ADDED, Status.EXISTING, Status.DELETED, Status.REPLACED)}
    counts = {f"{name}_files": int(files[s]) for s, name in names.items()}
    return counts | {f"{name}_rows": int(sums[s]) for s, name in names.items()}


def _spread_over_rows(values: pa.Array, mask: np.ndarray[Any, Any]) -> pa.Array:
    """Put the values into the selected rows, and null into the others; the items of lists are not copied."""
    if not pa.types.is_list(values.type):
        return values.take(pa.array(np.cumsum(mask) - 1, mask=~mask))
    lengths, absent = np.zeros(len(mask) + 1, np.int32), ~mask
    lengths[1:][mask] = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    absent[mask] = values.is_null().to_numpy(zero_copy_only=False)
    offsets = pa.array(np.cumsum(lengths, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(values), type=values.type, mask=pa.array(absent))


@lru_cache(maxsize=64)
def _cached_nulls(kind: pa.DataType, capacity: int) -> pa.Array:
    return pa.nulls(capacity, kind)


def fit_to_type(values: Any, kind: pa.DataType, rows: int) -> Any:
    """Return a column of a type: the given values, a scalar in every row, or nulls."""
    if values is None:
        # All null columns of a type share their memory: most optional columns of most files are null.
        return _cached_nulls(kind, 1 << max(rows - 1, 0).bit_length()).slice(0, rows)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == kind else _cast(values, kind)
    if isinstance(values, np.ndarray):
        return _cast(pa.array(values), kind)
    if isinstance(values, list | tuple):
        return pa.array(values, kind)
    return pa.repeat(pa.scalar(values, kind.value_type if pa.types.is_dictionary(kind) else kind), rows).cast(kind)


def _cast(values: Any, kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    return values.cast(kind)

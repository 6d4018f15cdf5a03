"""Compare data and delete files in storage with their manifest entries.

Each file must exist, have the stated size, parse, and have the stated number of rows. For Parquet files the footer is
also compared with the column statistics in the manifest: bounds, null counts and partition values. No row is read.

Footers and manifests may both truncate long values. A long value counts as outside a bound only if the part that both
have shows it. Columns without usable footer statistics, or with a type that the table could not have written, are not
checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, VoidTransform

from neve.errors import CorruptFile, TableError, UnsupportedFeature
from neve.io import files as storage
from neve.io.parquet_footer import ChunkStatistics, parse_statistics
from neve.io.paths import refuse_unreadable
from neve.model.values import comparable_type, decode_comparable, to_comparable
from neve.ops.audit.findings import Finding, error_finding, findings_for_rows
from neve.ops.audit.snapshot_index import Ints, Mask, SnapshotIndex
from neve.ops.events import Step, emit
from neve.plan.metrics_filter import values_of_field
from neve.run.read.field_ids import FileField, assign_field_ids
from neve.run.read.formats import open_file
from neve.run.read.metadata_columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.read.parquet import ParquetData
from neve.run.read.row_groups import footer_bound
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable
from neve.tree.read import with_detail

_THREADS = 16
_PROGRESS_INTERVAL = 64  # files between two progress events
_BATCH_FILES = 4096  # files whose footers are in memory at once
_MIN_TRUNCATED_LENGTH = 16  # no writer truncates text to less than this
_MAX_CHARACTER_BYTES = 4  # the most bytes that change when the last character of a truncated value is incremented
_AUDITED_STATISTICS = ("null_value_counts", "lower_bounds", "upper_bounds")
_DELETE_COLUMNS: dict[int, ice.IcebergType] = {DELETE_PATH_ID: ice.StringType(), DELETE_POSITION_ID: ice.LongType()}


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The range and null count of one column of one file, from its footer, in the units of the table's type."""

    field_id: int
    low: Any  # comparable as in `neve.model.values`; None: no comparable value, or not in the footer
    high: Any
    nulls: int | None  # None: not in the footer, or the column is nested


@dataclass(frozen=True, slots=True)
class Probe:
    """One file as found in storage."""

    size: int | None = None
    rows: int | None = None
    columns: tuple[ColumnRange, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class AuditedColumn:
    """One column in all files of a batch whose footers describe it."""

    type: ice.PrimitiveType
    rows: Ints  # of the files in the batch
    low: pa.Array
    high: pa.Array
    nulls: pa.Array


def audit_files(io: FileIO, index: SnapshotIndex, facts: TableFacts) -> tuple[list[Finding], int]:
    """Check once each file that is live in any snapshot; returns the findings, and the total size of the files."""
    rows = index.first_row_per_file(index.is_live)
    # In the order of the manifests, so that each batch reads the statistics of few of them.
    rows = rows[np.argsort(index.entries.numpy("manifest")[rows], kind="stable")]
    sizes, counts = (np.full(len(index.paths), -1, np.int64) for _ in range(2))
    findings: list[Finding] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(rows), _BATCH_FILES):
            batch = rows[start : start + _BATCH_FILES]
            entries = index.entries.take(batch)
            paths, formats = (entries[name].to_pylist() for name in ("file_path", "file_format"))
            results = pool.map(partial(_probe, io, facts), paths, formats, index.is_encrypted[batch].tolist())
            probes: list[Probe] = []
            for number, probe in enumerate(results, start):
                if number % _PROGRESS_INTERVAL == 0:
                    emit(Step("look at the files", number, len(rows), "files"))
                probes.append(probe)
            sizes[index.file_numbers[batch]] = [-1 if p.size is None else p.size for p in probes]
            counts[index.file_numbers[batch]] = [-1 if p.rows is None else p.rows for p in probes]
            findings += [f for p in probes for f in p.findings]
            findings += _statistics_findings(io, index, batch, [p.columns for p in probes], facts)
    # Several entries may name one file: compare each with it.
    for kind, name, unit, by_file in (
        ("file-size", "file_size_in_bytes", "bytes", sizes),
        ("row-count", "record_count", "rows", counts),
    ):
        stated, actual = index.entries.numpy(name), by_file[index.file_numbers]
        for row in np.flatnonzero(index.is_live & index.has_size & (actual >= 0) & (stated != actual)):
            message = f"Has {actual[row]} {unit}; the manifest says {stated[row]}."
            findings.append(Finding(kind, index.entries["file_path"][int(row)].as_py(), message))
    return findings, int(np.maximum(sizes, 0).sum())


def _probe(io: FileIO, facts: TableFacts, path: str, file_format: str, is_encrypted: bool) -> Probe:
    size = None
    try:
        refuse_unreadable(pa.array([path]), facts.location)
        size = storage.file_size(io, path)
        if is_encrypted:
            raise UnsupportedFeature(f"Cannot look into {path}: it is encrypted.")
        if file_format == "PUFFIN":
            return Probe(size)
        with open_file(io, path, file_format, None, None) as data:
            columns = _column_ranges(data, facts) if isinstance(data, ParquetData) else ()
            return Probe(size, data.record_count, columns)
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        return Probe(size, findings=(error_finding(path, e),))


# -- column ranges in footers ----------------------------------------------------------------------------------------


def _column_ranges(data: ParquetData, facts: TableFacts) -> tuple[ColumnRange, ...]:
    """Return the range of each column with a field id, over all row groups that have statistics."""
    fields = assign_field_ids(data.fields, data.path, facts.name_mapping, facts.schemas)
    groups = parse_statistics(data.footer)
    leaves = list(_leaves(fields))
    if any(len(chunks) != len(leaves) for chunks in groups):
        widths = sorted({len(chunks) for chunks in groups})
        raise CorruptFile(data.path, f"row groups of {len(leaves)} columns, as the schema has,", f"{widths}")
    columns: Iterable[Sequence[ChunkStatistics]] = zip(*groups, strict=True) if groups else [()] * len(leaves)
    ranges = []
    for (leaf, depth), chunks in zip(leaves, columns, strict=True):
        if leaf.field_id is None:
            continue
        column_type = _column_type(leaf.field_id, facts)
        lows = [] if column_type is None else [footer_bound(c.minimum, leaf.type, column_type) for c in chunks]
        highs = [] if column_type is None else [footer_bound(c.maximum, leaf.type, column_type) for c in chunks]
        low = min((v for v in lows if v is not None), default=None)
        high = max((v for v in highs if v is not None), default=None)
        nulls = [c.nulls for c in chunks if c.nulls is not None]
        null_count = sum(nulls) if depth == 0 and len(nulls) == len(chunks) else None
        ranges.append(ColumnRange(leaf.field_id, low, high, null_count))
    return tuple(ranges)


def _leaves(fields: Iterable[FileField], depth: int = 0) -> Iterator[tuple[FileField, int]]:
    for field in fields:
        if field.children:
            yield from _leaves(field.children, depth + 1)
        else:
            yield field, depth


def _column_type(field_id: int, facts: TableFacts) -> ice.IcebergType | None:
    """Return the type of a column of the table, also after it was dropped."""
    field = facts.find_field_in_any_schema(field_id)
    return _DELETE_COLUMNS.get(field_id) if field is None else field.field_type


# -- column statistics in manifests ----------------------------------------------------------------------------------


def _statistics_findings(
    io: FileIO, index: SnapshotIndex, rows: Ints, footers: Sequence[Sequence[ColumnRange]], facts: TableFacts
) -> Iterator[Finding]:
    """Compare a batch of files with their column statistics, which would not fit in memory for all files at once."""
    try:
        # Length 0 reads each manifest to its end: a wrong length in the list is a finding of its own.
        manifests = [replace(m, length=0) for m in index.manifests]
        files = with_detail(io, index.entries.take(rows), manifests, _AUDITED_STATISTICS)
    except TableError as e:  # a manifest that could be read before
        yield error_finding(str(getattr(e, "path", facts.location)), e)
        return
    by_id: dict[int, list[tuple[int, ColumnRange]]] = {}
    for row, ranges in enumerate(footers):
        for column_range in ranges:
            by_id.setdefault(column_range.field_id, []).append((row, column_range))
    for field_id, numbered in sorted(by_id.items()):
        column_type = _column_type(field_id, facts)
        if isinstance(column_type, ice.PrimitiveType) and not isinstance(column_type, ice.UnknownType):
            value_type = comparable_type(column_type)
            column = AuditedColumn(
                column_type,
                np.array([row for row, _ in numbered], np.int64),
                pa.array([r.low for _, r in numbered], value_type),
                pa.array([r.high for _, r in numbered], value_type),
                pa.array([r.nulls for _, r in numbered], pa.int64()),
            )
            yield from _bound_findings(files, column, field_id)
            stated = values_of_field(files["null_value_counts"], field_id).take(pa.array(column.rows))
            wrong = pc.not_equal(stated, column.nulls).fill_null(False).to_numpy(zero_copy_only=False)
            message = f"Column {field_id} does not have as many nulls as the manifest says."
            yield from findings_for_rows("null-count", files, _expand_mask(files, column, wrong), message)
            yield from _partition_findings(files, column, field_id)
            if field_id in _DELETE_COLUMNS:
                has_nulls = pc.greater(column.nulls, 0).fill_null(False).to_numpy(zero_copy_only=False)
                message = "Has rows without a path or position, which delete nothing."
                yield from findings_for_rows("required-value", files, _expand_mask(files, column, has_nulls), message)


def _bound_findings(files: EntryTable, column: AuditedColumn, field_id: int) -> Iterator[Finding]:
    if isinstance(column.type, ice.UUIDType):
        return  # old writers ordered UUIDs as two signed numbers
    rows = pa.array(column.rows)
    lower, upper = (
        decode_comparable(values_of_field(files[name], field_id).take(rows), column.type)
        for name in ("lower_bounds", "upper_bounds")
    )
    wrong = _outside_bounds(column, lower, upper)
    message = f"Column {field_id} has values outside the bounds in the manifest."
    yield from findings_for_rows("column-bounds", files, _expand_mask(files, column, wrong), message)


def _partition_findings(files: EntryTable, column: AuditedColumn, field_id: int) -> Iterator[Finding]:
    """Report files with a partition value that none of their rows can produce."""
    specs, spec_ids = files.specs, files.numpy("spec_id")[column.rows]
    for spec_id in np.unique(spec_ids):
        for field, name in zip(specs[int(spec_id)].fields, specs.columns(int(spec_id)), strict=True):
            if field.source_id == field_id and not isinstance(field.transform, VoidTransform):
                values = files[name].take(pa.array(column.rows))
                wrong = _outside_partition_mask(values, specs.result_type(field), field, column) & (spec_ids == spec_id)
                message = f"Holds rows that do not belong to its partition: {field.name!r} ({field.transform})."
                yield from findings_for_rows("partition-value", files, _expand_mask(files, column, wrong), message)


def _outside_partition_mask(
    values: Any, value_type: ice.IcebergType, field: PartitionField, column: AuditedColumn
) -> Mask:
    absent = values.is_null().to_numpy()
    has_values = column.low.is_valid().to_numpy(zero_copy_only=False)
    has_nulls = pc.greater(column.nulls, 0).fill_null(False).to_numpy(zero_copy_only=False)
    wrong: Mask = (absent & has_values) | (~absent & has_nulls)
    expected = to_comparable(values, value_type)
    if isinstance(field.transform, IdentityTransform):
        return wrong | _outside_bounds(column, expected, expected)
    checkable = np.flatnonzero(~absent & has_values)
    contradicted = [_contradicts(expected[int(i)].as_py(), field, column, int(i)) for i in checkable]
    wrong[checkable] |= np.array(contradicted, bool)
    return wrong


def _contradicts(expected: Any, field: PartitionField, column: AuditedColumn, at: int) -> bool:
    """Check whether the transform of either end of a column differs from the partition value."""
    low, high = column.low[at].as_py(), column.high[at].as_py()
    is_truncated = isinstance(low, bytes) and max(len(low), len(high)) >= _MIN_TRUNCATED_LENGTH
    if is_truncated or (isinstance(field.transform, BucketTransform) and low != high):
        return False
    try:
        apply = field.transform.transform(column.type)
        ends = {apply(end.decode() if isinstance(column.type, ice.StringType) else end) for end in (low, high)}
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return False  # a transform or a type that cannot be computed here
    transformed = {end.encode() if isinstance(end, str) else end for end in ends}
    if isinstance(field.transform, TimeTransform) and low < 0:
        transformed -= {expected - 1}  # early writers rounded times before 1970 towards it
    return not transformed <= {expected}


def _outside_bounds(column: AuditedColumn, lower: pa.Array, upper: pa.Array) -> Mask:
    """Return the files with values outside the bounds; a long value counts only if its truncated part shows it."""
    low, high = column.low, column.high
    too_low, too_high = (
        mask.fill_null(False).to_numpy(zero_copy_only=False).copy()
        for mask in (pc.greater(lower, low), pc.less(upper, high))
    )
    if pa.types.is_binary(low.type):
        for row in np.flatnonzero(too_low).tolist():
            bound, value = lower[row].as_py(), low[row].as_py()
            too_low[row] = len(value) < _MIN_TRUNCATED_LENGTH or bound[: len(value)] > value
        for row in np.flatnonzero(too_high).tolist():
            bound, value = upper[row].as_py(), high[row].as_py()
            end = len(value) - _MAX_CHARACTER_BYTES
            too_high[row] = len(value) < _MIN_TRUNCATED_LENGTH or bound[:end] < value[:end]
    return too_low | too_high


def _expand_mask(files: EntryTable, column: AuditedColumn, mask: Mask) -> Mask:
    """Turn a mask over the files of a column into a mask over all files of the batch."""
    expanded = np.zeros(len(files), bool)
    expanded[column.rows[mask]] = True
    return expanded

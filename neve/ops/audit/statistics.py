"""What a manifest promises about the columns of its files, held against their footers: bounds, nulls, partitions.

The footer may be cut like the bounds are, so long text counts as outside only where the part both have says so.

What Parquet footers say about their columns: the range of the values, and how many are null.

Values come out as they compare in `neve.model.values`: whole numbers, floats, decimals or bytes, in the units of
the table's type. A column that does not tell, or whose type is not what the table could have written, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, VoidTransform
from pyiceberg.types import IcebergType, LongType, PrimitiveType, StringType, UnknownType, UUIDType

from neve.errors import CorruptFile
from neve.io.parquet_footer import ChunkStatistics, parse_statistics
from neve.model.values import comparable_type, decode_comparable, to_comparable
from neve.ops.audit.findings import Finding, findings_for_rows
from neve.plan.metrics_filter import values_of_field
from neve.run.read.field_ids import FileField, assign_field_ids
from neve.run.read.metadata_columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.read.parquet import ParquetData
from neve.run.read.row_groups import footer_bound
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable

_DELETE_FILE_COLUMNS: dict[int, IcebergType] = {DELETE_PATH_ID: StringType(), DELETE_POSITION_ID: LongType()}


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """One column of one file, as its footer sums it up."""

    field_id: int
    low: Any  # None: no value that compares, or the footer does not tell
    high: Any
    nulls: int | None  # None: not told, or the column is inside another


def column_type_of(field_id: int, facts: TableFacts) -> IcebergType | None:
    """The type the table gives a column, also after it was dropped."""
    field = facts.find_field_in_any_schema(field_id)
    return _DELETE_FILE_COLUMNS.get(field_id) if field is None else field.field_type


def column_ranges(data: ParquetData, facts: TableFacts) -> tuple[ColumnRange, ...]:
    """The columns of a file the table knows, each with its range over all row groups that tell it."""
    fields = assign_field_ids(data.fields, data.path, facts.name_mapping, facts.schemas)
    groups = parse_statistics(data.footer, data.path)
    leaves = list(_leaves(fields))
    if any(len(chunks) != len(leaves) for chunks in groups):
        found = sorted({len(chunks) for chunks in groups})
        raise CorruptFile(data.path, f"row groups of {len(leaves)} columns, as the schema has,", f"{found}")
    columns = zip(*groups, strict=True) if groups else [()] * len(leaves)
    return tuple(
        _merge_chunk_ranges(leaf, leaf.field_id, depth, chunks, facts)
        for (leaf, depth), chunks in zip(leaves, columns, strict=True)
        if leaf.field_id is not None
    )


def _leaves(fields: Iterable[FileField], depth: int = 0) -> Iterator[tuple[FileField, int]]:
    for field in fields:
        if field.children:
            yield from _leaves(field.children, depth + 1)
        else:
            yield field, depth


def _merge_chunk_ranges(
    leaf: FileField, field_id: int, depth: int, chunks: Sequence[ChunkStatistics], facts: TableFacts
) -> ColumnRange:
    kind = column_type_of(field_id, facts)
    lows = [] if kind is None else [footer_bound(c.minimum, leaf.type, kind) for c in chunks]
    highs = [] if kind is None else [footer_bound(c.maximum, leaf.type, kind) for c in chunks]
    nulls = [c.nulls for c in chunks if c.nulls is not None]
    return ColumnRange(
        field_id,
        min((v for v in lows if v is not None), default=None),
        max((v for v in highs if v is not None), default=None),
        sum(nulls) if depth == 0 and len(nulls) == len(chunks) else None,
    )


AUDITED_STATISTICS = ("null_value_counts", "lower_bounds", "upper_bounds")
_MIN_TRUNCATED_LENGTH = 16  # no writer cuts text shorter than this
_MAX_CHARACTER_BYTES = 4  # the most bytes that change when the last character of a cut value is raised

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class AuditedColumn:
    """One column in those of some files whose footers tell of it."""

    kind: IcebergType
    rows: NDArray[np.int64]  # of the files
    low: pa.Array
    high: pa.Array
    nulls: pa.Array


def column_findings(
    files: EntryTable, footers: Sequence[Sequence[ColumnRange]], facts: TableFacts
) -> Iterator[Finding]:
    """Every promise about a column that a footer contradicts; `footers` has the columns of each file."""
    by_id: dict[int, list[tuple[int, ColumnRange]]] = {}
    for row, ranges in enumerate(footers):
        for each in ranges:
            by_id.setdefault(each.field_id, []).append((row, each))
    for field_id, found in sorted(by_id.items()):
        kind = column_type_of(field_id, facts)
        if isinstance(kind, PrimitiveType) and not isinstance(kind, UnknownType):
            column = _column(found, kind)
            yield from _bound_findings(files, column, field_id)
            yield from _null_count_findings(files, column, field_id)
            yield from _partition_findings(files, column, field_id)


def _column(found: Sequence[tuple[int, ColumnRange]], kind: PrimitiveType) -> AuditedColumn:
    rows = np.array([row for row, _ in found], np.int64)
    low, high = (pa.array([getattr(c, end) for _, c in found], comparable_type(kind)) for end in ("low", "high"))
    return AuditedColumn(kind, rows, low, high, pa.array([c.nulls for _, c in found], pa.int64()))


def _bound_findings(files: EntryTable, column: AuditedColumn, field_id: int) -> Iterator[Finding]:
    if isinstance(column.kind, UUIDType):
        return  # old writers ordered them as two signed numbers
    at = pa.array(column.rows)
    lower, upper = (
        decode_comparable(values_of_field(files[name], field_id).take(at), column.kind)
        for name in AUDITED_STATISTICS[1:]
    )
    low, high = (
        _expand_mask(files, column, _bound_is_above(lower, column.low)),
        _expand_mask(files, column, _bound_is_below(upper, column.high)),
    )
    what = f"Column {field_id} has values outside the bounds in the manifest."
    yield from findings_for_rows("column-bounds", files, low | high, lambda row: what)


def _null_count_findings(files: EntryTable, column: AuditedColumn, field_id: int) -> Iterator[Finding]:
    stated = values_of_field(files["null_value_counts"], field_id).take(pa.array(column.rows))
    wrong = pc.not_equal(stated, column.nulls).fill_null(False).to_numpy(zero_copy_only=False)
    what = f"Column {field_id} does not have as many nulls as the manifest says."
    yield from findings_for_rows("null-count", files, _expand_mask(files, column, wrong), lambda row: what)


def _partition_findings(files: EntryTable, column: AuditedColumn, field_id: int) -> Iterator[Finding]:
    """Files whose partition value no row of theirs could have given."""
    specs, spec_ids = files.specs, files.numpy("spec_id")[column.rows]
    for spec_id in np.unique(spec_ids):
        for field, name in zip(specs[int(spec_id)].fields, specs.columns(int(spec_id)), strict=True):
            if field.source_id == field_id and not isinstance(field.transform, VoidTransform):
                values = files[name].take(pa.array(column.rows))
                wrong = _outside_partition_mask(values, specs.result_type(field), field, column) & (spec_ids == spec_id)
                yield from _misplaced(files, _expand_mask(files, column, wrong), field)


def _misplaced(files: EntryTable, mask: Mask, field: PartitionField) -> Iterator[Finding]:
    what = f"Holds rows that do not belong to its partition: {field.name!r} ({field.transform})."
    yield from findings_for_rows("partition-value", files, mask, lambda row: what)


def _outside_partition_mask(values: Any, kind: IcebergType, field: PartitionField, column: AuditedColumn) -> Mask:
    absent = values.is_null().to_numpy()
    has_values = column.low.is_valid().to_numpy(zero_copy_only=False)
    has_nulls = pc.greater(column.nulls, 0).fill_null(False).to_numpy(zero_copy_only=False)
    wrong = (absent & has_values) | (~absent & has_nulls)
    expected = to_comparable(values, kind)
    if isinstance(field.transform, IdentityTransform):
        return wrong | _bound_is_above(expected, column.low) | _bound_is_below(expected, column.high)
    known = np.flatnonzero(~absent & has_values)
    contradicted = [_contradicts(expected[int(i)].as_py(), field, column, int(i)) for i in known]
    wrong[known] |= np.array(contradicted, bool)
    return wrong


def _contradicts(expected: Any, field: PartitionField, column: AuditedColumn, at: int) -> bool:
    """Whether the transform of either end of a column is another value than the partition's."""
    low, high = column.low[at].as_py(), column.high[at].as_py()
    is_cut = isinstance(low, bytes) and max(len(low), len(high)) >= _MIN_TRUNCATED_LENGTH
    if is_cut or (isinstance(field.transform, BucketTransform) and low != high):
        return False
    try:
        apply = field.transform.transform(column.kind)
        made = {apply(end.decode() if isinstance(column.kind, StringType) else end) for end in (low, high)}
    except (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError):
        return False  # a transform or a type that cannot be computed here
    found = {m.encode() if isinstance(m, str) else m for m in made}
    if isinstance(field.transform, TimeTransform) and low < 0:
        found -= {expected - 1}  # early writers rounded times before 1970 towards it
    return not found <= {expected}


def _bound_is_above(bound: pa.Array, value: pa.Array) -> Mask:
    """Where a lower bound lies above a value."""
    wrong = pc.greater(bound, value).fill_null(False).to_numpy(zero_copy_only=False).copy()
    return _clear_truncated(wrong, bound, value, lambda b, v: b[: len(v)] > v)


def _bound_is_below(bound: pa.Array, value: pa.Array) -> Mask:
    """Where an upper bound lies below a value."""
    wrong = pc.less(bound, value).fill_null(False).to_numpy(zero_copy_only=False).copy()
    return _clear_truncated(
        wrong, bound, value, lambda b, v: b[: len(v) - _MAX_CHARACTER_BYTES] < v[: len(v) - _MAX_CHARACTER_BYTES]
    )


def _clear_truncated(wrong: Mask, bound: pa.Array, value: pa.Array, is_worse: Any) -> Mask:
    if pa.types.is_binary(value.type):
        for row in np.flatnonzero(wrong):
            end = value[int(row)].as_py()
            wrong[row] = len(end) < _MIN_TRUNCATED_LENGTH or is_worse(bound[int(row)].as_py(), end)
    return wrong


def _expand_mask(files: EntryTable, column: AuditedColumn, mask: Mask) -> Mask:
    """A mask over the files of a column as one over all files."""
    found = np.zeros(len(files), bool)
    found[column.rows[mask]] = True
    return found

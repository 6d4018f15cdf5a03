"""Estimate how many rows match a condition, by the distinct values that statistics of the table count.

Every value of a column is taken to be equally frequent, and columns to be independent of each other. An estimate is
shown, and decides what is cheaper, but never which rows are changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from pyiceberg.expressions import And, BooleanExpression, BoundEqualTo, BoundIn, BoundReference, Or

from neve.display.format import plural
from neve.model.metadata import TableMetadata
from neve.predicate.normalize import normalize_and_bind

DISTINCT_VALUES = "ndv"  # the property of a statistics blob that has the count
_MAX_GROWTH = 2  # of a table since its statistics, which older ones say nothing about


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """About how many rows match, and the distinct values by which that was estimated."""

    rows: int
    distinct_values: Mapping[str, int]  # by column

    def __str__(self) -> str:
        known = (f"{name} has {plural(count, 'distinct value')}" for name, count in self.distinct_values.items())
        return f"about {plural(self.rows, 'row')}: {', '.join(known)}"


def count_distinct_values(metadata: TableMetadata) -> dict[int, int]:
    """Return the number of distinct values of columns by field id, each from the newest statistics that have it.

    Statistics of a snapshot with far fewer rows, or of one that has expired, do not count.
    """
    counts: dict[int, int] = {}
    rows = _count_rows(metadata, metadata.current_snapshot_id)
    blobs = (blob for file in metadata.statistics for blob in file.blob_metadata)
    for blob in sorted(blobs, key=lambda blob: blob.sequence_number):
        text, rows_then = (blob.properties or {}).get(DISTINCT_VALUES, ""), _count_rows(metadata, blob.snapshot_id)
        is_recent = rows is not None and rows_then is not None and rows <= _MAX_GROWTH * rows_then
        if is_recent and len(blob.fields) == 1 and text.isdecimal() and int(text):
            counts[blob.fields[0]] = int(text)
    return counts


def estimate_rows(condition: BooleanExpression, metadata: TableMetadata, snapshot_id: int | None) -> RowEstimate | None:
    """Estimate how many rows of a snapshot match a condition; None if the statistics do not say."""
    counts = count_distinct_values(metadata)
    found = _share(normalize_and_bind(condition, metadata.schema()), counts) if counts else None
    return None if found is None else _estimate(*found, metadata, snapshot_id)


def estimate_rows_with_keys(
    keys: Mapping[int, int], metadata: TableMetadata, snapshot_id: int | None
) -> RowEstimate | None:
    """Estimate how many rows have the keys of a source, of which the number of distinct values is given by field id."""
    counts = count_distinct_values(metadata)
    known = {field_id: counts[field_id] for field_id in keys if field_id in counts}
    share = prod(min(keys[field_id] / count, 1.0) for field_id, count in known.items())
    return _estimate(share, known, metadata, snapshot_id) if known else None


def _estimate(
    share: float, used: Mapping[int, int], metadata: TableMetadata, snapshot_id: int | None
) -> RowEstimate | None:
    rows = _count_rows(metadata, snapshot_id)
    names = {metadata.schema().find_column_name(field_id) or str(field_id): count for field_id, count in used.items()}
    return None if rows is None else RowEstimate(round(rows * share), names)


def _count_rows(metadata: TableMetadata, snapshot_id: int | None) -> int | None:
    snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    total = summary.get("total-records", "")
    return int(total) if total.isdecimal() else None


def _share(condition: BooleanExpression, counts: Mapping[int, int]) -> tuple[float, dict[int, int]] | None:
    """Return the share of rows that match, with the columns and counts by which it is known."""
    match condition:
        case And() | Or():
            parts = (_share(each, counts) for each in (condition.left, condition.right))
            known = [part for part in parts if part is not None]
            used = {field_id: count for _, columns in known for field_id, count in columns.items()}
            shares = [share for share, _ in known]
            if isinstance(condition, And):
                return (prod(shares), used) if known else None
            return (min(sum(shares), 1.0), used) if len(known) == 2 else None
        case BoundEqualTo(term=BoundReference(field=column)) if column.field_id in counts:
            return 1 / counts[column.field_id], {column.field_id: counts[column.field_id]}
        case BoundIn(term=BoundReference(field=column)) if column.field_id in counts:
            share = min(len(condition.literals) / counts[column.field_id], 1.0)
            return share, {column.field_id: counts[column.field_id]}
    return None

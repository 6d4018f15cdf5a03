"""What Parquet footers say about their columns: the range of the values, and how many are null.

Values come out as they compare in `neve.model.values`: whole numbers, floats, decimals or bytes, in the units of
the table's type. A column that does not tell, or whose type is not what the table could have written, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.types import IcebergType, LongType, StringType

from neve.errors import CorruptFile
from neve.io.parquet_footer import ChunkStatistics, parse_statistics
from neve.run.read.field_ids import FileField, identified
from neve.run.read.metadata_columns import DELETE_PATH_ID, DELETE_POSITION_ID
from neve.run.read.parquet import ParquetData
from neve.run.read.row_groups import bound
from neve.run.table_facts import TableFacts

__all__ = ["ColumnRange", "column_ranges", "kind_of"]

_OF_DELETES: dict[int, IcebergType] = {DELETE_PATH_ID: StringType(), DELETE_POSITION_ID: LongType()}


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """One column of one file, as its footer sums it up."""

    field_id: int
    low: Any  # None: no value that compares, or the footer does not tell
    high: Any
    nulls: int | None  # None: not told, or the column is inside another


def kind_of(field_id: int, facts: TableFacts) -> IcebergType | None:
    """The type the table gives a column, also after it was dropped."""
    field = facts.field_ever(field_id)
    return _OF_DELETES.get(field_id) if field is None else field.field_type


def column_ranges(data: ParquetData, facts: TableFacts) -> tuple[ColumnRange, ...]:
    """The columns of a file the table knows, each with its range over all row groups that tell it."""
    fields = identified(data.fields, data.path, facts.name_mapping, facts.schemas)
    groups = parse_statistics(data.footer, data.path)
    leaves = list(_leaves(fields))
    if any(len(chunks) != len(leaves) for chunks in groups):
        found = sorted({len(chunks) for chunks in groups})
        raise CorruptFile(data.path, f"row groups of {len(leaves)} columns, as the schema has,", f"{found}")
    columns = zip(*groups, strict=True) if groups else [()] * len(leaves)
    return tuple(
        _range(leaf, leaf.field_id, depth, chunks, facts)
        for (leaf, depth), chunks in zip(leaves, columns, strict=True)
        if leaf.field_id is not None
    )


def _leaves(fields: Iterable[FileField], depth: int = 0) -> Iterator[tuple[FileField, int]]:
    for field in fields:
        if field.children:
            yield from _leaves(field.children, depth + 1)
        else:
            yield field, depth


def _range(
    leaf: FileField, field_id: int, depth: int, chunks: Sequence[ChunkStatistics], facts: TableFacts
) -> ColumnRange:
    kind = kind_of(field_id, facts)
    lows = [] if kind is None else [bound(c.minimum, leaf.type, kind) for c in chunks]
    highs = [] if kind is None else [bound(c.maximum, leaf.type, kind) for c in chunks]
    nulls = [c.nulls for c in chunks if c.nulls is not None]
    return ColumnRange(
        field_id,
        min((v for v in lows if v is not None), default=None),
        max((v for v in highs if v is not None), default=None),
        sum(nulls) if depth == 0 and len(nulls) == len(chunks) else None,
    )

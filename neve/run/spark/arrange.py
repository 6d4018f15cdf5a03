"""Rows brought together and in order before they are written, by the distribution mode and sort order of a table.

* none: rows stay where they are.
* hash: rows of one partition meet, or without partitions any rows; Spark splits what is too large for one task and
  joins what is small.
* range: tasks get consecutive ranges of the partition values and the sort order.

Inside a task rows are sorted by partition, so that one file at a time is open, unless fan-out is asked for; then by the
sort order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionField
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import UUIDType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.run.spark.transforms import column_of, transformed
from neve.run.writing.partitioning import path_of
from neve.run.writing.target import WriteTarget

__all__ = ["Spread", "arranged", "in_order", "is_clustered", "settings"]

_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_ORDER = "__neve_order"
_SHUFFLED_PER_WRITTEN = 2  # bytes of rows in Spark's shuffle for one byte of Parquet


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows in a total order over so many tasks, one a file."""

    files: int
    key: Column | None = None  # what rows are ordered by instead of the sort order


@dataclass(frozen=True, slots=True)
class _Key:
    """Something rows are brought together or sorted by."""

    name: str
    is_descending: bool = False
    is_nulls_first: bool = True

    @property
    def column(self) -> Column:
        return F.col(self.name)

    @property
    def ordering(self) -> Column:
        if self.is_descending:
            return self.column.desc_nulls_first() if self.is_nulls_first else self.column.desc_nulls_last()
        return self.column.asc_nulls_first() if self.is_nulls_first else self.column.asc_nulls_last()


def arranged(df: DataFrame, target: WriteTarget) -> DataFrame:
    """The same rows, distributed and sorted for a target."""
    keyed, by_partition, by_order = _with_keys(df, target)
    spread = _distributed(keyed, target, by_partition, by_order)
    ordering = [k.ordering for k in (*by_partition, *by_order)]
    placed = spread.sortWithinPartitions(*ordering) if ordering and is_clustered(target) else spread
    return placed.select(*(F.col(_quoted(name)) for name in df.columns))


def in_order(df: DataFrame, target: WriteTarget, spread: Spread) -> DataFrame:
    """The same rows in order by partition, then by the sort order or the key, over as many tasks as asked for."""
    keyed, by_partition, by_order = _with_keys(df, target)
    if spread.key is not None:
        keyed, by_order = keyed.withColumn(_ORDER, spread.key), [_Key(_ORDER)]
    ordering = [k.ordering for k in (*by_partition, *by_order)]
    cut = keyed.repartitionByRange(spread.files, *ordering).sortWithinPartitions(*ordering)
    return cut.select(*(F.col(_quoted(name)) for name in df.columns))


def is_clustered(target: WriteTarget) -> bool:
    """Whether the rows of a partition come one after the other in each task."""
    return bool(target.order.fields) or not target.fanout


def settings(target: WriteTarget) -> Mapping[str, str]:
    """What Spark has to know while the job runs: how much data makes a task."""
    if target.distribution == "none":
        return {}
    return {_ADVISORY: f"{target.target_file_size * _SHUFFLED_PER_WRITTEN}b"}


def _distributed(df: DataFrame, target: WriteTarget, by_partition: list[_Key], by_order: list[_Key]) -> DataFrame:
    match target.distribution:
        case "hash":
            return df.hint("rebalance", *(k.column for k in by_partition))
        case "range" if by_partition or by_order:
            return df.repartitionByRange(*(k.ordering for k in (*by_partition, *by_order)))
    return df


def _with_keys(df: DataFrame, target: WriteTarget) -> tuple[DataFrame, list[_Key], list[_Key]]:
    """The rows with a column for every key that is computed. A key whose source the rows lack is the same for all."""
    columns: dict[str, Column] = {}
    given = {name.lower() for name in df.columns}

    def name_of(field: PartitionField | SortField) -> str | None:
        if isinstance(field.transform, VoidTransform):
            return None  # and its column may be gone from the schema
        path = path_of(target.schema, field.source_id)
        if path[0].lower() not in given:
            return None
        text = column_of(target.schema, field.source_id)
        if isinstance(field.transform, IdentityTransform) and len(path) == 1:
            return text
        name = _unused(f"__key_{len(columns)}", given)
        source = target.schema.find_field(field.source_id)
        is_text = isinstance(source.field_type, UUIDType) and _is_text(df, text)
        columns[name] = transformed(field.transform, source, text, is_text=is_text)
        return name

    by_partition = [_Key(name) for f in target.partitioner.spec.fields if (name := name_of(f))]
    by_order = [
        _Key(name, f.direction == SortDirection.DESC, f.null_order == NullOrder.NULLS_FIRST)
        for f in target.order.fields
        if (name := name_of(f))
    ]
    return df.withColumns(columns) if columns else df, by_partition, by_order


def _unused(name: str, given: set[str]) -> str:
    return name if name not in given else _unused(f"_{name}", given)


def _is_text(df: DataFrame, column: str) -> bool:
    return isinstance(df.select(column).schema[0].dataType, sp.StringType)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

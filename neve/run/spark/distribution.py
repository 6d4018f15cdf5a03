"""Distribute and sort rows before they are written, by the distribution mode and sort order of a table.

* none: rows stay where they are.
* hash: rows of one partition come together, or any rows if there are no partitions; Spark splits what is too large for
  one task and joins what is small.
* range: tasks get consecutive ranges of the partition values and the sort order.

Inside a task, rows are sorted by partition, so that one file at a time is open, unless fan-out is requested; then by
the sort order.

For this, partition transforms are written as Spark expressions. The values in metadata are computed where files are
written. The expressions give the same values, so that one partition is never spread over tasks for nothing.

Spark's `hash` chains: it hashes each argument with the hash of the previous one as its seed. After an integer whose own
hash is 0, the next argument is therefore hashed with seed 0, as in Iceberg's bucket transform. That holds for longs,
and for bytes whose length is a multiple of four; Spark treats the last bytes of other lengths differently. Those, and
decimals, are hashed through Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg import transforms as tf
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp
from pyspark.sql.pandas.functions import arrow_udf

from neve.errors import UserError
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.types import spark_type
from neve.run.write.partitioning import apply_transform, field_path
from neve.run.write.store_assignment import assign_column
from neve.run.write.target import WriteTarget

_SEED = -1693959553  # hash(_SEED) = 0
_MICROS_PER_DAY, _MICROS_PER_HOUR = 86_400_000_000, 3_600_000_000
_INSTANT = ice.TimestamptzType | ice.TimestamptzNanoType


def quoted_field_path(schema: Schema, field_id: int) -> str:
    """Return the SQL text for the column with a field id, also inside a struct."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in field_path(schema, field_id))


def transform_column(
    transform: tf.Transform[Any, Any], field: ice.NestedField, column: str, *, is_text: bool = False
) -> Column:
    """Return the transform of a column; `is_text` says that a column of type uuid holds strings, not bytes."""
    if isinstance(transform, tf.VoidTransform):
        return F.lit(None)
    text = transform_sql(transform, field.field_type, column, is_text)
    return F.expr(text) if text is not None else _arrow_transform(transform, field)(F.expr(column))


def transform_sql(
    transform: tf.Transform[Any, Any], kind: ice.IcebergType, column: str, is_text: bool = False
) -> str | None:
    """Return a transform of a column as an SQL expression; None if Spark has no function for it."""
    match transform:
        case tf.IdentityTransform():
            return column
        case tf.BucketTransform():
            hashed = _hash_input_sql(kind, column, is_text)
            bucket = f"(hash({_SEED}, {hashed}) & 2147483647) % {transform.num_buckets}"
            return None if hashed is None else f"if({column} is null, null, {bucket})"
        case tf.TruncateTransform():
            return _truncate_sql(kind, column, transform.width)
        case tf.YearTransform() | tf.MonthTransform() | tf.DayTransform() | tf.HourTransform():
            return _time_transform_sql(transform, kind, column)
    return None


def _hash_input_sql(kind: ice.IcebergType, column: str, is_text: bool) -> str | None:
    """Return what Iceberg hashes, or None for types whose bytes Spark hashes differently."""
    match kind:
        case ice.IntegerType() | ice.LongType():
            return f"try_cast({column} as bigint)"
        case ice.DateType():
            return f"cast(unix_date(cast({column} as date)) as bigint)"
        case ice.TimestamptzType() | ice.TimestamptzNanoType() | ice.TimestampType() | ice.TimestampNanoType():
            return _micros_sql(kind, column)
        case ice.UUIDType():
            return f"unhex(replace({column}, '-', ''))" if is_text else column
        case ice.FixedType() if len(kind) % 4 == 0:
            return column
    return None


def _truncate_sql(kind: ice.IcebergType, column: str, width: int) -> str | None:
    match kind:
        case ice.IntegerType() | ice.LongType():
            number = f"try_cast({column} as bigint)"
            return f"try_subtract({number}, pmod({number}, {width}))"
        case ice.StringType():
            return f"substring(cast({column} as string), 1, {width})"
        case ice.BinaryType():
            return f"substring({column}, 1, {width})"
    return None


def _time_transform_sql(transform: tf.Transform[Any, Any], kind: ice.IcebergType, column: str) -> str:
    # The day in UTC, whatever the time zone of the session.
    days = f"cast({_floor_div_sql(f'unix_micros({column})', _MICROS_PER_DAY)} as int)"
    date = f"date_from_unix_date({days})" if isinstance(kind, _INSTANT) else f"cast({column} as date)"
    match transform:
        case tf.YearTransform():
            return f"year({date}) - 1970"
        case tf.MonthTransform():
            return f"(year({date}) - 1970) * 12 + month({date}) - 1"
        case tf.DayTransform():
            return f"unix_date({date})"
    # Null if it does not fit: the writer reports it.
    if isinstance(kind, _INSTANT):
        return f"try_cast({_floor_div_sql(f'unix_micros({column})', _MICROS_PER_HOUR)} as int)"
    return f"try_cast(unix_date({date}) * 24L + hour(cast({column} as timestamp_ntz)) as int)"


def _micros_sql(kind: ice.IcebergType, column: str) -> str:
    if isinstance(kind, _INSTANT):
        return f"unix_micros({column})"
    local = f"cast({column} as timestamp_ntz)"
    seconds = f"cast(extract(second from {local}) * 1000000 as bigint)"
    days = f"cast(unix_date(cast({local} as date)) as bigint) * {_MICROS_PER_DAY}"
    return f"{days} + hour({local}) * {_MICROS_PER_HOUR} + minute({local}) * 60000000L + {seconds}"


def _floor_div_sql(number: str, unit: int) -> str:
    return f"({number} div {unit} - if({number} % {unit} < 0, 1, 0))"


def _arrow_transform(transform: tf.Transform[Any, Any], field: ice.NestedField) -> Any:
    """Return a function that applies a transform with PyIceberg."""
    kind = transform.result_type(field.field_type)

    def compute(values: pa.Array) -> pa.Array:
        try:
            return apply_transform(transform, field.field_type, assign_column(values, field))
        except UserError:  # values that cannot be stored count as null here; the writer reports them
            return pa.nulls(len(values), pa.int32() if isinstance(kind, ice.IntegerType) else values.type)

    return arrow_udf(compute, spark_type(kind))  # type: ignore[call-overload]


_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_ORDER_COLUMN = "__neve_order"
_SHUFFLED_PER_WRITTEN = 2  # bytes of rows in Spark's shuffle for one byte of Parquet


@dataclass(frozen=True, slots=True)
class TotalOrder:
    """Sort all rows, and write them with this many tasks, one per file."""

    file_count: int
    key: Column | None = None  # sort by this instead of the sort order


@dataclass(frozen=True, slots=True)
class _SortKey:
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


def distribute_and_sort(df: DataFrame, target: WriteTarget) -> DataFrame:
    """Distribute rows over tasks, and sort them inside each task."""
    keyed, by_partition, by_order = _add_key_columns(df, target)
    spread = _distribute(keyed, target, by_partition, by_order)
    ordering = [k.ordering for k in (*by_partition, *by_order)]
    ordered = spread.sortWithinPartitions(*ordering) if ordering and is_clustered(target) else spread
    return ordered.select(*map(column_by_name, df.columns))


def sort_globally(df: DataFrame, target: WriteTarget, total_order: TotalOrder) -> DataFrame:
    """Sort rows by partition, then by the sort order or the key, over as many tasks as requested."""
    keyed, by_partition, by_order = _add_key_columns(df, target)
    if total_order.key is not None:
        keyed, by_order = keyed.withColumn(_ORDER_COLUMN, total_order.key), [_SortKey(_ORDER_COLUMN)]
    ordering = [k.ordering for k in (*by_partition, *by_order)]
    ordered = keyed.repartitionByRange(total_order.file_count, *ordering).sortWithinPartitions(*ordering)
    return ordered.select(*map(column_by_name, df.columns))


def is_clustered(target: WriteTarget) -> bool:
    """Return whether the rows of a partition follow each other in each task."""
    return bool(target.write_order.fields) or not target.fanout


def shuffle_options(target: WriteTarget) -> Mapping[str, str]:
    """Return session options for the job: how much data makes a task."""
    if target.distribution == "none":
        return {}
    return {_ADVISORY: f"{target.target_file_size * _SHUFFLED_PER_WRITTEN}b"}


def _distribute(
    df: DataFrame, target: WriteTarget, by_partition: list[_SortKey], by_order: list[_SortKey]
) -> DataFrame:
    match target.distribution:
        case "hash":
            return df.hint("rebalance", *(k.column for k in by_partition))
        case "range" if by_partition or by_order:
            return df.repartitionByRange(*(k.ordering for k in (*by_partition, *by_order)))
    return df


def _add_key_columns(df: DataFrame, target: WriteTarget) -> tuple[DataFrame, list[_SortKey], list[_SortKey]]:
    """Add a column for every computed key. A key whose source the rows lack is left out: all rows have the same."""
    columns: dict[str, Column] = {}
    existing = {name.lower() for name in df.columns}

    def name_of(field: PartitionField | SortField) -> str | None:
        if isinstance(field.transform, tf.VoidTransform):
            return None  # its column may be missing in the schema
        path = field_path(target.schema, field.source_id)
        if path[0].lower() not in existing:
            return None
        text = quoted_field_path(target.schema, field.source_id)
        if isinstance(field.transform, tf.IdentityTransform) and len(path) == 1:
            return text
        name = _unused_name(f"__key_{len(columns)}", existing)
        source = target.schema.find_field(field.source_id)
        is_text = isinstance(source.field_type, ice.UUIDType) and isinstance(
            df.select(text).schema[0].dataType, sp.StringType
        )
        columns[name] = transform_column(field.transform, source, text, is_text=is_text)
        return name

    fields = target.partitioner.spec.fields if target.only_partition is None else ()
    by_partition = [_SortKey(name) for f in fields if (name := name_of(f))]
    by_order = [
        _SortKey(name, f.direction == SortDirection.DESC, f.null_order == NullOrder.NULLS_FIRST)
        for f in target.write_order.fields
        if (name := name_of(f))
    ]
    return df.withColumns(columns) if columns else df, by_partition, by_order


def _unused_name(name: str, existing: set[str]) -> str:
    return name if name not in existing else _unused_name(f"_{name}", existing)

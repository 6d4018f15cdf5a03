"""The source of a MERGE: any kind of rows as a frame that is computed once, and the range of its keys.

A small source is brought into this process. A large one is cached on the executors, in memory and on disk, while the
statement runs: it is read several times and must return the same rows each time. If it is not deterministic, it is
computed only once: when a part of it is lost, the statement fails instead of computing other rows. Its keys rule out
files of the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThanOrEqual,
    Or,
)
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp
from pyspark.storagelevel import StorageLevel

from neve.errors import UnsupportedFeature, UserError
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.rows.target_rows import translate_spark_errors
from neve.ops.sql_views import register_views, sibling_table_lookup
from neve.predicate.column_names import Equality, find_column, quote_name
from neve.predicate.nanoseconds import nanos_columns
from neve.predicate.normalize import make_expression
from neve.predicate.sql_text import tokenize_sql
from neve.run.read.types import is_rounded_by_spark
from neve.run.spark.arrow_exchange import collect_if_small
from neve.run.spark.expressions import is_deterministic
from neve.run.spark.input_rows import as_arrow, create_dataframe, with_spark_types
from neve.run.spark.parquet_scan import KeyFilter
from neve.run.spark.session import is_case_sensitive, is_classic
from neve.run.spark.types import spark_type
from neve.run.spark.writing_job import LocalLimits, is_persisted, persisted

SOURCE_ROW = "__neve_source_row"  # a number for each row

_MAX_LISTED_KEYS = 200  # up to this many distinct keys are listed; more become a range
_MAX_BROADCAST_BYTES = 32 << 20  # of a source that every task may hold, by Spark's estimate
_MIN_TASK_BYTES = 8 << 20  # of a source that a task may return; an estimate can be wrong, and there are many tasks
_MAX_LOOKUP_SHARE = 0.5  # of the target's keys that are in the source: with more, a lookup rules out too few rows
_MIN_INT, _MAX_INT = -(1 << 31), (1 << 31) - 1
_FAST_LOOKUP_TYPES = (sp.IntegralType, sp.DateType, sp.TimestampType, sp.TimestampNTZType)
_UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"  # the text that Spark sees
_RANGE_TYPES = (sp.IntegralType, sp.StringType, sp.DateType, sp.DecimalType, sp.TimestampType, sp.TimestampNTZType)
_QUERY_KEYWORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")


@dataclass(frozen=True)
class MergeSource:
    """Rows to merge."""

    frame: DataFrame  # as the caller passed it, for its columns; computed again at every use
    numbered_frame: DataFrame  # computed once, with the column `SOURCE_ROW` after the others
    table: pa.Table | None = None  # the same rows, if they are in this process
    reads_target: bool = False
    is_deterministic: bool = True
    is_rounded: bool = False  # it reads tables with nanoseconds, which Spark rounds

    @classmethod
    def of_table(cls, spark: SparkSession, rows: pa.Table) -> MergeSource:
        """Return a source of rows in this process, in types of Spark."""
        table = rows.append_column(SOURCE_ROW, pa.array(np.arange(len(rows))))
        frame = create_dataframe(spark, table)
        return cls(frame.drop(SOURCE_ROW), frame, table)

    def unmatched_rows(self, seen: PositionSet) -> DataFrame | None:
        """Return the rows in this process whose numbers are not in `seen`, or None if there are none."""
        if self.table is None or not seen.cardinality:
            return self.numbered_frame
        is_seen = pc.is_in(self.table[SOURCE_ROW], value_set=pa.array(seen.positions()))
        left = self.table.filter(pc.invert(is_seen))
        return create_dataframe(self.frame.sparkSession, left) if left.num_rows else None

    @cached_property
    def is_small(self) -> bool:
        """True if every task may hold a copy. Decided once, as Spark's estimate changes when the frame is computed."""
        if self.table is not None:
            return bool(self.table.nbytes <= _max_source_bytes(self.frame))
        size = _estimated_bytes(self.numbered_frame)  # of files, which are compressed
        return size is not None and size <= _MAX_BROADCAST_BYTES

    def keys(
        self,
        equalities: Sequence[Equality],
        schema: Schema,
        alias: str,
        *,
        are_all: bool,
        distinct_values: Mapping[int, int],
    ) -> SourceKeys | None:
        """Return which rows of the target can match by the keys of the source; None if no key is usable.

        `are_all`: rows match if they have equal keys; nothing else is required. `distinct_values` are those of columns
        of the target, by field id, where its statistics count them.
        """
        usable = [key for e in equalities if (key := self._usable_key(e, schema, alias)) is not None]
        if not usable:
            return None
        if self.table is not None:
            ranges = [_range_of_values(self.table[key.column], key.kind) for key in usable]
        else:
            ranges = self._key_ranges([key.spark_column() for key in usable])
        within = reduce(And, map(_range_expression, usable, ranges))
        plain = [(key, key_range) for key, key_range in zip(usable, ranges, strict=True) if key.is_plain]
        columns = {key.target: key.column for key, _ in plain}
        is_whole_condition = are_all and len(columns) == len(equalities)
        best = self._key_to_look_up(plain, distinct_values) if plain and self.is_small else None
        key_filter = None if best is None else KeyFilter(best.field_id, self.numbered_frame.select(best.spark_column()))
        counts = {key.field_id: key_range.distinct for key, key_range in plain}
        return SourceKeys(within, key_filter, columns, is_whole_condition, counts)

    def _key_to_look_up(
        self, keys: Sequence[tuple[_Key, _KeyRange]], distinct_values: Mapping[int, int]
    ) -> _Key | None:
        """Return the key that rules out most rows of the target; None if none rules out enough of them."""
        if all(key.field_id in distinct_values for key, _ in keys):
            best, values = min(keys, key=lambda pair: pair[1].distinct / distinct_values[pair[0].field_id])
            return best if values.distinct <= _MAX_LOOKUP_SHARE * distinct_values[best.field_id] else None
        # Without statistics, the key with the most values; types that Spark looks up fastest come first.
        types = {f.name: f.dataType for f in self.frame.schema.fields}
        best, _ = max(keys, key=lambda pair: (isinstance(types[pair[0].column], _FAST_LOOKUP_TYPES), pair[1].distinct))
        return best

    def _usable_key(self, equality: Equality, schema: Schema, alias: str) -> _Key | None:
        """Return a key if the values of the source compare as those of the target do."""
        target = find_column(schema, equality.target, case_sensitive=False)
        *qualifier, name = equality.source
        if target is None or (qualifier and (len(qualifier) > 1 or qualifier[0].lower() != alias.lower())):
            return None
        folds = not is_case_sensitive(self.frame.sparkSession)
        fields = self.frame.schema.fields
        field = next((f for f in fields if f.name == name or (folds and f.name.lower() == name.lower())), None)
        full_name = schema.find_column_name(target.field_id)
        if field is None or full_name is None or not _are_comparable(field.dataType, target.field_type):
            return None
        return _Key(full_name, target.field_id, target.field_type, field.name, equality.is_null_safe)

    def _key_ranges(self, columns: list[Column]) -> list[_KeyRange]:
        parts = [
            part
            for at, c in enumerate(columns)
            for part in (
                F.min(c).alias(f"low{at}"),
                F.max(c).alias(f"high{at}"),
                F.count_if(c.isNull()).alias(f"nulls{at}"),
                F.approx_count_distinct(c).alias(f"distinct{at}"),
            )
        ]
        ranges = self.numbered_frame.agg(*parts).toArrow()
        row = {name: _literal_values(ranges[name])[0] for name in ranges.column_names}
        key_ranges = []
        for at, column in enumerate(columns):
            low, high, nulls, distinct = (row[f"{part}{at}"] for part in ("low", "high", "nulls", "distinct"))
            values: tuple[Any, ...] = ()
            if low is not None and distinct <= _MAX_LISTED_KEYS:
                present = self.numbered_frame.select(column.alias("key")).where(column.isNotNull())
                keys = _literal_values(present.distinct().limit(2 * _MAX_LISTED_KEYS + 1).toArrow()["key"])
                values = tuple(keys) if len(keys) <= 2 * _MAX_LISTED_KEYS else ()
            key_ranges.append(_KeyRange(low, high, nulls > 0, distinct, values))
        return key_ranges


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the target that must equal a column of the source."""

    target: str  # the full name that the table uses
    field_id: int
    kind: ice.IcebergType
    column: str
    is_null_safe: bool

    @property
    def is_plain(self) -> bool:
        """True if it is a column of its own, and nulls match nothing."""
        return not self.is_null_safe and "." not in self.target

    def spark_column(self) -> Column:
        column = F.col(quote_name(self.column))
        # Text that is not a UUID cannot match one, and would make the range useless.
        return F.when(column.rlike(_UUID_PATTERN), column) if isinstance(self.kind, ice.UUIDType) else column


@dataclass(frozen=True)
class SourceKeys:
    """Which rows of the target can match, by the keys of the source."""

    file_filter: BooleanExpression
    key_filter: KeyFilter | None  # filters rows, where a lookup is worth it
    columns: Mapping[str, str]  # columns of the source by the columns of the target that must equal them
    is_whole_condition: bool  # rows match if these columns are equal, and only then
    distinct_values: Mapping[int, int]  # of the source, about, by field id of the column of the target


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """The values of one key."""

    low: Any
    high: Any
    has_nulls: bool
    distinct: int  # estimated
    values: tuple[Any, ...] = ()


def _range_of_values(column: pa.ChunkedArray, kind: ice.IcebergType) -> _KeyRange:
    """Return the range of a key whose values are in this process."""
    present = column.drop_null()
    if isinstance(kind, ice.UUIDType):
        present = present.filter(pc.match_substring_regex(present, _UUID_PATTERN))
    distinct = pc.unique(present)
    ordered = distinct.take(pc.array_sort_indices(distinct))
    few = ordered if len(ordered) <= _MAX_LISTED_KEYS else ordered.take([0, len(ordered) - 1])
    values = _literal_values(pa.chunked_array([few])) or [None]
    listed = tuple(values) if 0 < len(ordered) <= _MAX_LISTED_KEYS else ()
    return _KeyRange(values[0], values[-1], column.null_count > 0, len(ordered), listed)


def _literal_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a key; times as literals of the stored numbers, as Python's times end with the year 9999."""
    if pa.types.is_date32(column.type):
        return [v if v is None else DateLiteral(v) for v in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(column.type):
        return [v if v is None else TimestampLiteral(v) for v in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


def _range_expression(key: _Key, key_range: _KeyRange) -> BooleanExpression:
    low, high, values, name = key_range.low, key_range.high, key_range.values, key.target
    if low is not None and isinstance(key.kind, ice.IntegerType):  # a long may be outside the range of int
        low, high = max(low, _MIN_INT), min(high, _MAX_INT)
        values = tuple(v for v in values if low <= v <= high)
    condition: BooleanExpression = AlwaysFalse()
    if values:
        condition = make_expression(In, name, values)
    elif low is not None and low <= high and not key_range.values:
        condition = And(make_expression(GreaterThanOrEqual, name, low), make_expression(LessThanOrEqual, name, high))
    is_null_key = key.is_null_safe and key_range.has_nulls
    return Or(condition, make_expression(IsNull, name)) if is_null_key else condition


def _are_comparable(source: sp.DataType, kind: ice.IcebergType) -> bool:
    """Check whether values of the source can rule out files of the target."""
    if isinstance(kind, ice.TimestampNanoType | ice.TimestamptzNanoType):
        return False  # Spark compares them rounded
    target = spark_type(kind)
    if isinstance(source, sp.IntegralType) and isinstance(target, sp.IntegralType):
        return True
    if isinstance(source, sp.DecimalType):
        return source == target  # values of another scale are not values of the column
    return source == target and isinstance(source, _RANGE_TYPES)  # text of one collation


@contextmanager
def open_merge_source(context: TableContext, source_input: Any, *, has_columns: bool) -> Iterator[MergeSource]:
    """Open a source of any kind while the block lasts; text is a query, or the name of a table of the lake or Spark.

    `has_columns`: some expressions are Columns, which may belong to the caller's own frame.
    """
    if not isinstance(source_input, str | DataFrame):
        table = _to_spark_types(as_arrow(source_input, context.metadata.schema()), context.metadata.schema())
        yield MergeSource.of_table(context.spark(), table)
        return
    with ExitStack() as resources:
        reads_target = is_rounded = False
        if isinstance(source_input, str):
            is_query = any(word.matches(*_QUERY_KEYWORDS) for word in tokenize_sql(source_input)[:1])
            query = source_input if is_query else f"SELECT * FROM {source_input}"  # noqa: S608 - the caller's own text
            views = resources.enter_context(register_views(sibling_table_lookup(context), context.spark, query))
            reads_target = any(read.is_of(context) for read in views.tables)
            is_rounded = any(nanos_columns(read.context.metadata.schema()) for read in views.tables)
            with translate_spark_errors("MERGE USING"):
                frame = context.spark().sql(views.single_text)
        else:
            frame = source_input
        is_fixed = is_deterministic(frame)
        if not has_columns and (rows := _collect_small_source(frame)) is not None:
            source = MergeSource.of_table(context.spark(), rows)
            yield replace(source, reads_target=reads_target, is_deterministic=is_fixed, is_rounded=is_rounded)
            return
        numbered = frame.select("*", F.monotonically_increasing_id().alias(SOURCE_ROW))
        if not is_fixed:
            with translate_spark_errors("MERGE USING"):
                numbered = numbered.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
            frame = numbered.drop(SOURCE_ROW)
        elif not (isinstance(source_input, DataFrame) and is_persisted(source_input)):  # the caller caches it
            resources.enter_context(persisted(numbered))
        yield MergeSource(frame, numbered, None, reads_target, is_fixed, is_rounded)


def _collect_small_source(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a frame if Spark expects few and they are few; None if they would not come back the same."""
    size, limit = _estimated_bytes(frame), _max_source_bytes(frame)
    if size is None or size > limit or len({*frame.columns}) < len(frame.columns):
        return None
    with translate_spark_errors("MERGE USING"):
        rows = collect_if_small(frame, limit, max(limit // 8, _MIN_TASK_BYTES))
    with suppress(UserError):  # a type that only Spark has
        if rows is not None and create_dataframe(frame.sparkSession, rows.slice(0, 0)).dtypes == frame.dtypes:
            return rows
    return None


def _max_source_bytes(frame: DataFrame) -> int:
    return LocalLimits.of(frame.sparkSession).source


def _estimated_bytes(frame: DataFrame) -> int | None:
    """Return the size that Spark expects, exact if the frame is computed and cached; None if it does not tell."""
    if not is_classic(frame.sparkSession):
        return None
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def _to_spark_types(table: pa.Table, schema: Schema) -> pa.Table:
    """Convert rows to Spark's types; reject nanoseconds that a column of the target would store."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        target = find_column(schema, name, case_sensitive=False)
        if target is None or not is_rounded_by_spark(target.field_type):
            continue
        has_fine_unit = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        if has_fine_unit and pc.any(pc.not_equal(column, pc.floor_temporal(column, unit="microsecond"))).as_py():
            raise UnsupportedFeature(
                f"MERGE USING: column {name!r} has nanoseconds, which Spark would cut on the way to the column of type "
                f"{target.field_type}. Cut them yourself, or write the rows by append or overwrite."
            )
    return with_spark_types(table, schema)


def refuse_duplicate_names(frame: DataFrame) -> None:
    """Reject a source with two columns of one name: no expression could tell them apart."""
    names = frame.columns if is_case_sensitive(frame.sparkSession) else [n.lower() for n in frame.columns]
    for name, folded in zip(frame.columns, names, strict=True):
        if names.count(folded) > 1:
            raise UserError(f"MERGE USING: the source has two columns named {name!r}. Rename one of them.")

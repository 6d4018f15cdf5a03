"""The source of a MERGE: rows of any kind as a frame that is computed once, and the range of its keys.

A frame of the caller's is kept on the executors, in memory and on their disks, for as long as the statement runs: it is
read several times, and must say the same each time. The keys it holds rule out files of the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from pyiceberg.types import IcebergType, IntegerType, TimestampNanoType, TimestamptzNanoType, UUIDType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.errors import UnsupportedFeature, UserError
from neve.io.deletion_vectors import PositionSet
from neve.ops.context import TableContext
from neve.ops.rows.target_rows import translate_spark_errors
from neve.ops.sql_views import register_views, sibling_table_lookup
from neve.predicate.column_names import Equality, find_column, quote_name
from neve.predicate.normalize import make_expression
from neve.predicate.sql_text import tokenize_sql
from neve.run.read.types import is_rounded_by_spark
from neve.run.spark.input_rows import as_arrow, as_dataframe, with_spark_types
from neve.run.spark.parquet_scan import KeyFilter
from neve.run.spark.session import is_case_sensitive, is_classic
from neve.run.spark.types import spark_type
from neve.run.spark.writing_job import is_persisted, persisted

SOURCE_ROW = "__neve_source_row"  # a number for each row

_MATCHED_ROW = "__neve_seen"
_MAX_LISTED_KEYS = 200  # distinct keys that are looked for one by one instead of as a range
_MAX_BROADCAST_BYTES = 32 << 20  # bytes of a source that every task may hold
_MIN_INT, _MAX_INT = -(1 << 31), (1 << 31) - 1
_FAST_LOOKUP_TYPES = (sp.IntegralType, sp.DateType, sp.TimestampType, sp.TimestampNTZType)
_UUID_PATTERN = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"  # as Spark is shown them
_RANGE_TYPES = (sp.IntegralType, sp.StringType, sp.DateType, sp.DecimalType, sp.TimestampType, sp.TimestampNTZType)


@dataclass(frozen=True)
class MergeSource:
    """Rows to merge."""

    frame: DataFrame  # as it was given, to look at; computed anew at every use
    numbered_frame: DataFrame  # computed once, with the column `SOURCE_ROW` after the others
    size_in_bytes: int | None = None  # when it is known without asking Spark
    reads_target: bool = False

    def unmatched_rows(self, seen: PositionSet) -> DataFrame | None:
        """The rows whose numbers are not among those; nothing when there is none."""
        if not seen.cardinality:
            return self.numbered_frame
        if self.numbered_frame.count() == seen.cardinality:
            return None
        known = self.numbered_frame.sparkSession.createDataFrame(pa.table({_MATCHED_ROW: seen.positions()}))
        return self.numbered_frame.join(F.broadcast(known), F.col(SOURCE_ROW) == F.col(_MATCHED_ROW), "left_anti")

    @cached_property
    def is_small(self) -> bool:
        """Whether every task may hold a copy; decided once, since Spark knows better once the frame was computed."""
        size = self.size_in_bytes if self.size_in_bytes is not None else _estimated(self.numbered_frame)
        return size is not None and size <= _MAX_BROADCAST_BYTES

    def keys(self, equalities: Sequence[Equality], schema: Schema, alias: str) -> SourceKeys | None:
        """What the keys of the source say about the rows of the target that can match; nothing when it cannot tell."""
        known = [e for given in equalities if (e := _in_schema(given, schema)) is not None]
        usable = [(e, c) for e in known if (c := self._source_column(e, schema, alias)) is not None]
        if not usable:
            return None
        found = self._key_ranges([_comparable(c, schema, e) for e, c in usable])
        fitting = [_clip_to_column_type(r, schema, e) for (e, _), r in zip(usable, found, strict=True)]
        within = reduce(And, (_range_expression(e, r) for (e, _), r in zip(usable, fitting, strict=True)))
        return SourceKeys(within, self._key_filter(usable, found, schema))

    def _key_filter(
        self, usable: list[tuple[Equality, str]], found: list[_KeyRange], schema: Schema
    ) -> KeyFilter | None:
        """The key with the most values, as a condition on rows; those that Spark looks up fastest before others."""
        if not self.is_small:
            return None
        plain = [
            (e, c, r) for (e, c), r in zip(usable, found, strict=True) if not e.is_null_safe and "." not in e.target
        ]
        if not plain:
            return None
        types = {f.name: f.dataType for f in self.frame.schema.fields}
        equality, column, _ = max(plain, key=lambda k: (isinstance(types[k[1]], _FAST_LOOKUP_TYPES), k[2].distinct))
        return KeyFilter(
            schema.find_field(equality.target).field_id, self.numbered_frame.select(F.col(quote_name(column)))
        )

    def _source_column(self, equality: Equality, schema: Schema, alias: str) -> str | None:
        """The column of the source, when its values compare as the target's do."""
        parts = equality.source
        name = parts[-1] if len(parts) == 1 or (len(parts) == 2 and parts[0].lower() == alias.lower()) else None
        field = None if name is None else self._named(name)
        target = schema.find_field(equality.target).field_type
        return field.name if field is not None and _are_comparable(field.dataType, target) else None

    def _named(self, name: str) -> sp.StructField | None:
        """The column the session means by a name."""
        fields, folds = self.frame.schema.fields, not is_case_sensitive(self.frame.sparkSession)
        return next((f for f in fields if f.name == name or (folds and f.name.lower() == name.lower())), None)

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
        found = self.numbered_frame.agg(*parts).toArrow()
        row = {name: _literal_values(found[name])[0] for name in found.column_names}
        return [self._range_from_row(row, at, c) for at, c in enumerate(columns)]

    def _range_from_row(self, row: dict[str, Any], at: int, column: Column) -> _KeyRange:
        low, high, nulls, distinct = (row[f"{part}{at}"] for part in ("low", "high", "nulls", "distinct"))
        values: tuple[Any, ...] = ()
        if low is not None and distinct <= _MAX_LISTED_KEYS:
            few = (
                self.numbered_frame.select(column.alias("key"))
                .where(column.isNotNull())
                .distinct()
                .limit(2 * _MAX_LISTED_KEYS + 1)
            )
            found = _literal_values(few.toArrow()["key"])
            values = tuple(found) if len(found) <= 2 * _MAX_LISTED_KEYS else ()
        return _KeyRange(low, high, nulls > 0, distinct, values)


@dataclass(frozen=True)
class SourceKeys:
    """What the keys of a source say about the rows that can match."""

    file_filter: BooleanExpression  # about files
    key_filter: KeyFilter | None  # about rows, where looking them up pays


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """The values of one key."""

    low: Any
    high: Any
    has_nulls: bool
    distinct: int  # about so many values
    values: tuple[Any, ...] = ()


def _literal_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a key, times as literals of the numbers they are stored as: Python's own end with the year 9999."""
    if pa.types.is_date32(column.type):
        return [v if v is None else DateLiteral(v) for v in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(column.type):
        return [v if v is None else TimestampLiteral(v) for v in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


def _in_schema(equality: Equality, schema: Schema) -> Equality | None:
    """The same with the column called as the table calls it; nothing for a name the table does not have."""
    found = find_column(schema, equality.target, case_sensitive=False)
    name = None if found is None else schema.find_column_name(found.field_id)
    return None if name is None else replace(equality, target=name)


def _clip_to_column_type(key_range: _KeyRange, schema: Schema, equality: Equality) -> _KeyRange:
    """The values that the column of the target can have: a long may be beyond every int."""
    kind = schema.find_field(equality.target).field_type
    if not isinstance(kind, IntegerType) or key_range.low is None:
        return key_range
    low, high = max(key_range.low, _MIN_INT), min(key_range.high, _MAX_INT)
    if low > high:
        return replace(key_range, low=None, high=None, values=())
    return replace(key_range, low=low, high=high, values=tuple(v for v in key_range.values if low <= v <= high))


def _range_expression(equality: Equality, key_range: _KeyRange) -> BooleanExpression:
    name = equality.target
    held: BooleanExpression = AlwaysFalse()
    if key_range.values:
        held = make_expression(In, name, key_range.values)
    elif key_range.low is not None:
        held = And(
            make_expression(GreaterThanOrEqual, name, key_range.low),
            make_expression(LessThanOrEqual, name, key_range.high),
        )
    return Or(held, make_expression(IsNull, name)) if equality.is_null_safe and key_range.has_nulls else held


def _comparable(name: str, schema: Schema, equality: Equality) -> Column:
    """The values of a column of the source that may be in the target's: no other text is that of a UUID."""
    column, kind = F.col(quote_name(name)), schema.find_field(equality.target).field_type
    return F.when(column.rlike(_UUID_PATTERN), column) if isinstance(kind, UUIDType) else column


def _are_comparable(source: sp.DataType, kind: IcebergType) -> bool:
    """Whether values of the source rule out files by the values these have."""
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        return False  # Spark compares them rounded
    target = spark_type(kind)
    if isinstance(source, sp.IntegralType) and isinstance(target, sp.IntegralType):
        return True
    if isinstance(source, sp.DecimalType):
        return source == target  # values of another scale are not values of the column
    return type(source) is type(target) and isinstance(source, _RANGE_TYPES)


def _estimated(frame: DataFrame) -> int | None:
    """What Spark thinks a frame takes, exact once it was computed and kept."""
    if not is_classic(frame.sparkSession):
        return None
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


@contextmanager
def open_merge_source(context: TableContext, source_input: Any) -> Iterator[MergeSource]:
    """A source of any kind for as long as the block lasts."""
    with ExitStack() as held:
        if isinstance(source_input, str):
            source = _query_source(context, source_input, held)
        elif isinstance(source_input, DataFrame):
            source = MergeSource(source_input, _number_rows(source_input))
        else:
            table = _to_spark_types(as_arrow(source_input, context.metadata.schema()), context.metadata.schema())
            rows = table.append_column(SOURCE_ROW, pa.array(np.arange(len(table))))
            frame = as_dataframe(context.spark(), rows, context.metadata.schema())
            yield MergeSource(frame.drop(SOURCE_ROW), frame, table.nbytes)
            return
        if not (isinstance(source_input, DataFrame) and is_persisted(source_input)):  # the caller keeps it already
            held.enter_context(persisted(source.numbered_frame))
        yield source


def _to_spark_types(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows in types of Spark; nanoseconds that a column of the target would take are not cut."""
    for name in table.column_names:
        found = find_column(schema, name, case_sensitive=False)
        if found is not None and is_rounded_by_spark(found.field_type) and _is_finer(table[name]):
            raise UnsupportedFeature(
                f"MERGE USING: column {name!r} has nanoseconds, which Spark would cut on their way to the column of "
                f"type {found.field_type}. Cut them yourself, or write the rows by append or overwrite."
            )
    return with_spark_types(table, schema)


def _is_finer(column: pa.ChunkedArray) -> bool:
    """Whether some value of a column is between two microseconds."""
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return False
    return bool(pc.any(pc.not_equal(column, pc.floor_temporal(column, unit="microsecond"))).as_py())


def _number_rows(frame: DataFrame) -> DataFrame:
    return frame.select("*", F.monotonically_increasing_id().alias(SOURCE_ROW))


def _query_source(context: TableContext, text: str, resources: ExitStack) -> MergeSource:
    """The rows of a query, or of a table of the lake or of Spark by its name."""
    is_query = any(word.matches(*_QUERY_KEYWORDS) for word in tokenize_sql(text)[:1])
    query = text if is_query else f"SELECT * FROM {text}"  # noqa: S608 - the caller's own text
    views = resources.enter_context(register_views(sibling_table_lookup(context), context.spark, query))
    with translate_spark_errors("MERGE USING"):
        frame = context.spark().sql(views.single_text)
    return MergeSource(frame, _number_rows(frame), reads_target=any(read.is_of(context) for read in views.tables))


_QUERY_KEYWORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")


def refuse_duplicate_names(frame: DataFrame) -> None:
    """Refuse a source with two columns of one name: no expression could tell them apart."""
    names = frame.columns if is_case_sensitive(frame.sparkSession) else [n.lower() for n in frame.columns]
    for name, folded in zip(frame.columns, names, strict=True):
        if names.count(folded) > 1:
            raise UserError(f"MERGE USING: the source has two columns named {name!r}. Rename one of them.")

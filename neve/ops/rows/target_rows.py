"""The table a statement changes, as Spark sees it: its rows with where each of them is, and the conditions on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, TimestampNanoType, TimestamptzNanoType
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.errors import UnsupportedFeature, UserError
from neve.ops.context import TableContext
from neve.ops.sql_views import register_views, sibling_table_lookup
from neve.plan.scan import METADATA_COLUMNS, ScanPlan
from neve.predicate import Predicate, parse
from neve.predicate.normalize import compared_columns
from neve.predicate.sql_features import features_of
from neve.run.change_tally import FILE_COLUMN, POSITION_COLUMN
from neve.run.read.metadata_columns import LAST_UPDATED, ORDINAL, ROW_ID
from neve.run.read.metadata_columns import POSITION as ROW_POSITION
from neve.run.spark.expressions import as_column, condition_column, user_error_from_spark
from neve.run.spark.parquet_scan import KeyFilter
from neve.run.spark.read import read_dataframe
from neve.run.spark.session import is_case_sensitive, parses_text_differently, quiet_errors

RowCondition = str | BooleanExpression | Column | None
_ROW_ID = "__neve_row_id"


@dataclass(frozen=True)
class TargetRows:
    """The rows of a table's files as a statement sees them."""

    context: TableContext
    plan: ScanPlan
    alias: str
    metadata_columns: tuple[str, ...] = ()
    key_filter: KeyFilter | None = None  # keys without one of which a row does not matter

    def frame(self) -> DataFrame:
        """The live rows with file and position, and their row ids where the table has them."""
        own = tuple(n for n in self.metadata_columns if n not in self._aliased_columns)
        rows = read_dataframe(self.context.spark(), self.plan, self.context.facts, own, self._extra(), self.key_filter)
        copies = {
            name: F.col(self._aliased_columns[name]) for name in self.metadata_columns if name in self._aliased_columns
        }
        return (rows.withColumns(copies) if copies else rows).alias(self.alias)

    def empty_frame(self) -> DataFrame:
        """The same columns without rows, to check expressions against."""
        plan = self.plan
        nothing = replace(plan, files=plan.files.take([]), deletes=plan.deletes.take([]))
        return replace(self, plan=replace(nothing, attached=plan.attached.slice(0, 0))).frame()

    def lineage_columns(self) -> list[Column]:
        """The row id a changed row keeps, and no number: it takes that of the commit. None before version 3."""
        if not self._has_lineage:
            return []
        return [F.col(_ROW_ID).alias(ROW_ID.name), F.lit(None).cast("bigint").alias(LAST_UPDATED.name)]

    @property
    def _has_lineage(self) -> bool:
        return self.context.metadata.format_version >= 3

    @property
    def _aliased_columns(self) -> dict[str, str]:
        """Metadata columns that are read anyway, and under which name."""
        return {ROW_POSITION.name: POSITION_COLUMN, **({ROW_ID.name: _ROW_ID} if self._has_lineage else {})}

    def _extra(self) -> list[NestedField]:
        named = (
            (ORDINAL, FILE_COLUMN),
            (ROW_POSITION, POSITION_COLUMN),
            *([(ROW_ID, _ROW_ID)] if self._has_lineage else []),
        )
        return [column.model_copy(update={"name": name}) for column, name in named]


@dataclass(frozen=True)
class ResolvedExpressions:
    """Expressions by clause, with the tables of the lake in their subqueries as views."""

    values: Mapping[str, Any]
    reads_target: bool = False  # a subquery reads the table that is changed


@contextmanager
def resolve_subqueries(context: TableContext, values: Mapping[str, Any]) -> Iterator[ResolvedExpressions]:
    """Expressions ready for Spark for as long as the block lasts."""
    texts = {clause: v for clause, v in values.items() if isinstance(v, str) and features_of(v).has_subquery}
    if not texts:
        yield ResolvedExpressions(values)
        return
    with register_views(sibling_table_lookup(context), context.spark, *texts.values()) as views:
        reads_target = any(read.is_of(context) for read in views.tables)
        yield ResolvedExpressions({**values, **dict(zip(texts, views.texts, strict=True))}, reads_target)


def predicate_of(context: TableContext, where: RowCondition, alias: str | None, clause: str) -> Predicate:
    """A condition as far as whole files can be judged by it."""
    if where is None:
        return Predicate(AlwaysTrue(), True)
    if isinstance(where, Column):
        return Predicate(AlwaysTrue(), False)
    if not isinstance(where, str | BooleanExpression):
        raise UserError(f"{clause}: give SQL text, a Column or a PyIceberg expression, not {type(where).__name__}.")
    if isinstance(where, str) and parses_text_differently(context.spark(), where):
        return Predicate(AlwaysTrue(), False)  # Spark alone knows what it means
    # Names are Spark's matter here: the session says whether their case matters.
    case = is_case_sensitive(context.spark())
    schema = context.metadata.schema()
    found = parse(where, schema, case_sensitive=case, time_zone=context.time_zone(), alias=alias)
    if isinstance(where, BooleanExpression):
        _refuse_nanoseconds(found.expression, schema, clause)
    return found


def _refuse_nanoseconds(where: BooleanExpression, schema: Schema, clause: str) -> None:
    """Refuse an expression about nanoseconds: files are judged by them, and rows by Spark's microseconds."""
    for field in compared_columns(where, schema):
        if isinstance(field.field_type, TimestampNanoType | TimestamptzNanoType):
            raise UnsupportedFeature(
                f"{clause}: column {field.name!r} of type {field.field_type} is finer than Spark's timestamps, and "
                "rows would be compared in microseconds. Write the condition as SQL text."
            )


def row_condition(context: TableContext, where: RowCondition) -> Column:
    """A condition as Spark applies it to rows."""
    if where is None:
        return F.lit(True)
    if isinstance(where, BooleanExpression):
        return condition_column(where, context.metadata.schema())
    return as_column(where)


def metadata_columns_in(context: TableContext, values: Iterable[object]) -> tuple[str, ...]:
    """The metadata columns that texts name."""
    own = {f.name for f in context.metadata.schema().fields}
    named = {c.split(".")[-1] for v in values if isinstance(v, str) for c in features_of(v).columns}
    named |= {c.split(".")[0] for v in values if isinstance(v, str) for c in features_of(v).columns}
    return tuple(c for c in METADATA_COLUMNS if c in named and c not in own)


@contextmanager
def translate_spark_errors(clause: str) -> Iterator[None]:
    """What Spark says about a clause, as an error of ours."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        raise user_error_from_spark(clause, e) from e

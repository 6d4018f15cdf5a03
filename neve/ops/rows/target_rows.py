"""The table that a statement changes: its rows with file and position in Spark, and the conditions on them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from neve.errors import UnsupportedFeature, UserError
from neve.ops.context import TableContext
from neve.ops.sql_views import register_views, sibling_table_lookup
from neve.plan.scan import METADATA_COLUMNS, ScanPlan
from neve.predicate import Predicate, parse
from neve.predicate.nanoseconds import compare_exactly, nanos_columns
from neve.predicate.sql_features import features_of
from neve.run.change_tally import FILE_COLUMN, POSITION_COLUMN
from neve.run.read.metadata_columns import LAST_UPDATED, ORDINAL, ROW_ID
from neve.run.read.metadata_columns import POSITION as ROW_POSITION
from neve.run.read.types import unscaled_columns
from neve.run.spark.expressions import SqlOrColumn, as_column, condition_column, user_error_from_spark
from neve.run.spark.parquet_scan import KeyFilter
from neve.run.spark.read import read_dataframe
from neve.run.spark.session import is_case_sensitive, parses_text_differently, quiet_errors

RowCondition = str | BooleanExpression | Column | None
_ROW_ID = "__neve_row_id"


@dataclass(frozen=True)
class TargetRows:
    """The rows of a table's files, as a statement reads them."""

    context: TableContext
    plan: ScanPlan
    alias: str
    metadata_columns: tuple[str, ...] = ()
    key_filter: KeyFilter | None = None  # rows without one of these keys do not matter

    def frame(self) -> DataFrame:
        """Return the live rows with file and position, and with row ids if the table has them."""
        others = tuple(n for n in self.metadata_columns if n not in self._aliased_columns)
        position_columns = (
            (ORDINAL, FILE_COLUMN),
            (ROW_POSITION, POSITION_COLUMN),
            *([(ROW_ID, _ROW_ID)] if self._has_lineage else []),
        )
        extra = [column.model_copy(update={"name": name}) for column, name in position_columns]
        extra += unscaled_columns(self.plan.schema)
        rows = read_dataframe(self.context.spark(), self.plan, self.context.facts, others, extra, self.key_filter)
        copies = {
            name: F.col(self._aliased_columns[name]) for name in self.metadata_columns if name in self._aliased_columns
        }
        return (rows.withColumns(copies) if copies else rows).alias(self.alias)

    def empty_frame(self) -> DataFrame:
        """Return the same columns without rows, to check expressions against."""
        plan = self.plan
        nothing = replace(plan, files=plan.files.take([]), deletes=plan.deletes.take([]))
        return replace(self, plan=replace(nothing, attached=plan.attached.slice(0, 0))).frame()

    def lineage_columns(self) -> list[Column]:
        """The row id, which a changed row keeps, and a null number, which the commit fills; empty before version 3."""
        if not self._has_lineage:
            return []
        return [F.col(_ROW_ID).alias(ROW_ID.name), F.lit(None).cast("bigint").alias(LAST_UPDATED.name)]

    @property
    def _has_lineage(self) -> bool:
        return self.context.metadata.format_version >= 3

    @property
    def _aliased_columns(self) -> dict[str, str]:
        """Metadata columns that are read in any case, and their names in the frame."""
        return {ROW_POSITION.name: POSITION_COLUMN, **({ROW_ID.name: _ROW_ID} if self._has_lineage else {})}


@dataclass(frozen=True)
class ResolvedExpressions:
    """Expressions by clause; tables of the lake in their subqueries are registered as views."""

    values: Mapping[str, Any]
    reads_target: bool = False  # a subquery reads the table that is changed


@contextmanager
def resolve_subqueries(context: TableContext, values: Mapping[str, Any]) -> Iterator[ResolvedExpressions]:
    """Prepare expressions for Spark while the block lasts."""
    texts = {clause: v for clause, v in values.items() if isinstance(v, str) and features_of(v).has_subquery}
    if not texts:
        yield ResolvedExpressions(values)
        return
    with register_views(sibling_table_lookup(context), context.spark, *texts.values()) as views:
        reads_target = any(read.is_of(context) for read in views.tables)
        yield ResolvedExpressions({**values, **dict(zip(texts, views.texts, strict=True))}, reads_target)


def predicate_of(context: TableContext, where: RowCondition, alias: str | None, clause: str) -> Predicate:
    """Return a condition in the form by which whole files can be evaluated."""
    if where is None:
        return Predicate(AlwaysTrue(), True)
    if isinstance(where, Column):
        return Predicate(AlwaysTrue(), False)
    if not isinstance(where, str | BooleanExpression):
        raise UserError(f"{clause}: give SQL text, a Column or a PyIceberg expression, not {type(where).__name__}.")
    if isinstance(where, str) and parses_text_differently(context.spark(), where):
        return Predicate(AlwaysTrue(), False)  # only Spark can evaluate it
    # Spark resolves the names: the session decides whether case matters.
    case = is_case_sensitive(context.spark())
    return parse(where, context.metadata.schema(), case_sensitive=case, time_zone=context.time_zone(), alias=alias)


def row_condition(context: TableContext, where: RowCondition, alias: str) -> Column:
    """Return a condition in the form that Spark applies to rows; columns of nanoseconds are compared exactly."""
    if where is None:
        return F.lit(True)
    if isinstance(where, BooleanExpression):
        return condition_column(where, context.metadata.schema())
    return as_column(exact_condition(context, where, alias))


def exact_condition(
    context: TableContext,
    where: SqlOrColumn,
    alias: str,
    other_alias: str | None = None,
    *,
    has_rounded_source: bool = False,
) -> SqlOrColumn:
    """Return a condition on `TargetRows` that compares columns of nanoseconds exactly; see `compare_exactly`."""
    schema = context.metadata.schema()
    if isinstance(where, str):
        return compare_exactly(
            where,
            schema,
            case_sensitive=is_case_sensitive(context.spark()),
            time_zone=context.time_zone(),
            alias=alias,
            other_alias=other_alias,
            has_rounded_source=has_rounded_source,
        )
    for field in nanos_columns(schema):
        if re.search(rf"\b{re.escape(field.name)}\b", str(where), re.IGNORECASE):
            raise UnsupportedFeature(
                f"Column {field.name!r} of type {field.field_type} is finer than Spark's timestamps, so a Column would "
                "compare it rounded. Write the condition as SQL text."
            )
    return where


def metadata_columns_in(context: TableContext, values: Iterable[object]) -> tuple[str, ...]:
    """Return the metadata columns that SQL texts name."""
    own = {f.name for f in context.metadata.schema().fields}
    texts = [value for value in values if isinstance(value, str)]
    named = {part for text in texts for parts in features_of(text).columns for part in (parts[0], parts[-1])}
    return tuple(c for c in METADATA_COLUMNS if c in named and c not in own)


@contextmanager
def translate_spark_errors(clause: str) -> Iterator[None]:
    """Raise Spark's errors about a clause as our own."""
    try:
        with quiet_errors():
            yield
    except PySparkException as e:
        raise user_error_from_spark(clause, e) from e

"""Read rows of a table.

The condition is Spark SQL. What it says about whole files leaves files out while planning; Spark then applies all of it
to the rows, so the answer is exact whatever could be decided from metadata.

Isolation: a scan reads one snapshot, the one that was current when it was made unless another is named.
Writes: nothing.

>>> scan = t.scan("region = 'eu'", columns=["id"])
>>> scan.summary()
'1 of 2 files in 1 spec'
>>> scan.to_arrow().to_pydict()
{'id': [1, 3]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from neve.display.format import plural
from neve.errors import TableError, UnknownName, UnsupportedFeature, UserError
from neve.io.untrusted import translate_parse_errors
from neve.ops.context import TableContext
from neve.ops.plan_scan import plan_snapshot_scan
from neve.ops.results import milliseconds
from neve.plan.scan import ScanPlan, project_schema, top_level_column
from neve.predicate import Predicate, parse
from neve.predicate.normalize import normalize_and_bind
from neve.run.read.scan import read_table
from neve.run.read.types import ArrowFlavor, arrow_type, first_column_rounded_by_spark
from neve.run.spark.expressions import condition_column
from neve.run.spark.read import read_dataframe
from neve.run.spark.read_columns import column_by_name, prune_nested_fields
from neve.run.spark.session import quiet_errors
from neve.run.table_facts import TableFacts

Engine = Literal["auto", "spark", "arrow"]
_LOCAL_BYTES = 64 << 20  # a whole read of less is done in this process: a Spark job costs more


@dataclass(frozen=True)
class Scan:
    """Rows to read from one snapshot; nothing is read until they are asked for."""

    context: TableContext
    snapshot: Snapshot | None
    schema: Schema
    where: str | BooleanExpression | None = None
    columns: tuple[str, ...] | None = None
    case_sensitive: bool = True

    @classmethod
    def of(
        cls,
        context: TableContext,
        *,
        where: str | BooleanExpression | None = None,
        columns: Iterable[str] | None = None,
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of: datetime | int | None = None,
        case_sensitive: bool = True,
    ) -> Scan:
        """A scan of the snapshot named; its condition and columns are checked now, before anything is read."""
        if isinstance(columns, str):
            raise UserError(f"Give columns as a list, such as [{columns!r}].")
        time = None if as_of is None else milliseconds(as_of, "as_of")
        snapshot = context.snapshot(snapshot_id, ref, time)
        schema = _schema_to_read(context, snapshot, ref, is_past=snapshot_id is not None or as_of is not None)
        names = None if columns is None else tuple(columns)
        made = cls(context, snapshot, schema, where, names, case_sensitive)
        made._check()
        return made

    def plan(self) -> ScanPlan:
        """Which files would be read, which deletes apply, and what was left out."""
        return self._plan

    def explain(self) -> str:
        """The plan in words."""
        return self._plan.explain(self.where if isinstance(self.where, str) else None)

    def summary(self) -> str:
        """The plan in a few words: files of files, and how many specs they are from."""
        stats, specs = self._plan.stats, len(self._plan.files.spec_ids())
        return f"{stats.files} of {plural(stats.files_considered, 'file')} in {plural(specs, 'spec')}"

    def to_spark(self) -> DataFrame:
        """The rows as a Spark DataFrame."""
        with self._translate_spark_errors():
            rows = read_dataframe(self.context.spark(), self._plan, self._facts, self._plan.metadata_columns)
            if self._condition is not None:
                rows = rows.where(self._condition)
            return rows if self.columns is None else rows.select(*self._result_columns())

    def to_arrow(self, engine: Engine = "auto") -> pa.Table:
        """The rows as an Arrow table in this process.

        Spark reads them, unless they are few or a column has a type that Spark holds in another, and the condition
        compares columns with values only: then they are read here, by the code the executors use. Columns that Spark
        would round are always read here. `engine` chooses one or the other.
        """
        if engine not in ("auto", "spark", "arrow"):
            raise UnknownName("engine", engine, ("auto", "spark", "arrow"))
        if engine == "arrow" or (engine == "auto" and self._is_read_locally):
            return self._read_locally()
        with self._translate_spark_errors():
            return self.to_spark().toArrow()

    def head(self, count: int = 20) -> pa.Table:
        """The first rows as an Arrow table, whichever those are; a table that is large is not read as a whole."""
        if self._is_read_locally:
            return self._read_locally(count)
        with self._translate_spark_errors():
            return self.to_spark().limit(count).toArrow()

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame in this process."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """The number of rows; from metadata alone where nothing has to be read for it."""
        files, deletes = self._plan.files, self._plan.deletes
        is_counted = pc.all(pc.greater_equal(files["record_count"], 0), min_count=0).as_py()  # old imports did not
        only_vectors = pc.all(pc.equal(deletes["file_format"], "PUFFIN"), min_count=0).as_py()
        if self.where is not None or not is_counted or not only_vectors:
            with self._translate_spark_errors():
                return self.to_spark().count()
        rows, dead = (pc.sum(some["record_count"]).as_py() or 0 for some in (files, deletes))
        return int(rows - dead)

    @cached_property
    def _predicate(self) -> Predicate | None:
        if self.where is None:
            return None
        zone = self.context.time_zone()
        return parse(self.where, self.schema, case_sensitive=self.case_sensitive, time_zone=zone)

    @cached_property
    def _plan(self) -> ScanPlan:
        context = self.context
        where = self._predicate.expression if self._predicate else None
        with translate_parse_errors(context.iceberg.metadata_location, "a table whose scan can be planned"):
            always = ("value_counts",) if context.facts.columns_that_may_be_missing(self.schema) else ()
            return plan_snapshot_scan(
                context.io,
                context.metadata,
                self.snapshot,
                where=where,
                columns=self._columns_read,
                schema=self.schema,
                case_sensitive=self.case_sensitive,
                always_read=always,
            )

    @cached_property
    def _facts(self) -> TableFacts:
        """The table as this snapshot knows it: its manifests may tell types that no others tell."""
        return replace(self.context.facts, specs=self._plan.files.specs)

    @cached_property
    def _columns_read(self) -> tuple[str, ...] | None:
        """The columns asked for and those the condition needs."""
        if self.columns is None:
            return None
        return tuple(dict.fromkeys((*self.columns, *self._columns_compared)))

    @property
    def _columns_compared(self) -> tuple[str, ...]:
        if self._predicate is None or isinstance(self.where, str):
            return self._predicate.columns if self._predicate else ()
        ids = extract_field_ids(normalize_and_bind(self._predicate.expression, self.schema))
        return tuple(name for i in sorted(ids) if (name := self.schema.find_column_name(i)) is not None)

    @cached_property
    def _result_names(self) -> tuple[str, ...]:
        """The columns of the result."""
        if self.columns is None:
            return tuple(f.name for f in self.schema.fields)
        return tuple(
            dict.fromkeys(top_level_column(self.schema, n, case_sensitive=self.case_sensitive) for n in self.columns)
        )

    @property
    def _result_schema(self) -> Schema:
        """The columns of the result, without fields of structs that only the condition needs."""
        return project_schema(self.schema, self.columns, case_sensitive=self.case_sensitive)[0]

    def _result_columns(self) -> list[Column]:
        """The columns of the result, made from those that were read."""
        were_read, wanted = ({f.name: f.field_type for f in s.fields} for s in (self._plan.schema, self._result_schema))
        return [
            prune_nested_fields(column_by_name(n), were_read[n], wanted[n]).alias(n)
            if n in wanted
            else column_by_name(n)
            for n in self._result_names
        ]

    @cached_property
    def _condition(self) -> str | Column | None:
        """The condition for Spark: text as it was given, an expression as a column."""
        if self.where is None or isinstance(self.where, str):
            return self.where
        return condition_column(self.where, self.schema, case_sensitive=self.case_sensitive)

    @property
    def _is_read_locally(self) -> bool:
        schema = self._plan.schema
        if self._predicate is not None and not self._predicate.is_exact:
            return first_column_rounded_by_spark(schema) is not None
        # The types of the result are the same however much there is to read.
        return self._plan.stats.bytes <= _LOCAL_BYTES or not all(_is_carried(f.field_type) for f in schema.fields)

    def _read_locally(self, count: int | None = None) -> pa.Table:
        """The rows read in this process; the condition must be one that can be decided without Spark."""
        if self._predicate is not None and not self._predicate.is_exact:
            raise UnsupportedFeature(
                f"Cannot apply the condition {self.where!r} outside Spark. Compare columns with values only, "
                "or read the rows with to_spark()."
            )
        where = self._predicate.expression if self._predicate else None
        with translate_parse_errors(self.context.iceberg.metadata_location, "a table whose rows can be read"):
            asked = replace(self._plan, schema=self._result_schema)
            return read_table(asked, self._facts, where, count=count).select(self._result_names)

    @contextmanager
    def _translate_spark_errors(self) -> Iterator[None]:
        """What Spark says about a condition or a file, without its plans and stacks."""
        try:
            with quiet_errors():
                yield
        except PySparkException as e:
            said = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            if self.where is not None:
                raise UserError(f"Cannot read table {self.context.name} where {self.where}: {said}") from e
            raise TableError(f"Cannot read table {self.context.name}: {said}") from e

    def _check(self) -> None:
        """Refuse an unknown column or a condition that cannot be read, before anything is planned."""
        self._result_schema, self._predicate  # noqa: B018


def _schema_to_read(context: TableContext, snapshot: Snapshot | None, ref: str | None, *, is_past: bool) -> Schema:
    """The past is read as it looked then; a branch is read with the columns of today."""
    is_tag = ref in context.metadata.refs and context.metadata.refs[ref].snapshot_ref_type == SnapshotRefType.TAG
    if snapshot is None or snapshot.schema_id is None or not (is_past or is_tag):
        return context.metadata.schema()
    return next((s for s in context.metadata.schemas if s.schema_id == snapshot.schema_id), context.metadata.schema())


def _is_carried(kind: IcebergType) -> bool:
    """Whether Spark holds values of a type without changing them."""
    return arrow_type(kind, ArrowFlavor.SPARK) == arrow_type(kind, ArrowFlavor.EXACT)

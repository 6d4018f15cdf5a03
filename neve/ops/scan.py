"""Read rows of a table.

The condition is Spark SQL. Planning leaves out files that it rules out; Spark then applies the whole condition to the
rows, so the result is exact however much could be decided from metadata.

Isolation: a scan reads one snapshot: the one that was current when the scan was created, unless another is named.
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
_LOCAL_BYTES = 64 << 20  # smaller reads run in this process: a Spark job costs more


@dataclass(frozen=True)
class Scan:
    """Rows to read from one snapshot; nothing is read until rows are requested."""

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
        """Create a scan of a snapshot; condition and columns are checked before anything is read."""
        if isinstance(columns, str):
            raise UserError(f"Give columns as a list, such as [{columns!r}].")
        time = None if as_of is None else milliseconds(as_of, "as_of")
        snapshot = context.snapshot(snapshot_id, ref, time)
        # A past snapshot or a tag is read with its own columns, a branch with the current ones.
        schema, refs = context.metadata.schema(), context.metadata.refs
        is_tag = ref in refs and refs[ref].snapshot_ref_type == SnapshotRefType.TAG
        if snapshot is not None and (snapshot_id is not None or as_of is not None or is_tag):
            schema = next((s for s in context.metadata.schemas if s.schema_id == snapshot.schema_id), schema)
        names = None if columns is None else tuple(columns)
        scan = cls(context, snapshot, schema, where, names, case_sensitive)
        scan._result_schema, scan._predicate  # noqa: B018 - an unknown column or a wrong condition is an error at once
        return scan

    def plan(self) -> ScanPlan:
        """Return which files would be read, which deletes apply, and which files were ruled out."""
        return self._plan

    def explain(self) -> str:
        """Describe the plan in words."""
        return self._plan.explain(self.where if isinstance(self.where, str) else None)

    def summary(self) -> str:
        """Describe the plan in a few words: the files to read of all files, and the number of their specs."""
        stats, specs = self._plan.stats, len(self._plan.files.spec_ids())
        return f"{stats.files} of {plural(stats.files_considered, 'file')} in {plural(specs, 'spec')}"

    def to_spark(self) -> DataFrame:
        """Return the rows as a Spark DataFrame."""
        with self._translate_spark_errors():
            rows = read_dataframe(self.context.spark(), self._plan, self._facts, self._plan.metadata_columns)
            if self._condition is not None:
                rows = rows.where(self._condition)
            if self.columns is None:
                return rows
            read, result = ({f.name: f.field_type for f in s.fields} for s in (self._plan.schema, self._result_schema))
            columns = {name: column_by_name(name) for name in self._result_names}
            pruned = {n: prune_nested_fields(columns[n], read[n], kind).alias(n) for n, kind in result.items()}
            return rows.select(*(columns | pruned).values())

    def to_arrow(self, engine: Engine = "auto") -> pa.Table:
        """Return the rows as an Arrow table in this process.

        Spark reads them by default. If the condition compares only columns with values, and the rows are few or a
        column has a type that Spark holds in another type, they are read in this process, by the code that executors
        use. Columns that Spark would round are always read in this process. `engine` chooses one or the other.
        """
        if engine not in ("auto", "spark", "arrow"):
            raise UnknownName("engine", engine, ("auto", "spark", "arrow"))
        if engine == "arrow" or (engine == "auto" and self._is_read_locally):
            return self._read_locally()
        with self._translate_spark_errors():
            return self.to_spark().toArrow()

    def head(self, count: int = 20) -> pa.Table:
        """Return the first rows, in no certain order, as an Arrow table; a large table is not read as a whole."""
        if self._is_read_locally:
            return self._read_locally(count)
        with self._translate_spark_errors():
            return self.to_spark().limit(count).toArrow()

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame in this process."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """Count the rows, from metadata alone if nothing has to be read for it."""
        files, deletes = self._plan.files, self._plan.deletes
        is_counted = pc.all(pc.greater_equal(files["record_count"], 0), min_count=0).as_py()  # not so in old imports
        only_vectors = pc.all(pc.equal(deletes["file_format"], "PUFFIN"), min_count=0).as_py()
        if self.where is not None or not is_counted or not only_vectors:
            with self._translate_spark_errors():
                return self.to_spark().count()
        rows, dead = (pc.sum(entries["record_count"]).as_py() or 0 for entries in (files, deletes))
        return int(rows - dead)

    @cached_property
    def _predicate(self) -> Predicate | None:
        if self.where is None:
            return None
        zone = self.context.time_zone()
        return parse(self.where, self.schema, case_sensitive=self.case_sensitive, time_zone=zone)

    @cached_property
    def _plan(self) -> ScanPlan:
        context, predicate = self.context, self._predicate
        columns = self.columns
        if columns is not None and predicate is not None:  # read those that the condition needs, too
            compared: Iterable[str] = predicate.columns
            if not isinstance(self.where, str):
                ids = extract_field_ids(normalize_and_bind(predicate.expression, self.schema))
                compared = (name for i in sorted(ids) if (name := self.schema.find_column_name(i)) is not None)
            columns = tuple(dict.fromkeys((*columns, *compared)))
        with translate_parse_errors(context.iceberg.metadata_location, "a table whose scan can be planned"):
            always = ("value_counts",) if context.facts.columns_that_may_be_missing(self.schema) else ()
            return plan_snapshot_scan(
                context.io,
                context.metadata,
                self.snapshot,
                where=predicate.expression if predicate else None,
                columns=columns,
                schema=self.schema,
                case_sensitive=self.case_sensitive,
                always_read=always,
            )

    @cached_property
    def _facts(self) -> TableFacts:
        """The facts for this snapshot: only its own manifests may have some partition types."""
        return replace(self.context.facts, specs=self._plan.files.specs)

    @cached_property
    def _result_names(self) -> tuple[str, ...]:
        if self.columns is None:
            return tuple(f.name for f in self.schema.fields)
        return tuple(
            dict.fromkeys(top_level_column(self.schema, n, case_sensitive=self.case_sensitive) for n in self.columns)
        )

    @property
    def _result_schema(self) -> Schema:
        """The columns of the result, without fields of structs that only the condition needs."""
        return project_schema(self.schema, self.columns, case_sensitive=self.case_sensitive)[0]

    @cached_property
    def _condition(self) -> str | Column | None:
        """The condition for Spark: SQL text unchanged, an expression as a column."""
        if self.where is None or isinstance(self.where, str):
            return self.where
        return condition_column(self.where, self.schema, case_sensitive=self.case_sensitive)

    @property
    def _is_read_locally(self) -> bool:
        schema = self._plan.schema
        if self._predicate is not None and not self._predicate.is_exact:
            return first_column_rounded_by_spark(schema) is not None
        # The result types do not depend on how much there is to read.
        return self._plan.stats.bytes <= _LOCAL_BYTES or not is_exact_in_spark(schema)

    def _read_locally(self, count: int | None = None) -> pa.Table:
        """Read the rows in this process; the condition must be one that can be evaluated without Spark."""
        if self._predicate is not None and not self._predicate.is_exact:
            raise UnsupportedFeature(
                f"Cannot apply the condition {self.where!r} outside Spark. Compare columns with values only, "
                "or read the rows with to_spark()."
            )
        where = self._predicate.expression if self._predicate else None
        with translate_parse_errors(self.context.iceberg.metadata_location, "a table whose rows can be read"):
            plan = replace(self._plan, schema=self._result_schema)
            return read_table(plan, self._facts, where, count=count).select(self._result_names)

    @contextmanager
    def _translate_spark_errors(self) -> Iterator[None]:
        """Raise Spark's errors about a condition or a file as our own, without plans and stack traces."""
        try:
            with quiet_errors():
                yield
        except PySparkException as e:
            reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            if self.where is not None:
                raise UserError(f"Cannot read table {self.context.name} where {self.where}: {reason}") from e
            raise TableError(f"Cannot read table {self.context.name}: {reason}") from e


def is_exact_in_spark(schema: Schema) -> bool:
    """Check whether Spark holds the values of every column without changing them."""
    kinds = [f.field_type for f in schema.fields]
    return all(arrow_type(kind, ArrowFlavor.SPARK) == arrow_type(kind, ArrowFlavor.EXACT) for kind in kinds)

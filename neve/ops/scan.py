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
from neve.ops.destination import audited_branch
from neve.ops.plan_scan import plan_snapshot_scan
from neve.ops.results import milliseconds
from neve.plan.file_filter import RowFilter
from neve.plan.scan import ScanPlan, project_schema, top_level_column
from neve.predicate import Predicate, parse
from neve.predicate.nanoseconds import compare_exactly
from neve.predicate.normalize import normalize_and_bind
from neve.run.read.scan import ScanReader, read_plan, read_table
from neve.run.read.types import ArrowFlavor, arrow_type, first_column_rounded_by_spark, unscaled_columns
from neve.run.spark.arrow_exchange import collect_table, stream_batches
from neve.run.spark.expressions import condition_column
from neve.run.spark.read import read_dataframe
from neve.run.spark.read_columns import column_by_name, prune_nested_fields
from neve.run.spark.session import is_case_sensitive, quiet_errors
from neve.run.table_facts import TableFacts

Engine = Literal["auto", "spark", "arrow"]
_FILTERED_LOCAL_BYTES = 4 << 30  # a condition may leave little of more than this, which Spark reads on all executors


@dataclass(frozen=True)
class Scan:
    """Rows to read from one snapshot; nothing is read until rows are requested."""

    context: TableContext
    snapshot: Snapshot | None
    schema: Schema
    where: str | BooleanExpression | None = None
    columns: tuple[str, ...] | None = None
    case_sensitive: bool = True
    limit: int | None = None

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
        limit: int | None = None,
    ) -> Scan:
        """Create a scan of a snapshot; condition and columns are checked before anything is read."""
        if isinstance(columns, str):
            raise UserError(f"Give columns as a list, such as [{columns!r}].")
        if limit is not None and limit < 0:
            raise UserError(f"Give a limit of zero or more rows, not {limit}.")
        time = None if as_of is None else milliseconds(as_of, "as_of")
        if (snapshot_id, ref, time) == (None, None, None):
            ref = audited_branch(context)
        snapshot = context.snapshot(snapshot_id, ref, time)
        # A past snapshot or a tag is read with its own columns, a branch with the current ones.
        schema, refs = context.metadata.schema(), context.metadata.refs
        is_tag = ref in refs and refs[ref].snapshot_ref_type == SnapshotRefType.TAG
        if snapshot is not None and (snapshot_id is not None or as_of is not None or is_tag):
            schema = next((s for s in context.metadata.schemas if s.schema_id == snapshot.schema_id), schema)
        names = None if columns is None else tuple(columns)
        scan = cls(context, snapshot, schema, where, names, case_sensitive, limit)
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
            rows = self._read_with_spark(self._plan)
            if self.limit is not None:
                rows = rows.limit(self.limit)
            if self.columns is None:
                return rows
            read, result = ({f.name: f.field_type for f in s.fields} for s in (self._plan.schema, self._result_schema))
            columns = {name: column_by_name(name) for name in self._result_names}
            pruned = {n: prune_nested_fields(columns[n], read[n], kind).alias(n) for n, kind in result.items()}
            return rows.select(*(columns | pruned).values())

    def to_arrow(self, engine: Engine = "auto") -> pa.Table:
        """Return the rows as an Arrow table in this process.

        They are read in this process, in threads, if the condition compares only columns with values. Spark evaluates
        other conditions, and reads if a condition may leave little of many gigabytes. Columns that Spark would round
        are always read in this process. `engine` chooses one or the other.
        """
        return self._read_arrow(engine, self.limit)

    def to_batches(self, engine: Engine = "auto") -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches that holds a few of them in memory; see `to_arrow`."""
        if not self._runs_in_process(engine):
            with self._translate_spark_errors():
                return stream_batches(self.to_spark())
        plan, where = self._local_plan()
        schema = ScanReader.of(plan, self._facts).schema
        batches = read_plan(plan, self._facts, where, limit=self.limit)
        names = list(self._result_names)
        ordered = pa.schema([schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(ordered, (batch.select(names) for batch in batches))

    def head(self, count: int = 20) -> pa.Table:
        """Return the first rows, in no certain order, as an Arrow table; a large table is not read as a whole."""
        return self._read_arrow("auto", count if self.limit is None else min(count, self.limit))

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame in this process."""
        return self.to_arrow().to_pandas()

    def count(self) -> int:
        """Count the rows. Metadata answers for files in which every row matches; only the others are read."""
        is_exact = self._predicate is None or self._predicate.is_exact
        known, unknown = self._split_counted_files() if is_exact else (0, self._plan)
        rows = known + (self._count_by_reading(unknown) if len(unknown.files) else 0)
        return rows if self.limit is None else min(rows, self.limit)

    def _split_counted_files(self) -> tuple[int, ScanPlan]:
        """Count the rows of files for which metadata is enough; also return the plan of the other files."""
        plan, deletes = self._plan, self._plan.deletes
        counts = plan.files.numpy("record_count")
        is_known = counts >= 0  # not so in old imports
        if self._predicate is not None and self.schema.schema_id != self.context.metadata.current_schema_id:
            is_known[:] = False  # the names in the condition are those of a past schema
        elif self._predicate is not None:
            rows = RowFilter(self._predicate.expression, self.context.metadata, plan.files.specs, self.case_sensitive)
            is_known &= rows.must_match(plan.files)
        file, delete = (plan.attached[name].to_numpy() for name in ("file", "delete"))
        is_vector = pc.equal(deletes["file_format"], "PUFFIN").to_numpy(zero_copy_only=False)
        is_known[file[~is_vector[delete]]] = False  # rows may be in several delete files, or in none of these
        dead = deletes.numpy("record_count")[delete[is_known[file]]].sum()
        return int(counts[is_known].sum() - dead), plan.only(~is_known)

    def _count_by_reading(self, plan: ScanPlan) -> int:
        if not self._runs_in_process("auto"):
            with self._translate_spark_errors():
                return self._read_with_spark(plan).count()
        positions = replace(plan, schema=Schema(schema_id=plan.schema.schema_id), metadata_columns=("_pos",))
        where = self._predicate.expression if self._predicate else None
        with translate_parse_errors(self.context.iceberg.metadata_location, "a table whose rows can be read"):
            return sum(batch.num_rows for batch in read_plan(positions, self._facts, where))

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
        """The condition for Spark: SQL text, or an expression as a column; both compare nanoseconds exactly."""
        if self.where is None:
            return None
        spark = self.context.spark()  # a column can be made only in a running session
        if isinstance(self.where, str):
            case, zone = is_case_sensitive(spark), self.context.time_zone()
            return compare_exactly(self.where, self.schema, case_sensitive=case, time_zone=zone)
        return condition_column(self.where, self.schema, case_sensitive=self.case_sensitive)

    def _runs_in_process(self, engine: Engine) -> bool:
        """Decide where rows are read that are requested in this process; the result types do not depend on it."""
        if engine not in ("auto", "spark", "arrow"):
            raise UnknownName("engine", engine, ("auto", "spark", "arrow"))
        if engine != "auto":
            return engine == "arrow"
        schema = self._plan.schema
        if self._predicate is not None and not self._predicate.is_exact:
            return first_column_rounded_by_spark(schema) is not None
        is_little = self._predicate is None or self._plan.stats.bytes <= _FILTERED_LOCAL_BYTES
        return (is_little and not self._plan.has_many_equality_deletes) or not is_exact_in_spark(schema)

    def _read_with_spark(self, plan: ScanPlan) -> DataFrame:
        numbers = [] if self._condition is None else unscaled_columns(plan.schema)
        rows = read_dataframe(self.context.spark(), plan, self._facts, plan.metadata_columns, numbers)
        matching = rows if self._condition is None else rows.where(self._condition)
        return matching.drop(*(column.name for column in numbers))

    def _read_arrow(self, engine: Engine, limit: int | None) -> pa.Table:
        if not self._runs_in_process(engine):
            with self._translate_spark_errors():
                rows = self.to_spark()
                return collect_table(rows if limit is None else rows.limit(limit))
        plan, where = self._local_plan()
        with translate_parse_errors(self.context.iceberg.metadata_location, "a table whose rows can be read"):
            return read_table(plan, self._facts, where, limit=limit).select(self._result_names)

    def _local_plan(self) -> tuple[ScanPlan, BooleanExpression | None]:
        """Return what is read in this process; the condition must be one that can be evaluated without Spark."""
        if self._predicate is not None and not self._predicate.is_exact:
            raise UnsupportedFeature(
                f"Cannot apply the condition {self.where!r} outside Spark. Compare columns with values only, "
                "or read the rows with to_spark()."
            )
        plan = replace(self._plan, schema=self._result_schema)
        return plan, self._predicate.expression if self._predicate else None

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

"""Compact the data files of a table: many small files become few of a good size, and deleted rows are dropped.

Files are chosen by size, by the share of deleted rows, or because they are under an old spec. A filter is evaluated for
each spec separately; where it cannot be evaluated, the files are taken and counted, unless `strict()`. The rows stay
the same: a filter chooses files, never rows.

Isolation: commits beside anything that does not touch the same files. A concurrent delete of their rows is never lost:
the groups it hits are planned and rewritten again.
Writes: data files under the current default spec, or under that of the files they replace with `keep_spec()`.

>>> _ = t.append([{"id": 4, "region": "eu"}])
>>> rewrite = t.rewrite_data_files().where("region = 'eu'").option("min-input-files", 2)
>>> rewrite.plan().files
2
>>> rewrite.execute().summary
'2 files rewritten to 1 in 1 group'
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyspark.sql.types import StringType, StructField, StructType

from neve.commit.outcome import Outcome
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.events import Progress
from neve.ops.maintenance.rewrite_run import RewriteRun
from neve.ops.maintenance.row_order import RequestedOrder, RowOrder
from neve.ops.results import RewriteResult
from neve.ops.rows.target_rows import metadata_columns_in, resolve_subqueries
from neve.ops.verb import NOTHING_TO_COMMIT, Execution, SnapshotVerb
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.rewrite import plan_rewrite
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.rewrite_plan import RewritePlan, RewritePlanningResult, SpecMode, Unopened
from neve.plan.scan import needs_statistics, prune_manifests
from neve.predicate import parse
from neve.predicate.sql_features import function_calls, parse_fragment
from neve.run.spark.expressions import ExpressionChecker
from neve.run.spark.types import spark_fields
from neve.tree.entries import DETAIL, Manifest

_TRANSFORMS = frozenset({"bucket", "truncate", "years", "months", "days", "hours"})


@dataclass(frozen=True)
class RewriteDataFiles(SnapshotVerb[RewritePlan, RewriteResult]):
    """A compaction: options, then `.plan()`, `.plan_with_stats()`, `.explain()` or `.execute()`."""

    condition: str | BooleanExpression | None = None
    raw_options: Mapping[str, Any] = field(default_factory=dict)
    spec_mode: SpecMode = SpecMode.CURRENT
    is_strict: bool = False
    is_case_sensitive: bool = True
    progress_listener: Callable[[Progress], None] = lambda progress: None
    is_enough: Callable[[Progress], bool] = lambda progress: False
    requested_order: RequestedOrder | None = None  # None: rows keep their order
    verifies: bool = False

    title = "compaction"

    # -- building ----------------------------------------------------------------------------------------------------

    def where(self, condition: str | BooleanExpression) -> Self:
        """Take only files that may hold rows for which this is true; all rows of these files are kept."""
        return replace(self, condition=condition)

    def option(self, name: str, value: Any) -> Self:
        """Set an option by its Iceberg name, such as `target-file-size-bytes`."""
        return replace(self, raw_options={**self.raw_options, name: value})

    def options(self, options: Mapping[str, Any]) -> Self:
        """Set several options by their Iceberg names."""
        return replace(self, raw_options={**self.raw_options, **options})

    def keep_spec(self) -> Self:
        """Write new files under the spec of the files they replace."""
        return self._with_spec_mode(SpecMode.KEEP)

    def upgrade_spec(self, spec_id: int | None = None) -> Self:
        """Take the files that are not under a spec yet, by default the current one, and rewrite them to it."""
        verb = self._with_spec_mode(SpecMode.UPGRADE)
        return verb if spec_id is None else verb.option("output-spec-id", spec_id)

    def strict(self) -> Self:
        """Fail where the filter cannot be evaluated, instead of taking the files."""
        return replace(self, is_strict=True)

    def sort(self, *terms: str) -> Self:
        """Sort the rows of each group, by `ts`, `id DESC NULLS LAST` or `bucket(16, id)`; by default in the table's
        order."""
        return self._with_order(RequestedOrder(terms))

    def zorder(self, *columns: str) -> Self:
        """Put rows together that are close in several columns at once."""
        if not columns:
            raise UserError("Z-order needs columns: name those that queries filter by, as in .zorder('x', 'y').")
        return self._with_order(RequestedOrder(columns, is_zorder=True))

    def verify_rows(self, value: bool = True) -> Self:
        """Compare count and checksum of the rows of every group before and after, and commit only groups that agree."""
        return replace(self, verifies=value)

    def case_sensitive(self, value: bool) -> Self:
        """Choose whether names in the filter must have the same case as in the table."""
        return replace(self, is_case_sensitive=value)

    def on_progress(self, told: Callable[[Progress], None]) -> Self:
        """Call a function with the progress; raising in it cancels the work and leaves the table as it was."""
        return replace(self, progress_listener=told)

    def until(self, is_enough: Callable[[Progress], bool]) -> Self:
        """Stop after a commit when this returns true; with partial progress there are several commits."""
        return replace(self, is_enough=is_enough)

    def _with_order(self, order: RequestedOrder) -> Self:
        if self.requested_order is not None:
            raise UserError(f"Choose one strategy: {self.requested_order} was chosen before {order}.")
        return replace(self, requested_order=order)

    def _with_spec_mode(self, mode: SpecMode) -> Self:
        if self.spec_mode not in (SpecMode.CURRENT, mode):
            raise UserError("Choose one of keep_spec() and upgrade_spec(): they contradict each other.")
        return replace(self, spec_mode=mode)

    # -- planning ----------------------------------------------------------------------------------------------------

    def plan(self) -> RewritePlan:
        """Plan which files would be rewritten, and in which groups; nothing is changed."""
        return self.plan_with_stats().plan

    def plan_with_stats(self) -> RewritePlanningResult:
        """Return the plan, and counts of the files that were taken because the filter could not be evaluated."""
        return self._plan(self.context.refreshed())

    def _plan(self, context: TableContext, only: Container[str] | None = None) -> RewritePlanningResult:
        """Plan over all data files, or only over the files at `only`."""
        self._row_order(context)  # a wrong order is an error even if there is nothing to rewrite
        options = self._options(context)
        schema, head = context.metadata.schema(), context.head(self.target_branch)
        condition = parse(self.condition, schema, case_sensitive=self.is_case_sensitive, time_zone=context.time_zone())
        if self.is_strict and not condition.is_exact:
            raise UserError(
                f"Condition {condition.text!r} cannot be evaluated in full: only comparisons of columns with constants "
                "choose files. Without strict mode, files in which it may be true are included."
            )
        if condition.text is not None and not condition.is_exact:
            _refuse_invalid_condition(context, condition.text)
        partitions = PartitionFilter.of(condition.expression, context.specs, schema)
        if self.is_strict:
            partitions = partitions.strict()
        manifests = context.live_manifests(head)
        opened = prune_manifests(manifests, partitions)
        deletes = context.live_entries([m for m in opened if m.is_deletes], DETAIL.names)
        statistics = STATISTICS if needs_statistics(partitions, deletes) else ()
        chosen = None if partitions.keeps_everything else lambda entries: partitions.judge(entries).keep
        data = context.live_entries([m for m in opened if not m.is_deletes], statistics, chosen)
        return plan_rewrite(
            data if only is None else data.filter(pa.array([path in only for path in data["file_path"].to_pylist()])),
            deletes,
            context.metadata,
            options,
            partitions=partitions,
            spec_mode=self.spec_mode,
            snapshot_id=None if head is None else head.snapshot_id,
            unopened=_unopened_manifests(context, manifests, opened),
            judged_in_part=None if condition.is_exact else condition.text,
        )

    def _options(self, context: TableContext) -> RewriteOptions:
        options = RewriteOptions.of(self.raw_options, context.properties.target_file_size)
        spec_id = options.output_spec_id
        if spec_id is not None and spec_id not in context.specs.by_id:
            raise UnknownName("partition spec", spec_id, sorted(context.specs.by_id), f"table {context.name}")
        if spec_id is not None and self.spec_mode is SpecMode.KEEP:
            raise UserError("Choose one of keep_spec() and output-spec-id: they contradict each other.")
        return options

    def _row_order(self, context: TableContext) -> RowOrder | None:
        return None if self.requested_order is None else self.requested_order.resolve(context, self._options(context))

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, planned: RewritePlanningResult, execution: Execution) -> RewriteResult:
        """Rewrite the groups of the plan and commit them in batches."""
        run = RewriteRun(
            context,
            self._plan,
            execution,
            branch=self.target_branch,
            properties=self.properties,
            on_progress=self.progress_listener,
            is_enough=self.is_enough,
            row_order=self._row_order(context),
            verifies=self.verifies,
        )
        return replace(run.run(planned.plan), filter_stats=planned.filter_stats)

    def _commit(self, context: TableContext, plan: Any, written: Any, execution: Execution) -> Outcome:
        return NOTHING_TO_COMMIT  # each batch is committed already


def _refuse_invalid_condition(context: TableContext, text: str) -> None:
    """Reject a condition that Spark would reject, for example because of a function that it does not have.

    A valid condition that cannot be evaluated for files chooses all of them; a typing error must not. Spark does not
    know the partition transforms, which are functions in Iceberg's SQL.
    """
    tokens = parse_fragment(text).tokens
    called = {name for calls in (function_calls(tokens), function_calls(tokens, qualified=True)) for name, _ in calls}
    if called & _TRANSFORMS:
        return
    fields = spark_fields(context.metadata.schema().fields)
    metadata_columns = [StructField(name, StringType()) for name in metadata_columns_in(context, [text])]
    with resolve_subqueries(context, {"Filter": text}) as resolved:
        frame = context.spark().createDataFrame([], StructType([*fields, *metadata_columns]))
        ExpressionChecker(frame).check_condition("Filter", resolved.values["Filter"], folds_constants=True)


def _unopened_manifests(
    context: TableContext, manifests: Sequence[Manifest], opened: Sequence[Manifest]
) -> Unopened | None:
    """Return the manifests of data files that were not opened."""
    opened_paths = {m.path for m in opened}
    closed = [m for m in manifests if not m.is_deletes and m.path not in opened_paths]
    if not closed:
        return None
    counts = [
        m.added_files + m.existing_files for m in closed if m.added_files is not None and m.existing_files is not None
    ]
    files = sum(counts) if len(counts) == len(closed) else None
    return Unopened(len(closed), files, partial(context.live_entries, closed))

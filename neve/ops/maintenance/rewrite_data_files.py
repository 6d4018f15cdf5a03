"""Compact the data files of a table: many small files become few of a good size, deleted rows leave, old specs may go.

Files are chosen by size, by how much of them is deleted, or because they are under an old spec. A filter is judged for
every spec by itself; where it cannot be judged the files are taken and counted, unless `strict()`. The rows stay the
same: a filter chooses files, never rows.

Isolation: commits beside anything that does not touch the same files. A delete of their rows that came meanwhile is
never lost: the groups it hits are planned and rewritten again.
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

from neve.commit.outcome import Committed
from neve.errors import UnknownName, UserError
from neve.ops.context import TableContext
from neve.ops.events import Progress
from neve.ops.maintenance.rewrite_run import CompactionOutcome, RewriteRun, RewriteSettings
from neve.ops.maintenance.row_order import RequestedOrder, RowOrder
from neve.ops.results import RewriteResult
from neve.ops.verb import Execution, SnapshotVerb
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.rewrite import plan_rewrite
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.rewrite_plan import RewritePlan, RewritePlanningResult, SpecMode, Unopened
from neve.plan.scan import needs_statistics, prune_manifests
from neve.predicate import Predicate, parse
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import EntryPredicate, manifests_of, read_entries


@dataclass(frozen=True)
class RewriteDataFiles(SnapshotVerb[RewritePlan, RewriteResult]):
    """A compaction on its way: options, then `.plan()`, `.plan_with_stats()`, `.explain()` or `.execute()`."""

    condition: str | BooleanExpression | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    spec_mode: SpecMode = SpecMode.CURRENT
    is_strict: bool = False
    is_case_sensitive: bool = True
    told: Callable[[Progress], None] = lambda progress: None
    is_enough: Callable[[Progress], bool] = lambda progress: False
    arrangement: RequestedOrder | None = None  # None: rows stay in the order they are found in
    verifies: bool = False

    title = "compaction"

    # -- building ----------------------------------------------------------------------------------------------------

    def where(self, condition: str | BooleanExpression) -> Self:
        """Take only files that may hold rows for which this is true; all rows of a file that is taken are kept."""
        return replace(self, condition=condition)

    def option(self, name: str, value: Any) -> Self:
        """Set an option by its Iceberg name, such as `target-file-size-bytes`."""
        return replace(self, given={**self.given, name: value})

    def options(self, options: Mapping[str, Any]) -> Self:
        """Set several options by their Iceberg names."""
        return replace(self, given={**self.given, **options})

    def keep_spec(self) -> Self:
        """Write new files under the spec of the files they replace."""
        return self._with_spec_mode(SpecMode.KEEP)

    def upgrade_spec(self, spec_id: int | None = None) -> Self:
        """Take the files that are not under a spec yet, the current one unless named, and rewrite them to it."""
        made = self._with_spec_mode(SpecMode.UPGRADE)
        return made if spec_id is None else made.option("output-spec-id", spec_id)

    def strict(self) -> Self:
        """Fail where the filter cannot be judged, instead of taking the files."""
        return replace(self, is_strict=True)

    def sort(self, *terms: str) -> Self:
        """Sort the rows of each group, by `ts`, `id DESC NULLS LAST` or `bucket(16, id)`; by the table's order unless
        said otherwise."""
        return self._with_order(RequestedOrder(terms))

    def zorder(self, *columns: str) -> Self:
        """Bring rows together that are near in several columns at once."""
        if not columns:
            raise UserError("Z-order needs columns: name those that queries filter by, as in .zorder('x', 'y').")
        return self._with_order(RequestedOrder(columns, is_zorder=True))

    def verify_rows(self, value: bool = True) -> Self:
        """Count and sum up the rows of every group before and after, and commit only where they are the same."""
        return replace(self, verifies=value)

    def case_sensitive(self, value: bool) -> Self:
        """Whether names in the filter must be of the case they have in the table."""
        return replace(self, is_case_sensitive=value)

    def on_progress(self, told: Callable[[Progress], None]) -> Self:
        """Be told how far it is; raising in the function cancels the work and leaves the table as it was."""
        return replace(self, told=told)

    def until(self, is_enough: Callable[[Progress], bool]) -> Self:
        """Stop after the commit when this says so; with partial progress there are several."""
        return replace(self, is_enough=is_enough)

    def _with_order(self, arrangement: RequestedOrder) -> Self:
        if self.arrangement is not None:
            raise UserError(f"Choose one strategy: {self.arrangement} was chosen before {arrangement}.")
        return replace(self, arrangement=arrangement)

    def _with_spec_mode(self, mode: SpecMode) -> Self:
        if self.spec_mode not in (SpecMode.CURRENT, mode):
            raise UserError("Choose one of keep_spec() and upgrade_spec(): they contradict each other.")
        return replace(self, spec_mode=mode)

    # -- planning ----------------------------------------------------------------------------------------------------

    def plan(self) -> RewritePlan:
        """Which files would be rewritten, in which groups; nothing is touched."""
        return self.plan_with_stats().plan

    def plan_with_stats(self) -> RewritePlanningResult:
        """The plan, and how often the filter had to take files it could not judge."""
        return self._plan(self.context.refreshed())

    def _plan(self, context: TableContext, only: Container[str] | None = None) -> RewritePlanningResult:
        """The plan of all data files, or only of those at some paths."""
        self._row_order(context)  # what it would be refused for is told before there is anything to rewrite
        options = self._options(context)
        head = context.head(self.target_branch)
        condition = self._parse_condition(context)
        filter_ = self._filter(context, condition)
        manifests = [m for m in manifests_of(context.io, context.metadata, head) if m.may_hold_live_files]
        opened = prune_manifests(manifests, filter_)
        deletes = _read_live_entries(context, [m for m in opened if m.is_deletes], DETAIL.names)
        statistics = STATISTICS if needs_statistics(filter_, deletes) else ()
        choice = None if filter_.keeps_everything else lambda entries: filter_.judge(entries).keep
        data = _read_live_entries(context, [m for m in opened if not m.is_deletes], statistics, choice)
        return plan_rewrite(
            data if only is None else data.filter(pa.array([path in only for path in data["file_path"].to_pylist()])),
            deletes,
            context.metadata,
            options,
            partitions=filter_,
            spec_mode=self.spec_mode,
            snapshot_id=None if head is None else head.snapshot_id,
            unopened=_unopened_manifests(context, manifests, opened),
            judged_in_part=None if condition.is_exact else condition.text,
        )

    def _options(self, context: TableContext) -> RewriteOptions:
        options = RewriteOptions.of(self.given, context.properties.target_file_size)
        wanted = options.output_spec_id
        if wanted is not None and wanted not in context.specs.by_id:
            raise UnknownName("partition spec", wanted, sorted(context.specs.by_id), f"table {context.name}")
        if wanted is not None and self.spec_mode is SpecMode.KEEP:
            raise UserError("Choose one of keep_spec() and output-spec-id: they contradict each other.")
        return options

    def _parse_condition(self, context: TableContext) -> Predicate:
        schema, zone = context.metadata.schema(), context.time_zone()
        found = parse(self.condition, schema, case_sensitive=self.is_case_sensitive, time_zone=zone)
        if self.is_strict and not found.is_exact:
            raise UserError(
                f"Condition {found.text!r} cannot be judged in full: only comparisons of columns with constants choose "
                "files. Without strict mode, files it may be true in are included."
            )
        return found

    def _filter(self, context: TableContext, condition: Predicate) -> PartitionFilter:
        made = PartitionFilter.of(condition.expression, context.specs, context.metadata.schema())
        return made.strict() if self.is_strict else made

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, planned: RewritePlanningResult, execution: Execution) -> CompactionOutcome:
        """Rewrite the groups of the plan and commit them in batches."""
        order = self._row_order(context)
        orders = RewriteSettings(self.target_branch, self.properties, self.told, order, self.verifies, self.is_enough)
        return RewriteRun(context, self._plan, orders, execution).run(planned)

    def _result(
        self,
        context: TableContext,
        planned: RewritePlanningResult,
        written: CompactionOutcome,
        committed: Committed,
        execution: Execution,
    ) -> RewriteResult:
        return replace(written.result, filter_stats=planned.filter_stats, seconds=execution.total_seconds)

    def _row_order(self, context: TableContext) -> RowOrder | None:
        return None if self.arrangement is None else self.arrangement.resolve(context, self._options(context))


def _read_live_entries(
    context: TableContext,
    manifests: Sequence[Manifest],
    detail: Sequence[str] = (),
    choice: EntryPredicate | None = None,
) -> EntryTable:
    """The live files of manifests, with details of those that are chosen."""
    return read_entries(context.io, manifests, context.specs, detail=detail, detail_where=choice, live_only=True)


def _unopened_manifests(
    context: TableContext, manifests: Sequence[Manifest], opened: Sequence[Manifest]
) -> Unopened | None:
    """The manifests of data files that were left closed."""
    paths = {m.path for m in opened}
    closed = [m for m in manifests if not m.is_deletes and m.path not in paths]
    if not closed:
        return None
    counts = [(m.added_files, m.existing_files) for m in closed]
    known = [added + existing for added, existing in counts if added is not None and existing is not None]
    files = sum(known) if len(known) == len(closed) else None
    return Unopened(len(closed), files, partial(_read_live_entries, context, closed))

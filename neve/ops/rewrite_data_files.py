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
'2 files rewritten to 1 in 1 groups'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression

from neve.commit.actions import Removed, RewriteFiles
from neve.commit.outcome import Conflict, Outcome, Rejected, require
from neve.commit.protocol import commit
from neve.errors import CommitConflict, NeveError, UnknownName, UserError
from neve.io.files import delete_all
from neve.ops.context import TableContext
from neve.ops.results import GroupResult, RewriteResult
from neve.plan.metrics_filter import STATISTICS
from neve.plan.partition_filter import PartitionFilter
from neve.plan.rewrite import FileGroup, RewritePlan, RewritePlanningResult, SpecMode, Unopened, plan_rewrite
from neve.plan.rewrite_options import RewriteOptions
from neve.plan.scan import prune_manifests, statistics_matter
from neve.predicate import Predicate, parse
from neve.run.spark.rewrite import Rewriting, Rewritten
from neve.run.writing.target import WriteOptions, WriteTarget
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import Choice, manifests_of, read_entries

__all__ = ["Progress", "RewriteDataFiles"]

_RACES = 3  # how often groups that lost a race are planned again


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a compaction is."""

    groups_done: int
    groups: int
    bytes_done: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class RewriteDataFiles:
    """A compaction on its way: options, then `.plan()`, `.plan_with_stats()`, `.explain()` or `.execute()`."""

    context: TableContext
    condition: str | BooleanExpression | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    spec_mode: SpecMode = SpecMode.CURRENT
    is_strict: bool = False
    is_case_sensitive: bool = True
    target_branch: str = "main"
    properties: Mapping[str, str] = field(default_factory=dict)
    told: Callable[[Progress], None] = lambda progress: None

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

    def case_sensitive(self, value: bool) -> Self:
        """Whether names in the filter must be of the case they have in the table."""
        return replace(self, is_case_sensitive=value)

    def branch(self, name: str) -> Self:
        """Compact a branch instead of main."""
        return replace(self, target_branch=name)

    def snapshot_property(self, name: str, value: str) -> Self:
        """Add a property to the summary of the snapshots."""
        return replace(self, properties={**self.properties, name: value})

    def on_progress(self, told: Callable[[Progress], None]) -> Self:
        """Be told how far it is; raising in the function cancels the work and leaves the table as it was."""
        return replace(self, told=told)

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
        return self._planned(self.context.refreshed())

    def explain(self) -> str:
        """The plan in words."""
        return self.plan().explain()

    def _planned(self, context: TableContext) -> RewritePlanningResult:
        options = self._options(context)
        head = context.head(self.target_branch)
        condition = self._condition(context)
        filter_ = self._filter(context, condition)
        manifests = [m for m in manifests_of(context.io, context.metadata, head) if m.may_hold_live_files]
        opened = prune_manifests(manifests, filter_)
        deletes = _read(context, [m for m in opened if m.is_deletes], DETAIL.names)
        statistics = STATISTICS if statistics_matter(filter_, deletes) else ()
        choice = None if filter_.keeps_everything else lambda entries: filter_.judge(entries).keep
        return plan_rewrite(
            _read(context, [m for m in opened if not m.is_deletes], statistics, choice),
            deletes,
            context.metadata,
            options,
            partitions=filter_,
            spec_mode=self.spec_mode,
            snapshot_id=None if head is None else head.snapshot_id,
            unopened=_unopened(context, manifests, opened),
            judged_in_part=None if condition.exact else condition.text,
        )

    def _options(self, context: TableContext) -> RewriteOptions:
        options = RewriteOptions.of(self.given, context.properties.target_file_size)
        wanted = options.output_spec_id
        if wanted is not None and wanted not in context.specs.by_id:
            raise UnknownName("partition spec", wanted, sorted(context.specs.by_id), f"table {context.name}")
        if wanted is not None and self.spec_mode is SpecMode.KEEP:
            raise UserError("Choose one of keep_spec() and output-spec-id: they contradict each other.")
        return options

    def _condition(self, context: TableContext) -> Predicate:
        schema, zone = context.metadata.schema(), context.time_zone()
        found = parse(self.condition, schema, case_sensitive=self.is_case_sensitive, time_zone=zone)
        if self.is_strict and not found.exact:
            raise UserError(
                f"Condition {found.text!r} cannot be judged in full: only comparisons of columns with constants choose "
                "files. Without strict mode, files it may be true in are included."
            )
        return found

    def _filter(self, context: TableContext, condition: Predicate) -> PartitionFilter:
        made = PartitionFilter.of(condition.expression, context.specs, context.metadata.schema())
        return made.strict() if self.is_strict else made

    # -- running -----------------------------------------------------------------------------------------------------

    def execute(self) -> RewriteResult:
        """Rewrite the groups of the plan and commit them."""
        if "operation" in self.properties:
            raise UserError("Cannot set the snapshot property 'operation': the commit itself states what it did.")
        return _Run(self, self.context.refreshed()).run()


def _read(
    context: TableContext, manifests: Sequence[Manifest], detail: Sequence[str] = (), choice: Choice | None = None
) -> EntryTable:
    """The live files of manifests, with details of those that are chosen."""
    return read_entries(context.io, manifests, context.specs, detail=detail, detail_where=choice, live_only=True)


def _unopened(context: TableContext, manifests: Sequence[Manifest], opened: Sequence[Manifest]) -> Unopened | None:
    """The manifests of data files that were left closed."""
    paths = {m.path for m in opened}
    closed = [m for m in manifests if not m.is_deletes and m.path not in paths]
    if not closed:
        return None
    counts = [(m.added_files, m.existing_files) for m in closed]
    known = [added + existing for added, existing in counts if added is not None and existing is not None]
    files = sum(known) if len(known) == len(closed) else None
    return Unopened(len(closed), files, partial(_read, context, closed))


@dataclass
class _Run:
    """One execution: what was committed so far, and what is left to do."""

    rewrite: RewriteDataFiles
    context: TableContext
    started: float = field(default_factory=time.monotonic)
    groups_done: int = 0
    bytes_done: int = 0
    snapshot_ids: list[int] = field(default_factory=list)
    done: list[GroupResult] = field(default_factory=list)
    failed: list[GroupResult] = field(default_factory=list)
    failed_commits: int = 0
    files_added: int = 0
    bytes_added: int = 0
    races: int = 0

    def run(self) -> RewriteResult:
        result = self.rewrite._planned(self.context)
        plan = result.plan
        size = -(-len(plan.groups) // plan.options.max_commits) if plan.options.partial_progress else len(plan.groups)
        batches = [plan.groups[at : at + size] for at in range(0, len(plan.groups), max(size, 1))]
        for batch in batches:
            self._batch(plan, batch)
        return RewriteResult(
            snapshot_ids=tuple(self.snapshot_ids),
            groups=tuple(self.done),
            files_added=self.files_added,
            bytes_added=self.bytes_added,
            failed_groups=tuple(self.failed),
            failed_commits=self.failed_commits,
            races=self.races,
            filter_stats=result.filter_stats,
            seconds=round(time.monotonic() - self.started, 3),
        )

    def _batch(self, plan: RewritePlan, groups: Sequence[FileGroup]) -> None:
        """Rewrite some groups and commit them together; groups that lose a race are planned again, alone."""
        written: list[Rewritten] = []
        try:
            written = self._written(plan, groups)
        except NeveError as e:
            if not plan.options.partial_progress:
                raise
            self._fail(plan, groups, str(e))
            return
        conflicts = self._commit(plan, written)
        if not conflicts:
            return
        self._again(plan, groups, conflicts)

    def _written(self, plan: RewritePlan, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """The new files of groups; those of groups that finished are deleted when another fails."""
        found: list[Rewritten] = []
        try:
            for spec_id in sorted({g.output_spec_id for g in groups}):
                mine = [g for g in groups if g.output_spec_id == spec_id]
                found += self._of_spec(plan, mine, spec_id)
        except BaseException:
            self._delete(found)
            raise
        return found

    def _of_spec(self, plan: RewritePlan, groups: Sequence[FileGroup], spec_id: int) -> list[Rewritten]:
        """Groups whose rows stay where they are in one job, those whose rows move in another."""
        rewriting = Rewriting(self.context.spark(), self.context.facts, self._target(plan, spec_id))
        is_anywhere = self.context.specs.is_unpartitioned(spec_id)
        staying = [g for g in groups if is_anywhere or g.partition.spec_id == spec_id]
        moving = [g for g in groups if not is_anywhere and g.partition.spec_id != spec_id]
        found: list[Rewritten] = []
        try:
            for some, work in ((staying, rewriting.in_place), (moving, rewriting.moving)):
                if some:
                    found += work(some)
                    self._tell(plan, some)
        except BaseException:
            self._delete(found)
            raise
        return found

    def _target(self, plan: RewritePlan, spec_id: int) -> WriteTarget:
        metadata = self.context.metadata
        options = WriteOptions(
            target_file_size=plan.options.write_limit,
            distribution="hash",
            is_sorted=False,
            row_lineage=metadata.format_version >= 3,
        )
        return WriteTarget.of(metadata, self.context.facts.io_properties, spec_id=spec_id, options=options)

    def _commit(self, plan: RewritePlan, written: Sequence[Rewritten]) -> tuple[Conflict, ...]:
        """Commit groups; the conflicts when they lost a race, which leaves nothing behind."""
        owned = [path for w in written for path in w.files["file_path"].to_pylist()]
        outcome = self._landed(plan, written, owned)
        if isinstance(outcome, Rejected):
            return outcome.conflicts
        landed = require(outcome, "compaction")
        if landed.snapshot_id is not None:
            self.snapshot_ids.append(landed.snapshot_id)
        self.done += [result for w in written for result in _results(w)]
        self.files_added += len(owned)
        self.bytes_added += sum(pc.sum(w.files["file_size_in_bytes"]).as_py() or 0 for w in written)
        return ()

    def _landed(self, plan: RewritePlan, written: Sequence[Rewritten], owned: list[str]) -> Outcome:
        specs = self.context.specs
        groups = [group for w in written for group in w.groups]
        start = self.context.metadata.snapshot_by_id(plan.snapshot_id) if plan.snapshot_id is not None else None
        number = start.sequence_number if start is not None and plan.options.use_starting_sequence_number else None
        action = RewriteFiles(
            removed_data=Removed(EntryTable.concat([g.files for g in groups], specs)),
            added_data=EntryTable.concat([EntryTable(w.files, specs) for w in written], specs) or None,
            removed_deletes=Removed(_vectors(groups, specs)),
            data_sequence_number=number,
            start_snapshot_id=plan.snapshot_id,
        )
        return commit(
            self.context.catalog,
            self.context.iceberg,
            action,
            branch=self.rewrite.target_branch,
            properties=self.rewrite.properties,
            environment=self.context.environment,
            owned=owned,
        )

    def _again(self, plan: RewritePlan, groups: Sequence[FileGroup], conflicts: tuple[Conflict, ...]) -> None:
        """The partitions of groups that lost a race, planned and rewritten as the table is now."""
        self.races += 1
        if self.races > _RACES:
            if plan.options.partial_progress:
                self._fail(plan, groups, str(conflicts[0]))
                return
            raise CommitConflict(f"The compaction did not land: {conflicts[0]} Run it again later.", conflicts)
        self.context = self.context.refreshed()
        fresh = self.rewrite._planned(self.context).plan
        wanted = {g.partition for g in groups}
        again = [g for g in fresh.groups if g.partition in wanted]
        if again:
            self._batch(fresh, again)

    def _fail(self, plan: RewritePlan, groups: Sequence[FileGroup], why: str) -> None:
        self.failed += [
            GroupResult(g.group_id, g.index_in_partition, g.partition, len(g.files), 0, why) for g in groups
        ]
        self.failed_commits += 1
        most = plan.options.max_failed_commits
        if self.failed_commits > (plan.options.max_commits if most is None else most):
            raise CommitConflict(f"The compaction gave up: {self.failed_commits} batches failed. The last: {why}")

    def _tell(self, plan: RewritePlan, groups: Sequence[FileGroup]) -> None:
        self.groups_done += len(groups)
        self.bytes_done += sum(g.bytes for g in groups)
        seconds = time.monotonic() - self.started
        self.rewrite.told(Progress(self.groups_done, len(plan.groups), self.bytes_done, plan.bytes, round(seconds, 3)))

    def _delete(self, written: Sequence[Rewritten]) -> None:
        delete_all(self.context.io, [path for w in written for path in w.files["file_path"].to_pylist()])


def _vectors(groups: Sequence[FileGroup], specs: Any) -> EntryTable:
    """The deletion vectors of files that are rewritten: their rows are gone with the files."""
    found = [g.scan.deletes.filter(pc.equal(g.scan.deletes["file_format"], "PUFFIN")) for g in groups]
    return EntryTable.concat(found, specs)


def _results(written: Rewritten) -> list[GroupResult]:
    alone = len(written.groups) == 1
    return [
        GroupResult(
            group.group_id,
            group.index_in_partition,
            group.partition,
            len(group.files),
            written.files.num_rows if alone else None,
            bytes_rewritten=group.bytes,
            rows_before=group.rows,
        )
        for group in written.groups
    ]

"""One run of a compaction: groups rewritten in waves, committed in batches, planned again when they lose a race.

A group that another writer got in the way of is planned and rewritten alone; the others of its batch are committed as
they are. With partial progress a group that fails is reported, and the rest goes on. Whatever ends a run, files that
were not committed are deleted, and the table is as it was after the last batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc

from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.commit.outcome import Committed, Conflict, Outcome, Rejected, require_committed
from neve.errors import CommitConflict, NeveError, TableError, UserError
from neve.io.files import delete_files
from neve.ops.context import TableContext
from neve.ops.events import Progress, Step, emit
from neve.ops.maintenance.remove_dangling_deletes import RemoveDanglingDeletes
from neve.ops.maintenance.row_order import RowOrder
from neve.ops.results import GroupResult, RewriteResult
from neve.ops.verb import Execution, PendingCommit
from neve.plan.rewrite_plan import FileGroup, RewritePlan, RewritePlanningResult
from neve.run.spark.rewrite import RewriteJob, RewrittenGroups
from neve.run.spark.session import is_classic
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable

_TASKS_PER_CORE = 4  # in one job: more keep all cores busy to its end, fewer tell sooner how far it is


@dataclass(frozen=True)
class RewriteSettings:
    """How a plan is carried out."""

    branch: str
    properties: Mapping[str, str]
    on_progress: Callable[[Progress], None]
    row_order: RowOrder | None
    verifies: bool
    is_enough: Callable[[Progress], bool]


@dataclass(frozen=True)
class _PlannedRewrite:
    """A plan and the table it was made of.

    Files are read and written by the schema and the specs of that time, whatever others change meanwhile: they carry
    field ids, and the table takes them as it takes its older files.
    """

    context: TableContext
    plan: RewritePlan

    def target(self, spec_id: int) -> WriteTarget:
        """Where rows of a spec are written, in no order."""
        metadata = self.context.metadata
        options = WriteOptions(
            target_file_size=self.plan.options.write_limit,
            distribution="hash",
            is_sorted=False,
            row_lineage=metadata.format_version >= 3,
        )
        return WriteTarget.of(metadata, self.context.facts.io_properties, spec_id=spec_id, options=options)

    def moves_rows(self, group: FileGroup) -> bool:
        """Whether rows of a group may go to another partition than that of its files."""
        stays = group.partition.spec_id == group.output_spec_id
        return not stays and not self.context.specs.is_unpartitioned(group.output_spec_id)

    def action(self, written: Sequence[RewrittenGroups]) -> RewriteFiles:
        """What was written in place of what was planned."""
        specs = self.context.specs
        groups = [group for w in written for group in w.groups]
        return RewriteFiles(
            removed_data=RemovedFiles(EntryTable.concat([g.files for g in groups], specs)),
            added_data=EntryTable.concat([EntryTable(w.files, specs) for w in written], specs) or None,
            removed_deletes=RemovedFiles(_vectors(groups, specs)),
            data_sequence_number=self._starting_sequence_number,
            start_snapshot_id=self.plan.snapshot_id,
        )

    @property
    def _starting_sequence_number(self) -> int | None:
        start = self.plan.snapshot_id
        if start is None or not self.plan.options.use_starting_sequence_number:
            return None
        snapshot = self.context.metadata.snapshot_by_id(start)
        return None if snapshot is None else snapshot.sequence_number


@dataclass(frozen=True)
class CompactionOutcome(PendingCommit):
    """What a run did. Its batches are committed already, so no action is left."""

    result: RewriteResult


@dataclass
class RewriteRun:
    """One execution: what was committed so far, and what is written and not committed."""

    context: TableContext
    plan_groups: Callable[
        [TableContext, Container[str] | None], RewritePlanningResult
    ]  # of all files, or of some paths
    settings: RewriteSettings
    execution: Execution
    progress: Progress = field(default_factory=Progress)
    uncommitted_rewrites: list[RewrittenGroups] = field(default_factory=list)  # written, not committed
    result: RewriteResult = field(default_factory=RewriteResult)

    def run(self, planned: RewritePlanningResult) -> CompactionOutcome:
        """Carry out a plan."""
        plan = planned.plan
        self._count_planned_groups(plan.groups)
        try:
            for batch in _batches(plan):
                self._run_batch(_PlannedRewrite(self.context, plan), batch, self.context.properties.reruns)
                if self.settings.is_enough(self.progress):
                    break
        finally:
            self._delete_files(self.uncommitted_rewrites)
        removed = self._remove_dangling_deletes(plan)
        return CompactionOutcome(replace(self.result, delete_files_removed=removed))

    def _run_batch(self, planned: _PlannedRewrite, groups: Sequence[FileGroup], races: int) -> None:
        """Rewrite some groups and commit them together; those that lose a race are planned again, alone."""
        written = self._rewrite_groups(planned, groups)
        lost, conflicts = self._commit_rewrites(planned, written)
        if not lost:
            return
        self.result = replace(self.result, races=self.result.races + 1)
        if not races:
            self._give_up(planned.plan, lost, conflicts)
            return
        context = planned.context.refreshed()
        again = {path for g in lost for path in g.files["file_path"].to_pylist()}
        fresh = self._numbered(self.plan_groups(context, again).plan)
        self._count_planned_groups(fresh.groups)
        if fresh.groups:
            self._run_batch(_PlannedRewrite(context, fresh), fresh.groups, races - 1)

    # -- rewriting ---------------------------------------------------------------------------------------------------

    def _rewrite_groups(self, planned: _PlannedRewrite, groups: Sequence[FileGroup]) -> list[RewrittenGroups]:
        """The new files of groups, wave by wave."""
        plan, before = planned.plan, len(self.uncommitted_rewrites)
        for spec_id in sorted({g.output_spec_id for g in groups}):
            mine = [g for g in groups if g.output_spec_id == spec_id]
            target = self._target(planned, spec_id)
            rewriting = RewriteJob(self._spark, planned.context.facts, target, self.settings.verifies)
            if self.settings.row_order is not None:
                self._rewrite_sorted(plan, rewriting, mine, self.settings.row_order)
                continue
            moves = {g.group_id for g in mine if planned.moves_rows(g)}
            for wave in self._waves([g for g in mine if g.group_id not in moves]):
                self._attempt_rewrite(plan, wave, rewriting.rewrite_in_place)
            if moving := [g for g in mine if g.group_id in moves]:
                self._attempt_rewrite(plan, moving, lambda some, r=rewriting: [r.rewrite_redistributed(some)])  # type: ignore[misc]
        return self.uncommitted_rewrites[before:]

    def _rewrite_sorted(
        self, plan: RewritePlan, rewriting: RewriteJob, groups: Sequence[FileGroup], order: RowOrder
    ) -> None:
        """Groups sorted, each in a job of its own, several at once."""
        jobs = {g.group_id: rewriting.prepare_sorted_rewrite(g, order.spread(g, rewriting.target)) for g in groups}
        with ThreadPoolExecutor(plan.options.concurrent_groups) as pool:
            running = {pool.submit(jobs[g.group_id]): g for g in groups}
            try:
                for one in as_completed(running):
                    self._attempt_rewrite(plan, [running[one]], lambda some, one=one: [one.result()])  # type: ignore[misc]
            except BaseException:
                for one in running:
                    one.cancel()
                for one in running:  # what is running already is waited for, and its files are deleted
                    if not one.cancelled() and one.exception() is None:
                        self.uncommitted_rewrites += (
                            [one.result()] if one.result() not in self.uncommitted_rewrites else []
                        )
                raise

    def _attempt_rewrite(
        self,
        plan: RewritePlan,
        groups: Sequence[FileGroup],
        work: Callable[[Sequence[FileGroup]], list[RewrittenGroups]],
    ) -> None:
        """Rewrite groups; when that fails and others may go on, each by itself, and the guilty ones are reported."""
        try:
            made = work(groups)
            self.uncommitted_rewrites += made
            self._refuse_differences(made)
        except NeveError as e:
            if not plan.options.partial_progress:
                raise
            if len(groups) > 1:
                for group in groups:
                    self._attempt_rewrite(plan, [group], work)
                return
            self._record_failed_groups(groups, str(e))
        self._report_progress(groups)

    def _refuse_differences(self, rewrites: Sequence[RewrittenGroups]) -> None:
        for one in rewrites:
            if one.checksum_before != one.checksum_after or _has_lost_rows(one):
                self.uncommitted_rewrites = [w for w in self.uncommitted_rewrites if w not in rewrites]
                self._delete_files(rewrites)
                raise TableError(
                    f"The rows of group {one.groups[0].group_id} are not the same before ({one.checksum_before}, "
                    f"{sum(g.rows for g in one.groups)} rows in its files) and after ({one.checksum_after}) they were "
                    "rewritten. Nothing of it was committed; please report this."
                )

    def _waves(self, groups: Sequence[FileGroup]) -> Iterator[list[FileGroup]]:
        """Groups for one job each: enough to keep every core busy, few enough to tell how far it is."""
        cores = self._spark.sparkContext.defaultParallelism if is_classic(self._spark) else 16
        wave: list[FileGroup] = []
        for group in groups:
            wave.append(group)
            if sum(g.output_files for g in wave) >= _TASKS_PER_CORE * cores:
                yield wave
                wave = []
        if wave:
            yield wave

    @property
    def _spark(self) -> Any:
        return self.context.spark()

    def _target(self, planned: _PlannedRewrite, spec_id: int) -> WriteTarget:
        made, order = planned.target(spec_id), self.settings.row_order
        return made if order is None else order.ordered_target(made)

    # -- committing --------------------------------------------------------------------------------------------------

    def _commit_rewrites(
        self, planned: _PlannedRewrite, written: list[RewrittenGroups]
    ) -> tuple[list[FileGroup], tuple[Conflict, ...]]:
        """Commit what was written; the groups that lost a race, whose files are gone again, and why."""
        lost: list[RewrittenGroups] = []
        why: tuple[Conflict, ...] = ()
        while written:
            outcome = self._try_commit(planned, written)
            if outcome is None:
                break
            if not isinstance(outcome, Rejected):
                self._record_commit(written, outcome.snapshot_id)
                break
            _refuse_wrong_input(outcome)
            why = outcome.conflicts
            hit = [w for w in written if _is_in_conflict(w, why)] or written
            lost += hit
            written = [w for w in written if w not in hit]
        self.uncommitted_rewrites = [w for w in self.uncommitted_rewrites if w not in lost]
        self._delete_files(lost)
        return [g for w in lost for g in w.groups], why

    def _try_commit(self, planned: _PlannedRewrite, written: Sequence[RewrittenGroups]) -> Committed | Rejected | None:
        """What became of a commit; none when it failed or may have landed, and the rest may go on without it."""
        try:
            outcome = self._commit_keeping_files(planned.action(written), written)
            return outcome if isinstance(outcome, Rejected) else require_committed(outcome, "compaction")
        except NeveError as e:
            if not planned.plan.options.partial_progress:
                raise
            self._record_failed_groups([g for w in written for g in w.groups], str(e))
            self._count_failure(planned.plan, str(e))
            return None

    def _commit_keeping_files(self, action: RewriteFiles, written: Sequence[RewrittenGroups]) -> Outcome:
        """Commit; from the first attempt on only proof that nothing landed lets the files be deleted, there or here."""
        kept, self.uncommitted_rewrites = (
            self.uncommitted_rewrites,
            [w for w in self.uncommitted_rewrites if w not in written],
        )
        emit(Step("commit"))
        outcome = self.context.commit(
            action,
            branch=self.settings.branch,
            properties=self.settings.properties,
            written_files=_written_paths(written),
            keep_files_if_rejected=True,
        )
        if isinstance(outcome, Rejected):
            self.uncommitted_rewrites = kept
        return outcome

    def _record_commit(self, written: Sequence[RewrittenGroups], snapshot_id: int | None) -> None:
        now = self.result
        self.result = replace(
            now,
            snapshot_ids=(*now.snapshot_ids, *([snapshot_id] if snapshot_id is not None else [])),
            groups=(*now.groups, *(result for w in written for result in _group_results(w))),
            files_added=now.files_added + sum(w.files.num_rows for w in written),
            bytes_added=now.bytes_added + sum(pc.sum(w.files["file_size_in_bytes"]).as_py() or 0 for w in written),
        )

    def _give_up(self, plan: RewritePlan, lost: Sequence[FileGroup], conflicts: tuple[Conflict, ...]) -> None:
        """Groups that lost every race."""
        if not plan.options.partial_progress:
            raise CommitConflict(f"The compaction did not land: {conflicts[0]} Run it again later.", conflicts)
        self._record_failed_groups(lost, str(conflicts[0]))
        self._count_failure(plan, str(conflicts[0]), conflicts)

    def _count_failure(self, plan: RewritePlan, why: str, conflicts: tuple[Conflict, ...] = ()) -> None:
        """One more batch that was not committed; too many end the run."""
        failed = self.result.failed_commits + 1
        self.result = replace(self.result, failed_commits=failed)
        most = plan.options.max_failed_commits
        if failed > (plan.options.max_commits if most is None else most):
            raise CommitConflict(
                f"The compaction gave up: {failed} batches failed, the last: {why} What was committed before "
                f"stays: {self.result.summary}.",
                conflicts,
            )

    def _remove_dangling_deletes(self, plan: RewritePlan) -> int:
        """Delete files that apply to nothing any more, removed in a commit of their own when that was asked for."""
        if not plan.options.remove_dangling_deletes or not self.result.groups:
            return 0
        verb = RemoveDanglingDeletes(self.context.refreshed()).branch(self.settings.branch)
        return verb.execute().delete_files_removed

    def _record_failed_groups(self, groups: Sequence[FileGroup], why: str) -> None:
        found = tuple(GroupResult(g.group_id, g.index_in_partition, g.partition, len(g.files), 0, why) for g in groups)
        self.result = replace(self.result, failed_groups=(*self.result.failed_groups, *found))

    def _numbered(self, plan: RewritePlan) -> RewritePlan:
        """The plan with ids that no other group of this run has."""
        first = self.progress.groups
        return replace(plan, groups=tuple(replace(g, group_id=first + n) for n, g in enumerate(plan.groups)))

    def _count_planned_groups(self, groups: Sequence[FileGroup]) -> None:
        now = self.progress
        self.progress = replace(
            now,
            groups=now.groups + len(groups),
            bytes=now.bytes + sum(g.bytes for g in groups),
            files=now.files + sum(len(g.files) for g in groups),
        )
        emit(self.progress)

    def _report_progress(self, groups: Sequence[FileGroup]) -> None:
        now = self.progress
        self.progress = replace(
            now,
            groups_done=now.groups_done + len(groups),
            bytes_done=now.bytes_done + sum(g.bytes for g in groups),
            files_done=now.files_done + sum(len(g.files) for g in groups),
            seconds=self.execution.total_seconds,
        )
        emit(self.progress)
        self.settings.on_progress(self.progress)

    def _delete_files(self, written: Sequence[RewrittenGroups]) -> None:
        delete_files(self.context.io, _written_paths(written))


def _written_paths(written: Sequence[RewrittenGroups]) -> list[str]:
    return [path for w in written for path in w.files["file_path"].to_pylist()]


def _batches(plan: RewritePlan) -> Iterator[Sequence[FileGroup]]:
    """The groups of each commit: all, or as many as make the number of commits that partial progress allows."""
    size = -(-len(plan.groups) // plan.options.max_commits) if plan.options.partial_progress else len(plan.groups)
    for at in range(0, len(plan.groups), max(size, 1)):
        yield plan.groups[at : at + size]


def _has_lost_rows(one: RewrittenGroups) -> bool:
    """Whether fewer or more rows were read than the files have, as far as they tell: deletes are not counted."""
    has_deletes = any(len(g.scan.deletes) for g in one.groups)
    is_counted = all((g.files.numpy("record_count") >= 0).all() for g in one.groups)  # old imports did not
    if one.checksum_before is None or has_deletes or not is_counted:
        return False
    return one.checksum_before.rows != sum(g.rows for g in one.groups)


def _is_in_conflict(written: RewrittenGroups, conflicts: Sequence[Conflict]) -> bool:
    """Whether conflicts are about files of these groups."""
    named = {path for c in conflicts for path in c.files}
    vectors = (p for g in written.groups for p in g.scan.deletes["file_path"].to_pylist())
    return any(not named.isdisjoint(g.files["file_path"].to_pylist()) for g in written.groups) or not named.isdisjoint(
        vectors
    )


def _refuse_wrong_input(outcome: Rejected) -> None:
    if all(c.rule.is_about_input for c in outcome.conflicts):
        raise UserError(f"The compaction was refused: {' '.join(map(str, outcome.conflicts))}")


def _vectors(groups: Sequence[FileGroup], specs: Any) -> EntryTable:
    """The deletion vectors of files that are rewritten: their rows are gone with the files."""
    found = [g.scan.deletes.filter(pc.equal(g.scan.deletes["file_format"], "PUFFIN")) for g in groups]
    return EntryTable.concat(found, specs)


def _group_results(written: RewrittenGroups) -> list[GroupResult]:
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
            checksum=None if written.checksum_after is None else str(written.checksum_after),
        )
        for group in written.groups
    ]

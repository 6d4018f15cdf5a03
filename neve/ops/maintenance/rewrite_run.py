"""One run of a compaction: groups are rewritten in waves, committed in batches, and planned again after a conflict.

A group in conflict with a concurrent writer is planned and rewritten alone; the others of its batch are committed. With
partial progress a group that fails is reported, and the others go on. However a run ends, files that were not committed
are deleted, and the table is as it was after the last batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.commit.outcome import Committed, Conflict, Rejected, require_committed
from neve.errors import CommitConflict, NeveError, TableError, UserError
from neve.io.files import delete_files
from neve.ops.context import TableContext
from neve.ops.events import Progress, Step, emit
from neve.ops.maintenance.remove_dangling_deletes import RemoveDanglingDeletes
from neve.ops.maintenance.row_order import RowOrder
from neve.ops.results import GroupResult, RewriteResult
from neve.ops.verb import Execution
from neve.plan.rewrite_plan import FileGroup, RewritePlan, RewritePlanningResult
from neve.run.spark.rewrite import RewriteJob, RewrittenGroups
from neve.run.spark.session import is_classic
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable

_TASKS_PER_CORE = 4  # in one job: more keep all cores busy until its end, fewer report progress sooner


@dataclass(frozen=True)
class _PlannedRewrite:
    """A plan and the state of the table it was made on.

    Files are read and written with the schema and the specs of that state, whatever changes concurrently: files carry
    field ids, and the table reads the new ones like its older files.
    """

    context: TableContext
    plan: RewritePlan

    def target(self, spec_id: int) -> WriteTarget:
        """Return the target for rows of a spec, without an order."""
        metadata = self.context.metadata
        options = WriteOptions(
            target_file_size=self.plan.options.write_limit,
            distribution="hash",
            is_sorted=False,
            row_lineage=metadata.format_version >= 3,
        )
        return WriteTarget.of(metadata, self.context.facts.io_properties, spec_id=spec_id, options=options)

    def action(self, written: Sequence[RewrittenGroups]) -> RewriteFiles:
        """Return the action that replaces the planned files by the written ones."""
        specs = self.context.specs
        groups = [group for w in written for group in w.groups]
        # Deletion vectors leave together with the rewritten files.
        vectors = [g.scan.deletes.filter(pc.equal(g.scan.deletes["file_format"], "PUFFIN")) for g in groups]
        start = None
        if self.plan.snapshot_id is not None and self.plan.options.use_starting_sequence_number:
            start = self.context.metadata.snapshot_by_id(self.plan.snapshot_id)
        return RewriteFiles(
            removed_data=RemovedFiles(EntryTable.concat([g.files for g in groups], specs)),
            added_data=EntryTable.concat([EntryTable(w.files, specs) for w in written], specs) or None,
            removed_deletes=RemovedFiles(EntryTable.concat(vectors, specs)),
            data_sequence_number=None if start is None else start.sequence_number,
            start_snapshot_id=self.plan.snapshot_id,
        )


@dataclass
class RewriteRun:
    """One execution: what is committed so far, and what is written but not committed."""

    context: TableContext
    plan_groups: Callable[[TableContext, Container[str] | None], RewritePlanningResult]  # None: of all files
    execution: Execution
    branch: str
    properties: Mapping[str, str]
    on_progress: Callable[[Progress], None]
    is_enough: Callable[[Progress], bool]
    row_order: RowOrder | None
    verifies: bool
    progress: Progress = field(default_factory=Progress)
    uncommitted_rewrites: list[RewrittenGroups] = field(default_factory=list)
    result: RewriteResult = field(default_factory=RewriteResult)

    def run(self, plan: RewritePlan) -> RewriteResult:
        """Rewrite and commit the groups of a plan."""
        self._count_planned_groups(plan.groups)
        try:
            for batch in _batches(plan):
                self._run_batch(_PlannedRewrite(self.context, plan), batch, self.context.properties.reruns)
                if self.is_enough(self.progress):
                    break
        finally:
            self._delete_files(self.uncommitted_rewrites)
        if plan.options.remove_dangling_deletes and self.result.groups:  # in a commit of their own
            verb = RemoveDanglingDeletes(self.context.refreshed()).branch(self.branch)
            removed = self.result.delete_files_removed + verb.execute().delete_files_removed
            self.result = replace(self.result, delete_files_removed=removed)
        return replace(self.result, seconds=self.execution.total_seconds)

    def _run_batch(self, planned: _PlannedRewrite, groups: Sequence[FileGroup], races: int) -> None:
        """Rewrite groups and commit them together; those that lose a race are planned again, alone."""
        written = self._rewrite_groups(planned, groups)
        lost, conflicts = self._commit_rewrites(planned, written)
        if not lost:
            return
        self.result = replace(self.result, races=self.result.races + 1)
        if not races:
            if not planned.plan.options.partial_progress:
                raise CommitConflict(f"The compaction did not land: {conflicts[0]} Run it again later.", conflicts)
            self._count_failed_commit(planned.plan, lost, str(conflicts[0]), conflicts)
            return
        context = planned.context.refreshed()
        paths = {path for g in lost for path in g.files["file_path"].to_pylist()}
        plan, first_id = self.plan_groups(context, paths).plan, self.progress.groups
        # Group ids are unique in a run.
        plan = replace(plan, groups=tuple(replace(g, group_id=first_id + n) for n, g in enumerate(plan.groups)))
        self._count_planned_groups(plan.groups)
        if plan.groups:
            self._run_batch(_PlannedRewrite(context, plan), plan.groups, races - 1)

    # -- rewriting ---------------------------------------------------------------------------------------------------

    def _rewrite_groups(self, planned: _PlannedRewrite, groups: Sequence[FileGroup]) -> list[RewrittenGroups]:
        """Write the new files of groups, wave by wave."""
        plan, before, order = planned.plan, len(self.uncommitted_rewrites), self.row_order
        for spec_id in sorted({g.output_spec_id for g in groups}):
            of_spec = [g for g in groups if g.output_spec_id == spec_id]
            target = planned.target(spec_id)
            if order is not None:  # the files record their order
                target = replace(target, sort_order=order.sort).with_options(is_sorted=True, fanout=False)
            job = RewriteJob(self.context.spark(), planned.context.facts, target, self.verifies)
            if order is not None:
                self._rewrite_sorted(plan, job, of_spec, order)
                continue
            # Under another spec, rows may belong to another partition than that of their files.
            is_partitioned = not planned.context.specs.is_unpartitioned(spec_id)
            moves = {g.group_id for g in of_spec if is_partitioned and g.partition.spec_id != spec_id}
            for wave in self._waves([g for g in of_spec if g.group_id not in moves]):
                self._attempt_rewrite(plan, wave, job.rewrite_in_place)
            if moving := [g for g in of_spec if g.group_id in moves]:
                self._attempt_rewrite(plan, moving, lambda groups, job=job: [job.rewrite_redistributed(groups)])  # type: ignore[misc]
        return self.uncommitted_rewrites[before:]

    def _rewrite_sorted(self, plan: RewritePlan, job: RewriteJob, groups: Sequence[FileGroup], order: RowOrder) -> None:
        """Sort groups, each in a job of its own, several at once."""
        jobs = {g.group_id: job.prepare_sorted_rewrite(g, order.spread(g, job.target)) for g in groups}
        with ThreadPoolExecutor(plan.options.concurrent_groups) as pool:
            running = {pool.submit(copy_context().run, jobs[g.group_id]): g for g in groups}
            try:
                for future in as_completed(running):
                    self._attempt_rewrite(plan, [running[future]], lambda groups, f=future: [f.result()])  # type: ignore[misc]
            except BaseException:
                for future in running:
                    future.cancel()
                for future in running:  # wait for the jobs that run already, so that their files are deleted
                    is_done = not future.cancelled() and future.exception() is None
                    if is_done and future.result() not in self.uncommitted_rewrites:
                        self.uncommitted_rewrites.append(future.result())
                raise

    def _attempt_rewrite(
        self,
        plan: RewritePlan,
        groups: Sequence[FileGroup],
        work: Callable[[Sequence[FileGroup]], list[RewrittenGroups]],
    ) -> None:
        """Rewrite groups; if that fails and others may go on, each by itself, and report those that fail alone."""
        try:
            rewrites = work(groups)
            self.uncommitted_rewrites += rewrites
            self._refuse_differences(rewrites)
        except NeveError as e:
            if not plan.options.partial_progress:
                raise
            if len(groups) > 1:
                for group in groups:
                    self._attempt_rewrite(plan, [group], work)
                return
            self._record_failed_groups(groups, str(e))
        progress = self.progress
        self.progress = replace(
            progress,
            groups_done=progress.groups_done + len(groups),
            bytes_done=progress.bytes_done + sum(g.bytes for g in groups),
            files_done=progress.files_done + sum(g.file_count for g in groups),
            seconds=self.execution.total_seconds,
        )
        emit(self.progress)
        self.on_progress(self.progress)

    def _refuse_differences(self, rewrites: Sequence[RewrittenGroups]) -> None:
        for rewrite in rewrites:
            before, after = rewrite.checksum_before, rewrite.checksum_after
            rows = sum(g.rows for g in rewrite.groups)
            has_deletes = any(g.delete_file_count for g in rewrite.groups)  # how many rows they delete is not known
            is_counted = all((g.files.numpy("record_count") >= 0).all() for g in rewrite.groups)  # not in old imports
            has_lost_rows = before is not None and not has_deletes and is_counted and before.rows != rows
            if before != after or has_lost_rows:
                self.uncommitted_rewrites = [w for w in self.uncommitted_rewrites if w not in rewrites]
                self._delete_files(rewrites)
                raise TableError(
                    f"The rows of group {rewrite.groups[0].group_id} differ before ({before}, {rows} rows in its "
                    f"files) and after ({after}) the rewrite. Nothing of it was committed; please report this."
                )

    def _waves(self, groups: Sequence[FileGroup]) -> Iterator[list[FileGroup]]:
        """Divide groups into jobs: large enough to keep every core busy, small enough to report progress."""
        spark = self.context.spark()
        cores = spark.sparkContext.defaultParallelism if is_classic(spark) else 16
        wave: list[FileGroup] = []
        for group in groups:
            wave.append(group)
            if sum(g.output_files for g in wave) >= _TASKS_PER_CORE * cores:
                yield wave
                wave = []
        if wave:
            yield wave

    # -- committing --------------------------------------------------------------------------------------------------

    def _commit_rewrites(
        self, planned: _PlannedRewrite, written: list[RewrittenGroups]
    ) -> tuple[list[FileGroup], tuple[Conflict, ...]]:
        """Commit rewrites; returns the groups that lost a race, whose files are deleted again, and the conflicts."""
        lost: list[RewrittenGroups] = []
        conflicts: tuple[Conflict, ...] = ()
        while written:
            outcome = self._try_commit(planned, written)
            if outcome is None:
                break
            if not isinstance(outcome, Rejected):
                self._record_commit(written, outcome)
                break
            conflicts = outcome.conflicts
            if all(c.rule.is_about_input for c in conflicts):
                raise UserError(f"The compaction was rejected: {' '.join(map(str, conflicts))}")
            in_conflict = [w for w in written if _is_in_conflict(w, conflicts)] or written
            lost += in_conflict
            written = [w for w in written if w not in in_conflict]
        self.uncommitted_rewrites = [w for w in self.uncommitted_rewrites if w not in lost]
        self._delete_files(lost)
        return [g for w in lost for g in w.groups], conflicts

    def _try_commit(self, planned: _PlannedRewrite, written: Sequence[RewrittenGroups]) -> Committed | Rejected | None:
        """Commit; returns None after a failure, or if it may have landed, when the other batches may go on.

        Once it is tried, files are deleted only with proof that nothing landed, by the commit or here.
        """
        try:
            action, uncommitted = planned.action(written), self.uncommitted_rewrites
            self.uncommitted_rewrites = [w for w in uncommitted if w not in written]
            emit(Step("commit"))
            outcome = self.context.commit(
                action,
                branch=self.branch,
                properties=self.properties,
                written_files=_written_paths(written),
                keep_files_if_rejected=True,
            )
            if not isinstance(outcome, Rejected):
                return require_committed(outcome, "compaction")
            self.uncommitted_rewrites = uncommitted
            return outcome
        except NeveError as e:
            if not planned.plan.options.partial_progress:
                raise
            self._count_failed_commit(planned.plan, [g for w in written for g in w.groups], str(e))
            return None

    def _record_commit(self, written: Sequence[RewrittenGroups], outcome: Committed) -> None:
        result, snapshot_id = self.result, outcome.snapshot_id
        groups = (
            GroupResult(
                group.group_id,
                group.index_in_partition,
                group.partition,
                group.file_count,
                w.files.num_rows if len(w.groups) == 1 else None,
                bytes_rewritten=group.bytes,
                rows_before=group.rows,
                checksum=None if w.checksum_after is None else str(w.checksum_after),
            )
            for w in written
            for group in w.groups
        )
        self.result = replace(
            result,
            snapshot_ids=(*result.snapshot_ids, *([snapshot_id] if snapshot_id is not None else [])),
            groups=(*result.groups, *groups),
            files_added=result.files_added + sum(w.files.num_rows for w in written),
            bytes_added=result.bytes_added + sum(pc.sum(w.files["file_size_in_bytes"]).as_py() or 0 for w in written),
            delete_files_removed=result.delete_files_removed + int(outcome.summary.get("removed-delete-files", 0)),
        )

    def _count_failed_commit(
        self, plan: RewritePlan, groups: Sequence[FileGroup], reason: str, conflicts: tuple[Conflict, ...] = ()
    ) -> None:
        """Count a batch that was not committed; too many end the run."""
        self._record_failed_groups(groups, reason)
        failed = self.result.failed_commits + 1
        self.result = replace(self.result, failed_commits=failed)
        max_failed = plan.options.max_failed_commits
        if failed > (plan.options.max_commits if max_failed is None else max_failed):
            raise CommitConflict(
                f"The compaction gave up: {failed} batches failed, the last: {reason} What was committed before "
                f"stays: {self.result.summary}.",
                conflicts,
            )

    def _record_failed_groups(self, groups: Sequence[FileGroup], reason: str) -> None:
        failed = (GroupResult(g.group_id, g.index_in_partition, g.partition, g.file_count, 0, reason) for g in groups)
        self.result = replace(self.result, failed_groups=(*self.result.failed_groups, *failed))

    def _count_planned_groups(self, groups: Sequence[FileGroup]) -> None:
        progress = self.progress
        self.progress = replace(
            progress,
            groups=progress.groups + len(groups),
            bytes=progress.bytes + sum(g.bytes for g in groups),
            files=progress.files + sum(g.file_count for g in groups),
        )
        emit(self.progress)

    def _delete_files(self, written: Sequence[RewrittenGroups]) -> None:
        delete_files(self.context.io, _written_paths(written))


def _written_paths(written: Sequence[RewrittenGroups]) -> list[str]:
    return [path for w in written for path in w.files["file_path"].to_pylist()]


def _batches(plan: RewritePlan) -> Iterator[Sequence[FileGroup]]:
    """Divide the groups into as many commits as partial progress allows; without it, there is one commit."""
    size = -(-len(plan.groups) // plan.options.max_commits) if plan.options.partial_progress else len(plan.groups)
    for at in range(0, len(plan.groups), max(size, 1)):
        yield plan.groups[at : at + size]


def _is_in_conflict(written: RewrittenGroups, conflicts: Sequence[Conflict]) -> bool:
    """Check whether conflicts are about data files or deletes of these groups."""
    conflicting = {path for c in conflicts for path in c.files}
    return any(
        not conflicting.isdisjoint(entries["file_path"].to_pylist())
        for g in written.groups
        for entries in (g.files, g.scan.deletes)
    )

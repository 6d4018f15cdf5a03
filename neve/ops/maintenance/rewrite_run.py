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

from neve.commit.actions import Removed, RewriteFiles
from neve.commit.outcome import Committed, Conflict, Outcome, Rejected, require
from neve.errors import CommitConflict, NeveError, TableError, UserError
from neve.io.files import delete_all
from neve.ops.context import TableContext
from neve.ops.events import Progress, Step, tell
from neve.ops.maintenance.remove_dangling_deletes import RemoveDanglingDeletes
from neve.ops.maintenance.row_order import RowOrder
from neve.ops.results import GroupResult, RewriteResult
from neve.ops.verb import Execution, PendingCommit
from neve.plan.rewrite_plan import FileGroup, RewritePlan, RewritePlanningResult
from neve.run.spark.rewrite import Rewriting, Rewritten
from neve.run.spark.session import is_classic
from neve.run.write.target import WriteOptions, WriteTarget
from neve.tree.entries import EntryTable

_TASKS_PER_CORE = 4  # in one job: more keep all cores busy to its end, fewer tell sooner how far it is


@dataclass(frozen=True)
class RewriteOrders:
    """How a plan is carried out."""

    branch: str
    properties: Mapping[str, str]
    told: Callable[[Progress], None]
    order: RowOrder | None
    verifies: bool
    is_enough: Callable[[Progress], bool]


@dataclass(frozen=True)
class _Planned:
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

    def moves(self, group: FileGroup) -> bool:
        """Whether rows of a group may go to another partition than that of its files."""
        stays = group.partition.spec_id == group.output_spec_id
        return not stays and not self.context.specs.is_unpartitioned(group.output_spec_id)

    def action(self, written: Sequence[Rewritten]) -> RewriteFiles:
        """What was written in place of what was planned."""
        specs = self.context.specs
        groups = [group for w in written for group in w.groups]
        return RewriteFiles(
            removed_data=Removed(EntryTable.concat([g.files for g in groups], specs)),
            added_data=EntryTable.concat([EntryTable(w.files, specs) for w in written], specs) or None,
            removed_deletes=Removed(_vectors(groups, specs)),
            data_sequence_number=self._starting_number,
            start_snapshot_id=self.plan.snapshot_id,
        )

    @property
    def _starting_number(self) -> int | None:
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
    planned: Callable[[TableContext, Container[str] | None], RewritePlanningResult]  # of all files, or of some paths
    orders: RewriteOrders
    execution: Execution
    progress: Progress = field(default_factory=Progress)
    open: list[Rewritten] = field(default_factory=list)  # written, not committed
    result: RewriteResult = field(default_factory=RewriteResult)

    def run(self, planned: RewritePlanningResult) -> CompactionOutcome:
        """Carry out a plan."""
        plan = planned.plan
        self._expect(plan.groups)
        try:
            for batch in _batches(plan):
                self._batch(_Planned(self.context, plan), batch, self.context.properties.reruns)
                if self.orders.is_enough(self.progress):
                    break
        finally:
            self._delete(self.open)
        removed = self._without_dangling(plan)
        return CompactionOutcome(replace(self.result, delete_files_removed=removed))

    def _batch(self, planned: _Planned, groups: Sequence[FileGroup], races: int) -> None:
        """Rewrite some groups and commit them together; those that lose a race are planned again, alone."""
        written = self._rewritten(planned, groups)
        lost, conflicts = self._committed(planned, written)
        if not lost:
            return
        self.result = replace(self.result, races=self.result.races + 1)
        if not races:
            self._give_up(planned.plan, lost, conflicts)
            return
        context = planned.context.refreshed()
        again = {path for g in lost for path in g.files["file_path"].to_pylist()}
        fresh = self._numbered(self.planned(context, again).plan)
        self._expect(fresh.groups)
        if fresh.groups:
            self._batch(_Planned(context, fresh), fresh.groups, races - 1)

    # -- rewriting ---------------------------------------------------------------------------------------------------

    def _rewritten(self, planned: _Planned, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """The new files of groups, wave by wave."""
        plan, before = planned.plan, len(self.open)
        for spec_id in sorted({g.output_spec_id for g in groups}):
            mine = [g for g in groups if g.output_spec_id == spec_id]
            target = self._target(planned, spec_id)
            rewriting = Rewriting(self._spark, planned.context.facts, target, self.orders.verifies)
            if self.orders.order is not None:
                self._in_order(plan, rewriting, mine, self.orders.order)
                continue
            moves = {g.group_id for g in mine if planned.moves(g)}
            for wave in self._waves([g for g in mine if g.group_id not in moves]):
                self._attempt(plan, wave, rewriting.in_place)
            if moving := [g for g in mine if g.group_id in moves]:
                self._attempt(plan, moving, lambda some, r=rewriting: [r.moving(some)])  # type: ignore[misc]
        return self.open[before:]

    def _in_order(self, plan: RewritePlan, rewriting: Rewriting, groups: Sequence[FileGroup], order: RowOrder) -> None:
        """Groups sorted, each in a job of its own, several at once."""
        jobs = {g.group_id: rewriting.ordered(g, order.spread(g, rewriting.target)) for g in groups}
        with ThreadPoolExecutor(plan.options.concurrent_groups) as pool:
            running = {pool.submit(jobs[g.group_id]): g for g in groups}
            try:
                for one in as_completed(running):
                    self._attempt(plan, [running[one]], lambda some, one=one: [one.result()])  # type: ignore[misc]
            except BaseException:
                for one in running:
                    one.cancel()
                for one in running:  # what is running already is waited for, and its files are deleted
                    if not one.cancelled() and one.exception() is None:
                        self.open += [one.result()] if one.result() not in self.open else []
                raise

    def _attempt(
        self,
        plan: RewritePlan,
        groups: Sequence[FileGroup],
        work: Callable[[Sequence[FileGroup]], list[Rewritten]],
    ) -> None:
        """Rewrite groups; when that fails and others may go on, each by itself, and the guilty ones are reported."""
        try:
            made = work(groups)
            self.open += made
            self._refuse_differences(made)
        except NeveError as e:
            if not plan.options.partial_progress:
                raise
            if len(groups) > 1:
                for group in groups:
                    self._attempt(plan, [group], work)
                return
            self._fail(groups, str(e))
        self._tell(groups)

    def _refuse_differences(self, made: Sequence[Rewritten]) -> None:
        for one in made:
            if one.before != one.after or _has_lost_rows(one):
                self.open = [w for w in self.open if w not in made]
                self._delete(made)
                raise TableError(
                    f"The rows of group {one.groups[0].group_id} are not the same before ({one.before}, "
                    f"{sum(g.rows for g in one.groups)} rows in its files) and after ({one.after}) they were "
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

    def _target(self, planned: _Planned, spec_id: int) -> WriteTarget:
        made, order = planned.target(spec_id), self.orders.order
        return made if order is None else order.target(made)

    # -- committing --------------------------------------------------------------------------------------------------

    def _committed(self, planned: _Planned, written: list[Rewritten]) -> tuple[list[FileGroup], tuple[Conflict, ...]]:
        """Commit what was written; the groups that lost a race, whose files are gone again, and why."""
        lost: list[Rewritten] = []
        why: tuple[Conflict, ...] = ()
        while written:
            outcome = self._decided(planned, written)
            if outcome is None:
                break
            if not isinstance(outcome, Rejected):
                self._note(written, outcome.snapshot_id)
                break
            _refuse_wrong_input(outcome)
            why = outcome.conflicts
            hit = [w for w in written if _is_hit(w, why)] or written
            lost += hit
            written = [w for w in written if w not in hit]
        self.open = [w for w in self.open if w not in lost]
        self._delete(lost)
        return [g for w in lost for g in w.groups], why

    def _decided(self, planned: _Planned, written: Sequence[Rewritten]) -> Committed | Rejected | None:
        """What became of a commit; none when it failed or may have landed, and the rest may go on without it."""
        try:
            outcome = self._in_doubt_kept(planned.action(written), written)
            return outcome if isinstance(outcome, Rejected) else require(outcome, "compaction")
        except NeveError as e:
            if not planned.plan.options.partial_progress:
                raise
            self._fail([g for w in written for g in w.groups], str(e))
            self._count_failure(planned.plan, str(e))
            return None

    def _in_doubt_kept(self, action: RewriteFiles, written: Sequence[Rewritten]) -> Outcome:
        """Commit; from the first attempt on only proof that nothing landed lets the files be deleted, there or here."""
        kept, self.open = self.open, [w for w in self.open if w not in written]
        tell(Step("commit"))
        outcome = self.context.commit(
            action,
            branch=self.orders.branch,
            properties=self.orders.properties,
            written_files=_paths(written),
            keep_files_if_rejected=True,
        )
        if isinstance(outcome, Rejected):
            self.open = kept
        return outcome

    def _note(self, written: Sequence[Rewritten], snapshot_id: int | None) -> None:
        now = self.result
        self.result = replace(
            now,
            snapshot_ids=(*now.snapshot_ids, *([snapshot_id] if snapshot_id is not None else [])),
            groups=(*now.groups, *(result for w in written for result in _results(w))),
            files_added=now.files_added + sum(w.files.num_rows for w in written),
            bytes_added=now.bytes_added + sum(pc.sum(w.files["file_size_in_bytes"]).as_py() or 0 for w in written),
        )

    def _give_up(self, plan: RewritePlan, lost: Sequence[FileGroup], conflicts: tuple[Conflict, ...]) -> None:
        """Groups that lost every race."""
        if not plan.options.partial_progress:
            raise CommitConflict(f"The compaction did not land: {conflicts[0]} Run it again later.", conflicts)
        self._fail(lost, str(conflicts[0]))
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

    def _without_dangling(self, plan: RewritePlan) -> int:
        """Delete files that apply to nothing any more, removed in a commit of their own when that was asked for."""
        if not plan.options.remove_dangling_deletes or not self.result.groups:
            return 0
        verb = RemoveDanglingDeletes(self.context.refreshed()).branch(self.orders.branch)
        return verb.execute().delete_files_removed

    def _fail(self, groups: Sequence[FileGroup], why: str) -> None:
        found = tuple(GroupResult(g.group_id, g.index_in_partition, g.partition, len(g.files), 0, why) for g in groups)
        self.result = replace(self.result, failed_groups=(*self.result.failed_groups, *found))

    def _numbered(self, plan: RewritePlan) -> RewritePlan:
        """The plan with ids that no other group of this run has."""
        first = self.progress.groups
        return replace(plan, groups=tuple(replace(g, group_id=first + n) for n, g in enumerate(plan.groups)))

    def _expect(self, groups: Sequence[FileGroup]) -> None:
        now = self.progress
        self.progress = replace(
            now,
            groups=now.groups + len(groups),
            bytes=now.bytes + sum(g.bytes for g in groups),
            files=now.files + sum(len(g.files) for g in groups),
        )
        tell(self.progress)

    def _tell(self, groups: Sequence[FileGroup]) -> None:
        now = self.progress
        self.progress = replace(
            now,
            groups_done=now.groups_done + len(groups),
            bytes_done=now.bytes_done + sum(g.bytes for g in groups),
            files_done=now.files_done + sum(len(g.files) for g in groups),
            seconds=self.execution.total_seconds,
        )
        tell(self.progress)
        self.orders.told(self.progress)

    def _delete(self, written: Sequence[Rewritten]) -> None:
        delete_all(self.context.io, _paths(written))


def _paths(written: Sequence[Rewritten]) -> list[str]:
    return [path for w in written for path in w.files["file_path"].to_pylist()]


def _batches(plan: RewritePlan) -> Iterator[Sequence[FileGroup]]:
    """The groups of each commit: all, or as many as make the number of commits that partial progress allows."""
    size = -(-len(plan.groups) // plan.options.max_commits) if plan.options.partial_progress else len(plan.groups)
    for at in range(0, len(plan.groups), max(size, 1)):
        yield plan.groups[at : at + size]


def _has_lost_rows(one: Rewritten) -> bool:
    """Whether fewer or more rows were read than the files have, as far as they tell: deletes are not counted."""
    has_deletes = any(len(g.scan.deletes) for g in one.groups)
    is_counted = all((g.files.numpy("record_count") >= 0).all() for g in one.groups)  # old imports did not
    if one.before is None or has_deletes or not is_counted:
        return False
    return one.before.rows != sum(g.rows for g in one.groups)


def _is_hit(written: Rewritten, conflicts: Sequence[Conflict]) -> bool:
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
            checksum=None if written.after is None else str(written.after),
        )
        for group in written.groups
    ]

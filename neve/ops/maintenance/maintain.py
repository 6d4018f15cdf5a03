"""Propose the maintenance that makes a table faster or smaller, and run it: what is most worth doing comes first.

Each step is a verb of its own with its default options. A step is worth the number of files that a scan of the whole
table no longer opens, per byte that the step has to read. Manifests come after the files they list, and expiry, which
saves no scan anything, comes last. A budget of bytes or seconds ends the work early; what was committed stays. An
expiry that could delete files of another table is left out, and the plan says why.

Isolation: that of the verbs.
Writes: what the verbs write.

>>> print(t.maintain().explain())
nothing to do
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow.compute as pc

from neve.commit.neighbours import SharedFilesError
from neve.display.format import plural
from neve.display.html import ExplainMixin, SummaryMixin
from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.events import Step, emit
from neve.ops.maintenance.expire_snapshots import ExpireSnapshots
from neve.ops.maintenance.remove_dangling_deletes import RemoveDanglingDeletes
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.ops.maintenance.rewrite_manifests import RewriteManifests
from neve.ops.maintenance.rewrite_position_deletes import RewritePositionDeletes
from neve.ops.verb import Execution, Verb
from neve.plan.rewrite_plan import RewritePlan, is_chosen

_LAST_VERBS = ("rewrite_manifests", "expire_snapshots")  # after a change of files, manifests would need it again
_PARTIAL_PROGRESS = {"partial-progress.enabled": True}


@dataclass(frozen=True, slots=True)
class Proposal:
    """One step: the verb, what it would do, what it saves and what it costs."""

    verb: str
    why: str
    files_saved: int  # files a scan of the whole table no longer opens
    bytes_read: int
    budgeted: str = ""  # the part of it within the budget, if not all
    is_rejected: bool = False  # `why` is the reason

    @property
    def pays(self) -> float:
        """The files saved per byte read."""
        return self.files_saved / max(self.bytes_read, 1)

    def __str__(self) -> str:
        return f"{self.verb:<24} {self.why}{self.budgeted}"


@dataclass(frozen=True, slots=True)
class MaintenancePlan(ExplainMixin):
    """What would be done; what is most worth doing comes first."""

    steps: tuple[Proposal, ...] = ()
    left_out: tuple[Proposal, ...] = ()  # rejected, or beyond the budget

    @property
    def is_empty(self) -> bool:
        """True if the table needs no maintenance."""
        return not self.steps and not self.left_out

    def explain(self) -> str:
        """Describe the plan in words."""
        if self.is_empty:
            return "nothing to do"
        done = [f"{n}. {step}" for n, step in enumerate(self.steps, 1)]
        left_out = (f"-  {step}{'' if step.is_rejected else ' (beyond the budget)'}" for step in self.left_out)
        return "\n".join([*done, *left_out])

    def __str__(self) -> str:
        return self.explain()


@dataclass(frozen=True, slots=True)
class MaintenanceResult(SummaryMixin):
    """The verbs that ran with their results, in order."""

    results: tuple[tuple[str, Any], ...] = ()
    not_done: tuple[Proposal, ...] = ()  # steps beyond the budget, or rejected
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        done = "; ".join(f"{verb}: {result.summary}" for verb, result in self.results) or "nothing to do"
        beyond = [step for step in self.not_done if not step.is_rejected]
        rejected = [f"{step.verb} rejected" for step in self.not_done if step.is_rejected]
        return "; ".join([done, *([f"{plural(len(beyond), 'step')} beyond the budget"] if beyond else []), *rejected])


@dataclass(frozen=True)
class Maintain(Verb[MaintenancePlan, MaintenanceResult]):
    """Maintenance of a table: `.budget(bytes=…, seconds=…)`, then `.plan()`, `.explain()` or `.execute()`."""

    max_bytes: int | None = None
    max_seconds: float | None = None

    title = "maintenance"

    def budget(self, *, bytes: int | None = None, seconds: float | None = None) -> Self:  # noqa: A002
        """Limit the bytes to read, or the time it takes."""
        for name, value in (("bytes", bytes), ("seconds", seconds)):
            if value is not None and (not isinstance(value, int | float) or not value > 0):
                raise UserError(f"A budget of {value!r} {name} allows nothing: give a number above 0.")
        return replace(self, max_bytes=bytes, max_seconds=seconds)

    def _plan(self, context: TableContext) -> MaintenancePlan:
        proposals = propose_steps(context)
        possible = [step for step in proposals if not step.is_rejected]
        left_out = [step for step in proposals if step.is_rejected]
        if self.max_bytes is None:
            return MaintenancePlan(tuple(possible), tuple(left_out))
        room, steps = self.max_bytes, []
        for step in possible:
            if step.bytes_read <= room:
                steps.append(step)
                room -= step.bytes_read
            elif step.verb in _COMPACTIONS and (part := self._files_within(step.verb, room)):  # a part of it fits
                within = f", {plural(part, 'file')} of it within the budget"
                steps.append(replace(step, bytes_read=room, budgeted=within))
                room = 0
            else:
                left_out.append(step)
        return MaintenancePlan(tuple(steps), tuple(left_out))

    def _files_within(self, verb: str, room: int) -> int:
        """Count the files of a compaction that fit into a budget: whole groups, in their order."""
        files = 0
        for group in _COMPACTIONS[verb](self.context.refreshed()).plan().groups:
            if group.bytes > room:
                break
            room -= group.bytes
            files += group.file_count
        return files

    def _write(self, context: TableContext, plan: MaintenancePlan, execution: Execution) -> MaintenanceResult:
        """Run the steps of the plan until the time is up; each step commits by itself."""
        results: list[tuple[str, Any]] = []
        rejected: list[Proposal] = []
        waiting = list(plan.steps)
        while waiting and not self._is_out_of_time(execution.started):
            step = waiting.pop(0)
            emit(Step(step.verb, len(results), len(plan.steps), "steps"))
            verb: Any = (_COMPACTIONS.get(step.verb) or _VERBS[step.verb])(self.context.refreshed())
            if step.budgeted:
                verb = verb.option("max-files-to-rewrite", self._files_within(step.verb, step.bytes_read))
            if step.verb in _COMPACTIONS and self.max_seconds is not None:
                verb = verb.options(_PARTIAL_PROGRESS).until(lambda _: self._is_out_of_time(execution.started))
            try:
                results.append((step.verb, verb.execute()))
            except SharedFilesError as e:  # what the other steps did stays
                rejected.append(replace(step, why=str(e), is_rejected=True))
        return MaintenanceResult(tuple(results), (*waiting, *rejected, *plan.left_out), execution.total_seconds)

    def _is_out_of_time(self, started: float) -> bool:
        return self.max_seconds is not None and time.monotonic() - started >= self.max_seconds


_VERBS: dict[str, Callable[[TableContext], Any]] = {
    "rewrite_position_deletes": lambda context: RewritePositionDeletes(context).equality_deletes(),
    "remove_dangling_deletes": RemoveDanglingDeletes,
    "rewrite_manifests": RewriteManifests,
    "expire_snapshots": ExpireSnapshots,
}
_COMPACTIONS: dict[str, Callable[[TableContext], RewriteDataFiles]] = {
    "rewrite_data_files": RewriteDataFiles,
    "upgrade_spec": lambda context: RewriteDataFiles(context).upgrade_spec(),
}


def propose_steps(context: TableContext, compaction: RewritePlan | None = None) -> tuple[Proposal, ...]:
    """Return every step that would change something, in the order in which they run.

    `compaction` is the plan of a compaction of the same state, if the caller has one.
    """
    return tuple(sorted(_proposals(context, compaction), key=lambda p: (p.verb in _LAST_VERBS, -p.pays)))


def _proposals(context: TableContext, compaction: RewritePlan | None) -> Iterator[Proposal]:
    if context.metadata.current_snapshot() is None:
        return
    deletes = _VERBS["rewrite_position_deletes"](context).plan()
    if not deletes.is_empty:
        read = deletes.scan.files if len(deletes.equality_deletes) else deletes.scan.files.take([])
        needed = int(pc.sum(read["file_size_in_bytes"]).as_py() or 0)
        why = f"{plural(len(deletes.replaced), 'delete file')} about {plural(len(deletes.scan.files), 'data file')}"
        yield Proposal("rewrite_position_deletes", why, len(deletes.replaced), deletes.bytes + needed)
    dangling = RemoveDanglingDeletes(context).plan()
    if len(dangling.deletes):
        why = f"{plural(len(dangling.deletes), 'delete file')} without effect"
        yield Proposal("remove_dangling_deletes", why, len(dangling.deletes), 1)
    yield from _data_file_proposals(context, compaction or RewriteDataFiles(context).plan())
    manifests = RewriteManifests(context).plan()
    if any(g.pieces for g in manifests.groups):  # manifests without live files cost little, and go with the others
        fewer = manifests.manifests - sum(g.pieces for g in manifests.groups)
        why = f"{plural(manifests.manifests, 'manifest')} of {plural(manifests.files, 'file')}"
        yield Proposal("rewrite_manifests", why, max(fewer, 0), sum(g.bytes for g in manifests.groups))
    if context.may_delete_files:
        yield from _expiry_proposals(context)


def _expiry_proposals(context: TableContext) -> Iterator[Proposal]:
    try:
        expiry = _VERBS["expire_snapshots"](context).plan()
    except SharedFilesError as e:
        yield Proposal("expire_snapshots", str(e), 0, 1, is_rejected=True)
        return
    if expiry.snapshot_ids or expiry.refs:
        refs = f"{plural(len(expiry.refs), 'old reference')}, " if expiry.refs else ""
        files = plural(len(expiry.files), "file")
        why = f"{refs}{plural(len(expiry.snapshot_ids), 'old snapshot')}, {files} that only they reference"
        if expiry.left.shared:
            why += f", {plural(len(expiry.left.shared), 'file')} kept for other tables"
        yield Proposal("expire_snapshots", why, 0, 1)


def _data_file_proposals(context: TableContext, small: RewritePlan) -> Iterator[Proposal]:
    if not small.is_empty:
        output_files = sum(g.output_files for g in small.groups)
        why = f"{plural(small.files, 'file')}, {plural(small.bytes, 'byte')}, to about {output_files}"
        files_saved = small.files - output_files + sum(g.delete_file_count for g in small.groups)
        yield Proposal("rewrite_data_files", why, files_saved, small.bytes)
    if len(context.specs.by_id) > 1:
        is_old = small.considered.numpy("spec_id") != context.metadata.default_spec_id
        is_left = is_old & ~is_chosen(small.reason_codes)  # the compaction moves its files to the current spec too
        if is_left.any():
            size = int(small.considered.numpy("file_size_in_bytes")[is_left].sum())
            why = f"{plural(int(is_left.sum()), 'file')}, {plural(size, 'byte')}, under old specs"
            yield Proposal("upgrade_spec", why, 0, size)

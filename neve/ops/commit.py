"""Rows to data files, data files to a commit: what every verb that writes rows does.

The data files belong to the commit: it deletes them when it is proven that nothing landed, and keeps them otherwise.

Plan, commit, and plan again when another writer got in the way: for verbs whose plans cost little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow.compute as pc

from neve.commit.actions import Action
from neve.commit.outcome import Committed, Outcome, Rejected, require
from neve.commit.protocol import commit
from neve.commit.summary import refuse_own_names
from neve.ops.context import TableContext
from neve.ops.events import Step, tell
from neve.ops.results import WriteResult
from neve.run.spark.input_rows import write_rows
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable


@dataclass(frozen=True, slots=True)
class _Timed:
    """How long each phase took."""

    seconds: dict[str, float]

    def phase(self, name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return work()
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 3)


def write_and_publish(
    context: TableContext,
    rows: Any,
    action: Callable[[EntryTable], Action],
    *,
    doing: str,
    branch: str,
    snapshot_properties: Mapping[str, str],
) -> WriteResult:
    """Write rows under the table's default spec and commit the files by the action made of them."""
    _refuse_early(context, branch, snapshot_properties)
    target = WriteTarget.of(context.metadata, context.facts.io_properties)
    timed = _Timed({})
    written = timed.phase("write", lambda: write_rows(rows, target, context.spark))
    files = EntryTable(written, context.specs)
    landed = timed.phase("commit", lambda: publish(context, action(files), files, doing, branch, snapshot_properties))
    by_spec = {spec_id: len(part) for spec_id, part in files.by_spec()} if len(files) else {}
    return WriteResult(
        snapshot_id=landed.snapshot_id,
        rows_added=pc.sum(files["record_count"]).as_py() or 0,
        files_added=len(files),
        bytes_added=pc.sum(files["file_size_in_bytes"]).as_py() or 0,
        files_added_by_spec=by_spec,
        **_removed(context, landed),
        attempts=landed.attempts,
        seconds=timed.seconds,
    )


def _removed(context: TableContext, landed: Committed) -> dict[str, int]:
    """What the snapshot says it took out of the table."""
    metadata = context.refreshed().metadata if landed.snapshot_id is not None else context.metadata
    snapshot = metadata.snapshot_by_id(landed.snapshot_id) if landed.snapshot_id is not None else None
    said = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary else {}
    counts = {"files_removed": "deleted-data-files", "rows_removed": "deleted-records"}
    return {field: int(said.get(name, 0)) for field, name in counts.items()}


def publish(
    context: TableContext,
    action: Action,
    files: EntryTable,
    doing: str,
    branch: str,
    snapshot_properties: Mapping[str, str],
) -> Committed:
    """Commit an action with the files that were written for it."""
    outcome = commit(
        context.catalog,
        context.iceberg,
        action,
        branch=branch,
        properties=snapshot_properties,
        environment=context.environment,
        owned=files["file_path"].to_pylist(),
    )
    return require(outcome, doing)


def _refuse_early(context: TableContext, branch: str, snapshot_properties: Mapping[str, str]) -> None:
    """Refuse what the commit would refuse, before any row is written."""
    context.head(branch)
    refuse_own_names(snapshot_properties)


P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Landed(Generic[P]):
    """The plan that landed, how often it was made anew before, and the commit; none when there was nothing to do."""

    plan: P
    committed: Committed | None = None
    reruns: int = 0


def land_anew(
    context: TableContext,
    plan: Callable[[TableContext], P],
    act: Callable[[TableContext, P], Outcome | None],
    doing: str,
) -> Landed[P]:
    """Make a plan and commit it; after a conflict once more on the new state, as often as the table's property says.

    `act` returns nothing when there is nothing to do.
    """
    reruns = 0
    while True:
        tell(Step("plan"))
        made = plan(context)
        tell(Step(doing))
        outcome = act(context, made)
        if outcome is None:
            return Landed(made, reruns=reruns)
        if not isinstance(outcome, Rejected) or reruns >= context.properties.reruns or _is_hopeless(outcome):
            return Landed(made, require(outcome, doing), reruns)
        context, reruns = context.refreshed(), reruns + 1


def _is_hopeless(rejected: Rejected) -> bool:
    return all(conflict.rule.is_about_input for conflict in rejected.conflicts)

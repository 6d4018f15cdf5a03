"""Commit an action to a table: refresh, check, write and swap; start again if another writer was faster.

An attempt goes through the phases of `Phase`. Only a swap that provably did not land is retried. The attempt that
landed is recognised by the manifest list that it wrote, never by an id that all attempts share. There are three
outcomes: `Committed`, `Rejected` (nothing landed; what was written is deleted again) and `Unknown` (it may have landed;
every file is kept). Only this module knows whether a swap may have happened, so it also decides which written files
are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)

from neve.catalog.base import NeveCatalog
from neve.catalog.swap import LostRace, MaybeSwapped, NotSwapped, SwapStatus
from neve.commit.actions import Action, CherryPick, ReplacePartitions, operation_of, with_specs
from neve.commit.cleanup import delete_retired_metadata, discard_losing_attempts, discard_rejected
from neve.commit.draft import Draft, draft_manifests
from neve.commit.environment import Environment, Phase, retry_wait_seconds
from neve.commit.manifest_edits import with_counts
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected, Unknown
from neve.commit.rules import check_conflicts
from neve.commit.summary import build_summary
from neve.commit.window import CommitBase, CommitRefused
from neve.commit.written_files import WrittenFiles
from neve.errors import MissingFile, TableError, UserError
from neve.model.metadata import TableMetadata, are_different_tables, table_identity, to_neve_metadata
from neve.model.metadata_updates import apply_updates
from neve.model.snapshots import STAGED_WAP_ID, AddSnapshot, Snapshot, tree_root_location
from neve.tree.entries import Manifest
from neve.tree.tree_writer import assign_row_ids
from neve.tree.write import ManifestListHeader


def commit(
    catalog: NeveCatalog,
    table: Table,
    action: Action,
    *,
    branch: str = MAIN_BRANCH,
    creates_branch: bool = False,
    wap_id: str | None = None,
    properties: Mapping[str, str] | None = None,
    environment: Environment | None = None,
    files_of_this_commit: Collection[str] = (),
    keep_files_if_rejected: bool = False,
    extra_check: Callable[[CommitBase], Conflict | None] | None = None,
    change_metadata: MetadataChange | None = None,
) -> Outcome:
    """Apply an action to a branch of a table; `properties` are added to the summary of the snapshot.

    With `creates_branch`, a missing branch is created from main. With `wap_id`, the snapshot is only staged under this
    id: it is added to the table, and the branch stays where it is until the change is published.

    `table` identifies the table; its metadata is read again. `files_of_this_commit` are files that were written for
    this action alone. They are deleted, together with everything that the commit wrote, once it is proven that nothing
    landed, whether the commit ends with `Rejected` or with an error; otherwise they are kept. With
    `keep_files_if_rejected`, they are also kept after `Rejected`, for a caller that commits some of them in another
    way. `extra_check` is called at every attempt with the state of the table; a conflict that it returns rejects the
    commit. `change_metadata` returns the requirements and updates that come before the snapshot, in the same commit,
    and decide themselves what a concurrent commit may have changed.

    Raises errors only for what no attempt can change: an unknown table or branch, failing storage, a corrupt file.
    """
    job = _Commit(
        catalog,
        table,
        action,
        branch,
        creates_branch,
        wap_id,
        dict(properties or {}) | ({} if wap_id is None else {STAGED_WAP_ID: wap_id}),
        environment or Environment(),
        frozenset(files_of_this_commit),
        keep_files_if_rejected,
        extra_check,
        change_metadata,
    )
    try:
        outcome = job.run()
    except BaseException:
        job.clean_up_after_error()
        raise
    return job.confirm_rejection(outcome) if isinstance(outcome, Rejected) else outcome


MetadataChange: TypeAlias = Callable[[TableMetadata], tuple[Sequence[Any], Sequence[Any]]]
"""Returns requirements and updates for the newest metadata of a table."""


_RETENTION = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")  # of a branch or tag


class _TableMissing(TableError):
    """The table does not exist any more; another one may have its name."""


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot whose manifests and list are written, with the requirements and updates for the catalog."""

    snapshot: Snapshot
    manifests: tuple[Manifest, ...]
    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]

    def after(self, requirements: Sequence[Any], updates: Sequence[Any]) -> PreparedSnapshot:
        """Return the snapshot to be added after other updates, which may have moved the branch."""
        is_same_table, *_ = self.requirements
        return replace(self, requirements=(is_same_table, *requirements), updates=(*updates, *self.updates))


@dataclass
class _Commit:
    """One commit and its attempts."""

    catalog: NeveCatalog
    table: Table
    action: Action
    branch: str
    creates_branch: bool
    wap_id: str | None
    properties: dict[str, str]
    environment: Environment
    files_of_this_commit: frozenset[str] = frozenset()
    keep_files_if_rejected: bool = False
    extra_check: Callable[[CommitBase], Conflict | None] | None = None
    change_metadata: MetadataChange | None = None
    attempts: int = 0
    may_have_landed: bool = False
    written_files: WrittenFiles = field(init=False)
    first_location: str = field(init=False)  # where the table was when files were written for this commit

    def __post_init__(self) -> None:
        self.written_files = WrittenFiles(self.environment.snapshot_id())
        self.first_location = self.table.metadata.location

    def run(self) -> Outcome:
        """Run attempts until the outcome is decided."""
        started = self.environment.now_ms()
        while True:
            attempt_started = self.environment.now_ms()
            base = self.refresh()
            if landed := self.landed_snapshot(base):
                return self.finish_on_current_table(landed)
            try:
                outcome = self.run_attempt(base)
            except CommitRefused as e:
                return Rejected((e.conflict,), self.written_files.all_paths, self.attempts)
            except MissingFile as e:
                if self.may_have_landed or not self.is_outdated():
                    raise
                # A concurrent expiry has deleted files of the state that this attempt began with.
                outcome = LostRace(f"{e} The table has changed since the attempt began.")
            if not isinstance(outcome, NotSwapped):
                return outcome
            elapsed, properties = self.environment.now_ms() - started, base.properties
            if self.attempts > properties.commit_retries or elapsed >= properties.commit_timeout_ms:
                message = f"Gave up after {self.attempts} attempts in {elapsed} ms: {outcome}"
                return Rejected((Conflict(Check.ATTEMPTS, message),), self.written_files.all_paths, self.attempts)
            attempt_ms, jitter = self.environment.now_ms() - attempt_started, self.environment.jitter()
            self.environment.sleep(retry_wait_seconds(self.attempts, properties, attempt_ms, jitter))

    def refresh(self) -> CommitBase:
        """Load the newest state of the table."""
        self.observe(Phase.REFRESH)
        name = ".".join(self.table.name())
        try:
            table = self.catalog.refresh_table(self.table)
        except NoSuchTableError as e:
            raise _TableMissing(f"Table {name} does not exist any more. Nothing landed.") from e
        if are_different_tables(table_identity(table.metadata), table_identity(self.table.metadata)):
            raise _TableMissing(f"Table {name} was dropped and created again. Nothing was written to the new table.")
        self.table = table
        metadata = to_neve_metadata(table.metadata, table.metadata_location)
        base = CommitBase(table.io, metadata, self.branch, self.creates_branch)
        same_id = base.metadata.snapshot_by_id(self.written_files.snapshot_id)
        if same_id is not None and tree_root_location(same_id) not in self.written_files.list_paths:
            # Another writer took the same snapshot id. Manifests contain the id, so they are written again.
            self.written_files = self.written_files.with_snapshot_id(self.environment.snapshot_id())
        return base

    def is_outdated(self) -> bool:
        """Return whether the table has changed since it was refreshed."""
        return self.catalog.refresh_table(self.table).metadata_location != self.table.metadata_location

    def landed_snapshot(self, base: CommitBase) -> Snapshot | None:
        """Return the snapshot of an earlier attempt that was reported as lost but landed."""
        snapshot = base.metadata.snapshot_by_id(self.written_files.snapshot_id) if self.attempts else None
        has_landed = snapshot is not None and tree_root_location(snapshot) in self.written_files.list_paths
        return snapshot if has_landed else None

    def run_attempt(self, base: CommitBase) -> Outcome | NotSwapped:
        """Run one attempt; returns its outcome, or `NotSwapped` if it provably did not land."""
        self.attempts += 1
        if self.files_of_this_commit and base.metadata.location != self.first_location:
            message = f"The table was moved to {base.metadata.location} while files were written for it."
            raise CommitRefused(Conflict(Check.CONCURRENT_UPDATE, message))
        requirements, updates = self.change_metadata(base.metadata) if self.change_metadata else ((), ())
        base = replace(base, metadata=apply_updates(base.metadata, updates)) if updates else base
        action = with_specs(self.action, base.specs)
        self.observe(Phase.CHECK)
        if self.extra_check is not None and (conflict := self.extra_check(base)):
            raise CommitRefused(conflict)
        check_conflicts(base, action)
        self.observe(Phase.DRAFT)
        draft = draft_manifests(base, action, self.written_files)
        if draft.is_empty:
            return Committed(None, self.table.metadata_location, self.attempts)
        self.observe(Phase.LIST)
        prepared = self.prepare_snapshot(base, action, draft)
        return self.swap(prepared.after(requirements, updates) if updates else prepared)

    def prepare_snapshot(self, base: CommitBase, action: Action, draft: Draft) -> PreparedSnapshot:
        """Write the manifest list and describe the snapshot."""
        written_files, now_ms = self.written_files, self.environment.now_ms()
        manifests, (first_row_id, row_count) = _assign_row_ids(base, draft.manifests)
        parent_id = base.parent.snapshot_id if base.parent else None
        path = written_files.new_list_path(base, self.attempts)
        header = ManifestListHeader(written_files.snapshot_id, parent_id, base.next_sequence_number, first_row_id)
        context = written_files.manifest_context(base)
        snapshot = Snapshot(
            snapshot_id=written_files.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=base.next_sequence_number if base.format_version > 1 else None,
            timestamp_ms=max(now_ms, base.metadata.last_updated_ms + 1),  # clocks differ; history must not go back
            **base.tree_writer.write_list_or_root(base.io, path, manifests, header, context),
            summary=_summary(base, action, draft, manifests, self.properties),
            schema_id=base.metadata.current_schema_id,
            first_row_id=first_row_id,
            added_rows=row_count,
        )
        ref = base.metadata.refs.get(base.branch)
        retention = {} if ref is None else {name: getattr(ref, name) for name in _RETENTION}
        move = SetSnapshotRefUpdate(ref_name=base.branch, type="branch", snapshot_id=snapshot.snapshot_id, **retention)
        requirements = (
            AssertTableUUID(uuid=base.metadata.table_uuid),
            AssertRefSnapshotId(ref=base.branch, snapshot_id=None if ref is None else ref.snapshot_id),
        )
        source = _proof_of_presence(action.source.snapshot_id) if isinstance(action, CherryPick) else ()
        updates = (*source, AddSnapshot(snapshot=snapshot), *([move] if self.wap_id is None else []))
        return PreparedSnapshot(snapshot, tuple(manifests), requirements, updates)

    def swap(self, prepared: PreparedSnapshot) -> Outcome | NotSwapped:
        """Ask the catalog to make the snapshot current."""
        self.observe(Phase.SWAP)
        self.may_have_landed = True
        try:
            swapped = self.catalog.swap(self.table, prepared.requirements, prepared.updates)
        except NotSwapped as e:
            self.may_have_landed = False
            if e.location is not None:
                self.written_files.lost_metadata_paths.append(e.location)
            return e
        except UserError as e:
            self.may_have_landed = False  # the change itself was rejected, before anything was sent
            current = self.catalog.load_table(self.table.name())
            if current.metadata_location == self.table.metadata_location:
                raise
            return NotSwapped(str(e))  # the table changed since this attempt began, for example by an upgrade
        except MaybeSwapped as e:
            return self.resolve_lost_answer(e, prepared)
        self.observe(Phase.SWAPPED)
        committed = self.finish(prepared.snapshot, swapped.metadata, swapped.metadata_location, prepared.manifests)
        delete_retired_metadata(self.catalog, self.table, swapped)
        return committed

    def resolve_lost_answer(self, lost: MaybeSwapped, prepared: PreparedSnapshot) -> Outcome | NotSwapped:
        """Find out from the table whether a swap landed whose answer was lost."""
        properties = CommitBase(self.table.io, to_neve_metadata(self.table.metadata), self.branch).properties
        wait = properties.status_check_min_wait_ms
        for check in range(properties.status_checks + 1):
            match self.catalog.swap_status(lost):
                case SwapStatus.LANDED:
                    try:
                        self.refresh()
                    except Exception:  # of any type: the commit stays committed, files of other attempts are orphans
                        return Committed(prepared.snapshot.snapshot_id, lost.metadata_location or "", self.attempts)
                    return self.finish_on_current_table(prepared.snapshot)
                case SwapStatus.NEVER:
                    self.may_have_landed = False
                    self.written_files.lost_metadata_paths += [lost.metadata_location] if lost.metadata_location else []
                    return NotSwapped(str(lost))
                case SwapStatus.OPEN if check < properties.status_checks:
                    self.environment.sleep(wait / 1000)
                    wait = min(wait * 2, properties.status_check_max_wait_ms)
        return Unknown(lost.metadata_location or "", str(lost), self.written_files.snapshot_id)

    def finish_on_current_table(self, snapshot: Snapshot) -> Committed:
        """Finish a commit whose snapshot was found in the current table."""
        return self.finish(snapshot, to_neve_metadata(self.table.metadata), self.table.metadata_location)

    def finish(
        self, snapshot: Snapshot, metadata: TableMetadata, location: str, used: Sequence[Manifest] = ()
    ) -> Committed:
        """Delete what other attempts left, after the commit has landed."""
        self.observe(Phase.CLEAN)
        logged = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
        discard_losing_attempts(
            self.table.io, self.written_files, snapshot, metadata, logged, used, self.files_of_this_commit
        )
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        return Committed(snapshot.snapshot_id, location, self.attempts, summary)

    def confirm_rejection(self, rejected: Rejected) -> Outcome:
        """Look once more before files are deleted: a swap that was reported as lost may have landed."""
        if self.written_files.list_paths and (landed := self.landed_snapshot(self.refresh())):
            return self.finish_on_current_table(landed)
        self.observe(Phase.CLEAN)
        data_files = () if self.keep_files_if_rejected else self.files_of_this_commit
        discard_rejected(rejected, self.table.io, data_files=data_files)
        return rejected

    def clean_up_after_error(self) -> None:
        """Delete what the commit wrote, unless a swap may have happened or this cannot be decided."""
        if self.may_have_landed:
            return
        with suppress(Exception):
            landed = None
            with suppress(_TableMissing):  # a missing table has no snapshot of an earlier attempt
                landed = self.landed_snapshot(self.refresh()) if self.written_files.list_paths else None
            if landed is None:
                rejected = Rejected((), self.written_files.all_paths)
                discard_rejected(rejected, self.table.io, data_files=self.files_of_this_commit)

    def observe(self, phase: Phase) -> None:
        self.environment.observe(phase, self.attempts)


def _proof_of_presence(snapshot_id: int) -> tuple[Any, ...]:
    """Return updates that change nothing, and fail if a snapshot has expired meanwhile: its files may be deleted."""
    name, no_limits = f"neve-source-{snapshot_id}", dict.fromkeys(_RETENTION)
    return (
        SetSnapshotRefUpdate(ref_name=name, type="tag", snapshot_id=snapshot_id, **no_limits),
        RemoveSnapshotRefUpdate(ref_name=name),
    )


def _assign_row_ids(
    base: CommitBase, manifests: Sequence[Manifest]
) -> tuple[list[Manifest], tuple[int | None, int | None]]:
    """Return the manifests with row ids, the first row id of the snapshot and the number of ids; none before v3."""
    if base.format_version == 1:
        return list(manifests), (None, None)
    counted = [with_counts(base, m) for m in manifests]
    if base.format_version == 2:
        return counted, (None, None)
    first: int = getattr(base.metadata, "next_row_id", None) or 0
    assigned, following = assign_row_ids(counted, first)
    return assigned, (first, following - first)


def _summary(
    base: CommitBase, action: Action, draft: Draft, manifests: Sequence[Manifest], properties: Mapping[str, str]
) -> Summary:
    before = base.parent.summary if base.parent else None
    counts = build_summary(
        draft.added,
        draft.removed,
        parent=None if base.parent is None else dict(before.additional_properties) if before else {},
        duplicates=draft.duplicates,
        partition_limit=base.properties.partition_summary_limit,
    )
    old, new = ({m.file for m in listed if not m.is_inline} for listed in (base.manifests, manifests))
    counts["manifests-created"] = str(len(new - old))
    counts["manifests-kept"] = str(len(new & old))
    counts["manifests-replaced"] = str(len(old - new))
    if draft.entries_processed:
        counts["entries-processed"] = str(draft.entries_processed)
    if isinstance(action, ReplacePartitions):
        counts["replace-partitions"] = "true"
    return Summary(operation=Operation(operation_of(action)), **{**properties, **counts})

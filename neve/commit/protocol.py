"""Commit an action to a table: refresh, check, write, swap, and again when another writer was faster.

An attempt goes through the phases of `Phase`. Only a swap that provably did not land is tried again. The attempt that
landed is recognised by the manifest list it wrote, never by an id that all attempts share. The outcome is one of
three: `Committed`, `Rejected` (nothing landed; what was written is deleted again) or `Unknown` (it may have landed;
every file is kept). Only here is it known whether a swap may have happened, so only here is it decided what becomes of
the files that were written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from neve.catalog.base import NeveCatalog
from neve.catalog.swap import MaybeSwapped, NotSwapped, SwapStatus
from neve.commit.actions import Action, with_specs
from neve.commit.cleanup import delete_retired_metadata, discard_losing_attempts, discard_rejected
from neve.commit.draft import draft_manifests
from neve.commit.environment import Environment, Phase, retry_wait_seconds
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected, Unknown
from neve.commit.prepare import PreparedSnapshot, prepare_snapshot
from neve.commit.rules import check_conflicts
from neve.commit.window import CommitBase, CommitRefused
from neve.commit.written_files import WrittenFiles
from neve.errors import TableError, UserError
from neve.model.metadata import TableMetadata, are_different_tables, table_identity, to_neve_metadata
from neve.model.snapshots import Snapshot, tree_root_location
from neve.tree.entries import Manifest


def commit(
    catalog: NeveCatalog,
    table: Table,
    action: Action,
    *,
    branch: str = MAIN_BRANCH,
    properties: Mapping[str, str] | None = None,
    environment: Environment | None = None,
    files_of_this_commit: Collection[str] = (),
    keep_files_if_rejected: bool = False,
    extra_check: Callable[[CommitBase], Conflict | None] | None = None,
) -> Outcome:
    """Apply an action to a branch of a table; `properties` go to the summary of the snapshot.

    `table` says which table; its metadata is read anew. `owned` are files that were written for this action alone.
    They are deleted, with all that the commit wrote, once it is proven that nothing landed, whether it ends in
    `Rejected` or in an error; in every other case they are kept. `keeps_rejected` leaves those of a `Rejected` commit
    to a caller that commits some of them in another way. `unless` is a check of the caller's own, made at every
    attempt on the state the attempt is for: what it finds rejects the commit.

    Raises only for what no attempt can change: an unknown table or branch, a storage that fails, a corrupt file.
    """
    made_for_it = frozenset(files_of_this_commit)
    said = dict(properties or {})
    env = environment or Environment()
    job = _Commit(catalog, table, action, branch, said, env, made_for_it, keep_files_if_rejected, extra_check)
    try:
        outcome = job.run()
    except BaseException:
        job.abandon()
        raise
    return job.confirm_rejection(outcome) if isinstance(outcome, Rejected) else outcome


class _TableMissing(TableError):
    """The table is not there any more; another may have its name."""


@dataclass
class _Commit:
    """One commit on its way through its attempts."""

    catalog: NeveCatalog
    table: Table
    action: Action
    branch: str
    properties: dict[str, str]
    environment: Environment
    files_of_this_commit: frozenset[str] = frozenset()
    keep_files_if_rejected: bool = False
    extra_check: Callable[[CommitBase], Conflict | None] | None = None
    attempts: int = 0
    may_have_landed: bool = False
    written_files: WrittenFiles = field(init=False)

    def __post_init__(self) -> None:
        self.written_files = WrittenFiles(self.environment.snapshot_id())

    def run(self) -> Outcome:
        """Attempt until one is decided."""
        started = self.environment.now_ms()
        while True:
            began = self.environment.now_ms()
            base = self.refresh()
            if landed := self.landed_snapshot(base):
                return self.finish_on_current_table(landed)
            try:
                outcome = self.run_attempt(base)
            except CommitRefused as e:
                return Rejected((e.conflict,), self.written_files.all_paths, self.attempts)
            if not isinstance(outcome, NotSwapped):
                return outcome
            if gave_up := self.rejection_when_exhausted(base, outcome, started):
                return gave_up
            took = self.environment.now_ms() - began
            self.environment.sleep(retry_wait_seconds(self.attempts, base.properties, took, self.environment.jitter()))

    def refresh(self) -> CommitBase:
        """The table as it is now."""
        self.observe(Phase.REFRESH)
        name = ".".join(self.table.name())
        try:
            found = self.catalog.load_table(self.table.name())
        except NoSuchTableError as e:
            raise _TableMissing(f"Table {name} does not exist any more. Nothing landed.") from e
        if are_different_tables(table_identity(found.metadata), table_identity(self.table.metadata)):
            raise _TableMissing(f"Table {name} was dropped and made anew meanwhile. Nothing went into the new one.")
        self.table = found
        base = CommitBase(
            self.table.io, to_neve_metadata(self.table.metadata, self.table.metadata_location), self.branch
        )
        taken = base.metadata.snapshot_by_id(self.written_files.snapshot_id)
        if taken is not None and tree_root_location(taken) not in self.written_files.list_paths:
            self.take_another_id()
        return base

    def take_another_id(self) -> None:
        """Begin anew under another snapshot id: another snapshot has this one, and manifests state the id."""
        self.written_files = self.written_files.with_snapshot_id(self.environment.snapshot_id())

    def landed_snapshot(self, base: CommitBase) -> Snapshot | None:
        """The snapshot of an earlier attempt that was reported lost and landed all the same."""
        found = base.metadata.snapshot_by_id(self.written_files.snapshot_id) if self.attempts else None
        return found if found is not None and tree_root_location(found) in self.written_files.list_paths else None

    def run_attempt(self, base: CommitBase) -> Outcome | NotSwapped:
        """One attempt: its outcome, or that it provably did not land."""
        self.attempts += 1
        action = with_specs(self.action, base.specs)
        self.observe(Phase.CHECK)
        if self.extra_check is not None and (found := self.extra_check(base)):
            raise CommitRefused(found)
        check_conflicts(base, action)
        self.observe(Phase.DRAFT)
        made = draft_manifests(base, action, self.written_files)
        if made.is_empty:
            return Committed(None, self.table.metadata_location, self.attempts)
        self.observe(Phase.LIST)
        ready = prepare_snapshot(
            base,
            action,
            made,
            self.written_files,
            attempt=self.attempts,
            now_ms=self.environment.now_ms(),
            properties=self.properties,
        )
        return self.swap(ready)

    def swap(self, ready: PreparedSnapshot) -> Outcome | NotSwapped:
        """Ask the catalog to make the snapshot current."""
        self.observe(Phase.SWAP)
        self.may_have_landed = True
        try:
            done = self.catalog.swap(self.table, ready.requirements, ready.updates)
        except NotSwapped as e:
            self.may_have_landed = False
            if e.location is not None:
                self.written_files.lost_metadata_paths.append(e.location)
            return e
        except UserError as e:
            self.may_have_landed = False  # the change itself was refused, before anything was sent
            if not self.is_outdated():
                raise
            return NotSwapped(str(e))
        except MaybeSwapped as e:
            return self.resolve_lost_answer(e, ready)
        self.observe(Phase.SWAPPED)
        committed = self.finish(ready.snapshot, done.metadata, done.metadata_location, ready.manifests)
        delete_retired_metadata(self.table.io, done.retired_metadata_files, done.metadata_location)
        return committed

    def is_outdated(self) -> bool:
        """Whether the table has changed since this attempt began, by an upgrade for example."""
        return bool(self.catalog.load_table(self.table.name()).metadata_location != self.table.metadata_location)

    def resolve_lost_answer(self, lost: MaybeSwapped, ready: PreparedSnapshot) -> Outcome | NotSwapped:
        """What became of a swap whose answer was lost, as far as the table shows it."""
        properties = CommitBase(self.table.io, to_neve_metadata(self.table.metadata), self.branch).properties
        wait = properties.status_check_min_wait_ms
        for look in range(properties.status_checks + 1):
            match self.catalog.swap_status(lost):
                case SwapStatus.LANDED:
                    return self.finish_after_lost_answer(lost, ready)
                case SwapStatus.NEVER:
                    self.may_have_landed = False
                    self.written_files.lost_metadata_paths += [lost.metadata_location] if lost.metadata_location else []
                    return NotSwapped(str(lost))
                case SwapStatus.OPEN if look < properties.status_checks:
                    self.environment.sleep(wait / 1000)
                    wait = min(wait * 2, properties.status_check_max_wait_ms)
        return Unknown(lost.metadata_location or "", str(lost), self.written_files.snapshot_id)

    def finish_after_lost_answer(self, lost: MaybeSwapped, ready: PreparedSnapshot) -> Committed:
        """The commit that was seen in the table; a table that cannot be read just now does not undo it."""
        try:
            self.refresh()
        except Exception:  # catalogs fail in ways of their own; what other attempts left stays as orphans
            return Committed(ready.snapshot.snapshot_id, lost.metadata_location or "", self.attempts)
        return self.finish_on_current_table(ready.snapshot)

    def finish_on_current_table(self, snapshot: Snapshot) -> Committed:
        """The commit, whose snapshot was found in the table as it is now."""
        return self.finish(snapshot, to_neve_metadata(self.table.metadata), self.table.metadata_location)

    def finish(
        self, snapshot: Snapshot, metadata: TableMetadata, location: str, used: Sequence[Manifest] = ()
    ) -> Committed:
        """The commit landed: remove what its other attempts left."""
        self.observe(Phase.CLEAN)
        trail = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
        discard_losing_attempts(
            self.table.io, self.written_files, snapshot, metadata, trail, used, self.files_of_this_commit
        )
        return Committed(snapshot.snapshot_id, location, self.attempts)

    def rejection_when_exhausted(self, base: CommitBase, lost: NotSwapped, started: int) -> Rejected | None:
        """The rejection when no further attempt is due."""
        elapsed = self.environment.now_ms() - started
        if self.attempts <= base.properties.commit_retries and elapsed < base.properties.commit_timeout_ms:
            return None
        message = f"Gave up after {self.attempts} attempts in {elapsed} ms: {lost}"
        return Rejected((Conflict(Check.ATTEMPTS, message),), self.written_files.all_paths, self.attempts)

    def confirm_rejection(self, rejected: Rejected) -> Outcome:
        """A rejection, after one more look: a swap reported as lost may have landed and been lost to a retry below."""
        if self.written_files.list_paths and (landed := self.landed_snapshot(self.refresh())):
            return self.finish_on_current_table(landed)
        self.observe(Phase.CLEAN)
        discard_rejected(
            rejected, self.table.io, data_files=() if self.keep_files_if_rejected else self.files_of_this_commit
        )
        return rejected

    def abandon(self) -> None:
        """Clean up after an error, unless a swap may have happened; what cannot be told is kept."""
        if self.may_have_landed:
            return
        with suppress(Exception):
            if not self.written_files.list_paths or not self.has_landed():
                discard_rejected(
                    Rejected((), self.written_files.all_paths), self.table.io, data_files=self.files_of_this_commit
                )

    def has_landed(self) -> bool:
        """Whether the table has a snapshot of an earlier attempt; one that is gone has none."""
        try:
            return self.landed_snapshot(self.refresh()) is not None
        except _TableMissing:
            return False

    def observe(self, phase: Phase) -> None:
        self.environment.observe(phase, self.attempts)

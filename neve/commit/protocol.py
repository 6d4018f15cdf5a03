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
from neve.catalog.swap import Fate, MaybeSwapped, NotSwapped
from neve.commit.actions import Action, under
from neve.commit.cleanup import delete_retired, discard, discard_losing_attempts
from neve.commit.draft import draft
from neve.commit.environment import Environment, Phase, wait_before
from neve.commit.outcome import Check, Committed, Conflict, Outcome, Rejected, Unknown
from neve.commit.prepare import Prepared, prepare
from neve.commit.rules import check
from neve.commit.window import Base, Refused
from neve.commit.written_files import Scratch
from neve.errors import TableError, UserError
from neve.model.metadata import TableMetadata, adopt, are_others, identity_of
from neve.model.snapshots import Snapshot, listing_of
from neve.tree.entries import Manifest


def commit(
    catalog: NeveCatalog,
    table: Table,
    action: Action,
    *,
    branch: str = MAIN_BRANCH,
    properties: Mapping[str, str] | None = None,
    environment: Environment | None = None,
    owned: Collection[str] = (),
    keeps_rejected: bool = False,
    unless: Callable[[Base], Conflict | None] | None = None,
) -> Outcome:
    """Apply an action to a branch of a table; `properties` go to the summary of the snapshot.

    `table` says which table; its metadata is read anew. `owned` are files that were written for this action alone.
    They are deleted, with all that the commit wrote, once it is proven that nothing landed, whether it ends in
    `Rejected` or in an error; in every other case they are kept. `keeps_rejected` leaves those of a `Rejected` commit
    to a caller that commits some of them in another way. `unless` is a check of the caller's own, made at every
    attempt on the state the attempt is for: what it finds rejects the commit.

    Raises only for what no attempt can change: an unknown table or branch, a storage that fails, a corrupt file.
    """
    made_for_it = frozenset(owned)
    said = dict(properties or {})
    env = environment or Environment()
    job = _Commit(catalog, table, action, branch, said, env, made_for_it, keeps_rejected, unless)
    try:
        outcome = job.run()
    except BaseException:
        job.abandon()
        raise
    return job.proven(outcome) if isinstance(outcome, Rejected) else outcome


class _Gone(TableError):
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
    owned: frozenset[str] = frozenset()
    keeps_rejected: bool = False
    unless: Callable[[Base], Conflict | None] | None = None
    attempts: int = 0
    may_have_landed: bool = False
    scratch: Scratch = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = Scratch(self.environment.snapshot_id())

    def run(self) -> Outcome:
        """Attempt until one is decided."""
        started = self.environment.now_ms()
        while True:
            began = self.environment.now_ms()
            base = self.refreshed()
            if landed := self.already_landed(base):
                return self.found(landed)
            try:
                outcome = self.attempt(base)
            except Refused as e:
                return Rejected((e.conflict,), self.scratch.written, self.attempts)
            if not isinstance(outcome, NotSwapped):
                return outcome
            if gave_up := self.out_of_attempts(base, outcome, started):
                return gave_up
            took = self.environment.now_ms() - began
            self.environment.sleep(wait_before(self.attempts, base.properties, took, self.environment.jitter()))

    def refreshed(self) -> Base:
        """The table as it is now."""
        self.observe(Phase.REFRESH)
        name = ".".join(self.table.name())
        try:
            found = self.catalog.load_table(self.table.name())
        except NoSuchTableError as e:
            raise _Gone(f"Table {name} does not exist any more. Nothing landed.") from e
        if are_others(identity_of(found.metadata), identity_of(self.table.metadata)):
            raise _Gone(f"Table {name} was dropped and made anew meanwhile. Nothing went into the new one.")
        self.table = found
        base = Base(self.table.io, adopt(self.table.metadata, self.table.metadata_location), self.branch)
        taken = base.metadata.snapshot_by_id(self.scratch.snapshot_id)
        if taken is not None and listing_of(taken) not in self.scratch.lists:
            self.take_another_id()
        return base

    def take_another_id(self) -> None:
        """Begin anew under another snapshot id: another snapshot has this one, and manifests state the id."""
        self.scratch = self.scratch.renamed(self.environment.snapshot_id())

    def already_landed(self, base: Base) -> Snapshot | None:
        """The snapshot of an earlier attempt that was reported lost and landed all the same."""
        found = base.metadata.snapshot_by_id(self.scratch.snapshot_id) if self.attempts else None
        return found if found is not None and listing_of(found) in self.scratch.lists else None

    def attempt(self, base: Base) -> Outcome | NotSwapped:
        """One attempt: its outcome, or that it provably did not land."""
        self.attempts += 1
        action = under(self.action, base.specs)
        self.observe(Phase.CHECK)
        if self.unless is not None and (found := self.unless(base)):
            raise Refused(found)
        check(base, action)
        self.observe(Phase.DRAFT)
        made = draft(base, action, self.scratch)
        if made.is_empty:
            return Committed(None, self.table.metadata_location, self.attempts)
        self.observe(Phase.LIST)
        ready = prepare(
            base,
            action,
            made,
            self.scratch,
            attempt=self.attempts,
            now_ms=self.environment.now_ms(),
            properties=self.properties,
        )
        return self.swapped(ready)

    def swapped(self, ready: Prepared) -> Outcome | NotSwapped:
        """Ask the catalog to make the snapshot current."""
        self.observe(Phase.SWAP)
        self.may_have_landed = True
        try:
            done = self.catalog.swap(self.table, ready.requirements, ready.updates)
        except NotSwapped as e:
            self.may_have_landed = False
            if e.location is not None:
                self.scratch.metadata.append(e.location)
            return e
        except UserError as e:
            self.may_have_landed = False  # the change itself was refused, before anything was sent
            if not self.is_outdated():
                raise
            return NotSwapped(str(e))
        except MaybeSwapped as e:
            return self.settled(e, ready)
        self.observe(Phase.SWAPPED)
        committed = self.finished(ready.snapshot, done.metadata, done.metadata_location, ready.manifests)
        delete_retired(self.table.io, done.retired, done.metadata_location)
        return committed

    def is_outdated(self) -> bool:
        """Whether the table has changed since this attempt began, by an upgrade for example."""
        return bool(self.catalog.load_table(self.table.name()).metadata_location != self.table.metadata_location)

    def settled(self, lost: MaybeSwapped, ready: Prepared) -> Outcome | NotSwapped:
        """What became of a swap whose answer was lost, as far as the table shows it."""
        properties = Base(self.table.io, adopt(self.table.metadata), self.branch).properties
        wait = properties.status_check_min_wait_ms
        for look in range(properties.status_checks + 1):
            match self.catalog.fate(lost):
                case Fate.LANDED:
                    return self.landed(lost, ready)
                case Fate.NEVER:
                    self.may_have_landed = False
                    self.scratch.metadata += [lost.metadata_location] if lost.metadata_location else []
                    return NotSwapped(str(lost))
                case Fate.OPEN if look < properties.status_checks:
                    self.environment.sleep(wait / 1000)
                    wait = min(wait * 2, properties.status_check_max_wait_ms)
        return Unknown(lost.metadata_location or "", str(lost), self.scratch.snapshot_id)

    def landed(self, lost: MaybeSwapped, ready: Prepared) -> Committed:
        """The commit that was seen in the table; a table that cannot be read just now does not undo it."""
        try:
            self.refreshed()
        except Exception:  # catalogs fail in ways of their own; what other attempts left stays as orphans
            return Committed(ready.snapshot.snapshot_id, lost.metadata_location or "", self.attempts)
        return self.found(ready.snapshot)

    def found(self, snapshot: Snapshot) -> Committed:
        """The commit, whose snapshot was found in the table as it is now."""
        return self.finished(snapshot, adopt(self.table.metadata), self.table.metadata_location)

    def finished(
        self, snapshot: Snapshot, metadata: TableMetadata, location: str, used: Sequence[Manifest] = ()
    ) -> Committed:
        """The commit landed: remove what its other attempts left."""
        self.observe(Phase.CLEAN)
        trail = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
        discard_losing_attempts(self.table.io, self.scratch, snapshot, metadata, trail, used, self.owned)
        return Committed(snapshot.snapshot_id, location, self.attempts)

    def out_of_attempts(self, base: Base, lost: NotSwapped, started: int) -> Rejected | None:
        """The rejection when no further attempt is due."""
        elapsed = self.environment.now_ms() - started
        if self.attempts <= base.properties.commit_retries and elapsed < base.properties.commit_timeout_ms:
            return None
        message = f"Gave up after {self.attempts} attempts in {elapsed} ms: {lost}"
        return Rejected((Conflict(Check.ATTEMPTS, message),), self.scratch.written, self.attempts)

    def proven(self, rejected: Rejected) -> Outcome:
        """A rejection, after one more look: a swap reported as lost may have landed and been lost to a retry below."""
        if self.scratch.lists and (landed := self.already_landed(self.refreshed())):
            return self.found(landed)
        self.observe(Phase.CLEAN)
        discard(rejected, self.table.io, also=() if self.keeps_rejected else self.owned)
        return rejected

    def abandon(self) -> None:
        """Clean up after an error, unless a swap may have happened; what cannot be told is kept."""
        if self.may_have_landed:
            return
        with suppress(Exception):
            if not self.scratch.lists or not self.has_landed():
                discard(Rejected((), self.scratch.written), self.table.io, also=self.owned)

    def has_landed(self) -> bool:
        """Whether the table has a snapshot of an earlier attempt; one that is gone has none."""
        try:
            return self.already_landed(self.refreshed()) is not None
        except _Gone:
            return False

    def observe(self, phase: Phase) -> None:
        self.environment.observe(phase, self.attempts)

"""How a swap of the current metadata ends: it landed, it provably did not, or nobody knows yet.

CommitError
├── NotSwapped              nothing landed; `location` names the metadata file written for it, if any
│   ├── LostRace                another writer moved the table first
│   ├── RequirementFailed       the table is not in the state the commit was made for
│   └── CatalogUnavailable      the catalog could not be asked, or refused before anything was sent
└── CommitUnknown
    └── MaybeSwapped            the answer was lost; ask the catalog for its status, keep every file until then

They are PyIceberg's CommitFailedException and CommitStateUnknownException too, so its own transactions understand them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import Identifier

from neve.errors import CommitError, CommitUnknown, UserError
from neve.model.metadata import TableMetadata
from neve.model.properties import properties_of


@dataclass(frozen=True, slots=True)
class Swapped:
    """The commit landed: the metadata before and after, and where the new one lies."""

    base: TableMetadata | None
    metadata: TableMetadata
    metadata_location: str

    @property
    def retired_metadata_files(self) -> frozenset[str]:
        """Metadata files that left the log and that the table's properties want deleted."""
        if self.base is None or not self._deletes_retired():
            return frozenset()
        kept = {entry.metadata_file for entry in self.metadata.metadata_log} | {self.metadata_location}
        return frozenset(entry.metadata_file for entry in self.base.metadata_log) - kept

    def _deletes_retired(self) -> bool:
        try:
            return properties_of(self.metadata.properties).metadata_delete_after_commit
        except UserError:  # another engine wrote something else, and the commit has landed
            return False


class NotSwapped(CommitError, CommitFailedException):
    """Nothing landed. `location` is the metadata file written for the attempt; None when none was written."""

    def __init__(self, message: str, location: str | None = None) -> None:
        super().__init__(message)
        self.location = location


class LostRace(NotSwapped):
    """Another writer moved the table first. Refresh and try again."""


class RequirementFailed(NotSwapped):
    """The table is not in the state the commit was made for. Refresh, check for conflicts, try again."""


class CatalogUnavailable(NotSwapped):
    """The catalog could not be asked, or gave up before the change could take effect."""


class MaybeSwapped(CommitUnknown, CommitStateUnknownException):
    """The answer to a swap was lost. It may have landed, or may still land."""

    def __init__(
        self,
        message: str,
        identifier: Identifier,
        base: TableMetadata | None,
        base_location: str | None,
        location: str | None,
        updates: Iterable[Any],
    ) -> None:
        super().__init__(message, location or "")
        self.identifier = identifier
        self.table_uuid = base.table_uuid if base is not None else None
        self.base_location = base_location
        self.metadata_location = location
        self.listings = manifest_list_paths(updates)

    def swap_status_in(self, metadata: TableMetadata, metadata_location: str, is_final: bool) -> SwapStatus:
        """What the table says about this swap.

        `settled`: the catalog compares and swaps, and no answer is outstanding, so what has not landed never will.
        """
        if self.table_uuid is not None and metadata.table_uuid != self.table_uuid:
            return SwapStatus.OPEN
        trail = [*(entry.metadata_file for entry in metadata.metadata_log), metadata_location]
        if self.metadata_location in trail or not self.listings.isdisjoint(_listings(metadata.lazy_snapshots.rows)):
            return SwapStatus.LANDED
        return SwapStatus.NEVER if is_final and self.base_location in trail else SwapStatus.OPEN


class SwapStatus(Enum):
    """What became of a swap whose answer was lost."""

    LANDED = "landed"
    NEVER = "never"  # proof: it did not land and cannot land later
    OPEN = "open"  # not seen, but not disproved


def manifest_list_paths(updates: Iterable[Any]) -> frozenset[str]:
    """Where the snapshots these updates add list their files: unique to an attempt, so it recognises the attempt."""
    added = (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate))
    return frozenset(path for snapshot in added if (path := _listing(snapshot)) is not None)


def _listing(snapshot: IcebergSnapshot) -> str | None:
    return snapshot.manifest_list or getattr(snapshot, "root_manifest", None)


def _listings(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    return (row.get("manifest-list") or row.get("root-manifest") or "" for row in rows)

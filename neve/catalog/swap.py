"""The outcomes of a metadata swap: it landed, it provably did not land, or this is not known yet.

CommitError
├── NotSwapped              nothing landed; `location` is the metadata file written for it, if any
│   ├── LostRace                a concurrent writer changed the table first
│   ├── RequirementFailed       the table is not in the state the commit was made for
│   └── CatalogUnavailable      the catalog could not be reached, or failed before anything took effect
└── CommitUnknown
    └── MaybeSwapped            the answer was lost; ask the catalog for the status, and keep every file until then

They are also PyIceberg's CommitFailedException and CommitStateUnknownException, which its own transactions handle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.typedef import Identifier

from neve.errors import CommitError, CommitUnknown, UserError
from neve.model.metadata import TableMetadata
from neve.model.properties import properties_of


@dataclass(frozen=True, slots=True)
class Swapped:
    """The commit landed: the metadata before and after, and the location of the new metadata file."""

    base: TableMetadata | None
    metadata: TableMetadata
    metadata_location: str

    @property
    def retired_metadata_files(self) -> frozenset[str]:
        """Metadata files that left the log, if the table's properties ask to delete them."""
        try:
            is_enabled = properties_of(self.metadata.properties).metadata_delete_after_commit
        except UserError:  # another engine set a bad value; the commit has landed all the same
            is_enabled = False
        if self.base is None or not is_enabled:
            return frozenset()
        current_files = {entry.metadata_file for entry in self.metadata.metadata_log} | {self.metadata_location}
        return frozenset(entry.metadata_file for entry in self.base.metadata_log) - current_files


class NotSwapped(CommitError, CommitFailedException):
    """Nothing landed. `location` is the metadata file written for the attempt; None if none was written."""

    def __init__(self, message: str, location: str | None = None) -> None:
        super().__init__(message)
        self.location = location


class LostRace(NotSwapped):
    """A concurrent writer changed the table first. Refresh and try again."""


class RequirementFailed(NotSwapped):
    """The table is not in the state the commit was made for. Refresh, check for conflicts, try again."""


class CatalogUnavailable(NotSwapped):
    """The catalog could not be reached, or failed before the change could take effect."""


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
        # Where the added snapshots list their files: unique to an attempt, so that it identifies the attempt.
        added = (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate))
        roots = (snapshot.manifest_list or getattr(snapshot, "root_manifest", None) for snapshot in added)
        self.tree_roots = frozenset(root for root in roots if root is not None)

    def swap_status_in(self, metadata: TableMetadata, metadata_location: str, is_final: bool) -> SwapStatus:
        """Look for traces of this swap in the current metadata.

        `is_final`: the catalog compares and swaps, and no request is pending, so what has not landed never will.
        """
        if self.table_uuid is not None and metadata.table_uuid != self.table_uuid:
            return SwapStatus.OPEN
        history = [*(entry.metadata_file for entry in metadata.metadata_log), metadata_location]
        rows = metadata.lazy_snapshots.rows
        roots = (row.get("manifest-list") or row.get("root-manifest") or "" for row in rows)
        if self.metadata_location in history or not self.tree_roots.isdisjoint(roots):
            return SwapStatus.LANDED
        return SwapStatus.NEVER if is_final and self.base_location in history else SwapStatus.OPEN


class SwapStatus(Enum):
    """How a swap with a lost answer ended."""

    LANDED = "landed"
    NEVER = "never"  # proof: it did not land and cannot land later
    OPEN = "open"  # not seen, but not disproved

"""What a verb did, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ChangeResult", "DeleteResult", "MergeResult", "UpdateResult", "WriteResult"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write changed. No snapshot is made when there was nothing to change."""

    snapshot_id: int | None
    rows_added: int = 0
    files_added: int = 0
    bytes_added: int = 0
    files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    files_removed: int = 0
    rows_removed: int = 0
    attempts: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What a statement changed. No snapshot is made when no row matched."""

    snapshot_id: int | None
    mode: str = ""
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_inserted: int = 0
    rows_copied: int = 0  # unchanged rows of files that were rewritten
    files_scanned: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files_added: int = 0
    delete_files_removed: int = 0
    bytes_added: int = 0
    files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    bytes_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    files_removed_by_spec: Mapping[int, int] = field(default_factory=dict)
    delete_files_added_by_spec: Mapping[int, int] = field(default_factory=dict)
    attempts: int = 0
    reruns: int = 0  # how often the statement was run again because another writer got in the way
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        counts = {
            "rows updated": self.rows_updated,
            "deleted": self.rows_deleted,
            "inserted": self.rows_inserted,
            "copied": self.rows_copied,
            "files added": self.files_added,
            "files removed": self.files_removed,
            "delete files added": self.delete_files_added,
        }
        said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return said or "nothing matched"


@dataclass(frozen=True, slots=True)
class UpdateResult(ChangeResult):
    """What an UPDATE changed."""


@dataclass(frozen=True, slots=True)
class DeleteResult(ChangeResult):
    """What a DELETE changed."""


@dataclass(frozen=True, slots=True)
class MergeResult(ChangeResult):
    """What a MERGE changed."""

    rows_by_clause: tuple[int, ...] = ()  # of each clause, in the order they were given
    pruned_by_source: bool = False  # the keys of the source ruled out files of the table

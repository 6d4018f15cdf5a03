"""The outcome of a commit: committed, rejected with proof that nothing landed, or unknown.

Only `Rejected` allows files to be deleted. A `Conflict` names the failed check, the conflicting snapshot, the files and
their specs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import pyarrow as pa

from neve.errors import CommitConflict, CommitUnknown, UserError
from neve.tree.entries import EntryTable

_SHOWN_FILES = 5


class Check(StrEnum):
    """The checks of a commit; the letters are those of docs/decisions/0008-commit.md."""

    NEW_DATA = "A"
    NEW_DELETES = "B"
    NEW_DELETES_FOR_FILES = "C"
    REMOVED_DATA = "D"
    REQUIRED_FILES = "E"
    MISSING_FILES = "F"
    NEW_VECTORS = "G"
    SELF_REFERENCE = "H"
    ANCESTRY = "I"
    DELETE_KIND = "J"
    UNKNOWN_SPEC = "K"
    ROW_GROWTH = "L"
    OUTSIDE_FILTER = "M"
    PARTIAL_MATCH = "N"
    CONCURRENT_UPDATE = "concurrent-update"
    NOT_DANGLING = "not-dangling"
    ARGUMENTS = "arguments"
    HISTORY = "history"
    MANIFESTS = "manifests"
    REPEATED = "repeated"
    ATTEMPTS = "attempts"

    @property
    def is_about_input(self) -> bool:
        """True if the request itself is wrong, independent of other writers."""
        return self in _ABOUT_INPUT


_ABOUT_INPUT = (
    *(Check.SELF_REFERENCE, Check.ANCESTRY, Check.DELETE_KIND, Check.UNKNOWN_SPEC, Check.ROW_GROWTH),
    *(Check.OUTSIDE_FILTER, Check.PARTIAL_MATCH, Check.ARGUMENTS),
)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a commit cannot land: the failed check, the conflicting snapshot, the files and their specs."""

    rule: Check
    message: str
    snapshot_id: int | None = None
    files: tuple[str, ...] = ()
    spec_ids: tuple[int, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(self.files[:_SHOWN_FILES])
        more = f", … ({len(self.files)} files)" if len(self.files) > _SHOWN_FILES else ""
        parts = [
            f"snapshot {self.snapshot_id}" if self.snapshot_id is not None else "",
            f"spec {', '.join(map(str, self.spec_ids))}" if self.spec_ids else "",
            f"files {shown}{more}" if shown else "",
        ]
        where = "; ".join(p for p in parts if p)
        return f"{self.message} [{self.rule}{': ' + where if where else ''}]"


def conflict_over(
    rule: Check,
    message: str,
    files: EntryTable,
    mask: Any = None,
    *,
    column: str = "file_path",
    snapshot_id: int | None = None,
) -> Conflict | None:
    """Return the conflict over the files that a mask selects, or None if it selects none."""
    conflicting = files if mask is None else files.filter(pa.array(mask))
    if not len(conflicting):
        return None
    first = snapshot_id if snapshot_id is not None else conflicting["snapshot_id"][0].as_py()
    paths = sorted({path for path in conflicting[column].to_pylist() if path is not None})
    return Conflict(rule, message, first, tuple(paths), tuple(conflicting.spec_ids()))


@dataclass(frozen=True, slots=True)
class Committed:
    """The change is in the table. `snapshot_id` is None if there was nothing to change."""

    snapshot_id: int | None
    location: str
    attempts: int
    summary: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)  # of the snapshot


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing landed, which is proven. `written` are the metadata files of the commit; they are deleted again."""

    conflicts: tuple[Conflict, ...]
    written: frozenset[str] = frozenset()
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Unknown:
    """The change may have landed, at `location` if the catalog reported it; every file is kept."""

    location: str
    cause: str
    snapshot_id: int | None = None


Outcome: TypeAlias = Committed | Rejected | Unknown


def require_committed(outcome: Outcome, operation: str = "commit") -> Committed:
    """Return the commit, or raise the error that explains why there is none."""
    match outcome:
        case Committed():
            return outcome
        case Unknown():
            raise CommitUnknown(
                f"Cannot tell whether the {operation} landed ({outcome.cause}). Every file is kept. Look for snapshot "
                f"{outcome.snapshot_id} before you try again.",
                outcome.location,
            )
        case Rejected():
            reasons = " ".join(str(c) for c in outcome.conflicts)
            if all(c.rule.is_about_input for c in outcome.conflicts):
                raise UserError(f"The {operation} was rejected: {reasons}")
            raise CommitConflict(
                f"The {operation} did not land: {reasons} Plan it again on the current table.", outcome.conflicts
            )

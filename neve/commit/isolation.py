"""The conflict checks of each row-level command, by isolation level.

Snapshot isolation protects what a command changes: its files still exist and got no deletes that it did not see.
Serializable isolation also protects what it reads: no new data file may hold a row that the command would match.
Compaction and deletes of whole files have no isolation level.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from neve.commit.actions import Overwrite, ReplacePartitions, RowDelta
from neve.model.properties import TableProperties

A = TypeVar("A", RowDelta, Overwrite, ReplacePartitions)


class Isolation(StrEnum):
    """How strictly a command is isolated from concurrent commits."""

    SERIALIZABLE = "serializable"
    SNAPSHOT = "snapshot"


class RowCommand(StrEnum):
    """A command that changes rows."""

    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"
    OVERWRITE = "overwrite"


def isolation_of(properties: TableProperties, command: RowCommand) -> Isolation:
    """Return the isolation level that the table sets for a command; an overwrite has no property."""
    levels = {
        RowCommand.DELETE: properties.delete_isolation,
        RowCommand.UPDATE: properties.update_isolation,
        RowCommand.MERGE: properties.merge_isolation,
    }
    return Isolation(levels.get(command, Isolation.SERIALIZABLE))


def with_conflict_checks(action: A, command: RowCommand, isolation: Isolation, *, reads_itself: bool = False) -> A:
    """Add the checks that a command requires to its action.

    `reads_itself` means that a subquery of the command reads the table that it changes. Rows that the subquery read
    must not have been deleted either.
    """
    reads = isolation is Isolation.SERIALIZABLE
    if reads and reads_itself and not isinstance(action, ReplacePartitions):
        action = replace(action, no_conflicting_removals=True)
    if not isinstance(action, RowDelta):
        return replace(action, no_conflicting_data=reads, no_conflicting_deletes=True)
    if command is RowCommand.DELETE:
        # Concurrent deletes from one file do not conflict; only an update could keep a deleted row alive, in a copy.
        return replace(action, no_conflicting_data=reads, no_conflicting_updates=True, merge_vectors=True)
    return replace(
        action, no_conflicting_data=reads, no_conflicting_deletes=True, check_deleted_files=True, must_exist=True
    )

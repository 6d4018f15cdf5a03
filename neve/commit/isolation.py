"""What each row-level command asks a commit to check, at either isolation level.

Snapshot isolation protects what a command changed: its files still exist and gained no deletes it did not see.
Serializable isolation also protects what it read: no new data file may hold a row it would have matched. Compaction
and whole-file deletes have no level.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from neve.commit.actions import Overwrite, ReplacePartitions, RowDelta
from neve.model.properties import TableProperties

A = TypeVar("A", RowDelta, Overwrite, ReplacePartitions)


class Isolation(StrEnum):
    """How much a command is protected from what others commit beside it."""

    SERIALIZABLE = "serializable"
    SNAPSHOT = "snapshot"


class RowCommand(StrEnum):
    """A command that changes rows."""

    DELETE = "delete"
    UPDATE = "update"
    MERGE = "merge"
    OVERWRITE = "overwrite"


def isolation_of(properties: TableProperties, command: RowCommand) -> Isolation:
    """The level the table asks for; an overwrite has no property of its own."""
    asked = {
        RowCommand.DELETE: properties.delete_isolation,
        RowCommand.UPDATE: properties.update_isolation,
        RowCommand.MERGE: properties.merge_isolation,
    }
    return Isolation(asked.get(command, Isolation.SERIALIZABLE))


def with_conflict_checks(action: A, command: RowCommand, isolation: Isolation, *, reads_itself: bool = False) -> A:
    """An action with the checks its command asks for.

    `reads_itself` tells that the command also reads the table it changes, in a subquery: what it read there must not
    have been deleted either.
    """
    reads = isolation is Isolation.SERIALIZABLE
    if reads and reads_itself and not isinstance(action, ReplacePartitions):
        action = replace(action, no_conflicting_removals=True)
    if not isinstance(action, RowDelta):
        return replace(action, no_conflicting_data=reads, no_conflicting_deletes=True)
    if command is RowCommand.DELETE:
        # Deletes of other rows of one file get along; only a copy that an update made could keep a deleted row alive.
        return replace(action, no_conflicting_data=reads, no_conflicting_updates=True, merge_vectors=True)
    return replace(
        action, no_conflicting_data=reads, no_conflicting_deletes=True, check_deleted_files=True, must_exist=True
    )

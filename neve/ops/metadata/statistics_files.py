"""Write a statistics file beside the metadata of a table, and name it in the metadata.

Isolation: statistics describe one snapshot, so concurrent commits do not matter unless they expire it.
Writes: one file, and table metadata. If the file does not get into the metadata, it is deleted.
"""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableUpdate

from neve.commit.window import CommitBase
from neve.commit.written_files import metadata_folder
from neve.errors import CommitConflict, CommitUnknown
from neve.io.files import delete_files, write_new_file
from neve.ops.context import TableContext
from neve.ops.metadata.evolve import RequirementsAndUpdates, commit_updates


def statistics_path(context: TableContext, name: str) -> str:
    """Return the path of a new statistics file."""
    return f"{metadata_folder(CommitBase(context.io, context.metadata))}/{name}"


def add_statistics_file(context: TableContext, snapshot: Snapshot, path: str, data: bytes, update: TableUpdate) -> None:
    """Write the file, and commit the update that names it."""
    write_new_file(context.io, path, data)

    def change(state: TableContext) -> RequirementsAndUpdates:
        if state.metadata.snapshot_by_id(snapshot.snapshot_id) is None:
            raise CommitConflict(
                f"Snapshot {snapshot.snapshot_id} of table {state.name} was expired while its statistics were computed."
            )
        return (), (update,)

    try:
        commit_updates(context, change, "statistics")
    except CommitUnknown:
        raise  # the metadata may name the file
    except BaseException:
        delete_files(context.io, [path])
        raise

"""The only place that deletes files: what a commit wrote and the table does not need.

After `Rejected` that is everything the commit wrote. After `Committed` it is what its losing attempts wrote, told
apart by reading the list that landed. After `Unknown` nothing is deleted. Failures to delete are no failures of the
commit: what is left behind is an orphan.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.io import FileIO

from neve.commit.outcome import Rejected
from neve.errors import NeveError
from neve.io.files import delete_all
from neve.model.snapshots import Snapshot
from neve.tree.read import read_list

__all__ = ["discard", "discard_losing_attempts"]


def discard(rejected: Rejected, io: FileIO, also: Iterable[str] = ()) -> dict[str, str]:
    """Delete what a rejected commit wrote, and `also` the data files its operation wrote for it.

    The answer says which files could not be deleted, and why.
    """
    return delete_all(io, [*rejected.written, *also])


def discard_losing_attempts(io: FileIO, written: frozenset[str], landed: Snapshot, retired: Iterable[str] = ()) -> None:
    """Delete what a commit wrote and the snapshot that landed does not reach, and metadata files the table retired."""
    unneeded = written - {landed.manifest_list}
    if unneeded:
        try:
            unneeded -= {m.path for m in read_list(io, str(landed.manifest_list))}
        except NeveError:
            return  # what is needed cannot be told, so all of it is kept
    delete_all(io, [*unneeded, *retired])

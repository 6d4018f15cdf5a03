"""The only place that deletes files: what a commit wrote and the table does not need, what nothing leads to any more,
and tables that are to go.

After `Rejected` that is everything the commit wrote. After `Committed` it is what its losing attempts wrote, told
apart by reading the list that landed. After `Unknown` nothing is deleted. Failures to delete are no failures of the
commit: what is left behind is an orphan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.commit.outcome import Rejected
from neve.commit.reach import Reach
from neve.commit.scratch import Scratch
from neve.errors import NeveError
from neve.io.files import delete_all
from neve.io.paths import inside_all
from neve.model.metadata import TableMetadata
from neve.model.snapshots import Snapshot, listing_of
from neve.tree.entries import Manifest
from neve.tree.read import manifests_of

__all__ = ["delete_orphans", "delete_reach", "delete_retired", "discard", "discard_losing_attempts"]


def discard(rejected: Rejected, io: FileIO, also: Iterable[str] = ()) -> dict[str, str]:
    """Delete what a rejected commit wrote, and `also` the data files its operation wrote for it.

    The answer says which files could not be deleted, and why.
    """
    return delete_all(io, [*rejected.written, *also])


def discard_losing_attempts(
    io: FileIO,
    scratch: Scratch,
    landed: Snapshot,
    metadata: TableMetadata,
    trail: Collection[str],
    used: Collection[Manifest] = (),
    owned: Collection[str] = (),
) -> None:
    """Delete manifests, lists and metadata of attempts other than the one that landed, and `owned` files it replaced.

    `trail` are the metadata files the table names: an attempt may have landed although it was reported as lost. `used`
    are manifests known to be in the snapshot; whether others are is read from its list before they are deleted.
    """
    lost = {path for path in scratch.metadata if path not in trail}
    if used:  # which ones an earlier attempt used that landed is not known
        lost |= scratch.unused_vectors | scratch.replaced.intersection(owned)
    unneeded = {*scratch.manifests, *scratch.lists} - {listing_of(landed), *(m.file for m in used)}
    with suppress(NeveError):  # when the list cannot be read, what it needs cannot be told, and all of it is kept
        lost |= unneeded - {m.file for m in manifests_of(io, metadata, landed)} if unneeded else set()
    if lost:
        delete_all(io, lost)


def delete_retired(io: FileIO, retired: Collection[str], metadata_location: str) -> None:
    """Delete metadata files that left the metadata log of a table whose properties ask for it.

    The log comes from storage: only what lies beside the metadata file of the table is taken for one.
    """
    paths = pa.array(sorted(retired), pa.string())
    folder = metadata_location.rsplit("/", 1)[0]
    if own := paths.filter(inside_all(paths, (folder,))).to_pylist():
        delete_all(io, own, (folder,))


def delete_reach(io: FileIO, reach: Reach, roots: Sequence[str]) -> dict[str, str]:
    """Delete the files of a table that no catalog names any more; the answer says which ones stay, and why.

    A file outside the places the table writes to stays: it was brought in, and may belong to another table.
    """
    kept: dict[str, str] = {}
    for paths in reach:
        column = pa.array(paths, pa.string())
        is_inside = inside_all(column, roots)
        kept |= dict.fromkeys(column.filter(pc.invert(is_inside)).to_pylist(), "it lies outside the table")
        kept |= delete_all(io, column.filter(is_inside).to_pylist(), roots)
    return kept


def delete_orphans(io: FileIO, paths: Iterable[str], location: str) -> dict[str, str]:
    """Delete files below a place that nothing leads to; the answer says which ones stay, and why."""
    column = pa.array(list(paths), pa.string())
    is_sound = inside_all(column, (location,))
    kept = dict.fromkeys(column.filter(pc.invert(is_sound)).to_pylist(), "its name could mean another file")
    return kept | delete_all(io, column.filter(is_sound).to_pylist(), (location,))

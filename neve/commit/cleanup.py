"""The only place that deletes files: what a commit wrote and the table does not need, what nothing leads to any more,
and tables that are to go.

After `Rejected` that is everything the commit wrote. After `Committed` it is what its losing attempts wrote, told
apart by reading the list that landed. After `Unknown` nothing is deleted. Failures to delete are no failures of the
commit: what is left behind is an orphan.

Which stored files nothing leads to, told by their paths.

Two paths name one file when their place below scheme and authority is the same and those count as equal. When only the
place is the same, nobody can tell: `hdfs://a/x` and `hdfs://b/x` may be two names of one cluster, or two clusters. That
is a mismatch, and the caller says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.commit.outcome import Rejected
from neve.commit.reachable_files import ReachableFiles
from neve.commit.written_files import WrittenFiles
from neve.errors import NeveError, UserError
from neve.io.files import PART_FILE_PATTERN, delete_files
from neve.io.paths import canonical_path_all, is_inside_all
from neve.model.metadata import TableMetadata
from neve.model.snapshots import Snapshot, tree_root_location
from neve.tree.entries import Manifest
from neve.tree.read import manifests_of


def discard_rejected(rejected: Rejected, io: FileIO, data_files: Iterable[str] = ()) -> dict[str, str]:
    """Delete what a rejected commit wrote, and `also` the data files its operation wrote for it.

    The answer says which files could not be deleted, and why.
    """
    return delete_files(io, [*rejected.written, *data_files])


def discard_losing_attempts(
    io: FileIO,
    written_files: WrittenFiles,
    landed_snapshot: Snapshot,
    metadata: TableMetadata,
    logged_metadata_files: Collection[str],
    manifests_in_use: Collection[Manifest] = (),
    files_of_this_commit: Collection[str] = (),
) -> None:
    """Delete manifests, lists and metadata of attempts other than the one that landed, and `owned` files it replaced.

    `trail` are the metadata files the table names: an attempt may have landed although it was reported as lost. `used`
    are manifests known to be in the snapshot; whether others are is read from its list before they are deleted.
    """
    lost = {path for path in written_files.lost_metadata_paths if path not in logged_metadata_files}
    if manifests_in_use:  # which ones an earlier attempt used that landed is not known
        lost |= written_files.unused_vector_paths | written_files.superseded_files.intersection(files_of_this_commit)
    unneeded = {*written_files.manifest_paths, *written_files.list_paths} - {
        tree_root_location(landed_snapshot),
        *(m.file for m in manifests_in_use),
    }
    with suppress(NeveError):  # when the list cannot be read, what it needs cannot be told, and all of it is kept
        lost |= unneeded - {m.file for m in manifests_of(io, metadata, landed_snapshot)} if unneeded else set()
    if lost:
        delete_files(io, lost)


def delete_retired_metadata(io: FileIO, retired: Collection[str], metadata_location: str) -> None:
    """Delete metadata files that left the metadata log of a table whose properties ask for it.

    The log comes from storage: only what lies beside the metadata file of the table is taken for one.
    """
    paths = pa.array(sorted(retired), pa.string())
    folder = metadata_location.rsplit("/", 1)[0]
    if own := paths.filter(is_inside_all(paths, (folder,))).to_pylist():
        delete_files(io, own, (folder,))


def delete_reachable_files(io: FileIO, reachable_files: ReachableFiles, roots: Sequence[str]) -> dict[str, str]:
    """Delete the files of a table that no catalog names any more; the answer says which ones stay, and why.

    A file outside the places the table writes to stays: it was brought in, and may belong to another table.
    """
    kept: dict[str, str] = {}
    for paths in reachable_files:
        column = pa.array(paths, pa.string())
        is_inside = is_inside_all(column, roots)
        kept |= dict.fromkeys(column.filter(pc.invert(is_inside)).to_pylist(), "it lies outside the table")
        kept |= delete_files(io, column.filter(is_inside).to_pylist(), roots)
    return kept


def delete_orphans(io: FileIO, paths: Iterable[str], location: str) -> dict[str, str]:
    """Delete files below a place that nothing leads to; the answer says which ones stay, and why."""
    column = pa.array(list(paths), pa.string())
    is_sound = is_inside_all(column, (location,))
    kept = dict.fromkeys(column.filter(pc.invert(is_sound)).to_pylist(), "its name could mean another file")
    return kept | delete_files(io, column.filter(is_sound).to_pylist(), (location,))


_URI = r"(?s)^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):)?(?://(?P<authority>[^/]*))?(?P<place>.*)$"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Schemes and authorities that count as the same; s3, s3a and s3n do anyway."""

    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schemes: Mapping[str, str], authorities: Mapping[str, str]) -> Prefixes:
        """From mappings whose keys may be lists with commas: `{"s3a,s3n": "s3"}`."""
        return cls(_split_comma_keys(schemes), _split_comma_keys(authorities))

    def split(self, paths: Any) -> pa.Table:
        """Scheme, authority and place of each path, in the one spelling of those that count as the same."""
        parts = pc.extract_regex(canonical_path_all(paths), _URI)
        scheme, authority, place = (parts.field(i) for i in range(3))
        columns = (
            _replace_equivalent_names(pc.utf8_lower(scheme), self.schemes),
            _replace_equivalent_names(authority, self.authorities),
            place,
        )
        return pa.table(dict(zip(("scheme", "authority", "place"), columns, strict=True)))


@dataclass(frozen=True)
class OrphanMasks:
    """Stored files by what is known of them, as masks."""

    orphans: pa.Array  # no known file lies in the same place
    mismatches: pa.Array  # one does, below another scheme or authority


def find_orphans(stored: Any, known: Any, prefixes: Prefixes) -> OrphanMasks:
    """Tell stored files that nothing leads to from those that are known; both are columns of paths."""
    there, here = prefixes.split(known), prefixes.split(stored)
    in_place = pc.is_in(here["place"], value_set=there["place"]).combine_chunks()
    same = pa.nulls(len(here), pa.bool_()).fill_null(False)
    for scheme, authority in ((True, True), (True, False), (False, True), (False, False)):
        # A known path that does not say its scheme or authority is the same file under any.
        fits = there.filter(pc.and_(_is_stated(there["scheme"], scheme), _is_stated(there["authority"], authority)))
        same = pc.or_(
            same, pc.is_in(_path_keys(here, scheme, authority), value_set=_path_keys(fits, scheme, authority))
        )
    return OrphanMasks(pc.invert(in_place), pc.and_not(in_place, same))


def is_hidden_file(stored: Any, location: str, field_names: Iterable[str]) -> pa.Array:
    """Which stored files engines take no notice of: below a name that starts with a dot or an underscore.

    Not so a folder of a partition field with such a name, nor what a killed writer of this engine left.
    """
    below = pc.utf8_slice_codeunits(stored, len(location.rstrip("/")))
    for name in (n for n in field_names if n.startswith(("_", "."))):
        below = pc.replace_substring(below, f"/{name}=", "/=")
    return pc.and_not(pc.match_substring_regex(below, r"/[._]"), pc.match_substring_regex(stored, PART_FILE_PATTERN))


def _is_stated(column: Any, does: bool) -> Any:
    stated = pc.not_equal(column, "")
    return stated if does else pc.invert(stated)


def _path_keys(parts: pa.Table, scheme: bool, authority: bool) -> pa.Array:
    names = [n for n, wanted in (("scheme", scheme), ("authority", authority), ("place", True)) if wanted]
    return pc.binary_join_element_wise(*(parts[n] for n in names), "\0").combine_chunks()


def _replace_equivalent_names(column: Any, same: Mapping[str, str]) -> Any:
    for name, other in same.items():
        column = pc.if_else(pc.equal(column, name), other, column)
    return column


def _split_comma_keys(same: Mapping[str, str]) -> dict[str, str]:
    found = {name.strip(): other.strip() for names, other in same.items() for name in names.split(",")}
    if chained := sorted(other for name, other in found.items() if found.get(other, other) != other):
        raise UserError(f"Cannot tell what counts as {chained[0]!r}: it is said to be the same as another. Name one.")
    return found

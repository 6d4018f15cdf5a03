"""Delete files: unused files of a commit, files that are no longer reachable, and the files of dropped tables.

This is the only module that deletes files of a table. After `Rejected`, everything that the commit wrote is deleted.
After `Committed`, the files of its losing attempts are deleted; the manifest list of the new snapshot shows which are
in use. After `Unknown`, nothing is deleted. A failed deletion does not fail the commit: the file becomes an orphan.

The module also finds orphans: stored files that no metadata leads to. Two paths name one file if their parts below
scheme and authority are equal, and their schemes and authorities count as equal. If only the lower parts are equal, the
answer is unknown: `hdfs://a/x` and `hdfs://b/x` may be two names of one cluster, or two clusters. This is a mismatch,
and the caller decides what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from neve.catalog.base import NeveCatalog
from neve.catalog.entries import select_metadata_in_use
from neve.catalog.swap import Swapped
from neve.commit.outcome import Rejected
from neve.commit.reachable_files import ReachableFiles
from neve.commit.written_files import WrittenFiles
from neve.errors import NeveError, UserError
from neve.io.files import PART_FILE_PATTERN, delete_files
from neve.io.paths import canonical_path_all, is_inside_all, local_path, real_path_all
from neve.model.metadata import TableMetadata
from neve.model.snapshots import Snapshot, tree_root_location
from neve.tree.entries import Manifest
from neve.tree.read import manifests_of


def discard_rejected(rejected: Rejected, io: FileIO, data_files: Iterable[str] = ()) -> dict[str, str]:
    """Delete what a rejected commit and its operation wrote; returns the files that stay, with the reason."""
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
    """Delete manifests, lists and metadata of the attempts that did not land.

    Files of `files_of_this_commit` that the commit itself superseded are deleted too. `logged_metadata_files` are the
    metadata files in the log of the table: an attempt may have landed although it was reported as lost.
    `manifests_in_use` are known to be in the snapshot; before any other manifest is deleted, the list of the snapshot
    is read.
    """
    lost = {path for path in written_files.lost_metadata_paths if path not in logged_metadata_files}
    if manifests_in_use:  # empty if an earlier attempt landed: then the vectors it used are unknown
        lost |= written_files.unused_vector_paths | written_files.superseded_files.intersection(files_of_this_commit)
    unneeded = {*written_files.manifest_paths, *written_files.list_paths} - {
        tree_root_location(landed_snapshot),
        *(m.file for m in manifests_in_use),
    }
    with suppress(NeveError):  # if the list cannot be read, every file that it may need is kept
        lost |= unneeded - {m.file for m in manifests_of(io, metadata, landed_snapshot)} if unneeded else set()
    if lost:
        delete_files(io, lost)


def delete_retired_metadata(catalog: NeveCatalog, table: Table, swapped: Swapped) -> None:
    """Delete metadata files that left the metadata log, for a table whose properties require it.

    The log comes from storage and is not trusted: only files beside the metadata file of the table are deleted. A file
    that is the current metadata of another entry of the same table stays. If the catalog has too many tables to ask
    each of them after a commit, the files stay for the removal of orphan files, which asks.
    """
    if not (retired := swapped.retired_metadata_files):
        return
    with suppress(Exception):  # every catalog has its own errors; if it cannot be asked, they stay
        unused = sorted(retired - select_metadata_in_use(catalog, table, retired))
        _delete_inside(table.io, unused, (swapped.metadata_location.rsplit("/", 1)[0],), "it is in another folder")


def delete_reachable_files(io: FileIO, reachable_files: ReachableFiles, roots: Sequence[str]) -> dict[str, str]:
    """Delete the files of a table that is no longer in a catalog; returns the files that stay, with the reason.

    A file outside the locations of the table stays: it was imported, and may belong to another table.
    """
    undeleted: dict[str, str] = {}
    for paths in reachable_files:
        undeleted |= _delete_inside(io, paths, roots, "it is outside the table")
    return undeleted


def delete_orphans(io: FileIO, paths: Iterable[str], location: str) -> dict[str, str]:
    """Delete unreachable files below a location; returns the files that stay, with the reason."""
    return _delete_inside(io, paths, (location,), "its name could mean another file")


def _delete_inside(io: FileIO, paths: Iterable[str], roots: Sequence[str], reason: str) -> dict[str, str]:
    column = pa.array(list(paths), pa.string())
    is_inside = is_inside_all(column, roots)
    undeleted = dict.fromkeys(column.filter(pc.invert(is_inside)).to_pylist(), reason)
    return undeleted | delete_files(io, column.filter(is_inside).to_pylist(), roots)


# The endings of the files that Iceberg writers make, and what a killed writer of this engine leaves.
WRITER_FILE_PATTERN = rf"\.(?:parquet|parq|orc|avro|puffin|stats|metadata\.json(?:\.gz)?)$|{PART_FILE_PATTERN}"
_URI = r"(?s)^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):)?(?://(?P<authority>[^/]*))?(?P<path>.*)$"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Schemes and authorities that count as equal; s3, s3a and s3n always do."""

    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schemes: Mapping[str, str], authorities: Mapping[str, str]) -> Prefixes:
        """Build the value from mappings whose keys may be comma-separated: `{"s3a,s3n": "s3"}`."""
        return cls(_split_comma_keys(schemes), _split_comma_keys(authorities))

    def split(self, paths: Any, *, are_local: bool = False) -> pa.Table:
        """Split each path into scheme, authority and path, with one name for equal schemes and authorities.

        With `are_local`, symbolic links in folders are resolved, whatever the scheme and authority.
        """
        parts = pc.extract_regex(canonical_path_all(paths), _URI)
        scheme, authority, path = (parts.field(i) for i in range(3))
        if are_local:
            path = real_path_all(pc.binary_join_element_wise("file:", path, ""))
        return pa.table(
            {
                "scheme": _replace_equivalent_names(pc.utf8_lower(scheme), self.schemes),
                "authority": _replace_equivalent_names(authority, self.authorities),
                "path": path,
            }
        )


@dataclass(frozen=True)
class OrphanMasks:
    """Which stored files are orphans, and which cannot be decided."""

    orphans: pa.Array  # no known file has the same path
    mismatches: pa.Array  # a known file has the same path below another scheme or authority


def find_orphans(stored: Any, known: Any, prefixes: Prefixes) -> OrphanMasks:
    """Compare stored files with known files; both are columns of paths. The stored files are below one location."""
    are_local = any(local_path(path) is not None for path in stored[:1].to_pylist())
    known_parts, stored_parts = (prefixes.split(paths, are_local=are_local) for paths in (known, stored))
    has_same_path = pc.is_in(stored_parts["path"], value_set=known_parts["path"]).combine_chunks()
    is_known = pa.nulls(len(stored_parts), pa.bool_()).fill_null(False)
    for scheme, authority in ((True, True), (True, False), (False, True), (False, False)):
        # A known path without a scheme or authority is the same file under any scheme or authority.
        has_scheme, has_authority = (pc.not_equal(known_parts[name], "") for name in ("scheme", "authority"))
        fits = known_parts.filter(pc.and_(pc.equal(has_scheme, scheme), pc.equal(has_authority, authority)))
        keys = _path_keys(fits, scheme, authority)
        is_known = pc.or_(is_known, pc.is_in(_path_keys(stored_parts, scheme, authority), value_set=keys))
    return OrphanMasks(pc.invert(has_same_path), pc.and_not(has_same_path, is_known))


def is_hidden_file(stored: Any, location: str, field_names: Iterable[str]) -> pa.Array:
    """Return which stored files engines ignore: those below a name that starts with a dot or an underscore.

    Folders of partition fields with such a name, and files that a killed writer of this engine left, are not hidden.
    """
    below = pc.utf8_slice_codeunits(stored, len(location.rstrip("/")))
    for name in (n for n in field_names if n.startswith(("_", "."))):
        below = pc.replace_substring(below, f"/{name}=", "/=")
    return pc.and_not(pc.match_substring_regex(below, r"/[._]"), pc.match_substring_regex(stored, PART_FILE_PATTERN))


def _path_keys(parts: pa.Table, scheme: bool, authority: bool) -> pa.Array:
    names = [n for n, is_used in (("scheme", scheme), ("authority", authority), ("path", True)) if is_used]
    return pc.binary_join_element_wise(*(parts[n] for n in names), "\0").combine_chunks()


def _replace_equivalent_names(column: Any, equivalents: Mapping[str, str]) -> Any:
    for name, replacement in equivalents.items():
        column = pc.if_else(pc.equal(column, name), replacement, column)
    return column


def _split_comma_keys(equivalents: Mapping[str, str]) -> dict[str, str]:
    split = {name.strip(): other.strip() for names, other in equivalents.items() for name in names.split(",")}
    if chained := sorted(other for other in split.values() if split.get(other, other) != other):
        raise UserError(
            f"Cannot decide what counts as {chained[0]!r}: it is itself mapped to another name. Map all names to one."
        )
    return split

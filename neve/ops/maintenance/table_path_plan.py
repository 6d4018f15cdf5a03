"""Find what has to be written again, and what has to be copied, so that a table can be read in another folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.catalog.metadata_files import read_metadata
from neve.commit.reachable_files import manifests_by_snapshot, tree_roots
from neve.display.format import format_size, plural
from neve.display.html import ExplainMixin
from neve.errors import MissingFile, UnknownName, UserError
from neve.io.parallel import map_in_threads
from neve.io.paths import PrefixChange, canonical_path, canonical_path_all
from neve.model.metadata import TableMetadata, check_has_scheme
from neve.model.partition import Specs
from neve.model.snapshots import Snapshot
from neve.ops.context import TableContext
from neve.tree.entries import Content, EntryTable, Manifest
from neve.tree.partition_types import manifest_reader_count
from neve.tree.read import read_entries
from neve.tree.relocate import full_root_paths, may_have_relative_paths

Paths = tuple[str, ...]
_MAX_NAMED = 3  # files outside the source prefix that an error names


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """A metadata file and what it says."""

    path: str
    metadata: TableMetadata = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class TablePathPlan(ExplainMixin):
    """The files of a table that name other files, and those that do not; both without what an earlier copy has."""

    change: PrefixChange
    staging_location: str  # where files with changed paths are written
    versions: tuple[MetadataVersion, ...]  # the newest first
    left_out_versions: (
        Paths  # old metadata files that the log names, but that are gone or elsewhere; nothing needs them
    )
    lists: Paths  # manifest lists, and roots of version 4
    manifests: tuple[Manifest, ...] = field(repr=False)  # each file once, also those that an earlier copy has
    deletes: pa.Table = field(repr=False)  # path and format of files of positions and vectors, all as well
    other_files: pa.Table = field(repr=False)  # path and size of files without paths in them
    known: frozenset[str] = field(default=frozenset(), repr=False)  # canonical paths of what an earlier copy has
    start_version: str | None = None

    @property
    def latest(self) -> MetadataVersion:
        """The state of the table that the copy shows."""
        return self.versions[0]

    def is_new(self, path: str) -> bool:
        """Return whether no earlier copy has a file."""
        return canonical_path(path) not in self.known

    @cached_property
    def new_manifests(self) -> Paths:
        """The manifests that no earlier copy has."""
        return tuple(m.file for m in self.manifests if self.is_new(m.file))

    @cached_property
    def new_deletes(self) -> Paths:
        """The files of position deletes and vectors that no earlier copy has."""
        return tuple(path for path in self.deletes["path"].to_pylist() if self.is_new(path))

    def explain(self) -> str:
        """Describe the plan in words."""
        rewritten = [
            plural(len(self.versions), "metadata file"),
            plural(len(self.lists), "manifest list"),
            plural(len(self.new_manifests), "manifest"),
            plural(len(self.new_deletes), "delete file"),
        ]
        size = format_size(pc.sum(self.other_files["size"]).as_py() or 0)
        lines = [
            f"replace {self.change.source} by {self.change.target}",
            f"rewrite {', '.join(rewritten)} to {self.staging_location}",
            f"copy {plural(self.other_files.num_rows, 'file')} ({size}) as they are",
        ]
        if self.start_version is not None:
            lines.append(f"leave out what is in the copy of {self.start_version}")
        if may_have_relative_paths(self.latest.metadata):
            lines.append(
                "keep paths that are relative to the table: files of version 4 with no others stay as they are"
            )
        lines += [f"leave out the old {path}, which is gone or elsewhere" for path in self.left_out_versions]
        return "\n".join(lines)


def plan_table_path(
    context: TableContext,
    change: PrefixChange,
    staging_location: str,
    *,
    start_version: str | None = None,
    end_version: str | None = None,
) -> TablePathPlan:
    """Read the tree of every snapshot of a version of the table; a start version leaves out what it has already.

    Versions are names of metadata files. Raises `UserError` if the table has a file that is not below the old folder.
    """
    versions, left_out = _read_versions(context, change, start_version, end_version)
    metadata, start = versions[0].metadata, None
    if start_version is not None:
        *versions, start = versions
    if may_have_relative_paths(metadata):
        check_has_scheme(change.apply(metadata.location))
    io, old_ids = context.io, start.metadata.lazy_snapshots.positions.keys() if start is not None else frozenset()
    tree, known = _read_tree(io, metadata, metadata.lazy_snapshots), _paths_of_copy(io, start, metadata)
    new_snapshots = [s for s in metadata.lazy_snapshots if s.snapshot_id not in old_ids]
    plan = TablePathPlan(
        change,
        staging_location,
        tuple(versions),
        left_out,
        full_root_paths(metadata, tree_roots(new_snapshots)),
        tree.manifests,
        tree.deletes,
        _without_known(pa.concat_tables([tree.others, _statistics_of(metadata)]), known),
        known,
        None if start is None else start.name,
    )
    _refuse_outside(context, plan)
    return plan


def _read_versions(
    context: TableContext, change: PrefixChange, start_version: str | None, end_version: str | None
) -> tuple[list[MetadataVersion], Paths]:
    """Return the metadata files from the end to the start version, the newest first, and those that are left out.

    The copy does not need its old metadata files. They may be elsewhere if the table was moved or registered.
    """
    current = MetadataVersion(context.iceberg.metadata_location, context.metadata)
    log = [entry.metadata_file for entry in current.metadata.metadata_log]
    paths = [current.path, *reversed(log)]
    end = 0 if end_version is None else _find_version(paths, end_version, context.name)
    start = len(paths) - 1 if start_version is None else _find_version(paths, start_version, context.name)
    if start_version is not None and start <= end:
        raise UserError(f"Start version {start_version!r} is not older than end version {paths[end]!r}. Swap them.")
    versions, left_out = [], []
    for at in range(end, start + 1):
        is_needed = at == end or (start_version is not None and at == start)
        try:
            if is_needed or change.includes_all(pa.array([paths[at]]))[0].as_py():
                metadata = current.metadata if at == 0 else read_metadata(context.io, paths[at])
                versions.append(MetadataVersion(paths[at], metadata))
                continue
        except MissingFile:
            if is_needed:
                raise
        left_out.append(paths[at])
    return versions, tuple(left_out)


def _find_version(paths: list[str], name: str, table: str) -> int:
    names = [path.rpartition("/")[2] for path in paths]
    wanted = name.rpartition("/")[2]
    if wanted not in names or ("/" in name and canonical_path(paths[names.index(wanted)]) != canonical_path(name)):
        raise UnknownName("metadata file", name, names, f"the metadata log of table {table}")
    return names.index(wanted)


@dataclass(frozen=True)
class _Tree:
    manifests: tuple[Manifest, ...]  # each file once
    deletes: pa.Table
    others: pa.Table


def _read_tree(io: FileIO, metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> _Tree:
    """Read the live files of some snapshots; a removed file is needed only if another snapshot has it."""
    distinct = {m.path: m for _, manifests in manifests_by_snapshot(io, metadata, snapshots) for m in manifests}
    specs = Specs.of(metadata)

    def read_one(manifest: Manifest) -> pa.Table:
        return _file_columns(read_entries(io, [manifest], specs, live_only=True))

    manifests = list(distinct.values())
    tables = map_in_threads(read_one, manifests, manifest_reader_count(io, manifests))
    files = pa.concat_tables(tables) if tables else _file_columns(EntryTable.empty(specs))
    firsts = [(name, "first") for name in ("format", "is_position", "size")]
    files = files.group_by("path", use_threads=False).aggregate(firsts)
    is_position = files["is_position_first"]
    named = files.select(["path", "format_first", "size_first"]).rename_columns(["path", "format", "size"])
    by_file = {m.file: m for m in manifests if not m.is_inline}
    return _Tree(
        tuple(by_file.values()),
        named.filter(is_position).select(["path", "format"]),
        named.filter(pc.invert(is_position)).select(["path", "size"]),
    )


def _file_columns(entries: EntryTable) -> pa.Table:
    return pa.table(
        {
            "path": entries["file_path"],
            "format": entries["file_format"].cast(pa.string()),
            "is_position": pc.equal(entries["content"], int(Content.POSITION_DELETES)),
            "size": entries["file_size_in_bytes"],
        }
    )


def _statistics_of(metadata: TableMetadata) -> pa.Table:
    files = [*metadata.statistics, *metadata.partition_statistics]
    return pa.table(
        {
            "path": pa.array([f.statistics_path for f in files], pa.string()),
            "size": pa.array([f.file_size_in_bytes for f in files], pa.int64()),
        }
    )


def _paths_of_copy(io: FileIO, start: MetadataVersion | None, end: TableMetadata) -> frozenset[str]:
    """Return the canonical paths of the files that a copy of a version has.

    A snapshot that has expired since may have lost its files: what only it had is copied again.
    """
    if start is None:
        return frozenset()
    remaining = end.lazy_snapshots.positions.keys()
    shared = [s for s in start.metadata.lazy_snapshots if s.snapshot_id in remaining]
    trees = [_read_tree(io, start.metadata, shared)]
    for snapshot in (s for s in start.metadata.lazy_snapshots if s.snapshot_id not in remaining):
        with suppress(MissingFile):
            trees.append(_read_tree(io, start.metadata, [snapshot]))
    paths: list[str] = _statistics_of(start.metadata)["path"].to_pylist()
    for tree in trees:
        paths += [m.file for m in tree.manifests]
        paths += tree.deletes["path"].to_pylist() + tree.others["path"].to_pylist()
    return frozenset(canonical_path_all(pa.array(paths, pa.string())).to_pylist())


def _without_known(files: pa.Table, known: frozenset[str]) -> pa.Table:
    known_paths = pa.array(sorted(known), pa.string())
    return files.filter(pc.invert(pc.is_in(canonical_path_all(files["path"]), value_set=known_paths)))


def _refuse_outside(context: TableContext, plan: TablePathPlan) -> None:
    """Reject a table with files that stay where they are: its copy would depend on them."""
    location = plan.latest.metadata.location
    if not plan.change.includes_all(pa.array([f"{location.rstrip('/')}/metadata"]))[0].as_py():
        raise UserError(
            f"Table {context.name} is at {location}, which is not below {plan.change.source}. Give a prefix of its "
            "location."
        )
    paths = [*(v.path for v in plan.versions), *plan.lists, *(m.file for m in plan.manifests)]
    paths += plan.deletes["path"].to_pylist() + plan.other_files["path"].to_pylist()
    column = pa.array(paths, pa.string())
    outside = column.filter(pc.invert(plan.change.includes_all(column))).to_pylist()
    if outside:
        named = ", ".join(outside[:_MAX_NAMED]) + (", …" if len(outside) > _MAX_NAMED else "")
        raise UserError(
            f"Cannot move table {context.name}: {plural(len(outside), 'file')} of it outside {plan.change.source}: "
            f"{named}. Give a prefix that all its files have, or compact the table and expire its old snapshots."
        )

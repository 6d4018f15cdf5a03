"""Find the files in the location of a table that nothing references, and delete them on request.

A file is in use if any snapshot of the table references it, staged ones too, or if it is a statistics file, the
metadata file, one in its log, or the version hint. Files younger than three days are left alone: a writer may be about
to commit them. A run deletes only the files that a dry run finds.

Also left alone: names that start with a dot or an underscore, folders that hold another table, and files whose age the
storage does not report. A requested location must not be inside the folder of another table. If two tables keep their
metadata in one folder, the search is rejected, because each would take the files of the other for orphans. Metadata of
another table without snapshots does not count: it references nothing, and may remain from a killed creation.

Isolation: files are listed before the table is read, and the table is read again before anything is deleted.
Writes: nothing; deletes files only after `dry_run(False)`.

>>> t.remove_orphan_files().execute().summary
'0 orphans found, none deleted: dry run'
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.catalog.metadata_files import read_metadata
from neve.commit.cleanup import Prefixes, delete_orphans, find_orphans, is_hidden_file
from neve.commit.reachable_files import find_reachable_files, roots_of
from neve.display.format import plural
from neve.display.html import ExplainMixin, SummaryMixin
from neve.errors import CorruptFile, MissingFile, UnknownName, UserError
from neve.io.files import read_range
from neve.io.listing import list_files
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import canonical_path, canonical_path_all, has_folders, is_inside, is_inside_all
from neve.ops.context import TableContext
from neve.ops.events import Step, emit
from neve.ops.results import milliseconds
from neve.ops.verb import Execution, Verb

MismatchMode = Literal["error", "ignore", "delete"]

_HOUR_MS = 60 * 60 * 1000
_GRACE_MS, _MIN_GRACE_MS = 72 * _HOUR_MS, 24 * _HOUR_MS
_VERSION_HINT = "/version-hint.text"
_METADATA_NAME_PATTERN = r"/[^/]*\.metadata\.json(\.gz)?$"
_METADATA_PATH_PATTERN = f"/metadata{_METADATA_NAME_PATTERN}"
_MAX_PATHS_SHOWN = 5
_HEAD_BYTES = 4 << 10  # of a metadata file; the id of the table is near its beginning
_UUID_PATTERN = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class OrphanPlan(ExplainMixin):
    """The orphans in a location, and why other unreferenced files are left alone."""

    location: str
    orphans: pa.Table  # path, size, modified_ms, in the order of their paths
    files_listed: int = 0
    files_young: int = 0  # not in use, but too young to delete
    mismatched: tuple[str, ...] = ()  # the table has a file with the same path but another scheme or authority
    other_tables: tuple[str, ...] = ()  # folders that hold other tables
    metadata_location: str = ""  # the state of the table that the files were compared with

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the orphans."""
        return tuple(self.orphans["path"].to_pylist())

    @property
    def bytes(self) -> int:
        """The bytes that would be freed."""
        return int(pc.sum(self.orphans["size"]).as_py() or 0)

    def explain(self) -> str:
        """Describe the plan in words, with every path."""
        lines = [
            f"{plural(len(self.orphans), 'orphan')} of {plural(self.bytes, 'byte')} among "
            f"{plural(self.files_listed, 'file')} in {self.location}"
        ]
        lines += [f"  {path}" for path in self.files]
        lines += [f"leave {plural(self.files_young, 'file')}, too young"] if self.files_young else []
        lines += [f"leave {path}: the table has this path elsewhere" for path in self.mismatched]
        lines += [f"leave {folder}: it holds another table" for folder in self.other_tables]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class OrphanResult(SummaryMixin):
    """The orphans that were found, and whether they were deleted."""

    orphans: tuple[str, ...] = ()
    bytes: int = 0
    dry_run: bool = True
    files_kept: Mapping[str, str] = field(default_factory=dict)  # orphans that could not be deleted, and why
    seconds: float = 0.0

    @property
    def files_deleted(self) -> int:
        """The number of deleted orphans."""
        return 0 if self.dry_run else len(self.orphans) - len(self.files_kept)

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        done = "none deleted: dry run" if self.dry_run else f"{self.files_deleted} deleted"
        return f"{plural(len(self.orphans), 'orphan')} found, {done}"


@dataclass(frozen=True)
class RemoveOrphanFiles(Verb[OrphanPlan, OrphanResult]):
    """A search for orphans: location and age, then `.plan()`, `.explain()` or `.execute()`."""

    is_dry: bool = True
    cut_off_ms: int | None = None
    allows_young: bool = False
    requested_location: str | None = None
    same_schemes: Mapping[str, str] = field(default_factory=dict)
    same_authorities: Mapping[str, str] = field(default_factory=dict)
    mode: MismatchMode = "error"

    title = "removal of orphan files"

    # -- building ----------------------------------------------------------------------------------------------------

    def dry_run(self, value: bool = True) -> Self:
        """Choose whether to report the orphans only; `dry_run(False)` deletes them."""
        return replace(self, is_dry=value)

    def older_than(self, time: datetime | int) -> Self:
        """Take only files last changed before a datetime, or milliseconds since 1970; three days ago by default."""
        return replace(self, cut_off_ms=milliseconds(time, "older_than"))

    def allow_young(self) -> Self:
        """Take also files younger than a day. Files that a running job has written but not committed are lost."""
        return replace(self, allows_young=True)

    def location(self, place: str | Path) -> Self:
        """Search a part of the table's location, or another location that the table wrote to."""
        if not isinstance(place, str | Path):
            raise UserError(f"Give the location as text or a path, not as {type(place).__name__}.")
        return replace(self, requested_location=str(place).rstrip("/") or "/")

    def equal_schemes(self, same: Mapping[str, str]) -> Self:
        """Treat schemes as the same: `{"hdfs,viewfs": "hdfs"}`. s3, s3a and s3n always are."""
        return replace(self, same_schemes={**self.same_schemes, **_check_text_mapping(same, "equal_schemes")})

    def equal_authorities(self, same: Mapping[str, str]) -> Self:
        """Treat authorities as the same: `{"namenode1,namenode2": "cluster"}`."""
        authorities = {**self.same_authorities, **_check_text_mapping(same, "equal_authorities")}
        return replace(self, same_authorities=authorities)

    def prefix_mismatch_mode(self, mode: str) -> Self:
        """Choose what happens to a file whose path the table has with another scheme or authority.

        `error` stops, `ignore` leaves the file alone, `delete` treats it as an orphan.
        """
        if mode not in get_args(MismatchMode):
            raise UnknownName("prefix mismatch mode", mode, get_args(MismatchMode))
        return replace(self, mode=cast(MismatchMode, mode))

    # -- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, context: TableContext) -> OrphanPlan:
        context.refuse_to_delete_files("remove orphan files of")
        now = context.environment.now_ms()
        cut_off = now - _GRACE_MS if self.cut_off_ms is None else self.cut_off_ms
        if cut_off > now - _MIN_GRACE_MS and not self.allows_young:
            raise UserError(
                "Cannot remove files younger than 24 hours: a running job may be about to commit them. Give an earlier "
                "older_than, or call allow_young() if nobody writes to the table."
            )
        location = self._location(context)
        emit(Step("list the folder"))
        stored = list_files(context.io, location)
        emit(Step("read the metadata", total=len(stored), unit="files"))
        context = context.refreshed()  # after the listing: listed files that were committed since are in use
        reachable_paths = _reachable_paths(context)
        write_folders = {canonical_path(root).rstrip("/") for root in _write_locations(context)}
        is_own = canonical_path(location) in write_folders or is_inside(location, *write_folders)
        if not is_own and pc.any(is_inside_all(reachable_paths, [location])).as_py() is not True:
            # Everything in it would be an orphan.
            raise UserError(f"Cannot remove orphan files in {location}: table {context.name} has no file there.")
        own_folders = {canonical_path(folder) for folder in _table_folders_in(reachable_paths)} | write_folders
        _refuse_inside_others(context, location, own_folders)
        self._refuse_shared(context, stored, location, reachable_paths)
        others = _other_tables_in(stored["path"], own_folders)
        candidates = stored.filter(pc.invert(_protected_mask(stored["path"], location, others, context)))
        unreferenced, mismatched = self._split_orphans(candidates, reachable_paths)
        # A file of unknown age counts as young.
        is_old = pc.less(unreferenced["modified_ms"], cut_off).fill_null(False)
        orphans = unreferenced.filter(is_old).sort_by("path")
        young, state = len(unreferenced) - len(orphans), context.iceberg.metadata_location
        return OrphanPlan(location, orphans, len(stored), young, mismatched, others, state)

    def _location(self, context: TableContext) -> str:
        """Return the location to search, which is never above the table."""
        own, requested = context.metadata.location.rstrip("/"), self.requested_location
        if requested is not None and is_inside(own, requested):
            raise UserError(
                f"Cannot remove orphan files in {requested}: table {context.name} is in {own} below it, beside "
                "others. Give a location inside the table."
            )
        if requested is None and own not in {root.rstrip("/") for root in _write_locations(context)}:
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: its metadata gives {own} as its location, which "
                f"does not contain its metadata file {context.iceberg.metadata_location}. Give a location inside the "
                "table."
            )
        return own if requested is None else requested

    def _refuse_shared(self, context: TableContext, stored: pa.Table, location: str, reachable_paths: pa.Array) -> None:
        """Reject a table whose metadata folder also holds the metadata of another table."""
        folder = context.iceberg.metadata_location.rpartition("/")[0]
        files = stored if is_inside(folder, location) else list_files(context.io, folder)
        folders = pc.replace_substring_regex(canonical_path_all(files["path"]), _METADATA_NAME_PATTERN, "")
        files = files.filter(pc.equal(folders, canonical_path(folder)))
        unknown = files.filter(find_orphans(files["path"], reachable_paths, self._prefixes).orphans)
        metadata_files = unknown.sort_by("path").select(["path", "size"]).to_pylist()
        # Every metadata file has the id of its table near its beginning, so only a few bytes of each are read.
        io, ids_of_table = context.io, (None, str(context.metadata.table_uuid))
        threads = reader_count(io, (f["path"] for f in metadata_files), len(metadata_files) * _HEAD_BYTES)
        table_ids = map_in_threads(lambda f: _read_table_uuid(io, f["path"], f["size"]), metadata_files, threads)
        others = (f["path"] for f, i in zip(metadata_files, table_ids, strict=True) if i not in ids_of_table)
        if path := next((path for path in others if _has_snapshots(io, path)), None):
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: {path} is the metadata of another table, whose "
                "files would be taken for orphans. If that table is gone, delete its metadata files first."
            )

    @property
    def _prefixes(self) -> Prefixes:
        return Prefixes.of(self.same_schemes, self.same_authorities)

    def _split_orphans(self, files: pa.Table, reachable_paths: pa.Array) -> tuple[pa.Table, tuple[str, ...]]:
        """Return the files that nothing references, and those for which it is unclear."""
        split = find_orphans(files["path"], reachable_paths, self._prefixes)
        mismatched = tuple(sorted(files["path"].filter(split.mismatches).to_pylist()))
        if mismatched and self.mode == "error":
            shown = ", ".join(mismatched[:_MAX_PATHS_SHOWN])
            more = f", … ({plural(len(mismatched), 'file')})" if len(mismatched) > _MAX_PATHS_SHOWN else ""
            raise UserError(
                "Cannot decide whether files are orphans: the table has the same paths with another scheme or "
                f"authority: {shown}{more}. Name equal ones with equal_schemes or equal_authorities, or choose a "
                "prefix_mismatch_mode."
            )
        if self.mode == "delete":
            return files.filter(pc.or_(split.orphans, split.mismatches)), ()
        return files.filter(split.orphans), mismatched

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, plan: OrphanPlan, execution: Execution) -> OrphanResult:
        """Delete the orphans, unless this is a dry run."""
        if self.is_dry:
            return OrphanResult(plan.files, plan.bytes, seconds=execution.total_seconds)
        state = context.refreshed()
        if len(plan.orphans) and state.iceberg.metadata_location != plan.metadata_location:
            # A slow job may have committed an old file since the plan.
            plan = replace(plan, orphans=self._split_orphans(plan.orphans, _reachable_paths(state))[0])
        emit(Step("delete files", total=len(plan.orphans), unit="files"))
        kept = delete_orphans(context.io, plan.files, plan.location)
        return OrphanResult(plan.files, plan.bytes, False, kept, execution.total_seconds)


def _check_text_mapping(mapping: Any, name: str) -> dict[str, str]:
    if not isinstance(mapping, Mapping) or not all(isinstance(text, str) for pair in mapping.items() for text in pair):
        raise UserError(f"Give {name} as texts by texts, such as {{'a,b': 'a'}}.")
    return dict(mapping)


def _reachable_paths(context: TableContext) -> pa.Array:
    """Return the paths of all files that the table references."""
    reach = find_reachable_files(context.io, context.metadata, context.iceberg.metadata_location, live_only=True)
    return pa.array([path for paths in reach for path in paths], pa.string())


def _write_locations(context: TableContext) -> tuple[str, ...]:
    """Return the locations that the table writes to."""
    return roots_of(context.metadata, context.iceberg.metadata_location)


def _protected_mask(paths: Any, location: str, others: Iterable[str], context: TableContext) -> Any:
    names = {f.name for spec in context.metadata.partition_specs for f in spec.fields}
    mask = pc.or_(is_hidden_file(paths, location, names), pc.ends_with(paths, _VERSION_HINT))
    for folder in others:
        mask = pc.or_(mask, pc.starts_with(paths, f"{folder}/"))
    return mask


def _refuse_inside_others(context: TableContext, location: str, own_folders: set[str]) -> None:
    """Reject a location below the folder of another table."""
    if canonical_path(location).rstrip("/") == canonical_path(context.metadata.location).rstrip("/"):
        return  # the table's own location, whatever is around it
    folder = location.rpartition("/")[0]
    while canonical_path(folder).rstrip("/") not in own_folders and has_folders(folder):
        if folder in _other_tables_in(list_files(context.io, f"{folder}/metadata")["path"], own_folders):
            raise UserError(f"Cannot remove orphan files in {location}: {folder} holds another table.")
        folder = folder.rpartition("/")[0]


def _other_tables_in(paths: Any, own_folders: set[str]) -> tuple[str, ...]:
    """Return the folders that hold other tables: they have a metadata folder of their own."""
    return tuple(sorted(f for f in _table_folders_in(paths) if canonical_path(f) not in own_folders))


def _table_folders_in(paths: Any) -> set[str]:
    """Return the folders above the metadata files among some paths."""
    metadata_paths = paths.filter(pc.match_substring_regex(paths, _METADATA_PATH_PATTERN))
    return {path.rsplit("/", 2)[0] for path in metadata_paths.to_pylist()}


def _read_table_uuid(io: FileIO, path: str, size: int) -> str | None:
    """Return the table id in the head of a metadata file; None if it has none, as in early files of version 1."""
    try:
        head = read_range(io, path, 0, min(size, _HEAD_BYTES))
        if head[:2] == _GZIP_MAGIC:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (MissingFile, CorruptFile, zlib.error):  # deleted meanwhile, or not finished
        return None
    match = _UUID_PATTERN.search(head)
    return match[1].decode(errors="replace").lower() if match else None


def _has_snapshots(io: FileIO, path: str) -> bool:
    try:
        return bool(read_metadata(io, path).snapshots)
    except (MissingFile, CorruptFile):
        return False

"""Find the files in the place of a table that nothing leads to, and delete them when told to.

In use is whatever any snapshot of the table leads to, staged ones too, with the statistics, the metadata file, those
in its log and the version hint. What is younger than three days is left alone: a writer may be about to commit it.
Only the files found by a dry run are deleted by a run.

Left alone too: names that start with a dot or an underscore, folders in which another table lies, and files whose age
the storage does not tell. A place that is given must not lie in the folder of another table; and where two tables keep
their metadata in one folder nothing is looked for, since the files of one are the orphans of the other.

Isolation: the place is listed before the table is read, and the table is looked at again before anything is deleted.
Writes: nothing; deletes files once `dry_run(False)` was said.

>>> t.remove_orphan_files().execute().summary
'0 orphans found, none deleted: dry run'

Whether another table keeps its metadata where a table keeps its own: to each, the files of the other are orphans.

Every metadata file says the id of its table, and says it first: a few bytes of each are read. Metadata of another table
that has no snapshots leads to nothing; it may be what a creation that was killed has left, and does not count.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.catalog.metadata_files import read_metadata
from neve.commit.cleanup import Prefixes, delete_orphans, find_orphans, is_hidden_file
from neve.commit.outcome import Committed
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
from neve.ops.verb import Execution, PendingCommit, Verb

_HEAD_BYTES = 4 << 10
_UUID_PATTERN = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_GZIP_MAGIC = b"\x1f\x8b"


def find_metadata_of_other_table(io: FileIO, stored: pa.Table, own: UUID) -> str | None:
    """The first of some metadata files, by path and size, that is of another table with snapshots; None without one."""
    files = stored.sort_by("path").select(["path", "size"]).to_pylist()
    threads = reader_count(io, (f["path"] for f in files), len(files) * _HEAD_BYTES)
    told = map_in_threads(lambda f: _read_table_uuid(io, f["path"], f["size"]), files, threads)
    others = (f["path"] for f, id_ in zip(files, told, strict=True) if id_ not in (None, str(own)))
    return next((path for path in others if _has_snapshots(io, path)), None)


def _read_table_uuid(io: FileIO, path: str, size: int) -> str | None:
    """The id that a metadata file begins with; None where it says none, as the first ones of version 1 do."""
    try:
        head = read_range(io, path, 0, min(size, _HEAD_BYTES))
        found = _UUID_PATTERN.search(
            zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES) if head[:2] == _GZIP_MAGIC else head
        )
    except (MissingFile, CorruptFile, zlib.error):  # gone meanwhile, or not finished
        return None
    return found[1].decode(errors="replace").lower() if found else None


def _has_snapshots(io: FileIO, path: str) -> bool:
    try:
        return bool(read_metadata(io, path).snapshots)
    except (MissingFile, CorruptFile):
        return False


MismatchMode = Literal["error", "ignore", "delete"]

_HOUR_MS = 60 * 60 * 1000
_GRACE_MS, _MIN_GRACE_MS = 72 * _HOUR_MS, 24 * _HOUR_MS
_VERSION_HINT = "/version-hint.text"
_METADATA_NAME_PATTERN = r"/[^/]*\.metadata\.json(\.gz)?$"
_METADATA_PATH_PATTERN = f"/metadata{_METADATA_NAME_PATTERN}"
_MAX_PATHS_SHOWN = 5


@dataclass(frozen=True)
class OrphanPlan(ExplainMixin):
    """The orphans in a place, and why other files that nothing leads to are left alone."""

    location: str
    orphans: pa.Table  # path, size, modified_ms, in the order of their paths
    files_listed: int = 0
    files_young: int = 0  # not in use, and too young to tell
    mismatched: tuple[str, ...] = ()  # a file of the table has the same path below another scheme or authority
    other_tables: tuple[str, ...] = ()  # folders in which other tables lie
    metadata_location: str = ""  # of the state of the table that the files were compared with

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the orphans."""
        return tuple(self.orphans["path"].to_pylist())

    @property
    def bytes(self) -> int:
        """How much would be freed."""
        return int(pc.sum(self.orphans["size"]).as_py() or 0)

    def explain(self) -> str:
        """The plan in words, with every path."""
        lines = [
            f"{plural(len(self.orphans), 'orphan')} of {plural(self.bytes, 'byte')} among "
            f"{plural(self.files_listed, 'file')} in {self.location}"
        ]
        lines += [f"  {path}" for path in self.files]
        lines += [f"leave {plural(self.files_young, 'file')}, too young"] if self.files_young else []
        lines += [f"leave {path}: the table has this path elsewhere" for path in self.mismatched]
        lines += [f"leave {place}: another table lies there" for place in self.other_tables]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class OrphanResult(SummaryMixin):
    """Which orphans were found, and whether they are gone."""

    orphans: tuple[str, ...] = ()
    bytes: int = 0
    dry_run: bool = True
    files_kept: Mapping[str, str] = field(default_factory=dict)  # orphans that could not be deleted, and why
    seconds: float = 0.0

    @property
    def files_deleted(self) -> int:
        """How many orphans were deleted."""
        return 0 if self.dry_run else len(self.orphans) - len(self.files_kept)

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        done = "none deleted: dry run" if self.dry_run else f"{self.files_deleted} deleted"
        return f"{plural(len(self.orphans), 'orphan')} found, {done}"


@dataclass(frozen=True)
class RemoveOrphanFiles(Verb[OrphanPlan, OrphanResult]):
    """A search for orphans on its way: where and how old, then `.plan()`, `.explain()` or `.execute()`."""

    is_dry: bool = True
    cut_off_ms: int | None = None
    may_be_young: bool = False
    place: str | None = None
    same_schemes: Mapping[str, str] = field(default_factory=dict)
    same_authorities: Mapping[str, str] = field(default_factory=dict)
    mode: MismatchMode = "error"

    title = "removal of orphan files"

    # -- building ----------------------------------------------------------------------------------------------------

    def dry_run(self, value: bool = True) -> Self:
        """Whether to tell the orphans only; `dry_run(False)` deletes them."""
        return replace(self, is_dry=value)

    def older_than(self, time: datetime | int) -> Self:
        """Take only files last changed before: a datetime, or milliseconds since 1970. Three days ago unless said."""
        return replace(self, cut_off_ms=milliseconds(time, "older_than"))

    def allow_young(self) -> Self:
        """Take files younger than a day too. Files that a running job has written and not committed yet are lost."""
        return replace(self, may_be_young=True)

    def location(self, place: str | Path) -> Self:
        """Look in a part of the table's place, or in another place it wrote to."""
        if not isinstance(place, str | Path):
            raise UserError(f"Give the location as text or a path, not as {type(place).__name__}.")
        return replace(self, place=str(place).rstrip("/") or "/")

    def equal_schemes(self, same: Mapping[str, str]) -> Self:
        """Schemes that mean the same: `{"hdfs,viewfs": "hdfs"}`. s3, s3a and s3n do anyway."""
        return replace(self, same_schemes={**self.same_schemes, **_check_text_mapping(same, "equal_schemes")})

    def equal_authorities(self, same: Mapping[str, str]) -> Self:
        """Authorities that mean the same: `{"namenode1,namenode2": "cluster"}`."""
        return replace(
            self, same_authorities={**self.same_authorities, **_check_text_mapping(same, "equal_authorities")}
        )

    def prefix_mismatch_mode(self, mode: str) -> Self:
        """What becomes of a file whose path the table has below another scheme or authority.

        `error` stops, `ignore` leaves the file alone, `delete` takes it for an orphan.
        """
        if mode not in get_args(MismatchMode):
            raise UnknownName("prefix mismatch mode", mode, get_args(MismatchMode))
        return replace(self, mode=cast(MismatchMode, mode))

    # -- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, context: TableContext) -> OrphanPlan:
        context.refuse_to_delete_files("remove orphan files of")
        cut_off, location = self._cut_off(context), self._location(context)
        emit(Step("list the folder"))
        stored = list_files(context.io, location)
        emit(Step("read the metadata", total=len(stored), unit="files"))
        context = context.refreshed()  # after the listing: what was listed and committed since is in use
        known = _reachable_paths(context)
        _refuse_elsewhere(context, location, known)
        own = _table_folders_in(known) | {canonical_path(root).rstrip("/") for root in _write_locations(context)}
        _refuse_inside_others(context, location, own)
        self._refuse_shared(context, stored, location, known)
        others = _other_tables_in(stored["path"], own)
        ours = stored.filter(pc.invert(_protected_mask(stored["path"], location, others, context)))
        unknown, mismatched = self._split_orphans(ours, known)
        # A file whose age is not known counts as young.
        is_old = pc.less(unknown["modified_ms"], cut_off).fill_null(False)
        found = unknown.filter(is_old).sort_by("path")
        young, state = len(unknown) - len(found), context.iceberg.metadata_location
        return OrphanPlan(location, found, len(stored), young, mismatched, others, state)

    def _cut_off(self, context: TableContext) -> int:
        now = context.environment.now_ms()
        cut_off = now - _GRACE_MS if self.cut_off_ms is None else self.cut_off_ms
        if cut_off > now - _MIN_GRACE_MS and not self.may_be_young:
            raise UserError(
                "Cannot remove files younger than 24 hours: a running job may be about to commit them. Give an earlier "
                "older_than, or say allow_young() when nobody writes to the table."
            )
        return cut_off

    def _location(self, context: TableContext) -> str:
        """Where to look; never above the table."""
        own = context.metadata.location.rstrip("/")
        if self.place is not None and is_inside(own, self.place):
            raise UserError(
                f"Cannot remove orphan files in {self.place}: table {context.name} lies in {own} below it, beside "
                "others. Give a place inside the table."
            )
        if self.place is None and own not in {root.rstrip("/") for root in _write_locations(context)}:
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: its metadata says that it lies in {own}, which "
                f"is not around its metadata file {context.iceberg.metadata_location}. Give a place inside the table."
            )
        return own if self.place is None else self.place

    def _refuse_shared(self, context: TableContext, stored: pa.Table, location: str, reachable_paths: pa.Array) -> None:
        """Refuse a table whose folder of metadata is another's too."""
        folder = context.iceberg.metadata_location.rpartition("/")[0]
        there = stored if is_inside(folder, location) else list_files(context.io, folder)
        folders = pc.replace_substring_regex(canonical_path_all(there["path"]), _METADATA_NAME_PATTERN, "")
        there = there.filter(pc.equal(folders, canonical_path(folder)))
        unknown = there.filter(find_orphans(there["path"], reachable_paths, self._prefixes).orphans)
        if path := find_metadata_of_other_table(context.io, unknown, context.metadata.table_uuid):
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: {path} is the metadata of another table, whose "
                "files would be taken for orphans. If that table is gone, delete its metadata files first."
            )

    @property
    def _prefixes(self) -> Prefixes:
        return Prefixes.of(self.same_schemes, self.same_authorities)

    def _split_orphans(self, stored: pa.Table, known: pa.Array) -> tuple[pa.Table, tuple[str, ...]]:
        """The files that nothing leads to, and those of which it cannot be told."""
        found = find_orphans(stored["path"], known, self._prefixes)
        mismatched = tuple(sorted(stored["path"].filter(found.mismatches).to_pylist()))
        if mismatched and self.mode == "error":
            raise _mismatch_error(mismatched)
        if self.mode == "delete":
            return stored.filter(pc.or_(found.orphans, found.mismatches)), ()
        return stored.filter(found.orphans), mismatched

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, plan: OrphanPlan, execution: Execution) -> _DeletedOrphans:
        """Delete the orphans, unless this is a dry run."""
        if self.is_dry:
            return _DeletedOrphans(plan.orphans, {})
        orphans = self._still_orphans(plan, context.refreshed())
        emit(Step("delete files", total=len(orphans), unit="files"))
        return _DeletedOrphans(orphans, delete_orphans(context.io, orphans["path"].to_pylist(), plan.location))

    def _still_orphans(self, plan: OrphanPlan, now: TableContext) -> pa.Table:
        """The files of the plan that are orphans still: a slow job may have committed an old file meanwhile."""
        if not len(plan.orphans) or now.iceberg.metadata_location == plan.metadata_location:
            return plan.orphans
        return self._split_orphans(plan.orphans, _reachable_paths(now))[0]

    def _result(
        self,
        context: TableContext,
        plan: OrphanPlan,
        written: _DeletedOrphans,
        committed: Committed,
        execution: Execution,
    ) -> OrphanResult:
        return OrphanResult(
            tuple(written.orphans["path"].to_pylist()),
            int(pc.sum(written.orphans["size"]).as_py() or 0),
            self.is_dry,
            written.files_kept,
            execution.total_seconds,
        )


@dataclass(frozen=True)
class _DeletedOrphans(PendingCommit):
    """The orphans, and those of them that could not be deleted with the reason."""

    orphans: pa.Table
    files_kept: Mapping[str, str]


def _check_text_mapping(mapping: Any, name: str) -> dict[str, str]:
    if not isinstance(mapping, Mapping) or not all(isinstance(text, str) for pair in mapping.items() for text in pair):
        raise UserError(f"Give {name} as texts by texts, such as {{'a,b': 'a'}}.")
    return dict(mapping)


def _reachable_paths(context: TableContext) -> pa.Array:
    """The paths of all files the table leads to."""
    reach = find_reachable_files(context.io, context.metadata, context.iceberg.metadata_location, live_only=True)
    return pa.array([path for paths in reach for path in paths], pa.string())


def _write_locations(context: TableContext) -> tuple[str, ...]:
    """The places the table writes to."""
    return roots_of(context.metadata, context.iceberg.metadata_location)


def _refuse_elsewhere(context: TableContext, location: str, known: pa.Array) -> None:
    """Refuse a place that is not the table's: everything in it would be an orphan."""
    own = [canonical_path(root).rstrip("/") for root in _write_locations(context)]
    if (
        canonical_path(location) not in own
        and not is_inside(location, *own)
        and not _any(is_inside_all(known, [location]))
    ):
        raise UserError(f"Cannot remove orphan files in {location}: table {context.name} has no file there.")


def _protected_mask(paths: Any, location: str, others: Iterable[str], context: TableContext) -> Any:
    names = {f.name for spec in context.metadata.partition_specs for f in spec.fields}
    mask = pc.or_(is_hidden_file(paths, location, names), pc.ends_with(paths, _VERSION_HINT))
    for place in others:
        mask = pc.or_(mask, pc.starts_with(paths, f"{place}/"))
    return mask


def _refuse_inside_others(context: TableContext, location: str, ours: set[str]) -> None:
    """Refuse a place below the folder of another table."""
    if canonical_path(location).rstrip("/") == canonical_path(context.metadata.location).rstrip("/"):
        return  # its own, whatever lies around it
    folder = location.rpartition("/")[0]
    while canonical_path(folder).rstrip("/") not in ours and has_folders(folder):
        if folder in _other_tables_in(list_files(context.io, f"{folder}/metadata")["path"], ours):
            raise UserError(f"Cannot remove orphan files in {location}: another table lies in {folder}.")
        folder = folder.rpartition("/")[0]


def _other_tables_in(paths: Any, ours: set[str]) -> tuple[str, ...]:
    """Folders in which other tables lie: they have a metadata folder of their own."""
    return tuple(sorted(place for place in _table_folders_in(paths, as_is=True) if canonical_path(place) not in ours))


def _table_folders_in(paths: Any, as_is: bool = False) -> set[str]:
    """The folders above the metadata files among some paths."""
    metadata = paths.filter(pc.match_substring_regex(paths, _METADATA_PATH_PATTERN))
    spelt = metadata if as_is else canonical_path_all(metadata)
    return {path.rsplit("/", 2)[0] for path in spelt.to_pylist()}


def _mismatch_error(paths: tuple[str, ...]) -> UserError:
    shown = ", ".join(paths[:_MAX_PATHS_SHOWN]) + (
        f", … ({plural(len(paths), 'file')})" if len(paths) > _MAX_PATHS_SHOWN else ""
    )
    return UserError(
        f"Cannot tell whether files are orphans: the table has the same paths below another scheme or authority: "
        f"{shown}. Say which mean the same with equal_schemes or equal_authorities, or choose a prefix_mismatch_mode."
    )


def _any(mask: Any) -> bool:
    return pc.any(mask).as_py() is True

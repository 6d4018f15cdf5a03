"""Find the files in the location of a table that nothing references, and delete them on request.

A file is in use if any snapshot of the table references it, staged ones too, or if it is a statistics file, the
metadata file, one in its log, or the version hint. Files younger than three days are left alone: a writer may be about
to commit them. A run deletes only the files that a dry run finds.

Also left alone: names that start with a dot or an underscore, files whose age the storage does not report, and files
that no Iceberg writer makes: those in other folders than the table's, or with another ending. The catalog is asked for
other tables that share folders with this one: their folders and files are left alone. A folder with metadata counts as
another table even if the catalog does not list it, and a requested location must not be inside such a folder.

If two tables keep their metadata in one folder, the search is rejected, because each would take the files of the other
for orphans. Metadata of another table without snapshots does not count: it references nothing, and may remain from a
killed creation. If the same table has another entry in the catalog, a search needs `allow_shared()`; if an entry cannot
be read, it needs `allow_unreadable()`.

Isolation: files are listed before the table is read, and the table is read again before anything is deleted.
Writes: nothing; deletes files only after `dry_run(False)`.

>>> t.remove_orphan_files().execute().summary
'0 orphans found, none deleted: dry run'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc

from neve.commit.cleanup import WRITER_FILE_PATTERN, Prefixes, delete_orphans, find_orphans, is_hidden_file
from neve.commit.neighbours import AllowedNeighbours, Neighbours, find_neighbours
from neve.display.format import plural
from neve.display.html import ExplainMixin, SummaryMixin
from neve.errors import UnknownName, UserError
from neve.io.listing import list_files
from neve.io.paths import is_inside
from neve.ops.context import TableContext
from neve.ops.events import Step, emit
from neve.ops.maintenance.table_folders import TableFolders, reachable_paths, write_locations
from neve.ops.results import milliseconds
from neve.ops.verb import Execution, Verb

MismatchMode = Literal["error", "ignore", "delete"]

_HOUR_MS = 60 * 60 * 1000
_GRACE_MS, _MIN_GRACE_MS = 72 * _HOUR_MS, 24 * _HOUR_MS
_VERSION_HINT = "/version-hint.text"
_MAX_PATHS_SHOWN = 5


@dataclass(frozen=True)
class OrphanPlan(ExplainMixin):
    """The orphans in a location, and why other unreferenced files are left alone."""

    location: str
    orphans: pa.Table  # path, size, modified_ms, in the order of their paths
    files_listed: int = 0
    files_young: int = 0  # not in use, but too young to delete
    files_foreign: int = 0  # not in use, but in another folder or with another ending than files of Iceberg writers
    mismatched: tuple[str, ...] = ()  # the table has a file with the same path but another scheme or authority
    other_tables: tuple[str, ...] = ()  # folders that hold other tables
    shared: Mapping[str, int] = field(default_factory=dict)  # other tables, and how many of the files they reference
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
        if self.files_foreign:
            lines.append(f"leave {plural(self.files_foreign, 'file')} that no Iceberg writer makes (allow_any_name)")
        lines += [f"leave {plural(count, 'file')} that {name} references" for name, count in self.shared.items()]
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
    def output_rows(self) -> pa.Table:
        """The rows that Iceberg's procedure returns: one for each orphan."""
        return pa.table({"orphan_file_location": pa.array(self.orphans, pa.string())})

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
    allows_any_name: bool = False
    allowed: AllowedNeighbours = field(default_factory=AllowedNeighbours)
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

    def allow_any_name(self, value: bool = True) -> Self:
        """Take also files that no Iceberg writer makes, by their folder or ending. Other people's files are lost."""
        return replace(self, allows_any_name=value)

    def allow_shared(self, value: bool = True) -> Self:
        """Search although the same table has another entry; files that the other entry references are left alone."""
        return replace(self, allowed=replace(self.allowed, twins=value))

    def allow_unreadable(self, value: bool = True) -> Self:
        """Search although an entry cannot be read, which may need files that are found."""
        return replace(self, allowed=replace(self.allowed, unreadable=value))

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
        folders = TableFolders.of(context, location)
        self._refuse_others(context, folders, stored)
        others = folders.find_other_tables(stored["path"])
        candidates = stored.filter(pc.invert(_protected_mask(stored["path"], location, others, context)))
        unreferenced, mismatched = self._split_orphans(candidates, folders.reachable_paths)
        shared = folders.neighbours.select_shared(unreferenced["path"].to_pylist())
        unreferenced = _without_paths(unreferenced, shared)
        own = unreferenced if self.allows_any_name else unreferenced.filter(self._is_own(unreferenced["path"], folders))
        # A file of unknown age counts as young.
        orphans = own.filter(pc.less(own["modified_ms"], cut_off).fill_null(False)).sort_by("path")
        return OrphanPlan(
            location,
            orphans,
            len(stored),
            files_young=len(own) - len(orphans),
            files_foreign=len(unreferenced) - len(own),
            mismatched=mismatched,
            other_tables=others,
            shared=Counter(shared.values()),
            metadata_location=context.iceberg.metadata_location,
        )

    def _refuse_others(self, context: TableContext, folders: TableFolders, stored: pa.Table) -> None:
        """Reject a search that could take files of another table for orphans."""
        if not folders.has_own_files:
            raise UserError(
                f"Cannot remove orphan files in {folders.location}: table {context.name} has no file there."
            )
        self._refuse_deletion(folders.neighbours, context)
        folders.refuse_inside_others()
        folders.refuse_shared_metadata(stored, self._prefixes)

    def _refuse_deletion(self, neighbours: Neighbours, context: TableContext) -> None:
        neighbours.refuse_deletion(f"remove orphan files of table {context.name}", self.allowed)

    def _is_own(self, paths: Any, folders: TableFolders) -> pa.Array:
        """Return which files an Iceberg writer may have made for this table: by their endings and folders."""
        is_named = pc.match_substring_regex(paths, WRITER_FILE_PATTERN)
        if self.requested_location is not None:  # the caller knows what is in there
            return is_named
        return pc.and_(is_named, folders.is_in_folder_of_writers(paths))

    def _location(self, context: TableContext) -> str:
        """Return the location to search, which is never above the table."""
        own, requested = context.metadata.location.rstrip("/"), self.requested_location
        if requested is not None and is_inside(own, requested):
            raise UserError(
                f"Cannot remove orphan files in {requested}: table {context.name} is in {own} below it, beside "
                "others. Give a location inside the table."
            )
        if requested is None and own not in {root.rstrip("/") for root in write_locations(context)}:
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: its metadata gives {own} as its location, which "
                f"does not contain its metadata file {context.iceberg.metadata_location}. Give a location inside the "
                "table."
            )
        return own if requested is None else requested

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
            plan = replace(plan, orphans=self._split_orphans(plan.orphans, reachable_paths(state))[0])
        if len(plan.orphans):  # so may a job of another table that shares the folder
            neighbours = find_neighbours(state.catalog, state.iceberg)
            self._refuse_deletion(neighbours, context)
            plan = replace(plan, orphans=_without_paths(plan.orphans, neighbours.select_shared(plan.files)))
        emit(Step("delete files", total=len(plan.orphans), unit="files"))
        kept = delete_orphans(context.io, plan.files, plan.location)
        return OrphanResult(plan.files, plan.bytes, False, kept, execution.total_seconds)


def _check_text_mapping(mapping: Any, name: str) -> dict[str, str]:
    if not isinstance(mapping, Mapping) or not all(isinstance(text, str) for pair in mapping.items() for text in pair):
        raise UserError(f"Give {name} as texts by texts, such as {{'a,b': 'a'}}.")
    return dict(mapping)


def _without_paths(files: pa.Table, paths: Iterable[str]) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=pa.array(paths, pa.string()))))


def _protected_mask(paths: Any, location: str, others: Iterable[str], context: TableContext) -> Any:
    names = {f.name for spec in context.metadata.partition_specs for f in spec.fields}
    mask = pc.or_(is_hidden_file(paths, location, names), pc.ends_with(paths, _VERSION_HINT))
    for folder in others:
        mask = pc.or_(mask, pc.starts_with(paths, f"{folder}/"))
    return mask

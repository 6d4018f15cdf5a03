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
from neve.commit.cleanup import Prefixes, delete_orphans, hidden, sort_out
from neve.commit.outcome import Committed
from neve.commit.reachable_files import reachable, roots_of
from neve.display.format import several
from neve.display.html import Explained, Summarised
from neve.errors import CorruptFile, MissingFile, UnknownName, UserError
from neve.io.files import read_range
from neve.io.listing import listing
from neve.io.parallel import in_threads, readers
from neve.io.paths import canonical, canonical_all, has_folders, inside, inside_all
from neve.ops.context import TableContext
from neve.ops.events import Step, tell
from neve.ops.results import milliseconds
from neve.ops.verb import Execution, PendingCommit, Verb

_HEAD = 4 << 10
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]*)"')
_GZIP_MAGIC = b"\x1f\x8b"


def metadata_of_another(io: FileIO, stored: pa.Table, own: UUID) -> str | None:
    """The first of some metadata files, by path and size, that is of another table with snapshots; None without one."""
    files = stored.sort_by("path").select(["path", "size"]).to_pylist()
    threads = readers(io, (f["path"] for f in files), len(files) * _HEAD)
    told = in_threads(lambda f: _told_id(io, f["path"], f["size"]), files, threads)
    others = (f["path"] for f, id_ in zip(files, told, strict=True) if id_ not in (None, str(own)))
    return next((path for path in others if _leads_somewhere(io, path)), None)


def _told_id(io: FileIO, path: str, size: int) -> str | None:
    """The id that a metadata file begins with; None where it says none, as the first ones of version 1 do."""
    try:
        head = read_range(io, path, 0, min(size, _HEAD))
        found = _UUID.search(zlib.decompressobj(wbits=31).decompress(head, _HEAD) if head[:2] == _GZIP_MAGIC else head)
    except (MissingFile, CorruptFile, zlib.error):  # gone meanwhile, or not finished
        return None
    return found[1].decode(errors="replace").lower() if found else None


def _leads_somewhere(io: FileIO, path: str) -> bool:
    try:
        return bool(read_metadata(io, path).snapshots)
    except (MissingFile, CorruptFile):
        return False


MismatchMode = Literal["error", "ignore", "delete"]

_HOUR = 60 * 60 * 1000
_GRACE_MS, _LEAST_GRACE_MS = 72 * _HOUR, 24 * _HOUR
_HINT = "/version-hint.text"
_METADATA_NAME = r"/[^/]*\.metadata\.json(\.gz)?$"
_METADATA = f"/metadata{_METADATA_NAME}"
_SHOWN = 5


@dataclass(frozen=True)
class OrphanPlan(Explained):
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
            f"{several(len(self.orphans), 'orphan')} of {several(self.bytes, 'byte')} among "
            f"{several(self.files_listed, 'file')} in {self.location}"
        ]
        lines += [f"  {path}" for path in self.files]
        lines += [f"leave {several(self.files_young, 'file')}, too young"] if self.files_young else []
        lines += [f"leave {path}: the table has this path elsewhere" for path in self.mismatched]
        lines += [f"leave {place}: another table lies there" for place in self.other_tables]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class OrphanResult(Summarised):
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
        return f"{several(len(self.orphans), 'orphan')} found, {done}"


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
        return replace(self, same_schemes={**self.same_schemes, **_texts(same, "equal_schemes")})

    def equal_authorities(self, same: Mapping[str, str]) -> Self:
        """Authorities that mean the same: `{"namenode1,namenode2": "cluster"}`."""
        return replace(self, same_authorities={**self.same_authorities, **_texts(same, "equal_authorities")})

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
        tell(Step("list the folder"))
        stored = listing(context.io, location)
        tell(Step("read the metadata", total=len(stored), unit="files"))
        context = context.refreshed()  # after the listing: what was listed and committed since is in use
        known = _known(context)
        _refuse_elsewhere(context, location, known)
        own = _tables_in(known) | {canonical(root).rstrip("/") for root in _roots(context)}
        _refuse_inside_others(context, location, own)
        self._refuse_shared(context, stored, location, known)
        others = _others_in(stored["path"], own)
        ours = stored.filter(pc.invert(_left_alone(stored["path"], location, others, context)))
        unknown, mismatched = self._sorted(ours, known)
        # A file whose age is not known counts as young.
        is_old = pc.less(unknown["modified_ms"], cut_off).fill_null(False)
        found = unknown.filter(is_old).sort_by("path")
        young, state = len(unknown) - len(found), context.iceberg.metadata_location
        return OrphanPlan(location, found, len(stored), young, mismatched, others, state)

    def _cut_off(self, context: TableContext) -> int:
        now = context.environment.now_ms()
        cut_off = now - _GRACE_MS if self.cut_off_ms is None else self.cut_off_ms
        if cut_off > now - _LEAST_GRACE_MS and not self.may_be_young:
            raise UserError(
                "Cannot remove files younger than 24 hours: a running job may be about to commit them. Give an earlier "
                "older_than, or say allow_young() when nobody writes to the table."
            )
        return cut_off

    def _location(self, context: TableContext) -> str:
        """Where to look; never above the table."""
        own = context.metadata.location.rstrip("/")
        if self.place is not None and inside(own, self.place):
            raise UserError(
                f"Cannot remove orphan files in {self.place}: table {context.name} lies in {own} below it, beside "
                "others. Give a place inside the table."
            )
        if self.place is None and own not in {root.rstrip("/") for root in _roots(context)}:
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: its metadata says that it lies in {own}, which "
                f"is not around its metadata file {context.iceberg.metadata_location}. Give a place inside the table."
            )
        return own if self.place is None else self.place

    def _refuse_shared(self, context: TableContext, stored: pa.Table, location: str, known: pa.Array) -> None:
        """Refuse a table whose folder of metadata is another's too."""
        folder = context.iceberg.metadata_location.rpartition("/")[0]
        there = stored if inside(folder, location) else listing(context.io, folder)
        folders = pc.replace_substring_regex(canonical_all(there["path"]), _METADATA_NAME, "")
        there = there.filter(pc.equal(folders, canonical(folder)))
        unknown = there.filter(sort_out(there["path"], known, self._prefixes).orphans)
        if path := metadata_of_another(context.io, unknown, context.metadata.table_uuid):
            raise UserError(
                f"Cannot remove orphan files of table {context.name}: {path} is the metadata of another table, whose "
                "files would be taken for orphans. If that table is gone, delete its metadata files first."
            )

    @property
    def _prefixes(self) -> Prefixes:
        return Prefixes.of(self.same_schemes, self.same_authorities)

    def _sorted(self, stored: pa.Table, known: pa.Array) -> tuple[pa.Table, tuple[str, ...]]:
        """The files that nothing leads to, and those of which it cannot be told."""
        found = sort_out(stored["path"], known, self._prefixes)
        mismatched = tuple(sorted(stored["path"].filter(found.mismatches).to_pylist()))
        if mismatched and self.mode == "error":
            raise _mismatch(mismatched)
        if self.mode == "delete":
            return stored.filter(pc.or_(found.orphans, found.mismatches)), ()
        return stored.filter(found.orphans), mismatched

    # -- running -----------------------------------------------------------------------------------------------------

    def _write(self, context: TableContext, plan: OrphanPlan, execution: Execution) -> _DeletedOrphans:
        """Delete the orphans, unless this is a dry run."""
        if self.is_dry:
            return _DeletedOrphans(plan.orphans, {})
        orphans = self._still_orphans(plan, context.refreshed())
        tell(Step("delete files", total=len(orphans), unit="files"))
        return _DeletedOrphans(orphans, delete_orphans(context.io, orphans["path"].to_pylist(), plan.location))

    def _still_orphans(self, plan: OrphanPlan, now: TableContext) -> pa.Table:
        """The files of the plan that are orphans still: a slow job may have committed an old file meanwhile."""
        if not len(plan.orphans) or now.iceberg.metadata_location == plan.metadata_location:
            return plan.orphans
        return self._sorted(plan.orphans, _known(now))[0]

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


def _texts(given: Any, name: str) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise UserError(f"Give {name} as texts by texts, such as {{'a,b': 'a'}}.")
    return dict(given)


def _known(context: TableContext) -> pa.Array:
    """The paths of all files the table leads to."""
    reach = reachable(context.io, context.metadata, context.iceberg.metadata_location, live_only=True)
    return pa.array([path for paths in reach for path in paths], pa.string())


def _roots(context: TableContext) -> tuple[str, ...]:
    """The places the table writes to."""
    return roots_of(context.metadata, context.iceberg.metadata_location)


def _refuse_elsewhere(context: TableContext, location: str, known: pa.Array) -> None:
    """Refuse a place that is not the table's: everything in it would be an orphan."""
    own = [canonical(root).rstrip("/") for root in _roots(context)]
    if canonical(location) not in own and not inside(location, *own) and not _any(inside_all(known, [location])):
        raise UserError(f"Cannot remove orphan files in {location}: table {context.name} has no file there.")


def _left_alone(paths: Any, location: str, others: Iterable[str], context: TableContext) -> Any:
    names = {f.name for spec in context.metadata.partition_specs for f in spec.fields}
    mask = pc.or_(hidden(paths, location, names), pc.ends_with(paths, _HINT))
    for place in others:
        mask = pc.or_(mask, pc.starts_with(paths, f"{place}/"))
    return mask


def _refuse_inside_others(context: TableContext, location: str, ours: set[str]) -> None:
    """Refuse a place below the folder of another table."""
    if canonical(location).rstrip("/") == canonical(context.metadata.location).rstrip("/"):
        return  # its own, whatever lies around it
    folder = location.rpartition("/")[0]
    while canonical(folder).rstrip("/") not in ours and has_folders(folder):
        if folder in _others_in(listing(context.io, f"{folder}/metadata")["path"], ours):
            raise UserError(f"Cannot remove orphan files in {location}: another table lies in {folder}.")
        folder = folder.rpartition("/")[0]


def _others_in(paths: Any, ours: set[str]) -> tuple[str, ...]:
    """Folders in which other tables lie: they have a metadata folder of their own."""
    return tuple(sorted(place for place in _tables_in(paths, as_is=True) if canonical(place) not in ours))


def _tables_in(paths: Any, as_is: bool = False) -> set[str]:
    """The folders above the metadata files among some paths."""
    metadata = paths.filter(pc.match_substring_regex(paths, _METADATA))
    spelt = metadata if as_is else canonical_all(metadata)
    return {path.rsplit("/", 2)[0] for path in spelt.to_pylist()}


def _mismatch(paths: tuple[str, ...]) -> UserError:
    shown = ", ".join(paths[:_SHOWN]) + (f", … ({several(len(paths), 'file')})" if len(paths) > _SHOWN else "")
    return UserError(
        f"Cannot tell whether files are orphans: the table has the same paths below another scheme or authority: "
        f"{shown}. Say which mean the same with equal_schemes or equal_authorities, or choose a prefix_mismatch_mode."
    )


def _any(mask: Any) -> bool:
    return pc.any(mask).as_py() is True

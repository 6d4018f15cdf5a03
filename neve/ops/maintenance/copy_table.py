"""Copy a table with its whole history to another folder, and add the copy to the catalog.

Snapshots, branches, tags, deletes of every kind and statistics are in the copy, which shares no file with the original:
either may be changed, cleaned up or dropped without the other. Files whose paths change are written again as
`rewrite_table_path` does, straight to the new folder; the others are copied byte by byte, in threads of this process
or, if they are many and the Spark session has other machines, in tasks of a Spark job.

A copy that was interrupted is continued by the same call: files that are there with the right size stay. A folder that
holds any other file is rejected.

With a name, the copy gets a table id of its own. It is a table beside the original in one catalog, and catalogs, caches
and engines take two entries with one id for the same table. The id is derived from the original's id and the new
location, so that a continued copy has the same. Without a name, the copy keeps the id: it is the same table in another
place.

Isolation: one state of the metadata. The original does not change.
Writes: the files of the copy, its newest metadata file last. If the copy fails, what it has written is deleted.

>>> result = t.copy_to("copies/sales", name="db.copy").execute()
>>> result.summary
'... files copied, 4 files rewritten, registered as db.copy'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa

from neve.catalog import load_table, register_table
from neve.catalog.entries import find_overlap, leave_note
from neve.catalog.tables import absolute_location, identifier_of
from neve.display.format import plural
from neve.display.html import ExplainMixin, SummaryMixin
from neve.errors import CommitUnknown, UnknownName, UserError
from neve.io.files import delete_files, file_size, is_part_file
from neve.io.listing import list_files
from neve.io.paths import PrefixChange, canonical_path, canonical_path_all, scheme_of
from neve.ops.context import TableContext
from neve.ops.maintenance.rewrite_table_path import PathWriter, SourceAndTarget, as_they_are, check_prefix
from neve.ops.maintenance.table_path_plan import TablePathPlan, plan_table_path
from neve.ops.verb import Execution, Verb
from neve.run.copy_files import FileCopy, copy_in_threads
from neve.run.spark.copy_job import copy_on_spark
from neve.run.spark.session import has_other_machines

_MAX_FILES_HERE, _MAX_BYTES_HERE = 1_000, 1 << 30  # more are copied by a cluster, if there is one
_MAX_NAMED = 3  # files that an error names


@dataclass(frozen=True)
class CopyPlan(ExplainMixin):
    """What is copied and what is rewritten, and what an interrupted copy has left at the target."""

    paths: TablePathPlan
    present: Mapping[str, int] = field(default_factory=dict, repr=False)  # sizes at the target, by canonical path
    stale: tuple[str, ...] = ()  # files at the target that are no longer needed
    catalog_change: str = "leave the catalog as it is"

    def explain(self) -> str:
        """Describe the plan in words."""
        lines = [self.paths.explain()]
        if self.present:
            lines.append(f"keep what is complete of {plural(len(self.present), 'file')} of an interrupted copy")
        return "\n".join([*lines, self.catalog_change])


@dataclass(frozen=True, slots=True)
class CopyResult(SummaryMixin):
    """Where the copy is, and what was copied."""

    metadata_location: str  # register the copy elsewhere by this file
    name: str | None = None
    files_copied: int = 0
    bytes_copied: int = 0
    files_present: int = 0  # were there already
    files_rewritten: int = 0
    seconds: float = 0.0
    is_move: bool = False  # the copy is the table now

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        present = f" and {self.files_present:,} found" if self.files_present else ""
        registered = "" if self.name is None else f", registered as {self.name}"
        end = ", the table moved" if self.is_move else registered
        rewritten = plural(self.files_rewritten, "file")
        return f"{plural(self.files_copied, 'file')} copied{present}, {rewritten} rewritten{end}"


@dataclass(frozen=True)
class TableCopy(Verb[CopyPlan, CopyResult]):
    """What copies of a table have in common: the files of the copy, complete with its metadata."""

    location: str | Path = ""
    skips_present: bool = True
    uses_spark: bool | None = None  # None: decided by the number of files and by the session

    verb: ClassVar[str]  # what errors call it: "Cannot <verb> table db.t"

    def skip_present(self, yes: bool = True) -> Self:
        """Keep files of an interrupted copy that have the right size, or copy them again."""
        return replace(self, skips_present=yes)

    def on_spark(self, yes: bool = True) -> Self:
        """Copy files in a Spark job, or in this process; by default large tables are copied by a cluster."""
        return replace(self, uses_spark=yes)

    def _check(self) -> None:
        if not isinstance(self.location, str | Path) or not str(self.location).strip():
            raise UserError(f"The location of the copy is {self.location!r}. Give the location of a folder.")
        check_prefix("location of the copy", absolute_location(str(self.location)))

    def _plan(self, context: TableContext) -> CopyPlan:
        target = absolute_location(str(self.location)).rstrip("/")
        target = target if scheme_of(target) else f"file://{target}"
        self._refuse_overlap(context, target)
        change = PrefixChange(context.metadata.location.rstrip("/"), target)
        paths = plan_table_path(context, change, target)
        present, others = _files_at_target(context, paths)
        stale = [path for path in others if path in self._written_paths()]
        if others := [path for path in others if path not in stale]:
            named = ", ".join(others[:_MAX_NAMED]) + (", …" if len(others) > _MAX_NAMED else "")
            raise UserError(
                f"Cannot {self.verb} table {context.name} to {target}: the folder holds "
                f"{plural(len(others), 'other file')}: {named}. Give an empty folder."
            )
        return CopyPlan(paths, present, tuple(stale))

    def _written_paths(self) -> Collection[str]:
        """Return what earlier attempts of this execution have written, as canonical paths."""
        return ()

    def _identity(self, context: TableContext, target: str) -> str:
        """Return the table id of the copy."""
        return str(context.metadata.table_uuid)

    def _write_copy(self, context: TableContext, plan: CopyPlan, execution: Execution) -> tuple[CopyResult, list[str]]:
        """Write the files of the copy; return where it is, and what was written. A failed copy leaves nothing."""
        change = plan.paths.change
        identity = self._identity(context, change.target)
        writer = PathWriter(context.io, plan.paths, change.apply, identity, skips_equal_files=True)
        with writer.removed_on_failure():
            with execution.phase("rewrite"):
                tree = writer.write_tree()
            unchanged = [pair for pair in tree if pair[0] != pair[1]]
            pairs = [*as_they_are(plan.paths), *unchanged]
            with execution.phase("copy"):
                copies = self._copies(context, plan, pairs)
                copied = self._copy(context, copies, writer)
            with execution.phase("commit"):
                writer.write_versions()
        delete_files(context.io, plan.stale)
        location = writer.result().metadata_location
        result = CopyResult(
            location,
            files_copied=len(copies),
            bytes_copied=copied,
            files_present=len(pairs) - len(copies),
            files_rewritten=sum(writer.counts.values()),
            seconds=execution.total_seconds,
        )
        return result, writer.written

    def _refuse_overlap(self, context: TableContext, target: str) -> None:
        folder = find_overlap(context.metadata, context.iceberg.metadata_location, target)
        if folder is not None:
            raise UserError(
                f"Cannot {self.verb} table {context.name} to {target}: it overlaps the table's own folder {folder}. "
                "Give a folder outside of it."
            )

    def _copies(self, context: TableContext, plan: CopyPlan, pairs: Sequence[SourceAndTarget]) -> list[FileCopy]:
        """Return the files to copy: without those that are there already, with the same size."""
        copies = []
        for source, target in pairs:
            size = plan.present.get(canonical_path(target))
            if size is None or not self.skips_present or size != file_size(context.io, source):
                copies.append(FileCopy(source, target, replaces=size is not None))
        return copies

    def _copy(self, context: TableContext, copies: Sequence[FileCopy], writer: PathWriter) -> int:
        size = sum(writer.plan.other_files["size"].to_pylist())
        is_large = len(copies) > _MAX_FILES_HERE or size > _MAX_BYTES_HERE
        uses_spark = is_large and has_other_machines(context.running_spark())
        if not (uses_spark if self.uses_spark is None else self.uses_spark):
            return copy_in_threads(context.io, copies, writer.written.append)
        writer.written.extend(each.target for each in copies)  # a failed job does not say which it has copied
        return copy_on_spark(context.spark(), copies, context.facts) if copies else 0


@dataclass(frozen=True)
class CopyTable(TableCopy):
    """A copy of a table: `.skip_present(False)`, then `.plan()`, `.explain()` or `.execute()`."""

    name: str | None = None  # of the copy in the catalog

    title, verb = "copy of the table", "copy"

    def _check(self) -> None:
        super()._check()
        if self.name is not None:
            identifier_of(self.name)

    def _plan(self, context: TableContext) -> CopyPlan:
        if self.name is not None:
            _refuse_taken_name(context, self.name)
        plan = super()._plan(context)
        return plan if self.name is None else replace(plan, catalog_change=f"register the copy as {self.name}")

    def _write(self, context: TableContext, plan: CopyPlan, execution: Execution) -> CopyResult:
        result, written = self._write_copy(context, plan, execution)
        if self.name is not None:
            self._register(context, self.name, result.metadata_location, written)
        return replace(result, name=self.name)

    def _identity(self, context: TableContext, target: str) -> str:
        if self.name is None:
            return super()._identity(context, target)
        return str(uuid5(NAMESPACE_URL, f"{context.metadata.table_uuid} {canonical_path(target)}"))

    def _register(self, context: TableContext, name: str, metadata_location: str, written: Sequence[str]) -> None:
        """Add the copy to the catalog. If it is not known whether that succeeded, the files stay."""
        try:
            registered = register_table(context.catalog, name, metadata_location)
        except UserError:
            delete_files(context.io, written)
            raise
        except Exception as e:
            raise CommitUnknown(
                f"Cannot tell whether the copy was registered as {name} ({e}). Its files are kept. Look for the "
                f"table, and register {metadata_location} if it is not there.",
                metadata_location,
            ) from e
        leave_note(context.catalog, registered)


def _refuse_taken_name(context: TableContext, name: str) -> None:
    try:
        load_table(context.catalog, name)
    except UnknownName:
        return
    raise UserError(f"Cannot copy table {context.name} to {name}: a table of that name exists. Choose another name.")


def _files_at_target(context: TableContext, plan: TablePathPlan) -> tuple[dict[str, int], list[str]]:
    """Return the sizes of the files that are at the target already, and those of them that the copy does not have."""
    listed = list_files(context.io, plan.change.target)
    sizes = dict(zip(canonical_path_all(listed["path"]).to_pylist(), listed["size"].to_pylist(), strict=True))
    sizes = {path: size for path, size in sizes.items() if not is_part_file(path)}
    if not sizes:
        return {}, []
    own = [*(v.path for v in plan.versions), *plan.lists, *(m.file for m in plan.manifests)]
    own += plan.deletes["path"].to_pylist() + plan.other_files["path"].to_pylist()
    targets = set(canonical_path_all(plan.change.apply_all(pa.array(own, pa.string()))).to_pylist())
    return sizes, sorted(sizes.keys() - targets)

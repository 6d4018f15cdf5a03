"""Write the metadata of a table again for another folder, and list which files to copy where.

The paths in metadata files, manifest lists or roots, manifests, position delete files and files of deletion vectors are
absolute, so a plain copy of a table's folder still leads to the old one. This verb writes those files again, with the
old prefix of each path replaced, to a staging location, and lists every file that belongs to the copy as a line
`source,target` of a CSV file. Another tool carries the list out; `copy_to` does both. Data files, equality delete files
and statistics have no paths inside and are copied as they are, and so are files of version 4 whose paths are all
relative to the table. Numbers, ids, statistics and the order of entries stay.

With a start version, files that the copy of that version has are left out.

Isolation: one state of the metadata. The table does not change.
Writes: metadata files, manifest lists or roots, manifests, delete files and a list, in the staging location: by default
a new folder below the metadata of the table. Delete that folder when the files are copied.

>>> t.rewrite_table_path(t.context.metadata.location, "s3://bucket/copy").execute().summary
'2 metadata files, 1 manifest list, 1 manifest and 0 delete files rewritten, 6 files to copy'
"""

from __future__ import annotations

import csv
import io as text_io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io import FileIO

from neve.commit.neighbours import STAGING_FOLDER
from neve.display.format import join_with_and, plural
from neve.display.html import SummaryMixin
from neve.errors import MissingFile, UserError
from neve.io.files import delete_files, read_file, write_new_file
from neve.io.parallel import map_in_threads, reader_count
from neve.io.paths import PrefixChange, has_folders, location_from_property, scheme_of
from neve.ops.context import TableContext
from neve.ops.maintenance.table_path_plan import TablePathPlan, plan_table_path
from neve.ops.results import one_row
from neve.ops.verb import Execution, Verb
from neve.run.write.relocate_deletes import relocate_delete_file
from neve.tree.entries import Manifest
from neve.tree.relocate import Relocation, RewrittenFile

FILE_LIST = "file-list"
NO_FILE_LIST = "N/A"
"""What Iceberg returns as the location of a list that was not asked for."""

SourceAndTarget = tuple[str, str]
Rewritten = tuple[SourceAndTarget | None, RewrittenFile]  # None: an earlier copy has the file


@dataclass(frozen=True, slots=True)
class RewriteTablePathResult(SummaryMixin):
    """Where the rewritten files and the list are, and how many files were rewritten."""

    latest_version: str  # the name of the newest metadata file of the copy
    metadata_location: str  # where that file will be
    staging_location: str
    file_list_location: str
    rewritten_metadata_files: int = 0
    rewritten_lists: int = 0
    rewritten_manifests: int = 0
    rewritten_delete_files: int = 0
    files_to_copy: int = 0
    seconds: float = 0.0

    @property
    def output_rows(self) -> pa.Table:
        """The row that Iceberg's procedure returns."""
        return one_row(
            latest_version=pa.scalar(self.latest_version),
            file_list_location=pa.scalar(self.file_list_location),
            rewritten_manifest_file_paths_count=pa.scalar(self.rewritten_manifests, pa.int32()),
            rewritten_delete_file_paths_count=pa.scalar(self.rewritten_delete_files, pa.int32()),
        )

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        counts = {
            "metadata file": self.rewritten_metadata_files,
            "manifest list": self.rewritten_lists,
            "manifest": self.rewritten_manifests,
            "delete file": self.rewritten_delete_files,
        }
        rewritten = join_with_and([plural(count, noun) for noun, count in counts.items()])
        return f"{rewritten} rewritten, {plural(self.files_to_copy, 'file')} to copy"


@dataclass(frozen=True)
class RewriteTablePath(Verb[TablePathPlan, RewriteTablePathResult]):
    """A change of all paths: `.staging_location(folder)`, then `.plan()`, `.explain()` or `.execute()`."""

    source_prefix: str = ""
    target_prefix: str = ""
    staging: str | None = None
    first_version: str | None = None
    last_version: str | None = None
    lists_files: bool = True

    title = "rewrite of table paths"

    def start_version(self, name: str) -> Self:
        """Leave out what is in the copy of an earlier version, given by the name of its metadata file."""
        return replace(self, first_version=name)

    def end_version(self, name: str) -> Self:
        """Copy the table as it was in a version, given by the name of its metadata file; by default the newest."""
        return replace(self, last_version=name)

    def staging_location(self, folder: str) -> Self:
        """Write the rewritten files to this folder, which the table can write to."""
        return replace(self, staging=folder)

    def create_file_list(self, yes: bool = True) -> Self:
        """Write the list of files to copy, or not."""
        return replace(self, lists_files=yes)

    def _check(self) -> None:
        for name, value in (("source prefix", self.source_prefix), ("target prefix", self.target_prefix)):
            check_prefix(name, value)
        if self.source_prefix.rstrip("/") == self.target_prefix.rstrip("/"):
            raise UserError(f"The source and the target prefix are both {self.source_prefix!r}. Give another target.")
        if self.staging is not None:
            check_prefix("staging location", self.staging)

    def _plan(self, context: TableContext) -> TablePathPlan:
        change = PrefixChange(self.source_prefix.rstrip("/"), self.target_prefix.rstrip("/"))
        staging = self.staging.rstrip("/") if self.staging is not None else _new_staging_folder(context)
        return plan_table_path(
            context, change, staging, start_version=self.first_version, end_version=self.last_version
        )

    def _write(self, context: TableContext, plan: TablePathPlan, execution: Execution) -> RewriteTablePathResult:
        staging = PrefixChange(plan.change.source, plan.staging_location)
        writer = PathWriter(context.io, plan, staging.apply)
        with writer.removed_on_failure(), execution.phase("rewrite"):
            pairs = [*as_they_are(plan), *writer.write_tree(), *writer.write_versions()]
            location = f"{plan.staging_location}/{FILE_LIST}" if self.lists_files else NO_FILE_LIST
            if self.lists_files:
                writer.write(location, _encode_list(pairs))
        return replace(
            writer.result(),
            file_list_location=location,
            files_to_copy=len(pairs),
            seconds=execution.total_seconds,
        )


def check_prefix(name: str, value: Any) -> None:
    """Reject a prefix that is no absolute location of a folder."""
    if not isinstance(value, str):
        raise UserError(f"Give the {name} as text, not as {type(value).__name__}.")
    if not value.strip("/ "):
        raise UserError(f"The {name} is {value!r}. Give the location of a folder.")
    if not (value.startswith("/") or scheme_of(value)):
        raise UserError(f"The {name} {value!r} is relative. Give it with its scheme, as in 's3://bucket/{value}'.")
    if not has_folders(f"{value.rstrip('/')}/folder"):
        raise UserError(f"The {name} {value!r} has `.` or `..` in it. Give the location itself.")


def _new_staging_folder(context: TableContext) -> str:
    folder = location_from_property(context.metadata.location, context.properties.metadata_path or "metadata")
    return f"{folder}/{STAGING_FOLDER}{uuid4()}"


def as_they_are(plan: TablePathPlan) -> list[SourceAndTarget]:
    """Return where the files without paths in them go."""
    targets = plan.change.apply_all(plan.other_files["path"])
    return list(zip(plan.other_files["path"].to_pylist(), targets.to_pylist(), strict=True))


def _encode_list(pairs: Sequence[SourceAndTarget]) -> bytes:
    text = text_io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(pairs)
    return text.getvalue().encode()


@dataclass
class PathWriter:
    """Writes the files of a plan with their new paths, each before the files that state its length."""

    io: FileIO
    plan: TablePathPlan
    staged_path: Callable[[str], str]  # where the new content of a file is written
    table_uuid: str | None = None
    skips_equal_files: bool = False  # a file that is there already, with the same bytes, stays
    written: list[str] = field(default_factory=list)  # also what was only begun
    counts: dict[str, int] = field(default_factory=dict)

    def write_tree(self) -> list[SourceAndTarget]:
        """Write delete files, manifests and lists; return where each is, and where it belongs."""
        relocation = self._relocation
        deletes, files = self._write_deletes()
        manifests, manifest_files = self._write_manifests(relocation.with_files(files))
        lists = self._write_lists(relocation.with_files([*files, *manifest_files]))
        return [*deletes, *manifests, *lists]

    def write_versions(self) -> list[SourceAndTarget]:
        """Write the metadata files, the newest last."""
        self.counts["rewritten_metadata_files"] = len(self.plan.versions)
        oldest_first = reversed(self.plan.versions)
        return [self._store(v.path, self._relocation.metadata(v.metadata, v.path)) for v in oldest_first]

    def result(self) -> RewriteTablePathResult:
        """Describe what was written."""
        latest, change = self.plan.latest, self.plan.change
        return RewriteTablePathResult(
            latest.name, change.apply(latest.path), self.plan.staging_location, NO_FILE_LIST, **self.counts
        )

    @contextmanager
    def removed_on_failure(self) -> Iterator[None]:
        """Delete what was written if the block fails: nothing refers to it."""
        try:
            yield
        except BaseException:
            delete_files(self.io, self.written)
            raise

    @property
    def _relocation(self) -> Relocation:
        return Relocation(self.plan.change, self.plan.latest.metadata.location, self.table_uuid)

    def _write_deletes(self) -> tuple[list[SourceAndTarget], list[RewrittenFile]]:
        def rewrite(row: dict[str, str]) -> Rewritten:
            new = relocate_delete_file(self.io, row["path"], row["format"], self.plan.change)
            pair = self._store(row["path"], new.data) if self.plan.is_new(row["path"]) else None
            return pair, RewrittenFile(row["path"], len(new.data), new.path_range)

        return self._collect("rewritten_delete_files", rewrite, self.plan.deletes.to_pylist())

    def _write_manifests(self, relocation: Relocation) -> tuple[list[SourceAndTarget], list[RewrittenFile]]:
        def rewrite(manifest: Manifest) -> Rewritten:
            data = read_file(self.io, manifest.file)
            new = relocation.manifest(data, manifest)
            pair = self._store(manifest.file, new, is_same=new is data) if self.plan.is_new(manifest.file) else None
            return pair, RewrittenFile(manifest.file, len(new))

        return self._collect("rewritten_manifests", rewrite, self.plan.manifests)

    def _write_lists(self, relocation: Relocation) -> list[SourceAndTarget]:
        def rewrite(path: str) -> Rewritten:
            data = read_file(self.io, path)
            new = relocation.list_or_root(data, path)
            return self._store(path, new, is_same=new is data), RewrittenFile(path, len(new))

        return self._collect("rewritten_lists", rewrite, self.plan.lists)[0]

    def _collect(
        self, count: str, rewrite: Callable[[Any], Rewritten], items: Sequence[Any]
    ) -> tuple[list[SourceAndTarget], list[RewrittenFile]]:
        """Rewrite files in threads, and count those whose content changed."""
        results = map_in_threads(rewrite, items, reader_count(self.io, [self.plan.latest.path]))
        self.counts[count] = sum(pair is not None and pair[0] != file.path for pair, file in results)
        return [pair for pair, _ in results if pair is not None], [file for _, file in results]

    def _store(self, path: str, data: bytes, *, is_same: bool = False) -> SourceAndTarget:
        """Write the new content of a file; unchanged content is not written, but copied with the other files."""
        target = self.plan.change.apply(path)
        if is_same:
            return path, target
        staged = self.staged_path(path)
        self.write(staged, data)
        return staged, target

    def write(self, path: str, data: bytes) -> None:
        """Write a file, unless the same one is there."""
        if self.skips_equal_files and _is_there(self.io, path, data):
            return
        write_new_file(self.io, path, data)
        self.written.append(path)


def _is_there(io: FileIO, path: str, data: bytes) -> bool:
    try:
        present = read_file(io, path)
    except MissingFile:
        return False
    if present != data:
        raise UserError(f"Cannot write {path}: another file is there. Give a folder without the files of another copy.")
    return True

"""Add data files of another engine to a table: they stay where they are, and nothing is copied.

The files are Parquet, ORC or Avro files in a folder, partitioned as Spark and Hive do (`day=2026-01-01/region=eu`), or
named one by one. Partition folders are mapped by name to the fields of the table's partition spec, which must all be
columns. Files without field ids are read by the names of their columns, so a table without a name mapping gets one of
its current columns (`schema.name-mapping.default`), in the same commit. A file that does not fit the table, or is
already in it, is an error, and nothing is added.

From then on the files belong to the table: expiring snapshots deletes them once a DELETE or a compaction has replaced
them, unless `gc.enabled` is false.

Isolation: an append never conflicts with a concurrent writer, unless that one added the same files or changed the
columns; then the files are looked at again.
Writes: one manifest, under the current default spec. No data file.

>>> import pyarrow.parquet as pq
>>> folder = Path("more/region=apac")
>>> folder.mkdir(parents=True)
>>> pq.write_table(pa.table({"id": [7, 8]}), folder / "part-0.parquet")
>>> t.add_files("more").execute().summary
'2 rows added, 1 file added to 1 partition'
>>> t.scan("region = 'apac'").to_arrow().to_pylist()
[{'id': 7, 'region': 'apac'}, {'id': 8, 'region': 'apac'}]
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform

from neve.commit.actions import Action, Append
from neve.commit.outcome import Check, Conflict, Outcome
from neve.commit.protocol import MetadataChange
from neve.commit.summary import refuse_reserved_properties
from neve.commit.window import CommitBase
from neve.errors import UserError
from neve.io.listing import LISTING_SCHEMA, list_files
from neve.io.paths import refuse_unreadable, scheme_of
from neve.model.metadata import TableMetadata
from neve.model.values import to_comparable
from neve.ops.context import TableContext
from neve.ops.metadata.evolve import RequirementsAndUpdates
from neve.ops.results import AddFilesResult
from neve.ops.verb import Execution, PendingCommit, StageableVerb
from neve.plan.partition_folders import AddFilesPlan, FolderFields, filter_texts, plan_added_files
from neve.predicate.constants import parse_time_zone
from neve.run.foreign_files import ForeignFileReader
from neve.run.spark.foreign_files import read_footers
from neve.run.table_facts import TableFacts
from neve.run.write.metrics import leaf_columns
from neve.run.write.target import WriteTarget
from neve.tree.entries import DETAIL, EntryTable

NAME_MAPPING = "schema.name-mapping.default"
_SHOWN_FILES = 5


@dataclass(frozen=True)
class DescribedFiles(PendingCommit):
    """The entries of the files to add, and the name mapping that their columns were found with."""

    files: EntryTable
    name_mapping: str


@dataclass(frozen=True)
class AddFiles(StageableVerb[AddFilesPlan, AddFilesResult]):
    """Data files to add: `.plan()` and `.explain()` show them, `.execute()` adds them.

    `.branch(name)`, `.stage(id)` and `.snapshot_property(name, value)` are those of other writes.
    """

    source: str | Path | Sequence[str | Path] = ""
    partition_filter: Mapping[str, Any] = field(default_factory=dict)
    check_duplicate_files: bool = True
    parallelism: int | None = None
    file_format: str | None = None
    partition_folders: frozenset[str] | None = None  # below a folder: those whose files are taken; None: all

    title = "addition of files"

    @property
    def has_full_mapping(self) -> bool:
        """Whether a column of a file that the table's name mapping lacks is none of the table's."""
        return False

    def _check(self) -> None:
        refuse_reserved_properties(self.properties)
        if self.parallelism is not None and self.parallelism < 1:
            raise UserError(f"parallelism is {self.parallelism}; it must be at least 1.")

    def _plan(self, context: TableContext) -> AddFilesPlan:
        destination = self._destination(context)
        destination.head(context)  # an unknown branch is an error before any file is read
        zone = parse_time_zone(context.time_zone())
        fields = FolderFields(context.specs, context.metadata.default_spec_id, zone)
        fields.check(context.name)
        listing, root = self._list(context)
        plan = plan_added_files(
            listing,
            fields,
            root=root,
            partition_filter=filter_texts(self.partition_filter),
            file_format=self.file_format,
        )
        if not len(plan.files):
            where = "in the selected partitions of" if plan.left_out else "in"
            raise UserError(f"Found no data files to add {where} {self.source}.")
        refuse_unreadable(plan.files["file_path"], context.metadata.location)
        if self.check_duplicate_files:
            base = CommitBase(context.io, context.metadata, destination.branch, destination.creates_branch)
            if repeated := _files_in_table(base, plan.files):
                advice = "Add only new files, or allow it with check_duplicate_files = false."
                raise _repeated_files_error(repeated, f"table {context.name} has them already", advice)
        return plan

    def _list(self, context: TableContext) -> tuple[pa.Table, str | None]:
        listing, root = list_source(context, self.source)
        if root is not None and self.partition_folders is not None:
            folders = pc.replace_substring_regex(listing["path"], r"/[^/]*$", "")
            wanted = pa.array([f"{root}/{folder}" for folder in self.partition_folders], pa.string())
            listing = listing.filter(pc.is_in(folders, value_set=wanted))
        return listing, root

    def _write(self, context: TableContext, plan: AddFilesPlan, execution: Execution) -> DescribedFiles:
        metadata = context.metadata
        mapping = metadata.name_mapping() or create_mapping_from_schema(metadata.schema())
        text = metadata.properties.get(NAME_MAPPING) or mapping.model_dump_json()
        facts = replace(context.facts, name_mapping=mapping)
        reader = _foreign_file_reader(context, facts, self.has_full_mapping)
        with execution.phase("read footers"):
            footers = read_footers(plan.files, reader, context.spark, self.parallelism)
        _refuse_other_partitions(plan.files, footers, context)
        _refuse_missing_values(plan.files, footers, context)
        entries = plan.files.with_columns(
            **{name: footers[name] for name in footers.column_names if name in _ENTRY_COLUMNS}
        )
        return DescribedFiles(entries, text, action=Append(entries))

    def _publish(self, context: TableContext, plan: AddFilesPlan, written: Any, execution: Execution) -> Outcome:
        destination, schema_id = self._destination(context), context.metadata.current_schema_id
        head = destination.head(context)

        def check(base: CommitBase) -> Conflict | None:
            metadata = base.metadata
            if (metadata.current_schema_id, metadata.properties.get(NAME_MAPPING)) != (schema_id, written.name_mapping):
                return Conflict(Check.CONCURRENT_UPDATE, "The columns of the table were changed meanwhile.")
            if not self.check_duplicate_files or base.parent == head:
                return None
            repeated = _files_in_table(base, plan.files)
            message = "Another writer added the same files."
            return Conflict(Check.REPEATED, message, files=tuple(repeated)) if repeated else None

        return context.commit(
            cast(Action, written.action),
            **asdict(destination),
            properties=self.properties,
            extra_check=check,
            change_metadata=_name_mapping_change(destination.branch, written.name_mapping),
        )

    def _result(
        self, context: TableContext, plan: AddFilesPlan, written: DescribedFiles, execution: Execution
    ) -> AddFilesResult:
        committed, files = execution.committed, written.files
        return AddFilesResult(
            snapshot_id=committed.snapshot_id,
            rows_added=pc.sum(files["record_count"]).as_py() or 0,
            files_added=len(files),
            bytes_added=pc.sum(files["file_size_in_bytes"]).as_py() or 0,
            partitions_changed=len(files.partition_codes()[1]),
            attempts=committed.attempts,
            reruns=execution.reruns,
            seconds=execution.seconds,
        )


_ENTRY_COLUMNS = ("record_count", "file_size_in_bytes", *DETAIL.names)


def list_source(context: TableContext, source: str | Path | Sequence[str | Path]) -> tuple[pa.Table, str | None]:
    """Return the files of a folder, and the folder; or those named one by one, whose size is not known yet."""
    location = context.metadata.location
    if isinstance(source, str | Path):
        root = _full_path(source, location)
        listing = list_files(context.io, root, follows_links=True).sort_by("path")
        # A table that is made in the folder has one file so far.
        return listing.filter(pc.not_equal(listing["path"], context.iceberg.metadata_location)), root
    paths = [_full_path(path, location) for path in source]
    if repeated := [path for path, count in Counter(paths).items() if count > 1]:
        raise _repeated_files_error(repeated, "they are named twice", "Name each file once.")
    nulls = pa.nulls(len(paths), pa.int64())
    return pa.table([pa.array(paths, pa.string()), nulls, nulls], schema=LISTING_SCHEMA), None


def _full_path(path: str | Path, location: str) -> str:
    """Return a path as the table stores it: a local one in full, with the scheme of the table's own location."""
    text = str(path)
    if scheme_of(text) is None:
        local = os.path.abspath(text)
        text = f"file://{local}" if location.startswith("file://") else local
    return text.rstrip("/")


def _foreign_file_reader(context: TableContext, facts: TableFacts, has_full_mapping: bool) -> ForeignFileReader:
    target = WriteTarget.of(context.metadata, facts.io_properties)
    spec = context.specs[target.spec_id]
    ids = frozenset(f.source_id for f in spec.fields if isinstance(f.transform, IdentityTransform))
    leaves = leaf_columns(target.schema, target.table_properties, target.sort_order)
    return ForeignFileReader(facts, context.name, leaves, ids, has_full_mapping)


def _files_in_table(base: CommitBase, files: EntryTable) -> list[str]:
    """Return the files that are live in the head of the branch."""
    live = base.live_data_files(files["file_path"].to_pylist()) if base.parent is not None else None
    return sorted(live["file_path"].to_pylist()) if live is not None else []


def _repeated_files_error(files: Sequence[str], why: str, advice: str) -> UserError:
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    return UserError(
        f"Cannot take files twice, as {why}: {', '.join(files[:_SHOWN_FILES])}{more}. Their rows would count twice. "
        f"{advice}"
    )


def _name_mapping_change(branch: str, name_mapping: str) -> MetadataChange:
    """Return the change that gives a table a name mapping if it has none."""

    def change(metadata: TableMetadata) -> RequirementsAndUpdates:
        if NAME_MAPPING in metadata.properties:
            return (), ()
        ref = metadata.refs.get(branch)
        is_unchanged = AssertRefSnapshotId(ref=branch, snapshot_id=None if ref is None else ref.snapshot_id)
        return (is_unchanged,), (SetPropertiesUpdate(updates={NAME_MAPPING: name_mapping}),)

    return change


def _refuse_other_partitions(files: EntryTable, footers: pa.Table, context: TableContext) -> None:
    """Reject a file that stores a partition column with other values than its folder has: engines would disagree."""
    spec_id = context.metadata.default_spec_id
    for one, column in zip(context.specs[spec_id].fields, context.specs.columns(spec_id), strict=True):
        if f"low.{one.source_id}" not in footers.column_names:
            continue
        low, high, nulls = (footers[f"{name}.{one.source_id}"].combine_chunks() for name in ("low", "high", "nulls"))
        values = files[column].combine_chunks()
        expected = to_comparable(values, context.specs.source_type(one))
        differs = pc.or_kleene(pc.not_equal(low, expected), pc.not_equal(high, expected)).fill_null(False)
        has_nulls = pc.and_(pc.greater(nulls, 0).fill_null(False), values.is_valid())
        is_not_null = pc.and_(low.is_valid(), values.is_null())
        if wrong := _first_path(files, pc.or_(pc.or_(differs, has_nulls), is_not_null)):
            raise UserError(
                f"Cannot add {wrong} to table {context.name}: it stores column {one.name!r}, with other values than "
                "its folder has. Append its rows instead."
            )


def _refuse_missing_values(files: EntryTable, footers: pa.Table, context: TableContext) -> None:
    """Reject nulls in a required column, which its readers would not accept."""
    required = [f for f in context.metadata.schema().fields if f.required]
    counts = footers["null_value_counts"].combine_chunks()
    pairs = counts.flatten()
    rows = pc.list_parent_indices(counts)
    for one in required:
        is_null = pc.and_(pc.equal(pairs.field("key"), one.field_id), pc.greater(pairs.field("value"), 0))
        wrong = rows.filter(is_null)
        if len(wrong):
            path = files["file_path"][wrong[0].as_py()].as_py()
            raise UserError(
                f"Cannot add {path} to table {context.name}: it has nulls in column {one.name!r}, which is required."
            )


def _first_path(files: EntryTable, mask: pa.Array) -> str | None:
    wrong = files["file_path"].filter(mask)
    return str(wrong[0].as_py()) if len(wrong) else None

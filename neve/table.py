"""The `Table` class: a thin layer over the verbs in `neve.ops`, where each verb is explained in detail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import Column, DataFrame

from neve.display.format import plural
from neve.ops.audit import verify
from neve.ops.audit.findings import Audit
from neve.ops.context import TableContext
from neve.ops.inspect import Inspect
from neve.ops.maintenance.compute_partition_stats import ComputePartitionStats, PartitionStatsResult
from neve.ops.maintenance.compute_table_stats import ComputeTableStats, TableStatsResult
from neve.ops.maintenance.copy_table import CopyTable
from neve.ops.maintenance.expire_snapshots import ExpireSnapshots
from neve.ops.maintenance.maintain import Maintain
from neve.ops.maintenance.relocate_table import RelocateTable
from neve.ops.maintenance.remove_dangling_deletes import RemoveDanglingDeletes
from neve.ops.maintenance.remove_orphan_files import RemoveOrphanFiles
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.ops.maintenance.rewrite_manifests import RewriteManifests
from neve.ops.maintenance.rewrite_position_deletes import RewritePositionDeletes
from neve.ops.maintenance.rewrite_table_path import RewriteTablePath
from neve.ops.metadata import evolve, export_metadata, refs
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.ops.results import WriteResult
from neve.ops.rows.delete import Delete
from neve.ops.rows.merge import Merge
from neve.ops.rows.update import Update
from neve.ops.scan import Scan
from neve.ops.write.add_files import AddFiles
from neve.ops.write.append import AppendRows
from neve.ops.write.cherry_pick import CherryPickResult, CherryPickSnapshot
from neve.ops.write.ingest import Ingest
from neve.ops.write.overwrite import OverwritePartitions, OverwriteRows
from neve.report.page import table_card, write_report

P = ParamSpec("P")


@dataclass
class Table:
    """An Iceberg table, with any number of partition specs in its history.

    Every read and every write starts from the newest state of the table in the catalog. Methods that only read return
    their answer at once. Methods that change rows or maintain the table return a builder with `.plan()`, `.explain()`
    and `.execute()`; `append` and `overwrite` write at once. `repr()` and `schema` do not ask the catalog: they show
    the table as this object last read it. `refresh()` reads the newest state.

    >>> t
    Table('db.sales', v2, 1 spec)
    >>> t.schema.column_names
    ['id', 'region']
    """

    context: TableContext

    def __repr__(self) -> str:
        metadata = self.context.metadata
        specs = plural(len(metadata.partition_specs), "spec")
        return f"Table({self.context.name!r}, v{metadata.format_version}, {specs})"

    def _repr_html_(self) -> str:
        return table_card(self.context)

    def refresh(self) -> Table:
        """Read the newest state from the catalog, and return this table."""
        self.context = self.context.refreshed()
        return self

    @property
    def name(self) -> str:
        """The name of the table, with its namespace."""
        return self.context.name

    @property
    def iceberg(self) -> IcebergTable:
        """The PyIceberg table in its newest state, for everything that Névé has no method for."""
        return self.refresh().context.iceberg

    @property
    def schema(self) -> Schema:
        """The schema as this object last read it; `t.refresh().schema` is the newest one."""
        return self.context.metadata.schema()

    def scan(
        self,
        where: str | BooleanExpression | None = None,
        columns: Iterable[str] | None = None,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of: datetime | int | None = None,
        case_sensitive: bool = True,
        limit: int | None = None,
    ) -> Scan:
        """Read rows: `.to_spark()`, `.to_arrow()`, `.to_batches()`, `.to_pandas()`, `.count()`.

        `.plan()` shows what would be read.

        `where` is a condition in Spark SQL or a PyIceberg expression. `columns` are names of columns, of fields inside
        structs, and of the metadata columns `_file`, `_pos`, `_spec_id`, `_partition`, `_row_id` and
        `_last_updated_sequence_number`. The newest state is read by default; to read another one, give `snapshot_id`,
        `ref` (a branch or tag) or `as_of` (a datetime, or milliseconds since 1970). `limit` is the most rows to read,
        in no certain order.

        >>> t.scan("id = 1", columns=["region", "_spec_id"]).to_arrow().to_pylist()
        [{'region': 'eu', '_spec_id': 0}]
        """
        return Scan.of(
            self.refresh().context,
            where=where,
            columns=columns,
            snapshot_id=snapshot_id,
            ref=ref,
            as_of=as_of,
            case_sensitive=case_sensitive,
            limit=limit,
        )

    def to_spark(self) -> DataFrame:
        """Return the whole current table as a Spark DataFrame."""
        return self.scan().to_spark()

    def to_arrow(self) -> pa.Table:
        """Return the whole current table as an Arrow table."""
        return self.scan().to_arrow()

    def append(
        self,
        rows: Any,
        *,
        branch: str = "main",
        stage: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Add rows: a Spark DataFrame, an Arrow table, a pandas DataFrame or a list of dicts.

        Columns are matched by name; a missing column gets its default value, or null. `branch` is the branch to write
        to, which must exist. With `stage`, the snapshot is staged under this id instead: nobody reads it until
        `publish_changes(id)`. `snapshot_properties` are written into the summary of the snapshot.

        >>> t.append([{"id": 10, "region": "us"}]).rows_added
        1
        """
        target = _target(branch, stage, snapshot_properties)
        return AppendRows(self.refresh().context, rows, **target).execute()

    def overwrite(
        self,
        rows: Any,
        where: str | BooleanExpression | None = None,
        *,
        isolation: str | None = None,
        branch: str = "main",
        stage: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Replace all files whose rows match `where` by new rows; without `where`, replace all files.

        A file that holds both matching and other rows is an error, and so are new rows that do not match the condition.
        Concurrent writers are checked only if `isolation` is given: `snapshot` rejects the commit if rows that match
        the condition were deleted meanwhile, `serializable` also if such rows were added.

        >>> t.overwrite([{"id": 20, "region": "apac"}], where="region = 'apac'").rows_added
        1
        """
        target = _target(branch, stage, snapshot_properties)
        return OverwriteRows(self.refresh().context, rows, where, isolation, **target).execute()

    def overwrite_partitions(
        self,
        rows: Any,
        *,
        isolation: str | None = None,
        branch: str = "main",
        stage: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Replace every partition of the default spec that receives at least one of the rows.

        Files of older specs stay, even if they hold rows with the same values: a partition belongs to one spec. To
        replace rows whatever the spec of their files, use `overwrite` with a condition. `isolation` checks the
        replaced partitions, and otherwise works as in `overwrite`.
        """
        target = _target(branch, stage, snapshot_properties)
        return OverwritePartitions(self.refresh().context, rows, isolation, **target).execute()

    def add_files(
        self,
        source: str | Path | Sequence[str | Path],
        partition_filter: Mapping[str, Any] | None = None,
        *,
        check_duplicate_files: bool = True,
        parallelism: int | None = None,
        file_format: str | None = None,
    ) -> AddFiles:
        """Add Parquet, ORC or Avro files of another engine, which stay where they are: `.plan()` or `.execute()`.

        `source` is a folder, or a list of files. Below a folder, `region=eu/day=2026-01-01` are values of the table's
        partition fields. `partition_filter` selects folders, such as `{"region": "eu"}`. A file that is already in the
        table is an error, unless `check_duplicate_files` is false. `parallelism` is how many footers are read at once.
        `file_format` is the format of all files; without it, files ending in `.orc` and `.avro` have that format, and
        all others are Parquet files.
        """
        files = source if isinstance(source, str | Path) else tuple(source)
        return AddFiles(self.context, files, partition_filter or {}, check_duplicate_files, parallelism, file_format)

    def ingest(self, source: str | Path | Sequence[str | Path], *, file_format: str | None = None) -> Ingest:
        """Write the rows of Parquet, ORC or Avro files to the table, in its own layout: `.plan()` or `.execute()`.

        `source` is a folder, or a list of files. Columns are matched by name; folders such as `region=eu` give values
        to columns. `file_format` is the format of all files; without it, files ending in `.orc` and `.avro` have that
        format, and all others are Parquet files. The files stay as they are, and do not belong to the table.
        """
        return Ingest(self.context, source, file_format)

    def update(self) -> Update:
        """Change rows: `.set(column, expression)`, `.where(condition)`, then `.plan()`, `.explain()` or `.execute()`.

        >>> t.update().set("region", "upper(region)").where("id = 99").execute().summary
        'nothing matched'
        """
        return Update(self.context)

    def delete(self) -> Delete:
        """Delete rows: `.where(condition)`, then `.plan()`, `.explain()` or `.execute()`.

        >>> t.delete().where("id = 99").execute().summary
        'nothing matched'
        """
        return Delete(self.context)

    def merge(self, source: Any, on: str | Column, *, aliases: tuple[str, str] = ("t", "s")) -> Merge:
        """Merge rows from a source: a DataFrame, Arrow, pandas, dictionaries, the name of a table, or a query.

        Add clauses such as `.when_matched_update_all()`, then call `.plan()`, `.explain()` or `.execute()`. In `on` and
        in the clauses, the table is called `t` and the source `s`, unless `aliases` gives other names.

        >>> t.merge([{"id": 2, "region": "us"}], on="t.id = s.id").when_matched_update_all().execute().rows_updated
        1
        """
        return Merge(self.context, source=source, on=on, aliases=aliases)

    def rewrite_data_files(self) -> RewriteDataFiles:
        """Compact data files: `.where(condition)`, `.option(name, value)`, then `.plan()` or `.execute()`."""
        return RewriteDataFiles(self.context)

    def maintain(self) -> Maintain:
        """Propose maintenance, most useful steps first: `.budget(seconds=60)`, then `.plan()` or `.execute()`."""
        return Maintain(self.context)

    def rewrite_manifests(self) -> RewriteManifests:
        """Rewrite manifests that are too small, too large or overlap: `.cluster_by(field)`, then `.execute()`."""
        return RewriteManifests(self.context)

    def rewrite_position_deletes(self) -> RewritePositionDeletes:
        """Rewrite delete files to fewer files, or to deletion vectors: `.plan()` or `.execute()`.

        `.equality_deletes()` rewrites equality deletes too.
        """
        return RewritePositionDeletes(self.context)

    def remove_dangling_deletes(self) -> RemoveDanglingDeletes:
        """Remove delete files that apply to no live data file: `.plan()` lists them, `.execute()` removes them."""
        return RemoveDanglingDeletes(self.context)

    def expire_snapshots(self) -> ExpireSnapshots:
        """Remove old snapshots and files that only they use: `.older_than(time)`, then `.plan()` or `.execute()`."""
        return ExpireSnapshots(self.context)

    def remove_orphan_files(self) -> RemoveOrphanFiles:
        """Find files that no snapshot uses: `.plan()` lists them, `.dry_run(False).execute()` deletes them."""
        return RemoveOrphanFiles(self.context)

    def rewrite_table_path(self, source_prefix: str, target_prefix: str) -> RewriteTablePath:
        """Write the metadata again for another folder, and list the files to copy: `.plan()` or `.execute()`.

        Every path that begins with the folder `source_prefix` begins with `target_prefix` in the rewritten files.
        `copy_to` also copies the files.
        """
        return RewriteTablePath(self.context, source_prefix, target_prefix)

    def copy_to(self, location: str, name: str | None = None) -> CopyTable:
        """Copy the table with its history to another folder: `.plan()` or `.execute()`.

        The copy is added to the catalog as `name`, as a table of its own; without a name, the result says which
        metadata file to register elsewhere.
        """
        return CopyTable(self.context, location, name=name)

    def relocate(self, location: str | Path) -> RelocateTable:
        """Move the table with its history to another folder: `.plan()` or `.execute()`.

        The table keeps its name and its id. The files at the former location stay until you delete them.
        """
        return RelocateTable(self.context, location)

    def evolve_partitions(
        self, add: Iterable[str] = (), drop: Iterable[str] = (), rename: Mapping[str, str] | None = None
    ) -> Table:
        """Change how new files are partitioned; existing files keep the spec they were written under.

        Write fields as in Spark: `region`, `years(ts)`, `months(ts)`, `days(ts)`, `hours(ts)`, `bucket(16, id)`,
        `truncate(4, name)`, optionally with `AS name`. `drop` takes the expression or the name of a field; `rename`
        maps old names to new ones.

        >>> t.evolve_partitions(add=["bucket(4, id) AS shard"])
        Table('db.sales', v2, 2 specs)
        """
        return self._change(evolve.evolve_partitions, add, drop, rename or {})

    def evolve_schema(self, *, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> SchemaChange:
        """Change columns with PyIceberg's `UpdateSchema`, in a `with` block that is committed as one change.

        Its methods include `add_column`, `delete_column`, `rename_column`, `update_column`, `move_first`,
        `move_before`, `move_after`, `set_identifier_fields` and `union_by_name`. `allow_incompatible_changes` allows a
        column to become required, or to be added as required.

        >>> with t.evolve_schema() as change:
        ...     _ = change.update_column("region", doc="where it was sold")
        >>> t.schema.find_field("region").doc
        'where it was sold'
        """
        return SchemaChange(self.refresh().context, self.refresh, allow_incompatible_changes, case_sensitive)

    def set_properties(self, **properties: str) -> Table:
        """Set table properties; give names with dots as `**{"write.delete.mode": "merge-on-read"}`.

        `format-version` is not stored as a property: it upgrades the table.

        >>> t.set_properties(**{"write.delete.mode": "merge-on-read"}).iceberg.properties["write.delete.mode"]
        'merge-on-read'
        """
        return self._change(evolve.set_properties, properties)

    def remove_properties(self, *names: str) -> Table:
        """Remove table properties; names that are not set are ignored."""
        return self._change(evolve.remove_properties, names)

    def set_sort_order(self, *fields: str, distribution_mode: str | None = None) -> Table:
        """Change the order in which new files are sorted: `ts`, `id DESC NULLS LAST`, `bucket(16, id)`; none: unsorted.

        `distribution_mode` sets the property `write.distribution-mode` in the same commit: none, hash or range.

        >>> t.set_sort_order("region", "id DESC").iceberg.sort_order().fields[1].direction.name
        'DESC'
        """
        return self._change(evolve.set_sort_order, fields, distribution_mode)

    def set_location(self, location: str) -> Table:
        """Change where the table writes new files; existing files stay where they are."""
        return self._change(evolve.set_location, location)

    def upgrade(self, format_version: int) -> Table:
        """Move the table to a later format version. Only metadata changes, and there is no way back.

        >>> t.upgrade(format_version=3).iceberg.format_version
        3
        """
        return self._change(evolve.upgrade_format_version, format_version)

    def export_metadata(self, format_version: int = 3) -> str:
        """Write a copy of the metadata in format version 3, for engines that cannot read version 4.

        Returns the path of the new metadata file. The table itself does not change, and later commits to it do not
        appear in the copy.
        """
        return export_metadata.export_metadata(self.refresh().context, format_version)

    def create_branch(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        replace: bool = False,
        max_ref_age_ms: int | None = None,
        max_snapshot_age_ms: int | None = None,
        min_snapshots_to_keep: int | None = None,
    ) -> Table:
        """Create a branch at a snapshot, by default the current one.

        With `replace`, a branch that exists is moved there instead. The other arguments say for how long expiring
        snapshots keeps the branch, how old its snapshots may become, and how many of them stay whatever their age; what
        is not given is decided by the table's properties.

        >>> _ = t.create_branch("audit").append([{"id": 30, "region": "eu"}], branch="audit")
        >>> t.scan("id = 30", ref="audit").count(), t.scan("id = 30").count()
        (1, 0)
        """
        retention = refs.Retention(max_ref_age_ms, max_snapshot_age_ms, min_snapshots_to_keep)
        return self._change(refs.create_ref, name, snapshot_id, "branch", retention, replace)

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        replace: bool = False,
        max_ref_age_ms: int | None = None,
    ) -> Table:
        """Create a tag on a snapshot, by default the current one; `create_branch` explains the other arguments.

        >>> t.create_tag("v1").scan("id = 2", ref="v1").count()
        1
        """
        return self._change(refs.create_ref, name, snapshot_id, "tag", refs.Retention(max_ref_age_ms), replace)

    def drop_branch(self, name: str) -> Table:
        """Remove a branch; its snapshots stay until they expire."""
        return self._change(refs.drop_ref, name, "branch")

    def drop_tag(self, name: str) -> Table:
        """Remove a tag."""
        return self._change(refs.drop_ref, name, "tag")

    def rollback(self, snapshot_id: int) -> Table:
        """Make an earlier snapshot of the main branch the current one; later snapshots stay until they expire."""
        return self._change(refs.rollback_to_snapshot, snapshot_id)

    def fast_forward(self, branch: str, to: str) -> Table:
        """Move a branch to the head of another branch that contains all its snapshots.

        This publishes what was written to the other branch. A branch that does not exist yet is created.

        >>> _ = t.create_branch("review").append([{"id": 31, "region": "eu"}], branch="review")
        >>> t.fast_forward("main", "review").scan("id = 31").count()
        1
        """
        return self._change(refs.fast_forward, branch, to)

    def compute_table_stats(self, *columns: str, snapshot_id: int | None = None) -> TableStatsResult:
        """Estimate how many distinct values columns have, for the planners of engines that read Iceberg's statistics.

        By default these are all columns that are no structs, lists, maps or variants, of the current snapshot.

        >>> t.compute_table_stats("id", "region").distinct_values
        {'id': 4, 'region': 2}
        """
        return ComputeTableStats(self.refresh().context, columns, snapshot_id).execute()

    def compute_partition_stats(self, *, snapshot_id: int | None = None) -> PartitionStatsResult:
        """Write the files, rows, deletes and last change of each partition to a statistics file."""
        return ComputePartitionStats(self.refresh().context, snapshot_id).execute()

    def cherrypick_snapshot(self, snapshot_id: int) -> CherryPickResult:
        """Apply the changes of a snapshot to main: of a staged one, or of one on another branch.

        `main` moves to the snapshot if the current one is its parent. Otherwise the data files that the snapshot
        added, and the partitions that it replaced, go into a new snapshot. Only appends and overwrites of partitions
        can be applied like this; nothing is applied twice.
        """
        return CherryPickSnapshot(self.refresh().context, snapshot_id).execute()

    def publish_changes(self, wap_id: str) -> CherryPickResult:
        """Publish what was staged under an id, by `stage` or with `spark.wap.id`, as `cherrypick_snapshot` does.

        >>> staged = t.append([{"id": 41, "region": "eu"}], stage="nightly")
        >>> t.scan("id = 41").count(), t.scan("id = 41", snapshot_id=staged.snapshot_id).count()
        (0, 1)
        >>> t.publish_changes("nightly").current_snapshot_id == staged.snapshot_id
        True
        """
        return CherryPickSnapshot(self.refresh().context, wap_id=wap_id).execute()

    def set_current_snapshot(self, snapshot_id: int | None = None, *, ref: str | None = None) -> Table:
        """Make any snapshot the current one, by its id or by a branch or tag; it need not be an ancestor."""
        return self._change(refs.set_current_snapshot, snapshot_id, ref)

    def _change(self, verb: Callable[Concatenate[TableContext, P], None], *args: P.args, **kwargs: P.kwargs) -> Table:
        """Make a change on the newest state, and read the state after it."""
        verb(self.refresh().context, *args, **kwargs)
        return self.refresh()

    @property
    def inspect(self) -> Inspect:
        """The metadata of the table as Arrow tables: `.files()`, `.partitions()`, `.snapshots()` and others."""
        return Inspect(self.refresh().context)

    def verify(self, *, data: bool = True) -> Audit:
        """Check that every reachable file exists, can be read and agrees with its metadata.

        `data=False` checks only metadata.

        >>> t.verify().is_sound
        True
        """
        return verify.verify(self.refresh().context, data=data)

    def report(self, path: str | Path, where: str | BooleanExpression | None = None) -> Path:
        """Write a self-contained HTML page about the table, and return its path.

        It lists the problems of the table and what `maintain()` would do, and shows its partitions, files, deletes,
        metadata, schema and history. With `where`, it plans a compaction of the files that may match, and marks
        partitions for which the condition cannot be evaluated. Only metadata is read.
        """
        return write_report(self.refresh().context, path, where)


def _target(branch: str, stage: str | None, snapshot_properties: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the options of a write that say where its snapshot goes, and what its summary says."""
    return {"target_branch": branch, "wap_id": stage, "properties": snapshot_properties or {}}

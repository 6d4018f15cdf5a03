"""A table: the thin surface over the verbs in `neve.ops`, where each is explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

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
from neve.ops.maintenance.expire_snapshots import ExpireSnapshots
from neve.ops.maintenance.maintain import Maintain
from neve.ops.maintenance.remove_dangling_deletes import RemoveDanglingDeletes
from neve.ops.maintenance.remove_orphan_files import RemoveOrphanFiles
from neve.ops.maintenance.rewrite_data_files import RewriteDataFiles
from neve.ops.maintenance.rewrite_manifests import RewriteManifests
from neve.ops.maintenance.rewrite_position_deletes import RewritePositionDeletes
from neve.ops.metadata import evolve, export_metadata, refs
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.ops.results import WriteResult
from neve.ops.rows.delete import Delete
from neve.ops.rows.merge import Merge
from neve.ops.rows.update import Update
from neve.ops.scan import Scan
from neve.ops.write.append import AppendRows
from neve.ops.write.overwrite import OverwritePartitions, OverwriteRows
from neve.report.page import table_card, write_report


@dataclass
class Table:
    """An Iceberg table, with any number of partition specs in its past.

    Reading and writing always start from the newest state the catalog knows. What only looks answers at once; what
    changes rows or tidies up returns a builder with `.plan()`, `.explain()` and `.execute()`. How a table prints and
    its `schema` ask nothing of the catalog: they are as this object last saw the table. `refresh()` looks again.

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
        """Take the newest state from the catalog."""
        self.context = self.context.refreshed()
        return self

    @property
    def name(self) -> str:
        """The name of the table with its namespace."""
        return self.context.name

    @property
    def iceberg(self) -> IcebergTable:
        """The PyIceberg table, for everything else."""
        return self.refresh().context.iceberg

    @property
    def schema(self) -> Schema:
        """The schema as this object last saw it; `t.refresh().schema` is the newest."""
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
    ) -> Scan:
        """Read rows: `.to_spark()`, `.to_arrow()`, `.to_pandas()`, `.count()`; `.plan()` says what would be read.

        `where` is a condition in Spark SQL or a PyIceberg expression; `columns` are names, those of fields in structs
        and the metadata columns `_file`, `_pos`, `_spec_id`, `_partition_constant`, `_row_id` and
        `_last_updated_sequence_number` among them. The newest state is read, unless one of `snapshot_id`, `ref` (a
        branch or tag) and `as_of` (a datetime, or milliseconds since 1970) says which.

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
        )

    def to_spark(self) -> DataFrame:
        """The whole current table as a Spark DataFrame."""
        return self.scan().to_spark()

    def to_arrow(self) -> pa.Table:
        """The whole current table as an Arrow table."""
        return self.scan().to_arrow()

    def append(
        self, rows: Any, *, branch: str = "main", snapshot_properties: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Add rows: a Spark DataFrame, an Arrow table, a pandas DataFrame or a list of dicts.

        Columns go by name; one that is not given gets its default, or null. `branch` names the branch to add to, which
        must exist; `snapshot_properties` are written into the summary of the snapshot.

        >>> t.append([{"id": 10, "region": "us"}]).rows_added
        1
        """
        context, properties = self.refresh().context, snapshot_properties or {}
        return AppendRows(context, rows, target_branch=branch, properties=properties).execute()

    def overwrite(
        self,
        rows: Any,
        where: str | BooleanExpression | None = None,
        *,
        isolation: str | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Replace the files that lie entirely inside `where` (all files without it) by the rows given.

        A file that holds rows inside and rows outside of the condition is refused, and so are new rows outside of it.
        Nothing is checked against other writers unless `isolation` is given: `snapshot` refuses to land beside deletes
        inside the condition, `serializable` beside new rows too.

        >>> t.overwrite([{"id": 20, "region": "apac"}], where="region = 'apac'").rows_added
        1
        """
        context, properties = self.refresh().context, snapshot_properties or {}
        return OverwriteRows(context, rows, where, isolation, target_branch=branch, properties=properties).execute()

    def overwrite_partitions(
        self,
        rows: Any,
        *,
        isolation: str | None = None,
        branch: str = "main",
        snapshot_properties: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Replace every partition that the rows fall into, under the default spec.

        Files written under older specs stay, even where they hold rows of the same values: a partition belongs to one
        spec. To replace rows whatever spec their files have, use `overwrite` with a condition.
        """
        context, properties = self.refresh().context, snapshot_properties or {}
        return OverwritePartitions(context, rows, isolation, target_branch=branch, properties=properties).execute()

    def update(self) -> Update:
        """Change rows: `.set(column, expression)`, `.where(condition)`, then `.plan()`, `.explain()`, `.execute()`.

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
        """Merge rows of a source: a DataFrame, Arrow, pandas, dictionaries, a table by name, or a query.

        Clauses such as `.when_matched_update_all()` follow, then `.plan()`, `.explain()` or `.execute()`. In `on` and
        in the clauses the table is called `t` and the source `s`, unless `aliases` says otherwise.

        >>> t.merge([{"id": 2, "region": "us"}], on="t.id = s.id").when_matched_update_all().execute().rows_updated
        1
        """
        return Merge(self.context, source=source, on=on, aliases=aliases)

    def rewrite_data_files(self) -> RewriteDataFiles:
        """Compact data files: `.where(condition)`, `.option(name, value)`, then `.plan()` or `.execute()`."""
        return RewriteDataFiles(self.context)

    def maintain(self) -> Maintain:
        """See what the table needs, what pays most first: `.budget(seconds=60)`, then `.plan()` or `.execute()`."""
        return Maintain(self.context)

    def rewrite_manifests(self) -> RewriteManifests:
        """Rewrite manifests that are too small, too large or overlap: `.cluster_by(field)`, then `.execute()`."""
        return RewriteManifests(self.context)

    def rewrite_position_deletes(self) -> RewritePositionDeletes:
        """Rewrite delete files to fewer, or to vectors: `.equality_deletes()` for those too, then `.execute()`."""
        return RewritePositionDeletes(self.context)

    def remove_dangling_deletes(self) -> RemoveDanglingDeletes:
        """Remove delete files that apply to no live data file: `.plan()` says which, `.execute()` does it."""
        return RemoveDanglingDeletes(self.context)

    def expire_snapshots(self) -> ExpireSnapshots:
        """Forget old snapshots and what only they led to: `.older_than(time)`, then `.plan()` or `.execute()`."""
        return ExpireSnapshots(self.context)

    def remove_orphan_files(self) -> RemoveOrphanFiles:
        """Find files that nothing leads to: `.plan()`; `.dry_run(False).execute()` deletes them."""
        return RemoveOrphanFiles(self.context)

    def evolve_partitions(
        self, add: Iterable[str] = (), drop: Iterable[str] = (), rename: Mapping[str, str] | None = None
    ) -> Table:
        """Change how new files are partitioned; files that exist keep the spec they were written under.

        Fields are in Spark's words: `region`, `years(ts)`, `months(ts)`, `days(ts)`, `hours(ts)`, `bucket(16, id)`,
        `truncate(4, name)`, with `AS name` if you like. `drop` takes a field's words or its name; `rename` maps old
        names to new ones.

        >>> t.evolve_partitions(add=["bucket(4, id) AS shard"])
        Table('db.sales', v2, 2 specs)
        """
        evolve.evolve_partitions(self.refresh().context, add, drop, rename or {})
        return self.refresh()

    def evolve_schema(self, *, allow_incompatible_changes: bool = False, case_sensitive: bool = True) -> SchemaChange:
        """Change columns: PyIceberg's `UpdateSchema`, to be used in a `with` block, which lands as one commit.

        `allow_incompatible_changes` lets a column become required, or be added as such. What can be changed:
        `add_column`, `delete_column`, `parse_rename_column`, `update_column`, `move_first`, `move_before`, `move_after`,
        `parse_set_identifier_fields`, `union_by_name` and more.

        >>> with t.evolve_schema() as change:
        ...     _ = change.update_column("region", doc="where it was sold")
        >>> t.schema.find_field("region").doc
        'where it was sold'
        """
        return SchemaChange(self.refresh().context, self.refresh, allow_incompatible_changes, case_sensitive)

    def set_properties(self, **properties: str) -> Table:
        """Set table properties; give names with dots as `**{"write.delete.mode": "merge-on-read"}`.

        `format-version` is none that is kept: it upgrades the table.

        >>> t.set_properties(**{"write.delete.mode": "merge-on-read"}).iceberg.properties["write.delete.mode"]
        'merge-on-read'
        """
        evolve.set_properties(self.refresh().context, properties)
        return self.refresh()

    def remove_properties(self, *names: str) -> Table:
        """Remove table properties; one that is not set is left alone."""
        evolve.remove_properties(self.refresh().context, names)
        return self.refresh()

    def upgrade(self, format_version: int) -> Table:
        """Move the table to a later format version; only metadata changes, and there is no way down again.

        >>> t.upgrade(format_version=3).iceberg.format_version
        3
        """
        evolve.upgrade_format_version(self.refresh().context, format_version)
        return self.refresh()

    def export_metadata(self, format_version: int = 3) -> str:
        """Write the metadata once more as version 3 spells it, for other engines; the path of the metadata file."""
        return export_metadata.export_metadata(self.refresh().context, format_version)

    def create_branch(self, name: str, snapshot_id: int | None = None) -> Table:
        """Start a branch at a snapshot; at the current one unless said.

        >>> _ = t.create_branch("audit").append([{"id": 30, "region": "eu"}], branch="audit")
        >>> t.scan("id = 30", ref="audit").count(), t.scan("id = 30").count()
        (1, 0)
        """
        refs.create_branch(self.refresh().context, name, snapshot_id)
        return self.refresh()

    def create_tag(self, name: str, snapshot_id: int | None = None) -> Table:
        """Name a snapshot; the current one unless said.

        >>> t.create_tag("v1").scan("id = 2", ref="v1").count()
        1
        """
        refs.create_tag(self.refresh().context, name, snapshot_id)
        return self.refresh()

    def drop_branch(self, name: str) -> Table:
        """Remove a branch; its snapshots stay until they expire."""
        refs.drop_ref(self.refresh().context, name, "branch")
        return self.refresh()

    def drop_tag(self, name: str) -> Table:
        """Remove a tag."""
        refs.drop_ref(self.refresh().context, name, "tag")
        return self.refresh()

    def rollback(self, snapshot_id: int) -> Table:
        """Make an earlier snapshot of the main branch the current one; later ones stay until they expire."""
        refs.rollback_to_snapshot(self.refresh().context, snapshot_id)
        return self.refresh()

    def fast_forward(self, branch: str, to: str) -> Table:
        """Move a branch to the head of another that has all its snapshots, and so publish what was written there.

        >>> _ = t.create_branch("review").append([{"id": 31, "region": "eu"}], branch="review")
        >>> t.fast_forward("main", "review").scan("id = 31").count()
        1
        """
        refs.fast_forward(self.refresh().context, branch, to)
        return self.refresh()

    def set_current_snapshot(self, snapshot_id: int | None = None, *, ref: str | None = None) -> Table:
        """Make any snapshot the current one, by its id or by a branch or tag; it need not be an ancestor."""
        refs.set_current_snapshot(self.refresh().context, snapshot_id, ref)
        return self.refresh()

    @property
    def inspect(self) -> Inspect:
        """The metadata of the table as Arrow tables: `.files()`, `.partitions()`, `.snapshots()` and others."""
        return Inspect(self.refresh().context)

    def verify(self, *, data: bool = True) -> Audit:
        """Check that every reachable file exists, parses and agrees with its metadata; without `data` only metadata.

        >>> t.verify().is_sound
        True
        """
        return verify.verify(self.refresh().context, data=data)

    def report(self, path: str | Path, where: str | BooleanExpression | None = None) -> Path:
        """Write a page about the table that needs nothing else, and return its place.

        It tells what is wrong with the table and what `maintain()` would do, and shows its partitions, files, deletes,
        metadata, schema and past. With `where`, a compaction of the files that may match is planned, and partitions the
        condition cannot be judged for are marked. Only metadata is read.
        """
        return write_report(self.refresh().context, path, where)

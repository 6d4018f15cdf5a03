"""A lake: a catalog of tables, and the Spark session that reads and writes them.

>>> lake = connect("my-lake")
>>> lake
Lake('my-lake')
>>> lake.create_table("db.events", "id bigint, ts timestamp", partition_by=["days(ts)"])
Table('db.events', v2, 1 spec)
>>> lake.tables()
['db.events']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.view import View
from pyspark.sql import SparkSession

from neve.catalog import (
    EmbeddedCatalog,
    NeveCatalog,
    list_views,
    load_view,
    open_catalog,
    register_table,
    rename_table,
)
from neve.catalog.entries import leave_note
from neve.commit.environment import Environment
from neve.errors import UserError
from neve.ops.context import LakeContext, SqlSession
from neve.ops.events import Step, emit
from neve.ops.metadata.create_table import SchemaLike, create_table
from neve.ops.metadata.drop_table import DropResult, drop_table
from neve.ops.write.snapshot_delta import snapshot_delta
from neve.ops.write.snapshot_folder import snapshot_folder
from neve.run.spark.session import resolve_session
from neve.sql import run as run_sql
from neve.table import Table


def connect(
    path: str | Path = "lake",
    *,
    catalog: str | Catalog | None = None,
    spark: SparkSession | None = None,
    schemes: Mapping[str, str] | None = None,
    environment: Environment | None = None,
    **properties: str,
) -> Lake:
    """Open a lake.

    By default it is the folder `./lake` with an embedded SQLite catalog, created if it does not exist. `catalog` is the
    name of a catalog in PyIceberg's configuration, or a PyIceberg catalog object. `properties` add to the configuration
    of the catalog and its storage.

    `spark` is your own session; without it, a local session starts when it is first needed. `schemes` selects the Spark
    connector that reads the files of a table, such as `{"s3": "s3a"}`; files without a Spark connector are read through
    PyIceberg's FileIO. `environment` gives commits another clock, or an observer of their phases.
    """
    if not isinstance(path, str | Path):
        raise UserError(f"Give the folder of a lake as text or a path, not as {type(path).__name__}.")
    opened = open_catalog(Path(path) if catalog is None else catalog, **properties)
    return Lake(opened, spark, dict(schemes or {}), environment or Environment())


@dataclass
class Lake:
    """A catalog of tables, opened by `neve.connect`."""

    catalog: NeveCatalog
    given_spark: SparkSession | None = field(default=None, repr=False)
    schemes: Mapping[str, str] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment, repr=False)  # clock and observer of commits
    session: SqlSession = field(default_factory=SqlSession, repr=False)  # what USE and CREATE TEMPORARY VIEW have set

    def __repr__(self) -> str:
        if not isinstance(self.catalog, EmbeddedCatalog):
            return f"Lake(catalog={self.catalog.name!r})"
        folder, current = Path(self.catalog.properties["warehouse"].removeprefix("file://")), Path.cwd()
        return f"Lake({str(folder.relative_to(current) if folder.is_relative_to(current) else folder)!r})"

    def spark(self) -> SparkSession:
        """Return the Spark session in use; if none was given, start a local one on first use."""
        if self.given_spark is not None or SparkSession.getActiveSession() is not None:
            return resolve_session(self.given_spark)
        emit(Step("start Spark"))
        started = resolve_session()
        emit(Step("start Spark", 1, 1))
        return started

    def time_zone(self) -> str:
        """Return the time zone in which conditions are read: that of the running Spark session, else UTC."""
        running = self._running_spark()
        return "UTC" if running is None else str(running.conf.get("spark.sql.session.timeZone"))

    @property
    def context(self) -> LakeContext:
        """The catalog and the session as one value, for SQL statements and other operations on several tables."""
        return LakeContext(
            self.catalog, self.spark, self._running_spark, self.schemes, self.time_zone, self.environment, self.session
        )

    def _running_spark(self) -> SparkSession | None:
        return self.given_spark or SparkSession.getActiveSession()

    def create_table(
        self,
        name: str | tuple[str, ...],
        schema: SchemaLike,
        partition_by: Iterable[str] | PartitionSpec = (),
        *,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        location: str | None = None,
        format_version: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create a table.

        The schema is a PyIceberg or Arrow schema, a Spark StructType or DDL text. Write partition fields as in Spark:
        `region`, `days(ts)`, `bucket(16, id)`, `truncate(4, name)`. The format version is 1 to 4, and 2 by default.
        """
        created = create_table(
            self.context,
            name,
            schema,
            partition_by,
            sort_order=sort_order,
            location=location,
            format_version=format_version,
            properties=properties,
        )
        return Table(created)

    def table(self, name: str | tuple[str, ...]) -> Table:
        """Return a table by name; the error for an unknown name suggests the nearest names."""
        return Table(self.context.table(name))

    def tables(self, namespace: str | None = None) -> list[str]:
        """List the names of all tables, or of the tables in one namespace."""
        return self.context.table_names(namespace)

    def views(self, namespace: str | None = None) -> list[str]:
        """List the names of all views that the catalog keeps, or of those in one namespace."""
        return [".".join(name) for name in list_views(self.catalog, namespace)]

    def view(self, name: str | tuple[str, ...]) -> View:
        """Return a view by name, as PyIceberg's class: its columns, its query in each dialect, and its history.

        `sql` creates and changes views, with `CREATE VIEW …`.
        """
        return load_view(self.catalog, name).to_pyiceberg()

    def drop_table(
        self, name: str | tuple[str, ...], *, purge: bool = False, allow_unreadable: bool = False
    ) -> DropResult:
        """Remove a table from the catalog; its files stay, unless `purge` deletes them.

        A purge is rejected if another entry of the catalog cannot be read and may need the files, unless that is
        allowed with `allow_unreadable`.
        """
        return drop_table(self.catalog, name, purge=purge, allow_unreadable=allow_unreadable)

    def rename_table(self, name: str | tuple[str, ...], new_name: str | tuple[str, ...]) -> Table:
        """Rename a table; its files stay where they are."""
        return Table(self.context.of_table(rename_table(self.catalog, name, new_name)))

    def register_table(self, name: str | tuple[str, ...], metadata_location: str) -> Table:
        """Add a table that another engine wrote to this catalog, by the path of its metadata file."""
        registered = register_table(self.catalog, name, metadata_location)
        leave_note(self.catalog, registered)
        return Table(self.context.of_table(registered))

    def snapshot_folder(
        self,
        source: str | Path,
        name: str | tuple[str, ...],
        *,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        file_format: str = "parquet",
    ) -> Table:
        """Make a table of the Parquet, ORC or Avro files in a folder; they stay where they are, and are never deleted.

        Folders such as `day=2026-01-01` become identity partition fields. New data goes to the table's own location.
        """
        created, _ = snapshot_folder(
            self.context, source, name, location=location, properties=properties, file_format=file_format
        )
        return Table(created)

    def migrate_folder(
        self,
        source: str | Path,
        name: str | tuple[str, ...],
        *,
        properties: Mapping[str, str] | None = None,
        file_format: str = "parquet",
    ) -> Table:
        """Make the Parquet, ORC or Avro files in a folder a table, in this folder; they belong to the table then.

        As `snapshot_folder`, but new data goes to the folder too, and files that the table has replaced are deleted
        when their snapshots expire. Nothing else may write to the folder, or read it as plain files, from then on.
        """
        created, _ = snapshot_folder(
            self.context, source, name, properties=properties, file_format=file_format, takes_over=True
        )
        return Table(created)

    def snapshot_delta(
        self,
        source: str | Path,
        name: str | tuple[str, ...],
        *,
        version: int | None = None,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table of a version of a Delta table, by default the newest; its files stay, and are never deleted.

        Rows that Delta's deletion vectors delete are deleted here too. Needs `pip install 'neve[delta]'`, and no Spark.
        """
        created, _ = snapshot_delta(
            self.context, source, name, version=version, location=location, properties=properties
        )
        return Table(created)

    def sql(
        self,
        text: str,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        restricted: bool = False,
        **options: Any,
    ) -> Any:
        """Run one SQL statement over the tables of the lake.

        A query, SHOW and DESCRIBE return a Spark DataFrame; UPDATE, DELETE, MERGE, INSERT and CALL return what they
        did; CREATE TABLE and ALTER TABLE return the table. Statements that change rows take the settings of the
        builders as options: `mode`, `isolation`, `branch`, `reruns`, `snapshot_properties`.

        `args` are values for parameters: a dict for `:name`, or a list for `?`.

        Spark SQL reads files by path, calls Java methods and runs programs. With `restricted`, for text from somebody
        else, only queries, SHOW and DESCRIBE run, and they read nothing but tables of the lake.
        """
        return run_sql(self.context, text, args=args, restricted=restricted, **options)

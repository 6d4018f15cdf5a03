"""What Spark is told where it plans: schemas, tasks, writers.

| Spark's words                    | what happens                                                          |
|----------------------------------|-----------------------------------------------------------------------|
| `read…load("db.t")`              | a scan of one snapshot, chosen by Iceberg's options                   |
| `write…mode("append").save()`    | one append                                                            |
| `write…mode("overwrite").save()` | one overwrite: of all, of `overwrite-where`, of the partitions met    |
| `writeStream…start("db.t")`      | a commit for every epoch, each once                                   |
| `readStream…load("db.t")`        | the rows of appended snapshots                                        |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import types as sp

from neve.run.spark.types import spark_schema
from neve.source.batch_read import FilteringReader, TableRead, TableReader
from neve.source.batch_write import TableWrite
from neve.source.connection import Connection, HasCatalog
from neve.source.data_source import NeveSource
from neve.source.options import ReadOptions, StreamReadOptions, TableOptions, WriteOptions
from neve.source.streaming_read import TableStream, TableStreamReader
from neve.source.streaming_write import TableSink
from neve.source.workers import PinnedState, SealedValue, TableWriter

Options = Mapping[str, str]


@dataclass(frozen=True)
class Planner:
    """The answers to Spark, for tables that are looked for at one place unless a query names another."""

    default_connection: Connection

    def pin(self, options: Options) -> PinnedState:
        """The state of a table that a read with these options means now."""
        if StreamReadOptions.are_for_streaming(options):
            stream = self._stream(options, None)
            return PinnedState(stream.latest_snapshot_id(), stream.schema_id)
        return self._read(options, None).pin

    def schema(self, options: Options, pin: PinnedState) -> sp.StructType:
        """The columns of the table in that state."""
        context = self._table(options).context()
        return spark_schema(context.metadata.schema_by_id(pin.schema_id) or context.metadata.schema())

    def reader(self, options: Options, pin: PinnedState | None, schema: sp.StructType) -> TableReader:
        """A batch read."""
        read = self._read(options, pin)
        return (FilteringReader if read.options.pushes_filters else TableReader)(read, schema)

    def writer(self, options: Options, schema: sp.StructType, overwrite: bool) -> TableWriter:
        """A batch write."""
        said = WriteOptions.of(options, overwrite=overwrite)
        write = TableWrite.of(self._table(options), said, schema, overwrite)
        return TableWriter(write.files, SealedValue.of(write))

    def stream_reader(self, options: Options, pin: PinnedState | None, schema: sp.StructType) -> TableStreamReader:
        """A streaming read."""
        return TableStreamReader(self._stream(options, pin), schema)

    def stream_writer(self, options: Options, schema: sp.StructType, overwrite: bool) -> TableSink:
        """A streaming write."""
        said = WriteOptions.of(options, overwrite=overwrite, is_stream=True)
        return TableSink(TableWrite.of(self._table(options), said, schema, overwrite))

    def _table(self, options: Options) -> TableOptions:
        return TableOptions.of(options, self.default_connection)

    def _read(self, options: Options, pin: PinnedState | None) -> TableRead:
        return TableRead.of(self._table(options), ReadOptions.of(options), pin)

    def _stream(self, options: Options, pin: PinnedState | None) -> TableStream:
        return TableStream.of(self._table(options), StreamReadOptions.of(options), pin)


def register(spark: SparkSession, lake: HasCatalog | str | Path | None = None) -> None:
    """Make the format `neve` known to a Spark session, classic or Connect.

    `lake` is where tables are looked for when a query does not say: a lake, with the credentials of its catalog, or a
    lake folder. They travel with the source, not in the options of a query, which Spark shows. Times in conditions are
    read on the clock that the session has now.
    """
    spark.dataSource.register(data_source_class(Connection.of(lake, str(spark.conf.get("spark.sql.session.timeZone")))))


def data_source_class(default_connection: Connection) -> type[NeveSource]:
    """The source as it is registered: tables are looked for at home, unless a query names another place."""
    return type("NeveSource", (NeveSource,), {"planner": SealedValue.of(Planner(default_connection))})

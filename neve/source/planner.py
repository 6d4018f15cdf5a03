"""Plan reads and writes for Spark: schemas, readers and writers.

| Spark call                       | what happens                                                                |
|----------------------------------|-----------------------------------------------------------------------------|
| `read…load("db.t")`              | a scan of one snapshot, selected by Iceberg's options                       |
| `write…mode("append").save()`    | one append                                                                  |
| `write…mode("overwrite").save()` | one overwrite: of all rows, of `overwrite-where`, or of the rows' partitions |
| `writeStream…start("db.t")`      | one commit for every epoch                                                  |
| `readStream…load("db.t")`        | the rows of appended snapshots                                              |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import types as sp

from neve.run.spark.types import spark_schema
from neve.source.batch_read import FilteringReader, TableRead, TableReader
from neve.source.batch_write import TableWrite
from neve.source.connection import Connection, HasCatalog
from neve.source.options import Options, ReadOptions, StreamReadOptions, TableOptions, WriteOptions
from neve.source.streaming import TableSink, TableStream, TableStreamReader
from neve.source.workers import NeveSource, PinnedState, SealedValue, TableWriter


@dataclass(frozen=True)
class Planner:
    """Plans reads and writes; the default connection is used unless a query names a lake or catalog."""

    default_connection: Connection

    def pin(self, options: Options) -> PinnedState:
        """Return the state of the table that a read with these options selects now."""
        if StreamReadOptions.are_for_streaming(options):
            stream = self._stream(options, None)
            return PinnedState(stream.latest_snapshot_id(), stream.schema_id)
        return self._read(options, None).pin

    def schema(self, options: Options, pin: PinnedState) -> sp.StructType:
        """Return the columns of the table in the pinned state."""
        context = self._table(options).context()
        return spark_schema(context.metadata.schema_by_id(pin.schema_id) or context.metadata.schema())

    def reader(self, options: Options, pin: PinnedState | None, schema: sp.StructType) -> TableReader:
        """Plan a batch read."""
        read = self._read(options, pin)
        return (FilteringReader if read.options.pushes_filters else TableReader)(read, schema)

    def writer(self, options: Options, schema: sp.StructType, overwrite: bool) -> TableWriter:
        """Plan a batch write."""
        write_options = WriteOptions.of(options, overwrite=overwrite)
        write = TableWrite.of(self._table(options), write_options, schema, overwrite)
        return TableWriter(write.files, SealedValue.of(write))

    def stream_reader(self, options: Options, pin: PinnedState | None, schema: sp.StructType) -> TableStreamReader:
        """Plan a streaming read."""
        return TableStreamReader(self._stream(options, pin), schema)

    def stream_writer(self, options: Options, schema: sp.StructType, overwrite: bool) -> TableSink:
        """Plan a streaming write."""
        write_options = WriteOptions.of(options, overwrite=overwrite, is_stream=True)
        return TableSink(TableWrite.of(self._table(options), write_options, schema, overwrite))

    def _table(self, options: Options) -> TableOptions:
        return TableOptions.of(options, self.default_connection)

    def _read(self, options: Options, pin: PinnedState | None) -> TableRead:
        return TableRead.of(self._table(options), ReadOptions.of(options), pin)

    def _stream(self, options: Options, pin: PinnedState | None) -> TableStream:
        return TableStream.of(self._table(options), StreamReadOptions.of(options), pin)


def register(spark: SparkSession, lake: HasCatalog | str | Path | None = None) -> None:
    """Register the format `neve` in a Spark session, classic or Connect.

    `lake` is used if a query does not name a lake or catalog: a lake, with the credentials of its catalog, or a lake
    folder. Credentials are stored in the source, not in the options of a query, which Spark shows. Times in conditions
    use the time zone that the session has now.
    """
    spark.dataSource.register(data_source_class(Connection.of(lake, str(spark.conf.get("spark.sql.session.timeZone")))))


def data_source_class(default_connection: Connection) -> type[NeveSource]:
    """Create the data source class to register, with a default connection."""
    return type("NeveSource", (NeveSource,), {"planner": SealedValue.of(Planner(default_connection))})

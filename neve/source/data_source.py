"""The format `neve`: the class from which Spark gets schemas, readers and writers.

Workers that only read or write rows load this class too, so the planner is sealed in it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql import types as sp
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from neve.source.workers import PinnedState, SealedValue


class NeveSource(DataSource):
    """Iceberg tables as a source and sink of Spark. `register` creates a subclass with a planner."""

    planner: ClassVar[SealedValue[Any]]  # a Planner; its module loads too much for workers that only read or write rows
    _pin: PinnedState | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "neve"

    def schema(self) -> sp.StructType:
        """Return the columns of the table, and pin the state of the table for the reads that follow."""
        planner = self.planner.open()
        self._pin = planner.pin(self.options)
        return planner.schema(self.options, self._pin)

    def reader(self, schema: sp.StructType) -> DataSourceReader:
        """Return the reader of a batch read."""
        return self.planner.open().reader(self.options, self._pin, schema)

    def writer(self, schema: sp.StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write."""
        return self.planner.open().writer(self.options, schema, overwrite)

    def streamReader(self, schema: sp.StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a streaming read."""
        return self.planner.open().stream_reader(self.options, self._pin, schema)

    def streamWriter(self, schema: sp.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a streaming write; it overwrites in mode complete."""
        return self.planner.open().stream_writer(self.options, schema, overwrite)

"""The format `neve`: what Spark asks for schemas, readers and writers.

Also the workers that only read or write rows load this class, so what plans and commits is sealed in it.
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
    """Iceberg tables as a source and sink of Spark; `register` makes a class of it that knows its planner."""

    planner: ClassVar[SealedValue[Any]]  # a Planner; its module loads too much for workers that only read or write rows
    _pin: PinnedState | None = None

    @classmethod
    def name(cls) -> str:
        """What the format is called."""
        return "neve"

    def schema(self) -> sp.StructType:
        """The columns of the table; from here on the source means the state it found."""
        planner = self.planner.open()
        self._pin = planner.pin(self.options)
        return planner.schema(self.options, self._pin)

    def reader(self, schema: sp.StructType) -> DataSourceReader:
        """A batch read."""
        return self.planner.open().reader(self.options, self._pin, schema)

    def writer(self, schema: sp.StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        return self.planner.open().writer(self.options, schema, overwrite)

    def streamReader(self, schema: sp.StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        return self.planner.open().stream_reader(self.options, self._pin, schema)

    def streamWriter(self, schema: sp.StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A streaming write; it overwrites in mode complete."""
        return self.planner.open().stream_writer(self.options, schema, overwrite)

"""The format `neve`, and the readers and writers of rows that run beside the executors.

This module must stay fast to load. A worker loads the modules of every value it receives, and there are many workers.
So nothing here plans or commits; values that do are sent sealed, as `SealedValue`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as sp
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from neve.errors import UserError
from neve.model.partition import Specs
from neve.run.read.scan import ScanReader
from neve.run.spark.arrow_exchange import from_ipc, to_ipc
from neve.run.write.data_files import data_file_entries, write_batches
from neve.run.write.partitioning import FileNames
from neve.run.write.target import WriteTarget
from neve.tree.entries import EntryTable

T = TypeVar("T")

_QUERY_ID = "sql.streaming.queryId"  # a local property that Spark sets for the tasks of a streaming query


class PinnedState(NamedTuple):
    """The state of a table that a DataFrame reads. Later commits do not change it."""

    snapshot_id: int | None  # None: the table had no snapshot
    schema_id: int


@dataclass(frozen=True)
class SealedValue(Generic[T]):
    """A pickled value. It is loaded, with the modules it needs, only where it is opened."""

    data: bytes

    def __repr__(self) -> str:
        return "Sealed()"  # it may hold credentials

    @classmethod
    def of(cls, value: T) -> SealedValue[T]:
        """Seal a value."""
        return cls(pickle.dumps(value))

    def open(self) -> T:
        """Load the value."""
        return pickle.loads(self.data)  # noqa: S301


@dataclass(frozen=True)
class RowReader:
    """Reads groups of data files, with the columns in Spark's order."""

    reading: ScanReader
    column_names: tuple[str, ...]

    def batches(self, tasks: bytes) -> Iterator[pa.RecordBatch]:
        """Read the rows of one group."""
        return (batch.select(self.column_names) for batch in self.reading.batches(from_ipc(tasks)))


class ExecutorReader(DataSourceReader):
    """The part of the batch reader that executors use."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of one group; Spark passes None if there are no groups."""
        return iter(()) if partition is None else self._rows.batches(partition.value)


class ExecutorStreamReader(DataSourceStreamReader):
    """The part of the streaming reader that executors use. A task contains its reader, since the table changes."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one group."""
        rows, tasks = partition.value
        return rows.batches(tasks)


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """The result of one task: its files as rows of an entry table, or the reason why it wrote none."""

    files: bytes
    specs: Specs
    query_id: str | None = None  # of the streaming query, if there is one
    problem: str | None = None
    table_id: str = ""  # identity of the table that the files belong to

    def entries(self) -> EntryTable:
        """Return the files of the task."""
        return EntryTable(from_ipc(self.files), self.specs)


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of tasks to data files."""

    target: WriteTarget
    write_id: str
    table_id: str = ""

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the files of one task attempt."""
        task = TaskContext.get()
        number, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
        query_id = task.getLocalProperty(_QUERY_ID) if task else None
        names = FileNames(number, attempt, self.write_id)
        try:
            files, problem = write_batches(batches, self.target, names, is_clustered=False), None
        except UserError as e:  # Spark would retry a failed task in vain
            files, problem = [], str(e)
        entries = to_ipc(data_file_entries(files, self.target))
        return TaskCommitMessage(entries, self.target.specs, query_id, problem, self.table_id)


class TableWriter(DataSourceArrowWriter):
    """The batch writer: executors write, and the driver opens the sealed change and commits it."""

    def __init__(self, files: FileWriter, change: SealedValue[Any]) -> None:
        self._files, self._change = files, change

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return self._files.write(iterator)

    def commit(self, messages: Sequence[TaskCommitMessage | None]) -> None:  # type: ignore[override]
        """Commit the files of all tasks."""
        self._change.open().commit(messages)

    def abort(self, messages: Sequence[TaskCommitMessage | None]) -> None:  # type: ignore[override]
        """Delete the files of the other tasks if a task failed."""
        self._change.open().abort(messages)


class ExecutorStreamWriter(DataSourceStreamArrowWriter):
    """The part of the streaming writer that executors use."""

    def __init__(self, files: FileWriter) -> None:
        self._files = files

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return self._files.write(iterator)


class NeveSource(DataSource):
    """Iceberg tables as a source and sink of Spark. `register` creates a subclass with a planner, which is sealed."""

    planner: ClassVar[SealedValue[Any]]  # a Planner
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

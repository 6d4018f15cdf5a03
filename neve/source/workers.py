"""What runs beside the executors: readers and writers of rows, light to load.

A worker loads the modules of every value it is sent, and there are many workers. So nothing here plans or commits, and
what does travels past them sealed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
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

_QUERY_ID = "sql.streaming.queryId"  # what Spark tells the tasks of a streaming query


class PinnedState(NamedTuple):
    """The state of a table that a DataFrame reads, whatever is committed after the DataFrame was made."""

    snapshot_id: int | None  # None: nobody had written to the table
    schema_id: int


@dataclass(frozen=True)
class SealedValue(Generic[T]):
    """A value that is carried along and loaded, with the modules it needs, only where it is opened."""

    data: bytes

    def __repr__(self) -> str:
        return "Sealed()"  # it may hold credentials

    @classmethod
    def of(cls, value: T) -> SealedValue[T]:
        """A value, sealed."""
        return cls(pickle.dumps(value))

    def open(self) -> T:
        """The value."""
        return pickle.loads(self.data)  # noqa: S301


@dataclass(frozen=True)
class RowReader:
    """How groups of data files are read, and in which order Spark counts the columns."""

    reading: ScanReader
    column_names: tuple[str, ...]

    def batches(self, tasks: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of one group."""
        return (batch.select(self.column_names) for batch in self.reading.batches(from_ipc(tasks)))


class ExecutorReader(DataSourceReader):
    """The batch reader as executors have it."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one group; Spark asks for nothing (None) when there are no groups."""
        return iter(()) if partition is None else self._rows.batches(partition.value)


class ExecutorStreamReader(DataSourceStreamReader):
    """The streaming reader as executors have it. A task brings its reader, since the table changes while it runs."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group."""
        rows, tasks = partition.value
        return rows.batches(tasks)


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """What one task wrote: its files as rows of an entry table, or why it wrote none."""

    files: bytes
    specs: Specs
    query_id: str | None = None  # of the streaming query, where there is one
    problem: str | None = None
    table_id: str = ""  # the table it was written for

    def entries(self) -> EntryTable:
        """The files of the task."""
        return EntryTable(from_ipc(self.files), self.specs)


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of tasks to data files."""

    target: WriteTarget
    write_id: str
    table_id: str = ""

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommitMessage:
        """The files of one task attempt."""
        task = TaskContext.get()
        number, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
        query_id = task.getLocalProperty(_QUERY_ID) if task else None
        names = FileNames(number, attempt, self.write_id)
        try:
            files, problem = write_batches(batches, self.target, names, is_clustered=False), None
        except UserError as e:  # Spark would repeat the task in vain
            files, problem = [], str(e)
        return TaskCommitMessage(
            to_ipc(data_file_entries(files, self.target)), self.target.specs, query_id, problem, self.table_id
        )


class TableWriter(DataSourceArrowWriter):
    """The batch writer: executors write, the driver opens what is sealed and commits."""

    def __init__(self, files: FileWriter, change: SealedValue[Any]) -> None:
        self._files, self._change = files, change

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return self._files.write(iterator)

    def commit(self, messages: Sequence[TaskCommitMessage | None]) -> None:  # type: ignore[override]
        """Commit the files of all tasks."""
        self._change.open().commit(messages)

    def abort(self, messages: Sequence[TaskCommitMessage | None]) -> None:  # type: ignore[override]
        """Delete the files of tasks when another task failed."""
        self._change.open().abort(messages)


class ExecutorStreamWriter(DataSourceStreamArrowWriter):
    """The streaming writer as executors have it."""

    def __init__(self, files: FileWriter) -> None:
        self._files = files

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Write the rows of one task."""
        return self._files.write(iterator)

"""What Spark does with a Python data source, step by step and without Spark.

Every value goes through the serialiser whenever Spark would send it to another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict, Filter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from neve.source.connection import Connection
from neve.source.planner import data_source_class
from neve.source.workers import NeveSource, TaskCommitMessage

T = TypeVar("T")


def travelled(value: T) -> T:
    """A value as another process gets it."""
    pickler = CloudPickleSerializer()
    return pickler.loads(pickler.dumps(value))


def source(folder: Path, name: str = "db.t", **options: str) -> NeveSource:
    """The source as Spark makes it; option names have `_` for `-`."""
    kind = data_source_class(Connection(folder=str(folder)))
    said = {key.replace("_", "-"): value for key, value in options.items()}
    return travelled(kind)(options=CaseInsensitiveDict({"path": name, **said}))


def rows(*ids: int) -> pa.Table:
    """Rows of one region."""
    return pa.table({"id": pa.array(ids, pa.int64()), "region": pa.array(["eu"] * len(ids))})


class Frame:
    """A DataFrame of the source: its schema is known, nothing has been read."""

    def __init__(self, made: NeveSource, schema: StructType | None = None) -> None:
        self.schema = made.schema() if schema is None else schema
        self.source = travelled(made)

    def rows(self, filters: Sequence[Filter] | None = None) -> pa.Table:
        """All rows the workers hand to Spark."""
        reader = self.source.reader(self.schema)
        if filters is not None:
            assert list(reader.pushFilters(list(filters))) == list(filters), "Spark applies every filter again"
        worker = travelled(reader)
        batches = [b for p in reader.partitions() or [None] for b in worker.read(travelled(p))]
        return pa.Table.from_batches(batches) if batches else empty(self.schema)


def empty(schema: StructType) -> pa.Table:
    return to_arrow_schema(schema).empty_table()


def read(folder: Path, name: str = "db.t", filters: Sequence[Filter] | None = None, **options: str) -> pa.Table:
    """A table read through the source."""
    return Frame(source(folder, name, **options)).rows(filters)


def task(writer: Any, rows: pa.Table) -> TaskCommitMessage:
    """What a task answers. Its number, which Spark would give it, goes into the name of the write."""
    worker = travelled(writer)
    worker._files = replace(worker._files, write_id=str(uuid4()))
    return travelled(worker.write(iter(rows.to_batches())))


def write(
    folder: Path, *tasks: pa.Table, name: str = "db.t", overwrite: bool = False, stops: bool = False, **options: str
) -> list[TaskCommitMessage]:
    """A batch write, a task for each table of rows; with `stops` the answer of the last task never arrives."""
    schema = from_arrow_schema(tasks[0].schema, prefer_timestamp_ntz=True)
    writer = source(folder, name, **options).writer(schema, overwrite)
    messages: list[Any] = [task(writer, t) for t in tasks]
    if stops:
        travelled(writer).abort([*messages[:-1], None])
        return messages
    try:
        travelled(writer).commit(messages)
    except Exception:
        travelled(writer).abort(messages)
        raise
    return messages


class Query:
    """A streaming query into a table. A new one of the same id is the query after a restart."""

    def __init__(
        self, folder: Path, query_id: str = "q", *, name: str = "db.t", complete: bool = False, **options: str
    ) -> None:
        self.made = source(folder, name, checkpointLocation="/cp", **options)
        self.query_id, self.complete = query_id, complete

    def written(self, *tasks: pa.Table) -> list[TaskCommitMessage]:
        """What the tasks of an epoch answer."""
        writer = self.made.streamWriter(self.schema(tasks[0]), self.complete)
        answers = [task(writer, t) for t in tasks]
        return [replace(a, query_id=self.query_id) for a in answers]

    def epoch(self, number: int, *tasks: pa.Table, messages: list[TaskCommitMessage] | None = None) -> None:
        """One epoch, from its rows to its commit."""
        answers = self.written(*tasks) if messages is None else messages
        writer = travelled(self.made).streamWriter(self.schema(tasks[0]), self.complete)
        writer.commit(travelled(answers), number)

    @staticmethod
    def schema(rows: pa.Table) -> StructType:
        return from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)

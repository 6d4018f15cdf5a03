"""Read the footers of files to be added: of a few in this process, of many in tasks of Spark.

A task returns what its footers say as Arrow columns, so that the driver holds no object for each file or column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from neve.errors import TableError, UserError
from neve.io.parallel import map_in_threads, reader_count
from neve.run.foreign_files import ForeignFileReader, describe_files
from neve.run.spark.arrow_exchange import from_ipc, map_in_arrow, to_ipc
from neve.run.spark.writing_job import PROBLEMS
from neve.tree.entries import EntryTable

MAX_FILES_IN_PROCESS = 512
_FILES_PER_TASK = 512
_OUTPUT_DDL = "first long, rows binary, problem string, is_input boolean"
_OUTPUT_SCHEMA = pa.schema(
    [("first", pa.int64()), ("rows", pa.binary()), ("problem", pa.string()), ("is_input", pa.bool_())]
)


def read_footers(
    files: EntryTable, reader: ForeignFileReader, spark: Callable[[], SparkSession], parallelism: int | None = None
) -> pa.Table:
    """Return what the footers of files say, in the order of the files; `parallelism` files are read at once."""
    if len(files) > MAX_FILES_IN_PROCESS:
        return _read_in_tasks(files, reader, spark(), parallelism)
    paths, sizes, formats = (files[n].to_pylist() for n in ("file_path", "file_size_in_bytes", "file_format"))
    threads = parallelism or reader_count(reader.facts.io(), paths, 0)
    return describe_files(
        reader,
        list(zip(paths, sizes, formats, strict=True)),
        lambda describe, named: map_in_threads(describe, named, threads),
    )


def _read_in_tasks(
    files: EntryTable, reader: ForeignFileReader, spark: SparkSession, parallelism: int | None
) -> pa.Table:
    """Read the footers in a Spark job: each row of its input is a run of files, which stays in order."""
    runs = max(-(-len(files) // _FILES_PER_TASK), parallelism or 1)
    size = -(-len(files) // runs)
    named = files.columns.select(["file_path", "file_size_in_bytes", "file_format"])
    named = named.set_column(2, "file_format", named["file_format"].cast(pa.string()))
    starts = range(0, len(files), size)
    tasks = pa.table({"first": [*starts], "files": [to_ipc(named.slice(start, size)) for start in starts]})
    frame = spark.createDataFrame(tasks).repartition(len(starts), "first")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for first, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield _read_run(reader, first, from_ipc(data))

    rows = map_in_arrow(frame, read, _OUTPUT_DDL).collect()
    if failed := min((row for row in rows if row.problem is not None), key=lambda row: row.first, default=None):
        raise (UserError if failed.is_input else TableError)(failed.problem)
    parts = [from_ipc(row.rows) for row in sorted(rows, key=lambda row: row.first)]
    return pa.concat_tables(parts).combine_chunks()


def _read_run(reader: ForeignFileReader, first: int, files: pa.Table) -> pa.RecordBatch:
    named: Sequence[tuple[str, int | None, str]] = list(zip(*(c.to_pylist() for c in files.columns), strict=True))
    output: dict[str, object] = {"first": first}
    try:
        output["rows"] = to_ipc(describe_files(reader, named, map))
    except PROBLEMS as e:  # another attempt of the task would not help
        output |= {"problem": str(e), "is_input": isinstance(e, UserError)}
    return pa.RecordBatch.from_pylist([output], schema=_OUTPUT_SCHEMA)

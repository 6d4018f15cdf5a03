"""The shapes of data files, looked up in their footers: by the driver while they are few, else by a Spark job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from neve.run.facts import TableFacts
from neve.run.shapes import Shape, shapes_of
from neve.run.spark.mapped import mapped
from neve.tree.entries import EntryTable

__all__ = ["shapes"]

_ON_DRIVER = 64
_PER_TASK = 256
_FOUND = "path string, size long, ids array<int>"

_REMEMBERED = 1 << 18
_known: dict[tuple[str, int], Shape] = {}  # a data file never changes: its footer is read once in a process


def shapes(spark: SparkSession, files: EntryTable, facts: TableFacts) -> list[Shape]:
    """The field ids each file carries; empty for a file without any."""
    wanted = list(zip(files["file_path"].to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True))
    new = [file for file in dict.fromkeys(wanted) if file not in _known]
    found = shapes_of(facts.io(), new) if len(new) <= _ON_DRIVER else _on_executors(spark, new, facts)
    _known.update(zip(new, found, strict=True))
    answer = [_known[file] for file in wanted]
    if len(_known) > _REMEMBERED:
        _known.clear()
    return answer


def _on_executors(spark: SparkSession, files: list[tuple[str, int]], facts: TableFacts) -> list[Shape]:
    tasks = spark.createDataFrame(pa.table({"path": [p for p, _ in files], "size": [s for _, s in files]}))
    parts = tasks.repartition(-(-len(files) // _PER_TASK))
    found = mapped(parts, partial(_shapes_of, facts), _FOUND).toArrow()
    keys = zip(found["path"].to_pylist(), found["size"].to_pylist(), strict=True)
    by_file = dict(zip(keys, map(frozenset, found["ids"].to_pylist()), strict=True))
    return [by_file[file] for file in files]


def _shapes_of(facts: TableFacts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    io = facts.io()
    for batch in batches:
        files = list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        ids = pa.array([sorted(shape) for shape in shapes_of(io, files)], pa.list_(pa.int32()))
        yield pa.record_batch([batch.column(0), batch.column(1), ids], ["path", "size", "ids"])

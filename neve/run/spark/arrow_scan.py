"""Data files read by Python on Spark's executors: any format, any storage PyIceberg reaches, any shape of file.

Slower than Spark's own reader, and right where that one is not: ORC and Avro files, files without field ids, columns
that are in the partition tuple only, schemes Spark has no connector for. Works on a classic session and over Connect.

Tasks travel as data, a group to a row. What opens the storage travels inside the function, never in the text of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from neve.run.read.file_reader import read_tasks
from neve.run.read.tasks import SPLIT_BYTES, ReadTarget, file_tasks, group_tasks, split_large_files
from neve.run.read.types import ArrowFlavor
from neve.run.spark.arrow_exchange import from_ipc, map_in_arrow, to_ipc
from neve.run.spark.types import spark_schema
from neve.run.table_facts import TableFacts

Batches = Iterable[pa.RecordBatch]


def arrow_scan(
    spark: SparkSession,
    tasks: pa.Table,
    schema: Schema,
    facts: TableFacts,
    *,
    predicate: BooleanExpression | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> DataFrame:
    """The live rows of the data files in a task table (see `neve.run.read.tasks`), in the columns of a schema.

    Row groups whose statistics rule out the predicate (bound, in normal form) are skipped; other rows may fail it.
    """
    shape = spark_schema(schema)
    if not tasks.num_rows:
        return spark.createDataFrame([], shape)
    target = ReadTarget(schema, facts.name_mapping, facts.schemas, ArrowFlavor.SPARK, predicate)
    parcels = [to_ipc(group) for group in group_tasks(split_large_files(tasks, split_bytes), split_bytes)]
    columns = {"group": pa.array(range(len(parcels)), pa.int32()), "tasks": pa.array(parcels, pa.binary())}
    rows = spark.createDataFrame(pa.table(columns))
    # Round robin, or a hash, would heap some groups up in one task.
    spread = rows.repartitionById(len(parcels), col("group")) if len(parcels) > 1 else rows
    return map_in_arrow(spread.select("tasks"), _read_function(target, facts), shape)


def _read_function(target: ReadTarget, facts: TableFacts) -> Callable[[Batches], Batches]:
    """The function the executors run; its name is all that a plan shows of it."""

    def read_data_files(batches: Batches) -> Iterator[pa.RecordBatch]:
        io = facts.io()
        for batch in batches:
            for group in batch.column(0).to_pylist():
                yield from read_tasks(io, file_tasks(from_ipc(group), facts.specs), target)

    return read_data_files

"""Copy files in a Spark job: each task streams its files through the table's file access."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from neve.errors import WriteFailed
from neve.run.copy_files import COPIED_DDL, COPIES_SCHEMA, FileCopy, copying_task
from neve.run.spark.arrow_job import run_in_arrow
from neve.run.spark.session import task_slots
from neve.run.spark.writing_job import failure_reason
from neve.run.table_facts import TableFacts

_TASKS_PER_SLOT = 4  # files differ in size, so a slot that is done early takes more of them


def copy_on_spark(spark: SparkSession, copies: Sequence[FileCopy], facts: TableFacts) -> int:
    """Copy files in the tasks of one job, and return the number of bytes."""
    columns = [[getattr(each, name) for each in copies] for name in COPIES_SCHEMA.names]
    rows = spark.createDataFrame(pa.table(columns, schema=COPIES_SCHEMA))
    tasks = min(len(copies), task_slots(spark) * _TASKS_PER_SLOT)
    try:
        copied = run_in_arrow(rows.repartition(max(tasks, 1)), copying_task(facts.io), COPIED_DDL)
    except PySparkException as e:
        raise WriteFailed(f"Cannot copy files: {failure_reason(e)}") from e
    return sum(row["size"] for row in copied)

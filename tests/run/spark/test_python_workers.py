"""Python workers of Spark: what was imported is neither walked through nor looked up nor imported again."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from zipimport import zipimporter

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from neve.run.spark.arrow_exchange import map_in_arrow


def test_a_worker_is_ready_for_its_next_task(spark: SparkSession):
    def looked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the worker would walk through after this task."""
        archives = sum(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"archives": [archives], "walked": [len(gc.get_objects())]})

    rows = spark.range(0, 4, 1, 4)
    found = [row for _ in range(2) for row in map_in_arrow(rows, looked, "archives long, walked long").collect()]
    assert len(found) == 8
    assert [row for row in found if row.archives or row.walked > 10_000] == []


def test_a_new_worker_has_imported_what_tasks_use(spark: SparkSession):
    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The process this worker was forked from, and whether a module is there that this function does not need."""
        command, found = " ".join(psutil.Process().parent().cmdline()), "neve.run.spark.patch" in sys.modules
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"forked_from": [command], "found": [found]})

    workers = map_in_arrow(spark.range(4), describe, "forked_from string, found boolean").collect()
    assert {(" neve.run.spark.worker_daemon " in row.forked_from, row.found) for row in workers} == {(True, True)}

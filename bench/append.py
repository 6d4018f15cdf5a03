"""What an append of a DataFrame into partitions costs, step by step: read, hand over to Python, split, write.

    make bench-append                        (NEVE_BENCH_ROWS=6000000 make bench-append for a larger table)

Prints CPU seconds of driver, JVM and Python workers for each step together with those before it, and the share of each
step in the whole. Cases are interleaved, and numbers are medians over the rounds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame

import neve
from bench.cpu import Ledger, run_interleaved
from bench.lineitem import DDL, lineitem
from neve.run.spark.arrow_job import run_in_arrow
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.session import local_session
from neve.run.spark.store_assignment import assign_dataframe
from neve.run.write.target import WriteTarget

ROWS = int(os.environ.get("NEVE_BENCH_ROWS", "2000000"))
ROUNDS, WARM = 5, 1
STEPS = ("read the source", "hand over as Arrow data", "split by partition", "write Parquet files and commit")


def discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = local_session("local[2]", {"spark.driver.memory": "4g", "spark.local.dir": str(folder / "local")})
        lineitem(spark, ROWS).write.parquet(str(folder / "source"))
        table = neve.connect(folder / "lake", spark=spark).create_table(
            "bench.lines", DDL, partition_by=["years(l_shipdate)"]
        )
        target = WriteTarget.of(table.context.metadata, table.context.facts.io_properties)

        def source() -> DataFrame:
            return spark.read.parquet(str(folder / "source"))

        def assigned() -> DataFrame:
            return assign_dataframe(source(), target.file_schema)

        def split() -> None:
            exchange = ColumnExchange(target, lambda batches, _: iter(batches))
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                exchange.split_with_tasks(assigned(), scratch, holds_rows=True)

        cases = (
            lambda: discard(source()),
            lambda: run_in_arrow(assigned(), count_rows, "rows long"),
            split,
            lambda: table.refresh().append(source()),
        )
        spent = run_interleaved(Ledger().start(), dict(zip(STEPS, cases, strict=True)), ROUNDS, WARM)
        spark.stop()
    totals = [0.0, *(median(spent[step]) for step in STEPS)]
    for step, (before, total) in zip(STEPS, pairwise(totals), strict=True):
        print(f"{step:32s} {total:6.2f} CPU s so far, {(total - before) / totals[-1]:4.0%} of an append")


if __name__ == "__main__":
    main()

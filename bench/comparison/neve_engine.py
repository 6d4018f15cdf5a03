"""Névé."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import neve
from bench.comparison.engine import Job
from bench.comparison.inputs import PARTS, Inputs
from bench.comparison.spark_jobs import SETTINGS, SparkEngine, SparkWork
from bench.comparison.statements import PLANNED
from bench.lineitem import DDL
from neve.run.spark.session import local_session

ONE_ROW = pa.table({"id": pa.array([1], pa.int64()), "region": ["r01"]})


class Neve(SparkEngine):
    """Névé on plain Spark, without a jar."""

    name = "Névé"

    def __init__(self, inputs: Inputs) -> None:
        self.spark = local_session("local[2]", SETTINGS)
        self.lake = neve.connect(inputs.lake, spark=self.spark)
        self.held: pa.Table | None = None

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        work = SparkWork(self, inputs)
        to_arrow = work.job("lineitem", lambda: self.lake.table(work.name("lineitem")).scan().to_arrow().num_rows)
        return {
            **work.jobs(),
            "to_arrow": to_arrow,
            "Arrow append": self.arrow_append(work, "arrow"),
            "Arrow append by year": self.arrow_append(work, "arrow_by_year", "years(l_shipdate)"),
        }

    def arrow_append(self, work: SparkWork, table: str, by: str = "") -> Job:
        """Return a job that appends rows which the process holds before."""

        def ready() -> None:
            work.create_again(table, DDL, by)
            self.held = work.inputs.third.arrow(*range(PARTS))

        def append() -> None:
            rows, self.held = self.held, None  # later jobs need not hold them
            self.lake.table(work.name(table)).append(rows)

        return Job(append, ready, lambda: work.content(table))

    def sql(self, text: str) -> Any:
        return self.lake.sql(text)

    def read(self, table: str, where: str | None = None) -> DataFrame:
        return self.lake.table(table).scan(where).to_spark()

    def append(self, table: str, rows: DataFrame) -> None:
        self.lake.table(table).append(rows)

    def exists(self, table: str) -> bool:
        return table in self.lake.tables()

    def current_snapshot(self, table: str) -> int:
        return self.lake.table(table).context.metadata.current_snapshot_id or 0

    def hand_over(self, table: str, inputs: Inputs) -> None:
        context = self.lake.table(table).context
        locations = {"metadata": context.iceberg.metadata_location, "location": context.metadata.location}
        inputs.handover.write_text(json.dumps(locations))

    def upgrade_spec(self, table: str) -> None:
        self.lake.table(table).rewrite_data_files().upgrade_spec().execute()

    def register(self, table: str, metadata_location: str) -> None:
        self.lake.register_table(table, metadata_location)

    def planned_files(self, table: str) -> int:
        return len(self.lake.table(table).scan(PLANNED).plan().files)

    def commit_one_row(self, table: str) -> None:
        self.lake.table(table).append(ONE_ROW)

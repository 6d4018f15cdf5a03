"""Sail: scans of Névé's table, by its folder, through Spark Connect."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from bench.comparison.engine import Job
from bench.comparison.inputs import Inputs
from bench.comparison.readers import table_folder
from bench.comparison.statements import LINE_SUMS, ONE_YEAR, checksum


class Sail:
    """A Sail server in this process."""

    name = f"Sail {version('pysail')}"

    def __init__(self, inputs: Inputs) -> None:
        self.server = SparkConnectServer()
        self.server.start(background=True)
        _, port = self.server.listening_address
        self.spark: Any = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        def scan(where: str) -> Job:
            return Job(lambda: self.read(inputs, where), answer=lambda: self.content(inputs, where))

        return {
            "scan": scan("true"),
            "scan of a year": scan(ONE_YEAR),
            "scan with deletes": scan("true"),
            "to_arrow": Job(lambda: self.rows(inputs).toArrow().num_rows, answer=lambda: self.content(inputs)),
        }

    def rows(self, inputs: Inputs, where: str = "true") -> Any:
        return self.spark.read.format("iceberg").load(table_folder(inputs)).where(where)

    def read(self, inputs: Inputs, where: str) -> None:
        self.rows(inputs, where).write.format("noop").mode("overwrite").save()

    def content(self, inputs: Inputs, where: str = "true") -> str:
        sums = (f"sum({one})" for one in LINE_SUMS)
        return checksum(self.rows(inputs, where).selectExpr("count(*)", *sums).first())

    def spark_jobs(self) -> None:
        return None

    def stop(self) -> None:
        self.server.stop()

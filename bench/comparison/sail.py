"""Sail: scans of Névé's table, by its folder, through Spark Connect."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from bench.comparison.engine import Job
from bench.comparison.inputs import ONE_YEAR, Inputs


class Sail:
    """A Sail server in this process."""

    name = f"Sail {version('pysail')}"

    def __init__(self, inputs: Inputs) -> None:
        self.server = SparkConnectServer()
        self.server.start(background=True)
        _, port = self.server.listening_address
        self.spark: Any = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        return {
            "scan": Job(lambda: self.read(inputs, "true")),
            "scan of a year": Job(lambda: self.read(inputs, ONE_YEAR)),
        }

    def read(self, inputs: Inputs, where: str) -> None:
        location = json.loads((inputs.lake / f"{inputs.name}.json").read_text())["location"]
        self.spark.read.format("iceberg").load(location).where(where).write.format("noop").mode("overwrite").save()

    def stop(self) -> None:
        self.server.stop()

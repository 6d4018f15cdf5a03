"""Polars: scans of Névé's table, by its metadata file; appends to tables of a PyIceberg catalog."""

from __future__ import annotations

import os
from datetime import date
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "2"  # read when Polars is imported

import polars as pl

from bench.comparison.engine import Job
from bench.comparison.inputs import PARTS, Inputs
from bench.comparison.pyiceberg_engine import LINE_TYPES, IcebergTables
from bench.comparison.readers import metadata_location
from bench.comparison.statements import LINE_SUMS, checksum

YEAR = (pl.col("l_shipdate") >= date(1994, 1, 1)) & (pl.col("l_shipdate") < date(1995, 1, 1))


class Polars:
    """Polars with as many threads as there are cores for the others."""

    name = f"Polars {pl.__version__}"

    def __init__(self, inputs: Inputs) -> None:
        self.tables = IcebergTables(inputs.folder / "polars")
        self.held: pl.DataFrame | None = None

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        def scan(where: Any = True) -> Job:
            return Job(lambda: self.read(inputs, where), answer=lambda: self.content(inputs, where))

        return {
            "scan": scan(),
            "scan of a year": scan(YEAR),
            "scan with deletes": scan(),
            "to_arrow": scan(),
            "Arrow append": self.arrow_append(inputs, "arrow"),
            "Arrow append by year": self.arrow_append(inputs, "arrow_by_year"),
        }

    def rows(self, inputs: Inputs, where: Any) -> pl.LazyFrame:
        table = pl.scan_iceberg(metadata_location(inputs))
        return table if where is True else table.filter(where)

    def read(self, inputs: Inputs, where: Any) -> int:
        """Read rows into memory: Polars has nothing that reads and discards them."""
        return self.rows(inputs, where).collect().height

    def content(self, inputs: Inputs, where: Any) -> str:
        sums = self.rows(inputs, where).select(pl.len(), *(pl.col(name).sum() for name in LINE_SUMS))
        return checksum(sums.collect().row(0))

    def arrow_append(self, inputs: Inputs, table: str) -> Job:
        name = f"{table}_{inputs.name}"

        def ready() -> None:
            self.tables.create_again(name, by_year=table.endswith("year"))
            rows = inputs.third.arrow(*range(PARTS)).cast(LINE_TYPES)
            frame = pl.from_arrow(rows)
            self.held = frame if isinstance(frame, pl.DataFrame) else None

        def append() -> None:
            rows, self.held = self.held, None
            assert rows is not None
            rows.lazy().sink_iceberg(self.tables.load(name), mode="append")

        return Job(append, ready, lambda: self.tables.content(name))

    def spark_jobs(self) -> None:
        return None

    def stop(self) -> None:
        self.tables.close()

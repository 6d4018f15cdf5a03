"""DuckDB: scans of Névé's table, by its metadata file."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

from bench.comparison.engine import Job
from bench.comparison.inputs import ONE_YEAR, Inputs

EXTENSIONS = (duckdb_extension_avro, duckdb_extension_iceberg)


class DuckDB:
    """DuckDB with its extension for Iceberg."""

    name = f"DuckDB {duckdb.__version__}"

    def __init__(self, inputs: Inputs) -> None:
        self.connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for package in EXTENSIONS:
            self.connection.load_extension(str(next(Path(package.__file__).parent.rglob("*.duckdb_extension"))))
        self.connection.execute("SET threads = 2")

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        return {
            "scan": Job(lambda: self.read(inputs, "true")),
            "scan of a year": Job(lambda: self.read(inputs, ONE_YEAR)),
        }

    def read(self, inputs: Inputs, where: str) -> int:
        location = json.loads((inputs.lake / f"{inputs.name}.json").read_text())["metadata"]
        self.connection.execute(f"SELECT * FROM iceberg_scan('{location}') WHERE {where}")
        return sum(batch.num_rows for batch in self.connection.to_arrow_reader())

    def stop(self) -> None:
        self.connection.close()

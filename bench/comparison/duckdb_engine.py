"""DuckDB: scans of Névé's table, by its metadata file."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

from bench.comparison.engine import Job
from bench.comparison.inputs import Inputs
from bench.comparison.readers import metadata_location
from bench.comparison.statements import ONE_YEAR, checksum, checksum_query

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
        def scan(where: str) -> Job:
            return Job(lambda: self.read(inputs, where), answer=lambda: self.content(inputs, where))

        return {
            "scan": scan("true"),
            "scan of a year": scan(ONE_YEAR),
            "scan with deletes": scan("true"),
            "to_arrow": Job(
                lambda: self.connection.sql(f"FROM {self.source(inputs)}").to_arrow_table().num_rows,
                answer=lambda: self.content(inputs),
            ),
        }

    def source(self, inputs: Inputs) -> str:
        return f"iceberg_scan('{metadata_location(inputs)}')"

    def read(self, inputs: Inputs, where: str) -> int:
        self.connection.execute(f"SELECT * FROM {self.source(inputs)} WHERE {where}")
        return sum(batch.num_rows for batch in self.connection.to_arrow_reader())

    def content(self, inputs: Inputs, where: str = "true") -> str:
        return checksum(self.connection.execute(checksum_query(self.source(inputs), where)).fetchone())

    def spark_jobs(self) -> None:
        return None

    def stop(self) -> None:
        self.connection.close()

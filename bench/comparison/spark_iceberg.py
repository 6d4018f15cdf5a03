"""Spark with Iceberg's own runtime."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from bench.comparison.engine import Job
from bench.comparison.inputs import Inputs
from bench.comparison.spark_jobs import SETTINGS, SparkEngine, SparkWork
from bench.comparison.statements import PLANNED
from neve.run.spark.session import local_session
from tests.peers.jars import ICEBERG, SQLITE, path_of

CATALOG = "peer"


class SparkIceberg(SparkEngine):
    """Iceberg's runtime in a Spark with the same settings; its catalog is a SQLite file too."""

    name = f"Spark + Iceberg {ICEBERG.version}"

    def __init__(self, inputs: Inputs) -> None:
        jars = [str(path_of(jar)) for jar in (ICEBERG, SQLITE)]
        home = inputs.folder / "spark-iceberg"
        home.mkdir()
        prefix = f"spark.sql.catalog.{CATALOG}"
        options = {
            **SETTINGS,
            "spark.jars": ",".join(jars),
            "spark.driver.extraClassPath": ":".join(jars),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.defaultCatalog": CATALOG,
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{prefix}.uri": f"jdbc:sqlite:{home}/catalog.db",
            f"{prefix}.warehouse": f"file://{home}",
            f"{prefix}.jdbc.schema-version": "V1",
        }
        self.spark = local_session("local[2]", options)
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS bench")

    def jobs(self, inputs: Inputs) -> dict[str, Job]:
        work = SparkWork(self, inputs)
        to_arrow = work.job("lineitem", lambda: self.read(work.name("lineitem")).toArrow().num_rows)
        return {**work.jobs(), "to_arrow": to_arrow}

    def sql(self, text: str) -> Any:
        return self.spark.sql(text)

    def read(self, table: str, where: str | None = None) -> DataFrame:
        rows = self.spark.table(table)
        return rows if where is None else rows.where(where)

    def append(self, table: str, rows: DataFrame) -> None:
        rows.writeTo(table).append()

    def exists(self, table: str) -> bool:
        return self.spark.catalog.tableExists(table)

    def current_snapshot(self, table: str) -> int:
        found = self.spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'main'").first()
        return int(found[0]) if found else 0

    def upgrade_spec(self, table: str) -> None:
        """Rewrite all files: Iceberg's procedure has no choice by spec."""
        options = "options => map('rewrite-all', 'true')"
        self.sql(f"CALL system.rewrite_data_files(table => '{table}', {options})")

    def register(self, table: str, metadata_location: str) -> None:
        self.sql(f"CALL system.register_table(table => '{table}', metadata_file => '{metadata_location}')")

    def planned_files(self, table: str) -> int:
        return len(self.read(table, PLANNED).inputFiles())

    def commit_one_row(self, table: str) -> None:
        self.sql(f"INSERT INTO {table} (id, region) VALUES (1, 'r01')")

"""Spark with Iceberg's own runtime in its own process: `python -m tests.peers.spark_worker LAKE JAR…`.

A running Spark cannot load further jars, and the one under test must have none. The worker uses the catalog of a lake,
the same SQLite file. It reads one JSON request per line, and answers each with a line that has the error or null.

    {"sql": [statement, …], "into": file}    runs statements; the rows of the last go to an Arrow file
    {"metadata": file, "into": file}         the rows of a table by its metadata file
    {"distinct": table, "into": file}        the distinct values of columns that its planner expects
    {"python": code, "into": file}           runs code with `spark` and `F`; the rows of `result`, if it sets that
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

from neve.run.spark.session import local_session, quiet_errors
from tests.support.spark_sessions import AS_MADE, INTERPRETED

CATALOG = "neve"  # the name under which the embedded catalog keeps its tables
KEPT: dict[str, Any] = {}  # a DataFrame that code has made for the next


def session(lake: str, jars: list[str], scratch: str) -> SparkSession:
    """Start a small Spark whose default catalog is that of the lake."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    options = {
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        **INTERPRETED,
        **AS_MADE,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.defaultCatalog": CATALOG,
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{prefix}.uri": f"jdbc:sqlite:{lake}/catalog.db",
        f"{prefix}.warehouse": f"file://{lake}",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.jdbc.busy_timeout": "60000",
        f"{prefix}.cache-enabled": "false",  # others commit too
    }
    return local_session("local[1]", options)


def write_result(spark: SparkSession, question: dict[str, Any]) -> None:
    """Run a request and write the rows to a file."""
    found = _result_of(spark, question).toArrow()
    with pa.OSFile(question["into"], "wb") as sink, pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)


def _result_of(spark: SparkSession, question: dict[str, Any]) -> DataFrame:
    if "metadata" in question:
        return spark.read.format("iceberg").load(question["metadata"])
    if "distinct" in question:
        return _distinct_values(spark, question["distinct"])
    if "python" in question:
        names = {"spark": spark, "F": functions, "result": spark.range(0)} | KEPT
        exec(question["python"], names)
        KEPT.update({"df": names.get("df")})
        return names["result"]
    *before, last = question["sql"]
    for statement in before:
        spark.sql(statement).collect()
    return spark.sql(last)


def _distinct_values(spark: SparkSession, table: str) -> DataFrame:
    """Return what the planner knows of the columns of a table when it optimises by cost."""
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        plan: Any = spark.table(table)._jdf.queryExecution().optimizedPlan()
        pairs, rows = plan.stats().attributeStats().iterator(), []
        while pairs.hasNext():
            column, known = (pair := pairs.next())._1(), pair._2()
            rows.append((column.name(), int(str(known.distinctCount().get()))))
    finally:
        spark.conf.set("spark.sql.cbo.enabled", "false")
    return spark.createDataFrame(rows, "name string, values long")


def error_of(act: Callable[[], None]) -> str | None:
    """Run a function; return its error, if any."""
    try:
        with quiet_errors():
            act()
    except Exception as e:  # any error is the result of this engine
        return f"{type(e).__name__}: {str(e).strip()[:2000]}"
    return None


def main(lake: str, *jars: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(lake, list(jars), scratch)
        sys.stdout.write('{"ready": true}\n')
        sys.stdout.flush()
        for line in sys.stdin:
            question = json.loads(line)
            sys.stdout.write(json.dumps({"error": error_of(lambda: write_result(spark, question))}) + "\n")  # noqa: B023
            sys.stdout.flush()
        spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

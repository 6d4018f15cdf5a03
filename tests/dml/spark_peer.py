"""Spark with Iceberg's own runtime as a witness: `python -m tests.dml.spark_peer MANIFEST JAR`.

A process of its own, because a running Spark takes no further jar. MANIFEST is a JSON list of tables, each with its
name, its metadata file and the rows it must hold as Parquet. Prints one line of JSON per table that is read otherwise,
and a last line with the number of tables looked at.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from neve.run.spark.session import local_session
from tests.dml.oracle import difference


def session(jar: str, scratch: str) -> SparkSession:
    """A small Spark that has Iceberg's classes."""
    options = {
        "spark.jars": jar,
        "spark.driver.extraClassPath": jar,
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }
    return local_session("local[2]", options)


def read(spark: SparkSession, metadata: str) -> pa.Table:
    """The rows Spark reads through Iceberg from one metadata file."""
    return spark.read.format("iceberg").load(metadata).toArrow()


def verdict(spark: SparkSession, table: dict[str, str]) -> str:
    """How Spark reads a table otherwise than it must; empty when it does not."""
    try:
        return difference(read(spark, table["metadata"]), pq.read_table(table["rows"]))
    except Exception as e:  # whatever it is, it is what this witness says about the table
        return f"{type(e).__name__}: {str(e).splitlines()[0]}"


def say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")


def main(manifest: str, jar: str) -> int:
    tables = json.loads(Path(manifest).read_text())
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(jar, scratch)
        for table in tables:
            if said := verdict(spark, table):
                say({"name": table["name"], "said": said})
        say({"looked_at": len(tables)})
        spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

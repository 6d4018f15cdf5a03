"""Functions for both Spark engines."""

from __future__ import annotations

from pyspark.sql import DataFrame

SETTINGS = {"spark.driver.memory": "4g"}


def read_and_discard(rows: DataFrame) -> None:
    """Read rows and drop them."""
    rows.write.format("noop").mode("overwrite").save()


def in_parts(rows: DataFrame, parts: int) -> DataFrame:
    """Return the rows in `parts` tasks, each of which writes a file."""
    return rows.repartition(parts)


def content(rows: DataFrame) -> str:
    """Return a checksum of lineitem rows."""
    found = rows.selectExpr("count(*)", "sum(l_extendedprice)", "sum(l_orderkey)").first()
    return f"{found[0]} rows, prices of {found[1]}, keys of {found[2]}" if found else ""

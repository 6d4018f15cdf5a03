"""Sessions of the shared Spark for many small statements."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.extent import IS_SEARCH

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def interpreted(spark: SparkSession, adaptive: bool = True) -> SparkSession:
    """A session that interprets its plans, except in a search, which runs as users do.

    Spark compiles every plan it has not seen before, which costs more than a few rows are worth. How many files are
    written is known with adaptive plans only.
    """
    session = spark.newSession()
    options = {**_INTERPRETED, "spark.sql.adaptive.enabled": str(adaptive).lower()}
    for name, value in () if IS_SEARCH else options.items():
        session.conf.set(name, value)
    return session

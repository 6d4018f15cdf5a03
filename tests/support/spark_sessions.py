"""The Sparks of the tests: for many small statements, each run once or twice.

Spark compiles every plan it has not seen before, and Java compiles that again, which costs more than a few rows are
worth. So plans are interpreted, except in a search, which runs as users do, and the second compiler stays off. Without
it Java keeps a fifth of the room for what the first one compiled, and in a long run spends its time clearing that.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.support.coverage import IS_SEARCH

JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# Spark adds these, without a word, to the commands of its launcher and of every driver, whoever starts it.
ENVIRONMENT = {"SPARK_LAUNCHER_OPTS": JAVA, "SPARK_SUBMIT_OPTS": JAVA}
EVERY_JAVA = {"JDK_JAVA_OPTIONS": JAVA}  # of executors and daemons too; each begins with a note about it

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
AS_MADE = {"spark.sql.adaptive.enabled": "false"}
PLANS = {} if IS_SEARCH else INTERPRETED


def compiled(spark: SparkSession) -> SparkSession:
    """A session that compiles its plans, as users have it."""
    session = spark.newSession()
    for name in INTERPRETED:
        session.conf.unset(name)
    return session


def names_in(spark: SparkSession) -> set[str]:
    """The tables and views a session knows; the listing of its catalog wants plans that are compiled."""
    return {row.tableName for row in spark.sql("SHOW TABLES").collect()}


def unadaptive(spark: SparkSession) -> SparkSession:
    """A session that takes its plans as they are made; how many files are written is known with adaptive plans only."""
    session = spark.newSession()
    for name, value in () if IS_SEARCH else AS_MADE.items():
        session.conf.set(name, value)
    return session

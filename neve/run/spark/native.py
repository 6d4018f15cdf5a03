"""Parquet files read by Spark's own reader, by field id.

What it does not do, its callers route elsewhere: files without field ids, files Spark's listing hides, types Spark does
not have. Two things make it wrong silently, and are therefore pinned here: options of the session that skip unreadable
files, and names (see `names`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sp

from neve.run.spark.options import options_around
from neve.run.spark.session import is_classic
from neve.run.spark.types import FIELD_ID

__all__ = ["is_hidden", "open_parquet"]

_NOTHING = sp.StructField("__nothing", sp.BooleanType(), True, {FIELD_ID: 2147483000})  # an id no file has
_HIDDEN = r"(?:^|/)[_.][^/]*$|\._COPYING_$"
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery"
_OPTIONS = {
    "__globPaths__": "false",  # a path may hold *, [ or {
    "recursiveFileLookup": "true",  # directories named a=b are no partitions
    "mergeSchema": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # Parquet's dictionary filter tells -0.0 from 0.0, and SQL does not: `x = 0` would lose rows that hold -0.0.
    "parquet.filter.dictionary.enabled": "false",
}


def is_hidden(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Which files Spark's listing leaves out without a word: by their name alone."""
    return pc.match_substring_regex(paths, _HIDDEN)


def open_parquet(spark: SparkSession, paths: Sequence[str], columns: Sequence[sp.StructField]) -> DataFrame:
    """A DataFrame over Parquet files with the columns given, found by field id; a column a file lacks is null."""
    reader = spark.read.schema(sp.StructType(list(columns) or [_NOTHING])).options(**_OPTIONS)
    with options_around(spark, _listing(spark, paths)):
        if not is_classic(spark):
            return reader.parquet(*paths)
        return DataFrame(reader._jreader.parquet(_java_strings(spark, paths)), spark)


def _listing(spark: SparkSession, paths: Sequence[str]) -> dict[str, str]:
    """Spark starts a task for every path by default; a few tasks look up all of them for a tenth of the cost.

    Local files are looked up by the driver: a system call each, no job.
    """
    if all(path.startswith("file:") for path in paths):
        return {f"{_DISCOVERY}.threshold": str(len(paths))}
    tasks = 4 * spark.sparkContext.defaultParallelism if is_classic(spark) else 32
    return {f"{_DISCOVERY}.parallelism": str(tasks)}


def _java_strings(spark: SparkSession, paths: Sequence[str]) -> object:
    """Many strings in one call to the JVM; one call each takes longer than all the rest. A path has no line breaks."""
    return spark._jvm.org.apache.commons.lang3.StringUtils.split("\n".join(paths), "\n")  # type: ignore[union-attr]

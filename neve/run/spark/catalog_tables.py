"""Tables in Spark's own catalog: where their files are, so that these can become part of a table of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from neve.errors import UnknownName, UserError
from neve.predicate.column_names import quote_name
from neve.run.spark.session import quiet_errors

_CATALOG = "spark_catalog"
_DETAILS, _PARTITION_DETAILS = "# Detailed Table Information", "# Detailed Partition Information"


def format_and_folder_of(spark: SparkSession, parts: Sequence[str]) -> tuple[str, str]:
    """Return the format and the folder of a table; all its partitions have to be in that folder.

    The name of the catalog, and that of the current database, may be left out.
    """
    own = parts[1:] if len(parts) > 2 and parts[0].lower() == _CATALOG else parts
    name = ".".join(map(quote_name, (_CATALOG, *((spark.catalog.currentDatabase(),) if len(own) == 1 else ()), *own)))
    shown = ".".join(parts)
    try:
        with quiet_errors():
            described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException as e:
        raise UnknownName("table of Spark", shown, []) from e
    facts = _facts_below(described, _DETAILS)
    if facts.get("Type", "").upper() == "VIEW" or "Location" not in facts:
        raise UserError(f"Cannot take the files of {shown}: it is a view, or has none. Give a table with files.")
    folder = facts["Location"].rstrip("/")
    if "# Partition Information" in (row.col_name for row in described):
        _refuse_other_folders(spark, name, shown, folder)
    return facts.get("Provider", "").lower(), folder


def _facts_below(described: Sequence[Row], title: str) -> dict[str, str]:
    """Return the facts below a title of DESCRIBE, by their names."""
    names = [row.col_name for row in described]
    below = described[names.index(title) + 1 :] if title in names else ()
    return {row.col_name: row.data_type for row in reversed(below)}  # the first of a name counts


def _refuse_other_folders(spark: SparkSession, name: str, shown: str, folder: str) -> None:
    """Reject a table with a partition whose folder is not the one that its values name: its files would be missed."""
    with quiet_errors():
        partitions = [row.partition for row in spark.sql(f"SHOW PARTITIONS {name}").collect()]
    for partition in partitions:
        values = ", ".join(
            f"{quote_name(unquote(column))} = '{unquote(value)}'"
            for column, _, value in (pair.partition("=") for pair in partition.split("/"))
        )
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {name} PARTITION ({values})").collect()
        place = _facts_below(described, _PARTITION_DETAILS).get("Location", "").rstrip("/")
        if place and place != f"{folder}/{partition}":
            raise UserError(
                f"Cannot take the files of {shown}: partition {partition} is in {place}, outside the table's folder. "
                "Add that folder by itself, as `parquet`.`/folder`."
            )

"""Tables in Spark's own catalog: where their files are, so that these can become part of a table of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from neve.errors import UnknownName, UserError
from neve.plan.partition_folders import NULL_FOLDER
from neve.predicate.column_names import quote_name
from neve.run.spark.session import quiet_errors

_CATALOG = "spark_catalog"
_PARTITIONS = "# Partition Information"
_DETAILS, _PARTITION_DETAILS = "# Detailed Table Information", "# Detailed Partition Information"


@dataclass(frozen=True)
class SparkTable:
    """A table of Spark: its rows, the format of its files, and the folder that has them."""

    rows: DataFrame
    file_format: str
    folder: str
    partition_columns: tuple[str, ...] = ()
    partition_folders: frozenset[str] | None = None  # below the folder: those of the partitions that the table has


def find_spark_table(spark: SparkSession, parts: Sequence[str], formats: Sequence[str]) -> SparkTable:
    """Return a table whose files have one of the formats; all its partitions have to be in its folder.

    The name of the catalog, and that of the current database, may be left out.
    """
    own = parts[1:] if len(parts) > 2 and parts[0].lower() == _CATALOG else parts
    shown = ".".join(parts)
    try:
        with quiet_errors():
            database = () if len(own) > 1 else (spark.catalog.currentDatabase(),)
            name = ".".join(map(quote_name, (_CATALOG, *database, *own)))
            described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
            rows = spark.table(name)
            facts = _facts_below(described, _DETAILS)
            file_format = _format_of(facts, formats, shown)
            folder = facts["Location"].rstrip("/")
            columns = tuple(_facts_below(described, _PARTITIONS, until="")) if _is_partitioned(described) else ()
            folders = _partition_folders(spark, name, shown, folder) if columns else None
    except PySparkException as e:
        if isinstance(e, AnalysisException) and "NOT_FOUND" in (e.getCondition() or ""):
            raise UnknownName("table of Spark", shown, []) from e
        raise UserError(f"Cannot take the files of {shown}: {str(e).strip().splitlines()[0]}") from e
    return SparkTable(rows, file_format, folder, columns, folders)


def _is_partitioned(described: Sequence[Row]) -> bool:
    return any(row.col_name == _PARTITIONS for row in described)


def _facts_below(described: Sequence[Row], title: str, until: str | None = None) -> dict[str, str]:
    """Return the facts below a title of DESCRIBE, by their names; the first of a name counts."""
    names = [row.col_name for row in described]
    start = names.index(title) + 1 if title in names else len(names)
    end = names.index(until, start) if until is not None and until in names[start:] else len(names)
    facts: dict[str, str] = {}
    for row in described[start:end]:
        facts.setdefault(row.col_name, row.data_type)
    return {name: fact for name, fact in facts.items() if not name.startswith("# ")}


def _format_of(facts: dict[str, str], formats: Sequence[str], shown: str) -> str:
    """Return the format of the files of a table; tables of Hive name it in their reader."""
    if facts.get("Type", "").upper() == "VIEW" or "Location" not in facts:
        raise UserError(f"Cannot take the files of {shown}: it is a view, or has none. Give a table with files.")
    provider = facts.get("Provider", "").lower()
    stored = facts.get("Serde Library", "").lower() if provider == "hive" else provider
    found = next((each.lower() for each in formats if each.lower() in stored), None)
    if found is None:
        *others, last = (each.lower() for each in formats)
        raise UserError(
            f"Cannot take the files of {shown}: they are {provider or 'of no format'}. Give a table, or a folder such "
            f"as '`parquet`.`/folder`', with files of {', '.join(others)} or {last}."
        )
    return found


def _value_of(folder_text: str) -> str:
    if folder_text == NULL_FOLDER:
        return "NULL"
    text = unquote(folder_text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _partition_folders(spark: SparkSession, name: str, shown: str, folder: str) -> frozenset[str]:
    """Return the folders of the partitions that a table has; one whose folder is elsewhere is an error.

    Others below the table's folder are of partitions that were dropped: Spark does not read them.
    """
    partitions = [row.partition for row in spark.sql(f"SHOW PARTITIONS {name}").collect()]
    for partition in partitions:
        values = ", ".join(
            f"{quote_name(unquote(column))} = {_value_of(value)}"
            for column, _, value in (pair.partition("=") for pair in partition.split("/"))
        )
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {name} PARTITION ({values})").collect()
        place = _facts_below(described, _PARTITION_DETAILS).get("Location", "").rstrip("/")
        if place and place != f"{folder}/{partition}":
            raise UserError(
                f"Cannot take the files of {shown}: partition {partition} is in {place}, outside the table's folder. "
                "Add that folder by itself, as `parquet`.`/folder`."
            )
    return frozenset(partitions)

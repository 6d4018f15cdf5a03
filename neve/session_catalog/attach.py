"""Attach lakes to a Spark session: `spark.sql`, readers, writers and the catalog of the session find their tables.

>>> import neve
>>> spark = t.context.spark()
>>> attach(spark, neve.connect("shop"), name="shop")
>>> spark.sql("SELECT count(*) AS n FROM shop.db.sales").first().n
3
>>> spark.table("shop.db.sales").where("region = 'eu'").count()
2
>>> detach(spark)
['shop']
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from neve.errors import UserError
from neve.lake import Lake
from neve.run.spark.session import prepare_session, spark_itself
from neve.session_catalog.hooks import install_hooks, remove_hooks
from neve.session_catalog.session_lakes import OWN_CATALOGS, add_lake, has_sessions, remove_lakes

__all__ = ["attach", "detach"]

_FILE_FORMATS = ("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml")
_STATEMENT_WORDS = frozenset(
    re.findall(
        r"\w+",
        """SELECT FROM WITH VALUES TABLE INSERT UPDATE DELETE MERGE CALL CREATE REPLACE ALTER DROP TRUNCATE USE SET SHOW
        DESCRIBE DESC EXPLAIN CACHE UNCACHE REFRESH ANALYZE INTO JOIN WHERE ON USING AS IN""",
    )
)


def attach(spark: SparkSession, lake: Lake, name: str = "lake", *, default: bool = False) -> None:
    """Let a Spark session find the tables of a lake under a name, as it finds those of a catalog.

    From then on, `spark.sql("SELECT … FROM lake.db.t")`, `spark.table("lake.db.t")`, `spark.read.table`,
    `df.writeTo("lake.db.t")`, `saveAsTable`, `insertInto` and `spark.catalog` work with its tables, and so do INSERT,
    UPDATE, DELETE, MERGE, CALL and the statements that create and change tables. Queries join tables of the lake with
    other tables of the session. With `default`, names without a catalog are looked up in the lake, as after `USE lake`.

    Nothing else of the session changes; `detach` undoes it. No jar is needed, and Spark Connect works too. Other
    processes and sessions do not see the lake, nor do threads of the JVM that have no Python.
    """
    if not isinstance(lake, Lake):
        raise UserError(f"Give the lake to attach as neve.connect returns it, not as {type(lake).__name__}.")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UserError(f"Cannot attach a lake as {name!r}. Choose a name of letters, digits and underscores.")
    if (hidden := _hidden_by(spark, name)) is not None:
        raise UserError(f"Cannot attach a lake as {name!r}: it would hide {hidden} of this name. Choose another.")
    prepare_session(spark)
    lakes = add_lake(spark, name, lake)
    if default:
        lakes.current = (name,)
    install_hooks(spark)


def _hidden_by(spark: SparkSession, name: str) -> str | None:
    """Return what of Spark a lake of this name would hide; None if nothing."""
    if name.lower() in OWN_CATALOGS or spark.conf.get(f"spark.sql.catalog.{name}", None) is not None:
        return "the catalog"
    if name.lower() in _FILE_FORMATS:  # parquet.`path`
        return "the files of the format"
    if name.upper() in _STATEMENT_WORDS:
        return "the keyword"
    with spark_itself():
        return "the database" if spark.catalog.databaseExists(f"spark_catalog.{name}") else None


def detach(spark: SparkSession, name: str | None = None) -> list[str]:
    """Undo `attach` for one lake, or for all lakes of the session; return the names of those that were attached."""
    names = remove_lakes(spark, name)
    if not has_sessions():
        remove_hooks()
    return names

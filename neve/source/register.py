"""Make the format `neve` known to a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from neve.source.connection import Connection
from neve.source.data_source import NeveSource
from neve.source.planner import Planner
from neve.source.workers import Sealed

if TYPE_CHECKING:
    from neve.lake import Lake

__all__ = ["register", "source_of"]


def register(spark: SparkSession, lake: Lake | str | Path | None = None) -> None:
    """Make the format `neve` known to a Spark session, classic or Connect.

    `lake` is where tables are looked for when a query does not say: a lake, with the credentials of its catalog, or a
    lake folder. They travel with the source, not in the options of a query, which Spark shows. Times in conditions are
    read on the clock that the session has now.
    """
    spark.dataSource.register(source_of(Connection.of(lake, str(spark.conf.get("spark.sql.session.timeZone")))))


def source_of(home: Connection) -> type[NeveSource]:
    """The source as it is registered: tables are looked for at home, unless a query names another place."""
    return type("NeveSource", (NeveSource,), {"planner": Sealed.of(Planner(home))})

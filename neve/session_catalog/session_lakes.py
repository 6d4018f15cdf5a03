"""The lakes of a Spark session: under which names they are attached, and what table names mean there.

A name that begins with the name of a lake belongs to that lake. If a lake is the current catalog of the session, all
names belong to it that do not begin with another catalog, and short ones are completed with the current namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from neve.errors import UnknownName, UserError
from neve.lake import Lake
from neve.ops.context import LakeContext, SqlSession, TableContext
from neve.ops.sql_views import TableLookup, catalog_table_lookup
from neve.predicate.sql_text import SqlToken
from neve.run.spark.session import is_classic, means_spark_itself, spark_itself
from neve.sql.reader import Reader
from neve.sql.statement import Name

_OWN_CATALOGS = ("spark_catalog", "global_temp", "system", "session")  # names that Spark resolves itself
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass
class SessionLakes:
    """The lakes that are attached to a session, and its current catalog if that is one of them."""

    spark: SparkSession
    by_name: dict[str, Lake] = field(default_factory=dict)
    current: Name = ()  # a lake and a namespace in it; empty: a catalog of Spark

    def place_of(self, name: Name) -> Name | None:
        """Return the full name of something in a lake, which begins with the lake; None if it belongs to Spark."""
        if name[0] in self.by_name:
            return name
        if not self.current or name[0] in _OWN_CATALOGS or self._is_catalog(name[0]):
            return None
        return (*self.current, *name) if len(name) == 1 else (self.current[0], *name)

    def place_of_text(self, name: object) -> Name | None:
        """Return the full name of something in a lake, from text; None if it belongs to Spark, or is no name."""
        parts = parse_name(name)
        return None if parts is None else self.place_of(parts)

    def context_of(self, name: Name) -> LakeContext:
        """Return the lake of a full name, for statements; their other names are looked up in the whole session."""
        lake = self.by_name[name[0]]
        return replace(lake.context, sql_name=name[0], lookup=self.table_lookup())

    def table_lookup(self) -> TableLookup:
        """Return a function that looks up tables in all lakes of the session, each once."""
        lookups = {
            name: catalog_table_lookup(lake.catalog, lake.context.of_table) for name, lake in self.by_name.items()
        }

        @cache
        def find(parts: Name) -> TableContext | None:
            place = self.place_of(parts)
            return None if place is None else lookups[place[0]](place[1:])

        return find

    def not_found(self, name: Name) -> TableNotFound:
        """Return the error that a lake has no table of a full name."""
        return TableNotFound(".".join(name), self.context_of(name).table_names(), name[0])

    def mentions_lake(self, tokens: tuple[SqlToken, ...]) -> bool:
        """Return whether a text may name something in a lake, or a temporary view of one."""
        views = {view for lake in self.by_name.values() for view in lake.session.views}
        named = (w.is_name and (w.name in self.by_name or w.name.lower() in views) for w in tokens)
        return bool(self.current) or any(named)

    def _is_catalog(self, name: str) -> bool:
        return self.spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def parse_name(name: object) -> Name | None:
    """Return the parts of a name; None for anything else, which Spark reports."""
    try:
        reader = Reader.of(name) if isinstance(name, str) else None
        if reader is None:
            return None
        parts = reader.table_name()
        reader.expect_end()
    except UserError:
        return None
    return parts


class TableNotFound(UnknownName, AnalysisException):
    """A table that a lake does not have, as an error of Spark too."""

    def __init__(self, name: str, known: Iterable[str], lake: str) -> None:
        UnknownName.__init__(self, "table", name, known, f"lake {lake}")
        AnalysisException.__init__(self, self.args[0], _NOT_FOUND, {"relationName": name})


_sessions: dict[str, SessionLakes] = {}


def session_key(spark: SparkSession) -> str:
    """Return an id that all Python objects of one session share."""
    session: Any = spark
    return str(session._jsparkSession.sessionUUID()) if is_classic(spark) else str(session.session_id)


def session_lakes(spark: SparkSession) -> SessionLakes | None:
    """Return the lakes of a session; None if it has none, or during work of ours, which only means Spark itself."""
    return None if means_spark_itself() or not _sessions else _sessions.get(session_key(spark))


def add_lake(spark: SparkSession, name: str, lake: Lake) -> SessionLakes:
    """Attach a lake to a session under a name."""
    lakes = _sessions.setdefault(session_key(spark), SessionLakes(spark))
    lakes.by_name[name] = replace(lake, given_spark=spark, session=SqlSession())
    return lakes


def remove_lakes(spark: SparkSession, name: str | None) -> list[str]:
    """Detach one lake of a session, or all; return the names of those that were attached."""
    lakes = _sessions.get(session_key(spark))
    if lakes is None:
        return []
    names = [each for each in lakes.by_name if name in (None, each)]
    for each in names:
        del lakes.by_name[each]
    if lakes.current[:1] and lakes.current[0] not in lakes.by_name:
        lakes.current = ()
    if not lakes.by_name:
        del _sessions[session_key(spark)]
    return names


def has_sessions() -> bool:
    """Return whether a lake is attached to any session."""
    return bool(_sessions)

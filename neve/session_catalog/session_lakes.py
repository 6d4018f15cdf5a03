"""The lakes of a Spark session: under which names they are attached, and what names mean there.

A table name that begins with the name of a lake belongs to that lake. If a lake is the current catalog of the session,
all names belong to it that do not begin with another catalog, and short ones are completed with the current namespace.
Names of namespaces are not: `CREATE NAMESPACE db` makes one at the top of the current lake. What has only one name, as
a temporary view has, is found before a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from neve.catalog import find_view
from neve.errors import UnknownName, UserError
from neve.lake import Lake
from neve.model.view import StoredView
from neve.ops.context import LakeContext, SqlSession, TableContext, TemporaryView
from neve.ops.sql_views import TableLookup, catalog_table_lookup, is_temporary_view
from neve.predicate.sql_text import SqlToken
from neve.run.spark.session import is_classic, means_spark_itself, spark_itself
from neve.sql.reader import Reader
from neve.sql.statement import Name

OWN_CATALOGS = ("spark_catalog", "global_temp", "system", "session")  # names that Spark resolves itself
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass
class SessionLakes:
    """The lakes that are attached to a session, and its current catalog if that is one of them."""

    spark: SparkSession
    by_name: dict[str, Lake] = field(default_factory=dict)
    current: Name = ()  # a lake and a namespace in it; empty: a catalog of Spark
    views: dict[str, TemporaryView] = field(default_factory=dict)  # of all lakes, by name in lower case

    @property
    def home(self) -> str:
        """The lake that runs statements about none in particular: the current one, or the first."""
        return self.current[0] if self.current else next(iter(self.by_name))

    def place_of(self, name: Name, current: Name | None = None) -> Name | None:
        """Return the full name of a table in a lake, which begins with the lake; None if it belongs to Spark.

        `current` is a lake and a namespace that count as the current ones.
        """
        current = self.current if current is None else current
        if len(name) > 1 and name[0] in self.by_name:
            return name
        if not current or (len(name) > 1 and self._is_catalog(name[0])):
            return None
        is_in_namespace = len(name) == 1 or self._is_branch(name, current)
        return (*current, *name) if is_in_namespace else (current[0], *name)

    def place_of_existing(self, name: Name) -> Name | None:
        """Return the full name of what is to be read or changed: a temporary view comes before a table."""
        place = self.place_of(name)
        with spark_itself():
            return None if place is None or (len(name) == 1 and is_temporary_view(self.spark, name[0])) else place

    def place_of_namespace(self, name: Name) -> Name | None:
        """Return the full name of a namespace of a lake, or a lake itself; None if it belongs to Spark."""
        if name[0] in self.by_name:
            return name
        return (self.current[0], *name) if self.current and not self._is_catalog(name[0]) else None

    def place_of_text(self, name: object, *, may_be_new: bool = False) -> Name | None:
        """Return the full name of a table in a lake, from text; None if it belongs to Spark, or is no name."""
        parts = parse_name(name)
        if parts is None:
            return None
        return self.place_of(parts) if may_be_new else self.place_of_existing(parts)

    def context_of(self, name: Name) -> LakeContext:
        """Return the lake of a full name, for statements; their other names are looked up in the whole session."""
        lake, current = self.by_name[name[0]], self.current if self.current[:1] == name[:1] else name[:1]
        return replace(
            lake.context,
            sql_name=name[0],
            session=replace(lake.session, namespace=current[1:]),
            lookup=self.table_lookup(),
            place_of=lambda parts: self.place_of(parts, current),
            view_lookup=self.find_view,
        )

    def table_lookup(self) -> TableLookup:
        """Return a function that looks up tables in all lakes of the session, each once."""
        lookups = {
            name: catalog_table_lookup(lake.catalog, lake.context.of_table) for name, lake in self.by_name.items()
        }

        @cache
        def find(parts: Name) -> TableContext | None:
            place = self.place_of(parts)
            context = None if place is None else lookups[place[0]](place[1:])
            return None if context is None else replace(context, lookup=find)

        return find

    def find_view(self, name: Name) -> tuple[LakeContext, StoredView] | None:
        """Look up a view in all lakes of the session."""
        if (place := self.place_of(name)) is None:
            return None
        view = find_view(self.by_name[place[0]].catalog, place[1:])
        return None if view is None else (self.context_of(place), view)

    def not_found(self, name: Name) -> TableNotFound:
        """Return the error that a lake has no table of a full name."""
        return TableNotFound(".".join(name), self.context_of(name).table_names(), name[0])

    def mentions_lake(self, tokens: tuple[SqlToken, ...]) -> bool:
        """Return whether a text may name something in a lake, or a temporary view of one."""
        return bool(self.current) or self.is_named_in(tokens)

    def is_named_in(self, tokens: tuple[SqlToken, ...]) -> bool:
        """Return whether a text has the name of a lake, or of a temporary view of one."""
        return any(w.is_name and (w.name in self.by_name or w.name.lower() in self.views) for w in tokens)

    def _is_branch(self, name: Name, current: Name) -> bool:
        """Return whether a name such as `t.branch_audit` is a branch of a table in the current namespace."""
        if len(name) != 2 or not name[1].startswith("branch_") or len(current) < 2:
            return False
        catalog = self.by_name[current[0]].catalog
        return bool(catalog.table_exists((*current[1:], name[0])) and not catalog.table_exists(name))

    def _is_catalog(self, name: str) -> bool:
        return name.lower() in OWN_CATALOGS or self.spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


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
    lakes.by_name[name] = replace(lake, given_spark=spark, session=SqlSession(views=lakes.views))
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

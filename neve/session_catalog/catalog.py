"""`spark.catalog` over attached lakes: calls that name something in a lake are answered by it, all others by Spark."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TypeVar

from pyspark.sql.catalog import CatalogMetadata, Column, Database, Table

from neve.errors import UnknownName
from neve.ops.context import LakeContext, TableContext
from neve.predicate.column_names import quote_name
from neve.run.spark.session import spark_itself
from neve.run.spark.types import spark_field
from neve.session_catalog.frames import derived_class
from neve.session_catalog.session_lakes import SessionLakes, parse_name
from neve.session_catalog.statements import RunInSpark, run_sql
from neve.sql.statement import Name

T = TypeVar("T")


class _LakeCatalog:
    """The catalog of a session, with the lakes that are attached to it."""

    _neve_lakes: SessionLakes
    _neve_in_spark: RunInSpark

    def currentCatalog(self) -> str:  # noqa: N802
        current = self._neve_lakes.current
        return current[0] if current else super().currentCatalog()  # type: ignore[misc]

    def setCurrentCatalog(self, catalogName: str) -> None:  # noqa: N802, N803
        with spark_itself():
            run_sql(self._neve_lakes, self._neve_in_spark, f"USE {quote_name(catalogName)}")

    def currentDatabase(self) -> str:  # noqa: N802
        current = self._neve_lakes.current
        return ".".join(current[1:]) if current else super().currentDatabase()  # type: ignore[misc]

    def setCurrentDatabase(self, dbName: str) -> None:  # noqa: N802, N803
        if self._neve_lakes.current:
            with spark_itself():
                run_sql(self._neve_lakes, self._neve_in_spark, f"USE NAMESPACE {dbName}")
        else:
            super().setCurrentDatabase(dbName)  # type: ignore[misc]

    def listCatalogs(self, pattern: str | None = None) -> list[CatalogMetadata]:  # noqa: N802
        own = [n for n in sorted(self._neve_lakes.by_name) if pattern is None or fnmatchcase(n, pattern)]
        return [*super().listCatalogs(pattern), *(CatalogMetadata(n, "a lake of Névé") for n in own)]  # type: ignore[misc]

    def listDatabases(self, pattern: str | None = None) -> list[Database]:  # noqa: N802
        current = self._neve_lakes.current
        if not current:
            return super().listDatabases(pattern)  # type: ignore[misc]
        names = sorted(map(".".join, self._neve_context(current).catalog.list_namespaces()))
        return [self._neve_database(current[0], n) for n in names if pattern is None or fnmatchcase(n, pattern)]

    def databaseExists(self, dbName: str) -> bool:  # noqa: N802, N803
        place = self._neve_namespace(dbName)
        if place is None:
            return super().databaseExists(dbName)  # type: ignore[misc]
        return bool(self._neve_context(place).catalog.namespace_exists(place[1:]))

    def getDatabase(self, dbName: str) -> Database:  # noqa: N802, N803
        place = self._neve_namespace(dbName)
        if place is None:
            return super().getDatabase(dbName)  # type: ignore[misc]
        return self._neve_database(place[0], ".".join(place[1:]))

    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:  # noqa: N802, N803
        place = self._neve_lakes.current or None if dbName is None else self._neve_namespace(dbName)
        if place is None:
            return super().listTables(dbName, pattern)  # type: ignore[misc]
        names = self._neve_context(place).table_names(".".join(place[1:]) or None)
        tables = (self._neve_table(place[0], tuple(name.split("."))) for name in names)
        return [table for table in tables if pattern is None or fnmatchcase(table.name, pattern)]

    def getTable(self, tableName: str) -> Table:  # noqa: N802, N803
        context = self._neve_find(tableName)
        if context is None:
            return super().getTable(tableName)  # type: ignore[misc]
        place = self._neve_lakes.place_of_text(tableName) or ("",)
        return self._neve_table(place[0], context.iceberg.name(), context.metadata.properties.get("comment"))

    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:  # noqa: N802, N803
        name = tableName if dbName is None else f"{dbName}.{quote_name(tableName)}"
        if self._neve_find(name) is not None:
            return True
        parts = parse_name(name)
        is_in_lake = parts is not None and parts[0] in self._neve_lakes.by_name
        return not is_in_lake and bool(super().tableExists(tableName, dbName))  # type: ignore[misc]

    def listColumns(self, tableName: str, dbName: str | None = None) -> list[Column]:  # noqa: N802, N803
        context = self._neve_find(tableName if dbName is None else f"{dbName}.{quote_name(tableName)}")
        if context is None:
            return super().listColumns(tableName, dbName)  # type: ignore[misc]
        partitioned = {field.source_id for field in context.metadata.spec().fields}
        return [
            Column(
                f.name,
                f.doc,
                spark_field(f).dataType.simpleString(),
                not f.required,
                f.field_id in partitioned,
                False,
                False,
            )
            for f in context.metadata.schema().fields
        ]

    def refreshTable(self, tableName: str) -> None:  # noqa: N802, N803
        if self._neve_lakes.place_of_text(tableName) is None:  # tables of lakes are always read anew
            super().refreshTable(tableName)  # type: ignore[misc]

    # -- lookups -----------------------------------------------------------------------------------------------------

    def _neve_find(self, name: str) -> TableContext | None:
        parts = parse_name(name)
        with spark_itself():
            found: TableContext | None = self._neve_lakes.table_lookup()(parts) if parts else None
            return found

    def _neve_namespace(self, name: str) -> Name | None:
        """Return the full name of a namespace of a lake; without the name of a lake, it is in the current catalog."""
        parts = parse_name(name)
        if parts is None or parts[0] in self._neve_lakes.by_name:
            return parts
        return (self._neve_lakes.current[0], *parts) if self._neve_lakes.current else None

    def _neve_context(self, place: Name) -> LakeContext:
        return self._neve_lakes.context_of(place)

    def _neve_database(self, lake: str, name: str) -> Database:
        catalog = self._neve_context((lake,)).catalog
        if not catalog.namespace_exists(tuple(name.split("."))):
            raise UnknownName("namespace", name, map(".".join, catalog.list_namespaces()), f"lake {lake}")
        properties = catalog.load_namespace_properties(tuple(name.split(".")))
        return Database(name, lake, properties.get("comment"), str(properties.get("location", "")))

    def _neve_table(self, lake: str, name: Name, comment: str | None = None) -> Table:
        return Table(name[-1], lake, list(name[:-1]), comment, "MANAGED", False)


def as_lake_catalog(lakes: SessionLakes, catalog: T, in_spark: RunInSpark) -> T:
    """Let the catalog of a session answer for its lakes; without any, it answers as Spark's own."""
    if not isinstance(catalog, _LakeCatalog):
        catalog.__class__ = derived_class(_LakeCatalog, catalog)
    catalog.__dict__.update(_neve_lakes=lakes, _neve_in_spark=in_spark)
    return catalog

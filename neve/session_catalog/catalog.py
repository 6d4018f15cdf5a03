"""`spark.catalog` over attached lakes: calls that name something in a lake are answered by it, all others by Spark."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TypeVar

from pyspark.sql.catalog import CatalogMetadata, Column, Database, Table

from neve.catalog import list_tables
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
        is_lake = catalogName in self._neve_lakes.by_name
        if not is_lake:
            super().setCurrentCatalog(catalogName)  # type: ignore[misc]
        self._neve_lakes.current = (catalogName,) if is_lake else ()

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
        own = [name for name in sorted(self._neve_lakes.by_name) if _matches(name, pattern)]
        return [*super().listCatalogs(pattern), *(CatalogMetadata(n, "a lake of Névé") for n in own)]  # type: ignore[misc]

    def listDatabases(self, pattern: str | None = None) -> list[Database]:  # noqa: N802
        current = self._neve_lakes.current
        if not current:
            return super().listDatabases(pattern)  # type: ignore[misc]
        names = sorted(self._neve_context(current).catalog.list_namespaces())
        return [self._neve_database(current[0], n) for n in names if _matches(".".join(n), pattern)]

    def databaseExists(self, dbName: str) -> bool:  # noqa: N802, N803
        place = self._neve_namespace(dbName)
        if place is None:
            return super().databaseExists(dbName)  # type: ignore[misc]
        return len(place) > 1 and bool(self._neve_context(place).catalog.namespace_exists(place[1:]))

    def getDatabase(self, dbName: str) -> Database:  # noqa: N802, N803
        place = self._neve_namespace(dbName)
        if place is None:
            return super().getDatabase(dbName)  # type: ignore[misc]
        return self._neve_database(place[0], place[1:])

    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:  # noqa: N802, N803
        place = self._neve_lakes.current or None if dbName is None else self._neve_namespace(dbName)
        if place is None:
            return super().listTables(dbName, pattern)  # type: ignore[misc]
        names = list_tables(self._neve_context(place).catalog, place[1:] or None)
        return [self._neve_table(place[0], name) for name in names if _matches(name[-1], pattern)]

    def getTable(self, tableName: str) -> Table:  # noqa: N802, N803
        context = self._neve_find(tableName)
        if context is None:
            return super().getTable(tableName)  # type: ignore[misc]
        place = self._neve_lakes.place_of_text(tableName) or ("",)
        return self._neve_table(place[0], context.iceberg.name(), context.metadata.properties.get("comment"))

    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:  # noqa: N802, N803
        name = tableName if dbName is None else f"{dbName}.{quote_name(tableName)}"
        parts = parse_name(name) or ("",)
        if self._neve_find(name) is not None or self._neve_lakes.find_view(parts) is not None:
            return True
        is_in_lake = len(parts) > 1 and parts[0] in self._neve_lakes.by_name
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
        place = self._neve_lakes.place_of_text(name)
        with spark_itself():
            found: TableContext | None = None if place is None else self._neve_lakes.table_lookup()(place)
            return found

    def _neve_namespace(self, name: str) -> Name | None:
        parts = parse_name(name)
        return None if parts is None else self._neve_lakes.place_of_namespace(parts)

    def _neve_context(self, place: Name) -> LakeContext:
        return self._neve_lakes.context_of(place)

    def _neve_database(self, lake: str, name: Name) -> Database:
        catalog = self._neve_context((lake,)).catalog
        if not name or not catalog.namespace_exists(name):
            raise UnknownName("namespace", ".".join(name), map(".".join, catalog.list_namespaces()), f"lake {lake}")
        properties = catalog.load_namespace_properties(name)
        return Database(".".join(name), lake, properties.get("comment"), str(properties.get("location", "")))

    def _neve_table(self, lake: str, name: Name, comment: str | None = None) -> Table:
        return Table(name[-1], lake, list(name[:-1]), comment, "MANAGED", False)


def as_lake_catalog(lakes: SessionLakes, catalog: T, in_spark: RunInSpark) -> T:
    """Return a catalog that answers for the lakes of a session too; the session keeps Spark's own as it is."""
    kind = derived_class(_LakeCatalog, catalog)
    own: T = kind.__new__(kind)
    own.__dict__.update(catalog.__dict__, _neve_lakes=lakes, _neve_in_spark=in_spark)
    return own


def _matches(name: str, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(name, pattern)

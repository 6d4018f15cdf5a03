"""Statements that later ones of the same lake see: USE, and CREATE and DROP TEMPORARY VIEW.

`USE` chooses the namespace of table names that give none. It belongs to the `Lake` object, as temporary views do;
Spark's own current database stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from neve.errors import UserError
from neve.ops.context import LakeContext, TemporaryView
from neve.ops.sql_views import is_temporary_view
from neve.predicate.column_names import quote_name
from neve.run.spark.read_columns import column_by_name
from neve.sql.query import QUERY_KEYWORDS, open_query, query_text, translate_query_errors
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions
from neve.sql.temporary_views import VIEW_MARKER, expand_temporary_views, with_full_names

TEMPORARY = ("TEMPORARY", "TEMP")
_KINDS = ("NAMESPACE", "DATABASE", "SCHEMA")


@dataclass(frozen=True)
class Use:
    """`USE [NAMESPACE | DATABASE | SCHEMA] ns`."""

    namespace: Name

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Use the namespace for later statements; the name of the catalog alone means none."""
        options.require_only("USE")
        begins_with_catalog = self.namespace[0] == lake.name
        namespace = self.namespace[1:] if begins_with_catalog else self.namespace
        if namespace:
            lake.table_names(".".join(namespace))  # an unknown namespace is an error
        lake.session.namespace = namespace


@dataclass(frozen=True)
class ShowCurrentNamespace:
    """`SHOW CURRENT NAMESPACE`."""

    def run(self, lake: LakeContext, options: StatementOptions) -> pa.Table:
        """Return the catalog of the lake and the namespace in use."""
        options.require_only("SHOW CURRENT NAMESPACE")
        return pa.table({"catalog": [lake.name], "namespace": [".".join(lake.session.namespace)]})


def parse_use(reader: Reader) -> Use:
    """Parse a USE."""
    reader.expect("USE")
    for kind in _KINDS:
        reader.take_if_next(kind)
    return Use(reader.dotted_name("a namespace"))


def parse_show_current(reader: Reader) -> ShowCurrentNamespace:
    """Parse a SHOW CURRENT NAMESPACE."""
    reader.expect("SHOW", "CURRENT")
    if not any(reader.take_if_next(kind) for kind in _KINDS):
        raise reader.syntax_error("expected NAMESPACE")
    return ShowCurrentNamespace()


@dataclass(frozen=True)
class CreateTemporaryView:
    """`CREATE [OR REPLACE] TEMPORARY VIEW v [(columns)] AS query`."""

    name: str
    query: str
    columns: tuple[str, ...] = ()
    replaces: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Create the view in the lake and in the Spark session; both last as long as these."""
        options.require_only("CREATE TEMPORARY VIEW")
        spark, marker = lake.spark(), uuid4().hex
        query = with_full_names(lake, self.query)
        if self.columns:
            names = ", ".join(map(quote_name, self.columns))
            query = f"SELECT * FROM ({query}) AS {quote_name(self.name)}({names})"  # noqa: S608
        if not self.replaces and is_temporary_view(spark, self.name):
            raise UserError(f"There is already a temporary view {self.name!r}. Write CREATE OR REPLACE TEMPORARY VIEW.")
        if self.replaces:
            expand_temporary_views(lake, query, (self.name.lower(),))  # rejects a view that would read itself
        with open_query(lake, query) as frame, translate_query_errors(lake):
            first, *others = frame.schema.fields
            metadata = {**(first.metadata or {}), VIEW_MARKER: marker}
            columns = [column_by_name(field.name) for field in others]
            marked = frame.select(column_by_name(first.name).alias(first.name, metadata=metadata), *columns)
            marked.createOrReplaceTempView(quote_name(self.name))
        lake.session.views[self.name.lower()] = TemporaryView(query, marker)


def drop_temporary_view(lake: LakeContext, name: str) -> bool:
    """Drop a temporary view of the lake or of Spark, and return whether there was one."""
    lake.session.views.pop(name.lower(), None)
    return bool(lake.spark().catalog.dropTempView(name))


def parse_create_temporary_view(reader: Reader) -> CreateTemporaryView:
    """Parse a CREATE TEMPORARY VIEW."""
    reader.expect("CREATE")
    replaces = reader.take_if_next("OR", "REPLACE")
    if not any(reader.take_if_next(word) for word in TEMPORARY):
        raise reader.syntax_error("expected TEMPORARY")
    reader.expect("VIEW")
    name, columns = reader.name("the name of a view"), tuple[str, ...]()
    if reader.sees("("):
        columns = reader.bracketed_list(lambda: reader.name("a column"))
    reader.expect("AS")
    if not reader.sees_one_of(*QUERY_KEYWORDS):
        raise reader.syntax_error("expected a query")
    return CreateTemporaryView(name, query_text(reader), columns, replaces)

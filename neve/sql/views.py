"""CREATE, ALTER and DROP VIEW: views that the catalog keeps, for every engine that reads Iceberg's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import StructField, StructType

import neve.catalog as catalogs
from neve.errors import UserError
from neve.model.view import QUERY_COLUMNS, ViewDefinition, change_properties, replace_definition
from neve.ops.context import LakeContext
from neve.run.spark.types import iceberg_schema
from neve.sql.alter_table import parse_properties, parse_property_name
from neve.sql.query import QUERY_KEYWORDS, open_query, query_text
from neve.sql.reader import Reader
from neve.sql.session_statements import drop_temporary_view
from neve.sql.statement import Name, StatementOptions, identifier, table_finder
from neve.sql.stored_views import query_of_lake, refuse_cycle, require_view, view_finder


@dataclass(frozen=True)
class ViewColumn:
    """A column as CREATE VIEW names it."""

    name: str
    comment: str | None = None


@dataclass(frozen=True)
class CreateView:
    """`CREATE [OR REPLACE] VIEW [IF NOT EXISTS] v [(columns)] [COMMENT …] [TBLPROPERTIES (…)] AS query`."""

    name: Name
    query: str
    columns: tuple[ViewColumn, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    if_not_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Create the view, or a new version of it."""
        options.require_only("CREATE VIEW")
        view, name = view_finder(lake)(self.name), catalogs.identifier_of(identifier(lake, self.name))
        if view is not None and self.if_not_exists:
            return
        if view is not None and not self.replaces:
            raise UserError(f"There is already a view {view.name}. Write CREATE OR REPLACE VIEW to replace it.")
        if view is None and table_finder(lake)(self.name) is not None:
            raise UserError(f"There is already a table {'.'.join(name)}. Choose another name for the view.")
        definition = self._define(lake)
        if view is not None:
            refuse_cycle(lake, view, self.query)
        definition = self._define(lake)
        if view is None:
            catalogs.create_view(lake.catalog, name, definition)
        else:
            catalogs.replace_view(lake.catalog, view, replace_definition(view.metadata, definition))

    def _define(self, lake: LakeContext) -> ViewDefinition:
        """Return the definition, after Spark has checked the query."""
        with open_query(lake, self.query) as rows:
            fields = rows.schema.fields
        if self.columns and len(self.columns) != len(fields):
            raise UserError(
                f"Cannot create view {'.'.join(self.name)}: it names {len(self.columns)} columns, and its query has "
                f"{len(fields)}."
            )
        columns = self.columns or [ViewColumn(f.name, f.metadata.get("comment")) for f in fields]
        _refuse_equal_names(column.name for column in columns)
        struct = StructType(
            [
                StructField(column.name, f.dataType, True, {"comment": column.comment} if column.comment else None)
                for column, f in zip(columns, fields, strict=True)
            ]
        )
        properties = {QUERY_COLUMNS: ",".join(f.name for f in fields), **self.properties}
        query = query_of_lake(lake, self.query)
        return ViewDefinition(query, iceberg_schema(struct), lake.session.namespace, properties)


def _refuse_equal_names(names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name.lower() in seen:
            raise UserError(f"Cannot create a view with two columns {name!r}. Name its columns in parentheses.")
        seen.add(name.lower())


@dataclass(frozen=True)
class DropView:
    """`DROP VIEW [IF EXISTS] v`: a temporary view of this name, or else one that the catalog keeps."""

    name: Name
    if_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Drop the view."""
        options.require_only("DROP VIEW")
        if len(self.name) == 1 and drop_temporary_view(lake, self.name[0]):
            return
        if not self.if_exists or view_finder(lake)(self.name) is not None:
            catalogs.drop_view(lake.catalog, require_view(lake, self.name).identifier)


@dataclass(frozen=True)
class ChangeViewProperties:
    """`ALTER VIEW v SET TBLPROPERTIES (…)` or `UNSET TBLPROPERTIES (…)`."""

    name: Name
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Change the properties; one to remove that is not set is left alone."""
        options.require_only("ALTER VIEW")
        view = require_view(lake, self.name)
        catalogs.replace_view(lake.catalog, view, change_properties(view.metadata, self.updates, self.removals))


@dataclass(frozen=True)
class RenameView:
    """`ALTER VIEW v RENAME TO w`."""

    name: Name
    new_name: Name

    def run(self, lake: LakeContext, options: StatementOptions) -> None:
        """Rename the view."""
        options.require_only("ALTER VIEW")
        catalogs.rename_view(lake.catalog, require_view(lake, self.name).identifier, identifier(lake, self.new_name))


def parse_create_view(reader: Reader) -> CreateView:
    """Parse a CREATE VIEW; the clauses may come in any order, each once."""
    reader.expect("CREATE")
    replaces = reader.take_if_next("OR", "REPLACE")
    reader.expect("VIEW")
    if_not_exists = not replaces and reader.take_if_next("IF", "NOT", "EXISTS")
    name, columns = reader.table_name(), tuple[ViewColumn, ...]()
    if reader.sees("("):
        columns = reader.bracketed_list(lambda: _parse_column(reader))
    properties = dict[str, str]()
    while (at := reader.word) is not None and not reader.take_if_next("AS"):
        if reader.take_if_next("COMMENT"):
            added = {"comment": reader.string("a comment")}
        elif reader.take_if_next("TBLPROPERTIES"):
            added = parse_properties(reader)
        else:
            raise reader.syntax_error("expected COMMENT, TBLPROPERTIES or AS")
        for twice in properties.keys() & added.keys():
            raise reader.syntax_error(f"property {twice!r} is given twice", at)
        properties |= added
    if not reader.sees_one_of(*QUERY_KEYWORDS):
        raise reader.syntax_error("expected a query")
    return CreateView(name, query_text(reader), columns, properties, replaces, if_not_exists)


def _parse_column(reader: Reader) -> ViewColumn:
    name = reader.name("a column")
    return ViewColumn(name, reader.string("a comment") if reader.take_if_next("COMMENT") else None)


def parse_drop_view(reader: Reader) -> DropView:
    """Parse a DROP VIEW."""
    reader.expect("DROP", "VIEW")
    if_exists = reader.take_if_next("IF", "EXISTS")
    return DropView(reader.dotted_name("the name of a view"), if_exists)


def parse_alter_view(reader: Reader) -> ChangeViewProperties | RenameView:
    """Parse an ALTER VIEW."""
    reader.expect("ALTER", "VIEW")
    name = reader.table_name()
    if reader.take_if_next("RENAME", "TO"):
        return RenameView(name, reader.table_name())
    if reader.take_if_next("SET", "TBLPROPERTIES"):
        return ChangeViewProperties(name, parse_properties(reader))
    if reader.take_if_next("UNSET", "TBLPROPERTIES"):
        reader.take_if_next("IF", "EXISTS")
        return ChangeViewProperties(name, removals=reader.bracketed_list(lambda: parse_property_name(reader)))
    if reader.sees("AS"):
        raise reader.syntax_error("an ALTER VIEW changes no query: write CREATE OR REPLACE VIEW")
    raise reader.syntax_error("expected RENAME TO, SET TBLPROPERTIES or UNSET TBLPROPERTIES")

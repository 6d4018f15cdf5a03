"""ALTER TABLE … ADD, DROP, RENAME and ALTER COLUMN, and SET and DROP IDENTIFIER FIELDS.

Column names are resolved as the Spark session resolves them. A session that is not case-sensitive finds a column by its
name in any case. It may not create two columns whose names differ only in case, since it could read neither of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from neve.errors import UnknownName, UserError
from neve.model.ddl import schema_of_ddl
from neve.model.ddl_types import refuse_duplicate_column
from neve.ops.context import LakeContext
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.predicate.column_names import find_column, quote_name
from neve.predicate.constants import parse_time_zone
from neve.run.spark.session import is_case_sensitive
from neve.sql.column_defaults import constant_default, parse_definition
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, find_table
from neve.table import Table


@dataclass
class TableColumns:
    """The columns of a table, and the change that is being made to them."""

    table: Table
    change: SchemaChange
    is_case_sensitive: bool
    zone: tzinfo  # in which times without a zone are read
    new_paths: list[Name] = field(default_factory=list)

    def path(self, name: Name) -> Name:
        """Return the path of a column in its actual case; an unknown path is returned as it is."""
        if self.is_case_sensitive or not name:
            return name
        outer, last = self.path(name[:-1]), name[-1]
        for new_path in self.new_paths:
            if _lower_case(new_path) == _lower_case((*outer, last)):
                return new_path
        field = find_column(Schema(*self._fields_inside(outer)), last, case_sensitive=False)
        return (*outer, last if field is None or "." in last else field.name)

    def add_path(self, path: Name) -> Name:
        """Return the path of a column to add."""
        outer, name = self.path(path[:-1]), path[-1]
        self._refuse_alike(outer, name)
        self.new_paths.append((*outer, name))
        return self.new_paths[-1]

    def path_to_rename(self, old_path: Name, new_name: str) -> Name:
        """Return the path of a column to rename; changing only its case makes no second column."""
        path = self.path(old_path)
        self._refuse_alike(path[:-1], new_name, except_name=path[-1])
        return path

    def _refuse_alike(self, outer: Name, name: str, except_name: str | None = None) -> None:
        if not self.is_case_sensitive:
            siblings = [f.name for f in self._fields_inside(outer)] + [p[-1] for p in self.new_paths if p[:-1] == outer]
            refuse_duplicate_column(name, [other for other in siblings if other != except_name])

    def _fields_inside(self, outer: Name) -> tuple[ice.NestedField, ...]:
        """Return the top-level columns, or the fields of a struct, also inside a list or the values of a map."""
        if not outer:
            return self.table.schema.fields
        parent = find_column(self.table.schema, ".".join(outer), case_sensitive=True)
        match None if parent is None else parent.field_type:
            case ice.StructType() as struct:
                return struct.fields
            case (
                ice.ListType(element_type=ice.StructType() as struct)
                | ice.MapType(value_type=ice.StructType() as struct)
            ):
                return struct.fields
        return ()


def _lower_case(path: Name) -> Name:
    return tuple(part.lower() for part in path)


@dataclass(frozen=True)
class ColumnPosition:
    """The position of a column: first, or after another."""

    after: str | None = None  # None: first

    def move(self, columns: TableColumns, path: Name) -> None:
        """Move a column to this position."""
        if self.after is None:
            columns.change.move_first(path)
        else:
            columns.change.move_after(path, columns.path((*path[:-1], self.after)))


@dataclass(frozen=True)
class NewColumn:
    """A column to add: `name type [NOT NULL] [COMMENT '…'] [DEFAULT …] [FIRST | AFTER other]`."""

    path: Name
    definition: str  # what follows the name, up to the default and the position
    default: str | None = None
    position: ColumnPosition | None = None

    def add(self, columns: TableColumns) -> None:
        """Add the column."""
        field, path = _parse_field(self.path[-1], self.definition), columns.add_path(self.path)
        default = None if self.default is None else constant_default(self.default, field.field_type, columns.zone)
        columns.change.add_column(path, field.field_type, field.doc, field.required, default)
        if self.position is not None:
            self.position.move(columns, path)


@dataclass(frozen=True)
class ColumnChange(ABC):
    """An ALTER TABLE that changes columns; all its changes are committed at once."""

    table: Name

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Change the columns."""
        options.require_only("ALTER TABLE")
        table = find_table(lake, self.table)
        spark: Any = lake.running_spark()  # a change of metadata starts no session
        case_sensitive = spark is not None and is_case_sensitive(spark)
        change = table.evolve_schema()
        with change:
            self._apply(TableColumns(table, change, case_sensitive, parse_time_zone(lake.time_zone())))
        return table

    @abstractmethod
    def _apply(self, columns: TableColumns) -> None: ...


@dataclass(frozen=True)
class AddColumns(ColumnChange):
    """`ALTER TABLE t ADD COLUMNS (…)`."""

    columns: tuple[NewColumn, ...]

    def _apply(self, columns: TableColumns) -> None:
        for column in self.columns:
            column.add(columns)


@dataclass(frozen=True)
class DropColumns(ColumnChange):
    """`ALTER TABLE t DROP COLUMNS (…)`."""

    columns: tuple[Name, ...]
    if_exists: bool = False

    def _apply(self, columns: TableColumns) -> None:
        for path in self.columns:
            actual_path = columns.path(path)
            if not self.if_exists or ".".join(actual_path) in columns.table.schema.column_names:
                columns.change.delete_column(actual_path)


@dataclass(frozen=True)
class RenameColumn(ColumnChange):
    """`ALTER TABLE t RENAME COLUMN a TO b`."""

    column: Name
    new_name: str

    def _apply(self, columns: TableColumns) -> None:
        columns.change.rename_column(columns.path_to_rename(self.column, self.new_name), self.new_name)


@dataclass(frozen=True)
class AlterColumn(ColumnChange):
    """`ALTER TABLE t ALTER COLUMN a TYPE bigint`, or another change of one column."""

    column: Name
    type: str | None = None
    is_required: bool | None = None
    comment: str | None = None
    position: ColumnPosition | None = None
    default: str | None = None  # an expression; NULL removes the default

    def _apply(self, columns: TableColumns) -> None:
        change, path = columns.change, columns.path(self.column)
        if self.type is not None:
            field = _parse_field(self.column[-1], self.type)
            if field.required or field.doc is not None:
                raise UserError(
                    f"Cannot change column {'.'.join(self.column)!r} to {self.type!r}: TYPE takes a type alone. Change "
                    "NOT NULL and COMMENT in separate statements."
                )
            change.update_column(path, field.field_type)
        if self.comment is not None:
            change.update_column(path, doc=self.comment)
        if self.is_required:
            change.update_column(path, required=True)
        elif self.is_required is not None:
            change.make_column_optional(path)
        if self.default is not None:
            change.set_default_value(path, constant_default(self.default, change.find(path).field_type, columns.zone))
        if self.position is not None:
            self.position.move(columns, path)


@dataclass(frozen=True)
class SetIdentifierFields(ColumnChange):
    """`ALTER TABLE t SET IDENTIFIER FIELDS a, b`: the columns that identify a row."""

    columns: tuple[Name, ...]

    def _apply(self, columns: TableColumns) -> None:
        columns.change.set_identifier_fields(*(".".join(columns.path(path)) for path in self.columns))


@dataclass(frozen=True)
class DropIdentifierFields(ColumnChange):
    """`ALTER TABLE t DROP IDENTIFIER FIELDS a, b`: these columns identify rows no longer."""

    columns: tuple[Name, ...]

    def _apply(self, columns: TableColumns) -> None:
        fields = columns.table.schema.identifier_field_names()
        dropped = [".".join(columns.path(path)) for path in self.columns]
        for name in dropped:
            if name not in fields:
                raise UnknownName("identifier field", name, sorted(fields), f"table {columns.table.name}")
        columns.change.set_identifier_fields(*sorted(fields - set(dropped)))


def parse_add_columns(reader: Reader, table: Name) -> AddColumns:
    """Parse what follows ADD COLUMNS."""

    def parse_column() -> NewColumn:
        path = reader.dotted_name("a column")
        definition, default = parse_column_definition(reader)
        return NewColumn(path, definition, default, _parse_position(reader))

    return AddColumns(table, reader.optionally_bracketed_list(parse_column))


def parse_drop_columns(reader: Reader, table: Name) -> DropColumns:
    """Parse what follows DROP COLUMNS."""
    if_exists = reader.take_if_next("IF", "EXISTS")
    return DropColumns(table, reader.optionally_bracketed_list(lambda: reader.dotted_name("a column")), if_exists)


def parse_rename_column(reader: Reader, table: Name) -> RenameColumn:
    """Parse what follows RENAME COLUMN."""
    column = reader.dotted_name("a column")
    reader.expect("TO")
    return RenameColumn(table, column, reader.name("a name"))


def parse_alter_column(reader: Reader, table: Name) -> AlterColumn:
    """Parse what follows ALTER COLUMN."""
    column = reader.dotted_name("a column")
    if reader.take_if_next("TYPE"):
        return AlterColumn(table, column, type=parse_definition(reader))
    if reader.take_if_next("COMMENT"):
        return AlterColumn(table, column, comment=reader.string("a comment"))
    for words, is_required in ((("SET", "NOT", "NULL"), True), (("DROP", "NOT", "NULL"), False)):
        if reader.take_if_next(*words):
            return AlterColumn(table, column, is_required=is_required)
    if reader.take_if_next("SET", "DEFAULT"):
        return AlterColumn(table, column, default=reader.remaining_text("a value"))
    if reader.take_if_next("DROP", "DEFAULT"):
        return AlterColumn(table, column, default="NULL")
    position = _parse_position(reader)
    if position is None:
        raise reader.syntax_error("expected TYPE, COMMENT, SET or DROP NOT NULL, SET or DROP DEFAULT, FIRST or AFTER")
    return AlterColumn(table, column, position=position)


def _parse_position(reader: Reader) -> ColumnPosition | None:
    if reader.take_if_next("FIRST"):
        return ColumnPosition()
    return ColumnPosition(reader.name("a column")) if reader.take_if_next("AFTER") else None


def parse_column_definition(reader: Reader) -> tuple[str, str | None]:
    """Parse what follows the name of a new column: its type and clauses, and the text of its default."""
    definition, default = parse_definition(reader), None
    if reader.take_if_next("DEFAULT"):
        default = reader.text_until(",", ")", "FIRST", "AFTER", "COMMENT", "NOT", what="a value")
        if reader.sees_one_of("COMMENT", "NOT"):
            definition = f"{definition} {parse_definition(reader)}"
    return definition, default


def _parse_field(name: str, definition: str) -> ice.NestedField:
    return schema_of_ddl(f"{quote_name(name)} {definition}").fields[0]

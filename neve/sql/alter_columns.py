"""ALTER TABLE … ADD, DROP, RENAME and ALTER COLUMN.

The columns of a table while a statement changes them, found as the session finds names.

A session that does not tell upper from lower case finds a column by a name in any case, and may not make two columns
whose names differ in nothing else: it could read neither of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, TimestampType, TimestamptzType
from sqlglot import exp

from neve.errors import UserError
from neve.model.ddl import schema_of_ddl
from neve.model.ddl_types import refuse_duplicate_column
from neve.ops.context import LakeContext
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.predicate.column_names import find_column, quote_name
from neve.predicate.constants import ConstantKind, parse_constant, parse_time_zone, utc_to_local_micros
from neve.predicate.sql_text import parse_sql
from neve.run.spark.session import is_case_sensitive
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, find_table
from neve.table import Table


@dataclass
class TableColumns:
    """The columns of a table and the change that is being made to them."""

    table: Table
    change: SchemaChange
    is_case_sensitive: bool
    zone: tzinfo  # of the clock on which times without one are read
    new_paths: list[Name] = field(default_factory=list)

    def path(self, name: Name) -> Name:
        """The path of a column in the case it has; one that is not there stays as it is."""
        if self.is_case_sensitive or not name:
            return name
        outer, last = self.path(name[:-1]), name[-1]
        if (
            added := next((a for a in self.new_paths if _lower_case(a) == _lower_case((*outer, last))), None)
        ) is not None:
            return added
        found = find_column(Schema(*self._fields_inside(outer)), last, case_sensitive=False)
        return (*outer, last if found is None or "." in last else found.name)

    def add_path(self, given: Name) -> Name:
        """The path of a column to be added."""
        outer = self.path(given[:-1])
        self._refuse_alike(outer, given[-1])
        self.new_paths.append((*outer, given[-1]))
        return self.new_paths[-1]

    def path_to_rename(self, given: Name, new_name: str) -> Name:
        """The path of a column to be renamed; a change of nothing but its case is no second column."""
        path = self.path(given)
        self._refuse_alike(path[:-1], new_name, except_name=path[-1])
        return path

    def has_column(self, given: Name) -> bool:
        """Whether the table has such a column."""
        return ".".join(self.path(given)) in self.table.schema.column_names

    def _refuse_alike(self, outer: Name, name: str, except_name: str | None = None) -> None:
        if not self.is_case_sensitive:
            beside = [f.name for f in self._fields_inside(outer)] + [a[-1] for a in self.new_paths if a[:-1] == outer]
            refuse_duplicate_column(name, [other for other in beside if other != except_name])

    def _fields_inside(self, outer: Name) -> tuple[NestedField, ...]:
        """The columns at the top, or those of a struct, also of one inside a list or the values of a map."""
        if not outer:
            return self.table.schema.fields
        around = find_column(self.table.schema, ".".join(outer), case_sensitive=True)
        match None if around is None else around.field_type:
            case StructType() as struct:
                return struct.fields
            case ListType(element_type=StructType() as struct) | MapType(value_type=StructType() as struct):
                return struct.fields
        return ()


@contextmanager
def evolve_columns(lake: LakeContext, name: Name) -> Iterator[TableColumns]:
    """The columns of a table, to be changed; the change lands when the block ends."""
    table = find_table(lake, name)
    running: Any = lake.running_spark()  # none is started for a change of metadata
    tells_case = running is not None and is_case_sensitive(running)
    change = table.evolve_schema()
    with change:
        yield TableColumns(table, change, tells_case, parse_time_zone(lake.time_zone()))


def _lower_case(path: Name) -> Name:
    return tuple(part.lower() for part in path)


_KEYWORDS_AFTER_TYPE = ("FIRST", "AFTER", "DEFAULT")


@dataclass(frozen=True)
class ColumnPosition:
    """Where a column goes: first, or after another."""

    after: str | None = None  # None: first

    def move(self, columns: TableColumns, path: Name) -> None:
        """Move a column there."""
        if self.after is None:
            columns.change.move_first(path)
        else:
            columns.change.move_after(path, columns.path((*path[:-1], self.after)))


@dataclass(frozen=True)
class NewColumn:
    """A column to add: `name type [NOT NULL] [COMMENT '…'] [DEFAULT …] [FIRST | AFTER other]`."""

    path: Name
    definition: str  # what follows the name, up to default and place
    default: str | None = None
    position: ColumnPosition | None = None

    def add(self, columns: TableColumns) -> None:
        """Add it."""
        field, path = _parse_field(self.path[-1], self.definition), columns.add_path(self.path)
        default = None if self.default is None else _default_value(self.default, field.field_type, columns.zone)
        columns.change.add_column(path, field.field_type, field.doc, field.required, default)
        if self.position is not None:
            self.position.move(columns, path)


@dataclass(frozen=True)
class AddColumns:
    """`ALTER TABLE t ADD COLUMNS (…)`."""

    table: Name
    columns: tuple[NewColumn, ...]

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Add the columns."""
        options.require_only("ALTER TABLE")
        with evolve_columns(lake, self.table) as columns:
            for column in self.columns:
                column.add(columns)
        return columns.table


@dataclass(frozen=True)
class DropColumns:
    """`ALTER TABLE t DROP COLUMNS (…)`."""

    table: Name
    columns: tuple[Name, ...]
    if_exists: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Drop the columns."""
        options.require_only("ALTER TABLE")
        with evolve_columns(lake, self.table) as columns:
            for path in self.columns:
                if not self.if_exists or columns.has_column(path):
                    columns.change.delete_column(columns.path(path))
        return columns.table


@dataclass(frozen=True)
class RenameColumn:
    """`ALTER TABLE t RENAME COLUMN a TO b`."""

    table: Name
    column: Name
    new_name: str

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Rename the column."""
        options.require_only("ALTER TABLE")
        with evolve_columns(lake, self.table) as columns:
            columns.change.rename_column(columns.path_to_rename(self.column, self.new_name), self.new_name)
        return columns.table


@dataclass(frozen=True)
class AlterColumn:
    """`ALTER TABLE t ALTER COLUMN a TYPE bigint`, or another change of one column."""

    table: Name
    column: Name
    type: str | None = None
    is_required: bool | None = None
    comment: str | None = None
    position: ColumnPosition | None = None
    default: str | None = None  # an expression; NULL for none

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Change the column."""
        options.require_only("ALTER TABLE")
        with evolve_columns(lake, self.table) as columns:
            self._apply(columns, columns.path(self.column))
        return columns.table

    def _apply(self, columns: TableColumns, path: Name) -> None:
        change = columns.change
        if self.type is not None:
            change.update_column(path, self._new_type(self.type))
        if self.comment is not None:
            change.update_column(path, doc=self.comment)
        if self.is_required:
            change.update_column(path, required=True)
        elif self.is_required is not None:
            change.make_column_optional(path)
        if self.default is not None:
            change.set_default_value(path, _default_value(self.default, change.find(path).field_type, columns.zone))
        if self.position is not None:
            self.position.move(columns, path)

    def _new_type(self, text: str) -> IcebergType:
        field = _parse_field(self.column[-1], text)
        if field.required or field.doc is not None:
            raise UserError(
                f"Cannot change column {'.'.join(self.column)!r} to {text!r}: TYPE takes a type alone. Change NOT NULL "
                "and COMMENT in statements of their own."
            )
        return field.field_type


@dataclass(frozen=True)
class SetIdentifierFields:
    """`ALTER TABLE t SET IDENTIFIER FIELDS a, b`: the columns that tell rows apart."""

    table: Name
    columns: tuple[Name, ...]

    def run(self, lake: LakeContext, options: StatementOptions) -> Table:
        """Set the identifier fields."""
        options.require_only("ALTER TABLE")
        with evolve_columns(lake, self.table) as columns:
            columns.change.set_identifier_fields(*(".".join(columns.path(path)) for path in self.columns))
        return columns.table


def parse_add_columns(reader: Reader, table: Name) -> AddColumns:
    """Read what follows ADD COLUMNS."""
    return AddColumns(table, reader.optionally_bracketed_list(lambda: _parse_new_column(reader)))


def parse_drop_columns(reader: Reader, table: Name) -> DropColumns:
    """Read what follows DROP COLUMNS."""
    if_exists = reader.take_if_next("IF", "EXISTS")
    return DropColumns(table, reader.optionally_bracketed_list(lambda: reader.dotted_name("a column")), if_exists)


def parse_rename_column(reader: Reader, table: Name) -> RenameColumn:
    """Read what follows RENAME COLUMN."""
    column = reader.dotted_name("a column")
    reader.expect("TO")
    return RenameColumn(table, column, reader.name("a name"))


def parse_set_identifier_fields(reader: Reader, table: Name) -> SetIdentifierFields:
    """Read what follows SET IDENTIFIER FIELDS."""
    return SetIdentifierFields(table, reader.comma_list(lambda: reader.dotted_name("a column")))


def parse_alter_column(reader: Reader, table: Name) -> AlterColumn:
    """Read what follows ALTER COLUMN."""
    column = reader.dotted_name("a column")
    if reader.take_if_next("TYPE"):
        return AlterColumn(table, column, type=_parse_definition(reader))
    if reader.take_if_next("COMMENT"):
        return AlterColumn(table, column, comment=reader.string("a comment"))
    for words, is_required in ((("SET", "NOT", "NULL"), True), (("DROP", "NOT", "NULL"), False)):
        if reader.take_if_next(*words):
            return AlterColumn(table, column, is_required=is_required)
    if reader.take_if_next("SET", "DEFAULT"):
        return AlterColumn(table, column, default=reader.remaining_text("a value"))
    if reader.take_if_next("DROP", "DEFAULT"):
        return AlterColumn(table, column, default="NULL")
    place = _parse_position(reader)
    if place is None:
        raise reader.syntax_error("expected TYPE, COMMENT, SET or DROP NOT NULL, SET or DROP DEFAULT, FIRST or AFTER")
    return AlterColumn(table, column, position=place)


def _parse_new_column(reader: Reader) -> NewColumn:
    path = reader.dotted_name("a column")
    definition = _parse_definition(reader)
    default = reader.text_until(",", ")", "FIRST", "AFTER", what="a value") if reader.take_if_next("DEFAULT") else None
    return NewColumn(path, definition, default, _parse_position(reader))


def _parse_position(reader: Reader) -> ColumnPosition | None:
    if reader.take_if_next("FIRST"):
        return ColumnPosition()
    return ColumnPosition(reader.name("a column")) if reader.take_if_next("AFTER") else None


def _parse_definition(reader: Reader) -> str:
    """A type with what may follow it; commas inside of `struct<…>` and `decimal(…)` are part of it."""
    start, depth = reader.position, 0
    while (word := reader.word) is not None:
        if depth == 0 and word.matches(",", ")", *_KEYWORDS_AFTER_TYPE):
            break
        depth += sum(word.text.count(c) for c in "<(") - sum(word.text.count(c) for c in ">)")
        reader.position += 1
    if reader.position == start:
        raise reader.syntax_error("expected a type")
    return reader.text[reader.words[start].start : reader.words[reader.position - 1].end]


def _parse_field(name: str, definition: str) -> NestedField:
    return schema_of_ddl(f"{quote_name(name)} {definition}").fields[0]


def _default_value(text: str, kind: IcebergType, zone: tzinfo) -> Any:
    """The value a constant has in a column of some type."""
    node: Any = parse_sql(text)[0]
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        moment = _timestamp_micros(node, kind, zone)
        return node.this.name if moment is None else moment
    found = parse_constant(node, zone)
    if found is None:
        raise UserError(f"Cannot take {text} as a default value: give a constant.")
    return found.value


def _timestamp_micros(node: exp.Cast, kind: IcebergType, zone: tzinfo) -> int | None:
    """The microseconds that a time or a day is in a column of timestamps, as Spark casts it; None for anything else."""
    found = parse_constant(node, zone) if isinstance(kind, TimestampType | TimestamptzType) else None
    if found is None:
        return None
    if isinstance(kind, TimestampType) and found.kind is ConstantKind.INSTANT:
        return utc_to_local_micros(found.value, zone)
    target = "timestamp_ntz" if isinstance(kind, TimestampType) else "timestamp"
    cast = parse_constant(exp.cast(node, target, dialect="spark"), zone)
    return None if cast is None else int(cast.value)

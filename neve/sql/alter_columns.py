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
from neve.model.ddl_types import refuse_alike
from neve.ops.context import LakeContext
from neve.ops.metadata.evolve_schema import SchemaChange
from neve.predicate.column_names import find_column, quoted
from neve.predicate.constants import Kind, constant, local, zone_of
from neve.predicate.sql_text import parsed
from neve.run.spark.session import is_case_sensitive
from neve.sql.reader import Reader
from neve.sql.statement import Name, Options, table_named
from neve.table import Table


@dataclass
class Columns:
    """The columns of a table and the change that is being made to them."""

    table: Table
    change: SchemaChange
    is_case_sensitive: bool
    zone: tzinfo  # of the clock on which times without one are read
    added: list[Name] = field(default_factory=list)

    def path(self, given: Name) -> Name:
        """The path of a column in the case it has; one that is not there stays as it is."""
        if self.is_case_sensitive or not given:
            return given
        outer, last = self.path(given[:-1]), given[-1]
        if (added := next((a for a in self.added if _folded(a) == _folded((*outer, last))), None)) is not None:
            return added
        found = find_column(Schema(*self._fields(outer)), last, case_sensitive=False)
        return (*outer, last if found is None or "." in last else found.name)

    def added_path(self, given: Name) -> Name:
        """The path of a column to be added."""
        outer = self.path(given[:-1])
        self._refuse_alike(outer, given[-1])
        self.added.append((*outer, given[-1]))
        return self.added[-1]

    def renamed_path(self, given: Name, new_name: str) -> Name:
        """The path of a column to be renamed; a change of nothing but its case is no second column."""
        path = self.path(given)
        self._refuse_alike(path[:-1], new_name, besides=path[-1])
        return path

    def has(self, given: Name) -> bool:
        """Whether the table has such a column."""
        return ".".join(self.path(given)) in self.table.schema.column_names

    def _refuse_alike(self, outer: Name, name: str, besides: str | None = None) -> None:
        if not self.is_case_sensitive:
            beside = [f.name for f in self._fields(outer)] + [a[-1] for a in self.added if a[:-1] == outer]
            refuse_alike(name, [other for other in beside if other != besides])

    def _fields(self, outer: Name) -> tuple[NestedField, ...]:
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
def evolving(lake: LakeContext, name: Name) -> Iterator[Columns]:
    """The columns of a table, to be changed; the change lands when the block ends."""
    table = table_named(lake, name)
    running: Any = lake.running_spark()  # none is started for a change of metadata
    tells_case = running is not None and is_case_sensitive(running)
    change = table.evolve_schema()
    with change:
        yield Columns(table, change, tells_case, zone_of(lake.time_zone()))


def _folded(path: Name) -> Name:
    return tuple(part.lower() for part in path)


_AFTER_A_TYPE = ("FIRST", "AFTER", "DEFAULT")


@dataclass(frozen=True)
class Place:
    """Where a column goes: first, or after another."""

    after: str | None = None  # None: first

    def move(self, columns: Columns, path: Name) -> None:
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
    place: Place | None = None

    def add(self, columns: Columns) -> None:
        """Add it."""
        field, path = _field(self.path[-1], self.definition), columns.added_path(self.path)
        default = None if self.default is None else _value(self.default, field.field_type, columns.zone)
        columns.change.add_column(path, field.field_type, field.doc, field.required, default)
        if self.place is not None:
            self.place.move(columns, path)


@dataclass(frozen=True)
class AddColumns:
    """`ALTER TABLE t ADD COLUMNS (…)`."""

    table: Name
    columns: tuple[NewColumn, ...]

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Add the columns."""
        options.only("ALTER TABLE")
        with evolving(lake, self.table) as columns:
            for column in self.columns:
                column.add(columns)
        return columns.table


@dataclass(frozen=True)
class DropColumns:
    """`ALTER TABLE t DROP COLUMNS (…)`."""

    table: Name
    columns: tuple[Name, ...]
    if_exists: bool = False

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Drop the columns."""
        options.only("ALTER TABLE")
        with evolving(lake, self.table) as columns:
            for path in self.columns:
                if not self.if_exists or columns.has(path):
                    columns.change.delete_column(columns.path(path))
        return columns.table


@dataclass(frozen=True)
class RenameColumn:
    """`ALTER TABLE t RENAME COLUMN a TO b`."""

    table: Name
    column: Name
    new_name: str

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Rename the column."""
        options.only("ALTER TABLE")
        with evolving(lake, self.table) as columns:
            columns.change.rename_column(columns.renamed_path(self.column, self.new_name), self.new_name)
        return columns.table


@dataclass(frozen=True)
class AlterColumn:
    """`ALTER TABLE t ALTER COLUMN a TYPE bigint`, or another change of one column."""

    table: Name
    column: Name
    type: str | None = None
    is_required: bool | None = None
    comment: str | None = None
    place: Place | None = None
    default: str | None = None  # an expression; NULL for none

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Change the column."""
        options.only("ALTER TABLE")
        with evolving(lake, self.table) as columns:
            self._change(columns, columns.path(self.column))
        return columns.table

    def _change(self, columns: Columns, path: Name) -> None:
        change = columns.change
        if self.type is not None:
            change.update_column(path, self._type(self.type))
        if self.comment is not None:
            change.update_column(path, doc=self.comment)
        if self.is_required:
            change.update_column(path, required=True)
        elif self.is_required is not None:
            change.make_column_optional(path)
        if self.default is not None:
            change.set_default_value(path, _value(self.default, change.find(path).field_type, columns.zone))
        if self.place is not None:
            self.place.move(columns, path)

    def _type(self, text: str) -> IcebergType:
        field = _field(self.column[-1], text)
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

    def run(self, lake: LakeContext, options: Options) -> Table:
        """Set the identifier fields."""
        options.only("ALTER TABLE")
        with evolving(lake, self.table) as columns:
            columns.change.set_identifier_fields(*(".".join(columns.path(path)) for path in self.columns))
        return columns.table


def add_columns(reader: Reader, table: Name) -> AddColumns:
    """Read what follows ADD COLUMNS."""
    return AddColumns(table, reader.several(lambda: _new_column(reader)))


def drop_columns(reader: Reader, table: Name) -> DropColumns:
    """Read what follows DROP COLUMNS."""
    if_exists = reader.took("IF", "EXISTS")
    return DropColumns(table, reader.several(lambda: reader.dotted("a column")), if_exists)


def rename_column(reader: Reader, table: Name) -> RenameColumn:
    """Read what follows RENAME COLUMN."""
    column = reader.dotted("a column")
    reader.expect("TO")
    return RenameColumn(table, column, reader.name("a name"))


def set_identifier_fields(reader: Reader, table: Name) -> SetIdentifierFields:
    """Read what follows SET IDENTIFIER FIELDS."""
    return SetIdentifierFields(table, reader.listed(lambda: reader.dotted("a column")))


def alter_column(reader: Reader, table: Name) -> AlterColumn:
    """Read what follows ALTER COLUMN."""
    column = reader.dotted("a column")
    if reader.took("TYPE"):
        return AlterColumn(table, column, type=_definition(reader))
    if reader.took("COMMENT"):
        return AlterColumn(table, column, comment=reader.string("a comment"))
    for words, is_required in ((("SET", "NOT", "NULL"), True), (("DROP", "NOT", "NULL"), False)):
        if reader.took(*words):
            return AlterColumn(table, column, is_required=is_required)
    if reader.took("SET", "DEFAULT"):
        return AlterColumn(table, column, default=reader.rest("a value"))
    if reader.took("DROP", "DEFAULT"):
        return AlterColumn(table, column, default="NULL")
    place = _place(reader)
    if place is None:
        raise reader.wrong("expected TYPE, COMMENT, SET or DROP NOT NULL, SET or DROP DEFAULT, FIRST or AFTER")
    return AlterColumn(table, column, place=place)


def _new_column(reader: Reader) -> NewColumn:
    path = reader.dotted("a column")
    definition = _definition(reader)
    default = reader.until(",", ")", "FIRST", "AFTER", what="a value") if reader.took("DEFAULT") else None
    return NewColumn(path, definition, default, _place(reader))


def _place(reader: Reader) -> Place | None:
    if reader.took("FIRST"):
        return Place()
    return Place(reader.name("a column")) if reader.took("AFTER") else None


def _definition(reader: Reader) -> str:
    """A type with what may follow it; commas inside of `struct<…>` and `decimal(…)` are part of it."""
    start, depth = reader.at, 0
    while (word := reader.word) is not None:
        if depth == 0 and word.says(",", ")", *_AFTER_A_TYPE):
            break
        depth += sum(word.text.count(c) for c in "<(") - sum(word.text.count(c) for c in ">)")
        reader.at += 1
    if reader.at == start:
        raise reader.wrong("expected a type")
    return reader.text[reader.words[start].start : reader.words[reader.at - 1].end]


def _field(name: str, definition: str) -> NestedField:
    return schema_of_ddl(f"{quoted(name)} {definition}").fields[0]


def _value(text: str, kind: IcebergType, zone: tzinfo) -> Any:
    """The value a constant has in a column of some type."""
    node: Any = parsed(text)[0]
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        moment = _moment(node, kind, zone)
        return node.this.name if moment is None else moment
    found = constant(node, zone)
    if found is None:
        raise UserError(f"Cannot take {text} as a default value: give a constant.")
    return found.value


def _moment(node: exp.Cast, kind: IcebergType, zone: tzinfo) -> int | None:
    """The microseconds that a time or a day is in a column of timestamps, as Spark casts it; None for anything else."""
    found = constant(node, zone) if isinstance(kind, TimestampType | TimestamptzType) else None
    if found is None:
        return None
    if isinstance(kind, TimestampType) and found.kind is Kind.INSTANT:
        return local(found.value, zone)
    target = "timestamp_ntz" if isinstance(kind, TimestampType) else "timestamp"
    cast = constant(exp.cast(node, target, dialect="spark"), zone)
    return None if cast is None else int(cast.value)

"""What a clause assigns to which column: resolved by name, checked for clashes, and made to fit.

A field of a struct may be assigned without the others: the struct is built anew around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.errors import UnknownName, UnsupportedFeature, UserError
from neve.ops.context import TableContext
from neve.predicate.column_names import find_column, split_name
from neve.predicate.sql_features import features_of
from neve.run.read.types import first_column_rounded_by_spark, is_rounded_by_spark
from neve.run.spark.expressions import ExpressionChecker, SqlOrColumn, as_column, clause_error
from neve.run.spark.read_columns import column_by_name, literal
from neve.run.spark.store_assignment import assign_expression
from neve.run.spark.types import spark_type

FieldPath = tuple[str, ...]


@dataclass(frozen=True)
class _Assignment:
    """One target and its expression; the type is known once it was checked."""

    path: FieldPath  # the column, then the fields inside it
    field: NestedField
    clause: str  # as it reads in errors
    value: SqlOrColumn
    kind: sp.DataType | None = None

    def stored_column(self) -> Column:
        if isinstance(self.value, str) and features_of(self.value).nondeterministic:
            # asked once: the checks of a value are of no use when it is another one each time
            return F.transform(F.array(as_column(self.value)), self._cast_for_storage)[0]
        return self._cast_for_storage(as_column(self.value))

    def _cast_for_storage(self, value: Column) -> Column:
        kind = sp.NullType() if self.kind is None else self.kind
        try:
            return assign_expression(value, kind, self.field, ".".join(self.path))
        except UserError as e:
            raise clause_error(self.clause, self.value, str(e)) from e


@dataclass(frozen=True)
class Assignments:
    """All assignments of one clause."""

    schema: Schema
    assignments: tuple[_Assignment, ...]
    qualifier: str | None = field(default=None)  # the alias the table's own columns are reached by
    is_of_new_row: bool = False  # no value was there before

    @classmethod
    def of(
        cls, context: TableContext, assignments: Iterable[tuple[str, SqlOrColumn]], alias: str, clause: str
    ) -> Assignments:
        """Assignments by name; unknown, doubled and clashing targets are refused."""
        schema = context.metadata.schema()
        given = []
        for name, value in assignments:
            where = f"{clause} {name}"
            if not isinstance(value, str | Column):
                raise UserError(f"{where}: give SQL text or a Column, not {type(value).__name__}. Write '1' for 1.")
            path, found = _resolve_target(schema, name, alias, context.name)
            asks_default = isinstance(value, str) and value.strip().upper() == "DEFAULT"
            given.append(_Assignment(path, found, where, _default_value(found, where) if asks_default else value))
        _refuse_clashes(given)
        return cls(schema, tuple(given), alias)

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that change."""
        return tuple(dict.fromkeys(a.path[0] for a in self.assignments))

    def values(self) -> dict[str, SqlOrColumn]:
        """The expressions by clause."""
        return {a.clause: a.value for a in self.assignments}

    def with_values(self, values: Mapping[str, SqlOrColumn]) -> Assignments:
        """The same targets with expressions that were made ready for Spark."""
        return replace(self, assignments=tuple(replace(a, value=values[a.clause]) for a in self.assignments))

    def with_types(self, expressions: ExpressionChecker) -> Assignments:
        """The assignments with the types of their expressions; one that cannot be stored is refused."""
        kinds = expressions.expression_types(self.values())
        known = replace(self, assignments=tuple(replace(a, kind=kinds[a.clause]) for a in self.assignments))
        known.new_columns()
        return known

    def with_defaults(self, context: TableContext, clause: str) -> Assignments:
        """The values of a new row: columns that are not assigned get their default, or null."""
        given = list(self.assignments)
        for f in self.schema.fields:
            if f.name in self.columns:
                continue
            given.append(_Assignment((f.name,), f, f"{clause} {f.name}", _default_value(f, clause)))
        return replace(self, assignments=tuple(given), is_of_new_row=True)

    def new_value_of(self, name: str) -> Column | None:
        """The new value of a column, or nothing when it is not assigned."""
        return self._assigned_column(name) if name in self.columns else None

    def new_columns(self) -> dict[str, Column]:
        """The new value of every column that changes, from the row as it was."""
        return {name: self._assigned_column(name) for name in self.columns}

    def first_truncated_column(self) -> NestedField | None:
        """A column whose values would be cut on their way through Spark: they come from the row as it is."""
        fine = [f for f in self.schema.fields if is_rounded_by_spark(f.field_type)]
        names = {f.name.lower() for f in fine}
        taken = [a for a in self.assignments if len(a.path) > 1 or _references_any(a.value, names, self.qualifier)]
        return next((f for f in fine if any(a.path[0] == f.name for a in taken)), None)

    def _assigned_column(self, name: str) -> Column:
        mine = [a for a in self.assignments if a.path[0] == name]
        if len(mine) == 1 and len(mine[0].path) == 1:
            return mine[0].stored_column()
        top = self.schema.find_field(name)
        before = None if self.is_of_new_row else column_by_name(name, self.qualifier)
        return _rebuild_struct(before, top, [(a.path[1:], a) for a in mine])


def _default_value(column: NestedField, clause: str) -> Column:
    """The value a column has in new rows that say none."""
    if column.required and column.write_default is None:
        raise UserError(f"{clause}: no value for column {column.name!r}, which is required. Assign it.")
    return F.lit(None) if column.write_default is None else literal(column.write_default, column)


def _rebuild_struct(before: Column | None, column: NestedField, inside: list[tuple[FieldPath, _Assignment]]) -> Column:
    """A struct with some of its fields assigned; one that was null comes to be, its other fields null.

    Of a new row, which had no struct before, the other fields get their defaults.
    """
    parts = []
    for each in column.field_type.fields if isinstance(column.field_type, StructType) else ():
        mine = [(path[1:], a) for path, a in inside if path[0] == each.name]
        old = None if before is None else before.getField(each.name)
        match mine:
            case []:
                new = (
                    _default_value(each, inside[0][1].clause).cast(spark_type(each.field_type)) if old is None else old
                )
            case [((), assignment)]:
                new = assignment.stored_column()
            case _:
                new = _rebuild_struct(old, each, mine)
        parts.append(new.alias(each.name))
    return F.struct(*parts)


def _resolve_target(schema: Schema, name: str, alias: str, table: str) -> tuple[FieldPath, NestedField]:
    """The path of a column or field; the alias of the table may come first."""
    parts = split_name(name)
    of_alias = [parts[1:]] if len(parts) > 1 and parts[0].lower() == alias.lower() else []
    for called in (*of_alias, parts):
        if (found := find_column(schema, ".".join(called), case_sensitive=False)) is not None:
            return _field_path(schema, found), found
    tops = [n for n in schema.column_names if "element" not in n]
    raise UnknownName("column", name, tops, f"table {table}")


def _field_path(schema: Schema, found: NestedField) -> FieldPath:
    for top in schema.fields:
        if (path := _find_path_within(top, found.field_id)) is not None:
            return path
    name = schema.find_column_name(found.field_id)
    raise UserError(f"Cannot assign to {name!r}: it is inside a list or a map. Assign the whole column.")


def _find_path_within(here: NestedField, field_id: int) -> FieldPath | None:
    if here.field_id == field_id:
        return (here.name,)
    for inner in here.field_type.fields if isinstance(here.field_type, StructType) else ():
        if (path := _find_path_within(inner, field_id)) is not None:
            return (here.name, *path)
    return None


def _refuse_clashes(assignments: list[_Assignment]) -> None:
    for at, later in enumerate(assignments):
        for earlier in assignments[:at]:
            short = min(len(earlier.path), len(later.path))
            if earlier.path[:short] == later.path[:short]:
                one, other = ".".join(earlier.path), ".".join(later.path)
                what = f"{one!r} is assigned twice" if one == other else f"{one!r} and {other!r} overlap"
                raise UserError(f"{later.clause}: {what}. Assign each column once.")


def _references_any(value: SqlOrColumn, names: set[str], alias: str | None) -> bool:
    """Whether an expression names one of some columns of the table; a Column tells it by how it is written."""
    if isinstance(value, Column):
        return bool(names & {*re.findall(r"\w+", str(value).lower())})
    found = [split_name(column.lower()) for column in features_of(value).columns]
    return any(
        parts[0] in names or (parts[0] == (alias or "").lower() and parts[1:2] and parts[1] in names) for parts in found
    )


def refuse_truncated(updates: Sequence[Assignments], statement: str) -> None:
    """Refuse to assign values finer than Spark's that come from rows as they are: a file is patched with them."""
    named = {name for each in updates for name in each.columns}
    for each in updates:
        left_out = [
            f for f in each.schema.fields if f.name in named - {*each.columns} and is_rounded_by_spark(f.field_type)
        ]
        if (f := next(iter(left_out), None) or each.first_truncated_column()) is not None:
            raise UnsupportedFeature(
                f"Cannot {statement}: column {f.name!r} of type {f.field_type} is finer than Spark's timestamps, and values "
                "it has would be cut to microseconds. Assign values to it that come from no such column, whole and in "
                "every clause that updates; or write the rows by append or overwrite."
            )


def refuse_rounded(context: TableContext, statement: str) -> None:
    """Refuse to carry whole rows through Spark when a column has values that Spark would change."""
    if (f := first_column_rounded_by_spark(context.metadata.schema())) is not None:
        raise UnsupportedFeature(
            f"Cannot {statement} merge-on-read: column {f.name!r} of type {f.field_type} is finer than Spark's "
            "timestamps, and the rows that change would be rounded. Use copy-on-write, which copies it exactly."
        )

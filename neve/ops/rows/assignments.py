"""The assignments of a clause: columns resolved by name, checked for clashes, with values that fit their types.

A field of a struct may be assigned without the others: the struct is rebuilt around it.
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
    """One target and its expression; the type is set when it was checked."""

    path: FieldPath  # the column, then the fields inside it
    field: NestedField
    clause: str  # as it reads in errors
    value: SqlOrColumn
    kind: sp.DataType | None = None

    def stored_column(self) -> Column:
        if isinstance(self.value, str) and features_of(self.value).nondeterministic:
            # Evaluate it once: the checks of a value are useless if the next evaluation returns another one.
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
    qualifier: str | None = field(default=None)  # the alias that qualifies the table's own columns
    is_of_new_row: bool = False  # there is no old value

    @classmethod
    def of(
        cls, context: TableContext, assignments: Iterable[tuple[str, SqlOrColumn]], alias: str, clause: str
    ) -> Assignments:
        """Resolve assignments by name; reject unknown, repeated and overlapping targets."""
        schema = context.metadata.schema()
        resolved = []
        for name, value in assignments:
            where = f"{clause} {name}"
            if not isinstance(value, str | Column):
                raise UserError(f"{where}: give SQL text or a Column, not {type(value).__name__}. Write '1' for 1.")
            path, target = _resolve_target(schema, name, alias, context.name)
            is_default = isinstance(value, str) and value.strip().upper() == "DEFAULT"
            resolved.append(_Assignment(path, target, where, _default_value(target, where) if is_default else value))
        for later, earlier in ((later, earlier) for at, later in enumerate(resolved) for earlier in resolved[:at]):
            short = min(len(earlier.path), len(later.path))
            if earlier.path[:short] == later.path[:short]:
                one, other = ".".join(earlier.path), ".".join(later.path)
                what = f"{one!r} is assigned twice" if one == other else f"{one!r} and {other!r} overlap"
                raise UserError(f"{later.clause}: {what}. Assign each column once.")
        return cls(schema, tuple(resolved), alias)

    @property
    def columns(self) -> tuple[str, ...]:
        """The top-level columns that change."""
        return tuple(dict.fromkeys(a.path[0] for a in self.assignments))

    def values(self) -> dict[str, SqlOrColumn]:
        """The expressions by clause."""
        return {a.clause: a.value for a in self.assignments}

    def with_values(self, values: Mapping[str, SqlOrColumn]) -> Assignments:
        """Replace the expressions by those prepared for Spark."""
        return replace(self, assignments=tuple(replace(a, value=values[a.clause]) for a in self.assignments))

    def with_types(self, expressions: ExpressionChecker) -> Assignments:
        """Add the types of the expressions; reject a value that cannot be stored."""
        kinds = expressions.expression_types(self.values())
        typed = replace(self, assignments=tuple(replace(a, kind=kinds[a.clause]) for a in self.assignments))
        typed.new_columns()  # raises when a value does not fit
        return typed

    def with_defaults(self, context: TableContext, clause: str) -> Assignments:
        """Complete a new row: columns without an assignment get their default, or null."""
        defaults = [
            _Assignment((f.name,), f, f"{clause} {f.name}", _default_value(f, clause))
            for f in self.schema.fields
            if f.name not in self.columns
        ]
        return replace(self, assignments=(*self.assignments, *defaults), is_of_new_row=True)

    def new_value_of(self, name: str) -> Column | None:
        """Return the new value of a column, or None if it is not assigned."""
        return self._assigned_column(name) if name in self.columns else None

    def new_columns(self) -> dict[str, Column]:
        """Return the new value of every assigned column, computed from the old row."""
        return {name: self._assigned_column(name) for name in self.columns}

    def columns_read(self) -> set[str] | None:
        """Return the columns that the expressions may name, in lower case; None if that cannot be told."""
        named = names_in(self.values().values())
        return None if named is None else named | {a.path[0].lower() for a in self.assignments if len(a.path) > 1}

    def first_truncated_column(self) -> NestedField | None:
        """Return a column whose new values come from the old row, and so would be cut on the way through Spark."""
        rounded = [f for f in self.schema.fields if is_rounded_by_spark(f.field_type)]
        names = {f.name.lower() for f in rounded}
        taken = [a for a in self.assignments if len(a.path) > 1 or _references_any(a.value, names, self.qualifier)]
        return next((f for f in rounded if any(a.path[0] == f.name for a in taken)), None)

    def _assigned_column(self, name: str) -> Column:
        mine = [a for a in self.assignments if a.path[0] == name]
        if len(mine) == 1 and len(mine[0].path) == 1:
            return mine[0].stored_column()
        top = self.schema.find_field(name)
        before = None if self.is_of_new_row else column_by_name(name, self.qualifier)
        return _rebuild_struct(before, top, [(a.path[1:], a) for a in mine])


def names_in(values: Iterable[SqlOrColumn]) -> set[str] | None:
    """Return the parts of names in expressions, in lower case; None if a Column or a subquery may hide some."""
    features = [features_of(value) if isinstance(value, str) else None for value in values]
    if any(each is None or each.has_subquery for each in features):
        return None
    return {part.lower() for each in features if each is not None for parts in each.columns for part in parts}


def _default_value(column: NestedField, clause: str) -> Column:
    """Return the value of a column in new rows that assign none."""
    if column.required and column.write_default is None:
        raise UserError(f"{clause}: no value for column {column.name!r}, which is required. Assign it.")
    return F.lit(None) if column.write_default is None else literal(column.write_default, column)


def _rebuild_struct(before: Column | None, column: NestedField, inside: list[tuple[FieldPath, _Assignment]]) -> Column:
    """Build a struct with some fields assigned; a null struct becomes one whose other fields are null.

    In a new row, which had no struct before, the other fields get their defaults.
    """
    parts = []
    for each in column.field_type.fields if isinstance(column.field_type, StructType) else ():
        mine = [(path[1:], a) for path, a in inside if path[0] == each.name]
        old = None if before is None else before.getField(each.name)
        match mine:
            case []:
                if old is None:
                    old = _default_value(each, inside[0][1].clause).cast(spark_type(each.field_type))
                new = old
            case [((), assignment)]:
                new = assignment.stored_column()
            case _:
                new = _rebuild_struct(old, each, mine)
        parts.append(new.alias(each.name))
    return F.struct(*parts)


def _resolve_target(schema: Schema, name: str, alias: str, table: str) -> tuple[FieldPath, NestedField]:
    """Return the path of a column or field; its name may begin with the alias of the table."""
    parts = split_name(name)
    of_alias = [parts[1:]] if len(parts) > 1 and parts[0].lower() == alias.lower() else []
    for candidate in (*of_alias, parts):
        if (target := find_column(schema, ".".join(candidate), case_sensitive=False)) is not None:
            return _field_path(schema, target), target
    raise UnknownName("column", name, [n for n in schema.column_names if "element" not in n], f"table {table}")


def _field_path(schema: Schema, target: NestedField) -> FieldPath:
    for top in schema.fields:
        if (path := _find_path_within(top, target.field_id)) is not None:
            return path
    name = schema.find_column_name(target.field_id)
    raise UserError(f"Cannot assign to {name!r}: it is inside a list or a map. Assign the whole column.")


def _find_path_within(parent: NestedField, field_id: int) -> FieldPath | None:
    if parent.field_id == field_id:
        return (parent.name,)
    for child in parent.field_type.fields if isinstance(parent.field_type, StructType) else ():
        if (path := _find_path_within(child, field_id)) is not None:
            return (parent.name, *path)
    return None


def _references_any(value: SqlOrColumn, names: set[str], alias: str | None) -> bool:
    """Check whether an expression names one of the columns; of a Column only its text is known."""
    if isinstance(value, Column):
        return bool(names & {*re.findall(r"\w+", str(value).lower())})
    columns = [[part.lower() for part in parts] for parts in features_of(value).columns]
    return any(
        parts[0] in names or (parts[0] == (alias or "").lower() and parts[1:2] and parts[1] in names)
        for parts in columns
    )


def refuse_truncated(updates: Sequence[Assignments], statement: str) -> None:
    """Reject values finer than Spark's that come from the old rows: Spark would cut them before a file is patched."""
    assigned = {name for each in updates for name in each.columns}
    for each in updates:
        left_out = [
            f for f in each.schema.fields if f.name in assigned - {*each.columns} and is_rounded_by_spark(f.field_type)
        ]
        if (f := next(iter(left_out), None) or each.first_truncated_column()) is not None:
            raise UnsupportedFeature(
                f"Cannot {statement}: column {f.name!r} of type {f.field_type} is finer than Spark's timestamps, and "
                "its values would be cut to microseconds. Assign values to it that come from no such column, whole and "
                "in every clause that updates; or write the rows by append or overwrite."
            )


def refuse_rounded(context: TableContext, statement: str) -> None:
    """Reject merge-on-read if Spark would change values of a column: whole rows go through Spark."""
    if (f := first_column_rounded_by_spark(context.metadata.schema())) is not None:
        raise UnsupportedFeature(
            f"Cannot {statement} merge-on-read: column {f.name!r} of type {f.field_type} is finer than Spark's "
            "timestamps, and the rows that change would be rounded. Use copy-on-write, which copies it exactly."
        )

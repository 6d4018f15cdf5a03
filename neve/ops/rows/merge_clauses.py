"""The clauses of a MERGE: the rows that each is about, and what it does to them.

With schema evolution, a MERGE adds the columns to the table that its clauses take from the source by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame
from pyspark.sql import types as sp

from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.rows.assignments import Assignments
from neve.predicate.column_names import qualify_columns
from neve.run.spark.expressions import ExpressionChecker, SqlOrColumn
from neve.run.spark.read_columns import column_by_name
from neve.run.spark.session import is_case_sensitive


class ClauseKind(StrEnum):
    """The rows a clause is about."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


class ClauseAction(StrEnum):
    """What a clause does to a row."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


@dataclass(frozen=True)
class Clause:
    """A WHEN clause; without assignments, an update or insert takes every column from the source by name."""

    kind: ClauseKind
    action: ClauseAction
    column_values: tuple[tuple[str, SqlOrColumn], ...] | None = None
    condition: SqlOrColumn | None = None
    number: int = 0
    assignments: Assignments | None = None

    def __str__(self) -> str:
        when = f"WHEN {self.kind}" + (f" AND {self.condition}" if self.condition is not None else "")
        if self.action is ClauseAction.DELETE:
            return f"{when} THEN DELETE"
        if self.column_values is None:
            assigned = "*"
        else:
            assigned = ", ".join(f"{column} = {value}" for column, value in self.column_values)
        return f"{when} THEN {self.action}{' SET' if self.action is ClauseAction.UPDATE else ''} {assigned}"

    @property
    def label(self) -> str:
        """The clause's name in errors: its number and kind."""
        return f"MERGE clause {self.number + 1} (WHEN {self.kind} THEN {self.action})"

    @property
    def removes(self) -> bool:
        """True if the row leaves its file."""
        return self.action is not ClauseAction.INSERT

    @property
    def writes(self) -> bool:
        """True if a row is written."""
        return self.action is not ClauseAction.DELETE

    def resolve(
        self, number: int, context: TableContext, source: DataFrame, aliases: tuple[str, str], evolves: bool
    ) -> Clause:
        """Resolve the columns and qualify the names, so that the clause can be checked."""
        target, other = aliases
        numbered = replace(self, number=number)
        names = [f.name for f in context.metadata.schema().fields]
        # If a clause sees only one side, a name without qualifier means that side.
        one_sided = {ClauseKind.NOT_MATCHED: (source.columns, other), ClauseKind.NOT_MATCHED_BY_SOURCE: (names, target)}
        columns, alias = one_sided.get(self.kind, ((), ""))

        def qualify(value: SqlOrColumn) -> SqlOrColumn:
            return qualify_columns(value, columns, alias, aliases) if isinstance(value, str) and columns else value

        condition = None if self.condition is None else qualify(self.condition)
        if self.action is ClauseAction.DELETE:
            return replace(numbered, condition=condition)
        values: Iterable[tuple[str, SqlOrColumn]] | None = self.column_values
        if values is None:
            values = numbered._assign_all_columns(context, source, other, evolves)
        assignments = Assignments.of(context, [(c, qualify(v)) for c, v in values], target, numbered.label)
        if self.action is ClauseAction.INSERT:
            assignments = assignments.with_defaults(context, numbered.label)
        return replace(numbered, condition=condition, assignments=assignments)

    def _assign_all_columns(
        self, context: TableContext, source: DataFrame, alias: str, evolves: bool
    ) -> list[tuple[str, SqlOrColumn]]:
        """Assign to every column of the table the source column of the same name."""
        names, folds = [f.name for f in context.metadata.schema().fields], not is_case_sensitive(source.sparkSession)
        same_name = {name.lower(): name for name in source.columns if folds or name not in names}
        assigned: list[tuple[str, SqlOrColumn]] = []
        for name in names:
            twin = same_name.get(name.lower())
            if name in source.columns:
                assigned.append((name, column_by_name(name, alias)))
            elif twin is not None and folds:
                assigned.append((name, column_by_name(twin, alias)))
            elif twin is not None or not evolves:
                raise UserError(
                    f"{self.label}: the source has no column {name!r}, which * takes from it. Add it to the source, "
                    "name the columns, or use with_schema_evolution()."
                )
        return assigned

    def values(self) -> dict[str, SqlOrColumn]:
        """The expressions of the clause, by their names in errors."""
        values = {} if self.assignments is None else self.assignments.values()
        return values if self.condition is None else {f"{self.label} condition": self.condition, **values}

    def with_values(self, values: Mapping[str, SqlOrColumn]) -> Clause:
        """Replace the expressions by those prepared for Spark."""
        condition = None if self.condition is None else values[f"{self.label} condition"]
        assignments = None if self.assignments is None else self.assignments.with_values(values)
        return replace(self, condition=condition, assignments=assignments)

    def with_exact_condition(self, exact: Callable[[SqlOrColumn], SqlOrColumn]) -> Clause:
        """Replace the condition by one that compares the columns of the table exactly, if it can name them."""
        if self.condition is None or self.kind is ClauseKind.NOT_MATCHED:
            return self
        return replace(self, condition=exact(self.condition))

    def with_checked_expressions(self, expressions: ExpressionChecker) -> Clause:
        """Add the types of the expressions; reject what does not resolve or fit."""
        if self.condition is not None:
            expressions.check_condition(f"{self.label} condition", self.condition)
        if self.assignments is None:
            return self
        return replace(self, assignments=self.assignments.with_types(expressions))


def refuse_unreachable(clauses: Iterable[Clause]) -> None:
    """Reject a clause that comes after one of its kind without condition."""
    closed: set[ClauseKind] = set()
    for number, clause in enumerate(clauses):
        if clause.kind in closed:
            raise UserError(
                f"{replace(clause, number=number).label} is never reached: a clause of its kind before it has no "
                "condition. Only the last of a kind may have none."
            )
        if clause.condition is None:
            closed.add(clause.kind)


_WIDENINGS = ((ice.IntegerType, sp.LongType), (ice.FloatType, sp.DoubleType))


def evolved_columns(schema: Schema, source: sp.StructType, clauses: Iterable[Clause]) -> sp.StructType:
    """Return the columns of the source that the table lacks or has in a narrower type, and that some clause assigns."""
    named: set[str] = set()
    for clause in clauses:
        if clause.column_values is not None:
            named |= {column.split(".")[0].lower() for column, _ in clause.column_values}
        elif clause.action is not ClauseAction.DELETE:
            named |= {f.name.lower() for f in source.fields}
    taken = sp.StructType([f for f in source.fields if f.name.lower() in named])
    return _wider_struct(schema.as_struct(), taken) or sp.StructType([])


def _wider_type(ours: ice.IcebergType, theirs: sp.DataType) -> sp.DataType | None:
    """Return the type that holds the values of both, if it is not ours already and the format allows the change."""
    match ours, theirs:
        case ice.StructType(), sp.StructType():
            return _wider_struct(ours, theirs)
        case ice.DecimalType(), sp.DecimalType() if ours.scale == theirs.scale and theirs.precision > ours.precision:
            return theirs
    return theirs if (type(ours), type(theirs)) in _WIDENINGS else None


def _wider_struct(ours: ice.StructType, theirs: sp.StructType) -> sp.StructType | None:
    """Return the fields that are new or wider there; existing fields keep whether they are required."""
    our_fields = {f.name.lower(): f for f in ours.fields}
    changed = []
    for f in theirs.fields:
        mine = our_fields.get(f.name.lower())
        if mine is None:
            changed.append(sp.StructField(f.name, f.dataType, True))
        elif (wider := _wider_type(mine.field_type, f.dataType)) is not None:
            changed.append(sp.StructField(mine.name, wider, not mine.required))
    return sp.StructType(changed) if changed else None

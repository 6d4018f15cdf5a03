"""The clauses of a MERGE: which rows each is about, and what it does to them.

Which columns a MERGE with schema evolution brings to a table: those its clauses take from the source by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FloatType, IcebergType, IntegerType, StructType
from pyspark.sql import DataFrame
from pyspark.sql import types as sp

from neve.errors import UserError
from neve.ops.context import TableContext
from neve.ops.rows.assignments import Assignments
from neve.predicate.column_names import qualify_columns
from neve.run.spark.expressions import SqlOrColumn
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
    """One WHEN clause; without assignments an update or insert takes every column from the source by name."""

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
        said = (
            "*"
            if self.column_values is None
            else ", ".join(f"{column} = {value}" for column, value in self.column_values)
        )
        return f"{when} THEN {self.action}{' SET' if self.action is ClauseAction.UPDATE else ''} {said}"

    @property
    def label(self) -> str:
        """How the clause is called in errors: by its place and kind."""
        return f"MERGE clause {self.number + 1} (WHEN {self.kind} THEN {self.action})"

    @property
    def removes(self) -> bool:
        """Whether the row leaves its file."""
        return self.action is not ClauseAction.INSERT

    @property
    def writes(self) -> bool:
        """Whether a row is written."""
        return self.action is not ClauseAction.DELETE

    def resolve(
        self, number: int, context: TableContext, source: DataFrame, aliases: tuple[str, str], evolves: bool
    ) -> Clause:
        """The clause with its columns resolved and its names qualified, ready to be checked."""
        target, other = aliases
        known = replace(self, number=number)
        names = [f.name for f in context.metadata.schema().fields]
        ours = {ClauseKind.NOT_MATCHED: (source.columns, other), ClauseKind.NOT_MATCHED_BY_SOURCE: (names, target)}
        columns, alias = ours.get(self.kind, ((), ""))

        def told(value: SqlOrColumn) -> SqlOrColumn:
            # Where only one side is there, a name without qualifier means that side.
            return qualify_columns(value, columns, alias, aliases) if isinstance(value, str) and columns else value

        condition = None if self.condition is None else told(self.condition)
        if self.action is ClauseAction.DELETE:
            return replace(known, condition=condition)
        given = (
            known._assign_all_columns(context, source, other, evolves)
            if self.column_values is None
            else self.column_values
        )
        made = Assignments.of(context, [(c, told(v)) for c, v in given], target, known.label)
        if self.action is ClauseAction.INSERT:
            made = made.with_defaults(context, known.label)
        return replace(known, condition=condition, assignments=made)

    def _assign_all_columns(
        self, context: TableContext, source: DataFrame, alias: str, evolves: bool
    ) -> list[tuple[str, SqlOrColumn]]:
        """Every column of the table from the column of the source of the same name."""
        names, folds = [f.name for f in context.metadata.schema().fields], not is_case_sensitive(source.sparkSession)
        alike = {name.lower(): name for name in source.columns if folds or name not in names}
        found: list[tuple[str, SqlOrColumn]] = []
        for name in names:
            twin = alike.get(name.lower())
            if name in source.columns:
                found.append((name, column_by_name(name, alias)))
            elif twin is not None and folds:
                found.append((name, column_by_name(twin, alias)))
            elif twin is not None or not evolves:
                raise UserError(
                    f"{self.label}: the source has no column {name!r}, which * takes from it. Add it to the source, "
                    "name the columns, or use with_schema_evolution()."
                )
        return found

    def values(self) -> dict[str, SqlOrColumn]:
        """The expressions of the clause, by how they are called in errors."""
        found = {} if self.assignments is None else self.assignments.values()
        return found if self.condition is None else {f"{self.label} condition": self.condition, **found}

    def with_values(self, values: Mapping[str, SqlOrColumn]) -> Clause:
        """The same clause with expressions that were made ready for Spark."""
        condition = None if self.condition is None else values[f"{self.label} condition"]
        made = None if self.assignments is None else self.assignments.with_values(values)
        return replace(self, condition=condition, assignments=made)


def refuse_unreachable(clauses: Iterable[Clause]) -> None:
    """Refuse a clause after one of its kind that applies to every row."""
    closed: set[ClauseKind] = set()
    for number, clause in enumerate(clauses):
        if clause.kind in closed:
            raise UserError(
                f"{replace(clause, number=number).label} is never reached: a clause of its kind before it has no "
                "condition. Only the last of a kind may be without."
            )
        if clause.condition is None:
            closed.add(clause.kind)


_WIDENINGS = ((IntegerType, sp.LongType), (FloatType, sp.DoubleType))


def evolved_columns(schema: Schema, source: sp.StructType, clauses: Iterable[Clause]) -> sp.StructType:
    """The columns of the source that the table lacks, or has in a narrower type, and that some clause assigns."""
    named: set[str] = set()
    for clause in clauses:
        if clause.column_values is not None:
            named |= {column.split(".")[0].lower() for column, _ in clause.column_values}
        elif clause.action is not ClauseAction.DELETE:
            named |= {f.name.lower() for f in source.fields}
    taken = sp.StructType([f for f in source.fields if f.name.lower() in named])
    return _wider_struct(schema.as_struct(), taken) or sp.StructType([])


def _wider_type(ours: IcebergType, theirs: sp.DataType) -> sp.DataType | None:
    """The type that holds the values of both, when it is not ours already and the format allows the change."""
    match ours, theirs:
        case StructType(), sp.StructType():
            return _wider_struct(ours, theirs)
        case DecimalType(), sp.DecimalType() if ours.scale == theirs.scale and theirs.precision > ours.precision:
            return theirs
    return theirs if (type(ours), type(theirs)) in _WIDENINGS else None


def _wider_struct(ours: StructType, theirs: sp.StructType) -> sp.StructType | None:
    """The fields that are new, or wider there; those we have stay as required as they are."""
    known = {f.name.lower(): f for f in ours.fields}
    changed = []
    for f in theirs.fields:
        mine = known.get(f.name.lower())
        if mine is None:
            changed.append(sp.StructField(f.name, f.dataType, True))
        elif (wider := _wider_type(mine.field_type, f.dataType)) is not None:
            changed.append(sp.StructField(mine.name, wider, not mine.required))
    return sp.StructType(changed) if changed else None

"""Check the expressions of a statement before anything runs, and convert Iceberg expressions to Spark conditions.

Spark analyses the expressions against a frame with the right columns. Its errors become one sentence that names the
clause. Aggregates, windows and generators are rejected because they have no value for a single row. Nondeterministic
conditions are rejected because Spark may evaluate them twice, and so delete one row and write another.

A converted Iceberg expression has the meaning of SQL: a comparison with null is not true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

from pyiceberg import expressions as ex
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException, QueryContextType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.errors import UserError
from neve.model.values import NANOS_TYPES
from neve.plan.ranges import evaluate_expression
from neve.predicate.nanoseconds import unscaled_path
from neve.predicate.normalize import normalize_and_bind
from neve.predicate.sql_features import features_of
from neve.run.read.types import unscaled_column
from neve.run.spark.read_columns import column_by_name, literal
from neve.run.spark.session import is_classic, quiet_errors

SqlOrColumn: TypeAlias = str | Column
"""An expression: Spark SQL text, or a Column."""

_WINDOW_OR_GENERATE = re.compile(r"^[\s:+\-]*(Window|Generate) ", re.MULTILINE)
_STAR = re.compile(r"(?:^|\(|, )(?:[\w*]+\.)*\*(?:$|,|\))")  # a star as in `struct(a, *)`; `*(a, b)` is a product
_QUOTED = re.compile(r"'[^']*'")
_AGGREGATE_CONDITIONS = (
    "MISSING_GROUP_BY",
    "GROUP_BY",
    "MISSING_AGGREGATION",
    "INVALID_WHERE_CONDITION",
    "UNSUPPORTED_EXPR_FOR",
)


def as_column(value: SqlOrColumn) -> Column:
    """Convert an expression to a Column."""
    return F.expr(value) if isinstance(value, str) else value


def user_error_from_spark(clause: str, error: PySparkException) -> UserError:
    """Return an error of Spark about a clause in one sentence; its `words` are the SQL text that Spark rejects."""
    contexts = error.getQueryContext() or [] if hasattr(error, "getQueryContext") else []
    fragments = (c.fragment() for c in contexts if c.contextType() is QueryContextType.SQL)
    parameters = error.getMessageParameters() or {} if hasattr(error, "getMessageParameters") else {}
    user_error = UserError(f"{clause}: {_describe_error(error, parameters)}")
    user_error.words = next(filter(None, fragments), "") or parameters.get("objectName") or ""
    return user_error


def _describe_error(error: PySparkException, parameters: Mapping[str, str]) -> str:
    condition = (error.getCondition() or "") if hasattr(error, "getCondition") else ""
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        names = parameters.get("proposal", "").replace("`", "").split(", ")
        similar = ", ".join(name for name in names if "__neve_" not in name)  # without our own helper columns
        hint = f"Did you mean one of {similar}?" if similar else "Name a column of the table."
        return f"unknown column {parameters['objectName'].replace('`', '')!r}. {hint}"
    if condition.startswith("AMBIGUOUS_REFERENCE") and "name" in parameters:
        name = parameters["name"].replace("`", "")
        return f"column {name!r} is ambiguous. Qualify it with the alias of its table."
    # Only the first line: the others show a position in SQL text that the user did not write.
    first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return f"{first_line.partition(' SQLSTATE')[0].rstrip('. ')}."


def clause_error(clause: str, value: SqlOrColumn, problem: str) -> UserError:
    """Return the error that a clause cannot have a value."""
    error = UserError(f"{clause}: {problem}")
    error.words = value if isinstance(value, str) else ""
    return error


@dataclass(frozen=True)
class ExpressionChecker:
    """Checks expressions against the columns of an empty or lazy frame with its aliases."""

    frame: DataFrame

    def expression_types(self, values: Mapping[str, SqlOrColumn]) -> dict[str, sp.DataType]:
        """Return the types of expressions by clause; each expression must give one value for one row."""
        for clause, value in values.items():
            self._refuse_non_row_expression(clause, value)
        analysed = self._analyse_each(values, lambda columns: self.frame.select(*columns, self._anchor_column))
        self._refuse_operators(values, analysed)
        return {clause: field.dataType for clause, field in zip(values, analysed.schema.fields, strict=False)}

    def check_condition(self, clause: str, value: SqlOrColumn, *, folds_constants: bool = False) -> None:
        """Reject a condition that does not resolve, is not boolean, or is not deterministic.

        With `folds_constants`, reject also a constant that cannot be converted, as in `id = 'abc'`.
        """
        self._refuse_non_row_expression(clause, value)
        if isinstance(value, str) and (functions := features_of(value).nondeterministic):
            raise _nondeterministic_error(clause, value, ", ".join(functions))
        analysed = self._analyse_each(
            {clause: value}, lambda columns: self.frame.where(columns[0]).select(self._anchor_column)
        )
        if folds_constants:
            self._analyse_each({clause: value}, lambda columns: _with_plan(self.frame.where(columns[0])))
        if not is_deterministic(analysed):
            raise _nondeterministic_error(clause, value, "a function in it")

    def _analyse_each(
        self, values: Mapping[str, SqlOrColumn], analyse: Callable[[list[Column]], DataFrame]
    ) -> DataFrame:
        """Analyse all expressions at once; one by one only to find the clause that fails."""
        try:
            with quiet_errors():
                return analyse([as_column(v) for v in values.values()])
        except PySparkException as e:
            if len(values) > 1:
                for clause, value in values.items():
                    self._analyse_each({clause: value}, analyse)
            clause, value = next(iter(values.items()))
            if any(word in (e.getCondition() or "") for word in _AGGREGATE_CONDITIONS):
                raise _not_a_row_value_error(clause, value, "aggregate functions") from e
            raise user_error_from_spark(clause, e) from e

    def _refuse_non_row_expression(self, clause: str, value: SqlOrColumn) -> None:
        if _has_star(value):
            problem = "'*' has no meaning here: rows carry more than their columns. Name the columns."
            raise clause_error(clause, value, problem)
        if not isinstance(value, str):
            return
        features = features_of(value)
        for is_used, what in (
            (features.has_aggregate, "aggregate functions"),
            (features.has_window, "window functions"),
            (features.has_generator, "generators such as explode"),
        ):
            if is_used:
                raise _not_a_row_value_error(clause, value, what)

    @staticmethod
    def _refuse_operators(values: Mapping[str, SqlOrColumn], analysed: DataFrame) -> None:
        """Reject windows and generators in Columns, which are visible only in the plan."""
        if is_classic(analysed.sparkSession) and not all(isinstance(v, str) for v in values.values()):
            plan = str(analysed._jdf.queryExecution().analyzed().toString())
            if operator := _WINDOW_OR_GENERATE.search(plan):
                clause, value = next((c, v) for c, v in values.items() if not isinstance(v, str))
                what = "window functions" if operator[1] == "Window" else "generators such as explode"
                raise _not_a_row_value_error(clause, value, what)

    @property
    def _anchor_column(self) -> Column:
        """A plain column, selected with the others: with it an aggregate is an error instead of one row for all."""
        return F.col(f"`{self.frame.columns[-1]}`")


def _with_plan(frame: DataFrame) -> DataFrame:
    """Let Spark plan a frame, which evaluates its constants."""
    frame.isEmpty()
    return frame


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether a frame has the same rows each time; True if Spark does not tell, as over Spark Connect."""
    return not is_classic(frame.sparkSession) or bool(frame._jdf.queryExecution().analyzed().deterministic())


def _has_star(value: SqlOrColumn) -> bool:
    """Check whether an expression uses `*`; of a Column only its text is known, which may be SQL."""
    if isinstance(value, str):
        return features_of(value).has_star
    text = str(value).removeprefix("Column<'").removesuffix("'>")
    if _STAR.search(_QUOTED.sub("", text)) is None:
        return False
    try:
        return features_of(text).has_star
    except UserError:
        return True


def _not_a_row_value_error(clause: str, value: SqlOrColumn, what: str) -> UserError:
    return clause_error(clause, value, f"{what} have no value for a single row. Use a subquery.")


def _nondeterministic_error(clause: str, value: SqlOrColumn, what: str) -> UserError:
    return clause_error(
        clause,
        value,
        f"{what} may give another result when evaluated again, so rows could be lost or doubled. "
        "Use a deterministic condition, or store the value in the source first.",
    )


def condition_column(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True) -> Column:
    """Return an expression as a condition on the columns of a schema, in the normal form that also selects files.

    The rows must have the unscaled numbers of its columns of nanoseconds.
    """

    def leaf_condition(leaf: ex.BoundPredicate) -> Column:
        if isinstance((field := leaf.term.ref().field).field_type, NANOS_TYPES):
            top, *inner = unscaled_path(schema, field)
            return _LEAF_RULES[type(leaf)](reduce(Column.getField, inner, F.col(top)), leaf)
        name = schema.find_column_name(leaf.term.ref().field.field_id) or ""
        top = max((f.name for f in schema.fields if (name + ".").startswith(f.name + ".")), key=len)
        column = column_by_name(top)
        for part in filter(None, name.removeprefix(top).split(".")):
            column = column.getField(part)
        return _LEAF_RULES[type(leaf)](column, leaf)

    bound = normalize_and_bind(expression, schema, case_sensitive=case_sensitive)
    return evaluate_expression(bound, leaf_condition, F.lit)


_LEAF_RULES: dict[type[ex.BoundPredicate], Callable[[Column, Any], Column]] = {
    ex.BoundIsNull: lambda column, _: column.isNull(),
    ex.BoundNotNull: lambda column, _: column.isNotNull(),
    ex.BoundIsNaN: lambda column, _: F.isnan(column),
    ex.BoundNotNaN: lambda column, _: ~F.isnan(column),
    ex.BoundLessThan: lambda column, leaf: column < _literal_of(leaf),
    ex.BoundLessThanOrEqual: lambda column, leaf: column <= _literal_of(leaf),
    ex.BoundGreaterThan: lambda column, leaf: column > _literal_of(leaf),
    ex.BoundGreaterThanOrEqual: lambda column, leaf: column >= _literal_of(leaf),
    ex.BoundEqualTo: lambda column, leaf: column == _literal_of(leaf),
    ex.BoundNotEqualTo: lambda column, leaf: column != _literal_of(leaf),
    ex.BoundIn: lambda column, leaf: column.isin(*_literals_of(leaf)),
    ex.BoundNotIn: lambda column, leaf: ~column.isin(*_literals_of(leaf)),
    ex.BoundStartsWith: lambda column, leaf: column.startswith(_literal_of(leaf)),
    ex.BoundNotStartsWith: lambda column, leaf: ~column.startswith(_literal_of(leaf)),
}


def _literal_of(leaf: ex.BoundLiteralPredicate) -> Column:
    return literal(leaf.literal.value, unscaled_column(leaf.term.ref().field))


def _literals_of(leaf: ex.BoundSetPredicate) -> list[Column]:
    return [literal(value, unscaled_column(leaf.term.ref().field)) for value in leaf.value_set]

"""Expressions of a statement checked before anything runs: they resolve, they fit, and they mean one thing.

Spark analyses them against a frame of the right columns. What it says is turned into one sentence that names the
clause. An aggregate, a window or a generator has no meaning for a single row; a condition that may change its answer
when it is asked again would delete one row and write another.

An Iceberg expression as a condition on rows, with the meaning SQL gives it: a comparison with null is not true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyspark.errors import AnalysisException, ParseException, PySparkException, QueryContextType
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # noqa: N812
from pyspark.sql import types as sp

from neve.errors import UserError
from neve.predicate.normalize import normalize_and_bind
from neve.predicate.sql_features import features_of
from neve.run.spark.read_columns import column_by_name, literal
from neve.run.spark.session import is_classic, quiet_errors

SqlOrColumn: TypeAlias = str | Column
"""An expression: Spark SQL text, or a Column."""

_WINDOW_OR_GENERATE = re.compile(r"^[\s:+\-]*(Window|Generate) ", re.MULTILINE)
_STAR = re.compile(r"(?:^|\(|, )(?:[\w*]+\.)*\*(?:$|,|\))")  # as `struct(a, *)` is written; `*(a, b)` is a product
_QUOTED = re.compile(r"'[^']*'")
_AGGREGATE_CONDITIONS = (
    "MISSING_GROUP_BY",
    "GROUP_BY",
    "MISSING_AGGREGATION",
    "INVALID_WHERE_CONDITION",
    "UNSUPPORTED_EXPR_FOR",
)


def as_column(value: SqlOrColumn) -> Column:
    """An expression as a Column."""
    return F.expr(value) if isinstance(value, str) else value


def user_error_from_spark(clause: str, error: PySparkException) -> UserError:
    """What Spark says about a clause, in one sentence; the error knows the words that Spark complains about."""
    found = _describe_error(clause, error)
    found.words = _offending_sql(error)
    return found


def _offending_sql(error: PySparkException) -> str:
    """The words of SQL text that Spark complains about; nothing where it does not say."""
    contexts = error.getQueryContext() or [] if hasattr(error, "getQueryContext") else []
    in_text = (c.fragment() for c in contexts if c.contextType() is QueryContextType.SQL)
    told = error.getMessageParameters() or {} if hasattr(error, "getMessageParameters") else {}
    return next(filter(None, in_text), "") or told.get("objectName") or ""


def _describe_error(clause: str, error: PySparkException) -> UserError:
    condition = (error.getCondition() or "") if hasattr(error, "getCondition") else ""
    told = error.getMessageParameters() or {} if hasattr(error, "getMessageParameters") else {}
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in told:
        names = told.get("proposal", "").replace("`", "").split(", ")
        near = ", ".join(name for name in names if "__neve_" not in name)  # those are nobody's columns
        hint = f"Did you mean one of {near}?" if near else "Name a column of the table."
        return UserError(f"{clause}: unknown column {told['objectName'].replace('`', '')!r}. {hint}")
    if condition.startswith("AMBIGUOUS_REFERENCE") and "name" in told:
        name = told["name"].replace("`", "")
        return UserError(f"{clause}: column {name!r} is ambiguous. Qualify it with the alias of its table.")
    return UserError(f"{clause}: {_first_sentence(error)}.")


def _first_sentence(error: PySparkException) -> str:
    """What Spark says, without the place in a text that nobody has written like that."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(" SQLSTATE")[0].rstrip(". ")


def clause_error(clause: str, value: SqlOrColumn, problem: str) -> UserError:
    """The error that a clause cannot have a value."""
    found = UserError(f"{clause}: {problem}")
    found.words = value if isinstance(value, str) else ""
    return found


@dataclass(frozen=True)
class ExpressionChecker:
    """The columns expressions may name, as an empty or lazy frame with its aliases."""

    frame: DataFrame

    def expression_types(self, values: Mapping[str, SqlOrColumn]) -> dict[str, sp.DataType]:
        """The types of expressions, by the clause each belongs to; each is one value for one row."""
        for clause, value in values.items():
            self._refuse_non_row_expression(clause, value)
        chosen = self._analyse_each(values, lambda columns: self.frame.select(*columns, *self._anchor_column()))
        self._refuse_operators(values, chosen)
        return {clause: field.dataType for clause, field in zip(values, chosen.schema.fields, strict=False)}

    def check_condition(self, clause: str, value: SqlOrColumn) -> None:
        """Refuse a condition that does not resolve, is not boolean, or may change its answer."""
        self._refuse_non_row_expression(clause, value)
        if isinstance(value, str) and (chance := features_of(value).nondeterministic):
            raise _nondeterministic_error(clause, value, ", ".join(chance))
        kept = self._analyse_each(
            {clause: value}, lambda columns: self.frame.where(columns[0]).select(*self._anchor_column())
        )
        if is_classic(kept.sparkSession) and not kept._jdf.queryExecution().analyzed().deterministic():
            raise _nondeterministic_error(clause, value, "a function in it")

    def _analyse_each(
        self, values: Mapping[str, SqlOrColumn], analyse: Callable[[list[Column]], DataFrame]
    ) -> DataFrame:
        """All expressions analysed at once; one by one only to find the clause that fails."""
        try:
            with quiet_errors():
                return analyse([as_column(v) for v in values.values()])
        except (AnalysisException, ParseException) as e:
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
        found = features_of(value)
        for is_there, what in (
            (found.has_aggregate, "aggregate functions"),
            (found.has_window, "window functions"),
            (found.has_generator, "generators such as explode"),
        ):
            if is_there:
                raise _not_a_row_value_error(clause, value, what)

    @staticmethod
    def _refuse_operators(values: Mapping[str, SqlOrColumn], chosen: DataFrame) -> None:
        """Refuse windows and generators in Columns, which show in the plan only."""
        if is_classic(chosen.sparkSession) and not all(isinstance(v, str) for v in values.values()):
            plan = str(chosen._jdf.queryExecution().analyzed().toString())
            if found := _WINDOW_OR_GENERATE.search(plan):
                clause, value = next((c, v) for c, v in values.items() if not isinstance(v, str))
                what = "window functions" if found[1] == "Window" else "generators such as explode"
                raise _not_a_row_value_error(clause, value, what)

    def _anchor_column(self) -> list[Column]:
        """A plain column beside the others: with it an aggregate is an error instead of one row for all."""
        return [F.col(f"`{self.frame.columns[-1]}`")]


def _has_star(value: SqlOrColumn) -> bool:
    """Whether all columns are named at once; a Column tells it by how it is written only, which may be SQL."""
    if isinstance(value, str):
        return features_of(value).has_star
    written = str(value).removeprefix("Column<'").removesuffix("'>")
    if _STAR.search(_QUOTED.sub("", written)) is None:
        return False
    try:
        return features_of(written).has_star
    except UserError:
        return True


def _not_a_row_value_error(clause: str, value: SqlOrColumn, what: str) -> UserError:
    return clause_error(clause, value, f"{what} say nothing about a single row. Use a subquery.")


def _nondeterministic_error(clause: str, value: SqlOrColumn, what: str) -> UserError:
    return clause_error(
        clause,
        value,
        f"{what} may answer differently when asked again, so rows could be lost or doubled. "
        "Use a deterministic condition, or store the value in the source first.",
    )


def condition_column(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True) -> Column:
    """The condition of an expression on the columns of a schema; of its normal form, by which files are judged too."""
    return visit(normalize_and_bind(expression, schema, case_sensitive=case_sensitive), _ConditionVisitor(schema))


class _ConditionVisitor(BoundBooleanExpressionVisitor[Column]):
    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def column(self, term: BoundTerm) -> Column:
        """The column of a term; a nested one is reached through its structs."""
        name = self.schema.find_column_name(term.ref().field.field_id) or ""
        top = max((f.name for f in self.schema.fields if (name + ".").startswith(f.name + ".")), key=len)
        found = column_by_name(top)
        for part in filter(None, name.removeprefix(top).split(".")):
            found = found.getField(part)
        return found

    def literal_column(self, term: BoundTerm, value: Any) -> Column:
        """A literal of the column's type."""
        return literal(value.value if isinstance(value, Literal) else value, term.ref().field)

    def visit_true(self) -> Column:
        return F.lit(True)

    def visit_false(self) -> Column:
        return F.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result

    def visit_in(self, term: BoundTerm, literals: Set[Any]) -> Column:
        return self.column(term).isin(*(self.literal_column(term, v) for v in literals))

    def visit_not_in(self, term: BoundTerm, literals: Set[Any]) -> Column:
        return ~self.visit_in(term, literals)

    def visit_is_nan(self, term: BoundTerm) -> Column:
        return F.isnan(self.column(term))

    def visit_not_nan(self, term: BoundTerm) -> Column:
        return ~F.isnan(self.column(term))

    def visit_is_null(self, term: BoundTerm) -> Column:
        return self.column(term).isNull()

    def visit_not_null(self, term: BoundTerm) -> Column:
        return self.column(term).isNotNull()

    def visit_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) == self.literal_column(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) != self.literal_column(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) >= self.literal_column(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) > self.literal_column(term, literal)

    def visit_less_than(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) < self.literal_column(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) <= self.literal_column(term, literal)

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term).startswith(self.literal_column(term, literal))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Column:
        return ~self.visit_starts_with(term, literal)

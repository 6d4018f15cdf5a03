"""An Iceberg expression as a condition on rows, with the meaning SQL gives it: a comparison with null is not true."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from neve.predicate.normalize import bound
from neve.run.spark.columns import by_name, literal

__all__ = ["condition"]


def condition(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True) -> Column:
    """The condition of an expression on the columns of a schema; of its normal form, by which files are judged too."""
    return visit(bound(expression, schema, case_sensitive=case_sensitive), _Condition(schema))


class _Condition(BoundBooleanExpressionVisitor[Column]):
    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def column(self, term: BoundTerm) -> Column:
        """The column of a term; a nested one is reached through its structs."""
        name = self.schema.find_column_name(term.ref().field.field_id) or ""
        top = max((f.name for f in self.schema.fields if (name + ".").startswith(f.name + ".")), key=len)
        found = by_name(top)
        for part in filter(None, name.removeprefix(top).split(".")):
            found = found.getField(part)
        return found

    def value(self, term: BoundTerm, value: Any) -> Column:
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
        return self.column(term).isin(*(self.value(term, v) for v in literals))

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
        return self.column(term) == self.value(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) != self.value(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) >= self.value(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) > self.value(term, literal)

    def visit_less_than(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) < self.value(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term) <= self.value(term, literal)

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> Column:
        return self.column(term).startswith(self.value(term, literal))

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> Column:
        return ~self.visit_starts_with(term, literal)

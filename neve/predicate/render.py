"""Expressions as SQL text that Spark can run, row by row the same as the expression says.

Iceberg's comparisons know two values, SQL's three: `NotEqualTo` and its like let null through, and say so in the text.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    LongType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    UUIDType,
)

from neve.errors import UnsupportedFeature
from neve.predicate.normal import bound

__all__ = ["sql_of"]

EPOCH = datetime(1970, 1, 1)


def sql_of(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True) -> str:
    """A condition for Spark that lets through the rows an expression lets through.

    >>> from pyiceberg.expressions import NotEqualTo
    >>> from pyiceberg.types import NestedField
    >>> sql_of(NotEqualTo("region", "eu"), Schema(NestedField(1, "region", StringType())))
    "(`region` <> 'eu' OR `region` IS NULL)"
    """
    return visit(bound(expression, schema, case_sensitive=case_sensitive), _Text(schema))


class _Text(BoundBooleanExpressionVisitor[str]):
    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def name(self, term: BoundTerm) -> str:
        path = _path(self.schema.as_struct(), term.ref().field.field_id)
        return ".".join(f"`{part.replace('`', '``')}`" for part in path)

    def compared(self, term: BoundTerm, operator: str, literal: Any) -> str:
        return f"{self.name(term)} {operator} {_literal(literal.value, term.ref().field.field_type)}"

    def or_null(self, condition: str, term: BoundTerm) -> str:
        return f"({condition} OR {self.name(term)} IS NULL)"

    def listed(self, literals: set[Any], term: BoundTerm) -> str:
        return ", ".join(_literal(v, term.ref().field.field_type) for v in sorted(literals))

    def visit_true(self) -> str:
        return "TRUE"

    def visit_false(self) -> str:
        return "FALSE"

    def visit_not(self, child_result: str) -> str:
        return f"NOT ({child_result})"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result} AND {right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result} OR {right_result})"

    def visit_is_null(self, term: BoundTerm) -> str:
        return f"{self.name(term)} IS NULL"

    def visit_not_null(self, term: BoundTerm) -> str:
        return f"{self.name(term)} IS NOT NULL"

    def visit_is_nan(self, term: BoundTerm) -> str:
        return f"isnan({self.name(term)})"

    def visit_not_nan(self, term: BoundTerm) -> str:
        return f"NOT isnan({self.name(term)})"

    def visit_equal(self, term: BoundTerm, literal: Any) -> str:
        return self.compared(term, "=", literal)

    def visit_not_equal(self, term: BoundTerm, literal: Any) -> str:
        return self.or_null(self.compared(term, "<>", literal), term)

    def visit_less_than(self, term: BoundTerm, literal: Any) -> str:
        return self.compared(term, "<", literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Any) -> str:
        return self.compared(term, "<=", literal)

    def visit_greater_than(self, term: BoundTerm, literal: Any) -> str:
        return self.compared(term, ">", literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Any) -> str:
        return self.compared(term, ">=", literal)

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> str:
        return f"{self.name(term)} IN ({self.listed(literals, term)})"

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> str:
        return self.or_null(f"{self.name(term)} NOT IN ({self.listed(literals, term)})", term)

    def visit_starts_with(self, term: BoundTerm, literal: Any) -> str:
        return f"startswith({self.name(term)}, {_literal(literal.value, StringType())})"

    def visit_not_starts_with(self, term: BoundTerm, literal: Any) -> str:
        return self.or_null(f"NOT {self.visit_starts_with(term, literal)}", term)


def _path(struct: StructType, field_id: int) -> list[str]:
    """The names from a top-level column down to a field of its structs."""
    for field in struct.fields:
        if field.field_id == field_id:
            return [field.name]
        if isinstance(field.field_type, StructType) and (inner := _path(field.field_type, field_id)):
            return [field.name, *inner]
    return []


def _literal(value: Any, kind: IcebergType) -> str:
    if isinstance(kind, BooleanType):
        return "TRUE" if value else "FALSE"
    if isinstance(kind, StringType | UUIDType):
        return _quoted(
            str(UUID(bytes=value)) if isinstance(kind, UUIDType) and isinstance(value, bytes) else str(value)
        )
    if isinstance(kind, BinaryType | FixedType):
        return f"X'{value.hex()}'"
    if isinstance(kind, FloatType | DoubleType | DecimalType):
        type_name = str(kind).replace(" ", "")
        return f"CAST('{value!r}' AS {type_name})" if isinstance(value, float) else f"CAST('{value}' AS {type_name})"
    return _whole_or_time(value, kind)


def _whole_or_time(value: int, kind: IcebergType) -> str:
    if isinstance(kind, DateType):
        return f"DATE '{(EPOCH + timedelta(days=value)):%Y-%m-%d}'"
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType):
        raise UnsupportedFeature(
            "Spark cannot compare nanosecond timestamps. Give the condition as SQL text in microseconds."
        )
    if isinstance(kind, TimestampType | TimestamptzType):
        moment = (EPOCH + timedelta(microseconds=value)).isoformat(sep=" ", timespec="microseconds")
        return f"TIMESTAMP_NTZ '{moment}'" if isinstance(kind, TimestampType) else f"TIMESTAMP_LTZ '{moment} UTC'"
    if kind.is_primitive and str(kind) == "time":
        raise UnsupportedFeature("Spark cannot compare columns of type time. Leave them out of the condition.")
    return f"{value}L" if isinstance(kind, LongType) and value > -(1 << 63) else str(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

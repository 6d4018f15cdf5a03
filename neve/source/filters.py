"""The conditions Spark hands to a data source, as expressions to plan and read with.

Spark applies every one of them to the rows again, so what cannot be said exactly is left out. A filter on a column
that Spark holds in another form than the table does (uuid as text, nanoseconds as microseconds) compares other values
than the table has, and is left out as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pyiceberg import expressions as ice
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField
from pyspark.sql import datasource as spark

from neve.errors import UserError
from neve.predicate.normalize import all_of, normalize_expression
from neve.run.read.types import ArrowFlavor, arrow_type

_IS_NULL: Any = ice.IsNull  # pydantic's types hide how expressions are made
_IS_NOT_NULL: Any = ice.NotNull
_COMPARISONS: dict[type[spark.Filter], Any] = {
    spark.EqualTo: ice.EqualTo,
    spark.In: ice.In,
    spark.GreaterThan: ice.GreaterThan,
    spark.GreaterThanOrEqual: ice.GreaterThanOrEqual,
    spark.LessThan: ice.LessThan,
    spark.LessThanOrEqual: ice.LessThanOrEqual,
    spark.StringStartsWith: ice.StartsWith,
}
_NEGATED_COMPARISONS: dict[type[spark.Filter], Any] = {
    spark.EqualTo: ice.NotEqualTo,
    spark.In: ice.NotIn,
    spark.GreaterThan: ice.LessThanOrEqual,
    spark.GreaterThanOrEqual: ice.LessThan,
    spark.LessThan: ice.GreaterThanOrEqual,
    spark.LessThanOrEqual: ice.GreaterThan,
    spark.StringStartsWith: ice.NotStartsWith,
}


def expression_of(filters: Iterable[spark.Filter], schema: Schema) -> ice.BooleanExpression | None:
    """What some filters say together about the rows of a table; None when nothing can be said."""
    said = [found for f in filters if (found := _normalized_expression(f, schema)) is not None]
    return all_of(said) if said else None


def _normalized_expression(spark_filter: spark.Filter, schema: Schema) -> ice.BooleanExpression | None:
    """One filter as an expression that can be planned with."""
    try:
        found = _to_expression(spark_filter, schema)
        return None if found is None else normalize_expression(found, schema)
    except (UserError, ValueError, TypeError, ArithmeticError):  # a value that the column cannot be compared with
        return None


def _to_expression(spark_filter: spark.Filter, schema: Schema) -> ice.BooleanExpression | None:
    is_not = isinstance(spark_filter, spark.Not)
    inner: Any = spark_filter.child if isinstance(spark_filter, spark.Not) else spark_filter
    field = schema.find_field(".".join(inner.attribute))
    name = ice.Reference(schema.find_column_name(field.field_id) or "")
    match inner:
        case spark.IsNull() | spark.EqualNullSafe(value=None):
            return (_IS_NOT_NULL if is_not else _IS_NULL)(name)
        case spark.IsNotNull():
            return (_IS_NULL if is_not else _IS_NOT_NULL)(name)
    return _comparison(name, inner, field, is_not) if is_same_in_spark(field) else None


def _comparison(
    name: ice.Reference, spark_filter: Any, field: NestedField, is_not: bool
) -> ice.BooleanExpression | None:
    match spark_filter:
        case spark.EqualNullSafe():
            return None if is_not else _COMPARISONS[spark.EqualTo](name, _literal_value(spark_filter.value, field))
        case spark.In() if is_not and None in spark_filter.value:
            return None
        case spark.In():
            made = (_NEGATED_COMPARISONS if is_not else _COMPARISONS)[spark.In]
            return made(name, {_literal_value(v, field) for v in spark_filter.value if v is not None})
    made = (_NEGATED_COMPARISONS if is_not else _COMPARISONS).get(type(spark_filter))
    return None if made is None or spark_filter.value is None else made(name, _literal_value(spark_filter.value, field))


def is_same_in_spark(field: NestedField) -> bool:
    """Whether Spark is shown the values of a column as they are stored."""
    return field.field_type.is_primitive and arrow_type(field.field_type, ArrowFlavor.SPARK) == arrow_type(
        field.field_type, ArrowFlavor.EXACT
    )


def _literal_value(value: Any, field: NestedField) -> Any:
    """A value as PyIceberg's literals want it."""
    if isinstance(value, Decimal) and isinstance(field.field_type, DecimalType):
        exact = value.quantize(Decimal(1).scaleb(-field.field_type.scale))
        if exact != value:
            raise ValueError("a decimal of another scale")
        return exact
    return value

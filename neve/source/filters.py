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
from neve.predicate.normalize import all_of, normal
from neve.run.read.types import Carrier, arrow_type

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
_NEGATED: dict[type[spark.Filter], Any] = {
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
    said = [found for f in filters if (found := _said(f, schema)) is not None]
    return all_of(said) if said else None


def _said(given: spark.Filter, schema: Schema) -> ice.BooleanExpression | None:
    """One filter as an expression that can be planned with."""
    try:
        found = _expression(given, schema)
        return None if found is None else normal(found, schema)
    except (UserError, ValueError, TypeError, ArithmeticError):  # a value that the column cannot be compared with
        return None


def _expression(given: spark.Filter, schema: Schema) -> ice.BooleanExpression | None:
    is_not = isinstance(given, spark.Not)
    inner: Any = given.child if isinstance(given, spark.Not) else given
    field = schema.find_field(".".join(inner.attribute))
    name = ice.Reference(schema.find_column_name(field.field_id) or "")
    match inner:
        case spark.IsNull() | spark.EqualNullSafe(value=None):
            return (_IS_NOT_NULL if is_not else _IS_NULL)(name)
        case spark.IsNotNull():
            return (_IS_NULL if is_not else _IS_NOT_NULL)(name)
    return _comparison(name, inner, field, is_not) if is_same_in_spark(field) else None


def _comparison(name: ice.Reference, given: Any, field: NestedField, is_not: bool) -> ice.BooleanExpression | None:
    match given:
        case spark.EqualNullSafe():
            return None if is_not else _COMPARISONS[spark.EqualTo](name, _value(given.value, field))
        case spark.In() if is_not and None in given.value:
            return None
        case spark.In():
            made = (_NEGATED if is_not else _COMPARISONS)[spark.In]
            return made(name, {_value(v, field) for v in given.value if v is not None})
    made = (_NEGATED if is_not else _COMPARISONS).get(type(given))
    return None if made is None or given.value is None else made(name, _value(given.value, field))


def is_same_in_spark(field: NestedField) -> bool:
    """Whether Spark is shown the values of a column as they are stored."""
    return field.field_type.is_primitive and arrow_type(field.field_type, Carrier.SPARK) == arrow_type(
        field.field_type, Carrier.EXACT
    )


def _value(value: Any, field: NestedField) -> Any:
    """A value as PyIceberg's literals want it."""
    if isinstance(value, Decimal) and isinstance(field.field_type, DecimalType):
        exact = value.quantize(Decimal(1).scaleb(-field.field_type.scale))
        if exact != value:
            raise ValueError("a decimal of another scale")
        return exact
    return value

"""How a column of a scan is made from what Spark reads: by field id, under a safe name, with defaults as literals.

Inside a scan every column is called `__f<id>`, whatever the table calls it; only the last step gives the names back.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp

from neve.run.arrow.project import constant
from neve.run.arrow.types import Carrier
from neve.run.spark.names import ReadNames, synthetic
from neve.run.spark.types import FIELD_ID, spark_field, spark_type

__all__ = ["EXACT_IN_SPARK", "by_name", "is_native", "literal", "narrowed", "placed", "read_field"]

_DAY = 86_400_000_000

EXACT_IN_SPARK: frozenset[type[ice.IcebergType]] = frozenset(
    {
        ice.BooleanType,
        ice.IntegerType,
        ice.LongType,
        ice.FloatType,
        ice.DoubleType,
        ice.DateType,
        ice.TimestampType,
        ice.TimestamptzType,
        ice.StringType,
        ice.BinaryType,
        ice.FixedType,
        ice.DecimalType,
    }
)


def is_native(field: ice.NestedField) -> bool:
    """Whether Spark's own Parquet reader gives exactly the values of a column."""
    return isinstance(field.field_type, ice.UUIDType | ice.UnknownType) or _is_exact(field.field_type)


def _is_exact(kind: ice.IcebergType) -> bool:
    match kind:
        case ice.StructType():
            return all(_is_exact(f.field_type) for f in kind.fields)
        case ice.ListType():
            return _is_exact(kind.element_type)
        case ice.MapType():
            return _is_exact(kind.key_type) and _is_exact(kind.value_type)
        case _:
            return type(kind) in EXACT_IN_SPARK


def read_field(field: ice.NestedField, names: ReadNames) -> sp.StructField:
    """A column as Spark is asked to read it."""
    if isinstance(field.field_type, ice.UUIDType):
        return sp.StructField(names.top(field), sp.BinaryType(), True, {FIELD_ID: field.field_id})
    if names.are_inner_names_safe(field):
        inner = spark_type(field.field_type)
    else:
        inner = spark_type(field.field_type, synthetic)
    return sp.StructField(names.top(field), inner, True, {FIELD_ID: field.field_id})


def placed(field: ice.NestedField, names: ReadNames) -> Column:
    """A column that was read, with its final type, as `__f<id>`."""
    column = by_name(names.top(field))
    if isinstance(field.field_type, ice.UUIDType):
        column = _uuid_text(column)
    elif not names.are_inner_names_safe(field):
        column = column.cast(spark_type(field.field_type))
    if names.is_widened(field):  # Spark cuts a decimal to the width a file has, and compares what is left of it
        return F.when(column.isNotNull(), column).alias(synthetic(field))
    return _without_push_down(column, field.field_type).alias(synthetic(field))


def _without_push_down(column: Column, kind: ice.IcebergType) -> Column:
    """A column with floating-point numbers such that no filter on it reaches the Parquet reader.

    The bounds of a row group leave NaN out, while to Spark NaN is greater than all numbers and equal to itself: a row
    group would be skipped that holds it. Files are still left out by the statistics of the table, which count NaNs.
    """
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return F.nanvl(column, column)
    return F.when(column.isNotNull(), column) if _holds_floats(kind) else column


def _holds_floats(kind: ice.IcebergType) -> bool:
    match kind:
        case ice.StructType():
            return any(_holds_floats(f.field_type) for f in kind.fields)
        case _:
            return isinstance(kind, ice.FloatType | ice.DoubleType)


def by_name(name: str, qualifier: str | None = None) -> Column:
    """A column by its exact name, dots and backticks included; of the frame with an alias, when that is told."""
    parts = [name] if qualifier is None else [qualifier, name]
    return F.col(".".join(f"`{part.replace('`', '``')}`" for part in parts))


def narrowed(value: Column, kind: ice.IcebergType, wanted: ice.IcebergType) -> Column:
    """A column of a type without the nested fields that another, which is part of it, lacks."""
    if kind == wanted:
        return value
    match kind, wanted:
        case ice.StructType(), ice.StructType():
            given = {f.field_id: f.field_type for f in kind.fields}
            parts = [
                narrowed(value.getField(f.name), given[f.field_id], f.field_type).alias(f.name) for f in wanted.fields
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        case ice.ListType(), ice.ListType():
            return F.transform(value, lambda each: narrowed(each, kind.element_type, wanted.element_type))
        case ice.MapType(), ice.MapType():
            return F.transform_values(value, lambda _, each: narrowed(each, kind.value_type, wanted.value_type))
    raise TypeError(f"{wanted} is no part of {kind}")


def literal(value: Any, field: ice.NestedField) -> Column:
    """A constant of the type a column has."""
    kind = spark_field(field).dataType
    scalar = constant(value, field.field_type, Carrier.SPARK).value[0]
    return _literal(scalar).cast(kind)


def _literal(scalar: pa.Scalar) -> Column:
    if not scalar.is_valid:
        return F.lit(None)
    if pa.types.is_date(scalar.type):
        return F.expr(f"date_from_unix_date({scalar.value})")
    if pa.types.is_timestamp(scalar.type):
        return F.timestamp_micros(F.lit(scalar.value)) if scalar.type.tz else _without_zone(scalar.value)
    return F.lit(scalar.as_py())


def _without_zone(micros: int) -> Column:
    """A local timestamp, whatever the time zone of the session."""
    days, rest = divmod(micros, _DAY)
    seconds = Decimal(rest).scaleb(-6)
    return F.expr(
        f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval({days}, 0, 0, CAST({seconds} AS DECIMAL(18, 6)))"
    )


def _uuid_text(column: Column) -> Column:
    digits = F.lower(F.hex(column))
    starts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    parts = [F.substring(digits, start, length) for start, length in starts]
    return F.concat(parts[0], *(piece for part in parts[1:] for piece in (F.lit("-"), part)))

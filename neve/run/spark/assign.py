"""A DataFrame as the writers want it: its columns named as the table's, its types checked before any job runs.

Values are converted where files are written, by the rules of `neve.run.writing.assignment`, the same for every input.
Two conversions are Spark's: between timestamps with and without a time zone, by the time zone of the session; and into
text, since rows are sorted as what they become.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp
from pyspark.sql.pandas.types import to_arrow_schema

from neve.errors import UserError
from neve.run.writing.assignment import check_assignable, matched_names

__all__ = ["assigned_frame"]

_LOCAL = ice.TimestampType | ice.TimestampNanoType | ice.DateType
_INSTANT = ice.TimestamptzType | ice.TimestamptzNanoType


def assigned_frame(df: DataFrame, schema: Schema, beside: Sequence[str] = ()) -> DataFrame:
    """The columns of a DataFrame that belong to a schema, in its order. What does not fit the schema is refused.

    Columns named `beside` go along as they are.
    """
    given = [f for f in df.schema.fields if f.name not in beside]
    found = matched_names([f.name for f in given], schema.fields)
    columns = []
    for field in schema.fields:
        if field.field_id not in found:
            continue
        source = given[found[field.field_id]]
        column = F.col(f"`{source.name.replace('`', '``')}`")
        wanted = _stored_as(source.dataType, field.field_type)
        columns.append((column if wanted == source.dataType else column.cast(wanted)).alias(field.name))
    check_assignable(_arrow_schema(df.select(*columns).schema), schema)
    return df.select(*columns, *beside)


def _arrow_schema(schema: sp.StructType) -> object:
    try:
        return to_arrow_schema(schema)
    except PySparkException as e:
        raise UserError(f"Cannot store columns of type {schema.simpleString()}: {e}") from e


def _stored_as(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    """The type a column takes in Spark, down to the last field of it."""
    match source, target:
        case sp.ArrayType(), ice.ListType():
            return sp.ArrayType(_stored_as(source.elementType, target.element_type), source.containsNull)
        case sp.MapType(), ice.MapType():
            key = _stored_as(source.keyType, target.key_type)
            value = _stored_as(source.valueType, target.value_type)
            return sp.MapType(key, value, source.valueContainsNull)
        case sp.StructType(), ice.StructType():
            return _struct_stored_as(source, target)
    return _value_stored_as(source, target)


def _value_stored_as(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    """Timestamps have a time zone where the table's have one, and text is text."""
    if isinstance(source, sp.TimestampType) and isinstance(target, _LOCAL):
        return sp.TimestampNTZType()
    if isinstance(source, sp.TimestampNTZType | sp.DateType) and isinstance(target, _INSTANT):
        return sp.TimestampType()
    if isinstance(source, sp.IntegralType | sp.BooleanType | sp.DateType) and isinstance(target, ice.StringType):
        return sp.StringType()
    return source


def _struct_stored_as(source: sp.StructType, target: ice.StructType) -> sp.StructType:
    wanted = {f.name.lower(): f.field_type for f in target.fields}
    fields = [
        sp.StructField(f.name, _stored_as(f.dataType, wanted[f.name.lower()]), f.nullable, f.metadata)
        if f.name.lower() in wanted
        else f
        for f in source.fields
    ]
    return sp.StructType(fields)

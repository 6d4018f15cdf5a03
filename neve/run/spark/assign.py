"""A DataFrame as the writers want it: its columns named as the table's, its types checked before any job runs.

Values are converted where files are written, by the rules of `neve.run.writing.assignment`, the same for every input.
One conversion is Spark's: between timestamps with and without a time zone, by the time zone of the session.
"""

from __future__ import annotations

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


def assigned_frame(df: DataFrame, schema: Schema) -> DataFrame:
    """The columns of a DataFrame that belong to a schema, in its order. What does not fit the schema is refused."""
    given = df.schema.fields
    found = matched_names([f.name for f in given], schema.fields)
    columns = []
    for field in schema.fields:
        if field.field_id not in found:
            continue
        source = given[found[field.field_id]]
        column = F.col(f"`{source.name.replace('`', '``')}`")
        wanted = _in_time_zone(source.dataType, field.field_type)
        columns.append((column if wanted == source.dataType else column.cast(wanted)).alias(field.name))
    chosen = df.select(*columns)
    check_assignable(_arrow_schema(chosen.schema), schema)
    return chosen


def _arrow_schema(schema: sp.StructType) -> object:
    try:
        return to_arrow_schema(schema)
    except PySparkException as e:
        raise UserError(f"Cannot store columns of type {schema.simpleString()}: {e}") from e


def _in_time_zone(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    """The type a column takes so that its timestamps have a time zone where the table's have one."""
    match source, target:
        case sp.TimestampType(), _ if isinstance(target, _LOCAL):
            return sp.TimestampNTZType()
        case ((sp.TimestampNTZType() | sp.DateType()), _) if isinstance(target, _INSTANT):
            return sp.TimestampType()
        case sp.ArrayType(), ice.ListType():
            return sp.ArrayType(_in_time_zone(source.elementType, target.element_type), source.containsNull)
        case sp.MapType(), ice.MapType():
            key = _in_time_zone(source.keyType, target.key_type)
            value = _in_time_zone(source.valueType, target.value_type)
            return sp.MapType(key, value, source.valueContainsNull)
        case sp.StructType(), ice.StructType():
            return _struct_in_time_zone(source, target)
    return source


def _struct_in_time_zone(source: sp.StructType, target: ice.StructType) -> sp.StructType:
    wanted = {f.name.lower(): f.field_type for f in target.fields}
    fields = [
        sp.StructField(f.name, _in_time_zone(f.dataType, wanted[f.name.lower()]), f.nullable, f.metadata)
        if f.name.lower() in wanted
        else f
        for f in source.fields
    ]
    return sp.StructType(fields)

"""Convert values to the columns they are assigned to.

`assign_expression` converts expressions by Spark's store assignment in ANSI mode, whatever the session's settings.
Numbers may change width and kind, dates may become timestamps, text stays text. A value that overflows or would lose a
fraction is an error when the row is processed; a type that cannot be stored at all is an error before anything runs.
Structs are matched by the names of their fields; a missing field gets its write default, or null.

`assign_dataframe` prepares a DataFrame for the writers: columns are matched by name, and types are checked before any
job runs. Values are converted where files are written, by the rules of `neve.run.write.store_assignment`, which are
the same for every input. Spark makes only two conversions: between timestamps with and without a time zone, by the time
zone of the session, and into text, because rows are sorted by the stored values.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as sp
from pyspark.sql.pandas.types import to_arrow_schema

from neve.errors import UserError
from neve.run.spark.read_columns import column_by_name, literal
from neve.run.spark.types import spark_type
from neve.run.write.store_assignment import check_assignable, match_columns_by_name

_NUMBER_TYPES = (sp.IntegralType, sp.FractionalType)
_TIME_TYPES = (sp.DateType, sp.TimestampType, sp.TimestampNTZType)
_WIDTH: dict[type[sp.DataType], int] = {sp.ByteType: 1, sp.ShortType: 2, sp.IntegerType: 3, sp.LongType: 4}


def assign_expression(value: Column, source: sp.DataType, field: ice.NestedField, where: str) -> Column:
    """Convert a value of a Spark type to the type of a column; `where` names the assignment in errors."""
    return _assign_value(value, source, spark_type(field.field_type), field.field_type, where)


def _assign_value(value: Column, source: sp.DataType, target: sp.DataType, kind: ice.IcebergType, where: str) -> Column:
    if isinstance(source, sp.NullType):
        return F.lit(None).cast(target)
    match source, target, kind:
        case sp.StructType(), sp.StructType(), ice.StructType():
            return _assign_struct(value, source, kind, where)
        case sp.ArrayType(), sp.ArrayType(), ice.ListType():
            return _assign_list(value, source, target, kind, where)
        case sp.MapType(), sp.MapType(), ice.MapType():
            return _assign_map(value, source, target, kind, where)
        case sp.BinaryType(), sp.StringType(), ice.UUIDType():  # Spark shows UUIDs as text
            text = F.regexp_replace(F.lower(F.hex(value)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
            is_valid = value.isNull() | (F.length(value) == 16)
            return F.when(is_valid, text).otherwise(_raise_misfit(where, "uuid").cast("string"))
    return value if _is_same_type(source, target) else _checked_cast(value, source, target, where)


def _assign_struct(value: Column, source: sp.StructType, kind: ice.StructType, where: str) -> Column:
    source_fields = _match_fields_by_name(source, kind, where)
    parts = []
    for field in kind.fields:
        target = spark_type(field.field_type)
        if (own := source_fields.get(field.field_id)) is not None:
            path = f"{where}.{field.name}"
            part = _assign_value(value.getField(own.name), own.dataType, target, field.field_type, path)
        elif field.write_default is not None:
            part = literal(field.write_default, field)
        elif field.required:
            raise UserError(f"Missing field {field.name!r} in the struct assigned to {where!r}: it is required.")
        else:
            part = F.lit(None).cast(target)
        parts.append(part.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*parts))


def _match_fields_by_name(source: sp.StructType, kind: ice.StructType, where: str) -> dict[int, sp.StructField]:
    exact = {f.name: f.field_id for f in kind.fields}
    folded = {f.name.lower(): f.field_id for f in kind.fields}
    matches: dict[int, sp.StructField] = {}
    for field in source.fields:
        field_id = exact.get(field.name, folded.get(field.name.lower()))
        if field_id is None:
            raise UserError(f"Struct assigned to {where!r} has a field {field.name!r} that the column lacks.")
        matches[field_id] = field
    return matches


def _assign_list(value: Column, source: sp.ArrayType, target: sp.ArrayType, kind: ice.ListType, where: str) -> Column:
    own_type, element_type = source.elementType, target.elementType
    if _is_same_type(own_type, element_type):
        return value
    path = f"{where}.element"
    return F.transform(value, lambda each: _assign_value(each, own_type, element_type, kind.element_type, path))


def _assign_map(value: Column, source: sp.MapType, target: sp.MapType, kind: ice.MapType, where: str) -> Column:
    if not _is_same_type(source.keyType, target.keyType):
        value = F.transform_keys(
            value, lambda k, _: _assign_value(k, source.keyType, target.keyType, kind.key_type, f"{where}.key")
        )
    if not _is_same_type(source.valueType, target.valueType):
        value = F.transform_values(
            value, lambda _, v: _assign_value(v, source.valueType, target.valueType, kind.value_type, f"{where}.value")
        )
    return value


def _raise_misfit(where: str, kind: str) -> Column:
    return F.raise_error(F.lit(f"A value does not fit column {where} of type {kind}: it would be changed"))


def _checked_cast(value: Column, source: sp.DataType, target: sp.DataType, where: str) -> Column:
    """Cast a value; a value that the cast would change stops the query."""
    if not _is_assignable(source, target):
        raise UserError(
            f"Cannot store {source.simpleString()} in column {where!r} of type {target.simpleString()}. "
            "Cast it in the expression."
        )
    if _is_widening(source, target):
        return value.cast(target)
    converted = value.try_cast(target)
    if isinstance(source, sp.DoubleType | sp.FloatType) and isinstance(target, sp.FloatType):
        return converted  # floats are approximate by nature
    # Decimals are rounded to the scale of the column, as in all of SQL; a value beyond its precision is rejected.
    rounds = isinstance(target, sp.DecimalType)
    fits = value.isNull() | (converted.isNotNull() if rounds else converted.try_cast(source).eqNullSafe(value))
    return F.when(fits, converted).otherwise(_raise_misfit(where, target.simpleString()).cast(target))


def _is_assignable(source: sp.DataType, target: sp.DataType) -> bool:
    if isinstance(target, sp.StringType):
        return isinstance(source, sp.AtomicType) and not isinstance(source, sp.BinaryType)
    return any(isinstance(source, kinds) and isinstance(target, kinds) for kinds in (_NUMBER_TYPES, _TIME_TYPES))


def _is_widening(source: sp.DataType, target: sp.DataType) -> bool:
    if isinstance(target, sp.StringType) or (isinstance(source, _TIME_TYPES) and not isinstance(target, sp.DateType)):
        return True
    if type(source) in _WIDTH and type(target) in _WIDTH:
        return _WIDTH[type(source)] <= _WIDTH[type(target)]
    if isinstance(source, sp.FloatType) and isinstance(target, sp.DoubleType):
        return True
    if isinstance(source, sp.DecimalType) and isinstance(target, sp.DecimalType):
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    return isinstance(source, sp.ByteType | sp.ShortType | sp.IntegerType) and isinstance(target, sp.DoubleType)


def _is_same_type(left: sp.DataType, right: sp.DataType) -> bool:
    """Return whether two types hold the same values; names of struct fields count, metadata and nullability do not."""
    match left, right:
        case sp.StructType(), sp.StructType():
            return [f.name for f in left.fields] == [f.name for f in right.fields] and all(
                _is_same_type(a.dataType, b.dataType) for a, b in zip(left.fields, right.fields, strict=True)
            )
        case sp.ArrayType(), sp.ArrayType():
            return _is_same_type(left.elementType, right.elementType)
        case sp.MapType(), sp.MapType():
            return _is_same_type(left.keyType, right.keyType) and _is_same_type(left.valueType, right.valueType)
        case sp.StringType(), sp.StringType():
            return True
    return left == right


_LOCAL = ice.TimestampType | ice.TimestampNanoType | ice.DateType
_INSTANT = ice.TimestamptzType | ice.TimestamptzNanoType


def assign_dataframe(df: DataFrame, schema: Schema, extra_columns: Sequence[str] = ()) -> DataFrame:
    """Select the columns of a schema from a DataFrame, in the order of the schema; reject what does not fit.

    `extra_columns` are added unchanged.
    """
    source_fields = [f for f in df.schema.fields if f.name not in extra_columns]
    positions = match_columns_by_name([f.name for f in source_fields], schema.fields)
    columns = []
    for field in schema.fields:
        if field.field_id not in positions:
            continue
        source = source_fields[positions[field.field_id]]
        column = column_by_name(source.name)
        kind = _assigned_type(source.dataType, field.field_type)
        columns.append((column if kind == source.dataType else column.cast(kind)).alias(field.name))
    check_spark_schema(df.select(*columns).schema, schema)
    return df.select(*columns, *extra_columns)


def check_spark_schema(source: sp.StructType, schema: Schema) -> None:
    """Reject rows whose columns or types cannot be stored in a table of this schema."""
    try:
        arrow_schema = to_arrow_schema(source)
    except PySparkException as e:
        raise UserError(f"Cannot store columns of type {source.simpleString()}: {e}") from e
    check_assignable(arrow_schema, schema)


def _assigned_type(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    """Return the type that Spark converts a column to, including nested types."""
    match source, target:
        case sp.ArrayType(), ice.ListType():
            return sp.ArrayType(_assigned_type(source.elementType, target.element_type), source.containsNull)
        case sp.MapType(), ice.MapType():
            key = _assigned_type(source.keyType, target.key_type)
            value = _assigned_type(source.valueType, target.value_type)
            return sp.MapType(key, value, source.valueContainsNull)
        case sp.StructType(), ice.StructType():
            types = {f.name.lower(): f.field_type for f in target.fields}
            return sp.StructType([_assigned_field(f, types.get(f.name.lower())) for f in source.fields])
    return _assigned_value_type(source, target)


def _assigned_value_type(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    if isinstance(source, sp.TimestampType) and isinstance(target, _LOCAL):
        return sp.TimestampNTZType()
    if isinstance(source, sp.TimestampNTZType | sp.DateType) and isinstance(target, _INSTANT):
        return sp.TimestampType()
    if isinstance(source, sp.IntegralType | sp.BooleanType | sp.DateType) and isinstance(target, ice.StringType):
        return sp.StringType()
    return source


def _assigned_field(source: sp.StructField, target: ice.IcebergType | None) -> sp.StructField:
    if target is None:
        return source
    return sp.StructField(source.name, _assigned_type(source.dataType, target), source.nullable, source.metadata)

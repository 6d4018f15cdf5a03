"""Expressions as the columns they are assigned to: Spark's store assignment in ANSI mode, whatever the session says.

Numbers may change width and kind, dates may become timestamps, text stays text. A value that overflows or would lose a
fraction is an error when the row is met; a type that cannot be stored at all is one before anything runs. Structs are
matched by the names of their fields; a field that is left out has its write default, or null.

A DataFrame as the writers want it: its columns named as the table's, its types checked before any job runs.

Values are converted where files are written, by the rules of `neve.run.write.store_assignment`, the same for every
input. Two conversions are Spark's: between timestamps with and without a time zone, by the time zone of the session,
and into text, since rows are sorted as what they become.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # noqa: N812
from pyspark.sql import types as sp
from pyspark.sql.pandas.types import to_arrow_schema

from neve.errors import UserError
from neve.run.spark.read_columns import literal
from neve.run.spark.types import spark_type
from neve.run.write.store_assignment import check_assignable, match_columns_by_name

_NUMBER_TYPES = (sp.IntegralType, sp.FractionalType)
_TIME_TYPES = (sp.DateType, sp.TimestampType, sp.TimestampNTZType)
_WIDTH: dict[type[sp.DataType], int] = {sp.ByteType: 1, sp.ShortType: 2, sp.IntegerType: 3, sp.LongType: 4}


def assign_expression(value: Column, source: sp.DataType, field: ice.NestedField, where: str) -> Column:
    """A value of a Spark type in the type of a column; `where` names the assignment in errors."""
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
        case sp.BinaryType(), sp.StringType(), ice.UUIDType():
            return _uuid(value, where)
    return value if _is_same_type(source, target) else _checked_cast(value, source, target, where)


def _assign_struct(value: Column, source: sp.StructType, kind: ice.StructType, where: str) -> Column:
    given = _match_fields_by_name([f.name for f in source.fields], kind, where)
    parts = []
    for field in kind.fields:
        target = spark_type(field.field_type)
        if field.field_id in given:
            at = source.fields[given[field.field_id]]
            part = _assign_value(
                value.getField(at.name), at.dataType, target, field.field_type, f"{where}.{field.name}"
            )
        else:
            part = _missing_field_value(field, where)
        parts.append(part.alias(field.name))
    return F.when(value.isNotNull(), F.struct(*parts))


def _missing_field_value(field: ice.NestedField, where: str) -> Column:
    """The value of a field that a struct does not have."""
    if field.write_default is not None:
        return literal(field.write_default, field)
    if field.required:
        raise UserError(f"Missing field {field.name!r} in the struct assigned to {where!r}: it is required.")
    return F.lit(None).cast(spark_type(field.field_type))


def _match_fields_by_name(names: list[str], kind: ice.StructType, where: str) -> dict[int, int]:
    exact = {f.name: f.field_id for f in kind.fields}
    folded = {f.name.lower(): f.field_id for f in kind.fields}
    found: dict[int, int] = {}
    for at, name in enumerate(names):
        field_id = exact.get(name, folded.get(name.lower()))
        if field_id is None:
            raise UserError(f"Struct assigned to {where!r} has a field {name!r} that the column lacks.")
        found[field_id] = at
    return found


def _assign_list(value: Column, source: sp.ArrayType, target: sp.ArrayType, kind: ice.ListType, where: str) -> Column:
    inner, wanted = source.elementType, target.elementType
    if _is_same_type(inner, wanted):
        return value
    return F.transform(value, lambda each: _assign_value(each, inner, wanted, kind.element_type, f"{where}.element"))


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


def _uuid(value: Column, where: str) -> Column:
    """Bytes as the text that Spark is shown UUIDs in."""
    text = F.regexp_replace(F.lower(F.hex(value)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
    is_whole = value.isNull() | (F.length(value) == 16)
    return F.when(is_whole, text).otherwise(_raise_misfit(where, "uuid").cast("string"))


def _raise_misfit(where: str, kind: str) -> Column:
    return F.raise_error(F.lit(f"A value does not fit column {where} of type {kind}: it would be changed"))


def _checked_cast(value: Column, source: sp.DataType, target: sp.DataType, where: str) -> Column:
    """A conversion that stops at a value it would change."""
    if not _is_assignable(source, target):
        raise UserError(
            f"Cannot store {source.simpleString()} in column {where!r} of type {target.simpleString()}. "
            "Cast it in the expression."
        )
    made = value.cast(target)
    if _is_widening(source, target):
        return made
    tried = value.try_cast(target)
    if isinstance(source, sp.DoubleType | sp.FloatType) and isinstance(target, sp.FloatType):
        return tried  # floats are approximate by nature
    # Decimals are rounded to the scale of the column, as in all of SQL; what does not fit its precision is refused.
    rounds = isinstance(target, sp.DecimalType)
    is_kept = tried.isNotNull() if rounds else tried.try_cast(source).eqNullSafe(value)
    return F.when(value.isNull() | is_kept, tried).otherwise(_raise_misfit(where, target.simpleString()).cast(target))


def _is_assignable(source: sp.DataType, target: sp.DataType) -> bool:
    if isinstance(source, _NUMBER_TYPES) and isinstance(target, _NUMBER_TYPES):
        return True
    if isinstance(source, _TIME_TYPES) and isinstance(target, _TIME_TYPES):
        return True
    if isinstance(target, sp.StringType):
        return isinstance(source, sp.AtomicType) and not isinstance(source, sp.BinaryType)
    return isinstance(source, sp.StringType) and isinstance(target, sp.StringType)


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
    """Whether two types hold the same values; names of struct fields count, metadata and nullability do not."""
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
    """The columns of a DataFrame that belong to a schema, in its order. What does not fit the schema is refused.

    Columns named `beside` go along as they are.
    """
    given = [f for f in df.schema.fields if f.name not in extra_columns]
    found = match_columns_by_name([f.name for f in given], schema.fields)
    columns = []
    for field in schema.fields:
        if field.field_id not in found:
            continue
        source = given[found[field.field_id]]
        column = F.col(f"`{source.name.replace('`', '``')}`")
        wanted = _assigned_type(source.dataType, field.field_type)
        columns.append((column if wanted == source.dataType else column.cast(wanted)).alias(field.name))
    check_assignable(_arrow_schema(df.select(*columns).schema), schema)
    return df.select(*columns, *extra_columns)


def _arrow_schema(schema: sp.StructType) -> object:
    try:
        return to_arrow_schema(schema)
    except PySparkException as e:
        raise UserError(f"Cannot store columns of type {schema.simpleString()}: {e}") from e


def _assigned_type(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    """The type a column takes in Spark, down to the last field of it."""
    match source, target:
        case sp.ArrayType(), ice.ListType():
            return sp.ArrayType(_assigned_type(source.elementType, target.element_type), source.containsNull)
        case sp.MapType(), ice.MapType():
            key = _assigned_type(source.keyType, target.key_type)
            value = _assigned_type(source.valueType, target.value_type)
            return sp.MapType(key, value, source.valueContainsNull)
        case sp.StructType(), ice.StructType():
            return _assigned_struct_type(source, target)
    return _assigned_value_type(source, target)


def _assigned_value_type(source: sp.DataType, target: ice.IcebergType) -> sp.DataType:
    """Timestamps have a time zone where the table's have one, and text is text."""
    if isinstance(source, sp.TimestampType) and isinstance(target, _LOCAL):
        return sp.TimestampNTZType()
    if isinstance(source, sp.TimestampNTZType | sp.DateType) and isinstance(target, _INSTANT):
        return sp.TimestampType()
    if isinstance(source, sp.IntegralType | sp.BooleanType | sp.DateType) and isinstance(target, ice.StringType):
        return sp.StringType()
    return source


def _assigned_struct_type(source: sp.StructType, target: ice.StructType) -> sp.StructType:
    wanted = {f.name.lower(): f.field_type for f in target.fields}
    fields = [
        sp.StructField(f.name, _assigned_type(f.dataType, wanted[f.name.lower()]), f.nullable, f.metadata)
        if f.name.lower() in wanted
        else f
        for f in source.fields
    ]
    return sp.StructType(fields)

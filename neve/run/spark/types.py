"""Convert Iceberg schemas to Spark schemas, and back.

| Iceberg          | Spark                                                    |
|------------------|----------------------------------------------------------|
| uuid             | string                                                   |
| fixed(n)         | binary                                                   |
| time             | TIME(6), only through Arrow: Spark's file readers lack it |
| timestamp        | TIMESTAMP_NTZ                                            |
| timestamptz      | TIMESTAMP                                                |
| timestamp(tz)_ns | the same in microseconds, rounded down                   |
| unknown          | void                                                     |
| geometry, geography | binary                                                |
| variant          | VARIANT                                                  |

All fields are nullable in Spark: the writer checks required columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count

from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import types as sp

from neve.errors import UnsupportedFeature
from neve.model.v3_types import GEO_TYPES, VariantType
from neve.run.read.types import UnscaledNanos

FIELD_ID = "parquet.field.id"  # the metadata key from which Spark reads the id of a column

Naming = Callable[[ice.NestedField], str]

_TO_SPARK: dict[type[ice.IcebergType], sp.DataType] = {
    ice.BooleanType: sp.BooleanType(),
    ice.IntegerType: sp.IntegerType(),
    ice.LongType: sp.LongType(),
    ice.FloatType: sp.FloatType(),
    ice.DoubleType: sp.DoubleType(),
    ice.DateType: sp.DateType(),
    ice.TimeType: sp.TimeType(6),
    ice.TimestampType: sp.TimestampNTZType(),
    ice.TimestamptzType: sp.TimestampType(),
    ice.TimestampNanoType: sp.TimestampNTZType(),
    ice.TimestamptzNanoType: sp.TimestampType(),
    UnscaledNanos: sp.LongType(),
    ice.StringType: sp.StringType(),
    ice.UUIDType: sp.StringType(),
    ice.FixedType: sp.BinaryType(),
    ice.BinaryType: sp.BinaryType(),
    ice.UnknownType: sp.NullType(),
    ice.GeometryType: sp.BinaryType(),
    ice.GeographyType: sp.BinaryType(),
    VariantType: sp.VariantType(),
}

_TO_ICEBERG: dict[type[sp.DataType], ice.IcebergType] = {
    sp.BooleanType: ice.BooleanType(),
    sp.ByteType: ice.IntegerType(),
    sp.ShortType: ice.IntegerType(),
    sp.IntegerType: ice.IntegerType(),
    sp.LongType: ice.LongType(),
    sp.FloatType: ice.FloatType(),
    sp.DoubleType: ice.DoubleType(),
    sp.DateType: ice.DateType(),
    sp.TimeType: ice.TimeType(),
    sp.TimestampNTZType: ice.TimestampType(),
    sp.TimestampType: ice.TimestamptzType(),
    sp.StringType: ice.StringType(),
    sp.CharType: ice.StringType(),
    sp.VarcharType: ice.StringType(),
    sp.BinaryType: ice.BinaryType(),
    sp.NullType: ice.UnknownType(),
    sp.VariantType: VariantType(),
}


def _own_name(field: ice.NestedField) -> str:
    return field.name


def spark_schema(schema: Schema, naming: Naming = _own_name) -> sp.StructType:
    """Convert a schema for Spark, with the field ids that its Parquet reader uses."""
    return sp.StructType([spark_field(f, naming) for f in schema.fields])


def spark_field(field: ice.NestedField, naming: Naming = _own_name) -> sp.StructField:
    """Convert a column for Spark, with its field id."""
    return sp.StructField(naming(field), spark_type(field.field_type, naming), True, {FIELD_ID: field.field_id})


def spark_fields(fields: Iterable[ice.NestedField]) -> list[sp.StructField]:
    """Convert columns for Spark; those of types that Spark does not have are left out."""
    converted = []
    for field in fields:
        with suppress(UnsupportedFeature):
            converted.append(spark_field(field))
    return converted


def spark_type(kind: ice.IcebergType, naming: Naming = _own_name) -> sp.DataType:
    """Return the Spark type of an Iceberg type."""
    match kind:
        case ice.StructType():
            return sp.StructType([spark_field(f, naming) for f in kind.fields])
        case ice.ListType():
            return sp.ArrayType(spark_type(kind.element_type, naming), True)
        case ice.MapType():
            return sp.MapType(spark_type(kind.key_type, naming), spark_type(kind.value_type, naming), True)
        case ice.DecimalType():
            return sp.DecimalType(kind.precision, kind.scale)
    if type(kind) not in _TO_SPARK:
        raise UnsupportedFeature(f"Spark has no type for {kind}. Leave the column out of the scan.")
    return _TO_SPARK[type(kind)]


def contains_variant(kind: sp.DataType) -> bool:
    """Check whether a type is a variant, or has one inside."""
    return any(isinstance(part, sp.VariantType) for part in _parts(kind))


def has_required_fields(kind: sp.DataType) -> bool:
    """Check whether a type has a struct inside whose fields may not be null, as those of variants may not."""
    structs = (part for part in _parts(kind) if isinstance(part, sp.StructType))
    return contains_variant(kind) or any(not field.nullable for struct in structs for field in struct)


def _parts(kind: sp.DataType) -> Iterator[sp.DataType]:
    """Yield a type and all types inside it."""
    yield kind
    match kind:
        case sp.StructType():
            children = [f.dataType for f in kind]
        case sp.ArrayType():
            children = [kind.elementType]
        case sp.MapType():
            children = [kind.keyType, kind.valueType]
        case _:
            children = []
    for child in children:
        yield from _parts(child)


def spark_type_name(field: ice.NestedField) -> str:
    """Return Spark's name of a type; if Spark has no such type, Iceberg's name."""
    if isinstance(field.field_type, GEO_TYPES):
        return str(field.field_type)
    try:
        return spark_field(field).dataType.simpleString()
    except UnsupportedFeature:
        return str(field.field_type)


def iceberg_schema(schema: sp.StructType) -> Schema:
    """Convert a Spark schema to an Iceberg schema with new field ids; columns are numbered before nested fields."""
    return Schema(*_iceberg_fields(schema, count(1)))


def _iceberg_fields(struct: sp.StructType, ids: Iterator[int]) -> list[ice.NestedField]:
    numbered = [(next(ids), f) for f in struct.fields]
    return [
        ice.NestedField(
            i, f.name, _iceberg_type(f.dataType, ids, f.name), required=not f.nullable, doc=f.metadata.get("comment")
        )
        for i, f in numbered
    ]


def _iceberg_type(kind: sp.DataType, ids: Iterator[int], column: str) -> ice.IcebergType:
    match kind:
        case sp.StructType():
            return ice.StructType(*_iceberg_fields(kind, ids))
        case sp.ArrayType():
            element = next(ids)
            return ice.ListType(element, _iceberg_type(kind.elementType, ids, column), not kind.containsNull)
        case sp.MapType():
            key, value = next(ids), next(ids)
            key_type = _iceberg_type(kind.keyType, ids, column)
            value_type = _iceberg_type(kind.valueType, ids, column)
            return ice.MapType(key, key_type, value, value_type, not kind.valueContainsNull)
        case sp.DecimalType():
            return ice.DecimalType(kind.precision, kind.scale)
    if type(kind) not in _TO_ICEBERG:
        raise UnsupportedFeature(
            f"Iceberg has no type for {kind.simpleString()} in column {column!r}. Cast the column first."
        )
    return _TO_ICEBERG[type(kind)]

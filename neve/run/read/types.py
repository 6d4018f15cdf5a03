"""Which Arrow type carries an Iceberg type: exactly, or as Spark takes it.

| Iceberg            | exact             | Spark                                             |
|--------------------|-------------------|---------------------------------------------------|
| uuid               | fixed binary (16) | string, as every Iceberg engine on Spark shows it |
| fixed(n)           | fixed binary (n)  | binary                                            |
| time               | time64 us         | time64 ns, which Spark 4.1 reads as TIME          |
| timestamp(tz)_ns   | timestamp ns      | timestamp us, rounded down                        |

All other types are the same in both. Variant, geometry and geography are refused.
"""

from __future__ import annotations

from enum import Enum

import pyarrow as pa
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
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from neve.errors import UnsupportedFeature


class ArrowFlavor(Enum):
    """Who the Arrow data is for."""

    EXACT = "exact"
    SPARK = "spark"


_EXACT_TYPES: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.binary(16),
    UnknownType: pa.null(),
}

_SPARK_TYPES: dict[type[IcebergType], pa.DataType] = {
    TimeType: pa.time64("ns"),
    TimestampNanoType: pa.timestamp("us"),
    TimestamptzNanoType: pa.timestamp("us", "UTC"),
    UUIDType: pa.string(),
    FixedType: pa.binary(),
}


def arrow_schema(schema: Schema, flavor: ArrowFlavor = ArrowFlavor.EXACT) -> pa.Schema:
    """The Arrow schema in which rows of an Iceberg schema are delivered."""
    return pa.schema([arrow_field(f, flavor) for f in schema.fields])


def arrow_field(field: NestedField, flavor: ArrowFlavor) -> pa.Field:
    """The Arrow field of an Iceberg field; an `unknown` one is null even where it says required."""
    nullable = not field.required or isinstance(field.field_type, UnknownType)
    return pa.field(field.name, arrow_type(field.field_type, flavor), nullable)


def first_column_rounded_by_spark(schema: Schema) -> NestedField | None:
    """A column with values that Spark would round on their way through it, if there is one."""
    return next((f for f in schema.fields if is_rounded_by_spark(f.field_type)), None)


def is_rounded_by_spark(kind: IcebergType) -> bool:
    """Whether values of a type, or some inside of them, are finer than Spark's."""
    match kind:
        case StructType():
            return any(is_rounded_by_spark(f.field_type) for f in kind.fields)
        case ListType():
            return is_rounded_by_spark(kind.element_type)
        case MapType():
            return is_rounded_by_spark(kind.key_type) or is_rounded_by_spark(kind.value_type)
        case _:
            return isinstance(kind, TimestampNanoType | TimestamptzNanoType)


def arrow_type(iceberg_type: IcebergType, flavor: ArrowFlavor = ArrowFlavor.EXACT) -> pa.DataType:
    """The Arrow type that carries an Iceberg type."""
    match iceberg_type:
        case StructType():
            return pa.struct([arrow_field(f, flavor) for f in iceberg_type.fields])
        case ListType():
            return pa.list_(arrow_field(iceberg_type.element_field, flavor).with_name("element"))
        case MapType():
            key, value = arrow_field(iceberg_type.key_field, flavor), arrow_field(iceberg_type.value_field, flavor)
            return pa.map_(key.with_nullable(False), value)
        case _:
            return _primitive_arrow_type(iceberg_type, flavor)


def _primitive_arrow_type(iceberg_type: IcebergType, flavor: ArrowFlavor) -> pa.DataType:
    kind = type(iceberg_type)
    if flavor is ArrowFlavor.SPARK and kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    if isinstance(iceberg_type, DecimalType):
        return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
    if isinstance(iceberg_type, FixedType):
        return pa.binary(len(iceberg_type))
    if kind not in _EXACT_TYPES:
        raise UnsupportedFeature(f"Cannot read columns of type {iceberg_type}. Select the other columns by name.")
    return _EXACT_TYPES[kind]

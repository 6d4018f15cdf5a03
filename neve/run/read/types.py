"""Arrow types for Iceberg types: exact, or as Spark accepts them.

| Iceberg            | exact             | Spark                                             |
|--------------------|-------------------|---------------------------------------------------|
| uuid               | fixed binary (16) | string, as every Iceberg engine on Spark shows it |
| fixed(n)           | fixed binary (n)  | binary                                            |
| time               | time64 us         | time64 ns, which Spark 4.1 reads as TIME          |
| timestamp(tz)_ns   | timestamp ns      | timestamp us, rounded down                        |

All other types are the same in both. Geometry and geography are binary (WKB); variants are structs of binaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from neve.errors import UnsupportedFeature
from neve.model.v3_types import VariantType
from neve.model.values import NANOS_TYPES
from neve.predicate.nanoseconds import nanos_columns, unscaled_name


class UnscaledNanos(ice.TimestampNanoType):
    """A time as the number of nanoseconds since 1970, the form in which Spark can hold it without rounding."""


class ArrowFlavor(Enum):
    """The consumer of the Arrow data: Spark, or a caller that wants exact types."""

    EXACT = "exact"
    SPARK = "spark"


# In the order, and with the mark, by which Spark knows variants. Arrow's own variants are the same without the mark.
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)

_EXACT_TYPES: dict[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", "UTC"),
    ice.TimestampNanoType: pa.timestamp("ns"),
    ice.TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    UnscaledNanos: pa.timestamp("ns"),
    ice.StringType: pa.string(),
    ice.BinaryType: pa.binary(),
    ice.UUIDType: pa.binary(16),
    ice.UnknownType: pa.null(),
    ice.GeometryType: pa.binary(),
    ice.GeographyType: pa.binary(),
    VariantType: VARIANT,
}

_SPARK_TYPES: dict[type[ice.IcebergType], pa.DataType] = {
    ice.TimeType: pa.time64("ns"),
    ice.TimestampNanoType: pa.timestamp("us"),
    ice.TimestamptzNanoType: pa.timestamp("us", "UTC"),
    UnscaledNanos: pa.int64(),
    ice.UUIDType: pa.string(),
    ice.FixedType: pa.binary(),
}


def arrow_schema(schema: Schema, flavor: ArrowFlavor = ArrowFlavor.EXACT) -> pa.Schema:
    """Return the Arrow schema for rows of an Iceberg schema."""
    return pa.schema([arrow_field(f, flavor) for f in schema.fields])


def arrow_field(field: ice.NestedField, flavor: ArrowFlavor) -> pa.Field:
    """Return the Arrow field of an Iceberg field; a field of type `unknown` is nullable even if it is required."""
    nullable = not field.required or isinstance(field.field_type, ice.UnknownType)
    return pa.field(field.name, arrow_type(field.field_type, flavor), nullable)


def unscaled_columns(schema: Schema) -> list[ice.NestedField]:
    """Return a column of numbers for each column of nanoseconds; it has the same id and a name of its own."""
    return [
        f.model_copy(update={"name": unscaled_name(f.field_id)}) for f in map(unscaled_column, nanos_columns(schema))
    ]


def unscaled_column(field: ice.NestedField) -> ice.NestedField:
    """Return the column that has the same times as numbers, or structs with such numbers; its id is the same."""
    return field.model_copy(update={"field_type": _unscaled_type(field.field_type), "required": False})


def _unscaled_type(kind: ice.IcebergType) -> ice.IcebergType:
    if isinstance(kind, ice.StructType):
        return ice.StructType(*map(unscaled_column, kind.fields))
    return UnscaledNanos() if isinstance(kind, NANOS_TYPES) else kind


def first_column_rounded_by_spark(schema: Schema) -> ice.NestedField | None:
    """Return the first column whose values Spark would round, if there is one."""
    return next((f for f in schema.fields if is_rounded_by_spark(f.field_type)), None)


def is_rounded_by_spark(kind: ice.IcebergType) -> bool:
    """Check whether a type is, or contains, a type of finer precision than Spark has."""
    return any(isinstance(leaf, ice.TimestampNanoType | ice.TimestamptzNanoType) for leaf in leaf_types(kind))


def leaf_types(kind: ice.IcebergType) -> Iterator[ice.IcebergType]:
    """Yield the primitive types in a type, at any depth."""
    match kind:
        case ice.StructType():
            for field in kind.fields:
                yield from leaf_types(field.field_type)
        case ice.ListType():
            yield from leaf_types(kind.element_type)
        case ice.MapType():
            yield from leaf_types(kind.key_type)
            yield from leaf_types(kind.value_type)
        case _:
            yield kind


@lru_cache(4096)  # a scan of many files asks for the same types for each
def arrow_type(iceberg_type: ice.IcebergType, flavor: ArrowFlavor = ArrowFlavor.EXACT) -> pa.DataType:
    """Return the Arrow type of an Iceberg type."""
    match iceberg_type:
        case ice.StructType():
            return pa.struct([arrow_field(f, flavor) for f in iceberg_type.fields])
        case ice.ListType():
            return pa.list_(arrow_field(iceberg_type.element_field, flavor).with_name("element"))
        case ice.MapType():
            key, value = arrow_field(iceberg_type.key_field, flavor), arrow_field(iceberg_type.value_field, flavor)
            return pa.map_(key.with_nullable(False), value)
        case _:
            return _primitive_arrow_type(iceberg_type, flavor)


def _primitive_arrow_type(iceberg_type: ice.IcebergType, flavor: ArrowFlavor) -> pa.DataType:
    kind = type(iceberg_type)
    if flavor is ArrowFlavor.SPARK and kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    if isinstance(iceberg_type, ice.DecimalType):
        return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
    if isinstance(iceberg_type, ice.FixedType):
        return pa.binary(len(iceberg_type))
    if kind not in _EXACT_TYPES:
        raise UnsupportedFeature(f"Cannot read columns of type {iceberg_type}: select the other columns.")
    return _EXACT_TYPES[kind]

"""Iceberg schemas as Spark schemas, and back."""

from __future__ import annotations

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import types as sp

from neve.errors import UnsupportedFeature
from neve.run.spark.types import iceberg_schema, spark_schema, spark_type


def test_every_struct_field_carries_its_id_for_the_parquet_reader() -> None:
    inner = ice.StructType(ice.NestedField(5, "x", ice.LongType(), required=True))
    schema = Schema(
        ice.NestedField(1, "s", inner, required=True),
        ice.NestedField(2, "l", ice.ListType(3, inner, element_required=True)),
        ice.NestedField(4, "m", ice.MapType(6, ice.StringType(), 7, inner)),
    )
    found = spark_schema(schema)
    struct = sp.StructType([sp.StructField("x", sp.LongType(), True, {"parquet.field.id": 5})])
    assert [f.dataType for f in found] == [struct, sp.ArrayType(struct), sp.MapType(sp.StringType(), struct)]
    assert [f.metadata for f in found] == [{"parquet.field.id": i} for i in (1, 2, 4)]
    assert all(f.nullable for f in found)


@pytest.mark.parametrize(
    ("iceberg", "spark"),
    [
        (ice.TimestampType(), "timestamp_ntz"),
        (ice.TimestamptzType(), "timestamp"),
        (ice.TimestamptzNanoType(), "timestamp"),
        (ice.TimeType(), "time(6)"),
        (ice.UUIDType(), "string"),
        (ice.FixedType(4), "binary"),
        (ice.DecimalType(20, 3), "decimal(20,3)"),
        (ice.UnknownType(), "void"),
    ],
)
def test_types_without_a_twin_have_a_carrier(iceberg: ice.IcebergType, spark: str) -> None:
    assert spark_type(iceberg).simpleString() == spark


def test_a_spark_schema_becomes_an_iceberg_schema_with_ids_of_its_own() -> None:
    ddl = sp.StructType(
        [
            sp.StructField("id", sp.ShortType(), False),
            sp.StructField("s", sp.StructType([sp.StructField("t", sp.TimestampNTZType())])),
            sp.StructField("l", sp.ArrayType(sp.VarcharType(3), containsNull=False)),
            sp.StructField("m", sp.MapType(sp.StringType(), sp.DecimalType(5, 2)), True, {"comment": "prices"}),
        ]
    )
    struct = ice.StructType(ice.NestedField(5, "t", ice.TimestampType()))
    assert iceberg_schema(ddl) == Schema(
        ice.NestedField(1, "id", ice.IntegerType(), required=True),
        ice.NestedField(2, "s", struct),
        ice.NestedField(3, "l", ice.ListType(6, ice.StringType(), element_required=True)),
        ice.NestedField(
            4, "m", ice.MapType(7, ice.StringType(), 8, ice.DecimalType(5, 2), value_required=False), doc="prices"
        ),
    )


def test_types_iceberg_lacks_are_refused_by_column() -> None:
    ddl = sp.StructType([sp.StructField("i", sp.StructType([sp.StructField("d", sp.DayTimeIntervalType())]))])
    with pytest.raises(UnsupportedFeature, match="interval day to second in column 'd'"):
        iceberg_schema(ddl)

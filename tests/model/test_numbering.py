"""Field ids of new tables."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

import neve
from neve.model.new_table import with_fresh_ids

NESTED = Schema(
    NestedField(7, "id", LongType(), required=True),
    NestedField(9, "at", StructType(NestedField(20, "x", LongType(), required=True), NestedField(21, "y", LongType()))),
    NestedField(11, "tags", ListType(30, StructType(NestedField(31, "t", StringType())), element_required=True)),
    NestedField(12, "m", MapType(40, StringType(), 41, ListType(42, LongType()), value_required=False)),
    identifier_field_ids=[7],
    schema_id=5,
)


def test_ids_are_those_pyiceberg_gives():
    assert with_fresh_ids(NESTED) == assign_fresh_schema_ids(NESTED)
    assert with_fresh_ids(NESTED).identifier_field_ids == [1]


def test_defaults_survive_the_creation_of_a_table(tmp_path):
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "n", IntegerType(), required=True, initial_default=3, write_default=7),
    )
    table = neve.connect(tmp_path).create_table("db.t", schema, format_version=3)
    kept = table.schema.find_field("n")
    assert (kept.initial_default, kept.write_default) == (3, 7)
    table.append(pa.table({"id": [1]}))
    assert table.scan().to_arrow(engine="arrow").to_pylist() == [{"id": 1, "n": 7}]

"""Typed statistics of every kind of column: there and back, over a leaf, and after the column has changed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.io.parquet_by_field_id import open_id_table
from neve.model.partition import Specs
from neve.tree.entries import EntryTable, Status
from neve.tree.v4 import statistics
from neve.tree.v4.commit_rows import rows_from_entries
from neve.tree.v4.rows import encode_rows, read_rows

KINDS = {
    BooleanType(): (False, True),
    IntegerType(): (-5, 7),
    LongType(): (-(1 << 40), 1 << 40),
    FloatType(): (-1.5, 2.5),
    DoubleType(): (-0.0, 1e300),
    DateType(): (0, 20_000),
    TimeType(): (1, 86_399_999_999),
    TimestampType(): (-1, 1_700_000_000_000_000),
    TimestamptzType(): (-1, 1_700_000_000_000_000),
    StringType(): ("", "žluť"),
    UUIDType(): (UUID(int=1), UUID(int=2**127)),
    FixedType(3): (b"\0\1\2", b"\xff\0\0"),
    BinaryType(): (b"", b"\xff\xff"),
    DecimalType(9, 2): (Decimal("-1.25"), Decimal("99.99")),
    DecimalType(38, 10): (Decimal("-12345678901234567890.5000000000"), Decimal("0.0000000001")),
}
MAPS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def specs_of(*fields: NestedField) -> Specs:
    return Specs({0: PartitionSpec(spec_id=0)}, 0, (Schema(*fields),))


def files(specs: Specs, *columns: dict[str, list]) -> EntryTable:
    """One file for each dictionary of lists."""
    made = {name: [c.get(name) for c in columns] for name in MAPS}
    plain = {"status": int(Status.ADDED), "content": 0, "file_format": "PARQUET", "spec_id": 0, "record_count": 10}
    made |= {"file_path": [f"file:/t/data/{i}" for i in range(len(columns))]}
    return EntryTable.from_columns({**plain, **made, "file_size_in_bytes": 1}, specs, len(columns), MAPS)


def there_and_back(entries: EntryTable, specs: Specs) -> tuple[pa.Table, dict[str, list]]:
    rows = rows_from_entries(entries, specs, "file:/t")
    table = open_id_table(encode_rows(rows, specs, is_root=False, key_value_metadata={}), "x")
    found = read_rows(table, specs, ("location",), metrics=tuple(statistics.METRICS))
    columns = {name: found[name].combine_chunks() for name in found.schema.names if name.startswith("s")}
    maps = statistics.as_maps(columns, specs.schemas[0], found.num_rows, MAPS)
    return found, {name: values.to_pylist() for name, values in maps.items()}


def pair(field_id: int, value: object) -> dict[str, object]:
    return {"key": field_id, "value": value}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bounds_of_every_type_keep_every_byte(kind):
    specs = specs_of(NestedField(7, "c", kind, required=False))
    low, high = (to_bytes(kind, v) for v in KINDS[kind])
    one = {"value_counts": [pair(7, 10)], "null_value_counts": [pair(7, 1)]}
    one |= {"lower_bounds": [pair(7, low)], "upper_bounds": [pair(7, high)]}
    nulls = {"value_counts": [pair(7, 5)], "null_value_counts": [pair(7, 5)]}
    rows, maps = there_and_back(files(specs, one, nulls, {}), specs)
    assert maps["lower_bounds"] == [[pair(7, low)], None, None]
    assert maps["upper_bounds"] == [[pair(7, high)], None, None]
    assert maps["value_counts"] == [[pair(7, 10)], [pair(7, 5)], None]
    assert rows["s7.3"].to_pylist()[0] is False, "nothing tells whether they are exact"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_leaf_has_the_outermost_bounds_of_its_files(kind):
    specs = specs_of(NestedField(7, "c", kind, required=False))
    low, high = (to_bytes(kind, v) for v in KINDS[kind])
    counts = {"value_counts": [pair(7, 10)], "null_value_counts": [pair(7, 1)], "nan_value_counts": [pair(7, 0)]}
    made = [
        {**counts, "lower_bounds": [pair(7, low)], "upper_bounds": [pair(7, low)]},
        {**counts, "lower_bounds": [pair(7, high)], "upper_bounds": [pair(7, high)]},
    ]
    rows, _ = there_and_back(files(specs, *made), specs)
    columns = {name: rows[name] for name in rows.schema.names if name.startswith("s")}
    found = statistics.aggregate_metrics(columns, specs.schemas[0])
    values = [columns["s7.1"][0].as_py(), columns["s7.1"][1].as_py()]
    assert [found["s7.1"].as_py(), found["s7.2"].as_py()] == values
    assert (found["s7.4"].as_py(), found["s7.5"].as_py()) == (20, 2)


def test_a_file_of_nulls_does_not_cost_a_leaf_its_bounds_and_an_unknown_one_does():
    specs = specs_of(NestedField(7, "c", LongType(), required=False))
    known = {"value_counts": [pair(7, 10)], "null_value_counts": [pair(7, 0)]}
    known |= {n: [pair(7, to_bytes(LongType(), 5))] for n in ("lower_bounds", "upper_bounds")}
    nulls = {"value_counts": [pair(7, 5)], "null_value_counts": [pair(7, 5)]}

    def over(*made):
        rows, _ = there_and_back(files(specs, *made), specs)
        return statistics.aggregate_metrics(
            {n: rows[n] for n in rows.schema.names if n.startswith("s")}, specs.schemas[0]
        )

    assert over(known, nulls)["s7.1"].as_py() == 5
    assert "s7.1" not in over(known, {})
    assert "s7.4" not in over(known, {}), "nor does anyone know how many values there are"


def test_a_promoted_column_is_widened_and_a_dropped_one_left_out():
    before = specs_of(
        NestedField(7, "c", IntegerType(), required=False), NestedField(8, "d", LongType(), required=False)
    )
    entries = files(before, {"lower_bounds": [pair(7, to_bytes(IntegerType(), -3)), pair(8, to_bytes(LongType(), 1))]})
    rows = rows_from_entries(entries, before, "file:/t")
    table = open_id_table(encode_rows(rows, before, is_root=False, key_value_metadata={}), "x")
    now = specs_of(NestedField(7, "c", LongType(), required=False), NestedField(9, "e", LongType(), required=False))
    found = read_rows(table, now, (), metrics=tuple(statistics.METRICS), partitions=False)
    assert found["s7.1"].to_pylist() == [-3]
    assert found["s7.1"].type == pa.int64()
    assert {n for n in found.schema.names if n.startswith("s")} == {"s7.1", "s7.3"}


def test_columns_in_structs_have_statistics_and_those_in_lists_have_none():
    inner = StructType(NestedField(3, "x", LongType(), required=False))
    items = ListType(5, LongType(), element_required=False)
    schema = Schema(NestedField(1, "s", inner, required=False), NestedField(4, "l", items, required=False))
    assert {i: f.name for i, f in statistics.columns_with_statistics(schema).items()} == {3: "s_x"}


def test_ids_are_those_of_the_format():
    assert statistics.statistics_id(1) == 10_200
    specs = specs_of(NestedField(1, "c", DateType(), required=False))
    rows = rows_from_entries(files(specs, {"lower_bounds": [pair(1, to_bytes(DateType(), 3))]}), specs, "file:/t")
    table = open_id_table(encode_rows(rows, specs, is_root=False, key_value_metadata={}), "x")
    assert table.has((146,), (146, 10_200), (146, 10_200, 10_201))
    assert table.read([(146, 10_200, 10_201)])[146, 10_200, 10_201].to_pylist() == [dt.date(1970, 1, 4)]

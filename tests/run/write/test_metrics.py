"""Column statistics: what Python counts itself is the oracle."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
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
    TimeType,
    UUIDType,
)

import neve
from neve.model.properties import TableProperties
from neve.run.write.file_schema import arrow_file_schema, with_lineage_columns
from neve.run.write.metrics import RowObservations, file_metrics, leaf_columns
from neve.run.write.parquet_options import parquet_options
from neve.run.write.store_assignment import assign_rows


def measured(
    schema: Schema, groups: list[pa.Table], order: SortOrder = UNSORTED_SORT_ORDER, **properties: str
) -> dict[str, Any]:
    """The metrics of a file with one row group per table."""
    typed = TableProperties({k.replace("__", "."): v for k, v in properties.items()})
    leaves, kinds, observed, sink = (
        leaf_columns(schema, typed, order),
        arrow_file_schema(schema),
        RowObservations(),
        io.BytesIO(),
    )
    with pq.ParquetWriter(sink, kinds, **parquet_options(typed)) as writer:
        for at, group in enumerate(groups):
            batches = [assign_rows(b, schema, kinds) for b in group.combine_chunks().to_batches()]
            rows = pa.Table.from_batches(batches, kinds)
            observed.observe_rows(rows, leaves, at)
            writer.write_table(rows)
    found = file_metrics(writer.writer.metadata, leaves, observed)
    return {n: {p["key"]: p["value"] for p in v} if n != "split_offsets" else v for n, v in found.items()}


def one_column(kind: IcebergType, *groups: list[Any], mode: str = "full") -> dict[str, Any]:
    schema = Schema(NestedField(1, "v", kind))
    arrow = arrow_file_schema(schema).field("v").type
    tables = [pa.table({"v": pa.array(values, getattr(arrow, "storage_type", arrow))}) for values in groups]
    return measured(schema, tables, write__metadata__metrics__default=mode)


PLAIN: dict[str, tuple[IcebergType, st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "boolean": (BooleanType(), st.booleans(), lambda v: v),
    "int": (IntegerType(), st.integers(-(2**31), 2**31 - 1), lambda v: v),
    "long": (LongType(), st.integers(-(2**63), 2**63 - 1), lambda v: v),
    "date": (DateType(), st.integers(-(2**31), 2**31 - 1), lambda v: v),
    "time": (TimeType(), st.integers(0, 86_399_999_999), lambda v: v),
    "timestamp": (TimestampType(), st.integers(-(2**63), 2**63 - 1), lambda v: v),
    "timestamp_ns": (TimestampNanoType(), st.integers(-(2**63), 2**63 - 1), lambda v: v),
    "small decimal": (DecimalType(9, 2), st.integers(-(10**9) + 1, 10**9 - 1), lambda v: Decimal(v).scaleb(-2)),
    "decimal": (DecimalType(18, 3), st.integers(-(10**18) + 1, 10**18 - 1), lambda v: Decimal(v).scaleb(-3)),
    "wide decimal": (DecimalType(25, 3), st.integers(-(10**25) + 1, 10**25 - 1), lambda v: Decimal(v).scaleb(-3)),
    "string": (StringType(), st.text(max_size=10), lambda v: v),
    "binary": (BinaryType(), st.binary(max_size=10), lambda v: v),
    "fixed": (FixedType(3), st.binary(min_size=3, max_size=3), lambda v: v),
    "uuid": (UUIDType(), st.binary(min_size=16, max_size=16), lambda v: v),
}


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_counts_and_bounds_are_those_of_the_values(name: str, data: st.DataObject):
    kind, values, value_of = PLAIN[name]
    groups = data.draw(st.lists(st.lists(values | st.none(), min_size=1, max_size=8), min_size=1, max_size=3))
    as_given = [[None if v is None else value_of(v) for v in group] for group in groups]
    found = one_column(kind, *as_given)
    everything = [v for group in as_given for v in group]
    present = [v for v in everything if v is not None]
    assert found["value_counts"] == {1: len(everything)}
    assert found["null_value_counts"] == {1: len(everything) - len(present)}
    assert found["nan_value_counts"] == {}
    if not present:
        assert found["lower_bounds"] == found["upper_bounds"] == {}
        return
    comparable: Callable[[Any], Any] = (lambda v: v.encode()) if isinstance(kind, StringType) else (lambda v: v)
    low, high = min(present, key=comparable), max(present, key=comparable)
    assert found["lower_bounds"] == {1: to_bytes(kind, low)}
    assert found["upper_bounds"] == {1: to_bytes(kind, high)}


@pytest.mark.parametrize(("kind", "width"), [(FloatType(), 32), (DoubleType(), 64)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_nan_is_counted_and_never_a_bound(kind: IcebergType, width: int, data: st.DataObject):
    values = st.floats(width=width) | st.none() | st.sampled_from([math.nan, 0.0, -0.0])
    groups = data.draw(st.lists(st.lists(values, min_size=1, max_size=6), min_size=1, max_size=3))
    found = one_column(kind, *groups)
    everything = [v for group in groups for v in group if v is not None]
    numbers = [v for v in everything if not math.isnan(v)]
    assert found["nan_value_counts"] == {1: len(everything) - len(numbers)}
    if not numbers:
        assert found["lower_bounds"] == found["upper_bounds"] == {}
        return
    low, high = from_bytes(kind, found["lower_bounds"][1]), from_bytes(kind, found["upper_bounds"][1])
    assert (low, high) == (min(numbers), max(numbers))
    assert math.copysign(1, low) < 0 or low > 0, "-0.0 comes before 0.0, so a zero below is negative"
    assert math.copysign(1, high) > 0 or high < 0, "and a zero above is positive"


def test_bounds_of_values_too_long_for_a_footer_are_known():
    found = one_column(StringType(), ["b" * 5000, "a" * 5000], ["m", None], mode="truncate(4)")
    assert found["lower_bounds"] == {1: b"aaaa"}
    assert found["upper_bounds"] == {1: b"m"}
    raised = one_column(BinaryType(), [b"b" * 5000, b"a"], mode="truncate(4)")
    assert (raised["lower_bounds"], raised["upper_bounds"]) == ({1: b"a"}, {1: b"bbbc"})


def test_an_upper_bound_that_cannot_be_cut_is_left_out():
    found = one_column(BinaryType(), [b"\xff" * 20, b"a"], mode="truncate(4)")
    assert (found["lower_bounds"], found["upper_bounds"]) == ({1: b"a"}, {})


NESTED = Schema(
    NestedField(1, "s", StructType(NestedField(2, "x", DoubleType()), NestedField(3, "t", StringType()))),
    NestedField(4, "l", ListType(5, StructType(NestedField(6, "element", DoubleType())), False)),
    NestedField(7, "m", MapType(8, StringType(), 9, FloatType(), False)),
)
ROWS = pa.table(
    {
        "s": [{"x": math.nan, "t": "b"}, None, {"x": 2.0, "t": "a"}],
        "l": [[{"element": math.nan}, {"element": None}], None, []],
        "m": pa.array([[("k", math.nan)], None, [("j", 1.0), ("i", None)]], pa.map_(pa.string(), pa.float32())),
    }
)


def test_fields_of_structs_have_bounds_and_what_lists_and_maps_hold_has_counts():
    found = measured(NESTED, [ROWS])
    assert found["lower_bounds"] == {2: to_bytes(DoubleType(), 2.0), 3: b"a"}
    assert found["upper_bounds"] == {2: to_bytes(DoubleType(), 2.0), 3: b"b"}
    assert found["nan_value_counts"] == {2: 1, 6: 1, 9: 1}
    assert set(found["value_counts"]) == {2, 3, 6, 8, 9}
    assert found["null_value_counts"][2] == 1


def test_every_column_has_its_size_even_without_metrics():
    found = measured(NESTED, [ROWS], write__metadata__metrics__default="none")
    assert set(found["column_sizes"]) == {2, 3, 6, 8, 9}
    assert all(size > 0 for size in found["column_sizes"].values())
    assert not found["value_counts"]
    assert not found["nan_value_counts"]


FLAT = Schema(*(NestedField(n, f"c{n}", StringType()) for n in range(1, 5)))
TEXTS = pa.table({f"c{n}": ["x" * 40] for n in range(1, 5)})


def test_modes_decide_column_by_column():
    found = measured(
        FLAT,
        [TEXTS],
        write__metadata__metrics__default="counts",
        write__metadata__metrics__column__c1="none",
        write__metadata__metrics__column__c2="full",
        write__metadata__metrics__column__c3="truncate(2)",
    )
    assert set(found["value_counts"]) == {2, 3, 4}
    assert found["lower_bounds"] == {2: b"x" * 40, 3: b"xx"}
    assert found["upper_bounds"] == {2: b"x" * 40, 3: b"xy"}


def test_the_default_cuts_to_sixteen_characters():
    assert measured(FLAT, [TEXTS])["lower_bounds"][1] == b"x" * 16


def test_a_default_nobody_chose_stops_after_so_many_columns():
    inferred = {"write__metadata__metrics__max-inferred-column-defaults": "2"}
    assert set(measured(FLAT, [TEXTS], **inferred)["lower_bounds"]) == {1, 2}
    chosen = {**inferred, "write__metadata__metrics__default": "truncate(16)"}
    assert set(measured(FLAT, [TEXTS], **chosen)["lower_bounds"]) == {1, 2, 3, 4}
    named = {**inferred, "write__metadata__metrics__column__c4": "counts"}
    assert set(measured(FLAT, [TEXTS], **named)["value_counts"]) == {1, 2, 4}


def test_outer_columns_come_before_inner_ones_where_the_default_stops():
    schema = Schema(NestedField(1, "s", StructType(NestedField(2, "x", LongType()))), NestedField(3, "y", LongType()))
    rows = pa.table({"s": [{"x": 1}], "y": [2]})
    found = measured(schema, [rows], **{"write__metadata__metrics__max-inferred-column-defaults": "1"})
    assert set(found["value_counts"]) == {3}


def sorted_by(source: int, transform: Any) -> SortOrder:
    return SortOrder(SortField(source, transform, SortDirection.ASC, NullOrder.NULLS_FIRST), order_id=1)


def test_columns_rows_are_sorted_by_keep_bounds():
    counts = {"write__metadata__metrics__default": "counts"}
    assert set(measured(FLAT, [TEXTS], sorted_by(2, IdentityTransform()), **counts)["lower_bounds"]) == {2}
    assert not measured(FLAT, [TEXTS], sorted_by(2, BucketTransform(4)), **counts)["lower_bounds"]
    named = {**counts, "write__metadata__metrics__column__c2": "none"}
    assert not measured(FLAT, [TEXTS], sorted_by(2, IdentityTransform()), **named)["lower_bounds"]


def test_lineage_columns_have_no_metrics():
    rows = pa.table({"c1": ["a"], "_row_id": [5], "_last_updated_sequence_number": [6]})
    schema = with_lineage_columns(Schema(NestedField(1, "c1", StringType())))
    assert set(measured(schema, [rows])["column_sizes"]) == {1}


def test_split_offsets_are_the_starts_of_the_row_groups():
    found = one_column(LongType(), [1, 2], [3], [4])
    assert len(found["split_offsets"]) == 3
    assert found["split_offsets"][0] == 4
    assert found["split_offsets"] == sorted(found["split_offsets"])


def test_a_field_whose_name_looks_like_a_path_has_metrics_of_its_own(tmp_path: Path):
    kind = StructType(NestedField(3, ".b", DoubleType()), NestedField(4, "b", DoubleType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", kind))
    table = neve.connect(tmp_path).create_table("db.t", schema)
    table.append([{"id": 1, "s": {".b": math.nan, "b": 1.0}}])
    [file] = table.refresh().inspect.files().to_pylist()
    assert dict(file["nan_value_counts"]) == {3: 1, 4: 0}

"""Columns get a dictionary in a data file where it makes the file smaller, and readers of any kind read both."""

from __future__ import annotations

from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from neve.model.properties import TableProperties
from neve.run.write.data_files import join_small_batches, write_arrow_table
from neve.run.write.metrics import leaf_columns
from neve.run.write.parquet_options import dictionary_columns
from neve.run.write.target import WriteTarget
from tests.run.conftest import Aim

ROWS = 100_000


def values(distinct: int, kind: pa.DataType | None = None) -> pa.Array:
    """Return values of which so many are distinct, in random order."""
    return pa.array(np.random.default_rng(7).integers(0, distinct, ROWS)).cast(kind or pa.int64())


def has_dictionary(target: WriteTarget, rows: pa.Table) -> dict[str, bool]:
    """Write rows; return which columns of the file have a dictionary page in every row group."""
    [path] = write_arrow_table(rows, target)["file_path"].to_pylist()
    footer = pq.read_metadata(path.removeprefix("file://"))
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    paths = [groups[0].column(i).path_in_schema for i in range(footer.num_columns)]
    return {path: all(g.column(i).has_dictionary_page for g in groups) for i, path in enumerate(paths)}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (values(1), True),
        (values(100), True),
        (values(5_000), True),
        (values(10_000_000), False),
        (values(100, pa.string()), True),
        (values(10_000_000, pa.string()), False),
        (values(100).cast(pa.decimal128(22, 2)), True),
        (values(10_000_000).cast(pa.decimal128(22, 2)), False),
        (pa.array(np.arange(ROWS)), False),
        (pa.array(np.arange(ROWS) // 4), False),  # neighbours are equal, as in a table sorted by a key
        (pa.array(np.random.default_rng(7).random(ROWS)), False),
        (pa.array([None] * ROWS, pa.int64()), True),
        (pa.array([1.5, None] * (ROWS // 2)), True),
        (pa.array([True, False] * (ROWS // 2)), False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else str(value.type),
)
def test_a_dictionary_is_used_where_it_saves_space(aim: Aim, column: pa.Array, expected: bool):
    kinds = {pa.string(): StringType(), pa.float64(): DoubleType(), pa.bool_(): BooleanType()}
    decimal = DecimalType(22, 2) if pa.types.is_decimal(column.type) else LongType()
    target = aim(Schema(NestedField(1, "value", kinds.get(column.type, decimal))))
    assert has_dictionary(target, pa.table({"value": column})) == {"value": expected}


def test_nested_columns_are_chosen_by_their_parquet_paths(aim: Aim):
    few, many = values(10), values(10_000_000)
    pair = StructType(NestedField(10, "few", LongType()), NestedField(11, "many", LongType()))
    target = aim(
        Schema(
            NestedField(1, "pair", pair),
            NestedField(2, "list", ListType(12, pair_of(13), element_required=False)),
            NestedField(3, "map", MapType(16, LongType(), 17, LongType(), value_required=False)),
        )
    )
    pairs = pa.StructArray.from_arrays([few, many], names=["few", "many"])
    ends = pa.array(np.arange(ROWS + 1), pa.int32())
    rows = pa.table(
        {"pair": pairs, "list": pa.ListArray.from_arrays(ends, pairs), "map": pa.MapArray.from_arrays(ends, many, few)}
    )
    assert has_dictionary(target, rows) == {
        "pair.few": True,
        "pair.many": False,
        "list.list.element.few": True,
        "list.list.element.many": False,
        "map.key_value.key": False,
        "map.key_value.value": True,
    }


def pair_of(first_id: int) -> StructType:
    return StructType(NestedField(first_id, "few", LongType()), NestedField(first_id + 1, "many", LongType()))


@pytest.mark.parametrize("is_map", [False, True], ids=["list", "map"])
def test_uuids_inside_lists_and_maps_are_written(aim: Aim, is_map: bool):
    """Arrow cannot take them out of their lists, so they are not sampled."""
    key = pa.array([uuid4().bytes for _ in range(3)], pa.uuid())
    ends = pa.array([0, 2, 3], pa.int32())
    if is_map:
        kind: IcebergType = MapType(2, LongType(), 3, UUIDType(), value_required=False)
        column: pa.Array = pa.MapArray.from_arrays(ends, pa.array([1, 2, 3]), key)
    else:
        kind, column = ListType(2, UUIDType(), element_required=False), pa.ListArray.from_arrays(ends, key)
    rows = pa.table({"value": column})
    [path] = write_arrow_table(rows, aim(Schema(NestedField(1, "value", kind))))["file_path"].to_pylist()
    assert pq.read_table(path.removeprefix("file://")).num_rows == 2


def test_a_limit_of_zero_bytes_means_no_dictionary():
    schema = Schema(NestedField(1, "value", LongType()))
    leaves = leaf_columns(schema, TableProperties({}), UNSORTED_SORT_ORDER)
    assert dictionary_columns(pa.table({"value": values(10)}), leaves, 0) == []
    assert dictionary_columns(pa.table({"value": values(10)}), leaves, 1 << 20) == ["value"]


def test_other_readers_read_both_encodings(aim: Aim):
    rows = pa.table({"few": values(10, pa.string()), "many": values(10_000_000)})
    target = aim(Schema(NestedField(1, "few", StringType()), NestedField(2, "many", LongType())))
    [path] = write_arrow_table(rows, target)["file_path"].to_pylist()
    found = duckdb.sql(f"SELECT * FROM read_parquet('{path.removeprefix('file://')}')").arrow()
    assert pa.table(found).to_pydict() == rows.to_pydict()


def test_batches_of_large_rows_are_not_joined_beyond_what_an_array_holds():
    batch = pa.record_batch({"doc": ["x" * 40_000] * 1000})
    joined = list(join_small_batches([batch] * 70, min_rows=65536))
    assert sum(b.num_rows for b in joined) == 70_000
    assert max(b.nbytes for b in joined) < 100 << 20

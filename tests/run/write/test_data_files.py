"""The files a sink leaves: their shape, size and number, and what other readers see in them."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.errors import TableError, UnsupportedFeature, UserError
from neve.run.write import data_files
from neve.run.write.data_files import data_file_entries, write_arrow_table, write_batches, write_stream
from neve.run.write.partitioning import FileNames
from neve.run.write.rolling_writer import WrittenFile
from neve.run.write.target import WriteTarget
from neve.tree.entries import DETAIL, EntryTable, Status

NAMES = FileNames(0, 0, "write")
SIMPLE = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
RICH = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "s", StructType(NestedField(3, "x", DoubleType(), required=True))),
    NestedField(4, "l", ListType(5, StructType(NestedField(6, "y", StringType())), element_required=True)),
    NestedField(7, "m", MapType(8, StringType(), 9, DecimalType(20, 2), value_required=False)),
    NestedField(10, "u", UUIDType()),
    NestedField(11, "f", FixedType(2)),
    NestedField(12, "d", DecimalType(9, 2)),
    NestedField(13, "day", DateType()),
    NestedField(14, "t", TimeType()),
    NestedField(15, "ts", TimestampType()),
    NestedField(16, "tz", TimestamptzType()),
    NestedField(17, "ns", TimestampNanoType()),
)


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": range(start, start + count), "name": [f"n{i % 3}" for i in range(start, start + count)]})


def noise(count: int) -> pa.Table:
    """Rows that do not compress."""
    source = random.Random(1)
    return pa.table({"id": range(count), "name": [source.randbytes(50).hex() for _ in range(count)]})


def paths(table: pa.Table) -> list[str]:
    return list(table["file_path"].to_pylist())


def on_disk(target: WriteTarget) -> set[str]:
    return {str(p) for p in Path(target.location).rglob("*") if p.is_file()}


def field_ids(path: str) -> dict[str, int]:
    """The field id of every column and part of a column, by DuckDB."""
    found = duckdb.sql(f"select name, field_id from parquet_schema('{path}') where field_id is not null").fetchall()
    return dict(found)


def test_every_part_of_every_column_has_its_field_id(aim: Any):
    target = aim(RICH)
    row = {"id": 1, "s": {"x": 1.0}, "l": [{"y": "a"}], "m": [("k", Decimal("1.20"))]}
    table = pa.Table.from_pylist([row], schema=pa.schema([target.arrow_schema.field(n) for n in row]))
    (path,) = paths(write_arrow_table(table, target))
    expected = {"id": 1, "s": 2, "x": 3, "l": 4, "element": 5, "y": 6, "m": 7, "key": 8, "value": 9, "u": 10}
    expected |= {"f": 11, "d": 12, "day": 13, "t": 14, "ts": 15, "tz": 16, "ns": 17}
    assert field_ids(path) == expected


def test_types_are_stored_as_the_format_says(aim: Any):
    (path,) = paths(write_arrow_table(pa.table({"id": [1]}), aim(RICH)))
    found = duckdb.sql(f"select name, type, type_length, logical_type from parquet_schema('{path}')").fetchall()
    stored = {name: (kind, length, logical or "") for name, kind, length, logical in found}
    assert stored["d"][0] == "INT32"
    assert stored["value"][:2] == ("FIXED_LEN_BYTE_ARRAY", "9")
    assert stored["u"][:2] == ("FIXED_LEN_BYTE_ARRAY", "16")
    assert "UUID" in stored["u"][2]
    assert stored["tz"][0] == stored["ns"][0] == "INT64"
    assert "isAdjustedToUTC=1" in stored["tz"][2]
    assert "isAdjustedToUTC=0" in stored["ts"][2]
    assert "NANOS" in stored["ns"][2].upper()
    assert pq.ParquetFile(path).metadata.metadata.keys() == {b"iceberg.schema"}
    assert json.loads(pq.ParquetFile(path).metadata.metadata[b"iceberg.schema"]) == json.loads(RICH.model_dump_json())


def test_duckdb_reads_the_rows(aim: Any):
    row = {
        "id": 7,
        "s": {"x": -0.5},
        "l": [{"y": "é"}, {"y": None}],
        "m": [("k", Decimal("-1.20")), ("n", None)],
        "u": UUID(int=2**127 + 1).bytes,
        "f": b"ab",
        "d": Decimal("-0.01"),
        "tz": datetime(1969, 1, 1, tzinfo=UTC),
    }
    table = pa.table(
        {
            n: pa.array(
                [v, None] if n != "id" else [v, 8], None if n != "m" else pa.map_(pa.string(), pa.decimal128(5, 2))
            )
            for n, v in row.items()
        }
    )
    (path,) = paths(write_arrow_table(table, aim(RICH)))
    found = duckdb.sql(
        f"select id, s.x, l[1].y, m['k'], u, f, d, epoch_us(tz), len(l) from '{path}' order by id"
    ).fetchall()
    assert found[0] == (
        7,
        -0.5,
        "é",
        Decimal("-1.20"),
        UUID(int=2**127 + 1),
        b"ab",
        Decimal("-0.01"),
        -31536000000000,
        2,
    )
    assert found[1] == (8, None, None, None, None, None, None, None, None)


def test_rows_of_files_are_entries_that_are_added(aim: Any):
    target = aim(SIMPLE, [(2, "identity"), (1, "bucket[2]")])
    written = write_arrow_table(rows(20), target)
    assert written.schema == EntryTable.schema(target.specs, DETAIL.names)
    entries = EntryTable(written, target.specs)
    assert set(entries["status"].to_pylist()) == {Status.ADDED}
    assert set(entries["spec_id"].to_pylist()) == {0}
    assert entries["snapshot_id"].null_count == len(entries)
    for row in written.to_pylist():
        metadata = pq.ParquetFile(row["file_path"]).metadata
        assert row["record_count"] == metadata.num_rows
        assert row["file_size_in_bytes"] == Path(row["file_path"]).stat().st_size
        assert f"part_0={row['p1000']}/part_1={row['p1001']}/" in row["file_path"]
        assert set(pq.read_table(row["file_path"])["name"].to_pylist()) == {row["p1000"]}
    assert sum(written["record_count"].to_pylist()) == 20


def test_no_rows_make_no_files(aim: Any):
    target = aim(SIMPLE)
    assert write_arrow_table(rows(0), target).num_rows == 0
    assert not on_disk(target)


@pytest.mark.parametrize("size", [20_000, 100_000, 400_000])
def test_files_are_closed_near_their_target_size(aim: Any, size: int):
    table = noise(10_000)
    written = write_arrow_table(table, aim(SIMPLE, properties={"write.target-file-size-bytes": str(size)}))
    sizes = written["file_size_in_bytes"].to_pylist()
    assert len(sizes) > 1
    assert all(0.7 * size < found < 1.3 * size for found in sizes[1:-1]), sizes
    assert pa.concat_tables(map(pq.read_table, paths(written)))["id"].to_pylist() == table["id"].to_pylist()


def test_the_option_of_a_write_beats_the_property(aim: Any):
    target = aim(SIMPLE, properties={"write.target-file-size-bytes": "1000000000"}, target_file_size=50_000)
    assert write_arrow_table(noise(5_000), target).num_rows > 3


def test_a_file_of_many_batches_has_few_row_groups(aim: Any):
    batches = [b for at in range(100) for b in rows(1000, at * 1000).to_batches()]
    (file,) = write_batches(batches, aim(SIMPLE), NAMES, is_clustered=True)
    assert pq.ParquetFile(file.path).num_row_groups == 1


def test_row_groups_have_the_size_asked_for(aim: Any):
    target = aim(SIMPLE, properties={"write.parquet.row-group-size-bytes": "200000"})
    (path,) = paths(write_arrow_table(noise(10_000), target))
    metadata = pq.ParquetFile(path).metadata
    sizes = [metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)]
    assert len(sizes) > 3
    assert max(sizes) < 250_000


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        ("zstd", "ZSTD"),
        ("gzip", "GZIP"),
        ("snappy", "SNAPPY"),
        ("uncompressed", "UNCOMPRESSED"),
        ("brotli", "BROTLI"),
        ("lz4_raw", "LZ4"),
    ],
)
def test_compression_follows_the_property(aim: Any, codec: str, stored: str):
    (path,) = paths(write_arrow_table(rows(10), aim(SIMPLE, properties={"write.parquet.compression-codec": codec})))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == stored


@pytest.mark.parametrize("properties", [{"codec": "lzo"}, {"codec": "gzip", "level": "44"}])
def test_a_compression_that_does_not_exist_is_refused_before_anything_is_written(aim: Any, properties: dict[str, str]):
    target = aim(SIMPLE, properties={f"write.parquet.compression-{name}": text for name, text in properties.items()})
    with pytest.raises(UserError, match="compression-codec"):
        write_arrow_table(rows(1), target)
    assert not on_disk(target)


def test_the_compression_level_matters(aim: Any):
    table = pa.table({"id": range(3000), "name": [f"{i * 7919 % 3001:x}" * 20 for i in range(3000)]})
    sizes = [
        write_arrow_table(table, aim(SIMPLE, properties={"write.parquet.compression-level": level}))[
            "file_size_in_bytes"
        ][0].as_py()
        for level in ("-5", "19")
    ]
    assert sizes[1] < sizes[0]


def _each(ids: list[int]) -> Iterator[pa.RecordBatch]:
    """Batches too large to be joined, so that each reaches the writers on its own."""
    for n in ids:
        yield pa.RecordBatch.from_pydict({"id": [n] * 70_000})


def partitions(files: list[WrittenFile]) -> list[tuple[object, int]]:
    return sorted((f.partition["p1000"][0].as_py(), f.record_count) for f in files if f.partition is not None)


def test_rows_wait_for_their_partition_while_there_is_memory(aim: Any):
    target = aim(SIMPLE, [(1, "identity")], open_files=1)
    files = write_batches(_each([1, 2, 3, 2, 1]), target, NAMES, is_clustered=False)
    assert partitions(files) == [(1, 140_000), (2, 140_000), (3, 70_000)]


def test_a_partition_that_returns_after_its_file_was_closed_gets_another(aim: Any):
    target = aim(SIMPLE, [(1, "identity")], open_files=2, buffered_bytes=1)
    files = write_batches(_each([1, 2, 3, 2, 1]), target, NAMES, is_clustered=False)
    assert partitions(files) == [(1, 70_000), (1, 70_000), (2, 140_000), (3, 70_000)]


def test_rows_sorted_by_partition_keep_one_file_open(aim: Any):
    target = aim(SIMPLE, [(1, "identity")])
    files = write_batches(_each([1, 1, 2, 3]), target, NAMES, is_clustered=True)
    assert [(f.partition["p1000"][0].as_py(), f.record_count) for f in files] == [
        (1, 140_000),
        (2, 70_000),
        (3, 70_000),
    ]


def test_memory_that_runs_short_is_freed_by_writing_row_groups(aim: Any):
    batches = [b for _ in range(4) for b in noise(70_000).to_batches()]
    target = aim(SIMPLE, [(1, "bucket[4]")])
    free = write_batches(batches, target, NAMES, is_clustered=False)
    assert [len(f.metrics["split_offsets"]) for f in free] == [1] * 4
    short = target.with_options(buffered_bytes=12_000_000)
    files = write_batches(batches, short, FileNames(0, 1, "w"), is_clustered=False)
    assert partitions(files) == partitions(free)
    assert sum(len(f.metrics["split_offsets"]) for f in files) > 4


def test_sorted_tables_get_sorted_files_that_say_so(aim: Any):
    order = SortOrder(
        SortField(2, TruncateTransform(1), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),
        order_id=4,
    )
    table = pa.table({"id": [3, 1, 2, 4, 5], "name": ["ab", "ba", "aa", None, "bb"]})
    written = write_arrow_table(table, aim(SIMPLE, sort_order=order))
    assert written["sort_order_id"].to_pylist() == [4]
    assert pq.read_table(paths(written)[0])["id"].to_pylist() == [1, 5, 2, 3, 4]
    plain = write_arrow_table(table, aim(SIMPLE, sort_order=order, is_sorted=False))
    assert plain["sort_order_id"].to_pylist() == [0]
    assert pq.read_table(paths(plain)[0])["id"].to_pylist() == [3, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("direction", "nulls", "expected"),
    [
        (SortDirection.ASC, NullOrder.NULLS_FIRST, [None, 1.0, 2.0, "nan"]),
        (SortDirection.ASC, NullOrder.NULLS_LAST, [1.0, 2.0, "nan", None]),
        (SortDirection.DESC, NullOrder.NULLS_FIRST, [None, "nan", 2.0, 1.0]),
        (SortDirection.DESC, NullOrder.NULLS_LAST, ["nan", 2.0, 1.0, None]),
    ],
)
def test_nan_is_the_greatest_number_wherever_nulls_go(aim: Any, direction: Any, nulls: Any, expected: list[Any]):
    schema = Schema(NestedField(1, "v", DoubleType()))
    order = SortOrder(SortField(1, IdentityTransform(), direction, nulls), order_id=1)
    written = write_arrow_table(pa.table({"v": [2.0, None, math.nan, 1.0]}), aim(schema, sort_order=order))
    found = pq.read_table(paths(written)[0])["v"].to_pylist()
    assert ["nan" if v is not None and math.isnan(v) else v for v in found] == expected


def test_row_lineage_is_carried_into_the_file(aim: Any):
    target = aim(SIMPLE, format_version=3, row_lineage=True)
    table = (
        rows(2)
        .append_column("_row_id", pa.array([7, None]))
        .append_column("_last_updated_sequence_number", pa.array([3, None]))
    )
    (path,) = paths(write_arrow_table(table, target))
    ids = field_ids(path)
    assert (ids["_row_id"], ids["_last_updated_sequence_number"]) == (2147483540, 2147483539)
    assert pq.read_table(path)["_row_id"].to_pylist() == [7, None]


def test_row_lineage_needs_version_three(aim: Any):
    with pytest.raises(UnsupportedFeature, match="format version 3"):
        write_arrow_table(rows(1), aim(SIMPLE, row_lineage=True))


def test_other_formats_are_refused_before_anything_is_written(aim: Any):
    target = aim(SIMPLE, properties={"write.format.default": "avro"})
    with pytest.raises(UnsupportedFeature, match="Parquet"):
        write_arrow_table(rows(1), target)
    assert not on_disk(target)


def test_a_bad_row_late_in_a_write_leaves_no_file(aim: Any):
    target = aim(SIMPLE, [(1, "identity")], target_file_size=50_000)
    batches = [pa.RecordBatch.from_pydict({"id": [n] * 70_000}) for n in range(3)]
    bad = pa.RecordBatch.from_pydict({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(UserError, match="Null in required column 'id'"):
        write_batches([*batches, bad], target, NAMES, is_clustered=True)
    assert not on_disk(target)


class FullDisk(PyArrowFileIO):
    """Storage that fails when the third file is begun."""

    begun = 0

    def new_output(self, location: str) -> Any:
        FullDisk.begun += 1
        if FullDisk.begun == 3:
            raise OSError(28, "No space left on device")
        return super().new_output(location)


def test_a_failing_storage_leaves_no_file_and_names_the_one_that_failed(aim: Any):
    FullDisk.begun = 0
    target = aim(SIMPLE, [(1, "identity")])
    target = WriteTarget(
        target.schema, target.specs, 0, target.location, 2, io_properties={"py-io-impl": f"{__name__}.FullDisk"}
    )
    with pytest.raises(TableError, match=r"id|00003\.parquet"):
        write_arrow_table(rows(5), target)
    assert not on_disk(target)


def test_files_and_their_folders_are_on_the_disk_before_they_are_named(aim: Any, monkeypatch: pytest.MonkeyPatch):
    synced: set[str] = set()
    really = os.fsync

    def recorded(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        really(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    target = aim(SIMPLE, [(2, "identity"), (1, "identity")])
    files = paths(write_arrow_table(rows(2), target))
    folders = {str(p) for file in files for p in Path(file).parents if str(p).startswith(target.location)}
    assert synced == {*files, *folders}
    assert len(folders) == 6


def test_a_target_travels_with_its_defaults(aim: Any):
    target = aim(Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType(), write_default=5)))
    target.arrow_schema, target.leaves  # noqa: B018 - what is derived must not hinder travelling
    moved = pickle.loads(pickle.dumps(target))
    (path,) = paths(write_arrow_table(pa.table({"a": [1]}), moved))
    assert pq.read_table(path)["b"].to_pylist() == [5]


def test_files_of_two_writes_never_have_the_same_name(aim: Any):
    target = aim(SIMPLE)
    first, second = paths(write_arrow_table(rows(1), target)), paths(write_arrow_table(rows(1), target))
    assert set(first).isdisjoint(second)
    assert on_disk(target) == {*first, *second}


def test_no_files_make_an_empty_table_of_the_same_columns(aim: Any):
    target = aim(SIMPLE, [(2, "identity")])
    assert data_file_entries([], target).schema == write_arrow_table(rows(1), target).schema


def dictionary(indices: Any, values: list[Any]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))


LETTERS = [dictionary(range(100), [f"{letter}{i}" for i in range(100)]) for letter in "ab"]
NULLS = [dictionary([0, 1, None], ["q", None]), dictionary([1, 0, 1], [None, "z"])]
RUNS = [pa.RunEndEncodedArray.from_arrays([3, 5], pa.array(values)) for values in (["u", "v"], ["w", None])]
ENCODED = {
    "indices too short for both": LETTERS,
    "nulls among the values": NULLS,
    "run ends": [runs.slice(1, 3) for runs in RUNS],
    "inside a struct": [pa.StructArray.from_arrays([d], names=["x"]) for d in LETTERS],
    "inside a list": [pa.ListArray.from_arrays([0, 2, 100], d) for d in LETTERS],
    "inside a map": [pa.MapArray.from_arrays([0, 2, 100], pa.array(range(100)), d) for d in LETTERS],
}
TEXT_TYPES: dict[str, IcebergType] = {
    "inside a struct": StructType(NestedField(2, "x", StringType())),
    "inside a list": ListType(2, StringType(), False),
    "inside a map": MapType(2, LongType(), 3, StringType(), False),
}
BY_VALUE = SortOrder(SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST), order_id=1)
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partition_by": [(1, "truncate[1]")]},
    "sorted": {"sort_order": BY_VALUE},
}


def all_values(written: pa.Table) -> list[Any]:
    """The column `v` of all files, file by file."""
    return [value for path in paths(written) for value in pq.ParquetFile(path).read()["v"].to_pylist()]


@pytest.mark.parametrize("writes", [write_arrow_table, lambda table, target: write_stream(table.to_reader(), target)])
@pytest.mark.parametrize(
    ("name", "layout"),  # nested values are no partition or sort keys
    [(name, layout) for name in ENCODED for layout in LAYOUTS if layout == "plain" or name not in TEXT_TYPES],
)
def test_encoded_chunks_that_arrow_cannot_join_are_written(aim: Any, name: str, layout: str, writes: Any):
    kind = TEXT_TYPES.get(name, StringType())
    table = pa.table({"v": pa.chunked_array(ENCODED[name])})
    found = all_values(writes(table, aim(Schema(NestedField(1, "v", kind)), **LAYOUTS[layout])))
    expected = [value for chunk in ENCODED[name] for value in chunk.to_pylist()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    if layout == "sorted" and writes is write_arrow_table:
        assert found == sorted(expected, key=lambda value: (value is None, value or ""))


LENGTHS = [1] * 300 + [1000] * 30  # most of the bytes are in few rows
SKEWED = {
    "large text": pa.array(["x" * n for n in LENGTHS], pa.large_string()),
    "text views": pa.array(["x" * n for n in LENGTHS], pa.string_view()),
    "a dictionary": dictionary([0] * 300 + [1] * 30, ["x", "x" * 1000]),
    "run ends": pa.RunEndEncodedArray.from_arrays([300, 330], pa.array(["x", "x" * 1000])),
    "inside a struct": pa.StructArray.from_arrays([dictionary([0] * 300 + [1] * 30, ["x", "x" * 1000])], names=["x"]),
    "inside a list": pa.ListArray.from_arrays(range(331), dictionary([0] * 300 + [1] * 30, ["x", "x" * 1000])),
}


@pytest.mark.parametrize("writes", [write_arrow_table, lambda table, target: write_stream(table.to_reader(), target)])
@pytest.mark.parametrize("name", SKEWED)
def test_rows_are_decoded_in_parts_of_bounded_size(aim: Any, monkeypatch: pytest.MonkeyPatch, name: str, writes: Any):
    """A column of text that is too large would not fit into one array."""
    limit, sizes = 8000, list[int]()
    monkeypatch.setattr(data_files, "_MAX_GROUP_BYTES", limit)
    monkeypatch.setattr(data_files.join_small_batches, "__defaults__", (limit,))
    assign = data_files.assign_rows

    def measure(rows: pa.RecordBatch, *schemas: Any) -> pa.RecordBatch:
        assigned = assign(rows, *schemas)
        sizes.append(assigned.nbytes)
        return assigned

    monkeypatch.setattr(data_files, "assign_rows", measure)
    schema = Schema(NestedField(1, "v", TEXT_TYPES.get(name, StringType())))
    found = all_values(writes(pa.table({"v": SKEWED[name]}), aim(schema)))
    assert found == SKEWED[name].to_pylist()
    assert max(sizes) < 2 * limit and len(sizes) < 100


@pytest.mark.parametrize("partition_by", [[], [(2, "identity")]])
@pytest.mark.parametrize("limit", [50, 2000, 1 << 30])
def test_sorted_rows_need_not_fit_into_one_batch(
    aim: Any, monkeypatch: pytest.MonkeyPatch, limit: int, partition_by: list[tuple[int, str]]
):
    monkeypatch.setattr(data_files, "_MAX_GROUP_BYTES", limit)
    monkeypatch.setattr(data_files.join_small_batches, "__defaults__", (limit,))
    source = random.Random(1)
    table = pa.table(
        {
            "v": [None if source.random() < 0.1 else source.randrange(1000) for _ in range(200)],
            "name": [source.choice("ab") * source.choice([1, 300]) for _ in range(200)],
        }
    )
    schema = Schema(NestedField(1, "v", LongType()), NestedField(2, "name", StringType()))
    written = write_arrow_table(table, aim(schema, partition_by, sort_order=BY_VALUE))
    rows = [row for path in paths(written) for row in pq.ParquetFile(path).read().to_pylist()]
    for name in set(table["name"].to_pylist()) if partition_by else {None}:
        of_partition = [row["v"] for row in rows if name in (None, row["name"])]
        assert of_partition == sorted(of_partition, key=lambda value: (value is None, value or 0))
    assert sorted(rows, key=repr) == sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("count", [1, 3, 100_001])
def test_rows_without_columns_are_as_many_as_given(aim: Any, count: int):
    rows = pa.table({"x": range(count)}).select([])
    files = write_arrow_table(rows, aim(Schema(NestedField(1, "note", StringType()))))
    assert sum(files["record_count"].to_pylist()) == count

"""One file, many shapes: what a column of the table is when the file spells it differently, or not at all."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.expressions import EqualTo
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
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
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from neve.errors import CorruptFile, UnsupportedFeature
from neve.predicate.normalize import normalize_and_bind
from neve.run.read import field_ids as ids
from neve.run.read.file_reader import FileTask, ReadTarget, read_batches
from neve.run.read.types import ArrowFlavor as Carrier
from neve.run.read.types import arrow_schema

UTC = dt.UTC


def numbered(name: str, kind: pa.DataType, field_id: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {"PARQUET:field_id": str(field_id)})


def column(field_id: int, name: str, kind: IcebergType, required: bool = False, default: Any = None) -> NestedField:
    return NestedField(field_id, name, kind, required=required, initial_default=default)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write columns to a file: field and values, or a whole table."""

    def written(*columns: tuple[pa.Field, Sequence[Any]], **options: Any) -> FileTask:
        path = tmp_path / f"{uuid.uuid4()}.parquet"
        arrays = [v if isinstance(v, pa.Array) else pa.array(v, f.type) for f, v in columns]
        pq.write_table(pa.table(arrays, schema=pa.schema([f for f, _ in columns])), path, **options)
        return FileTask(str(path), file_size=path.stat().st_size, record_count=len(arrays[0]))

    return written


def read(
    io: FileIO,
    task: FileTask,
    *fields: NestedField,
    carrier: Carrier = Carrier.EXACT,
    mapping: NameMapping | None = None,
    schemas: Sequence[Schema] = (),
) -> pa.Table:
    target = ReadTarget(Schema(*fields), mapping, schemas, carrier)
    found = pa.Table.from_batches(read_batches(io, task, target), arrow_schema(target.schema, carrier))
    found.validate(full=True)
    return found


PROMOTIONS = [
    (pa.int8(), [-128, None], IntegerType(), [-128, None]),
    (pa.uint16(), [65535, None], IntegerType(), [65535, None]),
    (pa.int32(), [-(2**31), None], LongType(), [-(2**31), None]),
    (pa.uint32(), [2**32 - 1, None], LongType(), [2**32 - 1, None]),
    (pa.float32(), [0.5, None, float("inf")], DoubleType(), [0.5, None, float("inf")]),
    (pa.decimal128(9, 2), [Decimal("-1.25"), None], DecimalType(38, 2), [Decimal("-1.25"), None]),
    (pa.date32(), [dt.date(1900, 2, 3), None], TimestampType(), [dt.datetime(1900, 2, 3), None]),
    (pa.date32(), [dt.date(1969, 12, 31)], TimestampNanoType(), [dt.datetime(1969, 12, 31)]),
    (pa.timestamp("ms"), [dt.datetime(1960, 1, 1, 0, 0, 1)], TimestampType(), [dt.datetime(1960, 1, 1, 0, 0, 1)]),
    (pa.timestamp("us"), [dt.datetime(9999, 1, 1)], TimestamptzType(), [dt.datetime(9999, 1, 1, tzinfo=UTC)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(1, 1, 1)], TimestampType(), [dt.datetime(1, 1, 1)]),
    (pa.timestamp("us", "Asia/Tokyo"), [0], TimestampType(), [dt.datetime(1970, 1, 1)]),
    (pa.timestamp("ns"), [-1], TimestampType(), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4000), None], TimeType(), [dt.time(1, 2, 3, 4000), None]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4)], TimeType(), [dt.time(1, 2, 3, 4)]),
    (pa.binary(), ["née".encode(), None], StringType(), ["née", None]),
    (pa.large_string(), ["a", None], StringType(), ["a", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", None, "a"], StringType(), ["a", None, "a"]),
    (pa.string(), ["a", None], BinaryType(), [b"a", None]),
    (pa.binary(3), [b"abc", None], BinaryType(), [b"abc", None]),
    (pa.binary(16), [bytes(16), None], UUIDType(), [bytes(16), None]),
    (pa.binary(), [b"abc", None], FixedType(3), [b"abc", None]),
    (pa.int32(), [1, None], UnknownType(), [None, None]),
]


@pytest.mark.parametrize(("kind", "values", "wanted", "expected"), PROMOTIONS, ids=lambda x: str(x)[:24])
def test_a_column_of_an_older_or_odd_type_reads_as_the_type_of_the_table(
    io: FileIO, write: Any, kind: pa.DataType, values: list[Any], wanted: IcebergType, expected: list[Any]
) -> None:
    task = write((numbered("old", kind, 7), values))
    assert read(io, task, column(7, "c", wanted))["c"].to_pylist() == expected


MISFITS = [
    (pa.int64(), [1], IntegerType()),
    (pa.float64(), [1.0], FloatType()),
    (pa.int32(), [1], StringType()),
    (pa.decimal128(9, 3), [Decimal(1)], DecimalType(9, 2)),
    (pa.date32(), [dt.date(2020, 1, 1)], TimestamptzType()),
    (pa.list_(pa.int32()), [[1]], IntegerType()),
    (pa.int32(), [1], ListType(8, IntegerType())),
    (pa.binary(), [b"\xff"], StringType()),
    (pa.uint32(), [2**31], IntegerType()),
    (pa.decimal128(9, 2), [Decimal("99999.99")], DecimalType(5, 2)),
    (pa.binary(), [b"abcd"], FixedType(3)),
]


@pytest.mark.parametrize(("kind", "values", "wanted"), MISFITS, ids=lambda x: str(x)[:24])
def test_a_column_that_cannot_be_the_column_of_the_table_is_corruption_and_names_the_file(
    io: FileIO, write: Any, kind: pa.DataType, values: list[Any], wanted: IcebergType
) -> None:
    task = write((numbered("old", kind, 7), values))
    with pytest.raises(CorruptFile, match=task.path):
        read(io, task, column(7, "c", wanted))


def test_shapes_are_read_as_they_are(io: FileIO, write: Any) -> None:
    task = write((numbered("g", pa.binary(), 1), [b"x", None]))
    for kind in (GeometryType("srid:1"), GeographyType()):
        assert read(io, task, column(1, "g", kind))["g"].to_pylist() == [b"x", None]


def test_spark_gets_the_types_it_takes(io: FileIO, write: Any) -> None:
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    task = write(
        (numbered("u", pa.binary(16), 1), [None, one.bytes, bytes(16)]),
        (numbered("f", pa.binary(2), 2), [b"ab", None, b"cd"]),
        (numbered("n", pa.timestamp("ns"), 3), [-1, 1001, None]),
        (numbered("t", pa.time64("us"), 4), [dt.time(1, 2, 3, 4), None, dt.time(0)]),
        row_group_size=2,
    )
    fields = [
        column(1, "u", UUIDType()),
        column(2, "f", FixedType(2)),
        column(3, "n", TimestampNanoType()),
        column(4, "t", TimeType()),
    ]
    found = read(io, task, *fields, carrier=Carrier.SPARK)
    assert found.schema.types == [pa.string(), pa.binary(), pa.timestamp("us"), pa.time64("ns")]
    assert found["u"].to_pylist() == [None, str(one), str(uuid.UUID(int=0))]
    assert found["n"].cast(pa.int64()).to_pylist() == [-1, 1, None]
    assert found["t"].to_pylist() == [dt.time(1, 2, 3, 4), None, dt.time(0)]


def test_text_that_is_no_utf8_reaches_spark_as_it_is_and_is_refused_elsewhere(io: FileIO, write: Any) -> None:
    task = write((numbered("s", pa.binary(), 1), [b"ok", b"caf\xe9", None]))
    target = ReadTarget(Schema(column(1, "s", StringType())), flavor=Carrier.SPARK)
    (batch,) = read_batches(io, task, target)
    assert batch.schema.types == [pa.string()]
    assert batch.column(0).cast(pa.binary()).to_pylist() == [b"ok", b"caf\xe9", None]
    with pytest.raises(CorruptFile, match=task.path):
        read(io, task, column(1, "s", StringType()))


def test_nested_fields_are_matched_by_id_at_every_depth(io: FileIO, write: Any) -> None:
    old_item = pa.struct([numbered("gone", pa.string(), 30), numbered("p", pa.int32(), 31)])
    old_value = pa.struct([numbered("v", pa.float32(), 42), numbered("w", pa.int32(), 43)])
    task = write(
        (
            numbered("s", pa.struct([numbered("a", pa.int32(), 11), numbered("b", pa.string(), 12)]), 1),
            [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
        ),
        (numbered("l", pa.list_(numbered("element", old_item, 20)), 2), [[{"gone": "g", "p": 1}, None], None, []]),
        (
            numbered("m", pa.map_(numbered("key", pa.string(), 40, False), numbered("value", old_value, 41)), 3),
            [[("k", {"v": 0.5, "w": 9})], [], None],
        ),
    )
    new_s = StructType(column(12, "bee", StringType()), column(13, "c", DateType()), column(11, "a", LongType()))
    new_item = StructType(column(31, "pea", LongType()), column(32, "q", IntegerType(), default=7))
    new_value = StructType(column(42, "v", DoubleType()))
    found = read(
        io,
        task,
        column(3, "map", MapType(40, StringType(), 41, new_value)),
        column(1, "st", new_s),
        column(2, "li", ListType(20, new_item)),
    )
    assert found.column_names == ["map", "st", "li"]
    assert found["st"].to_pylist() == [{"bee": "x", "c": None, "a": 1}, None, {"bee": None, "c": None, "a": None}]
    assert found["li"].to_pylist() == [[{"pea": 1, "q": 7}, None], None, []]
    assert found["map"].to_pylist() == [[("k", {"v": 0.5})], [], None]


def test_a_struct_asked_for_twice_is_cut_differently_each_time(io: FileIO, write: Any) -> None:
    kind = pa.struct([numbered("a", pa.int32(), 2), numbered("b", pa.string(), 3), numbered("c", pa.int32(), 4)])
    task = write((numbered("s", kind, 1), [{"a": 1, "b": "x", "c": 2}]))
    one, two = StructType(column(3, "b", StringType())), StructType(column(4, "c", LongType()))
    assert read(io, task, column(1, "s", one), column(1, "t", two)).to_pylist() == [{"s": {"b": "x"}, "t": {"c": 2}}]


def test_a_struct_of_which_the_file_has_no_field_asked_for_keeps_its_nulls(io: FileIO, write: Any) -> None:
    task = write((numbered("s", pa.struct([numbered("a", pa.int32(), 2)]), 1), [{"a": 1}, None]))
    found = read(io, task, column(1, "s", StructType(column(3, "new", StringType()))))
    assert found["s"].to_pylist() == [{"new": None}, None]


def test_names_mean_nothing_when_the_file_has_ids(io: FileIO, write: Any) -> None:
    task = write((numbered("a", pa.int32(), 1), [1]), (numbered("b", pa.int32(), 2), [2]))
    found = read(io, task, column(2, "a", IntegerType()), column(1, "b", IntegerType()), column(3, "c", IntegerType()))
    assert found.to_pylist() == [{"a": 2, "b": 1, "c": None}]


def test_a_missing_column_takes_partition_value_then_default_then_null(io: FileIO, write: Any) -> None:
    task = write((numbered("id", pa.int64(), 1), [1, 2]))
    task = FileTask(task.path, partition={2: "eu", 3: None, 1: 99})
    found = read(
        io,
        task,
        column(1, "id", LongType(), required=True),
        column(2, "region", StringType(), default="nowhere"),
        column(3, "null_partition", IntegerType(), default=5),
        column(4, "defaulted", DecimalType(9, 2), required=True, default=Decimal("1.50")),
        column(5, "absent", DateType()),
    )
    row = {"region": "eu", "null_partition": None, "defaulted": Decimal("1.50"), "absent": None}
    assert found.to_pylist() == [{"id": 1, **row}, {"id": 2, **row}]


def test_a_partition_value_is_promoted_like_the_column(io: FileIO, write: Any) -> None:
    task = write((numbered("id", pa.int64(), 1), [1]))
    old = {
        2: pa.scalar(7, pa.int32()),
        3: pa.scalar(uuid.UUID(int=1).bytes, pa.binary(16)),
        4: pa.scalar(10, pa.date32()),
    }
    fields = [column(2, "n", LongType()), column(3, "u", UUIDType()), column(4, "d", DateType())]
    found = read(io, FileTask(task.path, partition=old), *fields, carrier=Carrier.SPARK)
    assert found.to_pylist() == [{"n": 7, "u": str(uuid.UUID(int=1)), "d": dt.date(1970, 1, 11)}]


def test_a_required_column_without_value_is_corruption(io: FileIO, write: Any) -> None:
    task = write((numbered("id", pa.int64(), 1), [1, None]))
    with pytest.raises(CorruptFile, match="no initial default"):
        read(io, task, column(2, "must", LongType(), required=True))
    with pytest.raises(CorruptFile, match="nulls"):
        read(io, task, column(1, "id", LongType(), required=True))


def test_a_required_field_is_only_missed_where_its_struct_is_there(io: FileIO, write: Any) -> None:
    kind = pa.struct([numbered("a", pa.int32(), 2)])
    wanted = column(1, "s", StructType(column(2, "a", IntegerType(), required=True)))
    fine = write((numbered("s", kind, 1), [{"a": 1}, None]))
    assert read(io, fine, wanted)["s"].to_pylist() == [{"a": 1}, None]
    broken = write((numbered("s", kind, 1), [{"a": None}]))
    with pytest.raises(CorruptFile, match="'a'"):
        read(io, broken, wanted)
    outer = pa.struct([pa.field("s", kind, False, {"PARQUET:field_id": "1"})])
    deep = write((numbered("o", outer, 9), [{"s": {"a": 1}}, None]))
    inside = column(9, "o", StructType(NestedField(1, "s", wanted.field_type, required=True)))
    assert read(io, deep, inside)["o"].to_pylist() == [{"s": {"a": 1}}, None]


def test_a_field_id_that_occurs_twice_is_corruption(io: FileIO, write: Any) -> None:
    task = write((numbered("a", pa.int32(), 1), [1]), (numbered("b", pa.int32(), 1), [2]))
    with pytest.raises(CorruptFile, match="field id 1 twice"):
        read(io, task, column(1, "a", IntegerType()))


MAPPING = """[{"field-id": 1, "names": ["id", "old_id"]}, {"field-id": 2, "names": ["data"]},
 {"field-id": 3, "names": ["loc"], "fields": [{"field-id": 4, "names": ["lat", "latitude"]}]},
 {"field-id": 5, "names": ["tags"], "fields": [{"field-id": 6, "names": ["element"]}]},
 {"field-id": 7, "names": ["m"], "fields": [{"field-id": 8, "names": ["key"]}, {"field-id": 9, "names": ["value"]}]}]"""


def test_a_file_without_ids_is_read_through_the_name_mapping_at_every_depth(io: FileIO, write: Any) -> None:
    task = write(
        (pa.field("old_id", pa.int32()), [1]),
        (pa.field("unmapped", pa.int32()), [2]),
        (pa.field("loc", pa.struct([("latitude", pa.float32()), ("x", pa.int32())])), [{"latitude": 0.5, "x": 1}]),
        (pa.field("tags", pa.list_(pa.field("item", pa.string()))), [["t"]]),
        (pa.field("m", pa.map_(pa.string(), pa.int32())), [[("k", 1)]]),
    )
    found = read(
        io,
        task,
        column(1, "key", LongType()),
        column(2, "data", StringType()),
        column(3, "place", StructType(column(4, "north", DoubleType()))),
        column(5, "labels", ListType(6, StringType())),
        column(7, "m", MapType(8, StringType(), 9, LongType())),
        mapping=parse_mapping_from_json(MAPPING),
    )
    expected = {"key": 1, "data": None, "place": {"north": 0.5}, "labels": ["t"], "m": [("k", 1)]}
    assert found.to_pylist() == [expected]


def test_a_name_mapping_that_knows_no_column_leaves_them_all_null(io: FileIO, write: Any) -> None:
    task = write((pa.field("x", pa.int32()), [1]))
    found = read(
        io, task, column(1, "x", IntegerType()), mapping=parse_mapping_from_json('[{"field-id":1,"names":["y"]}]')
    )
    assert found.to_pylist() == [{"x": None}]


def test_without_a_mapping_names_of_any_schema_count_and_a_reused_name_is_the_newest(io: FileIO, write: Any) -> None:
    first = Schema(column(1, "a", IntegerType()), column(2, "b", IntegerType()), schema_id=0)
    renamed = Schema(column(1, "z", IntegerType()), column(2, "b", IntegerType()), schema_id=1)
    current = Schema(column(1, "z", LongType()), column(3, "b", StringType()), schema_id=2)
    task = write((pa.field("a", pa.int32()), [1]), (pa.field("b", pa.string()), ["new"]))
    found = read(io, task, *current.fields, schemas=[current, renamed, first])
    assert found.to_pylist() == [{"z": 1, "b": "new"}]


def test_a_file_without_ids_and_known_names_is_not_read_as_nulls(io: FileIO, write: Any) -> None:
    task = write((pa.field("_col0", pa.int32()), [1]))
    with pytest.raises(CorruptFile, match=r"schema\.name-mapping\.default"):
        read(io, task, column(1, "a", IntegerType()))


def test_columns_with_dots_in_their_names_are_not_confused(io: FileIO, write: Any) -> None:
    task = write(
        (numbered("a.b", pa.int32(), 1), [1]),
        (numbered("a", pa.struct([numbered("b", pa.int32(), 3)]), 2), [{"b": 2}]),
    )
    found = read(io, task, column(2, "s", StructType(column(3, "b", IntegerType()))), column(1, "a.b", IntegerType()))
    assert found.to_pylist() == [{"s": {"b": 2}, "a.b": 1}]


def test_a_scan_of_no_stored_column_still_counts_rows(io: FileIO, write: Any) -> None:
    task = write((numbered("a", pa.int32(), 1), list(range(10))), row_group_size=3)
    assert read(io, FileTask(task.path, partition={2: "eu"}), column(2, "p", StringType())).num_rows == 10
    assert read(io, task, column(3, "x", UnknownType())).num_rows == 10


def test_int96_timestamps_are_microseconds_even_where_nanoseconds_would_overflow(io: FileIO, write: Any) -> None:
    kind = pa.timestamp("ns")
    task = write((numbered("t", kind, 1), [dt.datetime(2200, 1, 1), None]), use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(task.path).schema.column(0).physical_type == "INT96"
    found = read(io, task, column(1, "t", TimestamptzType()))
    assert found["t"].to_pylist() == [dt.datetime(2200, 1, 1, tzinfo=UTC), None]


def test_orc_is_read_by_its_iceberg_ids(io: FileIO, tmp_path: Path) -> None:
    def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
        return pa.field(name, kind, True, {"iceberg.id": str(field_id)})

    inner = pa.struct([with_id("x", pa.int32(), 21), with_id("y", pa.string(), 22)])
    schema = pa.schema(
        [
            with_id("a", pa.int32(), 1),
            with_id("s", inner, 2),
            with_id("l", pa.list_(with_id("element", pa.int32(), 31)), 3),
            with_id("t", pa.timestamp("us", "UTC"), 4),
            with_id("f", pa.binary(), 5),
        ]
    )
    rows = [
        {
            "a": i,
            "s": None if i % 3 == 0 else {"x": i, "y": str(i)},
            "l": [i] * (i % 3),
            "t": dt.datetime(1960, 1, 1, 0, 0, 0, i, UTC),
            "f": bytes(2),
        }
        for i in range(100)
    ]
    path = tmp_path / "f.orc"
    orc.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    task = FileTask(str(path), "ORC", path.stat().st_size, 100)
    found = read(
        io,
        task,
        column(2, "st", StructType(column(22, "why", StringType()))),
        column(4, "at", TimestamptzType()),
        column(1, "n", LongType()),
        column(3, "li", ListType(31, LongType())),
        column(5, "f", FixedType(2)),
        column(9, "new", IntegerType(), default=3),
    )
    expected = [
        {
            "st": r["s"] and {"why": r["s"]["y"]},
            "at": r["t"],
            "n": r["a"],
            "li": r["l"],
            "f": r["f"],
            "new": 3,
        }
        for r in rows
    ]
    assert found.to_pylist() == expected
    assert read(io, task, column(9, "new", IntegerType())).num_rows == 100


def test_orc_longs_that_are_marked_as_times_are_times(io: FileIO, tmp_path: Path) -> None:
    def marked(name: str, field_id: int) -> pa.Field:
        return pa.field(name, pa.int64(), True, {"iceberg.id": str(field_id), "iceberg.long-type": "TIME"})

    plain = pa.field("n", pa.int64(), True, {"iceberg.id": "1"})
    inner = pa.field("s", pa.struct([marked("at", 4)]), True, {"iceberg.id": "3"})
    rows = [{"n": 7, "t": 36_930_000_123, "s": {"at": 5}}, {"n": 8, "t": None, "s": None}]
    path = tmp_path / "f.orc"
    orc.write_table(pa.Table.from_pylist(rows, schema=pa.schema([plain, marked("t", 2), inner])), path)
    task = FileTask(str(path), "ORC", path.stat().st_size, 2)
    fields = (column(3, "s", StructType(column(4, "at", TimeType()))), column(2, "t", TimeType()))
    assert read(io, task, *fields, column(1, "n", LongType())).to_pylist() == [
        {"n": 7, "t": dt.time(10, 15, 30, 123), "s": {"at": dt.time(0, 0, 0, 5)}},
        {"n": 8, "t": None, "s": None},
    ]
    with pytest.raises(CorruptFile, match="time for column 'n'"):
        read(io, task, column(1, "n", TimeType()))


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view])
def test_columns_after_list_views_are_found(io: FileIO, write: Any, view: Any) -> None:
    """Arrow's schema in the file says list view, which must not shift the numbers of the columns after it."""
    pair = pa.struct([numbered("a", pa.int64(), 3), numbered("b", pa.int64(), 4)])
    lists = [[{"a": 1, "b": 2}], [], None]
    task = write(
        (numbered("l", view(numbered("element", pair, 5)), 1), lists), (numbered("x", pa.int64(), 2), [777] * 3)
    )
    x = column(2, "x", LongType())
    both = (x, column(1, "l", ListType(5, StructType(column(3, "a", LongType()), column(4, "b", LongType())))))
    assert read(io, task, *both).to_pylist() == [{"x": 777, "l": some} for some in lists]
    target = ReadTarget(Schema(x), predicate=normalize_and_bind(EqualTo("x", 777), Schema(x)))
    assert sum(batch.num_rows for batch in read_batches(io, task, target)) == 3


def test_a_schema_that_counts_other_columns_than_the_footer_is_refused(
    io: FileIO, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write((numbered("l", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())])), 1), [[]]))
    monkeypatch.setattr(ids, "_child_fields", lambda kind: [])
    with pytest.raises(CorruptFile, match="2 columns of single values"):
        read(io, task, column(1, "l", LongType()))


def test_orc_timestamps_beyond_nanoseconds_are_refused_not_wrapped(io: FileIO, tmp_path: Path) -> None:
    path = tmp_path / "f.orc"
    field = pa.field("t", pa.timestamp("us"), True, {"iceberg.id": "1"})
    orc.write_table(
        pa.table([pa.array([dt.datetime(1500, 1, 1)], pa.timestamp("us"))], schema=pa.schema([field])), path
    )
    with pytest.raises(UnsupportedFeature, match="1677"):
        read(io, FileTask(str(path), "ORC"), column(1, "t", TimestampType()))


def test_an_unknown_format_is_refused(io: FileIO, write: Any) -> None:
    task = write((numbered("a", pa.int32(), 1), [1]))
    with pytest.raises(UnsupportedFeature, match="LANCE"):
        read(io, FileTask(task.path, "LANCE"), column(1, "a", IntegerType()))

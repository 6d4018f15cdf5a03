"""A Delta table becomes a table with the rows that delta-rs reads from it, in place, with all of its past."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import neve
from neve.errors import NeveError, TableError, UserError
from neve.ops.write import snapshot_delta
from tests.support.coverage import on_versions
from tests.support.delta_tables import PlainDelta, column, mapped, rows_by_delta
from tests.support.foreign_tables import FIXTURES, needs_fixtures

DAY = datetime.date(2026, 1, 1)
AT = datetime.datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=datetime.UTC)
ALL_TYPES = pa.table(
    {
        "i8": pa.array([1, None, -128], pa.int8()),
        "i16": pa.array([1, None, -32768], pa.int16()),
        "i32": pa.array([1, None, 3], pa.int32()),
        "i64": pa.array([1, None, 3], pa.int64()),
        "f32": pa.array([1.5, None, float("inf")], pa.float32()),
        "f64": pa.array([1.5, None, -0.0], pa.float64()),
        "ok": [True, None, False],
        "text": ["a", None, "b"],
        "raw": [b"a", None, b"b"],
        "day": pa.array([DAY, None, DAY]),
        "at": pa.array([AT, None, AT], pa.timestamp("us", "UTC")),
        "local": pa.array([AT.replace(tzinfo=None), None, AT.replace(tzinfo=None)], pa.timestamp("us")),
        "price": pa.array(
            [Decimal("1.50"), None, Decimal("99999999999999999999999999999999.99")], pa.decimal128(38, 2)
        ),
        "tags": [["a", None], None, []],
        "place": [{"city": "x", "zips": [1]}, None, {"city": None, "zips": None}],
        "counts": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)


def rows_of(table: neve.Table) -> Counter[str]:
    return Counter(map(repr, table.scan().to_arrow(engine="arrow").to_pylist()))


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


@pytest.mark.parametrize("by", [[], ["text"], ["day", "i16"], ["at", "ok"], ["price", "local"], ["raw"]], ids=str)
def test_all_types_and_partitions(lake: neve.Lake, tmp_path: Path, by: list[str]):
    write_deltalake(tmp_path / "source", ALL_TYPES, partition_by=by)
    t = lake.snapshot_delta(tmp_path / "source", "db.t")
    assert rows_of(t) == rows_by_delta(tmp_path / "source")
    assert [f.name for f in t.context.metadata.spec().fields] == by
    assert t.verify().is_sound


def test_names_that_are_encoded_in_paths(lake: neve.Lake, tmp_path: Path):
    regions = ["a b", "50%", "x/y", "é", "a=b", "#1?", None, "__HIVE_DEFAULT_PARTITION__", "'q'", '"', "a+b", "%2F"]
    rows = pa.table({"id": range(len(regions)), "a region": regions})
    write_deltalake(tmp_path / "so urce%", rows, partition_by=["a region"])
    t = lake.snapshot_delta(tmp_path / "so urce%", "db.t")
    assert rows_of(t) == rows_by_delta(tmp_path / "so urce%")
    assert t.scan("`a region` = 'x/y'").to_arrow(engine="arrow")["id"].to_pylist() == [2]


def test_an_empty_partition_value_is_null(lake: neve.Lake, tmp_path: Path):
    """So says Delta's protocol, for every type; delta-rs reads an empty text."""
    source = PlainDelta(tmp_path / "s", [column("id", "long"), column("region", "string")], ("region",)).create()
    source.commit(source.add("x.parquet", pa.table({"id": [1]}), region=""))
    t = lake.snapshot_delta(source.folder, "db.t")
    assert t.scan("region IS NULL").to_arrow(engine="arrow").to_pylist() == [{"id": 1, "region": None}]


def test_only_the_files_of_a_version_are_rows_of_it(lake: neve.Lake, tmp_path: Path):
    source = tmp_path / "source"
    for start in (0, 10, 20):
        write_deltalake(source, pa.table({"id": range(start, start + 10)}), mode="append")
    DeltaTable(source).delete("id % 2 = 0")
    DeltaTable(source).optimize.compact()
    for version in (None, 1, 3, 0):
        t = lake.snapshot_delta(source, f"db.v{version}", version=version)
        assert rows_of(t) == rows_by_delta(source, version), version
    assert len(rows_of(t)) == 10


@on_versions(2, 3, 4)
def test_deleted_rows(lake: neve.Lake, tmp_path: Path, version: int):
    source = PlainDelta(tmp_path / "s", [column("id", "long"), column("region", "string")], ("region",)).create()
    ids = pa.table({"id": range(100)})
    source.commit(
        source.add("region=a b/x y.parquet", ids, [0, 99], region="a b"),
        source.add("region=c/50%25.parquet", ids, range(0, 100, 3), region="c"),
        source.add("region=d/all.parquet", ids, range(100), region="d"),
        source.add("none.parquet", ids, region=None),
    )
    t = lake.snapshot_delta(source.folder, "db.t", properties={"format-version": str(version)})
    assert rows_of(t) == rows_by_delta(source.folder) and len(rows_of(t)) == 98 + 66 + 100
    assert t.verify().is_sound
    t.delete().where("id < 50").execute()
    t.append([{"id": 1000, "region": "new"}])
    left = Counter(row for row in rows_by_delta(source.folder).elements() if int(row.split()[1].rstrip(",")) >= 50)
    assert rows_of(t) == left + Counter([repr({"id": 1000, "region": "new"})])


def test_times_as_spark_stores_them(lake: neve.Lake, tmp_path: Path):
    times = [
        AT,
        None,
        datetime.datetime(1582, 10, 4, tzinfo=datetime.UTC),
        datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC),
    ]
    source = PlainDelta(tmp_path / "s", [column("at", "timestamp"), column("n", "short")]).create()
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "n": pa.array([1, 2, 3, None], pa.int16())})
    source.commit(source.add("x.parquet", rows, [1], int96=True))
    t = lake.snapshot_delta(source.folder, "db.t")
    assert t.scan().to_arrow(engine="arrow")["at"].to_pylist() == [times[0], *times[2:]]
    assert t.verify().is_sound


def with_ids(schema: pa.Schema, ids: dict[str, int]) -> pa.Schema:
    return pa.schema([f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) if f.name in ids else f for f in schema])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_that_were_renamed_dropped_and_added_again(lake: neve.Lake, tmp_path: Path, mode: str):
    """A file from before the mapping has no ids, and the names that columns had then; one from after it has ids."""
    fields = [
        mapped("total", "n", 2, "long"),
        mapped("id", "col-9", 9, "string"),  # the first column `id` was dropped
        mapped("where", "region", 3, "string"),
        mapped("place", "place", 4, {"type": "struct", "fields": [mapped("town", "city", 5, "string")]}),
    ]
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}
    source = PlainDelta(tmp_path / "s", fields, ("where",), configuration).create()
    old = pa.table({"id": [1, 2], "n": pa.array([10, 20], pa.int64()), "place": [{"city": "x"}, None]})
    new = pa.table({"n": pa.array([30], pa.int64()), "col-9": ["thirty"]})
    new = new.cast(with_ids(new.schema, {"n": 2, "col-9": 9}))
    adds = [source.add("new.parquet", new, region="us")]
    if mode == "name":
        adds.append(source.add("old.parquet", old, [1], region="eu"))
    source.commit(*adds)
    t = lake.snapshot_delta(source.folder, "db.t")
    expected = [{"total": 30, "id": "thirty", "where": "us", "place": None}]
    expected += [{"total": 10, "id": None, "where": "eu", "place": {"town": "x"}}] if mode == "name" else []
    assert rows_of(t) == Counter(map(repr, expected)) == rows_by_delta(source.folder)
    assert {f.field_id for f in t.schema.fields} == {2, 9, 3, 4}
    t.append([{"total": 1, "id": "x", "where": "eu", "place": {"town": "y"}}])
    assert len(rows_of(t)) == len(expected) + 1 and t.verify().is_sound


def test_a_list_without_an_id_in_a_file_with_ids_is_refused_or_read(lake: neve.Lake, tmp_path: Path):
    tags = {"type": "array", "elementType": "string", "containsNull": True}
    fields = [mapped("tags", "col-1", 1, tags), mapped("id", "col-2", 2, "long")]
    source = PlainDelta(tmp_path / "s", fields, (), {"delta.columnMapping.mode": "name"}).create()
    rows = pa.table({"col-1": [["a"], None], "col-2": [1, 2]})
    source.commit(source.add("x.parquet", rows.cast(with_ids(rows.schema, {"col-1": 1, "col-2": 2}))))
    t = lake.snapshot_delta(source.folder, "db.t")
    assert rows_of(t) == rows_by_delta(source.folder)


def test_a_table_without_files(lake: neve.Lake, tmp_path: Path):
    source = PlainDelta(tmp_path / "s", [column("id", "long", nullable=False, comment="the key")]).create()
    t = lake.snapshot_delta(source.folder, "db.t")
    assert t.context.snapshot() is None
    assert (t.schema.fields[0].required, t.schema.fields[0].doc) == (True, "the key")
    t.append([{"id": 1}])
    assert len(rows_of(t)) == 1


def test_nothing_deletes_a_file_of_the_delta_table(lake: neve.Lake, tmp_path: Path):
    source = tmp_path / "source"
    write_deltalake(source, pa.table({"id": range(10), "k": [0, 1] * 5}), partition_by=["k"])
    before = sorted(source.rglob("*"))
    t = lake.snapshot_delta(source, "db.t")
    t.delete().where("k = 0").execute()
    with pytest.raises(UserError, match=r"gc\.enabled"):
        t.expire_snapshots().retain_last(1).older_than(1 << 42).execute()
    lake.drop_table("db.t")
    assert sorted(source.rglob("*")) == before


def test_call_snapshot(lake: neve.Lake, tmp_path: Path):
    write_deltalake(tmp_path / "source", pa.table({"id": range(10)}))
    called = lake.sql(f"CALL system.snapshot('`delta`.`{tmp_path}/source`', 'db.t', properties => map('owner', 'me'))")
    assert called.output_rows.to_pylist() == [{"imported_files_count": 1}]
    properties = lake.table("db.t").context.metadata.properties
    assert properties["owner"] == "me" and properties["snapshot_source"] == "delta"


def test_the_files_of_a_delta_table_are_not_added_as_a_folder(lake: neve.Lake, tmp_path: Path):
    """The folder also has files of older versions, whose rows are deleted."""
    write_deltalake(tmp_path / "source", pa.table({"id": range(10)}))
    DeltaTable(tmp_path / "source").delete("id = 1")
    t = lake.create_table("db.t", "id bigint")
    with pytest.raises(UserError, match=r"is a Delta table.*snapshot_delta"):
        t.add_files(tmp_path / "source").execute()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ([column("v", "variant")], NeveError, "(?i)variant"),
        ([column("v", {"type": "array", "elementType": "void", "containsNull": True})], NeveError, "void"),
    ],
)
def test_types_that_tables_cannot_have(lake: neve.Lake, tmp_path: Path, fields: Any, error: type, message: str):
    source = PlainDelta(tmp_path / "s", fields).create()
    with pytest.raises(error, match=message):
        lake.snapshot_delta(source.folder, "db.t")
    assert lake.tables() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 7}, "Cannot read the Delta table in .*source|There is no"),
        (
            {"properties": {"format-version": "1"}},
            "format version 1 has no deletes of rows. Give format-version 2 or 3",
        ),
        ({"source": "nowhere"}, "There is no Delta table in .*nowhere"),
    ],
)
def test_what_cannot_become_a_table(lake: neve.Lake, tmp_path: Path, options: dict[str, Any], message: str):
    source = PlainDelta(tmp_path / "source", [column("id", "long")]).create()
    source.commit(source.add("x.parquet", pa.table({"id": range(10)}), [1]))
    with pytest.raises(UserError, match=message):
        lake.snapshot_delta(tmp_path / options.pop("source", "source"), "db.t", **options)
    assert lake.tables() == []


def test_a_lost_deletion_vector_is_an_error(lake: neve.Lake, tmp_path: Path):
    source = PlainDelta(tmp_path / "source", [column("id", "long")]).create()
    source.commit(source.add("x.parquet", pa.table({"id": range(10)}), range(5)))
    [vector] = source.folder.glob("*.bin")
    vector.unlink()
    with pytest.raises(UserError, match=r"Cannot read the Delta table in .*source: .*bin"):
        lake.snapshot_delta(source.folder, "db.t")
    assert lake.tables() == []


def test_deleted_rows_of_a_file_that_is_not_listed_are_an_error(
    lake: neve.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """If both names of a file were not spelt alike, its deleted rows would come back."""
    source = PlainDelta(tmp_path / "source", [column("id", "long")]).create()
    source.commit(source.add("x.parquet", pa.table({"id": range(10)}), [1]))
    read = snapshot_delta.read_delta_version

    def spell_otherwise(*values: Any) -> Any:
        found = read(*values)
        return replace(found, deleted={path.upper(): rows for path, rows in found.deleted.items()})

    monkeypatch.setattr(snapshot_delta, "read_delta_version", spell_otherwise)
    with pytest.raises(TableError, match=r"deletes rows of .*, and lists no such file"):
        lake.snapshot_delta(source.folder, "db.t")
    assert lake.tables() == []


def test_a_lost_file_leaves_no_table(lake: neve.Lake, tmp_path: Path):
    source = PlainDelta(tmp_path / "source", [column("id", "long")]).create()
    source.commit(source.add("x.parquet", pa.table({"id": range(10)}), [1]))
    (source.folder / "x.parquet").unlink()
    with pytest.raises(NeveError, match=r"x\.parquet"):
        lake.snapshot_delta(source.folder, "db.t")
    assert lake.tables() == [] and not list((tmp_path / "lake").rglob("*.puffin"))


@needs_fixtures
def test_a_table_of_delta_itself(lake: neve.Lake, tmp_path: Path):
    shutil.copytree(FIXTURES / "delta_dv_small", tmp_path / "s")
    for path in (tmp_path / "s").glob("*-deletion_vector*"):  # the log names it without the prefix
        path.rename(path.with_name(path.name.removeprefix("test%dv%prefix-")))
    t = lake.snapshot_delta(tmp_path / "s", "db.t")
    assert t.scan().to_arrow(engine="arrow")["value"].to_pylist() == [*range(1, 9)]

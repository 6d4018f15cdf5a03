"""Tables with shapes: they are written, changed, compacted and read as well-known binary."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, ListType, LongType, NestedField, StructType

import neve
from neve.errors import NeveError
from tests.support.coverage import on_versions
from tests.support.tables import local

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "shape", GeometryType()),
    NestedField(3, "far", GeometryType("srid:3857")),
    NestedField(4, "globe", GeographyType()),
    NestedField(5, "exact", GeographyType("EPSG:4269", "karney")),
    NestedField(6, "place", StructType(NestedField(8, "at", GeometryType()))),
    NestedField(7, "path", ListType(9, GeometryType(), element_required=False)),
)

SCHEMA_OF_SHAPES = Schema(NestedField(1, "id", LongType()), NestedField(2, "shape", GeometryType()))


def point(*at: float, kind: int = 1) -> bytes:
    return struct.pack(f"<BI{len(at)}d", 1, kind, *at)


def row(n: int, shape: bytes | None) -> dict[str, Any]:
    other = point(n, n)
    return {
        "id": n, "shape": shape, "far": point(n * 1e6, 0), "globe": other, "exact": other, "place": {"at": other},
        "path": [other, None],
    }  # fmt: skip


ROWS = [row(1, point(1, 2)), row(2, None), row(3, point(-5, 9)), row(4, point(0, 0))]


def read(table: neve.Table) -> list[dict[str, Any]]:
    return sorted(table.refresh().scan().to_arrow(engine="arrow").to_pylist(), key=lambda r: r["id"])


@on_versions(3, 4)
def test_rows_are_written_changed_and_compacted(tmp_path: Path, version: int):
    lake = neve.connect(tmp_path)
    t = lake.create_table("db.t", SCHEMA, format_version=version)
    t.append(ROWS[:2])
    t.append(ROWS[2:])
    assert read(t) == ROWS
    assert sorted(t.scan("shape IS NOT NULL").to_arrow(engine="arrow")["id"].to_pylist()) == [1, 3, 4]
    for mode in ("merge-on-read", "copy-on-write"):
        t.delete().where("id = 4").mode(mode).execute()
        t.update().set("id", "id + 0").where("id = 1").mode(mode).execute()
        assert read(t) == ROWS[:3]
        t.append(ROWS[3:])
    t.rewrite_data_files().option("rewrite-all", True).execute()
    assert read(t) == ROWS and t.verify().is_sound
    assert lake.table("db.t").schema == t.schema


@on_versions(3, 4)
@pytest.mark.parametrize("verb", ["add_files", "ingest"])
def test_duckdb_reads_what_became_of_the_shapes_it_wrote(tmp_path: Path, version: int, verb: str):
    duck, path = duckdb.connect(), tmp_path / "src" / "shapes.parquet"
    path.parent.mkdir()
    shape = "('POINT(' || i || ' ' || 2 * i || ')')::GEOMETRY"
    duck.execute(f"CREATE TABLE shapes AS SELECT i::BIGINT AS id, {shape} AS shape FROM range(5) t(i)")
    duck.execute("INSERT INTO shapes VALUES (99, NULL)")
    duck.execute(f"COPY shapes TO '{path}' (FORMAT parquet)")
    t = neve.connect(tmp_path / "lake").create_table("db.t", SCHEMA_OF_SHAPES, format_version=version)
    getattr(t, verb)(path.parent).execute()
    t.delete().where("id = 3").mode("merge-on-read").execute()
    t.update().set("id", "id + 100").where("id = 1").mode("copy-on-write").execute()
    t.rewrite_data_files().option("rewrite-all", True).execute()
    duck.execute("DELETE FROM shapes WHERE id = 3; UPDATE shapes SET id = id + 100 WHERE id = 1")
    files = [str(local(each)) for each in t.refresh().inspect.files()["file_path"].to_pylist()]
    found = duck.execute("SELECT id, shape::VARCHAR, typeof(shape) LIKE 'GEOMETRY%' FROM read_parquet(?)", [files])
    expected = duck.cursor().execute("SELECT id, shape::VARCHAR, true FROM shapes").fetchall()
    assert sorted(found.fetchall()) == sorted(expected) and t.verify().is_sound


def test_spark_has_them_as_binary(spark_lake: neve.Lake, spark: Any):
    t = spark_lake.create_table("db.t", SCHEMA, format_version=3)
    frame = spark.createDataFrame(ROWS, t.to_spark().schema)
    t.append(frame)
    assert read(t) == ROWS
    assert sorted(map(repr, t.to_spark().collect())) == sorted(map(repr, frame.collect()))
    spark_lake.sql("UPDATE db.t SET shape = globe WHERE shape IS NULL")
    merge = "MERGE INTO db.t USING (SELECT 9 AS id, X'00' AS shape) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT"
    spark_lake.sql(f"{merge} (id, shape) VALUES (s.id, s.shape)")
    found = {r["id"]: r["shape"] for r in read(t)}
    assert (found[2], found[9]) == (point(2, 2), b"\0")
    described = {r.col_name: r.data_type for r in spark_lake.sql("DESCRIBE db.t").collect()}
    assert (described["shape"], described["far"]) == ("geometry", "geometry('srid:3857')")


def bounds(table: neve.Table, name: str) -> tuple[Any, Any]:
    [file] = table.refresh().inspect.files().to_pylist()
    found = file["readable_metrics"][name]
    return found["lower_bound"], found["upper_bound"]


def test_bounds_are_the_corners_of_a_box(tmp_path: Path):
    t = neve.connect(tmp_path).create_table("db.t", SCHEMA, format_version=3)
    t.append(ROWS)
    assert bounds(t, "shape") == (struct.pack("<2d", -5, 0), struct.pack("<2d", 1, 9))
    assert bounds(t, "place.at") == (struct.pack("<2d", 1, 1), struct.pack("<2d", 4, 4))
    assert bounds(t, "globe") == (None, None), "a box on a globe may cross the line of the date"
    t.rewrite_data_files().option("rewrite-all", True).execute()
    assert bounds(t, "shape") == (struct.pack("<2d", -5, 0), struct.pack("<2d", 1, 9))


@pytest.mark.parametrize(
    ("shapes", "low", "high"),
    [
        ([point(1, 2, 3, kind=1001), point(0, 5, 9, kind=1001)], (0, 2, 3), (1, 5, 9)),
        ([point(1, 2, 3, 4, kind=3001)], (1, 2, 3, 4), (1, 2, 3, 4)),
        ([None, None], None, None),
        ([b"not well-known binary"], None, None),
    ],
)
def test_bounds_with_heights_and_measures(tmp_path: Path, shapes: list[Any], low: Any, high: Any):
    t = neve.connect(tmp_path).create_table("db.t", SCHEMA.select("id", "shape"), format_version=3)
    t.append([{"id": n, "shape": shape} for n, shape in enumerate(shapes)])
    expected = tuple(ends and struct.pack(f"<{len(ends)}d", *ends) for ends in (low, high))
    assert bounds(t, "shape") == expected
    assert [r["shape"] for r in read(t)] == shapes


def test_files_have_the_types_of_parquet(tmp_path: Path):
    t = neve.connect(tmp_path).create_table("db.t", SCHEMA, format_version=3)
    t.append(ROWS)
    [path] = t.inspect.files()["file_path"].to_pylist()
    shown = str(pq.ParquetFile(local(path)).schema)
    for text in (
        "binary field_id=2 shape (Geometry(crs=))",
        "binary field_id=3 far (Geometry(crs=srid:3857))",
        "binary field_id=4 globe (Geography(crs=, algorithm=spherical))",
        "binary field_id=5 exact;",
        "binary field_id=8 at (Geometry(crs=))",
        "binary field_id=9 element (Geometry(crs=))",
    ):
        assert text in shown, shown


@pytest.mark.parametrize("condition", ["shape = X'00'", "shape > 'a'", "shape IN (X'00', X'01')"])
def test_shapes_are_not_compared_outside_spark(tmp_path: Path, condition: str):
    t = neve.connect(tmp_path).create_table("db.t", SCHEMA, format_version=3)
    t.append(ROWS)
    with pytest.raises(NeveError, match=r"condition|shape"):
        t.scan(condition).to_arrow(engine="arrow")

"""Tables with shapes that Spark with Iceberg writes: both engines agree after every change."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from pyiceberg.types import GeometryType

from neve.plan.row_change import Mode
from tests.peers.engine_comparison import SharedLake

ROWS = {n: struct.pack("<BIdd", 1, 1, n, -n) if n % 3 else None for n in range(1, 9)}


def inserted(ids: range) -> str:
    """The rows as Spark's SQL; 4326 is the default system of coordinates."""
    shapes = {n: f"st_setsrid(st_geomfromwkb(X'{ROWS[n].hex()}'), 4326)" if ROWS[n] else "NULL" for n in ids}
    return ", ".join(f"({n}, {shape})" for n, shape in shapes.items())


@pytest.fixture
def name(shared_lake: SharedLake) -> Iterator[str]:
    spark = shared_lake.spark
    spark.sql("SET spark.sql.geospatial.enabled = true")
    spark.sql(
        "CREATE TABLE db.shapes (id bigint, shape geometry(4326)) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    for ids in (range(1, 5), range(5, 9)):
        spark.sql(f"INSERT INTO db.shapes VALUES {inserted(ids)}")
    yield "db.shapes"
    shared_lake.lake.drop_table("db.shapes", purge=True)
    spark.sql("SET spark.sql.geospatial.enabled = false")


def agreed(shared_lake: SharedLake, name: str) -> dict[int, bytes | None]:
    """The rows; both engines have the same."""
    ours = shared_lake.lake.table(name).scan().to_arrow(engine="arrow").to_pylist()
    theirs = shared_lake.spark.sql(f"SELECT id, st_asbinary(shape) AS shape FROM {name}").to_pylist()
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    return {row["id"]: row["shape"] for row in sorted(ours, key=lambda row: row["id"])}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_both_engines_agree_after_every_change(shared_lake: SharedLake, name: str, mode: Mode):
    t = shared_lake.lake.table(name)
    assert isinstance(t.schema.find_type("shape"), GeometryType)
    assert agreed(shared_lake, name) == ROWS
    t.delete().where("id = 2").mode(mode).execute()
    t.update().set("id", "id + 100").where("id = 4").mode(mode).execute()
    expected = {n if n != 4 else 104: shape for n, shape in ROWS.items() if n != 2}
    assert agreed(shared_lake, name) == dict(sorted(expected.items()))
    t.rewrite_data_files().option("rewrite-all", True).execute()
    assert agreed(shared_lake, name) == dict(sorted(expected.items()))
    shared_lake.spark.sql(f"DELETE FROM {name} WHERE id = 5")
    expected.pop(5)
    assert agreed(shared_lake, name) == dict(sorted(expected.items()))
    assert shared_lake.lake.table(name).verify().is_sound

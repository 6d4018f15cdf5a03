"""Tables with variants: they are created, written, changed, compacted and read, at any depth, in both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import neve
from neve.errors import NeveError, UserError
from tests.support.coverage import on_versions
from tests.support.tables import local

COLUMNS = "id bigint, v variant, s struct<w: variant>, l array<variant>, m map<string, variant>"
TEXTS = ('{"a": 1, "b": {"c": [1, 2.5, null]}}', "[1, true]", None, '"text"', '{"b": "%s"}' % ("y" * 500), "null")
SHOWN = "SELECT id, to_json(v) AS v, to_json(s) AS s, to_json(l) AS l, to_json(m) AS m FROM {name} ORDER BY id"


def rows_of(lake: neve.Lake, first: int = 0) -> DataFrame:
    given = pa.table({"id": range(first, first + len(TEXTS)), "j": pa.array(TEXTS)})
    v = "parse_json(j)"
    return (
        lake.spark()
        .createDataFrame(given)
        .selectExpr("id", f"{v} AS v", f"named_struct('w', {v}) AS s", f"array({v}, NULL) AS l", f"map('k', {v}) AS m")
    )


def shown(lake: neve.Lake, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in lake.sql(SHOWN.format(name=name)).collect()]


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path)


def created(lake: neve.Lake, version: int, partitioned: str = "") -> neve.Table:
    lake.sql(f"CREATE TABLE db.t ({COLUMNS}) {partitioned} TBLPROPERTIES ('format-version' = '{version}')")
    return lake.table("db.t")


@on_versions(3, 4)
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_are_written_changed_and_compacted(lake: neve.Lake, version: int, mode: Any):
    table = created(lake, version, "PARTITIONED BY (bucket(3, id))")
    table.append(rows_of(lake))
    expected = [tuple(row) for row in rows_of(lake).selectExpr(*("id", *(f"to_json({c})" for c in "vslm"))).collect()]
    assert shown(lake, "db.t") == expected
    for path in table.inspect.files()["file_path"].to_pylist():
        assert str(pq.read_metadata(local(path)).schema).count("(Variant(1))") == 4
    table.evolve_partitions(drop=["id_bucket"])
    table.refresh().update().set("v", "parse_json('7')").where("id = 1").mode(mode).execute()
    table.refresh().update().set("id", "id + 10").where("variant_get(v, '$.a', 'int') = 1").mode(mode).execute()
    table.refresh().delete().where("id = 3").mode(mode).execute()
    table.refresh().rewrite_data_files().upgrade_spec().option("rewrite-all", True).verify_rows().execute()
    after = [(i, "7" if i == 1 else v, *rest) for i, v, *rest in expected if i not in (0, 3)]
    assert shown(lake, "db.t") == [*after, (10, *expected[0][1:])]
    assert table.refresh().verify().is_sound


def test_arrow_tables_come_out_and_go_in(lake: neve.Lake):
    table = created(lake, 3)
    table.append(rows_of(lake))
    by_spark, by_arrow = (table.refresh().scan().to_arrow(engine=engine).sort_by("id") for engine in ("spark", "arrow"))
    assert by_spark.to_pylist() == by_arrow.to_pylist()
    assert by_arrow["v"].to_pylist()[3] == {"value": b"\x11text", "metadata": b"\x01\x00\x00"}
    before = shown(lake, "db.t")
    table.append(by_arrow)
    table.refresh().append(by_arrow.drop_columns(["v"]).append_column("v", by_arrow["v"].cast(canonical())))
    assert shown(lake, "db.t") == sorted([*before] * 3, key=lambda row: row[0])
    assert table.refresh().scan("v IS NULL", columns=["id"]).count() == 3
    nulls = [dict(counts) for counts in table.refresh().inspect.files()["null_value_counts"].to_pylist()]
    assert sum(counts[table.schema.find_field("v").field_id] for counts in nulls) == 3


def canonical() -> pa.DataType:
    """The struct of Arrow's own variants, without the mark of Spark's."""
    return pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])


def test_a_column_of_variants_is_added_to_a_table(lake: neve.Lake):
    lake.sql("CREATE TABLE db.t (id bigint) TBLPROPERTIES ('format-version' = '3')")
    lake.table("db.t").append([{"id": 1}])
    lake.sql("ALTER TABLE db.t ADD COLUMN v variant")
    lake.sql("INSERT INTO db.t VALUES (2, parse_json('[2]'))")
    lake.sql("MERGE INTO db.t USING (SELECT 1 AS id, parse_json('1') AS v UNION ALL SELECT 3, NULL) u ON t.id = u.id "
             "WHEN MATCHED THEN UPDATE SET v = u.v WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    rows = lake.sql("SELECT id, to_json(v) AS v FROM db.t ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "1"), (2, "[2]"), (3, None)]
    lake.sql("CREATE TABLE db.u USING iceberg TBLPROPERTIES ('format-version' = '3') AS SELECT * FROM db.t")
    assert str(lake.table("db.u").schema.find_type("v")) == "variant"


def test_values_that_are_no_variants_are_refused(lake: neve.Lake):
    table = created(lake, 3)
    for rows in ([{"id": 1, "v": "text"}], [{"id": 1, "v": {"value": b"\0"}}], [{"id": 1, "l": [1]}]):
        with pytest.raises(UserError, match="of type variant"):
            table.append(rows)
    half = pa.array([{"value": None, "metadata": b"\x01\0\0"}], canonical())
    with pytest.raises(UserError, match="Null in required column 'v'"):
        table.append(pa.table({"id": [1], "v": half}))
    with pytest.raises(NeveError, match="variant"):
        lake.sql(f"CREATE TABLE db.old ({COLUMNS}) TBLPROPERTIES ('format-version' = '2')")
    assert lake.tables("db") == ["db.t"]
    assert table.refresh().scan().count() == 0

"""Tables with variants that Spark with Iceberg writes, whole or shredded: both engines agree after every change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow.parquet as pq
import pytest

from neve import Table
from neve.plan.row_change import Mode
from tests.peers.engine_comparison import SharedLake
from tests.support.tables import local

NAMES = count()
VALUES = (
    (1, '{"a": 1, "b": {"c": [1, 2.5, null, "x"]}}'),
    (2, "[1, true, null]"),
    (3, '"text"'),
    (4, None),
    (5, '{"a": "now a text", "long": "%s"}' % ("y" * 200)),
    (6, "null"),
)
OBJECTS = tuple((i, text if i in (1, 4, 5) else f'{{"a": {i}}}') for i, text in VALUES)


@pytest.fixture(params=[False, True], ids=["whole", "shredded"])
def table(request: pytest.FixtureRequest, shared_lake: SharedLake) -> Iterator[Table]:
    name = f"db.variants{next(NAMES)}"
    properties = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    shredded = f"'write.parquet.shred-variants' = '{request.param}'"
    columns = "id bigint, v variant, s struct<w: variant>"
    shared_lake.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ({properties}, {shredded})")
    values = OBJECTS if request.param else VALUES  # Iceberg itself cannot read other values that it has shredded
    for some in (values[:3], values[3:]):
        rows = ", ".join(f"({i}, {parsed(text)}, named_struct('w', {parsed(text)}))" for i, text in some)
        shared_lake.spark.sql(f"INSERT INTO {name} VALUES {rows}")
    table = shared_lake.lake.table(name)
    path = local(table.inspect.files()["file_path"].to_pylist()[0])
    assert ("typed_value" in str(pq.read_metadata(path).schema)) == request.param
    yield table
    shared_lake.lake.drop_table(name, purge=True)


def parsed(text: str | None) -> str:
    return "CAST(NULL AS variant)" if text is None else f"parse_json('{text}')"


@pytest.fixture(autouse=True)
def _whole_variants(shared_lake: SharedLake) -> Iterator[None]:
    """Without compiled code, as in these tests, Spark 4.1 cannot read parts of variants."""
    name, spark = "spark.sql.variant.pushVariantIntoScan", shared_lake.lake.spark()
    before = spark.conf.get(name)
    spark.conf.set(name, "false")
    yield
    spark.conf.set(name, before)


def agreed(shared_lake: SharedLake, table: Table) -> list[int]:
    """The ids of the rows; both engines have the same values."""
    query = f"SELECT id, to_json(v) AS v, to_json(s.w) AS w, variant_get(v, '$.a', 'string') AS a FROM {table.name}"
    ours = [row.asDict() for row in shared_lake.lake.sql(query).collect()]
    theirs = shared_lake.spark.sql(query).to_pylist()
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    return sorted(row["id"] for row in ours)


def test_spark_reads_them(shared_lake: SharedLake, table: Table):
    assert agreed(shared_lake, table) == [1, 2, 3, 4, 5, 6]
    assert str(table.schema.find_type("v")) == "variant"
    frame = table.to_spark().where("v IS NOT NULL").selectExpr("id", "schema_of_variant(v) AS kind")
    assert len(frame.collect()) == 5
    described = {r.col_name: r.data_type for r in shared_lake.lake.sql(f"DESCRIBE {table.name}").collect()}
    assert described["v"] == "variant"


def test_other_columns_rows_and_metadata_change(shared_lake: SharedLake, table: Table):
    assert sorted(table.scan(columns=["id"]).to_arrow(engine="arrow")["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    table.delete().where("id IN (2, 5)").mode("merge-on-read").execute()
    if table.context.metadata.properties["write.parquet.shred-variants"] == "True":  # Iceberg fails on its own file
        table.delete().where("id = 6").mode("merge-on-read").execute()
    else:
        shared_lake.spark.sql(f"DELETE FROM {table.name} WHERE id = 6")
    assert agreed(shared_lake, table) == [1, 3, 4]
    table.evolve_partitions(add=["bucket(2, id)"])
    table.refresh().rewrite_manifests().execute()
    table.expire_snapshots().retain_last(1).older_than(1 << 42).execute()
    shared_lake.spark.sql(f"INSERT INTO {table.name} VALUES (9, parse_json('9'), NULL)")
    assert agreed(shared_lake, table) == [1, 3, 4, 9]
    assert table.refresh().verify(data=False).is_sound
    assert table.compute_table_stats().distinct_values == {"id": 4}


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_rows_with_them_are_changed_and_compacted(shared_lake: SharedLake, table: Table, mode: Mode):
    new = """parse_json('{"a": "new", "deep": [{"x": 1.25}, null]}')"""
    table.update().set("v", new).set("s", f"named_struct('w', {new})").where("id IN (2, 4)").mode(mode).execute()
    table.refresh().update().set("id", "id + 10").where("id = 5").mode(mode).execute()
    assert agreed(shared_lake, table) == [1, 2, 3, 4, 6, 15]
    name = table.name
    source = f"SELECT id + 1 AS id, v, s FROM {name} WHERE id IN (1, 15)"
    shared_lake.lake.sql(f"MERGE INTO {name} t USING ({source}) u ON t.id = u.id "
                         "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    assert agreed(shared_lake, table) == [1, 2, 3, 4, 6, 15, 16]
    table.refresh().evolve_partitions(add=["bucket(2, id)"])
    result = table.refresh().rewrite_data_files().upgrade_spec().option("rewrite-all", True).verify_rows().execute()
    assert result.files_added
    assert agreed(shared_lake, table) == [1, 2, 3, 4, 6, 15, 16]
    shared_lake.spark.sql(f"UPDATE {name} SET v = parse_json('[7]') WHERE id = 6")
    shared_lake.spark.sql(f"INSERT INTO {name} SELECT id + 100, v, s FROM {name}")
    table.refresh().rewrite_data_files().sort("id").option("rewrite-all", True).execute()
    assert agreed(shared_lake, table) == [1, 2, 3, 4, 6, 15, 16, 101, 102, 103, 104, 106, 115, 116]
    assert table.refresh().verify().is_sound


def test_both_engines_read_what_is_written_here(shared_lake: SharedLake, table: Table):
    rows = shared_lake.lake.sql(f"SELECT id + 50 AS id, s.w AS v, named_struct('w', v) AS s FROM {table.name}")
    table.append(rows)
    table.refresh().append(table.scan("id < 3").to_arrow(engine="arrow"))
    assert agreed(shared_lake, table) == [1, 1, 2, 2, 3, 4, 5, 6, 51, 52, 53, 54, 55, 56]

"""Tables with variants that Spark with Iceberg writes: they are read with Spark, and nothing here writes variants."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow.parquet as pq
import pytest

from neve import Table
from neve.errors import UnsupportedFeature
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


def test_what_would_write_them_is_refused_and_changes_nothing(shared_lake: SharedLake, table: Table):
    head = table.context.snapshot()
    for act in (
        lambda: table.append([{"id": 1}]),
        lambda: table.rewrite_data_files().option("rewrite-all", True).execute(),
        lambda: table.update().set("id", "0").where("id = 1").execute(),
        lambda: table.scan().to_arrow(engine="arrow"),
    ):
        with pytest.raises(UnsupportedFeature, match="variant"):
            act()
    assert table.refresh().context.snapshot() == head

"""Tables of the lake inside SQL text: found, pinned to one state, and gone from Spark afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UnknownName, UserError
from neve.model.metadata_table_names import METADATA_TABLES
from neve.ops.sql_views import register_views, sibling_table_lookup
from tests.support.spark_sessions import names_in


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> neve.Lake:
    lake = neve.connect(tmp_path_factory.mktemp("views"), spark=spark)
    orders = lake.create_table("db.orders", "id bigint, region string", ["region"])
    orders.append([{"id": 1, "region": "eu"}])
    orders.create_tag("v1").create_branch("audit")
    orders.append([{"id": 2, "region": "us"}])
    orders.append([{"id": 9, "region": "us"}], branch="audit")
    lake.create_table("db.empty", "id bigint")
    return lake


@pytest.fixture
def views(lake: neve.Lake):
    find = sibling_table_lookup(lake.table("db.empty").context)
    return lambda *texts: register_views(find, lake.spark, *texts)


def ids(lake: neve.Lake, views, text: str) -> list[int]:
    with views(text) as made:
        frame = lake.spark().sql(made.single_text)
    return sorted(row[0] for row in frame.collect())


def snapshots(lake: neve.Lake) -> list[int]:
    return [s.snapshot_id for s in lake.table("db.orders").context.metadata.snapshots]


def test_a_text_reads_tables_of_the_lake_and_views_of_the_caller(lake, views):
    lake.spark().createDataFrame([(2, "two")], "id bigint, word string").createOrReplaceTempView("words")
    text = "SELECT orders.id FROM db.orders JOIN words w ON db.orders.id = w.id"
    assert ids(lake, views, text) == [2]
    assert ids(lake, views, "SELECT id FROM db.empty") == []
    lake.spark().catalog.dropTempView("words")


def test_no_view_is_left_behind(lake, views):
    before = names_in(lake.spark())
    assert ids(lake, views, "SELECT id FROM db.orders") == [1, 2]
    with pytest.raises(UnknownName, match="'nope'"):
        views("SELECT * FROM db.orders JOIN db.orders VERSION AS OF 'nope' USING (id)")
    assert names_in(lake.spark()) == before


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("db.orders", [1, 2]),
        ("db.orders VERSION AS OF 'v1'", [1]),
        ("db.orders VERSION AS OF 'audit'", [1, 9]),
        ("db.orders VERSION AS OF {first}", [1]),
        ("db.orders FOR SYSTEM_VERSION AS OF '{first}'", [1]),
        ("db.orders.branch_audit", [1, 9]),
        ("db.orders.tag_v1", [1]),
        ("db.orders TIMESTAMP AS OF '{then}'", [1]),
        ("db.orders TIMESTAMP AS OF TIMESTAMP '{then}' + INTERVAL 1 DAY", [1, 2]),
        ("db.orders TIMESTAMP AS OF TIMESTAMP '{then}' + INTERVAL 1 DAY 2 HOURS", [1, 2]),
        ("db.orders TIMESTAMP AS OF (SELECT TIMESTAMP '{then}')", [1]),
        ("db.orders TIMESTAMP AS OF (SELECT min(committed_at) FROM db.orders.snapshots)", [1]),
        ("db.orders TIMESTAMP AS OF coalesce((SELECT max(v) FROM VALUES (NULL) AS x(v)), now())", [1, 2]),
        ("local.db.orders", [1, 2]),
    ],
)
def test_a_name_says_which_state_is_meant(lake, views, table, found):
    metadata = lake.table("db.orders").context.metadata
    first = metadata.snapshots[0]
    then = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    place = table.format(first=first.snapshot_id, then=then).replace("local.", f"{lake.catalog.name}.")
    assert ids(lake, views, f"SELECT o.id FROM {place} AS o") == found


def test_what_was_read_is_said_with_its_snapshot(lake, views):
    text = "SELECT (SELECT count(*) FROM db.empty) FROM db.orders VERSION AS OF 'v1' a JOIN db.orders b ON a.id = b.id"
    with views(text) as made:
        read = [(t.context.name, t.snapshot and t.snapshot.snapshot_id) for t in made.tables]
        assert made.tables[0].is_of(lake.table("db.empty").context)
    first, second, _ = snapshots(lake)
    assert read == [("db.empty", None), ("db.orders", first), ("db.orders", second)]


def test_a_table_is_read_in_the_state_its_statement_has(lake, spark):
    old = lake.create_table("db.moving", "id bigint")
    old.append([{"id": 1}])
    find = sibling_table_lookup(old.context.refreshed())
    lake.table("db.moving").append([{"id": 2}])
    with register_views(find, lake.spark, "SELECT id FROM db.moving") as made:
        assert spark.sql(made.single_text).count() == 1


def test_texts_share_their_views(lake, views):
    with views("id IN (SELECT id FROM db.orders)", "(SELECT max(id) FROM db.orders)") as made:
        assert len(made.view_names) == len(made.tables) == 1
        assert all(made.view_names[0] in text for text in made.texts)


def test_a_text_without_tables_needs_no_spark(lake):
    def refuse() -> SparkSession:
        raise AssertionError("Spark was asked for")

    with register_views(
        sibling_table_lookup(lake.table("db.empty").context), refuse, "id > 1 AND s IN (SELECT 1 FROM v)"
    ) as made:
        assert made.single_text == "id > 1 AND s IN (SELECT 1 FROM v)"


@pytest.mark.parametrize("view", METADATA_TABLES)
def test_metadata_is_read_like_a_table(lake, views, view):
    expected = getattr(lake.table("db.orders").inspect, view)()
    with views(f"SELECT * FROM db.orders.{view}") as made:
        found = lake.spark().sql(made.single_text)
    assert found.columns == expected.column_names
    assert found.toArrow().num_rows == expected.num_rows


def test_metadata_has_a_past_too(lake, views):
    assert ids(lake, views, "SELECT record_count FROM db.orders.files VERSION AS OF 'v1'") == [1]
    assert ids(lake, views, "SELECT record_count FROM db.orders.files") == [1, 1]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("db.orders VERSION AS OF 5", "Unknown snapshot 5"),
        ("db.orders.branch_nope", "Unknown branch or tag 'nope'"),
        ("db.orders.tag_v1 VERSION AS OF 'audit'", "already says"),
        ("db.orders TIMESTAMP AS OF 'yesterday evening'", "not a time"),
        ("db.orders TIMESTAMP AS OF CAST(NULL AS timestamp)", "it is null"),
        ("db.orders TIMESTAMP AS OF (SELECT max(at) FROM db.nope)", "not a time"),
        (
            "db.orders TIMESTAMP AS OF (SELECT now() FROM db.orders VERSION AS OF 'nope')",
            "Unknown branch or tag 'nope'",
        ),
        ("db.orders TIMESTAMP AS OF '1999-01-01'", "no snapshot as old"),
        ("db.orders.snapshots VERSION AS OF 'v1'", "it is a table of all snapshots"),
        ("db.orders.all_files TIMESTAMP AS OF '2999-01-01'", "it is a table of all snapshots"),
    ],
)
def test_a_state_that_is_not_there_is_refused(views, table, said):
    with pytest.raises(UserError, match=said):
        views(f"SELECT * FROM {table}")


# -- files that are left out ----------------------------------------------------------------------------------------

QUERIES = {  # a query, and how many of the four files of `big` it reads
    "SELECT count(*) FROM big WHERE day = 1": 1,
    "SELECT count(*) FROM big b WHERE b.DAY IN (1, 2) AND v % 2 = 0": 2,
    "SELECT count(*) FROM big WHERE v >= 300 OR day = 1": 2,
    "SELECT count(*) FROM big WHERE day = 1 OR rand() >= 0": 4,
    "SELECT count(*) FROM big JOIN small ON big.day = small.day WHERE big.day = 1": 1,
    "SELECT count(*) FROM big, small WHERE big.day = small.day AND big.day > 1 AND small.note = 'x'": 2,
    "SELECT count(*) FROM big LEFT JOIN small ON big.day = small.day WHERE big.day = 3 AND small.note IS NULL": 1,
    "SELECT count(*) FROM small LEFT JOIN big ON big.day = small.day WHERE big.day IS NULL": 4,
    "SELECT count(*) FROM small LEFT JOIN big ON big.day = small.day AND big.v < 0 WHERE big.v IS NULL": 4,
    "SELECT count(*) FROM small FULL JOIN big USING (day) WHERE big.v = 5": 4,
    "SELECT count(*) FROM small LEFT ANTI JOIN big ON big.day = small.day WHERE day = 1": 4,
    "SELECT count(*) FROM small WHERE day IN (SELECT day FROM big WHERE big.day < 2)": 2,
    "SELECT count(*) FROM small s WHERE NOT EXISTS (SELECT 1 FROM big WHERE big.day = s.day AND v IN (100, 150))": 1,
    "WITH x AS (SELECT * FROM big WHERE day = 2) SELECT count(*) FROM x JOIN big ON x.v = big.v WHERE big.day = 2": 1,
    "SELECT count(*) FROM big LATERAL VIEW explode(array(1, 2)) e AS day2 WHERE big.day = day2": 4,
    "SELECT count(*) FROM big TABLESAMPLE (1000 ROWS) WHERE day = 1": 4,
    "SELECT count(*) FROM big AS b(v, day) WHERE day = 5": 4,
    "SELECT count(*) FROM big HAVING count(*) > (SELECT count(*) FROM big WHERE day = 0)": 4,
}


@pytest.fixture(scope="module")
def wide(lake: neve.Lake) -> Iterator[neve.Lake]:
    big = lake.create_table("db.big", "day int, v int", ["day"])
    big.append([{"day": day, "v": 100 * day + at} for day in range(4) for at in range(100)])
    small = lake.create_table("db.small", "day int, note string")
    small.append(
        [{"day": 1, "note": "x"}, {"day": 3, "note": None}, {"day": 9, "note": "x"}, {"day": None, "note": "y"}]
    )
    for table in (big, small):  # the same rows without anything left out
        table.to_spark().createOrReplaceTempView(table.name.removeprefix("db."))
    yield lake
    lake.spark().catalog.dropTempView("big")
    lake.spark().catalog.dropTempView("small")


@pytest.mark.parametrize("query", QUERIES)
def test_files_without_rows_for_a_query_are_left_out_and_nothing_else(wide, views, query):
    spark = wide.spark()
    expected = [tuple(row) for row in spark.sql(query).collect()]
    text = re.sub(r"(FROM|JOIN|,) (big|small)\b", r"\1 db.\2", query)
    with views(text) as made:
        frame = spark.sql(made.single_text)
    assert [tuple(row) for row in frame.collect()] == expected
    assert len({path for path in frame.inputFiles() if "/big/" in path}) == QUERIES[query]

"""What statistics say about the rows that a statement will change, and which key of a MERGE is looked up by them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import neve
from neve import Table
from neve.ops.rows.merge_source import open_merge_source
from neve.plan.row_estimate import count_distinct_values
from neve.predicate.column_names import find_equalities
from tests.support.tables import sorted_rows

ROWS = [{"id": i, "region": ("eu", "us")[i % 2], "n": i % 10} for i in range(200)]


@pytest.fixture
def table(spark_lake: neve.Lake) -> Table:
    t = spark_lake.create_table("db.t", "id bigint, region string, n int", ["bucket(4, id)"])
    t.append(ROWS)
    return t.refresh()


@pytest.mark.parametrize(
    ("where", "expects"),
    [
        ("id = 7", "about 1 row: id has 200 distinct values"),
        ("n IN (1, 2, 3)", "about 60 rows: n has 10 distinct values"),
        ("region = 'eu' AND n = 4", "about 10 rows: region has 2 distinct values, n has 10 distinct values"),
        ("id = 7 OR n = 4", "about 21 rows: id has 200 distinct values, n has 10 distinct values"),
        ("n = 4 AND id > 100", "about 20 rows: n has 10 distinct values"),
        ("n IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", "about 200 rows: n has 10 distinct values"),
        ("(n = 4 OR id > 100) AND region = 'eu'", "about 100 rows: region has 2 distinct values"),
        ("id > 100", None),
        ("n = 4 OR id > 100", None),
        ("n IS NULL", None),
    ],
)
def test_a_plan_says_how_many_rows_it_expects(table: Table, where: str, expects: str | None):
    assert "expects" not in table.delete().where(where).explain()
    table.compute_table_stats()
    lines = [line.strip() for line in table.delete().where(where).explain().splitlines()]
    found = [line.removeprefix("expects").strip() for line in lines if line.startswith("expects")]
    assert found == ([] if expects is None else [expects])


def test_the_newest_statistics_of_a_column_count(table: Table):
    table.compute_table_stats()
    table.append([{"id": i, "region": "apac", "n": 0} for i in range(1000, 1150)])
    table.compute_table_stats("id")
    counts = count_distinct_values(table.refresh().context.metadata)
    assert counts[1] == pytest.approx(350, rel=0.05) and (counts[2], counts[3]) == (2, 10)
    assert "about 1 row:" in table.delete().where("id = 7").explain()


def test_statistics_of_a_much_smaller_table_do_not_count(table: Table):
    table.compute_table_stats()
    table.append([{"id": i, "region": "apac", "n": 0} for i in range(1000, 2000)])
    assert not count_distinct_values(table.refresh().context.metadata)
    assert "expects" not in table.delete().where("id = 7").explain()


def test_a_merge_says_how_many_rows_it_expects(table: Table):
    table.compute_table_stats()
    source = [{"id": i, "n": -1} for i in range(50)]
    merge = table.merge(source, "t.id = s.id").when_matched_update({"n": "s.n"})
    assert "expects    about 50 rows: id has 200 distinct values" in merge.explain()
    assert merge.execute().rows_updated == 50


@pytest.mark.parametrize(
    ("keys", "looked_up"),
    [
        # Without statistics, the one with more values in the source: n. But the table has these 10 of n in every row.
        ({"id": [3, 3, 3, 3, 3, 3, 3, 3, 3, 3], "n": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}, "id"),
        ({"id": list(range(200)), "n": [4] * 200}, "n"),
        ({"id": list(range(200)), "n": [i % 10 for i in range(200)]}, None),  # every row of the table has both
    ],
)
def test_the_key_that_rules_out_most_rows_is_looked_up(table: Table, keys: dict[str, Any], looked_up: str | None):
    on = "t.id = s.id AND t.n = s.n"

    def key_filter() -> Any:
        context = table.refresh().context
        schema = context.metadata.schema()
        equalities, are_all = find_equalities(on, "t")
        with open_merge_source(context, pa.table(keys), has_columns=False) as source:
            counts = count_distinct_values(context.metadata)
            found = source.keys(equalities, schema, "s", are_all=are_all, distinct_values=counts)
            return found and found.key_filter and schema.find_column_name(found.key_filter.field_id)

    assert key_filter() in ("id", "n")
    table.compute_table_stats()
    assert key_filter() == looked_up
    merge = table.merge(pa.table(keys), on).when_matched_update({"region": "'x'"})
    merge.execute()
    pairs = {*zip(keys["id"], keys["n"], strict=True)}
    expected = [{**row, "region": "x"} if (row["id"], row["n"]) in pairs else row for row in ROWS]
    assert sorted_rows(table) == expected

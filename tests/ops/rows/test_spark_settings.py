"""What the session says about how text is read: Spark and the planner never read it in two ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import neve
from neve import Table
from neve.errors import UserError
from tests.support.tables import ids_of

ROWS = [{"id": 0, "region": "eu"}, {"id": 1, "region": "us"}, {"id": 2, "region": "a\\tb"}]
QUOTED, ESCAPED = "spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.parser.escapedStringLiterals"


@pytest.fixture
def table(spark_lake: neve.Lake) -> Table:
    made = spark_lake.create_table("db.t", "id bigint, region string", ["region"])
    made.append(ROWS)
    return made


@pytest.fixture
def turned_on(spark: SparkSession) -> Iterator[Callable[..., None]]:
    before = {name: spark.conf.get(name, None) for name in ("spark.sql.ansi.enabled", QUOTED, ESCAPED)}
    yield lambda *names: [spark.conf.set(name, "true") for name in names]
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.mark.parametrize(("where", "left"), [("\"region\" <> 'eu'", [0]), ("\"region\" = 'eu'", [1, 2])])
def test_names_in_double_quotes_are_names(table: Table, turned_on: Any, where: str, left: list[int]):
    turned_on("spark.sql.ansi.enabled", QUOTED)
    table.delete().where(where).execute()
    assert ids_of(table.refresh()) == left


def test_names_in_double_quotes_are_names_in_a_merge_and_a_query(spark_lake: neve.Lake, table: Table, turned_on: Any):
    turned_on("spark.sql.ansi.enabled", QUOTED)
    assert [r.id for r in spark_lake.sql("SELECT id FROM db.t WHERE \"region\" = 'us'").collect()] == [1]
    merge = table.merge([{"k": "us"}], on='t."region" = s.k AND "region" = \'us\'')
    assert merge.when_matched_delete().execute().rows_deleted == 1
    assert ids_of(table.refresh()) == [0, 2]


@pytest.mark.parametrize(("is_on", "left"), [(True, [0, 1]), (False, [0, 1, 2])])
def test_a_backslash_is_itself_where_the_session_says_so(table: Table, turned_on: Any, is_on: bool, left: list[int]):
    turned_on(*([ESCAPED] if is_on else []))
    table.delete().where("region = 'a\\tb'").execute()
    assert ids_of(table.refresh()) == left


@pytest.mark.parametrize("given", ["to_json(struct(*))", "to_json(struct(t.*))", lambda: F.to_json(F.struct("*"))])
def test_all_columns_at_once_would_be_more_than_the_table_has(table: Table, given: Any):
    value = given() if callable(given) else given
    for statement in (
        table.update().set("region", value),
        table.delete().where(f"{value} = 'x'" if isinstance(value, str) else value == "x"),
    ):
        with pytest.raises(UserError, match=r"'\*' has no meaning here.*Name the columns|Unknown column 't\.\*'"):
            statement.execute()
    merge = table.merge([{"id": 1}], on="t.id = s.id").when_matched_update({"region": value})
    with pytest.raises(UserError, match=r"'\*' has no meaning here"):
        merge.execute()
    assert table.update().set("region", "(SELECT cast(count(*) AS string) FROM db.t)").execute().rows_updated == 3

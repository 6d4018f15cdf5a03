"""A session that has its writes audited stages them, or sends them to a branch: main shows them once published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

import neve
from neve import Table
from neve.errors import UnsupportedFeature, UserError
from tests.support.tables import ids_of

WRITES: dict[str, tuple[Callable[[Table], Any], list[int]]] = {  # with the ids after it on a table with 1, 2 and 3
    "append": (lambda t: t.append([{"id": 4}]), [1, 2, 3, 4]),
    "overwrite": (lambda t: t.overwrite([{"id": 4}], where="id < 9"), [4]),
    "overwrite_partitions": (lambda t: t.overwrite_partitions([{"id": 4}]), [4]),
    "update": (lambda t: t.update().set("id", "id + 10").where("id = 3").execute(), [1, 2, 13]),
    "delete": (lambda t: t.delete().where("id = 3").execute(), [1, 2]),
    "delete, merge-on-read": (lambda t: t.delete().where("id = 3").mode("merge-on-read").execute(), [1, 2]),
    "merge": (
        lambda t: (
            t.merge([{"id": 4}, {"id": 3}], "t.id = s.id").when_matched_delete().when_not_matched_insert_all().execute()
        ),
        [1, 2, 4],
    ),
}
ON = {"write.wap.enabled": "true"}


@pytest.fixture
def audited(spark: SparkSession) -> Iterator[Callable[..., Any]]:
    """Set options of the session during a block."""

    @contextmanager
    def options(wap_id: str | None = None, branch: str | None = None) -> Iterator[None]:
        chosen = {"spark.wap.id": wap_id, "spark.wap.branch": branch}
        try:
            for name, value in chosen.items():
                if value is not None:
                    spark.conf.set(name, value)
            yield
        finally:
            for name in chosen:
                spark.conf.unset(name)

    return options


@pytest.fixture
def table(spark_lake: neve.Lake) -> Table:
    t = spark_lake.create_table("db.t", "id bigint", properties=ON)
    t.append([{"id": 1}, {"id": 2}, {"id": 3}])
    return t


@pytest.mark.parametrize("verb", WRITES)
def test_every_write_of_rows_is_staged_under_the_id_of_the_session(table: Table, audited, verb: str):
    write, expected = WRITES[verb]
    head = table.iceberg.metadata.current_snapshot_id
    with audited("nightly"):
        staged = write(table).snapshot_id
        assert ids_of(table) == [1, 2, 3], "the session itself reads main"
    snapshot = table.iceberg.metadata.snapshot_by_id(staged)
    assert snapshot.summary.additional_properties["wap.id"] == "nightly" and snapshot.parent_snapshot_id == head
    assert table.iceberg.metadata.current_snapshot_id == head and [*table.iceberg.metadata.refs] == ["main"]
    assert len(table.inspect.history()) == 1 and ids_of(table, snapshot_id=staged) == expected
    assert table.publish_changes("nightly").current_snapshot_id == staged
    assert ids_of(table) == expected and table.verify().is_sound


@pytest.mark.parametrize("verb", WRITES)
def test_every_write_of_rows_goes_to_the_branch_of_the_session(table: Table, audited, verb: str):
    write, expected = WRITES[verb]
    with audited(branch="audit"):
        write(table)
        assert ids_of(table) == expected, "reads follow the branch, once it exists"
        assert ids_of(table, ref="main") == [1, 2, 3]
        table.append([{"id": 5}])
        assert table.scan().to_spark().count() == len(expected) + 1
    assert ids_of(table) == [1, 2, 3] and ids_of(table, ref="audit") == sorted([*expected, 5])
    assert table.fast_forward("main", "audit").verify().is_sound


def test_statements_follow_the_session(spark_lake: neve.Lake, table: Table, audited):
    def rows(query: str) -> list[int]:
        return sorted(row.id for row in spark_lake.sql(query).collect())

    with audited(branch="audit"):
        assert rows("SELECT * FROM db.t") == [1, 2, 3], "the branch does not exist yet"
        spark_lake.sql("INSERT INTO db.t VALUES (4)")
        spark_lake.sql("DELETE FROM db.t WHERE id IN (SELECT min(id) FROM db.t)")
        spark_lake.sql(
            "MERGE INTO db.t USING db.t AS s ON t.id = s.id + 10 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id + 10)"
        )
        assert rows("SELECT * FROM db.t") == [2, 3, 4, 12, 13, 14]
        assert rows("SELECT * FROM db.t VERSION AS OF 'main'") == [1, 2, 3]
    assert rows("SELECT * FROM db.t") == [1, 2, 3]
    with audited("sql"):
        spark_lake.sql("INSERT INTO db.t VALUES (5)")
        assert rows("SELECT * FROM db.t") == [1, 2, 3]
        plan = spark_lake.sql("EXPLAIN INSERT INTO db.t VALUES (5)")
        assert "Append to db.t, staged as 'sql'" in str(plan.collect())
    plan = spark_lake.sql("EXPLAIN CALL system.publish_changes('db.t', 'sql')")
    assert "Move main" in str(plan.collect())
    done = spark_lake.sql("CALL system.publish_changes(table => 'db.t', wap_id => 'sql')")
    assert done.output_rows.to_pylist() == [
        {"source_snapshot_id": done.source_snapshot_id, "current_snapshot_id": done.source_snapshot_id}
    ]
    assert rows("SELECT * FROM db.t") == [1, 2, 3, 5]


def test_a_table_without_the_property_is_written_as_ever(spark_lake: neve.Lake, audited):
    table = spark_lake.create_table("db.plain", "id bigint")
    with audited("nightly", "audit"):
        table.append([{"id": 1}, {"id": 2}, {"id": 3}])
        for write, _ in WRITES.values():
            write(table)
        assert len(table.inspect.history()) > 4 and [*table.iceberg.metadata.refs] == ["main"]


def test_what_contradicts_itself_is_refused(table: Table, audited):
    table.create_branch("side")
    with audited("nightly", "audit"):
        for act in (
            lambda: table.append([{"id": 4}]),
            lambda: table.delete().where("id = 1").execute(),
            table.to_arrow,
        ):
            with pytest.raises(UserError, match=r"both spark.wap.id \('nightly'\) and spark.wap.branch \('audit'\)"):
                act()
    with audited("nightly"), pytest.raises(UserError, match=r"branch 'side' .* as 'nightly' too, as spark.wap.id"):
        table.append([{"id": 4}], branch="side")
    with pytest.raises(UserError, match=r"branch 'side' .* as 'nightly' too, as stage"):
        table.delete().where("id = 1").branch("side").stage("nightly").execute()
    with pytest.raises(UserError, match="an id that is not empty"):
        table.append([{"id": 4}], stage=" ")
    table.create_tag("old")
    with audited(branch="old"), pytest.raises(UserError, match=r"'old'.* is a tag"):
        table.append([{"id": 4}])
    assert ids_of(table) == [1, 2, 3] and len(table.iceberg.metadata.snapshots) == 1


def test_a_named_branch_goes_before_the_branch_of_the_session(table: Table, audited):
    table.create_branch("side")
    with audited(branch="audit"):
        table.append([{"id": 4}], branch="side")
        assert ids_of(table, ref="side") == [1, 2, 3, 4] and "audit" not in table.iceberg.metadata.refs


def test_a_verb_may_stage_without_a_session_that_does(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.plain", "id bigint")
    table.append([{"id": 1}], stage="a")
    table.append([{"id": 2}])
    table.update().set("id", "3").stage("b").execute()
    table.publish_changes("b")
    table.publish_changes("a")
    assert ids_of(table) == [1, 3]


def test_maintenance_is_not_staged(table: Table, audited):
    table.append([{"id": 4}])
    with audited("nightly"):
        assert table.rewrite_data_files().option("rewrite-all", "true").execute().files_rewritten == 2
        table.rewrite_manifests().execute()
    assert ids_of(table) == [1, 2, 3, 4] and len(table.inspect.files()) == 1


@pytest.mark.parametrize("options", [{"wap_id": "nightly"}, {"branch": "audit"}])
def test_a_replacement_of_the_table_cannot_be_staged(
    spark_lake: neve.Lake, table: Table, audited, options: dict[str, str]
):
    text = "CREATE OR REPLACE TABLE db.t USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true') AS SELECT 9L AS id"
    with audited(**options), pytest.raises(UnsupportedFeature, match=r"Cannot stage the replacement of table db\.t"):
        spark_lake.sql(text)
    assert ids_of(table) == [1, 2, 3]

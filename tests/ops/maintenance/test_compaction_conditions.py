"""The filter of a compaction: what cannot be evaluated takes files, and what is wrong is an error."""

from __future__ import annotations

import pytest

import neve
from neve.errors import UserError
from tests.support.coverage import on_versions


@pytest.fixture
def table(spark_lake: neve.Lake) -> neve.Table:
    table = spark_lake.create_table("db.t", "id bigint, name string, day date, at timestamp", ["day"])
    for id_ in (1, 2):
        table.append([{"id": id_, "name": "a", "day": None, "at": None}])
    return table.refresh()


@pytest.mark.parametrize(
    "condition",
    [
        "id = 'abc'",
        "day = 'some day'",
        "at > 'soon'",
        "id IN (1, 'x')",
        "no_such_function(id) = 1",
        "'x'",
        "1",
        "name",
        "id + day > 3",
        "upper(name) = 'A' AND id = 'abc'",
        "rand() < 0.5",
        "id = (SELECT max(id) FROM no.such_table)",
    ],
)
def test_a_wrong_filter_is_an_error(table: neve.Table, condition: str):
    rewrite = table.rewrite_data_files().where(condition).option("rewrite-all", True)
    for run in (rewrite.plan, rewrite.execute):
        with pytest.raises(UserError):
            run()
    assert table.refresh().context.metadata.current_snapshot_id == table.context.metadata.current_snapshot_id


@pytest.mark.parametrize(
    "condition", ["upper(name) = 'A'", "id = length(name)", "_file LIKE '%x%'", "id = (SELECT max(id) FROM db.t)"]
)
def test_a_filter_that_only_rows_can_decide_takes_the_files(table: neve.Table, condition: str):
    plan = table.rewrite_data_files().where(condition).option("rewrite-all", True).plan()
    assert plan.files == 2 and "only comparisons of columns with constants" in str(plan.diagnostics)


@on_versions(2, 3, 4)
@pytest.mark.parametrize("strategy", ["binpack", "sort", "zorder"])
def test_a_spec_is_kept_after_its_source_column_was_dropped(spark_lake: neve.Lake, version: int, strategy: str):
    table = spark_lake.create_table(
        "db.t", "id bigint, region string, name string", ["region", "bucket(4, name)"], format_version=version
    )
    for id_ in range(4):
        table.append([{"id": id_, "region": ["eu", "us"][id_ % 2], "name": "a"}])
    table.evolve_partitions(drop=["region", "bucket(4, name)"])
    with table.evolve_schema() as schema:
        schema.delete_column("region")
        schema.delete_column("name")
    rewrite = table.refresh().rewrite_data_files().keep_spec().option("rewrite-all", True)
    rewrite = {"binpack": rewrite, "sort": rewrite.sort("id"), "zorder": rewrite.zorder("id")}[strategy]
    before = {str(g.partition) for g in rewrite.plan().groups}
    done = rewrite.execute()
    files = table.refresh().scan().plan().files
    assert (done.files_rewritten, done.files_added, files.spec_ids()) == (4, 2, [0])
    assert {str(files.partition_key(row)) for row in range(2)} == before
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3] and table.verify().is_sound


@on_versions(3, 4)
def test_deletion_vectors_that_a_compaction_removes_are_counted(spark_lake: neve.Lake, version: int):
    table = spark_lake.create_table("db.t", "id bigint", format_version=version)
    for start in (0, 10, 20):
        table.append([{"id": start + n} for n in range(10)])
    table.delete().where("id % 10 = 3").mode("merge-on-read").execute()
    done = table.refresh().rewrite_data_files().option("rewrite-all", True).execute()
    summary = table.refresh().context.metadata.current_snapshot().summary.additional_properties
    assert done.delete_files_removed == int(summary["removed-delete-files"]) == 3

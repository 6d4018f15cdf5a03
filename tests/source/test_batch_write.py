"""Batch writes through the source, without Spark: one commit, and nothing left behind when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import neve
from neve.catalog.sql import SqlCatalogMixin
from neve.catalog.swap import MaybeSwapped, SwapStatus
from neve.errors import CommitConflict, CommitUnknown, TableError, UserError
from neve.ops.context import TableContext
from neve.source import batch_write as writing
from tests.source.test_streaming_write import files_in_table, files_on_disk
from tests.support.source_calls import source, task, travelled, write


def rows(*pairs: tuple[int, str]) -> pa.Table:
    ids, regions = [i for i, _ in pairs], [r for _, r in pairs]
    return pa.table({"id": pa.array(ids, pa.int64()), "region": pa.array(regions, pa.string())})


@pytest.fixture
def table(request: pytest.FixtureRequest, lake_dir: Path) -> neve.Table:
    lake, version = neve.connect(lake_dir), getattr(request, "param", 2)
    made = lake.create_table("db.t", "id bigint not null, region string", ["region"], format_version=version)
    made.append(rows((1, "eu"), (2, "us")))
    return made


def found(table: neve.Table, **at: object) -> list[tuple[int, str]]:
    return sorted((r["id"], r["region"]) for r in table.scan(**at).to_arrow().to_pylist())  # type: ignore[arg-type]


@pytest.mark.parametrize("table", [1, 2, 3, 4], indirect=True)
def test_tasks_append_in_one_commit(table: neve.Table, lake_dir: Path):
    write(lake_dir, rows((3, "eu"), (4, "us"), (5, "eu")), rows((6, "eu")), **{"snapshot-property.job": "night"})
    assert found(table) == [(1, "eu"), (2, "us"), (3, "eu"), (4, "us"), (5, "eu"), (6, "eu")]
    head = table.iceberg.metadata.current_snapshot()
    assert (len(table.iceberg.metadata.snapshots), head.summary.additional_properties["job"]) == (2, "night")
    assert not table.verify().findings


@pytest.mark.parametrize("table", [1, 2, 3, 4], indirect=True)
def test_overwrite_replaces_everything_a_condition_or_partitions(table: neve.Table, lake_dir: Path):
    write(lake_dir, rows((3, "eu")), overwrite=True, overwrite_where="region = 'eu'")
    assert found(table) == [(2, "us"), (3, "eu")]
    write(lake_dir, rows((4, "us"), (5, "asia")), overwrite=True, overwrite_mode="dynamic")
    assert found(table) == [(3, "eu"), (4, "us"), (5, "asia")]
    write(lake_dir, rows((6, "eu")), overwrite=True)
    assert found(table) == [(6, "eu")]


def test_overwrite_by_no_rows_empties_the_table(table: neve.Table, lake_dir: Path):
    write(lake_dir, rows(), overwrite=True)
    assert found(table) == []


def test_rows_outside_the_condition_are_refused_and_leave_no_file(table: neve.Table, lake_dir: Path):
    with pytest.raises(UserError, match="rejected"):
        write(lake_dir, rows((3, "us")), overwrite=True, overwrite_where="region = 'eu'")
    assert found(table) == [(1, "eu"), (2, "us")]
    assert files_on_disk(table) == files_in_table(table)


def test_a_write_to_a_branch(table: neve.Table, lake_dir: Path):
    table.create_branch("audit")
    write(lake_dir, rows((3, "eu")), branch="audit")
    assert (len(found(table)), len(found(table, ref="audit"))) == (2, 3)


def test_rows_that_cannot_be_stored_are_told_and_leave_no_file(table: neve.Table, lake_dir: Path):
    bad = pa.table({"id": pa.array([None], pa.int64()), "region": pa.array(["eu"])})
    with pytest.raises(UserError, match="Null in required column 'id'"):
        write(lake_dir, rows((3, "eu")), bad)
    assert found(table) == [(1, "eu"), (2, "us")]
    assert files_on_disk(table) == files_in_table(table)


def test_columns_that_cannot_be_stored_are_refused_before_any_task(table: neve.Table, lake_dir: Path):
    with pytest.raises(UserError, match="Missing column 'id'"):
        write(lake_dir, pa.table({"region": ["eu"]}))
    with pytest.raises(UserError, match="Unknown column 'regoin'"):
        write(lake_dir, pa.table({"id": [1], "regoin": ["eu"]}))


def test_a_task_that_failed_takes_the_files_of_the_others_with_it(table: neve.Table, lake_dir: Path):
    write(lake_dir, rows((3, "eu")), rows((4, "eu")), stops=True)
    left = files_on_disk(table) - files_in_table(table)
    assert len(left) == 1, "only the file of the task whose answer was lost"


def test_an_isolated_overwrite_meets_the_rows_that_came_meanwhile(
    table: neve.Table, lake_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    written = writing.TableWrite.collect_files

    def late(self: writing.TableWrite, *given: Any) -> Any:
        table.append(rows((9, "eu")))
        return written(self, *given)

    monkeypatch.setattr(writing.TableWrite, "collect_files", late)
    inside = {"overwrite_where": "region = 'eu'", "isolation_level": "serializable"}
    with pytest.raises(CommitConflict):
        write(lake_dir, rows((3, "eu")), overwrite=True, **inside)
    assert found(table) == [(1, "eu"), (2, "us"), (9, "eu")]


def test_a_commit_whose_answer_was_lost_keeps_its_files(
    table: neve.Table, lake_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """Spark aborts then: deleting what may be in the table would break it."""
    table.set_properties(**{"commit.status-check.num-retries": "0"})
    swap = SqlCatalogMixin.swap

    def lost(self: SqlCatalogMixin, *given: Any) -> Any:
        done = swap(self, *given)
        raise MaybeSwapped("connection lost", given[0].name(), None, None, done.metadata_location, given[2])

    monkeypatch.setattr(SqlCatalogMixin, "swap", lost)
    monkeypatch.setattr(SqlCatalogMixin, "swap_status", lambda *given: SwapStatus.OPEN)
    with pytest.raises(CommitUnknown):
        write(lake_dir, rows((3, "eu")))
    assert found(table) == [(1, "eu"), (2, "us"), (3, "eu")]
    assert not table.verify().findings


def test_options_that_contradict_each_other_are_refused(table: neve.Table, lake_dir: Path):
    with pytest.raises(UserError, match="needs mode"):
        write(lake_dir, rows((3, "eu")), overwrite_where="region = 'eu'")
    with pytest.raises(UserError, match="Choose one of overwrite-where"):
        write(lake_dir, rows((3, "eu")), overwrite=True, overwrite_where="id = 1", overwrite_mode="dynamic")
    with pytest.raises(UserError, match="Unknown overwrite mode 'all'"):
        write(lake_dir, rows((3, "eu")), overwrite=True, overwrite_mode="all")


def test_rows_for_a_table_that_was_made_anew_meanwhile_go_nowhere(table: neve.Table, lake_dir: Path):
    lake = neve.connect(lake_dir)
    schema = from_arrow_schema(rows((3, "eu")).schema)
    for overwrite in (False, True):
        writer = source(lake_dir).writer(schema, overwrite)
        answer = task(writer, rows((3, "eu")))
        lake.drop_table("db.t", purge=True)
        made = lake.create_table("db.t", "region string, id bigint")
        made.append(pa.table({"region": ["new"], "id": [9]}))
        with pytest.raises(TableError, match="created again"):
            travelled(writer).commit([answer])
        assert found(made.refresh()) == [(9, "new")]
        lake.drop_table("db.t", purge=True)
        lake.create_table("db.t", "id bigint, region string")


def test_a_verb_does_not_write_to_a_table_that_was_made_anew_meanwhile(
    table: neve.Table, lake_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    lake, publish = neve.connect(lake_dir), TableContext.commit

    def meanwhile(*asked: Any, **options: Any) -> Any:
        lake.drop_table("db.t")
        lake.create_table("db.t", "region string, id bigint")
        return publish(*asked, **options)

    monkeypatch.setattr(TableContext, "commit", meanwhile)
    with pytest.raises(TableError, match="created again"):
        table.append(rows((3, "eu")))
    assert found(lake.table("db.t")) == []


def test_no_rows_replace_no_partition(table: neve.Table, lake_dir: Path):
    write(lake_dir, rows(), overwrite=True, overwrite_mode="dynamic")
    assert found(table) == [(1, "eu"), (2, "us")]


def test_a_tag_is_refused_before_rows_are_written(table: neve.Table, lake_dir: Path):
    table.create_tag("v1")
    with pytest.raises(UserError, match="is a tag"):
        source(lake_dir, branch="v1").writer(from_arrow_schema(rows((3, "eu")).schema), False)


@pytest.mark.parametrize(
    "options", [{"overwrite_mode": "dynamic"}, {"isolation_level": "snapshot"}, {"target_file_size_bytes": "0"}]
)
def test_options_that_would_do_nothing_are_refused(table: neve.Table, lake_dir: Path, options: dict[str, str]):
    with pytest.raises(UserError, match=r"need mode\('overwrite'\)|above 0"):
        write(lake_dir, rows((3, "eu")), **options)

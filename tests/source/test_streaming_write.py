"""A streaming sink: an epoch is in the table once, however often it is played."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from neve.commit import protocol
from neve.errors import UserError
from neve.source import streaming as sink
from tests.support.source_calls import Query, rows
from tests.support.tables import ids_of, local


def files_on_disk(table: neve.Table) -> set[str]:
    folder = local(table.iceberg.location()) / "data"
    return {p.name for p in folder.rglob("*.parquet")}


def files_in_table(table: neve.Table) -> set[str]:
    return {Path(p).name for p in table.inspect.files()["file_path"].to_pylist()}


def test_every_epoch_is_one_snapshot_that_says_which_it_is(table: neve.Table, lake_dir: Path):
    query = Query(lake_dir, "q1")
    query.epoch(0, rows(1, 2), rows(3))
    query.epoch(1, rows(4))
    assert ids_of(table) == [1, 2, 3, 4]
    said = [s.summary.additional_properties for s in table.iceberg.metadata.snapshots]
    assert [(s["spark.sql.streaming.queryId"], s["spark.sql.streaming.epochId"]) for s in said] == [
        ("q1", "0"),
        ("q1", "1"),
    ]


@pytest.mark.parametrize("table", [1, 2, 3, 4], indirect=True)
def test_an_epoch_that_is_repeated_after_a_restart_lands_once(table: neve.Table, lake_dir: Path):
    Query(lake_dir).epoch(0, rows(1))
    Query(lake_dir).epoch(1, rows(2))
    Query(lake_dir).epoch(1, rows(2))  # the driver was killed between the commit and its checkpoint
    assert ids_of(table) == [1, 2]
    assert files_on_disk(table) == files_in_table(table)
    Query(lake_dir).epoch(2, rows(3))
    assert ids_of(table) == [1, 2, 3]


def test_an_epoch_is_known_behind_snapshots_of_others(table: neve.Table, lake_dir: Path):
    Query(lake_dir).epoch(5, rows(1))
    table.append(rows(10))
    Query(lake_dir, "another").epoch(6, rows(20))
    Query(lake_dir).epoch(5, rows(1))
    Query(lake_dir).epoch(4, rows(0))
    assert ids_of(table) == [1, 10, 20]
    Query(lake_dir).epoch(6, rows(2))
    assert ids_of(table) == [1, 2, 10, 20]


def test_a_query_with_a_new_checkpoint_counts_from_the_beginning(table: neve.Table, lake_dir: Path):
    Query(lake_dir, "before").epoch(0, rows(1))
    Query(lake_dir, "after").epoch(0, rows(1))
    assert ids_of(table) == [1, 1]


def test_two_drivers_that_play_an_epoch_at_once_land_it_once(
    table: neve.Table, lake_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other driver commits after this one has looked, and before it swaps."""
    first, second = Query(lake_dir), Query(lake_dir)
    swap, waiting = protocol._Commit.swap, [lambda: second.epoch(0, rows(1))]

    def late(job: object, ready: object) -> object:
        if waiting:
            waiting.pop()()
        return swap(job, ready)  # type: ignore[arg-type]

    monkeypatch.setattr(protocol._Commit, "swap", late)
    first.epoch(0, rows(1))
    assert ids_of(table) == [1]
    assert files_on_disk(table) == files_in_table(table)


def test_an_epoch_without_rows_makes_no_snapshot(table: neve.Table, lake_dir: Path):
    Query(lake_dir).epoch(0, rows())
    assert table.iceberg.metadata.current_snapshot_id is None


@pytest.mark.parametrize("table", [1, 2, 3, 4], indirect=True)
def test_mode_complete_replaces_the_table_at_every_epoch(table: neve.Table, lake_dir: Path):
    query = Query(lake_dir, complete=True)
    query.epoch(0, rows(1, 2))
    query.epoch(1, rows(3))
    query.epoch(1, rows(4))
    assert ids_of(table) == [3]


def test_epochs_of_a_branch_are_looked_for_on_that_branch(lake_dir: Path):
    table = neve.connect(lake_dir).create_table("db.t", "id bigint, region string")
    table.append(rows(1))
    table.create_branch("audit")
    Query(lake_dir, branch="audit").epoch(0, rows(2))
    Query(lake_dir, branch="audit").epoch(0, rows(2))
    Query(lake_dir).epoch(0, rows(3))
    assert (ids_of(table), ids_of(table, ref="audit")) == ([1, 3], [1, 2])


def test_a_spec_that_changes_between_writing_and_commit_does_no_harm(table: neve.Table, lake_dir: Path):
    query = Query(lake_dir)
    written = query.written(rows(1, 2))
    table.evolve_partitions(add=["bucket(4, id)"], drop=["region"])
    query.epoch(0, rows(1, 2), messages=written)
    assert ids_of(table) == [1, 2]
    assert not table.verify().findings


def test_without_the_id_of_the_query_nothing_is_committed(table: neve.Table, lake_dir: Path):
    query = Query(lake_dir, query_id=None)  # type: ignore[arg-type]
    with pytest.raises(neve.TableError, match="did not pass the id"):
        query.epoch(0, rows(1))
    assert ids_of(table) == []


def test_options_of_batch_writes_are_refused(table: neve.Table, lake_dir: Path):
    with pytest.raises(UserError, match="Unknown option 'overwrite-mode'"):
        Query(lake_dir, overwrite_mode="dynamic").epoch(0, rows(1))


def test_the_sink_leaves_files_alone_when_a_commit_may_be_under_way(table: neve.Table, lake_dir: Path):
    """Spark aborts an epoch also when the answer of its commit was lost."""
    query = Query(lake_dir)
    written = query.written(rows(1))
    query.epoch(0, rows(1), messages=written)
    writer = query.made.streamWriter(query.schema(rows(1)), False)
    assert isinstance(writer, sink.TableSink)
    writer.abort(written, 0)
    assert ids_of(table) == [1]

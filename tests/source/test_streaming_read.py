"""Streaming reads through the source, without Spark: the rows of appended snapshots, each once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

import neve
from neve.errors import TableError, UnknownName
from neve.source.streaming import SNAPSHOT_ID_KEY
from tests.support.source_calls import Frame, rows, source, travelled


class Follower:
    """A streaming query that reads a table, and remembers how far it got."""

    def __init__(self, folder: Path, **options: str) -> None:
        made = source(folder, **options)
        schema = made.schema()
        self.reader = travelled(made).streamReader(schema)
        self.worker = travelled(self.reader)
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def batch(self, end: int | None = None) -> list[int]:
        """The rows of the next micro-batch."""
        upto = self.reader.latestOffset() if end is None else {SNAPSHOT_ID_KEY: end}
        parts = self.reader.partitions(self.offset, upto)
        self.offset = upto
        return sorted(i for p in parts for b in self.worker.read(travelled(p)) for i in b["id"].to_pylist())


def snapshot_ids(table: neve.Table) -> list[int]:
    return [s.snapshot_id for s in table.iceberg.metadata.snapshots]


@pytest.mark.parametrize("table", [1, 2, 3, 4], indirect=True)
def test_every_append_is_read_once_from_the_first_on(table: neve.Table, lake_dir: Path):
    follower = Follower(lake_dir)
    assert follower.batch() == []
    table.append(rows(1))
    table.append(rows(2, 3))
    assert follower.batch() == [1, 2, 3]
    assert follower.batch() == []
    table.append(rows(4))
    assert follower.batch() == [4]


def test_a_batch_is_read_again_as_it_was(table: neve.Table, lake_dir: Path):
    """Spark repeats a batch from the offsets it noted, whatever was appended since."""
    for i in range(4):
        table.append(rows(i))
    second = snapshot_ids(table)[1]
    for _ in range(2):
        follower = Follower(lake_dir)
        assert follower.batch(second) == [0, 1]
    assert follower.batch() == [2, 3]


def test_a_stream_may_begin_at_a_time(table: neve.Table, lake_dir: Path):
    for i in range(3):
        table.append(rows(i))
    at = table.iceberg.metadata.snapshots[1].timestamp_ms
    assert Follower(lake_dir, stream_from_timestamp=str(at)).batch() == [1, 2]
    assert Follower(lake_dir, stream_from_timestamp="0").batch() == [0, 1, 2]


def test_compactions_are_passed_over(table: neve.Table, lake_dir: Path):
    follower = Follower(lake_dir)
    table.append(rows(1))
    table.rewrite_manifests().execute()
    table.append(rows(2))
    assert follower.batch() == [1, 2]


@pytest.mark.parametrize("table", [1, 2, 3, 4], indirect=True)
def test_rows_that_were_replaced_stop_the_stream_unless_it_is_told_otherwise(table: neve.Table, lake_dir: Path):
    table.append(rows(1))
    table.overwrite(rows(2))
    table.append(rows(3))
    with pytest.raises(TableError, match="streaming-skip-overwrite-snapshots"):
        Follower(lake_dir).batch()
    assert Follower(lake_dir, streaming_skip_overwrite_snapshots="true").batch() == [1, 3]


def test_rows_that_were_deleted_stop_the_stream_unless_it_is_told_otherwise(table: neve.Table, lake_dir: Path):
    table.append(rows(1))
    table.overwrite(rows(), where="id = 1")
    table.append(rows(3))
    with pytest.raises(TableError, match="streaming-skip-delete-snapshots"):
        Follower(lake_dir).batch()
    assert Follower(lake_dir, streaming_skip_delete_snapshots="true").batch() == [1, 3]


def test_a_stream_keeps_its_columns_and_meets_new_specs(table: neve.Table, lake_dir: Path):
    follower = Follower(lake_dir)
    table.append(rows(1))
    assert follower.batch() == [1]
    table.evolve_partitions(add=["bucket(4, id)"])
    with table.evolve_schema() as change:
        change.rename_column("region", "area")
    table.append(rows(2).rename_columns(["id", "area"]))
    assert follower.batch() == [2]


def test_where_the_past_was_expired_a_stream_begins_with_what_is_left(table: neve.Table, lake_dir: Path):
    for i in range(3):
        table.append(rows(i))
    first, second, _ = snapshot_ids(table)
    late = Follower(lake_dir)
    assert late.batch(first) == [0]
    table.expire_snapshots().snapshot_ids(first).execute()
    assert Follower(lake_dir).batch() == [0, 1, 2]
    assert late.batch() == [1, 2]
    table.expire_snapshots().snapshot_ids(second).execute()
    late.offset = {SNAPSHOT_ID_KEY: first}
    with pytest.raises(TableError, match="no longer has both"):
        late.batch()


def test_a_branch_is_followed_for_itself(lake_dir: Path):
    table = neve.connect(lake_dir).create_table("db.t", "id bigint, region string")
    table.append(rows(1))
    table.create_branch("audit")
    table.append(rows(2), branch="audit")
    table.append(rows(3))
    assert Follower(lake_dir, branch="audit").batch() == [1, 2]
    with pytest.raises(UnknownName, match="Unknown branch"):
        Follower(lake_dir, branch="adit")


def test_a_time_leaves_out_what_came_before_though_it_was_expired(table: neve.Table, lake_dir: Path):
    for i in range(4):
        table.append(rows(i))
    third = table.iceberg.metadata.snapshots[2]
    table.expire_snapshots().snapshot_ids(*snapshot_ids(table)[:2]).execute()
    assert Follower(lake_dir, stream_from_timestamp=str(third.timestamp_ms)).batch() == [2, 3]


def test_nothing_is_read_before_its_time(table: neve.Table, lake_dir: Path):
    table.append(rows(1))
    follower = Follower(lake_dir, stream_from_timestamp=str(2**41 * 2))
    table.append(rows(2))
    assert follower.batch() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update_column("n", LongType()),
        lambda c: c.make_column_optional("n"),
        lambda c: c.delete_column("n"),
    ],
    ids=["another type", "may be null", "gone"],
)
def test_a_column_that_changed_ends_a_stream_and_a_new_one_goes_on(lake_dir: Path, change: Callable[[Any], Any]):
    table = neve.connect(lake_dir).create_table("db.t", "id bigint, n int not null")
    table.append([{"id": 1, "n": 1}])
    follower = Follower(lake_dir)
    assert follower.batch() == [1]
    with table.evolve_schema() as changing:
        change(changing)
    table.append([{"id": 2, "n": 2}] if "n" in table.refresh().schema.column_names else [{"id": 2}])
    with pytest.raises(TableError, match=r"'n' of table db\.t has changed since the stream began"):
        follower.batch()
    again = Follower(lake_dir)
    again.offset = follower.offset
    assert again.batch() == [2]


def test_columns_that_were_cleaned_away_are_one_error(table: neve.Table, lake_dir: Path):
    table.append(rows(1))
    follower, frame = Follower(lake_dir), Frame(source(lake_dir))
    with table.evolve_schema() as change:
        change.add_column("more", LongType())
    table.append(rows(2))
    table.expire_snapshots().older_than(2**50).retain_last(1).clean_expired_metadata().execute()
    for read in (follower.batch, frame.rows):
        with pytest.raises(TableError, match="Load it again"):
            read()

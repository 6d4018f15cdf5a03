"""Which snapshot is read, and what can be said of it without reading a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neve.commit.actions import Append
from neve.errors import MissingFile
from neve.ops.context import TableContext
from neve.ops.scan import Scan
from tests.support.metadata_tables import Kit


class Asked(Exception):
    """Rows had to be read."""


def no_spark() -> SparkSession:
    raise Asked


def context(t: Kit) -> TableContext:
    return TableContext(t.catalog, t.table, no_spark)


@pytest.fixture
def t(tmp_path: Path) -> Kit:
    kit = Kit.create(tmp_path)
    kit.ok(Append(kit.data("a", rows=10)))
    return kit


def test_of_two_states_in_one_millisecond_the_later_was_current(t: Kit):
    first, later = t.head_id, t.metadata.last_updated_ms + 3_600_000
    t.ok(Append(t.data("b")), environment=replace(t.environment, now_ms=lambda: later))
    t.branch("main", first)  # rolled back while the clock still shows the time of the append
    assert [entry.timestamp_ms for entry in t.metadata.snapshot_log][1:] == [later, later]
    assert context(t).snapshot(as_of=later).snapshot_id == first


def test_rows_are_counted_from_metadata_alone(t: Kit):
    assert Scan.of(context(t)).count() == 10
    empty = Kit.create(t.folder / "empty")
    assert Scan.of(context(empty)).count() == 0


def test_a_file_whose_writer_did_not_count_is_read_to_be_counted(t: Kit):
    t.ok(Append(t.data("imported", rows=-1)))
    with pytest.raises(MissingFile, match="imported"):
        Scan.of(context(t)).count()

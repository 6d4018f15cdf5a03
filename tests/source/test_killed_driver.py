"""A real driver, killed between the commit of an epoch and its checkpoint: the epoch is in the table once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from tests.source.test_streaming_write import files_in_table, files_on_disk
from tests.support.coverage import IS_LONG

pytestmark = pytest.mark.skipif(not IS_LONG, reason="starts Spark twice; runs in the long tests")


def drive(folder: Path) -> int:
    command = [sys.executable, "-m", "tests.support.dying_driver", str(folder)]
    checkout = Path(__file__).parents[2]
    return subprocess.run(command, cwd=checkout, timeout=300, check=False, capture_output=True).returncode


def test_an_epoch_that_landed_before_the_driver_was_killed_is_not_written_again(tmp_path: Path):
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint")
    (tmp_path / "in").mkdir()
    for n in range(3):
        pq.write_table(pa.table({"id": range(n * 10, n * 10 + 10)}), tmp_path / "in" / f"{n}.parquet")
    assert drive(tmp_path) == -signal.SIGKILL
    assert table.scan().count() == 20, "the epoch has landed"
    assert sorted(p.name for p in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")) == ["0"]
    assert drive(tmp_path) == 0
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(30))
    summaries = [s.summary for s in table.iceberg.metadata.snapshots]
    assert [s and s["spark.sql.streaming.epochId"] for s in summaries] == ["0", "1", "2"]
    assert files_on_disk(table) == files_in_table(table)

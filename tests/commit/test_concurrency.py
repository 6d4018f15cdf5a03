"""Real processes on one table: nothing is lost, nothing is doubled, nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commit.kit import Kit
from tests.commit.test_protocol import orphans

ROOT = Path(__file__).parents[2]
WRITERS, APPENDS = 8, 10


@pytest.mark.parametrize("version", [2, 3])
def test_eight_writers_get_all_their_appends_in(tmp_path: Path, version: int):
    t = Kit.create(tmp_path, version)
    command = [sys.executable, "-m", "tests.commit.writers", str(tmp_path), str(WRITERS), str(APPENDS)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert [w["acknowledged"] for w in told] == [APPENDS] * WRITERS
    live = t.live()["file_path"].to_pylist()
    assert sorted(live) == sorted(t.path(f"w{w}-{i}") for w in range(WRITERS) for i in range(APPENDS))
    assert len(t.metadata.snapshots) == WRITERS * APPENDS
    assert orphans(t) == set()
    if version == 3:
        starts = sorted(t.live()["first_row_id"].to_pylist())
        assert starts == list(range(0, 10 * WRITERS * APPENDS, 10)), "no row id is given twice"

"""Eight real processes append to one table: nothing is lost, nothing is doubled, nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.extent import IS_LONG
from tests.proof.audit import on_disk, reachable
from tests.writers import ROWS, connected

ROOT = Path(__file__).parents[1]
WRITERS, APPENDS = 8, 10 if IS_LONG else 2


@pytest.fixture
def settings(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> dict[str, Any]:
    if kind == "sqlite":
        return {"folder": str(tmp_path / "lake")}
    uri = request.getfixturevalue("server").uri
    (tmp_path / "lake").mkdir()
    return {"uri": uri, "warehouse": (tmp_path / "lake").as_uri()}


@pytest.mark.parametrize(("kind", "version"), [("sqlite", 3), ("sqlite", 4), ("postgres", 2)])
def test_eight_writers_get_all_their_appends_in(settings: dict[str, Any], version: int, tmp_path: Path):
    lake = connected(settings)
    if "db.events" in lake.tables():
        lake.drop_table("db.events")
    lake.create_table("db.events", "id bigint, writer bigint", partition_by=["writer"], format_version=version)
    command = [sys.executable, "-m", "tests.writers", json.dumps(settings), str(WRITERS), str(APPENDS)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    acknowledged = [i for line in run.stdout.splitlines() for i in json.loads(line)]
    everything = list(range(WRITERS * APPENDS * ROWS))
    assert sorted(acknowledged) == everything, run.stderr

    table = lake.table("db.events")
    assert sorted(table.scan().to_arrow(engine="arrow")["id"].to_pylist()) == everything
    assert len(table.context.metadata.snapshots) == WRITERS * APPENDS
    assert on_disk(tmp_path / "lake") - reachable(table) == set(), "no orphan is left"
    if version > 2:
        ids = table.scan(columns=["_row_id"]).to_arrow(engine="arrow")["_row_id"].to_pylist()
        assert sorted(ids) == everything, "every row has an id of its own"

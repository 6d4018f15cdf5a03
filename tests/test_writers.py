"""Eight real processes append to one table: nothing is lost, nothing is doubled, nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neve import Table
from tests.proof.audit import files_on_disk, reachable_files
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_LONG
from tests.support.writer_processes import ROWS, connected

ROOT = Path(__file__).parents[1]
WRITERS, APPENDS = 8, 10 if IS_LONG else 2
EVERYTHING = list(range(WRITERS * APPENDS * ROWS))


@pytest.fixture
def settings(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> dict[str, Any]:
    if kind == "sqlite":
        return {"folder": str(tmp_path / "lake")}
    uri = request.getfixturevalue("server").uri
    (tmp_path / "lake").mkdir()
    return {"uri": uri, "warehouse": (tmp_path / "lake").as_uri()}


@pytest.mark.parametrize(("kind", "version"), [("sqlite", 3), ("sqlite", 4), ("postgres", 2)])
def test_eight_writers_get_all_their_appends_in(settings: dict[str, Any], kind: str, version: int, tmp_path: Path):
    lake = connected(settings)
    if "db.events" in lake.tables():
        lake.drop_table("db.events")
    lake.create_table("db.events", "id bigint, writer bigint", partition_by=["writer"], format_version=version)
    with new_tally(f"{WRITERS} processes append to one table: nothing lost, doubled or left behind") as tally:
        command = [
            sys.executable,
            "-m",
            "tests.support.writer_processes",
            json.dumps(settings),
            str(WRITERS),
            str(APPENDS),
        ]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        tally.cases += WRITERS * APPENDS
        tally.notes.append(f"{kind} v{version}")
        assert run.returncode == 0, run.stderr
        acknowledged = [i for line in run.stdout.splitlines() for i in json.loads(line)]
        assert sorted(acknowledged) == EVERYTHING, run.stderr
        check_table(lake.table("db.events"), tmp_path / "lake")


def check_table(table: Table, folder: Path) -> None:
    """Check that every row exists once, that each append has its own snapshot, and that no file is left behind."""
    assert sorted(table.scan().to_arrow(engine="arrow")["id"].to_pylist()) == EVERYTHING
    assert len(table.context.metadata.snapshots) == WRITERS * APPENDS
    assert files_on_disk(folder) - reachable_files(table) == set(), "an orphan is left"
    if table.context.metadata.format_version > 2:
        ids = table.scan(columns=["_row_id"]).to_arrow(engine="arrow")["_row_id"].to_pylist()
        assert sorted(ids) == EVERYTHING, "every row has its own id"
    assert table.verify().is_sound


def test_a_duplicate_row_and_an_orphan_are_found(tmp_path: Path):
    """Test of the test: both errors are detected."""
    table = connected({"folder": str(tmp_path)}).create_table("db.events", "id bigint, writer bigint", format_version=3)
    for number in range(WRITERS * APPENDS):
        table.append([{"id": number * ROWS + i, "writer": 0} for i in range(ROWS)])
    check_table(table, tmp_path)
    with new_tally("planted faults are found by their harness") as tally:
        tally.cases += 2
        stray = tmp_path / "db" / "events" / "data" / "stray.parquet"
        stray.write_bytes(b"")
        with pytest.raises(AssertionError, match="an orphan is left"):
            check_table(table, tmp_path)
        stray.unlink()
        table.append([{"id": 0, "writer": 0}])
        with pytest.raises(AssertionError, match=r"assert \[0, 0, 1"):
            check_table(table, tmp_path)
        tally.figure("found", 2)

"""The demo checks its own answers; here it must come to its end, and what it shows must be what the table has."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import neve
from neve.demo import run
from neve.errors import UserError


def test_the_demo_runs_on_a_real_table_and_fails_the_second_time_in_one_lake(tmp_path: Path, spark):
    screen = StringIO()
    run(Console(file=screen, width=100), tmp_path / "lake")
    shown = screen.getvalue()
    for expected in ("by day", "UPDATE demo.events", "FilterStats(", "files rewritten to", "metadata tree", "Sound: "):
        assert expected in shown, expected
    table = neve.connect(tmp_path / "lake").table("demo.events")
    files = table.inspect.files()
    data = [f for f in files.to_pylist() if f["content"] == 0]
    size = sum(f["file_size_in_bytes"] for f in data)
    last = f"version 4: {len(data)} data files of {size:,} bytes in 1 spec, {files.num_rows - len(data)} of deletes"
    assert last in shown and files.num_rows > len(data)
    assert re.findall(r"all (\d+) rows", shown)[-1] == str(len(table.to_arrow()))
    assert f"Sound: {len(table.context.metadata.snapshots)} snapshots" in shown
    with pytest.raises(UserError, match="another folder"):
        run(Console(file=screen), tmp_path / "lake")

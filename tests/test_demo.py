"""The demo checks its own answers; here it must come to its end."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from neve.demo import run
from neve.errors import UserError


def test_the_demo_runs_and_refuses_to_run_twice_in_one_lake(tmp_path: Path, spark):
    screen = StringIO()
    run(Console(file=screen, width=120), tmp_path / "lake")
    assert "Sound: 4 snapshots" in screen.getvalue()
    with pytest.raises(UserError, match="another folder"):
        run(Console(file=screen), tmp_path / "lake")

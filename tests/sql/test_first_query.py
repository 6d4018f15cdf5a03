"""A query may be the first thing that needs Spark."""

from __future__ import annotations

import subprocess
import sys

import neve


def test_a_query_with_a_condition_starts_spark(tmp_path):
    lake = neve.connect(tmp_path / "lake")
    lake.create_table("db.t", "id bigint").append([{"id": 1}, {"id": 2}])
    code = "import neve, sys; print(neve.connect(sys.argv[1]).sql('SELECT * FROM db.t WHERE id > 1').collect())"
    command = [sys.executable, "-c", code, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "[Row(id=2)]" in done.stdout, done.stderr[-2000:]

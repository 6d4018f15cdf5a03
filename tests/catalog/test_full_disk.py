"""A full disk with the catalog and the data on it: one clear error, the table as it was, nothing left behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import neve
from neve.errors import NeveError

PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of three megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_disk_leaves_nothing_behind(disk: Path):
    """The room that is left grows page by page, so that each step of an append fails once."""
    lake = neve.connect(disk / "lake")
    lake.create_table("db.t", "id bigint, x double").append(pa.table({"id": [1], "x": [1.0]}))
    rows = pa.table({"id": [2] * 1000, "x": np.random.default_rng(1).random(1000)})
    failures: list[str] = []
    for pages in range(1, 40):
        table = lake.table("db.t")
        before = table.inspect.files()
        space = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(max(space.f_bavail * space.f_frsize - pages * PAGE, 0)))
        try:
            table.append(rows)
        except NeveError as e:
            failures.append(str(e))
        (disk / "filler").unlink()
        after = lake.table("db.t")
        orphans = after.remove_orphan_files().allow_young().older_than(2**50).plan().files
        assert orphans == () and after.verify().is_sound, f"with {pages} pages left"
        if after.inspect.files() != before:
            break
    assert len(failures) > 8 and all("Errno 28" in failure for failure in failures)
    assert sorted(set(after.scan().to_arrow(engine="arrow")["id"].to_pylist())) == [1, 2]

"""Whatever tables share, maintenance of one of them touches no file of another, and no file of other people."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

import neve.ops.maintenance.expire_snapshots as expiry
import neve.ops.maintenance.remove_orphan_files as orphans
import neve.ops.maintenance.table_folders as folders
from neve.commit.neighbours import Neighbours
from tests.proof.neighbourhoods import play
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL

LAYOUTS, STEPS, PARTS = (2_000, 6, 8) if IS_FULL else (10, 6, 2)  # ten meet each way to share a folder


@pytest.mark.parametrize("part", range(PARTS))
def test_no_foreign_file_is_touched(tmp_path: Path, part: int):
    with new_tally("random neighbourhoods of tables: no foreign file is touched") as tally:
        for seed in range(part, LAYOUTS, PARTS):
            with tally.case(seed):
                for outcome in play(tmp_path / str(seed), seed, STEPS):
                    tally.figure(f"actions {outcome}")


@pytest.mark.parametrize(
    ("modules", "first"), [([expiry], 3), ([folders, orphans], 7)], ids=["expiry", "orphans"]
)  # the first seed that shows it
def test_the_harness_finds_a_clean_up_that_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: list[ModuleType], first: int
):
    for module in modules:
        monkeypatch.setattr(module, "find_neighbours", lambda *_: Neighbours())
    with pytest.raises(AssertionError, match=r"foreign files deleted|has lost"):
        list(chain.from_iterable(play(tmp_path / str(seed), seed, STEPS) for seed in range(first, 60)))

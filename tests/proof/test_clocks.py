"""Clocks that differ and jump: timestamps never go back, time travel works, and expiry removes no young snapshot."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from neve.commit import protocol
from tests.proof.audit import lake_in
from tests.proof.results_ledger import Tally, new_tally
from tests.proof.statements_without_spark import COLUMNS, NO_WAIT, Rows, Statement, StatementWriter, open_table, rows_of
from tests.support.coverage import IS_FULL

MINUTE = 60_000
START = 1_800_000_000_000
JUMPS = (0, 0, 1, -1, 7, 10 * MINUTE, -10 * MINUTE, -60 * MINUTE, 24 * 60 * MINUTE)


@pytest.mark.parametrize("version", [1, 2, 3, 4] if IS_FULL else [3])
def test_history_is_in_order_with_any_clocks(tmp_path: Path, version: int):
    with new_tally("clocks that differ and jump: history in order, time travel right, nothing young expired") as tally:
        check_history(tmp_path, version, 60 if IS_FULL else 8, tally)


def test_timestamps_taken_from_the_clock_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Test of the test: a snapshot takes the time of the clock even if its parent has a later time."""
    monkeypatch.setattr(protocol, "max", lambda now, last: now, raising=False)
    with new_tally("planted faults are found by their harness") as tally, tally.case("timestamps taken from the clock"):
        found = Tally("")
        check_history(tmp_path, 3, 8, found)
        with pytest.raises(AssertionError, match="commit"):
            found.raise_failures()
        tally.figure("found")


def check_history(folder: Path, version: int, commits: int, tally: Tally) -> None:
    """Commit with clocks that jump, read every past snapshot by time, and expire half of them."""
    chance = random.Random(version)
    now = START
    lake = lake_in(folder)
    lake.create_table("db.t", COLUMNS, ["region"], format_version=version)
    table = open_table(lake, environment=replace(NO_WAIT, now_ms=lambda: now))
    hand, past = StatementWriter(table), dict[int, tuple[int, Rows]]()
    for number in range(commits):
        now += chance.choice(JUMPS)
        with tally.case(f"v{version}, commit {number}, clock {now - START}"):
            hand.do(Statement("append", rows=((number, "eu", 0, ""),)))
            head = table.refresh().context.head()
            past[head.timestamp_ms] = (head.snapshot_id, rows_of(table))
            times = [s.timestamp_ms for s in table.context.metadata.snapshots]
            assert times == sorted(set(times)), "history goes back"
            assert table.context.metadata.last_updated_ms >= times[-1]
    for time, (snapshot_id, rows) in past.items():
        with tally.case(f"v{version}, as of {time - START}"):
            assert table.scan(as_of=time).to_arrow(engine="arrow").num_rows == sum(rows.values())
            assert rows_of(table, snapshot_id) == rows
    with tally.case(f"v{version}, expiry"):
        middle = sorted(past)[len(past) // 2]
        table.expire_snapshots().older_than(middle).retain_last(1).execute()
        left = {s.snapshot_id for s in table.refresh().context.metadata.snapshots}
        assert left == {i for time, (i, _) in past.items() if time >= middle}
        assert table.verify().is_sound

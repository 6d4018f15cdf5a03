"""A power cut at any durable step loses all changes that were not synced, or some of them: the table is sound."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from neve import connect
from tests.proof.audit import audit
from tests.proof.faults import Fault, run_forked
from tests.proof.operations import VERBS, RestorableLake, version_for_case
from tests.proof.power_cuts import Disk, delete_journal
from tests.proof.results_ledger import new_tally
from tests.support.coverage import IS_FULL
from tests.support.disk_waits import databases_wait

# Each verb on one version; versions take turns.
ALL = [(verb, version_for_case(verb, number + number // 3)) for number, verb in enumerate(VERBS)]
QUICK = [("append", 4), ("create_table", 3)]


@pytest.mark.parametrize(("verb", "version"), ALL if IS_FULL else QUICK)
def test_the_power_cut_at_any_step_leaves_the_table_sound(
    restorable_lake: Callable[[int], RestorableLake], tmp_path: Path, verb: str, version: int
):
    case_lake = restorable_lake(version)
    before, after = case_lake.states(verb)
    steps = case_lake.steps(verb)
    ends = len(steps) + 1  # after the last step: everything was acknowledged
    chosen = range(1, ends + 1) if IS_FULL else sorted({len(steps) // 2, len(steps), ends})
    with new_tally("power cut at every durable step, unsynced writes lost: as after a kill") as tally:
        for at in chosen:
            for seed in (None, at) if IS_FULL else (None,):
                with tally.case(f"{verb} v{version} at {at}, chance {seed}"):
                    case_lake.restore(verb)
                    ended, lost = cut(case_lake, verb, at, tmp_path / "journal", seed)
                    tally.figure("names and files lost", lost)
                    audit(case_lake.folder, before, after, acknowledged=ended)


def cut(case_lake: RestorableLake, verb: str, at: int, journal: Path, seed: int | None) -> tuple[bool, int]:
    """Run a verb up to the power cut; return whether it was acknowledged, and how many changes were lost."""
    try:
        ended = run_forked(lambda: case_lake.run(verb), Fault(at=at), str(journal))
        chance = random.Random(seed)
        lost = Disk.of(journal).cut(lambda: seed is None or chance.random() < 0.5)
    finally:
        delete_journal(journal)
    return ended.acknowledged, lost


def test_the_database_waits_for_the_disk(tmp_path: Path):
    """The harness relies on this: the catalog syncs a commit before it acknowledges it."""
    catalog = connect(tmp_path).catalog
    with databases_wait(), catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL

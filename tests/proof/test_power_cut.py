"""The power goes at any durable step, and all that was not synced is lost, or some of it: the table is sound."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from neve import connect
from tests.proof.audit import audit
from tests.proof.faults import Fault, forked
from tests.proof.operations import VERBS, Ground, turn
from tests.proof.power_cuts import Disk, without_graves
from tests.proof.results_ledger import tallied
from tests.support.coverage import IS_FULL

# Each verb on one version; versions take turns.
ALL = [(verb, turn(verb, number + number // 3)) for number, verb in enumerate(VERBS)]
QUICK = [("append", 4), ("create_table", 3)]


@pytest.mark.parametrize(("verb", "version"), ALL if IS_FULL else QUICK)
def test_the_power_cut_at_any_step_leaves_the_table_sound(
    ground: Callable[[int], Ground], tmp_path: Path, verb: str, version: int
):
    here = ground(version)
    before, after = here.states(verb)
    steps = here.steps(verb)
    ends = len(steps) + 1  # after the last step: everything was acknowledged
    chosen = range(1, ends + 1) if IS_FULL else sorted({len(steps) // 2, len(steps), ends})
    with tallied("power cut at every durable step, unsynced writes lost: as after a kill") as tally:
        for at in chosen:
            for seed in (None, at) if IS_FULL else (None,):
                with tally.case(f"{verb} v{version} at {at}, chance {seed}"):
                    here.restore(verb)
                    ended, lost = cut(here, verb, at, tmp_path / "journal", seed)
                    tally.figure("names and files lost", lost)
                    audit(here.folder, before, after, acknowledged=ended)


def cut(here: Ground, verb: str, at: int, journal: Path, seed: int | None) -> tuple[bool, int]:
    """Run a verb until the power goes; whether it was acknowledged before, and how much was lost."""
    try:
        ended = forked(lambda: here.run(verb), Fault(at=at), str(journal))
        chance = random.Random(seed)
        lost = Disk.of(journal).cut(lambda: seed is None or chance.random() < 0.5)
    finally:
        without_graves(journal)
    return ended.acknowledged, lost


def test_the_database_waits_for_the_disk(tmp_path: Path):
    """What the harness takes for granted: a commit of the catalog is synced before it is acknowledged."""
    catalog = connect(tmp_path).catalog
    with catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL

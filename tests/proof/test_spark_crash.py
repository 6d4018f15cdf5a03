"""The same with Spark: a driver is killed at the phases of the commits of its statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.commit.environment import Phase
from tests.proof.audit import State, Unsound, audit
from tests.proof.operations import VERSIONS, Ground
from tests.proof.results_ledger import tallied
from tests.proof.spark_driver_operations import orders, states, working
from tests.support.compaction_process import Order, Worker
from tests.support.coverage import IS_FULL

PHASES = (Phase.CHECK, Phase.SWAP, Phase.SWAPPED)

pytestmark = pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all kills drivers of Spark")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_driver_killed_in_a_commit_leaves_the_table_sound(tmp_path: Path, version: int):
    here = Ground(tmp_path / "lake", version)
    shown = unharmed(here)
    with tallied("kill -9 of a Spark driver in the commit of a statement") as tally:
        for number, (name, order) in enumerate(orders(version).items()):
            phase = PHASES[(number + version) % len(PHASES)]
            with tally.case(f"{name} v{version} at {phase}"):
                here.restore(name)
                killed_at(here.folder, order | {"halt": [phase.value, 1]})
                is_done = phase is Phase.SWAPPED
                audit(here.folder, *shown[name], acknowledged=is_done, refused=not is_done)


def test_a_statement_that_is_half_done_is_found_out(tmp_path: Path):
    """The test of the test: what a killed driver left is held against what the statement does."""
    here = Ground(tmp_path / "lake", 3)
    before, after = unharmed(here, "update")["update"]
    order = orders(3)["update"] | {"where": "region = 'eu' AND id > 2", "halt": [Phase.SWAPPED.value, 1]}
    with tallied("planted faults are found by their harness") as tally, tally.case("an update of some of its rows"):
        here.restore("update")
        killed_at(here.folder, order)
        with pytest.raises(Unsound, match="neither before nor after"):
            audit(here.folder, before, after, acknowledged=True)
        tally.figure("found")


def unharmed(here: Ground, *names: str) -> dict[str, tuple[State, State]]:
    """What the table shows before and after each statement of a driver that lives."""
    known = orders(here.version)
    with working(Worker(here.folder)) as worker:
        return {name: states(here, worker, name, known[name]) for name in names or known}


def killed_at(folder: Path, order: Order) -> None:
    """Start a driver, give it an order, and kill it when it stops at the phase the order names."""
    worker = Worker(folder)
    process = worker._process
    try:
        assert worker.hear() == {"ready": True}
        worker.tell(order)
        assert worker.hear() == {"ready": True}
        worker.tell("go")
        assert worker.hear() == {"at": order["halt"][0]}
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()

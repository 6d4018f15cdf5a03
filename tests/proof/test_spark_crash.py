"""A Spark driver killed in a commit phase leaves a sound table."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.commit.environment import Phase
from tests.proof.audit import State, Unsound, audit
from tests.proof.operations import VERSIONS, RestorableLake
from tests.proof.results_ledger import new_tally
from tests.proof.spark_driver_operations import orders, ready_worker, states
from tests.support.compaction_process import Order, Worker
from tests.support.coverage import IS_FULL

PHASES = (Phase.CHECK, Phase.SWAP, Phase.SWAPPED)

pytestmark = pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all kills drivers of Spark")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_driver_killed_in_a_commit_leaves_the_table_sound(tmp_path: Path, version: int):
    case_lake = RestorableLake(tmp_path / "lake", version)
    states_by_order = states_without_fault(case_lake)
    with new_tally("kill -9 of a Spark driver in the commit of a statement") as tally:
        for number, (name, order) in enumerate(orders(version).items()):
            phase = PHASES[(number + version) % len(PHASES)]
            with tally.case(f"{name} v{version} at {phase}"):
                case_lake.restore(name)
                run_and_kill(case_lake.folder, order | {"halt": [phase.value, 1]})
                is_done = phase is Phase.SWAPPED
                audit(case_lake.folder, *states_by_order[name], acknowledged=is_done, rejected=not is_done)


def test_a_statement_that_is_half_done_is_detected(tmp_path: Path):
    """Test of the test: the state after the kill is compared with the effect of the statement."""
    case_lake = RestorableLake(tmp_path / "lake", 3)
    before, after = states_without_fault(case_lake, "update")["update"]
    order = orders(3)["update"] | {"where": "region = 'eu' AND id > 2", "halt": [Phase.SWAPPED.value, 1]}
    with new_tally("planted faults are found by their harness") as tally, tally.case("an update of some of its rows"):
        case_lake.restore("update")
        run_and_kill(case_lake.folder, order)
        with pytest.raises(Unsound, match="neither before nor after"):
            audit(case_lake.folder, before, after, acknowledged=True)
        tally.figure("found")


def states_without_fault(case_lake: RestorableLake, *names: str) -> dict[str, tuple[State, State]]:
    """Return the states of the table before and after each statement of a driver without a fault."""
    known = orders(case_lake.version)
    with ready_worker(Worker(case_lake.folder)) as worker:
        return {name: states(case_lake, worker, name, known[name]) for name in names or known}


def run_and_kill(folder: Path, order: Order) -> None:
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

"""The same with Spark: a driver is killed at the phases of the commits of its statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.commit.retry import Phase
from tests.compaction.rounds import Worker
from tests.extent import IS_FULL
from tests.proof.audit import State, audit, lake_in
from tests.proof.hand import opened
from tests.proof.ledger import tallied
from tests.proof.verbs import Ground

ORDERS = {
    "delete": {"do": "delete", "where": "id = 2", "mode": "merge-on-read"},
    "update": {"do": "update", "where": "region = 'eu'", "set": {"n": "n + 1"}, "mode": "copy-on-write"},
    "merge": {"do": "merge", "rows": [{"id": 2, "region": "us", "n": 9, "note": "x"}], "mode": "merge-on-read"},
    "compact": {"do": "compact", "where": None, "options": {"rewrite-all": "true"}, "verifies": True, "sort": []},
}
MORE = {"table": "db.t", "isolation": "serializable", "reruns": 0, "spec": "upgrade"}
PHASES = (Phase.CHECK, Phase.SWAP, Phase.SWAPPED)


@pytest.mark.skipif(not IS_FULL, reason="NEVE_PROOF=all kills drivers of Spark")
@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_driver_killed_in_a_commit_leaves_the_table_sound(tmp_path: Path, version: int):
    here = Ground(tmp_path / "lake", version)
    with tallied("kill -9 of a Spark driver in the commit of a statement") as tally:
        for number, (name, order) in enumerate(ORDERS.items()):
            phase = PHASES[(number + version) % len(PHASES)]
            with tally.case(f"{name} v{version} at {phase}"):
                here.restore(name)
                before = State.of(opened(lake_in(here.folder)))
                killed_at(here.folder, order | MORE | {"halt": [phase.value, 1]})
                after = State.of(opened(lake_in(here.folder)))
                assert (before == after) == (phase is not Phase.SWAPPED), "done before the swap, or not after it"
                audit(here.folder, before, after, acknowledged=False)


def killed_at(folder: Path, order: dict[str, object]) -> None:
    """Start a driver, give it an order, and kill it when it stops at the phase the order names."""
    worker = Worker(folder)
    process = worker._process
    try:
        assert worker.hear() == {"ready": True}
        worker.tell(order)
        assert worker.hear() == {"ready": True}
        worker.tell("go")
        assert worker.hear() == {"at": order["halt"][0]}  # type: ignore[index]
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()

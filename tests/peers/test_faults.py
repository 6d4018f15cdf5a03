"""Every fault of another engine that comparisons make way for is there: who mends it is asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from tests.peers.agreement_counts import SHOWN, Tally
from tests.peers.engine_comparison import answer
from tests.peers.histories import histories, scenarios
from tests.peers.known_bugs import FAULTS, Fault
from tests.peers.readers import for_peers
from tests.support.duckdb_reader import DuckDB


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.witness} {f.reason}")
def test_a_fault_that_is_listed_is_still_there(lake_dir: Path, duckdb: DuckDB, tally: Tally, fault: Fault):
    table = fault.table(neve.connect(lake_dir), "db.t")
    peers = for_peers(table)
    assert fault.concerns(peers)
    said = answer(fault.witness, peers, duckdb, table.scan().to_arrow(engine="arrow"))
    assert said and said.startswith(fault.says), f"{fault.witness} now says {said!r}: is the fault gone?"
    assert table.verify().is_sound
    tally.told[SHOWN] += 1


def test_a_scenario_is_left_out_for_a_fault_that_is_listed_only():
    left_out = {str(scenario): scenario.fault for scenario in scenarios() if scenario.fault is not None}
    assert {name.split("-")[0] for name in left_out} == {h.name for h in histories().values() if h.not_by_spark}

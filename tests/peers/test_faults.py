"""Every known bug for which comparisons are skipped still exists; a fixed bug must leave the list."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from tests.peers.agreement_counts import SHOWN, Tally
from tests.peers.engine_comparison import read_and_compare
from tests.peers.histories import histories, scenarios
from tests.peers.known_bugs import FAULTS, Fault
from tests.peers.readers import for_peers
from tests.support.duckdb_reader import DuckDB


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.engine} {f.reason}")
def test_a_known_bug_still_exists(lake_dir: Path, duckdb: DuckDB, tally: Tally, fault: Fault):
    table = fault.table(neve.connect(lake_dir), "db.t")
    peers = for_peers(table)
    assert fault.concerns(peers)
    result = read_and_compare(fault.engine, peers, duckdb, table.scan().to_arrow(engine="arrow"))
    assert result and result.startswith(fault.message), f"{fault.engine} now returns {result!r}: is the bug fixed?"
    assert table.verify().is_sound
    tally.other_figures[SHOWN] += 1


def test_a_scenario_is_skipped_only_for_a_known_bug():
    skipped = {str(scenario): scenario.fault for scenario in scenarios() if scenario.fault is not None}
    assert {name.split("-")[0] for name in skipped} == {h.name for h in histories().values() if h.not_by_spark}

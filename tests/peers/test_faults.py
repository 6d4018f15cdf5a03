"""Every fault of another engine that comparisons make way for is there: who mends it is asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from tests.dml.duckdb_peer import DuckDB
from tests.peers.faults import FAULTS, Fault
from tests.peers.judge import answer
from tests.peers.readers import for_peers


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.witness} {f.reason}")
def test_a_fault_that_is_listed_is_still_there(lake_dir: Path, duckdb: DuckDB, fault: Fault):
    table = fault.table(neve.connect(lake_dir), "db.t")
    peers = for_peers(table)
    assert fault.concerns(peers)
    said = answer(fault.witness, peers, duckdb, table.scan().to_arrow(engine="arrow"))
    assert said and said.startswith(fault.says), f"{fault.witness} now says {said!r}: is the fault gone?"
    assert table.verify().is_sound

"""Every fault of another engine that comparisons make way for is there: who mends it is asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

import neve
from neve import Table
from tests.dml.duckdb_peer import DuckDB
from tests.dml.oracle import difference
from tests.peers.faults import FAULTS, Fault
from tests.peers.readers import READERS, for_peers


def answer(fault: Fault, table: Table, duckdb: DuckDB) -> str:
    """What the engine says about the table that shows its fault: an error, or how its rows are others."""
    peers = for_peers(table)
    try:
        is_duckdb = fault.witness == "DuckDB"  # which may end its process
        found = duckdb.rows(peers.metadata_location) if is_duckdb else READERS[fault.witness](peers)
    except BaseException as e:  # a panic of Rust is no Exception
        return f"{type(e).__name__}: {e}"
    return difference(found, table.scan().to_arrow(engine="arrow"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.witness} {f.reason}")
def test_a_fault_that_is_listed_is_still_there(lake_dir: Path, duckdb: DuckDB, fault: Fault):
    table = fault.table(neve.connect(lake_dir), "db.t")
    assert fault.concerns(for_peers(table))
    said = answer(fault, table, duckdb)
    assert said and said.startswith(fault.says), f"{fault.witness} now says {said!r}: is the fault gone?"
    assert table.verify().is_sound

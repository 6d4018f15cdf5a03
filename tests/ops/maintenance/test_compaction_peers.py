"""Other engines read the same rows from tables before and after they were compacted, in every way there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType

from neve import Table
from tests.peers.readers import for_peers, pyiceberg_rows
from tests.peers.spark import Spark
from tests.support.compaction_tables import ALL, PARTIAL, WITH_DELETES, Place, some_rows
from tests.support.coverage import own
from tests.support.duckdb_reader import DuckDB
from tests.support.reference_engine import Finished
from tests.support.spark_oracle import difference
from tests.support.tables import append, delete_equal, delete_rows

WAYS: dict[str, Callable[[Any], Any]] = {
    "in_place": lambda rewrite: rewrite.keep_spec().options({**ALL, **PARTIAL, "partial-progress.max-commits": 2}),
    "moved": lambda rewrite: rewrite.upgrade_spec().option("remove-dangling-deletes", True),
    "sorted": lambda rewrite: rewrite.options(ALL).sort("amount DESC", "id"),
}


def lived(place: Place, version: int, equality: bool) -> Table:
    """Two specs, a renamed and an added column, deletes of every kind the version has."""

    def make() -> Table:
        table = place.table(version, *(some_rows(20 * n, 20) for n in range(3)), by=["region"])
        if version > 1:
            delete_rows(table, 3, 24)
        if equality:
            delete_equal(table, 6, partition=["eu"])
        with table.evolve_schema() as change:
            change.rename_column("note", "memo")
            change.add_column("extra", LongType())
        table.evolve_partitions(add=["bucket(2, id)"])
        append(table, [{**r, "memo": r.pop("note"), "extra": r["id"]} for r in some_rows(60, 20)])
        if version > 1:
            delete_rows(table, 66)
        return table

    return place.again((version, equality), make)


@pytest.fixture(scope="module")
def finished() -> Finished:
    return Finished()


@pytest.mark.parametrize(
    ("version", "way"), [(1, "in_place"), *((v, way) for v in own("peers", WITH_DELETES) for way in WAYS)]
)
def test_other_engines_read_the_same_rows(place: Place, duckdb: DuckDB, finished: Finished, version: int, way: str):
    """PyIceberg refuses equality deletes and DuckDB 1.5.5 ends in an internal error over those of an evolved table.

    Only Spark with Iceberg is asked about a table that has them; the compaction makes it one that all can read.
    """
    has_equality = version > 1 and way == "sorted"
    table = lived(place, version, has_equality)
    rows = table.scan().to_arrow(engine="arrow")
    finished.keep(f"v{version} before {way}", for_peers(table).metadata_location, rows)
    if not has_equality:
        agree(table, rows, duckdb)
    WAYS[way](table.rewrite_data_files()).execute()
    agree(table, rows, duckdb)
    finished.keep(f"v{version} after {way}", for_peers(table).metadata_location, rows)


def agree(table: Table, rows: pa.Table, duckdb: DuckDB) -> None:
    assert not difference(table.scan().to_arrow(engine="arrow"), rows)
    shown = for_peers(table)
    assert not (wrong := difference(pyiceberg_rows(shown), rows)), f"PyIceberg: {wrong}"
    assert not (wrong := difference(duckdb.rows(shown.metadata_location), rows)), f"DuckDB: {wrong}"


def test_spark_with_iceberg_reads_the_same_rows(finished: Finished, other_spark: Spark):
    finished.check_by(other_spark)

"""Test of the comparisons: every engine notices a broken table.

Névé writes the table; then its files are damaged as a bug in the writer of Névé would damage them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve import Table
from tests.peers.agreement_counts import Tally
from tests.peers.engine_comparison import ComparedTable, SharedLake, read_and_compare
from tests.peers.metadata_structure import by_neve, local
from tests.peers.readers import READERS
from tests.peers.spark import NAME as SPARK
from tests.proof import results_ledger as ledger
from tests.support.evolved_tables import edit_avro
from tests.support.tables import delete_rows

ENGINES = (*READERS, SPARK)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def planted() -> Iterator[ledger.Tally]:
    with ledger.new_tally("planted faults are found by their harness") as tally:
        yield tally


def create_evolved_table(shared_lake: SharedLake) -> ComparedTable:
    """Create a table of two specs, with deletes under each, and its expected rows."""
    compared = shared_lake.table(Tally())  # a separate tally: the differences here are intended
    table = shared_lake.lake.create_table(compared.name, "id bigint, region string", ["region"], format_version=2)
    table.append([{"id": i, "region": ("eu", "us")[i % 2]} for i in range(8)])
    table.evolve_partitions(add=["bucket(2, id)"])
    table.append([{"id": i, "region": "eu"} for i in range(10, 18)])
    delete_rows(table, 1, 2, 11)
    shared_lake.plain.create_table(compared.name, compared.table.scan().to_arrow(engine="arrow"))
    return compared


def result_of_engine(compared: ComparedTable, engine: str) -> str:
    """Read the table with an engine as all comparisons do; return the error or difference."""
    if engine == SPARK:
        return "".join(compared.rows_by("spark"))
    return read_and_compare(engine, compared.table.context.iceberg, compared.shared_lake.duckdb, compared.rows())


# --- planted bugs ---


def manifest_of(table: Table, spec_id: int, content: int) -> str:
    found = by_neve(table).manifests
    return next(m["path"] for m in found if (m["partition_spec_id"], m["content"]) == (spec_id, content))


def edit_manifest(table: Table, manifest: str, change: Callable[[Row], Any], **fault_by_reason: Any) -> None:
    """Change the entries of a manifest and its row in the manifest list, including the length."""
    edit_avro(manifest, change)
    values = {**fault_by_reason, "manifest_length": local(manifest).stat().st_size}
    newest = table.context.metadata.current_snapshot().manifest_list
    edit_avro(newest, lambda row: row.update(values) if row["manifest_path"] == manifest else None)


def a_file_dropped_from_its_manifest(table: Table) -> None:
    manifest = manifest_of(table, spec_id=0, content=0)
    files = [e["file_path"] for e in by_neve(table).live if e["content"] == 0 and e["spec_id"] == 0]
    edit_manifest(table, manifest, lambda entry: [] if entry["data_file"]["file_path"] == files[0] else None)


def a_row_changed(table: Table) -> None:
    manifest = manifest_of(table, spec_id=1, content=0)
    path = next(e["file_path"] for e in by_neve(table).live if e["content"] == 0 and e["spec_id"] == 1)
    rows = pq.read_table(local(path), partitioning=None)
    ids = pa.array([99, *rows["id"].to_pylist()[1:]], pa.int64())
    pq.write_table(rows.set_column(0, rows.schema.field("id"), ids), local(path))
    size = local(path).stat().st_size

    def change(entry: Row) -> None:
        if entry["data_file"]["file_path"] == path:
            entry["data_file"]["file_size_in_bytes"] = size

    edit_manifest(table, manifest, change)


def deletes_of_another_spec(table: Table) -> None:
    edit_manifest(table, manifest_of(table, spec_id=0, content=1), lambda entry: None, partition_spec_id=1)


PLANTS: dict[Callable[[Table], None], str] = {  # part of the result of each engine; for specs each engine differs
    a_file_dropped_from_its_manifest: "missing",
    a_row_changed: "unexpected [99, 'eu']",
    deletes_of_another_spec: "",
}


def test_a_sound_table_is_read_the_same_by_all(shared_lake: SharedLake):
    compared = create_evolved_table(shared_lake)
    compared.check_all()
    assert {name.split(",")[0] for name in compared.tally.agreed} == set(ENGINES)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_plant_is_noticed_by_every_engine(
    shared_lake: SharedLake, planted: ledger.Tally, plant: Callable[[Table], None]
):
    compared = create_evolved_table(shared_lake)
    plant(compared.table)
    answers = {engine: result_of_engine(compared, engine) for engine in ENGINES}
    planted.cases += len(answers)
    missed = [
        f"{plant.__name__} by {name}: {result!r}" for name, result in answers.items() if not is_noticed(result, plant)
    ]
    planted.failures += missed
    planted.figure("found", len(answers) - len(missed))
    assert not missed


def is_noticed(result: str, plant: Callable[[Table], None]) -> bool:
    return result != "" and PLANTS[plant] in result


def test_a_wrong_spec_is_noticed_in_the_structure_that_spark_shows(shared_lake: SharedLake):
    compared = create_evolved_table(shared_lake)
    deletes_of_another_spec(compared.table)
    found = "".join(compared.structure())
    assert "not manifests_hold_one_spec" in found and "not deletes_have_the_spec_of_their_file" in found

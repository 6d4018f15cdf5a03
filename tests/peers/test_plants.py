"""A table that is not what it should be is noticed through every engine that reads: a test of the comparisons.

The table is written by Névé and then broken in its files, as a fault of Névé in writing them would break it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve import Table
from tests.peers.agreement_counts import Tally
from tests.peers.engine_comparison import Ground, Played, answer
from tests.peers.metadata_structure import by_neve, local
from tests.peers.readers import READERS
from tests.peers.spark import NAME as SPARK
from tests.proof import results_ledger as ledger
from tests.support.compaction_tables import delete_rows
from tests.support.evolved_tables import edit_avro

ENGINES = (*READERS, SPARK)
Row = dict[str, Any]


@pytest.fixture(scope="module")
def planted() -> Iterator[ledger.Tally]:
    with ledger.tallied("planted faults are found by their harness") as tally:
        yield tally


def lived(ground: Ground) -> Played:
    """A table of two specs, with deletes under each, and the rows it must hold."""
    played = ground.table(Tally())  # its own: what is wrong here is meant to be
    table = ground.lake.create_table(played.name, "id bigint, region string", ["region"], format_version=2)
    table.append([{"id": i, "region": ("eu", "us")[i % 2]} for i in range(8)])
    table.evolve_partitions(add=["bucket(2, id)"])
    table.append([{"id": i, "region": "eu"} for i in range(10, 18)])
    delete_rows(table, 1, 2, 11)
    ground.plain.hold(played.name, played.table.scan().to_arrow(engine="arrow"))
    return played


def said(played: Played, engine: str) -> str:
    """What an engine says of the table, the way all comparisons ask it."""
    if engine == SPARK:
        return "".join(played.rows_by("spark"))
    return answer(engine, played.table.context.iceberg, played.ground.duckdb, played.rows())


# --- what is planted ---


def manifest_of(table: Table, spec_id: int, content: int) -> str:
    found = by_neve(table).manifests
    return next(m["path"] for m in found if (m["partition_spec_id"], m["content"]) == (spec_id, content))


def edit_manifest(table: Table, manifest: str, change: Callable[[Row], Any], **listed: Any) -> None:
    """Change the entries of a manifest, and what the list says of it; the list knows its length."""
    edit_avro(manifest, change)
    values = {**listed, "manifest_length": local(manifest).stat().st_size}
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


PLANTS: dict[Callable[[Table], None], str] = {  # what engines then say; over specs each says something else
    a_file_dropped_from_its_manifest: "missing",
    a_row_changed: "unexpected [99, 'eu']",
    deletes_of_another_spec: "",
}


def test_a_sound_table_is_read_the_same_by_all(ground: Ground):
    played = lived(ground)
    played.check_all()
    assert {name.split(",")[0] for name in played.tally.agreed} == set(ENGINES)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_plant_is_noticed_by_every_engine(ground: Ground, planted: ledger.Tally, plant: Callable[[Table], None]):
    played = lived(ground)
    plant(played.table)
    answers = {engine: said(played, engine) for engine in ENGINES}
    planted.cases += len(answers)
    unseen = [f"{plant.__name__} by {name}: {says!r}" for name, says in answers.items() if not is_told(says, plant)]
    planted.failures += unseen
    planted.figure("found", len(answers) - len(unseen))
    assert not unseen


def is_told(says: str, plant: Callable[[Table], None]) -> bool:
    return says != "" and PLANTS[plant] in says


def test_a_wrong_spec_is_noticed_in_the_structure_that_spark_shows(ground: Ground):
    played = lived(ground)
    deletes_of_another_spec(played.table)
    found = "".join(played.structure())
    assert "not manifests_hold_one_spec" in found and "not deletes_have_the_spec_of_their_file" in found

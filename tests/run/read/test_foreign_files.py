"""Tables written by other engines, read exactly: rows and checksum as independent engines see them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from neve.run.read.file_reader import read_tasks
from neve.run.read.tasks import file_tasks, split_large_files
from neve.run.read.types import arrow_schema
from tests.support.foreign_files import FIXTURES, ForeignTable, shared

pytestmark = [
    pytest.mark.skipif(not FIXTURES.exists(), reason=f"no fixtures at {FIXTURES}: foreign tables are not read"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # the generators leave closing to the collector
]

GENERATED = [
    "v1_plain",
    "v1_specs",
    "v1_schema",
    "v2_nested",
    "v2_posdel_file",
    "v2_posdel",
    "v2_posdel_nasty",
    "v3_dv",
    "v3_dv_nasty",
    "v123_upgraded",
    "v2_eqdel",
    "v2_eqdel_null",
    "v2_compacted",
    "v3_defaults",
    "v3_nanos",
    "v2_empty",
    "v3_empty",
]


def expected() -> Iterator[dict[str, str]]:
    if FIXTURES.exists():
        with open(FIXTURES / "EXPECTED.tsv") as stream:
            yield from (row for row in csv.DictReader(stream, delimiter="\t") if row["agreed"] != "none")


@pytest.mark.parametrize("row", list(expected()), ids=lambda row: row["table"])
def test_a_foreign_table_reads_as_other_engines_read_it(row: dict[str, str], tmp_path: Path) -> None:
    shared("relocate").Mover(str(FIXTURES / row["table"]), str(tmp_path / "t")).run()
    table = ForeignTable(tmp_path / "t" / "metadata" / row["metadata"])
    assert shared("checksum").of(table.to_arrow())[:2] == (int(row["rows"]), row["checksum"])


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    made = shared("mktables")
    for name in GENERATED:
        made.random.seed(name)
        made.TABLES[name][0](str(root), name, *made.TABLES[name][1:])
    return root


@pytest.mark.parametrize("name", GENERATED)
def test_a_nasty_table_reads_as_its_writer_meant_it(name: str, generated: Path) -> None:
    truth = json.loads((generated / name / "EXPECTED.json").read_text())
    table = ForeignTable(generated / name / "metadata" / truth["metadata"])
    assert shared("checksum").of(table.to_arrow())[:2] == (truth["rows"], truth["checksum"])


@pytest.mark.parametrize("name", ["v3_dv", "v2_posdel_nasty", "v2_eqdel_null"])
def test_tasks_made_by_columns_and_divided_read_the_same_rows(name: str, generated: Path) -> None:
    truth = json.loads((generated / name / "EXPECTED.json").read_text())
    table = ForeignTable(generated / name / "metadata" / truth["metadata"])
    tasks = split_large_files(table.task_table(), split_bytes=5_000)
    assert tasks["parts"].to_numpy().max() > 1
    batches = read_tasks(table.io, file_tasks(tasks, table.facts.specs), table.target())
    found = pa.Table.from_batches(batches, arrow_schema(table.metadata.schema()))
    assert shared("checksum").of(found)[:2] == (truth["rows"], truth["checksum"])

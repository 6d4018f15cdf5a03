"""Files that were brought into a table by others: what their entries leave out, or say of older columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType

import neve
from neve import Table
from neve.commit.actions import Append
from neve.errors import UnsupportedFeature
from tests.support.entry_tables import new_entries
from tests.support.tables import commit_to, delete_equal, ids_of, sorted_rows


def brought_in(table: Table, path: Path, rows: int, partition: tuple[Any, ...] = ()) -> Table:
    """The table with one more file, as an entry says it."""
    file = {
        "file_path": f"file://{path}",
        "file_format": path.suffix[1:].upper(),
        "record_count": rows,
        "file_size_in_bytes": path.stat().st_size,
        "partition": partition,
    }
    commit_to(table, Append(new_entries(table.refresh().context.specs, [file])))
    return table.refresh()


def parquet(path: Path, rows: pa.Table, **ids: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = [f.with_metadata({b"PARQUET:field_id": str(ids[f.name]).encode()}) for f in rows.schema]
    pq.write_table(rows.cast(pa.schema(fields)), path)
    return path


def uncounted(folder: Path, spark: Any) -> Table:
    """Five rows in an Avro file whose entry does not count them."""
    lake = neve.connect(folder / "lake", spark=spark)
    table = lake.create_table("db.t", "id bigint, region string, day date", format_version=2)
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long", "field-id": 1}]}
    path = folder / "some.avro"
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"id": i} for i in range(5)])
    return brought_in(table, path, rows=-1)


def test_an_avro_file_that_was_not_counted_is_compacted(tmp_path: Path, spark):
    table = uncounted(tmp_path, spark)
    rewrite = table.rewrite_data_files().option("rewrite-all", True)
    assert rewrite.verify_rows().execute().files_rewritten == 1
    assert ids_of(table.refresh()) == [0, 1, 2, 3, 4]


def test_an_avro_file_that_was_not_counted_is_read(tmp_path: Path, spark):
    table = uncounted(tmp_path, spark)
    assert ids_of(table) == [0, 1, 2, 3, 4]
    delete_equal(table, 2)
    assert ids_of(table.refresh()) == [0, 1, 3, 4]
    with pytest.raises(UnsupportedFeature, match=r"some\.avro.*no row count"):
        table.refresh().rewrite_position_deletes().equality_deletes().execute()
    assert ids_of(table.refresh()) == [0, 1, 3, 4]


def test_the_past_of_a_promoted_partition_column_that_files_lack_is_read(tmp_path: Path):
    """As files of Hive are: the folder alone has the value, which is known in today's type."""
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint, n int", ["n"], format_version=2)
    path = parquet(tmp_path / "n=5" / "some.parquet", pa.table({"id": [1, 2]}), id=1)
    table = brought_in(table, path, rows=2, partition=(5,))
    before = table.iceberg.metadata.current_snapshot_id
    with table.evolve_schema() as change:
        change.update_column("n", LongType())
    table = table.refresh()
    table.append([{"id": 3, "n": 1 << 40}])
    assert sorted_rows(table.refresh(), snapshot_id=before) == [{"id": 1, "n": 5}, {"id": 2, "n": 5}]


@pytest.mark.parametrize(("term", "value"), [("n", 7), ("truncate(10, n)", 0)])
def test_nulls_in_a_partition_of_values_are_found_by_the_audit(tmp_path: Path, term: str, value: int):
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint, n int", [term], format_version=2)
    rows = pa.table({"id": [1, 2], "n": pa.array([7, None], pa.int32())})
    table = brought_in(table, parquet(tmp_path / "some.parquet", rows, id=1, n=2), rows=2, partition=(value,))
    assert "partition-value" in {finding.kind for finding in table.verify().findings}

"""A table made of a Delta table is the same for Spark with Iceberg and for DuckDB, before and after changes of rows."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from neve import Table
from tests.peers.engine_comparison import SharedLake
from tests.peers.spark import SparkSaid
from tests.support.delta_tables import PlainDelta, column, mapped, rows_by_delta
from tests.support.foreign_tables import FIXTURES, needs_fixtures

NAMES = count()
VERSIONS = pytest.mark.parametrize("version", [2, 3])


@pytest.fixture
def snapshot(shared_lake: SharedLake) -> Iterator[Any]:
    made = []

    def make(folder: Path, version: int) -> Table:
        made.append(f"db.delta{next(NAMES)}")
        return shared_lake.lake.snapshot_delta(folder, made[-1], properties={"format-version": str(version)})

    yield make
    for name in made:
        shared_lake.lake.drop_table(name)


def numbered(rows: pa.Table, *ids: int) -> pa.Table:
    """The rows with field ids, as Delta writes them for mapped columns."""
    fields = [f.with_metadata({"PARQUET:field_id": str(i)}) for f, i in zip(rows.schema, ids, strict=True)]
    return rows.cast(pa.schema(fields))


def agreed(shared_lake: SharedLake, table: Table) -> Counter[str]:
    """The rows of a table, as both engines read them."""
    ours = table.refresh().scan().to_arrow(engine="arrow")
    theirs = shared_lake.spark.sql(f"SELECT * FROM {table.name}")
    assert sorted(map(repr, theirs.to_pylist())) == sorted(map(repr, ours.to_pylist()))
    return Counter(map(repr, ours.to_pylist()))


def change(shared_lake: SharedLake, table: Table, column_name: str) -> None:
    """Change rows with both engines, and compact."""
    table.update().set(column_name, f"{column_name} + 1000").where(f"{column_name} < 5").execute()
    shared_lake.spark.sql(f"DELETE FROM {table.name} WHERE {column_name} = 7")
    before = agreed(shared_lake, table)
    table.refresh().rewrite_data_files().option("rewrite-all", True).execute()
    assert agreed(shared_lake, table) == before
    assert table.refresh().verify().is_sound


@VERSIONS
def test_deleted_rows_and_partitions(shared_lake: SharedLake, snapshot: Any, tmp_path: Path, version: int):
    source = PlainDelta(
        tmp_path / "so urce",
        [column("id", "long"), column("region", "string"), column("day", "date")],
        ("region", "day"),
    ).create()
    ids = pa.table({"id": range(20)})
    source.commit(
        source.add("a b/x y%25.parquet", ids, [0, 19], region="a b", day="2026-01-01"),
        source.add("c.parquet", ids, range(0, 20, 3), region=None, day=None),
    )
    t = snapshot(source.folder, version)
    assert agreed(shared_lake, t) == rows_by_delta(source.folder)
    change(shared_lake, t, "id")


@VERSIONS
def test_mapped_columns(shared_lake: SharedLake, snapshot: Any, tmp_path: Path, version: int):
    fields = [mapped("total", "n", 2, "long"), mapped("id", "col-9", 9, "string")]
    source = PlainDelta(tmp_path / "s", fields, (), {"delta.columnMapping.mode": "name"}).create()
    new = numbered(pa.table({"n": pa.array([30, 7], pa.int64()), "col-9": ["thirty", "seven"]}), 2, 9)
    old = pa.table({"id": [1, 2], "n": pa.array([1, 20], pa.int64())})
    source.commit(source.add("new.parquet", new), source.add("old.parquet", old, [1]))
    t = snapshot(source.folder, version)
    assert agreed(shared_lake, t) == rows_by_delta(source.folder) and len(agreed(shared_lake, t)) == 3
    change(shared_lake, t, "total")


def test_lists_whose_elements_have_no_ids_are_for_all_after_a_compaction(
    shared_lake: SharedLake, snapshot: Any, tmp_path: Path
):
    """Delta numbers columns, and not the elements of lists; Iceberg's reader then looks for none and fails."""
    tags = {"type": "array", "elementType": "string", "containsNull": True}
    fields = [mapped("id", "col-1", 1, "long"), mapped("tags", "col-2", 2, tags)]
    source = PlainDelta(tmp_path / "s", fields, (), {"delta.columnMapping.mode": "name"}).create()
    rows = numbered(pa.table({"col-1": [1, 2], "col-2": [["a", None], None]}), 1, 2)
    source.commit(source.add("x.parquet", rows))
    t = snapshot(source.folder, 2)
    assert Counter(map(repr, t.scan().to_arrow(engine="arrow").to_pylist())) == rows_by_delta(source.folder)
    with pytest.raises(SparkSaid, match="is not in the store"):
        agreed(shared_lake, t)
    t.rewrite_data_files().option("rewrite-all", True).execute()
    assert agreed(shared_lake, t) == rows_by_delta(source.folder)


@needs_fixtures
@VERSIONS
def test_a_table_of_delta_itself(shared_lake: SharedLake, snapshot: Any, tmp_path: Path, version: int):
    shutil.copytree(FIXTURES / "delta_dv_small", tmp_path / "s")
    for path in (tmp_path / "s").glob("*-deletion_vector*"):  # the log names it without the prefix
        path.rename(path.with_name(path.name.removeprefix("test%dv%prefix-")))
    t = snapshot(tmp_path / "s", version)
    assert agreed(shared_lake, t) == rows_by_delta(tmp_path / "s") and len(agreed(shared_lake, t)) == 8
    change(shared_lake, t, "value")

"""Rows that a caller asks for in its process: read there in threads, streamed, limited and counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve.errors import UnsupportedFeature, UserError
from neve.ops import scan as scan_module
from neve.plan import row_change
from neve.plan import scan as plan_module
from neve.run.read import scan as read_module
from neve.table import Table
from tests.support.tables import delete_equal

CONDITIONS = (
    None,
    "id < 25",
    "region = 'eu'",
    "region = 'eu' AND id >= 30",
    "amount > 10.5",
    "id IN (1, 11, 99)",
    "region IS NULL",
    "id % 7 = 3",
    "upper(region) = 'EU'",
)


@pytest.fixture(scope="module", params=[2, 3, 4], ids="v{}".format)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Table:
    """A table of two specs whose files have position deletes or vectors, and one file without a live row."""
    lake = neve.connect(tmp_path_factory.mktemp("lake"), spark=spark)
    made = lake.create_table("db.t", "id bigint, region string, amount double", format_version=request.param)
    regions = ["eu", "us", None]
    rows = [{"id": n, "region": regions[n % 3], "amount": n / 2} for n in range(100)]
    made.append(rows[:50])
    made.evolve_partitions(add=["region"])
    for start in range(50, 100, 25):
        made.append(rows[start : start + 25])
    made.delete().where("id IN (0, 1, 30, 60, 61)").mode("merge-on-read").execute()
    made.append([{"id": 200, "region": "eu", "amount": 1.0}])
    return made.refresh()


@pytest.fixture(params=[16 << 20, 700], ids=["one group", "parts of files"])
def read_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "_READ_AHEAD_BYTES", request.param)


def by_id(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("where", CONDITIONS)
def test_every_way_out_gives_the_rows_that_spark_reads(
    table: Table, where: str | None, monkeypatch: pytest.MonkeyPatch
):
    scan = table.scan(where)
    expected = by_id(scan.to_spark().toArrow())
    assert by_id(scan.to_batches("spark").read_all()) == expected
    for limit in (0, 3, 1000):
        assert_limited([table.scan(where, limit=limit).to_spark().toArrow()], expected, limit)
    # Files as a whole, and parts of them. Spark has its own parts.
    for read_ahead in (16 << 20, 700) if scan._runs_in_process("auto") else (16 << 20,):
        monkeypatch.setattr(read_module, "_READ_AHEAD_BYTES", read_ahead)
        assert by_id(scan.to_arrow()) == expected
        assert by_id(scan.to_batches().read_all()) == expected
        assert scan.count() == len(expected)
        for limit in (0, 3, 1000):
            limited, count = table.scan(where, limit=limit), min(limit, len(expected))
            found = [limited.to_arrow(), limited.to_batches().read_all(), limited.head(limit)]
            assert_limited(found, expected, limit)
            assert (limited.count(), limited.head(2).num_rows) == (count, min(2, count))


def assert_limited(results: list[pa.Table], rows: list[dict[str, object]], limit: int) -> None:
    """Check that each result consists of as many of some rows as a limit allows."""
    assert [len(result) for result in results] == [min(limit, len(rows))] * len(results)
    assert all(row in rows for result in results for row in result.to_pylist())


@pytest.mark.usefixtures("read_ahead")
def test_rows_come_in_the_order_of_the_plan(table: Table):
    plan = table.scan(columns=["id", "_file"])
    files = plan.to_arrow()["_file"].to_pylist()
    order = [path for path in plan.plan().files["file_path"].to_pylist() if path in files]
    assert list(dict.fromkeys(files)) == order


@pytest.mark.parametrize("columns", [["amount"], ["_pos", "id"], ["region", "id"]])
def test_a_stream_has_the_columns_asked_for_in_their_order(table: Table, columns: list[str]):
    for engine in ("arrow", "spark"):
        reader = table.scan("id < 60", columns).to_batches(engine)  # type: ignore[arg-type]
        assert reader.schema.names == columns
        assert reader.read_all().num_rows == table.scan("id < 60").count()


def test_a_stream_stops_reading_when_the_caller_stops(table: Table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_module, "_READ_AHEAD_BYTES", 700)
    monkeypatch.setattr(read_module, "reader_count", lambda *_: 1)
    read: list[int] = []
    batches = read_module.ScanReader.batches

    def counted(self: read_module.ScanReader, tasks: pa.Table) -> Iterator[pa.RecordBatch]:
        read.append(tasks.num_rows)
        return batches(self, tasks)

    monkeypatch.setattr(read_module.ScanReader, "batches", counted)
    reader = table.scan().to_batches()
    reader.read_next_batch()
    assert sum(read) < len(table.scan().plan().files)


def test_a_count_reads_no_file_where_metadata_answers(table: Table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan_module, "read_plan", lambda *_, **__: pytest.fail("a file is read"))
    if table.context.metadata.format_version > 2:  # positions in delete files of version 2 may overlap
        assert table.scan().count() == 96
    assert table.scan("id = 200 AND region = 'eu'").count() == 1


def test_a_large_scan_with_a_condition_is_left_to_spark(table: Table, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scan_module, "_FILTERED_LOCAL_BYTES", 0)
    monkeypatch.setattr(scan_module, "read_table", lambda *_, **__: pytest.fail("read in this process"))
    monkeypatch.setattr(scan_module, "read_plan", lambda *_, **__: pytest.fail("read in this process"))
    assert table.scan("amount > 10.5").to_arrow().num_rows == table.scan("amount > 10.5").count() > 0


def test_what_cannot_be_read_is_said(table: Table):
    with pytest.raises(UserError, match="limit of zero or more rows, not -1"):
        table.scan(limit=-1)
    with pytest.raises(UserError, match="engine 'duckdb'"):
        table.scan().to_batches("duckdb")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedFeature, match="outside Spark"):
        table.scan("id % 2 = 1").to_batches("arrow")


def test_a_past_schema_is_counted_by_its_own_names(tmp_path: Path):
    made = neve.connect(tmp_path).create_table("db.t", "id bigint, old string")
    made.append([{"id": n, "old": "x"} for n in range(3)])
    past = made.refresh().context.metadata.current_snapshot_id
    with made.evolve_schema() as change:
        change.rename_column("old", "new")
    assert made.scan("old = 'x'", snapshot_id=past).count() == 3


def test_many_equality_deletes_are_left_to_spark(lake: neve.Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_change, "MAX_ARROW_BYTES", 1 << 20)
    table = lake.create_table("db.t", "id bigint, name string")
    table.append([{"id": n, "name": "x"} for n in range(5)])
    delete_equal(table, 1)
    assert table.refresh().scan()._runs_in_process("auto")
    assert table.delete().where("id = 2").plan().judge.engine == "arrow"
    monkeypatch.setattr(plan_module, "MAX_EQUALITY_DELETE_BYTES", 0)
    assert not table.scan()._runs_in_process("auto")
    assert table.delete().where("id = 2").plan().judge.engine == "spark"

"""Rows that cross Spark's shuffle as columns: they arrive whole, in files of one partition, or with one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

import neve
from neve.errors import TableError, UserError, WriteFailed
from neve.run.change_tally import CLAUSE_COLUMN, FILE_COLUMN, POSITION_COLUMN, Effects
from neve.run.spark import column_exchange, row_parts
from neve.run.spark.column_exchange import ColumnExchange
from neve.run.spark.row_parts import Part, share_parts
from neve.run.spark.write import write_changes, write_dataframe
from neve.run.spark.writing_job import LocalLimits, written_entries
from tests.support.tables import local, rows_of, sorted_rows, written_rows

SIMPLE = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
DDL = (
    "id bigint, name string, price decimal(12, 2), ratio double, at timestamp, day date, raw binary, "
    "tags array<string>, pair struct<a: int, b: string>"
)
ROWS = """
    id, if(id % 7 = 0, null, concat('n', id % 5)) AS name, cast(id / 3 AS decimal(12, 2)) AS price,
    if(id % 11 = 0, double('NaN'), id / 8) AS ratio, timestamp_micros(id * 3600000000) AS at,
    date_from_unix_date(cast(id AS int)) AS day, cast(cast(id AS string) AS binary) AS raw,
    if(id % 3 = 0, null, array(cast(id AS string), null)) AS tags,
    named_struct('a', cast(id AS int), 'b', cast(null AS string)) AS pair
"""


@pytest.fixture(params=[512 << 10, 1], ids=["large payloads", "a payload a row"])
def payloads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_exchange, "_PAYLOAD_BYTES", request.param)


@pytest.fixture(params=["process", "files", "shuffle"])
def exchange_route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are exchanged in this process, or by tasks, through files or through Spark's shuffle."""
    size = 1 << 40 if request.param == "process" else -1
    monkeypatch.setattr(LocalLimits, "of", lambda spark: LocalLimits(rewritten=size, carried=size, source=0, threads=2))
    monkeypatch.setattr(ColumnExchange, "passes_files", lambda spark: request.param == "files")


@pytest.mark.usefixtures("payloads", "exchange_route")
@pytest.mark.parametrize(
    "partition_by",
    ["name", "bucket(4, id)", "years(at)", "days(day)", "truncate(2, name)", "bucket(3, price)", "ratio", "pair.a"],
)
def test_rows_arrive_whole_in_files_of_one_partition(spark_lake: neve.Lake, spark: SparkSession, partition_by: str):
    rows = spark.sql(f"SELECT {ROWS} FROM range(0, 100, 1, 3)")
    table = spark_lake.create_table("db.t", DDL)
    plain = spark_lake.create_table("db.plain", DDL)
    appended = spark_lake.create_table("db.appended", DDL, [partition_by])
    for each in (table, plain, appended):
        each.append(rows)
    table.evolve_partitions(add=[partition_by])
    table.rewrite_data_files().option("rewrite-all", "true").execute()
    assert rows_of(table.refresh()) == rows_of(appended.refresh()) == rows_of(plain.refresh())
    assert not table.verify().findings and not appended.verify().findings
    assert len(appended.scan().plan().files) == len(table.scan().plan().files)
    partitions = {str(row) for row in table.inspect.partitions().select(["partition"]).to_pylist()}
    assert len(table.scan().plan().files) == len(partitions)


def test_a_cluster_distributes_rows_of_spark(spark: SparkSession, aim: Any, monkeypatch: pytest.MonkeyPatch):
    """Spark does it itself. Rows that a task holds as Arrow data are exchanged, unless they are sorted."""
    monkeypatch.setattr(ColumnExchange, "passes_files", lambda spark: False)
    used: list[bool] = []
    run = ColumnExchange.run
    monkeypatch.setattr(ColumnExchange, "run", lambda self, *a, **k: used.append(True) or run(self, *a, **k))
    rows = spark.range(100).selectExpr("id", "cast(id % 3 AS string) AS name")
    target, effects = aim(SIMPLE, [(2, "identity")]), Effects(removes=(False,), writes=(True,))
    write_dataframe(rows, target)
    assert used == []
    changed = rows.selectExpr("*", f"0 AS {FILE_COLUMN}", f"id AS {POSITION_COLUMN}", f"0 AS {CLAUSE_COLUMN}")
    write_changes(changed, target, effects)
    assert used == [True]
    order = SortOrder(SortField(1, IdentityTransform()), order_id=1)
    for other in (aim(SIMPLE), aim(SIMPLE, [(2, "identity")], sort_order=order)):
        write_changes(changed, other, effects)
    assert used == [True]


@pytest.mark.usefixtures("exchange_route")
def test_a_row_that_cannot_be_stored_is_one_error_and_leaves_no_file(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "identity")])
    rows = spark.range(0, 1000, 1, 4).selectExpr("if(id = 777, null, id) AS id", "cast(id % 3 AS string) AS name")
    with pytest.raises(UserError, match="id"):
        write_dataframe(rows, target)
    assert not list(Path(target.location).rglob("*.parquet"))


@pytest.mark.usefixtures("payloads", "exchange_route")
def test_changed_rows_are_tallied_before_the_exchange(spark: SparkSession, aim: Any):
    """Rows that are only removed are counted, and not sent."""
    target = aim(SIMPLE, [(2, "identity")])
    rows = spark.range(0, 100, 1, 3).selectExpr(
        "id",
        "cast(id % 3 AS string) AS name",
        f"cast(id % 2 AS int) AS {FILE_COLUMN}",
        f"id AS {POSITION_COLUMN}",
        f"cast(id % 5 = 0 AS int) AS {CLAUSE_COLUMN}",
    )
    files, tally = write_changes(rows, target, Effects(removes=(True, True), writes=(True, False)))
    assert tally.rows_by_clause == (80, 20)
    assert {f: p.cardinality for f, p in tally.removed_positions.items()} == {0: 50, 1: 50}
    assert sorted(row["id"] for row in written_rows(files)) == [n for n in range(100) if n % 5]


@pytest.mark.usefixtures("exchange_route")
@pytest.mark.parametrize("verifies", [False, True])
def test_a_spec_upgrade_keeps_nanoseconds(spark_lake: neve.Lake, verifies: bool):
    """Rows that became rows of Spark would be cut to microseconds."""
    table = spark_lake.create_table("db.t", "id bigint, at timestamp_ns", format_version=3)
    times = pa.array([n * 1_000_000_007 + n for n in range(100)], pa.timestamp("ns"))
    table.append(pa.table({"id": range(100), "at": times}))
    before = sorted_rows(table.refresh())
    table.evolve_partitions(add=["bucket(4, id)"])
    rewrite = table.rewrite_data_files().option("rewrite-all", "true")
    rewrite.verify_rows(verifies).execute()
    assert sorted_rows(table.refresh()) == before
    assert table.scan().plan().files.spec_ids() == [1]


@pytest.mark.usefixtures("exchange_route")
def test_a_damaged_file_is_one_error_and_leaves_no_file(spark_lake: neve.Lake):
    table = spark_lake.create_table("db.t", "id bigint, name string")
    for start in (0, 100):
        table.append([{"id": start + n, "name": "abc"[n % 3]} for n in range(100)])
    table.evolve_partitions(add=["name"])
    [first, *_] = paths = table.scan().plan().files["file_path"].to_pylist()
    data = local(first).read_bytes()
    local(first).write_bytes(data[:8] + bytes(len(data) - 100) + data[-92:])
    with pytest.raises((TableError, UserError), match=local(first).name):
        table.rewrite_data_files().option("rewrite-all", "true").execute()
    assert set(local(first).parent.parent.rglob("*.parquet")) == set(map(local, paths))


def many_inputs(count: int, rows: int) -> list[pa.RecordBatch]:
    """Rows of five partitions in each of many inputs."""
    starts = range(0, count * rows, rows)
    names = [[None if n % 5 == 0 else f"n{n % 5}" for n in range(start, start + rows)] for start in starts]
    ids = [range(start, start + rows) for start in starts]
    kinds = [pa.int64(), pa.string()]
    return [
        pa.record_batch([*map(pa.array, columns, kinds)], ["id", "name"]) for columns in zip(ids, names, strict=True)
    ]


@pytest.mark.parametrize("held", [512 << 20, 10_000, 0], ids=["in memory", "some in files", "all in files"])
@pytest.mark.parametrize("threads", [1, 4, 64])
def test_rows_that_threads_split_are_in_one_file_for_each_partition(
    aim: Any, monkeypatch: pytest.MonkeyPatch, held: int, threads: int
):
    """However many cores there are, and however many partitions."""
    monkeypatch.setattr(column_exchange, "_SPLIT_ROWS", 10)
    monkeypatch.setattr(column_exchange, "_HELD_BYTES", held)
    target, inputs = aim(SIMPLE, [(2, "identity"), (1, "bucket[64]")]), many_inputs(40, 50)
    [*outputs] = ColumnExchange(target, lambda batches, _: iter(batches)).run_in_process(inputs, threads, None)
    written = written_entries(outputs, target)
    rows = written_rows(written)
    assert sorted(row["id"] for row in rows) == list(range(2000))
    assert {(row["id"] % 5, row["name"]) for row in rows} == {(0, None), (1, "n1"), (2, "n2"), (3, "n3"), (4, "n4")}
    partitions = [(row["p1000"], row["p1001"]) for row in written.to_pylist()]
    assert len(partitions) == len(set(partitions)) > 300


@pytest.mark.parametrize("when", ["splitting", "writing", "verifying"])
def test_an_error_in_one_thread_leaves_no_file(aim: Any, monkeypatch: pytest.MonkeyPatch, when: str):
    target, inputs = aim(SIMPLE, [(2, "identity")]), many_inputs(40, 50)

    def source(batches: Any, notes: list[pa.Table]) -> Any:
        for batch in batches:
            if when == "splitting" and batch.column(0)[0].as_py() == 1500:
                raise UserError("the row is wrong")
            yield batch

    def describe_files(files: Any) -> Any:
        raise OSError("the file cannot be read back")

    if when == "writing":
        monkeypatch.setattr("neve.run.write.data_files.make_durable", lambda *_: 1 / 0)
    exchange = ColumnExchange(target, source, describe_files if when == "verifying" else None)
    with pytest.raises((UserError, WriteFailed), match=r"the row is wrong|ZeroDivisionError|cannot be read back"):
        exchange.run_in_process(inputs, 4, None)
    assert not list(Path(target.location).rglob("*.parquet"))


@pytest.fixture
def scratch(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files of the session."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(spark.sparkContext, "_temp_dir", str(folder))
    monkeypatch.setattr(ColumnExchange, "passes_files", lambda spark: True)
    return folder


@pytest.mark.parametrize("row_bytes", [100, 30_000])
@pytest.mark.parametrize("plain_bytes", [256 << 20, 10_000])
def test_rows_that_tasks_pass_on_in_files_arrive_once(
    spark: SparkSession, aim: Any, monkeypatch: pytest.MonkeyPatch, scratch: Path, row_bytes: int, plain_bytes: int
):
    """Large rows make the job run again, and what the first attempt left in files must not count."""
    monkeypatch.setattr(row_parts, "_PLAIN_BYTES", plain_bytes)
    monkeypatch.setattr(column_exchange, "_SPLIT_BYTES", 64 << 10)
    target = aim(SIMPLE, [(1, "bucket[3]")])
    rows = spark.range(0, 500, 1, 20).selectExpr("id", f"rpad(cast(id AS string), {row_bytes}, 'x') AS name")
    written = write_dataframe(rows, target)
    assert len(written) == 3 and len({row["p1000"] for row in written.to_pylist()}) == 3
    found = sorted((row["id"], len(row["name"])) for row in written_rows(written))
    assert found == [(n, row_bytes) for n in range(500)]
    assert list(scratch.iterdir()) == [], "temporary files are deleted"


@pytest.mark.parametrize("when", ["writing parts", "reading parts"])
def test_a_temporary_folder_that_fails_is_one_sentence(
    spark: SparkSession, aim: Any, monkeypatch: pytest.MonkeyPatch, scratch: Path, when: str
):
    target = aim(SIMPLE, [(2, "identity")])
    if when == "reading parts":
        monkeypatch.setattr(row_parts.StoredRows, "read", lose_file(row_parts.StoredRows.read))
    else:
        monkeypatch.setattr(ColumnExchange, "_splitting_task", lose_folder(ColumnExchange._splitting_task))
    with pytest.raises(TableError, match=r"Cannot keep rows temporarily in .*scratch.*spark\.local\.dir"):
        write_dataframe(spark.range(100).selectExpr("id", "cast(id % 3 AS string) AS name"), target)
    assert not list(Path(target.location).rglob("*.parquet")) and list(scratch.iterdir()) == []


def lose_file(read: Any) -> Any:
    def read_after_loss(self: row_parts.StoredRows, schema: pa.Schema) -> pa.RecordBatch:
        Path(self.path).unlink(missing_ok=True)
        return read(self, schema)

    return read_after_loss


def lose_folder(splitting_task: Any) -> Any:
    return lambda self, folder: splitting_task(self, f"{folder}/that/does/not/exist")


def test_a_large_partition_fills_several_files(spark: SparkSession, aim: Any, scratch: Path):
    target = aim(SIMPLE, [(2, "identity")]).with_options(target_file_size=50_000)
    rows = spark.range(0, 100_000, 1, 4).selectExpr("xxhash64(id) AS id", "if(id < 99000, 'much', 'little') AS name")
    written = write_dataframe(rows, target).to_pylist()
    sizes = {name: [r["file_size_in_bytes"] for r in written if r["p1000"] == name] for name in ("much", "little")}
    assert len(sizes["little"]) == 1 and len(sizes["much"]) > 10
    assert max(sizes["much"]) < 150_000 and sum(row["record_count"] for row in written) == 100_000


def test_shares_have_whole_partitions_unless_they_fill_several_files(aim: Any):
    target = aim(SIMPLE, [(2, "identity")]).with_options(target_file_size=1 << 20)
    names = ["a", "b", "b", "b", "c", "b", "a"] * 10
    parts = [Part(name, (name,), None, pa.record_batch({}), 1 << 20, 10) for name in names]
    shares = share_parts(parts, target, threads=2)
    assert sorted(map(id, (part for share in shares for part in share))) == sorted(map(id, parts))
    assert max(sum(part.arrow_bytes for part in share) for share in shares) <= 9 << 20  # the table knows no row size
    assert [part.name for share in shares for part in share] == sorted(names)


def test_files_say_which_partition_they_hold(spark: SparkSession, aim: Any):
    target = aim(SIMPLE, [(2, "identity"), (1, "bucket[4]")])
    written = write_dataframe(spark.range(500).selectExpr("id", "cast(id % 3 AS string) AS name"), target)
    for row in written.to_pylist():
        inside = pq.read_table(row["file_path"])
        assert set(inside["name"].to_pylist()) == {row["p1000"]}
        assert row["record_count"] == inside.num_rows

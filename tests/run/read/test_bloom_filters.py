"""Bloom filters: written for the columns that a table names, right for DuckDB, and used to skip row groups."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError
from neve.io.parquet_bloom_filters import read_bloom_filter
from neve.io.parquet_footer import parse_statistics, read_footer
from neve.run.read import row_groups
from tests.support.tables import local

ENABLED = "write.parquet.bloom-filter-enabled.column."
DDL = (
    "i int, id bigint, name string, day date, at timestamp_ntz, zoned timestamp, clock time, price decimal(9, 2), "
    "wide decimal(38, 3), raw binary, fix fixed(4), u uuid, ratio double, place struct<city: string>, "
    "tags array<string>"
)
START = datetime.datetime(2026, 1, 1)


def row(n: int) -> dict[str, Any]:
    """A row whose values are the same only in rows of the same number; odd numbers are in no table."""
    at = START + datetime.timedelta(seconds=n, microseconds=n)
    clock = datetime.time(n // 3600 % 24, n // 60 % 60, n % 60)
    return {
        "i": n - 500, "id": n * 10**12, "name": f"name {n}", "day": (START + datetime.timedelta(days=n)).date(),
        "at": at, "zoned": at.replace(tzinfo=datetime.UTC), "clock": clock,
        "price": Decimal(n - 300).scaleb(-2), "wide": Decimal(n).scaleb(-3), "raw": f"r{n}".encode(),
        "fix": n.to_bytes(4, "big"), "u": UUID(int=n), "ratio": n / 7, "place": {"city": f"c{n}"}, "tags": [f"t{n}"],
    }  # fmt: skip


LITERALS = {
    "i": lambda n: f"{n - 500}", "id": lambda n: f"{n * 10**12}", "name": lambda n: f"'name {n}'",
    "day": lambda n: f"DATE '{row(n)['day']}'", "at": lambda n: f"TIMESTAMP_NTZ '{row(n)['at']}'",
    "zoned": lambda n: f"TIMESTAMP '{row(n)['at']} UTC'", "price": lambda n: f"{row(n)['price']}",
    "raw": lambda n: f"X'{row(n)['raw'].hex()}'", "u": lambda n: f"'{row(n)['u']}'",
    "place.city": lambda n: f"'c{n}'",
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> neve.Table:
    """Even numbers in no order, in one file with row groups of a few hundred rows."""
    lake = neve.connect(tmp_path_factory.mktemp("bloom"))
    names = [*LITERALS, "clock", "wide", "fix", "ratio", "tags.element"]
    properties = {f"{ENABLED}{name}": "true" for name in names} | {"write.parquet.row-group-size-bytes": "60000"}
    t = lake.create_table("db.t", DDL, properties=properties)
    numbers = [*range(0, 4000, 2)]
    random.Random(1).shuffle(numbers)
    t.append([row(n) for n in numbers])
    return t


@pytest.fixture
def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many row groups each read looks at."""
    seen: list[int] = []
    select = row_groups.row_groups_that_may_match

    def count(*values: Any) -> Any:
        mask = select(*values)
        seen.append(int(mask.sum()))
        return mask

    monkeypatch.setattr("neve.run.read.file_reader.row_groups_that_may_match", count)
    return seen


def file_of(table: neve.Table) -> Path:
    [path] = table.inspect.files()["file_path"].to_pylist()
    return local(path)


@pytest.mark.parametrize("column", LITERALS)
def test_a_value_is_found_and_an_absent_one_reads_nothing(table: neve.Table, groups_read: list[int], column: str):
    literal = LITERALS[column]
    total = pq.ParquetFile(file_of(table)).num_row_groups
    assert total >= 4
    for n in (0, 2, 1998, 3998):
        found = table.scan(f"{column} = {literal(n)}").to_arrow(engine="arrow")
        assert found["id"].to_pylist() == [n * 10**12]
    some = table.scan(f"{column} IN ({', '.join(map(literal, (2, 3, 4, 5)))})").to_arrow(engine="arrow")
    assert sorted(some["id"].to_pylist()) == [2 * 10**12, 4 * 10**12]
    assert sum(groups_read) < 5 * total
    groups_read.clear()
    for n in (1, 1999, 2001, 3001):
        assert table.scan(f"{column} = {literal(n)}").to_arrow(engine="arrow").num_rows == 0
    assert sum(groups_read) <= 2, "one false positive in a hundred"


def test_conditions_are_combined(table: neve.Table, groups_read: list[int]):
    def read(condition: str) -> tuple[int, int]:
        groups_read.clear()
        return table.scan(condition).to_arrow(engine="arrow").num_rows, sum(groups_read)

    assert read("name = 'name 1' OR id = 1000000000001") == (0, 0)
    assert read("name = 'name 1' AND ratio > 0") == (0, 0)
    rows, groups = read("name = 'name 1' OR ratio >= 0")
    assert rows == 2000 and groups >= 4
    assert read("name <> 'name 1'")[0] == 2000
    assert read("NOT (name = 'name 2')")[0] == 1999
    assert read("ratio = 0")[0] == 1, "floating-point numbers are not looked up"


@pytest.mark.parametrize(
    ("column", "present", "absent"),
    [
        ("i", "-498", "-499"),
        ("id", "2000000000000", "1000000000000"),
        ("name", "'name 2'", "'name 1'"),
        ("raw", "'r2'::BLOB", "'r1'::BLOB"),
    ],
)
def test_duckdb_asks_our_filters(table: neve.Table, column: str, present: str, absent: str):
    def excluded(value: str) -> list[bool]:
        text = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{file_of(table)}', '{column}', {value})"
        return [row[0] for row in duckdb.sql(text).fetchall()]

    assert excluded(present).count(False) in (1, 2) and excluded(absent).count(False) <= 1
    assert len(excluded(absent)) == pq.ParquetFile(file_of(table)).num_row_groups


def test_filters_that_spark_writes_are_asked(spark: SparkSession, tmp_path: Path, groups_read: list[int]):
    options = {"parquet.bloom.filter.enabled#name": "true", "parquet.bloom.filter.enabled#id": "true"}
    frame = spark.range(0, 20_000, 2).selectExpr("id", "concat('name ', id) AS name").orderBy("name").repartition(1)
    frame.write.options(**options, **{"parquet.enable.dictionary": "false"}).parquet(str(tmp_path / "files"))
    t = neve.connect(tmp_path / "lake", spark=spark).snapshot_folder(tmp_path / "files", "db.t")
    for column, literal in (("id", "{}"), ("name", "'name {}'")):
        for n in (0, 2, 9998, 19_998):
            found = t.scan(f"{column} = {literal.format(n)}").to_arrow(engine="arrow")
            assert found["id"].to_pylist() == [n]
        groups_read.clear()
        for n in (1, 2001, 9999):
            assert t.scan(f"{column} = {literal.format(n)}").to_arrow(engine="arrow").num_rows == 0
        assert sum(groups_read) <= 1


def test_a_column_that_was_widened(tmp_path: Path):
    """Its old files store integers of four bytes, and its values may need eight."""
    t = neve.connect(tmp_path).create_table("db.t", "n int", properties={f"{ENABLED}n": "true"})
    t.append([{"n": n} for n in range(0, 100, 2)])
    with t.evolve_schema() as change:
        change.update_column("n", LongType())
    t.append([{"n": 1 << 33}])
    assert t.scan("n = 8").to_arrow(engine="arrow").num_rows == 1
    assert t.scan("n = 9").to_arrow(engine="arrow").num_rows == 0
    assert t.scan(f"n = {1 << 33}").to_arrow(engine="arrow").num_rows == 1


def test_other_settings(tmp_path: Path):
    lake = neve.connect(tmp_path)

    def size(**settings: str) -> int | None:
        names = {f"write.parquet.bloom-filter-{k.replace('_', '-')}": v for k, v in settings.items()}
        t = lake.create_table("db.t", "id bigint, ok boolean", properties={f"{ENABLED}ok": "true", **names})
        t.append([{"id": n, "ok": True} for n in range(1000)])
        chunk = pq.ParquetFile(file_of(t)).metadata.row_group(0).column(0)
        lake.drop_table("db.t", purge=True)
        return chunk.bloom_filter_length

    on = {"enabled.column.id": "true"}
    assert size() is None
    plain = size(**on)
    assert plain and 1000 < plain < 4000
    assert (size(**on, **{"fpp.column.id": "0.3"}) or 0) < plain and (size(**on, **{"ndv.column.id": "9"}) or 0) < plain
    assert (size(**on, max_bytes="256") or 0) < 256 + 64
    for name, value in (("fpp.column.id", "1"), ("ndv.column.id", "none"), ("enabled.column.id", "yes")):
        with pytest.raises(UserError, match=f"write.parquet.bloom-filter-{name}"):
            size(**{name: value})


def test_a_damaged_filter_says_nothing(table: neve.Table):
    data = file_of(table).read_bytes()
    with file_of(table).open("rb") as stream:
        chunk = parse_statistics(read_footer(stream, len(data), "x"))[0][2]
    start = chunk.bloom_filter_start
    assert start
    random_bytes = random.Random(3)
    good = read_bloom_filter(pa.BufferReader(data), len(data), chunk, "x")
    names = pq.ParquetFile(file_of(table)).read_row_group(0)["name"].to_pylist()
    assert good is not None and all(good.may_hold(name.encode()) for name in names)
    assert sum(good.may_hold(f"no {name}".encode()) for name in names) < len(names) / 20
    for _ in range(300):
        damaged = bytearray(data)
        damaged[start + random_bytes.randrange(16)] = random_bytes.randrange(256)
        found = read_bloom_filter(pa.BufferReader(bytes(damaged)), len(data), chunk, "x")
        assert found is None or len(found.blocks) * 32 <= len(data)
    for cut in range(start, start + 40, 3):
        assert read_bloom_filter(pa.BufferReader(data[:cut]), cut, chunk, "x") is None

"""Bad input gets one clear error that names what and where, and nothing in the table changes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import neve
from neve.errors import CorruptFile, LimitExceeded, MissingFile, NeveError, UnknownName, UserError

ROWS = pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"], "n": pa.array([1, 2, 3], pa.int32())})


@pytest.fixture
def lake(tmp_path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


@pytest.fixture
def table(lake) -> neve.Table:
    table_of_events = lake.create_table(
        "db.events", "id bigint not null, region string, n int", partition_by=["region"]
    )
    table_of_events.append(ROWS)
    return table_of_events


def files_below(folder: Path) -> set[Path]:
    return {p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("catalog.db")}


WRONG: dict[str, tuple[Callable[[neve.Table], Any], type[NeveError], str]] = {
    "column in a condition": (lambda t: t.scan("regoin = 'eu'"), UnknownName, "regoin.*region"),
    "column to read": (lambda t: t.scan(columns=["idd"]), UnknownName, "idd.*id"),
    "condition that is no SQL": (lambda t: t.scan("id = = 3"), UserError, "id = = 3"),
    "rows to replace of an odd kind": (lambda t: t.overwrite(ROWS, where=5), UserError, "condition as SQL.*not as int"),
    "snapshot": (lambda t: t.scan(snapshot_id=7), UnknownName, "snapshot 7"),
    "branch to read": (lambda t: t.scan(ref="audit"), UnknownName, "audit"),
    "branch to write": (lambda t: t.append(ROWS, branch="audit"), UnknownName, "audit"),
    "two snapshots at once": (lambda t: t.scan(ref="main", snapshot_id=1), UserError, "one of"),
    "partition field": (lambda t: t.evolve_partitions(drop=["day"]), UnknownName, "day"),
    "partition transform": (lambda t: t.evolve_partitions(add=["weeks(id)"]), UnknownName, "weeks"),
    "partition of the wrong type": (lambda t: t.evolve_partitions(add=["days(region)"]), UserError, "region.*string"),
    "partition twice": (lambda t: t.evolve_partitions(add=["region"]), UserError, "region"),
    "unknown column in rows": (lambda t: t.append(ROWS.append_column("x", [[1, 2, 3]])), UserError, "x"),
    "missing required column": (lambda t: t.append(ROWS.drop_columns("id")), UserError, "id"),
    "null in a required column": (
        lambda t: t.append(pa.table({"id": pa.array([1, None]), "region": ["eu", "eu"]})),
        UserError,
        "id",
    ),
    "wrong type": (lambda t: t.append(pa.table({"id": [1], "n": ["not a number"]})), UserError, "n"),
    "number too large": (lambda t: t.append(pa.table({"id": [1], "n": pa.array([1 << 40])})), UserError, "n"),
    "rows of an odd kind": (lambda t: t.append("rows"), UserError, "str"),
    "fraction for a whole number": (lambda t: t.append([{"id": 1.5}]), UserError, "id"),
    "unknown column in dictionaries": (lambda t: t.append([{"id": 1, "x": 2}]), UserError, "x"),
    "values of two kinds": (
        lambda t: t.append([{"id": 1, "region": "a"}, {"id": 2, "region": 3}]),
        UserError,
        "region",
    ),
    "condition that is no text": (lambda t: t.scan(5), UserError, "int"),
    "time that is no time": (lambda t: t.scan(as_of="2020-01-01"), UserError, "as_of"),
    "partition fields as text": (lambda t: t.evolve_partitions(add="id"), UserError, "list"),
    "overwrite by a function": (lambda t: t.overwrite(ROWS, where="upper(region) = 'EU'"), UserError, "upper"),
    "isolation level": (lambda t: t.overwrite(ROWS, isolation="strict"), UnknownName, "strict.*serializable"),
    "rollback to nowhere": (lambda t: t.rollback(99), UnknownName, "99"),
    "downgrade": (lambda t: t.upgrade(1), UserError, "version"),
    "property value": (lambda t: t.set_properties(**{"gc.enabled": "maybe"}), UserError, "gc.enabled.*true or false"),
    "tag of the same name": (lambda t: t.create_tag("a").create_tag("a"), UserError, "'a'"),
    "branch without a name": (lambda t: t.create_branch(5), UserError, "branch needs a name, not 5"),
    "partition field that is no text": (lambda t: t.evolve_partitions(add=[5]), UserError, "partition field 5"),
    "property without a value": (lambda t: t.set_properties(a=None), UserError, "'a' to None.*remove_properties"),
    "column to sort by": (lambda t: t.rewrite_data_files().sort("idd").plan(), UnknownName, "'idd'.*'id'"),
    "columns to z-order by": (lambda t: t.rewrite_data_files().zorder("idd").plan(), UnknownName, "'idd'.*'id'"),
    "dropping main": (lambda t: t.drop_branch("main"), UserError, "main"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_requests_are_rejected_and_change_nothing(what, table, tmp_path):
    ask, kind, message = WRONG[what]
    before, rows = files_below(tmp_path), table.scan().to_arrow(engine="arrow").to_pylist()
    with pytest.raises(kind, match=rf"(?s){message}"):
        ask(table)
    after = files_below(tmp_path)
    assert {p for p in after - before if p.suffix != ".json"} == set(), "nothing is left behind"
    assert table.scan().to_arrow(engine="arrow").to_pylist() == rows


def test_unknown_tables_are_named_with_their_neighbours(lake, table):
    with pytest.raises(UnknownName, match=r"db\.evnts.*db\.events"):
        lake.table("db.evnts")
    with pytest.raises(UserError, match="namespace"):
        lake.table("events")
    with pytest.raises(UserError, match="already exists"):
        lake.create_table("db.events", "id bigint")


def test_a_lake_is_a_folder():
    with pytest.raises(UserError, match="folder of a lake as text or a path, not as int"):
        neve.connect(5)


@pytest.mark.parametrize("ddl", ["id", "id bigint, id", "id nonsense", "", "id int, id int"])
def test_invalid_schemas_are_rejected(lake, ddl):
    with pytest.raises(UserError):
        lake.create_table("db.other", ddl)
    assert lake.tables() == []


def test_arrow_types_are_those_of_the_format_version(lake):
    nanos = pa.schema([("at", pa.timestamp("ns"))])
    with pytest.raises(UserError, match=r"version 2.*'at'.*timestamp\[ns\]"):
        lake.create_table("db.two", nanos)
    for name, how in {"three": {"format_version": 3}, "stated": {"properties": {"format-version": "3"}}}.items():
        assert str(lake.create_table(f"db.{name}", nanos, **how).schema.find_type("at")) == "timestamp_ns"


def test_rows_of_nulls_and_no_rows_at_all(lake):
    table = lake.create_table("db.open", "id bigint, tags array<string>, m map<string, int>")
    assert table.append([]).snapshot_id is None
    assert table.append([{}, {"tags": []}]).rows_added == 2
    table.append([{"id": 1, "m": {"a": 1}}])
    rows = table.scan().to_arrow(engine="arrow").to_pylist()
    assert [r["id"] for r in rows if r["tags"] is None and not r["m"]] == [None]
    assert [r["m"] for r in rows if r["id"] == 1] == [[("a", 1)]]


def test_overwrites_say_what_they_removed(table):
    done = table.overwrite(ROWS.slice(0, 1), where="region = 'eu'")
    assert (done.rows_added, done.rows_removed, done.files_removed) == (1, 2, 1)


def test_an_error_of_spark_is_one_sentence(table, spark):
    for where in ("foo(id) = 1", "sum(id) > 1", "id + 1", "n = 'abc'"):
        with pytest.raises(UserError, match=r"db\.events where") as caught:
            table.scan(where).to_arrow(engine="spark")
        assert len(str(caught.value)) < 600


def file_of(table: neve.Table, what: str) -> Path:
    context = table.refresh().context
    snapshot = context.metadata.current_snapshot()
    paths = {
        "metadata": context.iceberg.metadata_location,
        "manifest list": snapshot.manifest_list,
        "manifest": table.inspect.manifests()["path"][0].as_py(),
        "data file": table.inspect.files()["file_path"][0].as_py(),
    }
    return Path(paths[what].removeprefix("file://"))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "something else": lambda data: b"GIF89a" + data[6:],
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifest", "data file"])
def test_errors_name_damaged_files(what, damage, lake, table):
    file = file_of(table, what)
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    with pytest.raises(CorruptFile, match=file.name):
        lake.table("db.events").scan().to_arrow(engine="arrow")


@pytest.mark.parametrize("what", ["metadata", "manifest list", "manifest", "data file"])
def test_errors_name_missing_files(what, lake, table):
    file = file_of(table, what)
    file.unlink()
    with pytest.raises(MissingFile, match=file.name):
        lake.table("db.events").scan().to_arrow(engine="arrow")


def test_metadata_that_would_fill_the_memory_is_rejected(lake, table, tmp_path):
    bomb = tmp_path / "00009-bomb.gz.metadata.json"
    bomb.write_bytes(gzip.compress(b" " * (100 << 20), compresslevel=9) * 30)  # members follow one another
    assert bomb.stat().st_size < 8 << 20
    with pytest.raises((LimitExceeded, CorruptFile), match="bomb"):
        lake.register_table("db.bomb", bomb.as_uri())
    assert lake.tables() == ["db.events"]

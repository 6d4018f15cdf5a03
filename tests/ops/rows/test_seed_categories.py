"""The test categories of the UPDATE design and of the partition evolution design, by their names.

UPDATE: basic (6), expression (3), partitioned (5), integration (2). Partition evolution: DML on evolved tables (3),
which spec new files are under (2). Each test runs in two of the seven combinations of version and mode, in all with
NEVE_CASES=all; version 1 has no delete files, so it knows copy-on-write only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import neve
from neve.tree.entries import Content, EntryTable, Status
from neve.tree.read import manifests_of, read_entries
from tests.support.coverage import WANTS_ALL_CASES
from tests.support.spark_sessions import compiled
from tests.support.tables import sorted_rows

Row = dict[str, Any]
COMBINATIONS = [(1, "copy-on-write"), *((v, m) for v in (2, 3, 4) for m in ("copy-on-write", "merge-on-read"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Two combinations a test, another two for the next one; all of them when asked."""
    tests = [name for name in globals() if name.startswith("test_")]
    at = tests.index(metafunc.function.__name__)
    chosen = [COMBINATIONS[(at + shift) % len(COMBINATIONS)] for shift in (0, 2)]
    if WANTS_ALL_CASES:
        chosen = COMBINATIONS
    metafunc.parametrize("combination", chosen, ids=lambda c: f"v{c[0]}-{c[1]}")


@dataclass
class Maker:
    """Makes tables of one version and mode."""

    lake: neve.Lake
    version: int
    mode: str
    numbers: Iterator[int]

    def table(self, ddl: str, *batches: list[Row], partition_by: list[str] | None = None) -> neve.Table:
        modes = {f"write.{command}.mode": self.mode for command in ("delete", "update", "merge")}
        name = f"db.t{next(self.numbers)}"
        made = self.lake.create_table(
            name, ddl, partition_by=partition_by or [], format_version=self.version, properties=modes
        )
        for rows in batches:
            made.append(rows)
        return made

    @property
    def is_merge_on_read(self) -> bool:
        return self.mode == "merge-on-read"


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count()


@pytest.fixture(scope="module")
def lake(tmp_path_factory, spark) -> neve.Lake:
    return neve.connect(tmp_path_factory.mktemp("seeds"), spark=compiled(spark))


@pytest.fixture
def make(lake: neve.Lake, combination: tuple[int, str], numbers: Iterator[int]) -> Maker:
    return Maker(lake, *combination, numbers)


def rows(table: neve.Table) -> list[Row]:
    """What the table holds, by id; the audit passes."""
    audit = table.verify()
    assert audit.is_sound, str(audit)
    return sorted_rows(table)


def head(table: neve.Table) -> EntryTable:
    """The entries of the current snapshot, tombstones included."""
    context = table.refresh().context
    manifests = manifests_of(context.io, context.metadata, context.head())
    entries = read_entries(context.io, manifests, context.specs)
    told = [manifests[i].spec_id for i in entries["manifest"].to_pylist()]
    assert entries["spec_id"].to_pylist() == told, "a manifest holds one spec"
    return entries


def added(table: neve.Table, content: Content) -> EntryTable:
    """The files of a kind that the current snapshot added."""
    entries, current = head(table), table.context.metadata.current_snapshot_id
    pairs = zip(entries["status"].to_pylist(), entries["snapshot_id"].to_pylist(), strict=True)
    mask = pa.array([(status, by) == (int(Status.ADDED), current) for status, by in pairs], pa.bool_())
    return entries.filter(mask).of_content(content)


NUMBERS = "id bigint, a int, b int"
THREE = [{"id": 1, "a": 10, "b": 100}, {"id": 2, "a": 20, "b": 200}, {"id": 3, "a": 30, "b": 300}]


# --- basic ---


def test_update_empty_table(make: Maker):
    t = make.table(NUMBERS)
    result = t.update().set("a", "1").execute()
    assert (result.snapshot_id, result.rows_updated, rows(t)) == (None, 0, [])


def test_update_no_match(make: Maker):
    t = make.table(NUMBERS, THREE)
    before = t.iceberg.metadata_location
    result = t.update().set("a", "1").where("id = 99").execute()
    assert (result.snapshot_id, result.rows_updated) == (None, 0)
    assert rows(t) == THREE and t.iceberg.metadata_location == before


def test_update_full_table(make: Maker):
    t = make.table(NUMBERS, THREE)
    assert t.update().set("a", "0").execute().rows_updated == 3
    assert rows(t) == [row | {"a": 0} for row in THREE]


def test_update_with_predicate(make: Maker):
    t = make.table(NUMBERS, THREE)
    assert t.update().set("a", "0").where("b >= 200").execute().rows_updated == 2
    assert rows(t) == [row | {"a": 0 if row["b"] >= 200 else row["a"]} for row in THREE]


def test_update_multiple_columns(make: Maker):
    t = make.table(NUMBERS, THREE)
    t.update().set({"a": "1", "b": "2"}).where("id = 2").execute()
    assert rows(t) == [THREE[0], {"id": 2, "a": 1, "b": 2}, THREE[2]]


def test_update_to_null(make: Maker):
    t = make.table(NUMBERS, THREE)
    t.update().set("b", "NULL").where("id = 3").execute()
    assert rows(t) == [*THREE[:2], THREE[2] | {"b": None}]


# --- expression ---


def test_update_self_reference(make: Maker):
    t = make.table(NUMBERS, THREE)
    t.update().set("a", "a + 1").execute()
    assert rows(t) == [row | {"a": row["a"] + 1} for row in THREE]


def test_update_cross_column_swap(make: Maker):
    t = make.table(NUMBERS, THREE)
    t.update().set("a", "b").set("b", "a").execute()
    assert rows(t) == [row | {"a": row["b"], "b": row["a"]} for row in THREE]


def test_update_computed_expression(make: Maker):
    t = make.table(NUMBERS, THREE)
    t.update().set("b", "a * 2 + CASE WHEN id = 1 THEN 1 ELSE b END").execute()
    assert rows(t) == [row | {"b": row["a"] * 2 + (1 if row["id"] == 1 else row["b"])} for row in THREE]


# --- partitioned ---

REGIONS = "id bigint, region string, v int"
BY_REGION = [{"id": 1, "region": "eu", "v": 1}, {"id": 2, "region": "us", "v": 2}, {"id": 3, "region": "eu", "v": 3}]


def test_update_identity_partition(make: Maker):
    t = make.table(REGIONS, BY_REGION, partition_by=["region"])
    t.update().set("v", "v * 10").where("region = 'eu'").execute()
    assert rows(t) == [row | {"v": row["v"] * 10 if row["region"] == "eu" else row["v"]} for row in BY_REGION]
    files = added(t, Content.DATA)
    assert {files.partition_key(i).values for i in range(len(files))} == {("eu",)}


def test_update_year_transform(make: Maker):
    years = [{"id": i, "ts": datetime(2020 + i, 6, 1, tzinfo=UTC), "v": i} for i in range(3)]
    t = make.table("id bigint, ts timestamp, v int", years, partition_by=["years(ts)"])
    t.update().set("ts", "ts + INTERVAL '1' YEAR").where("v >= 1").execute()
    moved = [row | {"ts": row["ts"].replace(year=row["ts"].year + 1)} if row["v"] >= 1 else row for row in years]
    assert rows(t) == moved
    files = added(t, Content.DATA)
    assert {files.partition_key(i).values for i in range(len(files))} == {(52,), (53,)}


def test_update_cross_partition(make: Maker):
    t = make.table(REGIONS, BY_REGION, partition_by=["region"])
    t.update().set("region", "'asia'").where("id = 1").execute()
    assert rows(t) == [BY_REGION[0] | {"region": "asia"}, *BY_REGION[1:]]
    assert t.scan("region = 'eu'").to_arrow(engine="arrow")["id"].to_pylist() == [3]
    assert t.scan("region = 'asia'").to_arrow(engine="arrow")["id"].to_pylist() == [1]


def test_update_multi_file(make: Maker):
    more = [row | {"id": row["id"] + 10} for row in BY_REGION]
    t = make.table(REGIONS, BY_REGION, more, partition_by=["region"])
    assert t.update().set("v", "0").where("id IN (1, 2, 11, 12)").execute().rows_updated == 4
    assert rows(t) == [row | {"v": 0 if row["id"] % 10 in (1, 2) else row["v"]} for row in (*BY_REGION, *more)]


def test_update_leaves_other_partitions_alone(make: Maker):
    t = make.table(REGIONS, BY_REGION, partition_by=["region"])
    before = dict(zip(*(head(t)[c].to_pylist() for c in ("file_path", "spec_id")), strict=True))
    t.update().set("v", "0").where("region = 'us'").execute()
    live = head(t).live().of_content(Content.DATA)
    kept = set(before) & set(live["file_path"].to_pylist())
    assert len(kept) == 1 and "eu" in kept.pop()
    assert rows(t) == [row | {"v": 0 if row["region"] == "us" else row["v"]} for row in BY_REGION]


# --- integration ---


def test_select_after_update(make: Maker):
    t = make.table(REGIONS, BY_REGION, partition_by=["region"])
    t.update().set("v", "v + 100").where("region = 'eu'").execute()
    answer = make.lake.sql(f"SELECT region, sum(v) AS total FROM {t.name} GROUP BY region ORDER BY region").toArrow()
    assert answer.to_pylist() == [{"region": "eu", "total": 204}, {"region": "us", "total": 2}]


def test_select_after_two_updates(make: Maker):
    t = make.table(NUMBERS, THREE)
    t.update().set("a", "a + 1").where("id <= 2").execute()
    t.update().set("a", "a * 2").where("id >= 2").execute()
    assert make.lake.sql(f"SELECT id, a FROM {t.name} ORDER BY id").toArrow().to_pylist() == [
        {"id": 1, "a": 11},
        {"id": 2, "a": 42},
        {"id": 3, "a": 60},
    ]


# --- partition evolution ---

EVENTS = "id bigint, ts timestamp, region string, v int"


def event(number: int, region: str) -> Row:
    return {"id": number, "ts": datetime(2026, 1, 1 + number % 2, tzinfo=UTC), "region": region, "v": number}


OLD, NEW = [event(i, "eu") for i in range(1, 5)], [event(i, "us") for i in range(11, 15)]


def evolved(make: Maker) -> neve.Table:
    """Rows under days(ts), then rows under days(ts) and region."""
    t = make.table(EVENTS, OLD, partition_by=["days(ts)"])
    t.evolve_partitions(add=["region"])
    t.append(NEW)
    return t


def test_delete_with_partition_evolution(make: Maker):
    t = evolved(make)
    assert t.delete().where("v IN (1, 2, 11, 12)").execute().rows_deleted == 4
    assert [row["id"] for row in rows(t)] == [3, 4, 13, 14]


def test_update_with_partition_evolution(make: Maker):
    t = evolved(make)
    assert t.update().set("v", "-v").where("v IN (1, 2, 11, 12)").execute().rows_updated == 4
    assert rows(t) == [row | {"v": -row["v"] if row["v"] in (1, 2, 11, 12) else row["v"]} for row in (*OLD, *NEW)]
    specs = {m.spec_id for m in manifests_of(t.context.io, t.context.metadata, t.context.head())}
    assert specs == {0, 1}, "separate manifests per spec"


def test_merge_with_partition_evolution(make: Maker):
    t = evolved(make)
    source = [event(1, "zz"), event(11, "zz"), event(21, "zz")]
    result = (
        t.merge(source, on="t.id = s.id")
        .when_matched_update({"region": "s.region"})
        .when_not_matched_insert_all()
        .execute()
    )
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    moved = [row | {"region": "zz"} if row["id"] in (1, 11) else row for row in (*OLD, *NEW)]
    assert rows(t) == [*moved, source[2]]


def test_delete_files_inherit_the_spec_of_their_data_file(make: Maker):
    t = evolved(make)
    t.delete().where("v IN (1, 2, 11, 12)").execute()
    deletes, data = added(t, Content.POSITION_DELETES), head(t).of_content(Content.DATA)
    if not make.is_merge_on_read:
        assert not len(deletes) and added(t, Content.DATA).spec_ids() == [1]
        return
    assert deletes.spec_ids() == [0, 1]
    keys = {data["file_path"][i].as_py(): data.partition_key(i) for i in range(len(data))}
    for i in range(len(deletes)):
        assert deletes.partition_key(i) == keys[deletes["referenced_data_file"][i].as_py()]


def test_update_writes_new_files_with_default_spec(make: Maker):
    t = evolved(make)
    t.update().set("v", "-v").where("v IN (1, 12)").execute()
    assert added(t, Content.DATA).spec_ids() == [t.context.metadata.default_spec_id] == [1]
    if make.is_merge_on_read:
        assert added(t, Content.POSITION_DELETES).spec_ids() == [0, 1], "position deletes use the original spec"

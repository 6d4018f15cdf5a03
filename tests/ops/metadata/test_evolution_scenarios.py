"""Tables whose schema and partition spec have changed, read and looked into through the public API: one scenario each.

Rows are few and written in this process; the second opinion is PyIceberg's, or a list comprehension.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest
from pyiceberg.types import StringType

import neve
from neve.errors import UserError
from neve.model.partition import PartitionKey
from tests.peers.readers import for_peers
from tests.support.tables import ids_of, sorted_rows

SCHEMA = "id bigint not null, region string, ts timestamp"
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Create = Callable[..., neve.Table]


@pytest.fixture
def create(lake: neve.Lake) -> Create:
    """Create the table of a test."""
    return lambda version, by=("region",), schema=SCHEMA: lake.create_table(
        "db.t", schema, partition_by=by, format_version=version
    )


each_version = pytest.mark.parametrize("version", [1, 2, 3, 4])


def rows_of(regions: dict[int, str | None], **more: Any) -> list[dict[str, Any]]:
    """Rows by id and region, each an hour after the one before it."""
    return [{"id": i, "region": r, "ts": START + dt.timedelta(hours=i), **more} for i, r in regions.items()]


def ids_by_pyiceberg(t: neve.Table, where: str | None = None) -> list[int]:
    table = for_peers(t)
    scan = table.scan() if where is None else table.scan(row_filter=where)
    return sorted(scan.to_arrow()["id"].to_pylist())


def planned(t: neve.Table, where: str | None = None, **of: Any) -> dict[int, int]:
    """How many files of each spec a scan would read."""
    return {spec_id: len(files) for spec_id, files in t.scan(where, **of).plan().files.by_spec()}


def specs(t: neve.Table) -> dict[int, list[tuple[int, str, str]]]:
    """The fields of every spec: id, name and transform."""
    return {
        s["spec_id"]: [(f["field_id"], f["name"], f["transform"]) for f in s["fields"]]
        for s in t.inspect.specs().to_pylist()
    }


def default_spec(t: neve.Table) -> list[tuple[int, str, str]]:
    return specs(t)[t.iceberg.metadata.default_spec_id]


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """The spec and the union tuple of a row of a metadata table."""
    return row["spec_id"], row["partition"]["zone"], row["partition"]["id_bucket_2"]


class TestScans:
    @each_version
    def test_scan_partition_source_renamed(self, create: Create, version: int):
        t = create(version, by=("region", "days(ts)"))
        t.append(rows_of({1: "eu", 2: "us", 30: "eu"}))
        with t.evolve_schema() as change:
            change.rename_column("region", "area").rename_column("ts", "at")
        t.append([{"id": 4, "area": "eu", "at": START}, {"id": 5, "area": None, "at": START}])
        assert ids_of(t, "area = 'eu'") == ids_by_pyiceberg(t, "area = 'eu'") == [1, 4, 30]
        assert planned(t, "area = 'eu'") == {0: 3} and planned(t) == {0: 5}
        assert planned(t, "at >= TIMESTAMP '2024-01-02'") == {0: 1}
        assert ids_of(t, "area is null") == [5] and planned(t, "area is null") == {0: 1}
        assert {row["area"] for row in sorted_rows(t)} == {"eu", "us", None}
        with pytest.raises(UserError, match="region"):
            t.scan("region = 'eu'")

    @each_version
    def test_scan_partition_source_dropped(self, create: Create, version: int):
        t = create(version)
        t.append(rows_of({1: "eu", 2: "us"}))
        with pytest.raises(UserError, match="partitioned by it"), t.evolve_schema() as change:
            change.delete_column("region")
        t.evolve_partitions(add=["bucket(4, id)"], drop=["region"])
        with t.evolve_schema() as change:
            change.delete_column("region")
        t.append([{"id": 3, "ts": START}])
        assert sorted_rows(t) == [{"id": i, "ts": START + dt.timedelta(hours=i % 3)} for i in (1, 2, 3)]
        assert planned(t, "id = 3") == {1: 1} and ids_of(t, "id < 3") == [1, 2]
        found = t.inspect.partitions().select(["partition", "spec_id"]).to_pylist()
        assert [(p["spec_id"], p["partition"]["region"]) for p in found] == [(0, "eu"), (0, "us"), (1, None)]
        t.overwrite([{"id": 0, "ts": START}], where="id <= 1")
        assert ids_of(t) == ids_by_pyiceberg(t) == [0, 2, 3], "the manifest of the old spec was written anew"

    @pytest.mark.parametrize("version", [2, 3, 4])
    def test_scan_default_value_column(self, create: Create, version: int):
        t = create(version)
        t.append(rows_of({1: "eu", 2: "us"}))
        if version < 3:
            with pytest.raises(UserError, match=f"default in a version {version} table"), t.evolve_schema() as change:
                change.add_column("tier", StringType(), default_value="basic")
            assert "tier" not in t.refresh().schema.column_names
            t.upgrade(3)
        with t.evolve_schema() as change:
            change.add_column("tier", StringType(), default_value="basic")
        t.append(rows_of({3: "eu"}, tier="gold") + rows_of({4: "eu"}, tier=None) + rows_of({5: "eu"}, tier="basic"))
        t.append(rows_of({6: "eu"}))
        tiers = {1: "basic", 2: "basic", 3: "gold", 4: None, 5: "basic", 6: "basic"}
        assert {row["id"]: row["tier"] for row in sorted_rows(t)} == tiers
        asked: dict[str, Callable[[str | None], bool]] = {
            "tier = 'basic'": lambda tier: tier == "basic",
            "tier = 'gold'": lambda tier: tier == "gold",
            "tier <> 'basic'": lambda tier: tier is not None and tier != "basic",
            "tier > 'c'": lambda tier: tier is not None and tier > "c",
            "tier is null": lambda tier: tier is None,
            "tier is not null": lambda tier: tier is not None,
            "tier in ('silver', 'bronze')": lambda tier: False,
        }
        for where, matches in asked.items():
            assert ids_of(t, where) == [i for i, tier in tiers.items() if matches(tier)], where
        t.evolve_partitions(add=["tier"])
        t.append(rows_of({7: "eu"}, tier="basic") + rows_of({8: "eu"}, tier="gold"))
        assert ids_of(t, "tier = 'basic'") == [1, 2, 5, 6, 7] and ids_of(t, "tier = 'gold'") == [3, 8]
        assert planned(t, "tier = 'gold'")[1] == 1


class TestSpecs:
    def test_spec_add_remove_readd(self, create: Create):
        """From version 2 on a field keeps its id, and a spec that comes back is the same spec."""
        t = create(2)
        t.append(rows_of({1: "eu"}))
        t.evolve_partitions(add=["bucket(4, id)"])
        both = [(1000, "region", "identity"), (1001, "id_bucket_4", "bucket[4]")]
        assert default_spec(t) == both
        t.append(rows_of({2: "eu"}))
        t.evolve_partitions(drop=["id_bucket_4"])
        assert t.iceberg.metadata.default_spec_id == 0
        t.evolve_partitions(add=["bucket(4, id)"])
        assert t.iceberg.metadata.default_spec_id == 1 and len(specs(t)) == 2
        t.evolve_partitions(drop=["region"])
        t.evolve_partitions(add=["region"])
        assert specs(t)[3] == both[::-1], "the same ids in another order"
        t.evolve_partitions(drop=["region", "bucket(4, id)"], add=["bucket(4, id)", "region", "truncate(2, region)"])
        assert default_spec(t) == [*both[::-1], (1002, "region_trunc_2", "truncate[2]")], "dropped and added: stays"
        t.append(rows_of({3: "eu", 4: "us"}))
        assert t.iceberg.metadata.last_partition_id == 1002
        assert ids_of(t, "region = 'eu'") == ids_by_pyiceberg(t, "region = 'eu'") == [1, 2, 3]
        assert planned(t, "region = 'eu'") == {0: 1, 1: 1, 4: 1}
        with pytest.raises(UserError, match="partitioned by it already"):
            t.evolve_partitions(add=["region"])

    def test_spec_add_remove_readd_v1(self, create: Create):
        """Version 1 keeps the dropped field as void, out of the way of the name."""
        t = create(1)
        t.append(rows_of({1: "eu"}))
        t.evolve_partitions(drop=["region"])
        t.append(rows_of({2: "eu"}))
        t.evolve_partitions(add=["region"])
        assert default_spec(t) == [(1000, "region_1000", "void"), (1001, "region", "identity")]
        t.append(rows_of({3: "eu", 4: "us"}))
        assert ids_of(t, "region = 'eu'") == ids_by_pyiceberg(t, "region = 'eu'") == [1, 2, 3]
        t.evolve_partitions(drop=["region"], add=["region"])
        assert len(specs(t)) == 3, "dropped and added at once it stays as it is"
        t.evolve_partitions(drop=["region"])
        assert default_spec(t) == [(1000, "region_1000", "void"), (1001, "region", "void")]
        assert t.inspect.partitions().num_rows == 4

    def test_spec_add_remove_readd_after_an_upgrade(self, create: Create):
        t = create(1)
        t.append(rows_of({1: "eu"}))
        t.evolve_partitions(drop=["region"])
        t.append(rows_of({2: "eu"}))
        t.upgrade(2)
        t.evolve_partitions(add=["region"])
        assert default_spec(t) == [(1000, "region", "identity")] and t.iceberg.metadata.default_spec_id == 0
        t.append(rows_of({3: "eu"}))
        assert ids_of(t, "region = 'eu'") == ids_by_pyiceberg(t, "region = 'eu'") == [1, 2, 3]

    def test_spec_add_remove_readd_under_a_name_that_is_taken(self, create: Create):
        t = create(2, by=("region", "bucket(4, id)"))
        t.append(rows_of({1: "eu"}))
        t.evolve_partitions(drop=["id_bucket"])
        t.evolve_partitions(rename={"region": "id_bucket"})
        t.evolve_partitions(add=["bucket(4, id)"])
        assert default_spec(t) == [(1000, "id_bucket", "identity"), (1001, "id_bucket_4", "bucket[4]")]
        t.append(rows_of({2: "eu"}))
        assert ids_of(t, "region = 'eu' and id = 2") == [2]

    @each_version
    def test_spec_redundant_time(self, create: Create, version: int):
        t = create(version, by=("days(ts)",))
        with pytest.raises(UserError, match="two time units of the column 'ts'"):
            t.evolve_partitions(add=["hours(ts)", "months(ts)"])
        t.append(rows_of({1: "eu", 2: "eu"}))
        t.evolve_partitions(add=["hours(ts)"])
        assert default_spec(t) == [(1000, "ts_day", "day"), (1001, "ts_hour", "hour")]
        t.append(rows_of({3: "eu", 4: "eu"}))
        at_three = "ts >= TIMESTAMP '2024-01-01 03:00:00' and ts < TIMESTAMP '2024-01-01 04:00:00'"
        assert ids_of(t, at_three) == [3] and planned(t, at_three).get(1) == 1
        assert planned(t, "ts < TIMESTAMP '2024-01-01'") == {}

    def test_spec_redundant_time_at_creation(self, create: Create):
        with pytest.raises(UserError, match="two time units of the column 'ts'"):
            create(2, by=("days(ts)", "hours(ts)"))

    @each_version
    def test_spec_void_v1(self, create: Create, version: int):
        t = create(version, by=("region", "days(ts)"))
        t.append(rows_of({1: "eu"}))
        t.evolve_partitions(drop=["region"])
        day = (1001, "ts_day", "day")
        assert default_spec(t) == ([(1000, "region", "void"), day] if version == 1 else [day])
        t.append(rows_of({2: "eu", 3: "us", 30: "us"}))
        assert planned(t) == {0: 1, 1: 2}, "regions are no longer apart, days are"
        live = t.scan("id > 1").plan().files
        days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
        keys = {live.partition_key(row) for row in range(len(live))}
        assert keys == {PartitionKey(1, (None, day) if version == 1 else (day,)) for day in days}
        assert ids_of(t, "region = 'us'") == ids_by_pyiceberg(t, "region = 'us'") == [3, 30]
        t.evolve_partitions(drop=["days(ts)"])
        t.append(rows_of({4: "asia", 40: "eu"}))
        assert planned(t) == {0: 1, 1: 2, 2: 1}
        assert len(default_spec(t)) == (2 if version == 1 else 0)
        t.overwrite_partitions(rows_of({5: "eu"}))
        assert ids_of(t) == [5], "a spec of void fields is as good as none"


class TestMetadataTables:
    # spec, zone and bucket of each file below, which holds one row: of two buckets, ids 4 and 10 are in the first
    FILES = (
        *((0, zone, None) for zone in ("eu", "us", None)),
        *((1, "eu", 0), (1, "us", 1), (1, "eu", 1), (1, "eu", 0)),
        (2, None, 1),
    )

    @pytest.fixture(params=[1, 3], ids=["v1", "v3"])
    def t(self, create: Create, request: pytest.FixtureRequest) -> neve.Table:
        """Files under three specs: by region, by region and bucket, and by bucket alone."""
        made = create(request.param)
        made.append(rows_of({1: "eu", 2: "us", 3: None}))
        made.evolve_partitions(add=["bucket(2, id)"], rename={"region": "zone"})
        made.append(rows_of({4: "eu", 5: "us"}))
        made.append(rows_of({6: "eu", 10: "eu"}))
        made.evolve_partitions(drop=["zone"])
        made.append(rows_of({6: "us"}))
        return made

    def test_meta_files_two_specs(self, t: neve.Table):
        files = t.inspect.files()
        assert Counter(map(place, files.to_pylist())) == Counter(self.FILES)
        zone, bucket, spec = pc.field("partition", "zone"), pc.field("partition", "id_bucket_2"), pc.field("spec_id")
        assert Counter(map(place, files.filter(zone == "eu").to_pylist())) == Counter(
            f for f in self.FILES if f[1] == "eu"
        )
        assert files.filter((zone == "eu") & bucket.is_null())["spec_id"].to_pylist() == [0]
        assert sorted(files.filter(bucket == 1)["spec_id"].to_pylist()) == [1, 1, 2]
        assert files.filter(zone.is_null() & (spec != 2))["spec_id"].to_pylist() == [0]
        told = ["file_path", "spec_id", "record_count"]
        theirs, ours = (table.select(told).sort_by("file_path") for table in (t.iceberg.inspect.files(), files))
        assert theirs.to_pylist() == ours.to_pylist()

    def test_meta_partitions_two_specs(self, t: neve.Table):
        partitions, sizes = t.inspect.partitions().to_pylist(), Counter[tuple[Any, ...]]()
        for file in t.inspect.files().to_pylist():
            sizes[place(file)] += file["file_size_in_bytes"]
        expected = Counter(self.FILES)
        assert [place(p) for p in partitions] == sorted(expected, key=lambda f: (f[0], f[1] or "~", f[2]))
        assert {place(p): p["file_count"] for p in partitions} == expected
        assert {place(p): p["record_count"] for p in partitions} == expected
        assert {place(p): p["total_data_file_size_in_bytes"] for p in partitions} == sizes
        assert {p["position_delete_file_count"] + p["equality_delete_file_count"] for p in partitions} == {0}

    @each_version
    def test_time_travel_before_spec_change(self, create: Create, version: int):
        t = create(version)
        then = t.append(rows_of({1: "eu", 2: "us"})).snapshot_id
        t.create_tag("before")
        made_at = t.inspect.snapshots()["committed_at"].to_pylist()[0]
        t.evolve_partitions(add=["bucket(4, id)"], drop=["region"])
        with t.evolve_schema() as change:
            change.rename_column("region", "area")
        t.append([{"id": 3, "area": "eu", "ts": START}])
        t.overwrite([{"id": 4, "area": "us", "ts": START}], where="area = 'us'")
        assert ids_of(t) == [1, 3, 4] and planned(t) == {0: 1, 1: 2}
        for moment in ({"snapshot_id": then}, {"ref": "before"}, {"as_of": made_at}):
            assert sorted_rows(t, **moment) == rows_of({1: "eu", 2: "us"}), "with the columns of then"
            assert planned(t, **moment) == {0: 2}
            assert ids_of(t, "region = 'us'", **moment) == [2] and planned(t, "region = 'us'", **moment) == {0: 1}
        partitions = t.inspect.partitions(then)
        assert partitions["spec_id"].to_pylist() == [0, 0] and partitions["record_count"].to_pylist() == [1, 1]
        assert set(t.inspect.files(then)["spec_id"].to_pylist()) == {0}
        assert t.verify().findings == ()


def test_a_quoted_column_names_the_field_to_drop_as_it_named_the_one_to_add(create: Create):
    table = create(2, by=(), schema="`a b` int")
    table.evolve_partitions(add=["`a b`"]).evolve_partitions(drop=["`a b`"])
    assert not table.refresh().context.metadata.spec().fields


def test_a_version_1_table_takes_rows_after_a_partition_field_and_then_its_column_were_dropped(create: Create):
    table = create(1, by=("months(ts)",))
    table.append(rows_of({1: "eu"}))
    table.evolve_partitions(drop=["months(ts)"])
    with table.evolve_schema() as change:
        change.delete_column("ts")
    table.append([{"id": 2, "region": "us"}])
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]

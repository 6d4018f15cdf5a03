"""Where data files go; PyIceberg's location providers are the oracle."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType, TimestampType

from neve.model.partition import Specs
from neve.model.properties import TableProperties
from neve.run.write.partitioning import FileNames, Layout, partition_path

HASHED = {"write.object-storage.enabled": "true"}
FLAT = {**HASHED, "write.object-storage.partitioned-paths": "false"}
NAMES = [f"00000-{n}-5affc076-96a4-48f2-9cd2-d5efbc9f0c94-00001.parquet" for n in range(20)]

SCHEMA = Schema(
    NestedField(1, "text", StringType()),
    NestedField(2, "day", DateType()),
    NestedField(3, "ts", TimestampType()),
    NestedField(4, "n", LongType()),
    NestedField(5, "small", IntegerType()),
)


def specs(*fields: tuple[int, str, str]) -> Specs:
    made = [PartitionField(s, 1000 + at, parse_transform(t), name) for at, (s, t, name) in enumerate(fields)]
    return Specs({0: PartitionSpec(*made, spec_id=0)}, 0, (SCHEMA,))


@pytest.mark.parametrize("properties", [{}, {"write.data.path": "s3://other/place/"}, HASHED, FLAT])
def test_files_lie_where_other_engines_put_them(properties: dict[str, str]):
    provider = load_location_provider("s3://bucket/db/table", properties)
    layout = Layout.of("s3://bucket/db/table", TableProperties(properties))
    assert [layout.path(n, "") for n in NAMES] == [provider.new_data_location(n) for n in NAMES]


def test_a_hash_covers_the_partition_folders():
    provider = load_location_provider("s3://b/t", HASHED)
    layout = Layout.of("s3://b/t", TableProperties(HASHED))
    below = "day=2026-01-01/" + NAMES[0]
    assert layout.path(NAMES[0], "day=2026-01-01") == provider.new_data_location(below)
    flat = Layout.of("s3://b/t", TableProperties(FLAT))
    assert "day=" not in flat.path(NAMES[0], "day=2026-01-01")


def test_a_shared_data_path_names_the_table_after_the_hash():
    properties = TableProperties({**HASHED, "write.data.path": "s3://shared/all"})
    path = Layout.of("s3://b/db/events", properties).path(NAMES[0], "")
    assert path.startswith("s3://shared/all/")
    assert path.endswith(f"/db/events/{NAMES[0]}")


def test_the_data_path_property_moves_files():
    layout = Layout.of("s3://b/t/", TableProperties({"write.data.path": "s3://c/d/"}))
    assert layout.path("f", "p=1") == "s3://c/d/p=1/f"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ((1, "identity", "te xt"), "a/b=c d%?#é"),
        ((1, "identity", "text"), None),
        ((1, "truncate[3]", "t"), "x y"),
        ((2, "identity", "day"), -719162),
        ((2, "month", "day_month"), -1),
        ((3, "hour", "ts_hour"), -25),
        ((3, "day", "ts_day"), 20000),
        ((3, "year", "ts_year"), 56),
        ((3, "identity", "ts"), 1512151975038194),
        ((4, "bucket[16]", "b"), 7),
        ((5, "identity", "small"), -5),
    ],
)
def test_partition_folders_are_spelled_like_other_engines_do(field: tuple[int, str, str], value: object):
    of_spec = specs(field)
    assert partition_path(of_spec, 0, (value,)) == of_spec[0].partition_to_path(Record(value), SCHEMA)


def test_a_value_too_long_for_a_folder_is_cut_and_stays_distinct():
    one, other = (partition_path(specs((1, "identity", "t")), 0, ("é" * 500 + end,)) for end in "ab")
    assert one != other
    assert len(one) <= 255


def test_a_year_beyond_pythons_calendar_is_written_like_others():
    assert partition_path(specs((2, "identity", "day")), 0, (10**7,)) == "day=29349-01-26"


def test_names_of_one_attempt_count_up_and_name_the_task():
    names = iter(FileNames(3, 17, "u"))
    assert [next(names), next(names)] == ["00003-17-u-00001.parquet", "00003-17-u-00002.parquet"]

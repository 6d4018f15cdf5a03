"""Partition values in words: the same text in folders, in summaries and in reports."""

from __future__ import annotations

from uuid import UUID

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, NestedField, StringType, TimestampType, UUIDType

from neve.model.partition import Specs, partition_folders

COLUMNS = {"day": DateType(), "ts": TimestampType(), "te xt": StringType(), "u": UUIDType()}
SCHEMA = Schema(*(NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(COLUMNS.items(), 1)))


@pytest.mark.parametrize(
    ("column", "transform", "value", "folder"),
    [
        ("day", "identity", 4_000_000, "day=12921-08-18"),
        ("day", "day", 4_000_000, "day=12921-08-18"),
        ("day", "month", 400_000, "day=35303-05"),
        ("ts", "hour", 10**9, "ts=116049-06-16-16"),
        ("ts", "hour", 24, "ts=1970-01-02-00"),
        ("ts", "day", None, "ts=null"),
        ("te xt", "identity", "a/b", "te+xt=a%2Fb"),
        ("u", "identity", UUID(int=1).bytes, "u=00000000-0000-0000-0000-000000000001"),
    ],
)
def test_a_folder_is_spelled_as_iceberg_does(column: str, transform: str, value: object, folder: str):
    source = SCHEMA.find_field(column).field_id
    spec = PartitionSpec(PartitionField(source, 1000, parse_transform(transform), column), spec_id=0)
    assert list(partition_folders(Specs({0: spec}, 0, (SCHEMA,)), 0, (value,))) == [folder]

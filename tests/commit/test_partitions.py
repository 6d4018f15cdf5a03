"""Partitions looked up in manifest summaries that other writers made."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, UUIDType

from neve.commit.partition_set import PartitionSet
from neve.model.partition import Specs
from neve.tree.entries import EntryTable, FieldSummary, Manifest

BY_UUID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "u"), spec_id=0)
SPECS = Specs({0: BY_UUID}, 0, (Schema(NestedField(1, "u", UUIDType(), required=False)),))


def manifest(lower: bytes, upper: bytes) -> Manifest:
    summary = FieldSummary(False, False, lower, upper)
    return Manifest("m", 1, 0, False, 1, 1, 1, 1, 0, 0, 1, 0, 0, (summary,))


def test_uuid_bounds_of_writers_that_compare_signed_halves_do_not_hide_a_partition():
    value, lowest, highest = b"\x10" + bytes(15), b"\x80" + bytes(15), b"\x7f" + b"\xff" * 15
    members = EntryTable.from_columns({"spec_id": [0], "p1000": [value]}, SPECS, 1)
    elsewhere = manifest(b"\x20" + bytes(15), b"\x30" + bytes(15))
    found = PartitionSet.of(members, SPECS).may_match_manifests([manifest(lowest, highest), elsewhere])
    assert found.tolist() == [True, False]

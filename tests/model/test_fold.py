"""What updates do to metadata: the rules of a commit, compared with PyIceberg's own where it has the same ones."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampNanoType

from neve.errors import UnsupportedFeature, UserError
from neve.model.metadata import TableMetadata, metadata_from_json, parse_metadata, serialise_metadata
from neve.model.metadata_updates import apply_updates
from neve.model.new_table import new_metadata
from neve.model.snapshots import AddSnapshot, Snapshot

NOW = 5_000_000_000_000
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False))
WIDER = Schema(*SCHEMA.fields, NestedField(3, "more", StringType(), required=False), schema_id=1)
BY_NAME = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"), spec_id=1
)
BY_ID = SortOrder(SortField(source_id=1, transform=IdentityTransform()), order_id=1)


def new(version: int = 2, **properties: str) -> TableMetadata:
    place = "file:///lake/db/t"
    return new_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, place, properties, version, lambda: NOW - 1000
    )


def use_schema(schema: Schema) -> list[Any]:
    return [
        AddSchemaUpdate.model_validate({"schema": schema}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    ]


def add(snapshot_id: int, number: int, **more: Any) -> AddSnapshot:
    keys = {key.replace("_", "-"): value for key, value in more.items()}
    row = {
        "snapshot-id": snapshot_id, "sequence-number": number, "timestamp-ms": NOW + number,
        "manifest-list": f"s3://b/{snapshot_id}.avro", "summary": {"operation": "append"}, **keys,
    }  # fmt: skip
    return AddSnapshot(snapshot=Snapshot.model_validate(row))


def ref(name: str, snapshot_id: int, kind: str = "branch", **more: Any) -> SetSnapshotRefUpdate:
    keys = {key.replace("_", "-"): value for key, value in more.items()}
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": kind, "snapshot-id": snapshot_id, **keys})


def upgrade(version: int) -> UpgradeFormatVersionUpdate:
    return UpgradeFormatVersionUpdate.model_validate({"format-version": version})


def after(base: TableMetadata, *updates: Any, previous: str | None = None) -> TableMetadata:
    """Fold, and hold the result to the checks that reading it back makes."""
    folded = apply_updates(base, updates, previous, lambda: NOW)
    assert parse_metadata(serialise_metadata(folded), "m.json") == folded
    return folded


def with_history(version: int = 2, count: int = 3, **properties: str) -> TableMetadata:
    metadata = new(version, **properties)
    for i in range(1, count + 1):
        rows = {"first_row_id": (i - 1) * 10, "added_rows": 10} if version >= 3 else {}
        parent = {"parent_snapshot_id": i - 1} if i > 1 else {}
        metadata = after(metadata, add(i, i, **rows, **parent), ref("main", i), previous=f"file:///m{i - 1}")
    return metadata


STATISTICS = StatisticsFile.model_validate(
    {
        "snapshot-id": 2,
        "statistics-path": "s",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
)
PARTITION_STATISTICS = PartitionStatisticsFile.model_validate(
    {"snapshot-id": 2, "statistics-path": "p", "file-size-in-bytes": 1}
)
SAME_AS_PYICEBERG: dict[str, list[Any]] = {
    "append": [add(4, 4, parent_snapshot_id=3), ref("main", 4)],
    "stage without a branch": [add(4, 4, parent_snapshot_id=3)],
    "branch": [ref("b", 2)],
    "tag that ages": [ref("t", 2, "tag", max_ref_age_ms=7)],
    "branch that expires": [ref("b", 3, min_snapshots_to_keep=2, max_snapshot_age_ms=9)],
    "remove a tag": [ref("t", 2, "tag"), RemoveSnapshotRefUpdate.model_validate({"ref-name": "t"})],
    "properties": [SetPropertiesUpdate(updates={"a": "1", "b": "2"}), RemovePropertiesUpdate(removals=["a"])],
    "uuid": [AssignUUIDUpdate(uuid=uuid.UUID(int=5))],
    "location": [SetLocationUpdate(location="s3://b/t")],
    "schema": use_schema(WIDER),
    "spec": [AddPartitionSpecUpdate(spec=BY_NAME), SetDefaultSpecUpdate.model_validate({"spec-id": -1})],
    "order": [
        AddSortOrderUpdate.model_validate({"sort-order": BY_ID}),
        SetDefaultSortOrderUpdate.model_validate({"sort-order-id": -1}),
    ],
    "statistics": [SetStatisticsUpdate(statistics=STATISTICS)],
    "statistics removed": [
        SetStatisticsUpdate(statistics=STATISTICS),
        RemoveStatisticsUpdate.model_validate({"snapshot-id": 2}),
    ],
    "partition statistics": [
        SetPartitionStatisticsUpdate.model_validate({"partition-statistics": PARTITION_STATISTICS})
    ],
    "spec removed": [
        AddPartitionSpecUpdate(spec=BY_NAME),
        RemovePartitionSpecsUpdate.model_validate({"spec-ids": [1]}),
    ],
    "schema removed": [
        AddSchemaUpdate.model_validate({"schema": WIDER}),
        RemoveSchemasUpdate.model_validate({"schema-ids": [1]}),
    ],
}


@pytest.mark.parametrize("name", SAME_AS_PYICEBERG)
def test_updates_do_what_pyiceberg_does(name: str) -> None:
    base, updates = with_history(), SAME_AS_PYICEBERG[name]
    theirs = TableMetadataUtil.parse_raw(serialise_metadata(base).decode())
    expected = json.loads(
        update_table_metadata(theirs, tuple(updates), metadata_location="file:///m3").model_dump_json()
    )
    found = json.loads(serialise_metadata(after(base, *updates, previous="file:///m3")))
    assert {**found, "last-updated-ms": 0} == {**expected, "last-updated-ms": 0}


def test_nothing_changed_is_the_same_object() -> None:
    base = with_history()
    same = [
        SetPropertiesUpdate(updates={}),
        RemovePropertiesUpdate(removals=["gone"]),
        ref("main", 3),
        upgrade(2),
        AssignUUIDUpdate(uuid=base.table_uuid),
        SetLocationUpdate(location=base.location),
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [99]}),
        AddSchemaUpdate.model_validate({"schema": SCHEMA}),
        RemoveStatisticsUpdate.model_validate({"snapshot-id": 1}),
        RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": 1}),
        RemoveSnapshotRefUpdate.model_validate({"ref-name": "gone"}),
        SetDefaultSpecUpdate.model_validate({"spec-id": 0}),
    ]
    assert apply_updates(base, same, "file:///m3") is base


def test_folding_leaves_the_base_as_it_was() -> None:
    base = with_history()
    before = serialise_metadata(base)
    after(base, add(4, 4), ref("main", 4), SetPropertiesUpdate(updates={"a": "1"}), previous="file:///m3")
    after(base, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [1, 2]}), previous="file:///m3")
    assert serialise_metadata(base) == before


def test_keys_nobody_knows_survive_a_commit() -> None:
    found = json.loads(serialise_metadata(with_history(3)))
    found["encryption-keys"] = [{"key-id": "k"}]
    found["snapshots"][0]["key-id"] = "k"
    folded = after(
        metadata_from_json(found, "m.json"), add(4, 4, first_row_id=30, added_rows=1, key_id="k2"), ref("main", 4)
    )
    written = json.loads(serialise_metadata(folded))
    assert written["encryption-keys"] == [{"key-id": "k"}]
    assert [snapshot.get("key-id") for snapshot in written["snapshots"]] == ["k", None, None, "k2"]


@pytest.mark.parametrize("number", [0, 3])
def test_a_sequence_number_must_be_above_the_last(number: int) -> None:
    with pytest.raises(UserError, match=f"sequence number {number} is not above the table's 3"):
        after(with_history(), add(4, number))


def test_version_1_has_no_sequence_numbers() -> None:
    folded = after(new(1), add(1, 0), ref("main", 1))
    assert "sequence-number" not in json.loads(serialise_metadata(folded))["snapshots"][0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_snapshots_of_version_1_have_a_number_from_the_upgrade_on(version: int) -> None:
    """The format requires it, and there are readers that do."""
    folded = after(new(1), add(1, 0), ref("main", 1), upgrade(version))
    assert [row["sequence-number"] for row in json.loads(serialise_metadata(folded))["snapshots"]] == [0]


def test_a_snapshot_id_is_used_once() -> None:
    with pytest.raises(UserError, match="snapshot 3: the table has one with that id"):
        after(with_history(), add(3, 4))


def test_row_ids_are_reserved_by_the_snapshot() -> None:
    base = with_history(3)
    assert base.next_row_id == 30  # type: ignore[union-attr]
    assert after(base, add(4, 4, first_row_id=30, added_rows=5)).next_row_id == 35  # type: ignore[union-attr]
    assert after(base, add(4, 4, first_row_id=40, added_rows=5)).next_row_id == 45  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, "first-row-id and added-rows"),
        ({"first_row_id": 30}, "first-row-id and added-rows"),
        ({"first_row_id": 30, "added_rows": -1}, "first-row-id and added-rows"),
        ({"first_row_id": 29, "added_rows": 1}, "first-row-id 29 is below the table's next-row-id 30"),
    ],
)
def test_row_ids_cannot_be_given_twice(rows: dict[str, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        after(with_history(3), add(4, 4, **rows))


@pytest.mark.parametrize("target", [3, 4])
def test_keys_nobody_knows_survive_an_upgrade(target: int) -> None:
    found = {**json.loads(serialise_metadata(with_history(2))), "from-the-future": {"a": 1}}
    assert json.loads(serialise_metadata(after(metadata_from_json(found, "m.json"), upgrade(target))))[
        "from-the-future"
    ] == {"a": 1}


@pytest.mark.parametrize(("old", "target"), [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)])
def test_upgrade_keeps_history_and_starts_what_the_new_version_counts(old: int, target: int) -> None:
    base = with_history(old)
    folded = after(base, upgrade(target), previous="file:///m3")
    assert folded.format_version == target
    assert [s.snapshot_id for s in folded.snapshots] == [1, 2, 3]
    assert folded.last_sequence_number == (0 if old == 1 else 3)  # type: ignore[union-attr]
    if target >= 3:
        assert folded.next_row_id == (30 if old == 3 else 0)  # type: ignore[union-attr]
    assert folded.table_uuid == base.table_uuid
    assert "schema" not in json.loads(serialise_metadata(folded))
    assert folded.properties == base.properties


def test_upgrade_and_append_in_one_commit() -> None:
    folded = after(with_history(2), upgrade(3), add(4, 4, first_row_id=0, added_rows=3), ref("main", 4))
    assert (folded.format_version, folded.next_row_id) == (3, 3)  # type: ignore[union-attr]


def test_version_4_snapshot_keeps_its_root_manifest() -> None:
    row = {"snapshot-id": 9, "sequence-number": 1, "timestamp-ms": NOW, "root-manifest": "file:///r", "first-row-id": 0,
           "added-rows": 0}  # fmt: skip
    folded = after(new(4), AddSnapshot(snapshot=Snapshot.model_validate(row)), ref("main", 9))
    assert json.loads(serialise_metadata(folded))["snapshots"] == [row]


@pytest.mark.parametrize(("old", "target", "said"), [(2, 1, "downgrade"), (4, 3, "downgrade"), (2, 5, "supports 1 to")])
def test_versions_only_go_up_to_four(old: int, target: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        after(new(old), upgrade(target))


def test_upgrade_to_4_needs_a_location_with_a_scheme() -> None:
    base = after(new(3), SetLocationUpdate(location="/lake/t"))
    with pytest.raises(UserError, match="URI scheme"):
        after(base, upgrade(4))


def test_only_moves_of_main_are_logged_and_intermediate_ones_are_not() -> None:
    updates = [add(4, 4), ref("main", 4), add(5, 5), ref("main", 5), add(6, 6), ref("b", 6)]
    folded = after(with_history(), *updates)
    assert [(e.snapshot_id, e.timestamp_ms) for e in folded.snapshot_log[-2:]] == [(3, NOW + 3), (5, NOW + 5)]
    assert len(folded.snapshot_log) == 4


def test_rollback_is_logged_with_the_time_of_the_rollback() -> None:
    folded = after(with_history(), ref("main", 1))
    assert [e.snapshot_id for e in folded.snapshot_log] == [1, 2, 3, 1]
    assert folded.current_snapshot_id == 1
    assert folded.snapshot_log[-1].timestamp_ms == folded.last_updated_ms >= NOW + 3


def test_time_never_goes_back() -> None:
    base = with_history()
    assert after(base, SetPropertiesUpdate(updates={"a": "1"})).last_updated_ms == base.last_updated_ms == NOW + 3


def test_expiry_trims_the_log_before_the_gap_and_keeps_parent_links() -> None:
    base = after(with_history(count=4), ref("t", 2, "tag"), SetStatisticsUpdate(statistics=STATISTICS))
    base = after(base, SetPartitionStatisticsUpdate.model_validate({"partition-statistics": PARTITION_STATISTICS}))
    folded = after(base, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [2, 99]}))
    assert [s.snapshot_id for s in folded.snapshots] == [1, 3, 4]
    assert [e.snapshot_id for e in folded.snapshot_log] == [3, 4]  # 1 would seem current while 2 was
    assert folded.snapshots[1].parent_snapshot_id == 2
    assert set(folded.refs) == {"main"}
    assert (folded.statistics, folded.partition_statistics) == ([], [])


def test_expiring_the_current_snapshot_leaves_no_current_one() -> None:
    folded = after(with_history(), RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [3]}))
    assert (folded.current_snapshot_id, folded.snapshot_log, folded.refs) == (None, [], {})


@pytest.mark.parametrize(
    ("updates", "said"),
    [
        ([ref("main", 99)], "no such snapshot"),
        ([ref("main", 1, "tag")], "'main' a tag"),
        ([ref("b", 1), ref("b", 1, "tag")], "'b' a tag: it is a branch"),
        ([ref("t", 1, "tag", min_snapshots_to_keep=1)], "minSnapshotsToKeep"),
        ([ref("b", 1, min_snapshots_to_keep=0)], "Cannot set 'b'"),
        ([SetCurrentSchemaUpdate.model_validate({"schema-id": 9})], "no such schema"),
        ([SetCurrentSchemaUpdate.model_validate({"schema-id": -1})], "this commit adds none"),
        ([SetDefaultSpecUpdate.model_validate({"spec-id": 9})], "no such partition spec"),
        ([SetDefaultSortOrderUpdate.model_validate({"sort-order-id": 9})], "no such sort order"),
        ([RemovePartitionSpecsUpdate.model_validate({"spec-ids": [0]})], "it is the default"),
        ([RemoveSchemasUpdate.model_validate({"schema-ids": [0]})], "it is the current one"),
        ([AddPartitionSpecUpdate(spec=BY_NAME.model_copy(update={"spec_id": 0}))], "another one with that id"),
        ([AddSortOrderUpdate.model_validate({"sort-order": BY_ID.model_copy(update={"order_id": 0})})], "another one"),
        ([SetPropertiesUpdate(updates={"gc.enabled": "perhaps"})], "'gc.enabled' is 'perhaps'"),
    ],
)
def test_updates_that_do_not_fit_are_refused(updates: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        after(with_history(), *updates)


def test_a_column_the_spec_needs_cannot_be_dropped() -> None:
    base = after(new(), AddPartitionSpecUpdate(spec=BY_NAME), SetDefaultSpecUpdate.model_validate({"spec-id": 1}))
    narrow = Schema(SCHEMA.fields[0], schema_id=1)
    with pytest.raises(UserError, match="does not fit the schema"):
        after(base, *use_schema(narrow))


def test_a_schema_of_a_later_version_is_refused() -> None:
    later = Schema(*SCHEMA.fields, NestedField(3, "t", TimestampNanoType(), required=False), schema_id=1)
    with pytest.raises(UserError, match="format version 2"):
        after(new(2), AddSchemaUpdate.model_validate({"schema": later}))
    after(new(2), upgrade(3), AddSchemaUpdate.model_validate({"schema": later}))


def test_version_1_repeats_its_current_schema_and_spec() -> None:
    folded = after(
        new(1), *use_schema(WIDER),
        AddPartitionSpecUpdate(spec=BY_NAME), SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
    )  # fmt: skip
    written = json.loads(serialise_metadata(folded))
    assert written["schema"] == written["schemas"][1]
    assert written["partition-spec"] == written["partition-specs"][1]["fields"]


def test_a_schema_that_is_already_there_is_used_again() -> None:
    base = after(new(), *use_schema(WIDER))
    again = Schema(*SCHEMA.fields, schema_id=2)
    folded = after(base, *use_schema(again))
    assert (folded.current_schema_id, len(folded.schemas)) == (0, 2)


def test_the_metadata_log_keeps_as_many_as_the_table_asks() -> None:
    metadata = new(**{"write.metadata.previous-versions-max": "3"})
    for i in range(6):
        metadata = after(metadata, SetPropertiesUpdate(updates={"i": str(i)}), previous=f"file:///m{i}")
    assert [entry.metadata_file for entry in metadata.metadata_log] == ["file:///m3", "file:///m4", "file:///m5"]


def test_an_unknown_update_is_refused_by_name() -> None:
    class Dance:
        action = "dance"

    with pytest.raises(UnsupportedFeature, match="'dance'"):
        apply_updates(new(), [Dance()])


def test_a_commit_to_a_thousand_snapshots_costs_a_fraction_of_pyiceberg() -> None:
    base = with_history(count=1)
    rows = [{**base.lazy_snapshots.rows[0], "snapshot-id": i, "sequence-number": i} for i in range(1, 1001)]
    ours = metadata_from_json(
        {**json.loads(serialise_metadata(base)), "snapshots": rows, "last-sequence-number": 1000}, "m.json"
    )
    theirs = TableMetadataUtil.parse_raw(serialise_metadata(ours).decode())
    updates = (add(5000, 1001), ref("main", 5000))

    def cpu(work: Any) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    fastest = min(cpu(lambda: apply_updates(ours, updates, "m")) for _ in range(3))
    assert cpu(lambda: update_table_metadata(theirs, updates, metadata_location="m")) > 10 * fastest

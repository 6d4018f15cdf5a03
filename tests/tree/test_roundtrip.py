"""Manifests written by the seam out, read back by the seam in and by PyIceberg."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, read_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from neve.errors import CorruptFile, TableError
from neve.model.metadata import parse_metadata
from neve.model.partition import PartitionKey, Specs
from neve.tree.entries import DETAIL, EntryTable, Manifest, Status
from neve.tree.pyiceberg_files import entries_from_pyiceberg
from neve.tree.read import manifests_in_list, read_entries, read_manifest, with_detail
from neve.tree.tree_writer import assign_row_ids
from neve.tree.write import ManifestContext, ManifestListHeader, copy_entries, write_manifest_list, write_manifests
from tests.support.tables import local

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "region", StringType(), required=False),
    schema_id=1,
)
OLD_SCHEMA = Schema(*SCHEMA.fields, NestedField(4, "gone", StringType(), required=False), schema_id=0)
SPECS = (
    PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"), spec_id=0),
    PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "ts_day"),
        PartitionField(3, 1001, IdentityTransform(), "region"),
        spec_id=1,
    ),
    PartitionSpec(PartitionField(1, 1002, BucketTransform(8), "id_bucket"), spec_id=2),
    PartitionSpec(spec_id=3),
    PartitionSpec(PartitionField(4, 1003, IdentityTransform(), "gone"), spec_id=4),
)
TUPLES = {0: (19723,), 1: (19723, "eu"), 2: (5,), 3: (), 4: ("x",)}


def metadata_of(version: int, location: str):
    document = {
        "format-version": version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 1,
        "last-column-id": 4,
        "schemas": [json.loads(s.model_dump_json()) for s in (OLD_SCHEMA, SCHEMA)],
        "current-schema-id": 1,
        "partition-specs": [json.loads(s.model_dump_json()) for s in SPECS],
        "default-spec-id": 3,
        "last-partition-id": 1003,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "snapshots": [],
    }
    if version == 1:
        document |= {"schema": document["schemas"][1], "partition-spec": document["partition-specs"][3]["fields"]}
    if version == 3:
        document["next-row-id"] = 0
    return parse_metadata(json.dumps(document).encode(), "test")


def data_file(spec_id: int, name: str, rows: int = 10, values: tuple | None = None) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///t/data/{name}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*(TUPLES[spec_id] if values is None else values)),
        record_count=rows,
        file_size_in_bytes=1000,
        column_sizes={1: 40},
        value_counts={1: rows, 2: rows},
        null_value_counts={1: 0, 2: 3},
        nan_value_counts={},
        lower_bounds={1: to_bytes(LongType(), 1)},
        upper_bounds={1: to_bytes(LongType(), 9)},
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=0,
    )
    file.spec_id = spec_id
    return file


@pytest.fixture(params=[1, 2, 3])
def context(request, tmp_path: Path) -> ManifestContext:
    metadata = metadata_of(request.param, tmp_path.as_uri())
    numbers = iter(range(10_000))
    return ManifestContext(metadata, Specs.of(metadata), 77, lambda: f"{tmp_path.as_uri()}/m{next(numbers)}.avro")


def committed(manifest: Manifest, number: int = 5) -> Manifest:
    oldest = number if manifest.min_sequence_number < 0 else manifest.min_sequence_number
    return replace(manifest, sequence_number=number, min_sequence_number=oldest)


def test_every_manifest_holds_one_spec_in_ascending_order(io, context):
    files = [data_file(s, f"{s}-{i}") for i in range(2) for s in (4, 2, 0, 3, 1)]
    written = write_manifests(io, entries_from_pyiceberg(files, context.specs), context)
    assert [m.spec_id for m in written] == [0, 1, 2, 3, 4]
    for manifest in written:
        with open(local(manifest.path), "rb") as f:
            reader = fastavro.reader(f)
            assert reader.metadata["partition-spec-id"] == str(manifest.spec_id)
            tuples = [list(e["data_file"]["partition"].values()) for e in reader]
            assert tuples == [_logical(manifest.spec_id)] * 2


def _logical(spec_id: int):
    import datetime as dt

    return [dt.date(2024, 1, 1) if v == 19723 else v for v in TUPLES[spec_id]]


def test_entries_come_back_as_they_were_written(io, context):
    entries = entries_from_pyiceberg([data_file(s, str(s), rows=s + 1) for s in TUPLES], context.specs)
    written = [committed(m) for m in write_manifests(io, entries, context)]
    found = read_entries(io, written, context.specs, detail=DETAIL.names)
    for name in ("file_path", "record_count", "spec_id", "lower_bounds", "null_value_counts", "split_offsets"):
        assert found[name].to_pylist() == entries[name].to_pylist(), name
    keys = [found.partition_key(i) for i in range(len(found))]
    assert [k.spec_id for k in keys] == [0, 1, 2, 3, 4]
    assert keys[3] == PartitionKey(3, None)
    assert keys[4] == PartitionKey(4, ("x",)), "the source column of spec 4 was dropped, its values keep their type"


def test_pyiceberg_reads_the_same_entries(io, context):
    version = context.format_version
    entries = entries_from_pyiceberg([data_file(s, str(s)) for s in (0, 1, 2)], context.specs)
    written = write_manifests(io, entries, context)
    path = context.new_path()
    write_manifest_list(io, path, written, ManifestListHeader(77, None, 5), version)
    peer = [e for m in read_manifest_list(io.new_input(path)) for e in m.fetch_manifest_entry(io)]
    ours = read_entries(io, manifests_in_list(io, path), context.specs, detail=DETAIL.names)
    assert [e.data_file.file_path for e in peer] == ours["file_path"].to_pylist()
    assert [e.sequence_number for e in peer] == ours["sequence_number"].to_pylist()
    assert [e.snapshot_id for e in peer] == ours["snapshot_id"].to_pylist() == [77, 77, 77]
    assert [dict(e.data_file.lower_bounds) for e in peer] == [
        {b["key"]: b["value"] for b in row} for row in ours["lower_bounds"].to_pylist()
    ]


def test_partition_summaries_bound_the_values_of_a_manifest(io, context):
    files = [data_file(1, "a"), data_file(1, "b", values=(19700, None))]
    (manifest,) = write_manifests(io, entries_from_pyiceberg(files, context.specs), context)
    day, region = manifest.partitions
    assert (day.contains_null, day.lower_bound, day.upper_bound) == (
        False,
        (19700).to_bytes(4, "little"),
        (19723).to_bytes(4, "little"),
    )
    assert (region.contains_null, region.lower_bound, region.upper_bound) == (True, b"eu", b"eu")


def test_tombstones_keep_their_numbers_and_inherit_none(io, context):
    entries = entries_from_pyiceberg([data_file(0, "kept"), data_file(0, "gone"), data_file(0, "new")], context.specs)
    numbered = entries.with_columns(
        status=[int(Status.EXISTING), int(Status.DELETED), int(Status.ADDED)],
        snapshot_id=[11, 77, None],
        sequence_number=[2, 3, None],
        file_sequence_number=[2, 3, None],
    )
    if context.format_version == 1:
        numbered = numbered.with_columns(snapshot_id=[11, 77, 77])
    (manifest,) = write_manifests(io, numbered, context)
    assert (manifest.added_files, manifest.existing_files, manifest.deleted_files) == (1, 1, 1)
    found = read_manifest(io, committed(manifest, 0 if context.format_version == 1 else 9), context.specs)
    assert found["snapshot_id"].to_pylist() == [11, 77, 77]
    expected = [0, 0, 0] if context.format_version == 1 else [2, 3, 9]
    assert found["sequence_number"].to_pylist() == expected
    assert found.live()["file_path"].to_pylist() == [f"file:///t/data/{n}.parquet" for n in ("kept", "new")]


def test_row_ids_are_handed_out_in_file_order_and_kept_when_carried(io, tmp_path):
    metadata = metadata_of(3, tmp_path.as_uri())
    numbers = iter(range(100))
    context = ManifestContext(metadata, Specs.of(metadata), 77, lambda: f"{tmp_path.as_uri()}/m{next(numbers)}.avro")
    files = [data_file(s, f"{s}{i}", rows=10 * s + i + 1) for s in (0, 2) for i in (0, 1)]
    written, next_row_id = assign_row_ids(
        write_manifests(io, entries_from_pyiceberg(files, context.specs), context), 1000
    )
    assert [m.first_row_id for m in written] == [1000, 1003] and next_row_id == 1003 + 21 + 22
    found = read_entries(io, [committed(m) for m in written], context.specs)
    assert found["first_row_id"].to_pylist() == [1000, 1001, 1003, 1024]

    sources = [committed(m) for m in written]
    first = read_manifest(io, sources[0], context.specs).with_columns(status=[0, 0])
    (carried,) = copy_entries(io, first, sources[:1], context)
    again = read_manifest(io, replace(committed(carried, 6), first_row_id=9_999), context.specs)
    assert again["first_row_id"].to_pylist() == [1000, 1001], "ids that were inherited are written down when carried"


def test_carried_entries_keep_every_byte_of_their_files(io, context):
    files = [data_file(1, str(i), rows=i + 1) for i in range(6)]
    halves = [
        write_manifests(io, entries_from_pyiceberg(part, context.specs), context)[0] for part in (files[:3], files[3:])
    ]
    sources = [committed(m, 0 if context.format_version == 1 else 4) for m in halves]
    entries = read_entries(io, sources, context.specs).with_columns(
        status=[0, 2, 0, 0, 0, 2], snapshot_id=[77, 88, 77, 77, 77, 88]
    )
    (carried,) = copy_entries(io, entries.take([5, 4, 0, 1, 3, 2]), sources, context)
    before = read_entries(io, sources, context.specs, detail=DETAIL.names).take([5, 4, 0, 1, 3, 2])
    after = read_manifest(
        io, committed(carried, 9 if context.format_version > 1 else 0), context.specs, detail=DETAIL.names
    )
    for name in ("file_path", "record_count", "lower_bounds", "upper_bounds", "column_sizes", "p1000", "p1001"):
        assert after[name].to_pylist() == before[name].to_pylist(), name
    assert after["status"].to_pylist() == [2, 0, 0, 2, 0, 0]
    assert after["sequence_number"].to_pylist() == before["sequence_number"].to_pylist()


def test_details_are_read_of_the_entries_chosen_only(io, context):
    files = [data_file(s, f"{s}-{i}", rows=i + 1) for s in (0, 2) for i in range(5)]
    sources = [committed(m, 0) for m in write_manifests(io, entries_from_pyiceberg(files, context.specs), context)]
    whole = read_entries(io, sources, context.specs, detail=DETAIL.names)
    odd = read_entries(
        io, sources, context.specs, detail=["lower_bounds"], detail_where=lambda e: e.numpy("record_count") % 2 == 1
    )
    chosen = odd.numpy("record_count") % 2 == 1
    assert odd["lower_bounds"].is_valid().to_pylist() == chosen.tolist()
    assert (
        odd["lower_bounds"].filter(pa.array(chosen)).to_pylist()
        == whole["lower_bounds"].filter(pa.array(chosen)).to_pylist()
    )
    again = with_detail(io, read_entries(io, sources, context.specs).take([7, 2, 9, 0]), sources, ["upper_bounds"])
    assert again["upper_bounds"].to_pylist() == whole.take([7, 2, 9, 0])["upper_bounds"].to_pylist()


def test_a_large_group_is_split_near_the_target_size(io, context):
    entries = entries_from_pyiceberg([data_file(1, f"{i:05}") for i in range(2000)], context.specs)
    small = replace(context, target_bytes=4_000)
    written = write_manifests(io, entries, small)
    assert len(written) > 1 and sum(m.added_files for m in written) == 2000
    assert {m.spec_id for m in written} == {1}


def test_a_manifest_of_an_unknown_spec_is_refused_by_name(io, context):
    (manifest,) = write_manifests(io, entries_from_pyiceberg([data_file(0, "a")], context.specs), context)
    with pytest.raises(TableError, match=r"spec 99.*m0.avro"):
        read_manifest(io, replace(manifest, spec_id=99), context.specs)


def test_a_file_of_an_unknown_spec_is_refused_with_id_and_path(context):
    file = data_file(0, "a")
    file.spec_id = 99
    with pytest.raises(TableError, match=r"99.*file:///t/data/a.parquet"):
        entries_from_pyiceberg([file], context.specs)


def test_a_truncated_manifest_is_refused_by_name(io, context):
    (manifest,) = write_manifests(io, entries_from_pyiceberg([data_file(0, "a")], context.specs), context)
    path = local(manifest.path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CorruptFile, match=path.name):
        read_manifest(io, manifest, context.specs)


def test_optional_columns_that_are_null_share_their_memory(context):
    entries = EntryTable.from_columns({}, context.specs, 100_000)
    more = EntryTable.from_columns({}, context.specs, 100_000)
    one = pa.total_allocated_bytes()
    EntryTable.from_columns({}, context.specs, 100_000)
    assert pa.total_allocated_bytes() == one and len(entries) == len(more)


def test_a_v1_file_without_a_spec_counts_as_spec_zero(context):
    file = data_file(0, "a")
    del file._spec_id
    assert entries_from_pyiceberg([file], context.specs)["spec_id"].to_pylist() == [0]


def test_partition_codes_keep_equal_nulls_of_different_specs_apart(context):
    files = [
        data_file(0, "a", values=(None,)),
        data_file(1, "b", values=(None, None)),
        data_file(0, "c", values=(None,)),
    ]
    codes, keys = entries_from_pyiceberg(files, context.specs).partition_codes()
    assert codes[0] == codes[2] != codes[1]
    assert len(keys) == 2

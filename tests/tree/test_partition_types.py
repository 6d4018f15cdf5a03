"""Partition tuples whose source column no schema knows any more keep their values: the manifests tell their types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, RemoveSchemasUpdate, RemoveSnapshotsUpdate, SetCurrentSchemaUpdate
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

import neve
from neve.commit.actions import Append, DeleteFiles, RowDelta
from neve.errors import CorruptFile
from neve.model.partition import Specs
from neve.tree import partition_types as typing
from neve.tree.entry_schemas import manifest_entry_schema
from neve.tree.partition_types import infer_partition_types
from tests.support.metadata_tables import SCHEMA, Kit, removed
from tests.support.tables import local

ID_ONLY = Schema(SCHEMA.fields[0], SCHEMA.fields[2])


def forget_region(kit: Kit) -> None:
    """Drop the column and clean up the schemas that knew it."""
    kit.default_spec(2)
    known = [s.schema_id for s in kit.metadata.schemas]
    kit.update(AddSchemaUpdate(schema=ID_ONLY), SetCurrentSchemaUpdate(schema_id=-1))
    kit.update(RemoveSchemasUpdate(schema_ids=known))
    assert [s.column_names for s in kit.metadata.schemas] == [["id", "amount"]]
    kit.__dict__.pop("specs", None)


@pytest.fixture(params=[1, 2, 3])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    made = Kit.create(tmp_path, version=request.param, write__summary__partition_limit="10")
    made.ok(Append(made.data("a", region="eu")))
    made.ok(Append(made.data("b", region="us")))
    made.ok(Append(made.data("c", region=None)))
    made.ok(Append(made.data("d", "e", region="eu", spec=1, bucket=3)))
    return made


def test_tuples_keep_their_values(kit):
    forget_region(kit)
    assert kit.specs.untyped_fields
    live = kit.live()
    regions = kit.by_name("p1000")
    assert regions == {"a": "eu", "b": "us", "c": None, "d": "eu", "e": "eu"}
    assert len(live.partition_codes()[1]) == 4
    assert live.specs.partition_type(0).fields[0].field_type == StringType() and not live.specs.untyped_fields


def test_equality_deletes_reach_their_own_partition_only(tmp_path):
    kit = Kit.create(tmp_path, version=2)
    kit.ok(Append(kit.data("a", region="eu")))
    kit.ok(Append(kit.data("b", region="us")))
    kit.ok(RowDelta(added_deletes=kit.equality("x", region="us")))
    forget_region(kit)
    assert kit.attached() == {"b": {"x"}}


@pytest.mark.parametrize("upgraded", [False, True])
def test_a_manifest_written_anew_has_the_same_tuples(kit, upgraded):
    """An upgrade makes the old manifests be decoded and encoded; otherwise their bytes are copied."""
    kit.ok(Append(kit.data("f", "g", region="eu")))
    forget_region(kit)
    if upgraded and kit.metadata.format_version < 3:
        kit.upgrade(3)
    live = kit.live()
    gone = live.filter([path.endswith("/f.parquet") for path in live["file_path"].to_pylist()])
    kit.ok(DeleteFiles(removed(gone)))
    assert kit.by_name("p1000") == {"a": "eu", "b": "us", "c": None, "d": "eu", "e": "eu", "g": "eu"}
    assert kit.summary()["partitions.region=eu"].startswith("deleted-data-files=1,deleted-records=10")
    new = next(m for m in kit.manifests() if m.deleted_files)
    assert (new.partitions[0].lower_bound, new.partitions[0].upper_bound) == (b"eu", b"us")


def test_partitions_are_replaced_by_their_values(kit):
    """A spec that has lost its column can still be given files that take over a tuple."""
    forget_region(kit)
    live = kit.live()
    us = live.filter([path.endswith("/b.parquet") for path in live["file_path"].to_pylist()])
    again = us.with_columns(file_path=[kit.path("again")], status=1, sequence_number=None, file_sequence_number=None)
    kit.ok(Append(again.with_columns(snapshot_id=None, manifest=-1, row=-1, first_row_id=None)))
    assert kit.by_name("p1000")["again"] == "us"


class TestThroughTheApi:
    @pytest.fixture
    def table(self, tmp_path: Path) -> neve.Table:
        lake = neve.connect(tmp_path)
        t = lake.create_table("db.t", "id bigint, region string, n int", ["region", "truncate(10, n)"])
        t.append([{"id": i, "region": r, "n": i * 10} for i, r in enumerate(("eu", "us", None))])
        t.evolve_partitions(add=["bucket(2, id)"], drop=["region", "truncate(10, n)"])
        with t.evolve_schema() as change:
            change.delete_column("region").delete_column("n")
        t.append([{"id": 9}])
        old = [s.schema_id for s in t.iceberg.metadata.schemas if s.schema_id != t.schema.schema_id]
        t.context.catalog.commit_table(t.iceberg, (), (RemoveSchemasUpdate(schema_ids=old),))
        return t.refresh()

    def test_views_show_them(self, table):
        shown = {
            (p["spec_id"], p["partition"]["region"], p["partition"]["n_trunc"])
            for p in table.inspect.partitions().to_pylist()
        }
        assert shown == {(0, "eu", 0), (0, "us", 10), (0, None, 20), (1, None, None)}
        types = {f["name"]: f["type"] for s in table.inspect.specs().to_pylist() for f in s["fields"]}
        assert types == {"region": "string", "n_trunc": "int", "id_bucket_2": "int"}

    def test_the_audit_finds_nothing_wrong(self, table):
        first = table.inspect.snapshots()["snapshot_id"][0].as_py()
        update = RemoveSnapshotsUpdate(snapshot_ids=[first])  # it names a schema that is gone
        table.context.catalog.commit_table(table.iceberg, (), (update,))
        assert table.verify().findings == ()

    @pytest.mark.parametrize("moment", ["now", "then"])
    def test_rows_say_which_partition_they_are_in(self, table, moment):
        past = {} if moment == "now" else {"snapshot_id": table.inspect.snapshots()["snapshot_id"][0].as_py()}
        rows = table.scan(columns=["id", "_partition"], **past).to_arrow(engine="arrow").to_pylist()
        assert {r["id"]: r["_partition"]["region"] for r in rows if r["id"] < 9} == {0: "eu", 1: "us", 2: None}

    def test_files_are_replaced_and_stay_where_they_are(self, table):
        table.overwrite([{"id": 0}], where="id = 0")
        assert sorted(table.scan().to_arrow(engine="arrow")["id"].to_pylist()) == [0, 1, 2, 9]
        shown = {(p["spec_id"], p["partition"]["region"]) for p in table.inspect.partitions().to_pylist()}
        assert shown == {(0, "us"), (0, None), (1, None)}


def test_without_files_of_the_spec_nothing_is_missing(tmp_path):
    kit = Kit.create(tmp_path, default_spec=2)
    kit.ok(Append(kit.data("a", spec=2)))
    forget_region(kit)
    kit.ok(Append(kit.data("b", spec=2)))
    assert kit.names() == {"a", "b"}


def rewrite_tuple(path: str, edit: Any) -> None:
    """Write a manifest again with another schema of its partition tuples."""
    file = local(path)
    with file.open("rb") as stream:
        reader = fastavro.reader(stream)
        rows, kept = list(reader), {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
        schema = json.loads(reader.metadata["avro.schema"])
    data_file = next(f for f in schema["fields"] if f["name"] == "data_file")["type"]
    tuple_type = next(f for f in data_file["fields"] if f["name"] == "partition")["type"]
    edit(tuple_type, rows)
    with file.open("wb") as stream:
        fastavro.writer(stream, schema, rows, metadata=kept)


def without_region(tuple_type: dict, rows: list[dict]) -> None:
    tuple_type["fields"] = []
    for row in rows:
        row["data_file"]["partition"] = {}


def with_lists(tuple_type: dict, rows: list[dict]) -> None:
    tuple_type["fields"][0]["type"] = {"type": "array", "items": "string", "element-id": 5}
    del tuple_type["fields"][0]["default"]
    for row in rows:
        row["data_file"]["partition"]["region"] = []


@pytest.mark.parametrize("edit", [without_region, with_lists])
def test_a_manifest_that_does_not_tell_is_refused_by_name(tmp_path, edit):
    kit = Kit.create(tmp_path)
    kit.ok(Append(kit.data("a", region="eu")))
    forget_region(kit)
    [manifest] = kit.manifests()
    rewrite_tuple(manifest.path, edit)
    with pytest.raises(CorruptFile, match=r"'region' of spec 0, which is in no schema"):
        infer_partition_types(kit.io, kit.specs, [manifest])


def test_a_tuple_of_nulls_is_what_it_says(tmp_path):
    def nulls(tuple_type: dict, rows: list[dict]) -> None:
        tuple_type["fields"][0].update(type="null", default=None)

    kit = Kit.create(tmp_path)
    kit.ok(Append(kit.data("a", region=None)))
    forget_region(kit)
    [manifest] = kit.manifests()
    rewrite_tuple(manifest.path, nulls)
    found = infer_partition_types(kit.io, kit.specs, [manifest])
    assert not found.untyped_fields and found.partition_type(0).fields[0].field_type == UnknownType()


def test_of_two_types_the_wider_is_meant(tmp_path):
    kit = Kit.create(tmp_path)
    kit.ok(Append(kit.data("a", region="eu")))
    kit.ok(Append(kit.data("b", region="us")))
    forget_region(kit)
    numbers = iter((("int", 7), ("long", 1 << 40)))

    def number(tuple_type: dict, rows: list[dict]) -> None:
        kind, value = next(numbers)
        tuple_type["fields"][0]["type"] = ["null", kind]
        rows[0]["data_file"]["partition"]["region"] = value

    manifests = kit.manifests()
    for manifest in manifests:
        rewrite_tuple(manifest.path, number)
    for order in (manifests, manifests[::-1]):
        assert infer_partition_types(kit.io, kit.specs, order).partition_type(0).fields[0].field_type == LongType()


TYPES = (
    BooleanType(), IntegerType(), LongType(), StringType(), BinaryType(), DateType(), TimeType(), TimestampType(),
    TimestamptzType(), DecimalType(9, 2), DecimalType(38, 0), FixedType(5), UUIDType(),
)  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_is_told_as_it_was_written(kind):
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    written = manifest_entry_schema(2, Specs({0: spec}, 0, (Schema(NestedField(1, "x", kind)),)).partition_type(0))
    fields = typing._record_fields(written, "data_file", "partition")
    assert typing._iceberg_type(fields[0]) == kind


def test_transforms_with_a_type_of_their_own_need_no_telling():
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "b"),
        PartitionField(1, 1001, DayTransform(), "d"),
        PartitionField(1, 1002, TruncateTransform(4), "t"),
    )
    specs = Specs({0: spec}, 0, (Schema(NestedField(2, "y", LongType())),))
    assert [str(f.field_type) for f in specs.partition_type(0).fields] == ["int", "date", "unknown"]
    assert [f.name for f in specs.untyped_fields[0]] == ["t"]

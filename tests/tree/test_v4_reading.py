"""What other writers of version 4 tables may have left: entries of version 3 in Parquet, roots of their own making."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.types import LongType

from neve.commit.actions import Append, DeleteFiles, RowDelta
from neve.commit.outcome import Check
from neve.ops.plan_scan import plan_snapshot_scan
from neve.tree.entries import DETAIL, Content
from neve.tree.read import read_entries
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, name_of, plus, removed

ID = b"PARQUET:field_id"


def field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={ID: str(field_id).encode()})


def test_entries_of_version_3_in_parquet_are_read(tmp_path: Path):
    """The Java library gives version 4 tables an Avro list of Parquet manifests with the rows of version 3."""
    t = Kit.create(tmp_path, 3)
    files = plus(t.data("a", ids=(1, 9)), t.data("b", ids=(5, 7)))
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v", files.take([0]), [3])))
    t.upgrade(4)
    before = t.entries(all_details=True).columns.to_pylist()
    for manifest in t.manifests():
        as_parquet(t, manifest.path)
    assert t.entries(all_details=True).columns.to_pylist() == before
    t.ok(Append(t.data("c"), fast=True))
    assert {(r["101"], r[v4.VERSION]) for r in v4.rows_of(t.head().root_manifest)} >= {("AVRO", 0), ("PARQUET", 4)}
    assert t.names() == {"a", "b", "c"}
    assert t.deleted_positions() == {"a": [3]}


def as_parquet(t: Kit, path: str) -> None:
    """Replace an Avro manifest by one with the same rows in Parquet, maps as maps, under the same name."""
    manifest = next(m for m in t.manifests() if m.path == path)
    entries = read_entries(t.io, [manifest], t.specs, detail=DETAIL.names)
    pairs = pa.map_(field("key", pa.int32(), 117).with_nullable(False), field("value", pa.int64(), 118))
    bounds = pa.map_(field("key", pa.int32(), 126).with_nullable(False), field("value", pa.binary(), 127))
    columns = {
        "content": (134, pa.int32()), "file_path": (100, pa.string()), "file_format": (101, pa.string()),
        "record_count": (103, pa.int64()), "file_size_in_bytes": (104, pa.int64()), "first_row_id": (142, pa.int64()),
        "referenced_data_file": (143, pa.string()), "content_offset": (144, pa.int64()),
        "content_size_in_bytes": (145, pa.int64()), "value_counts": (109, pairs), "null_value_counts": (110, pairs),
        "lower_bounds": (125, bounds), "upper_bounds": (128, bounds),
    }  # fmt: skip
    partition = pa.struct([field("region", pa.string(), 1000)])
    data_file = pa.struct(
        [field(f"x{i}", kind, i) for i, kind in columns.values()] + [field("partition", partition, 102)]
    )
    outer = {"status": (0, pa.int32()), "snapshot_id": (1, pa.int64()), "sequence_number": (3, pa.int64())}
    outer["file_sequence_number"] = (4, pa.int64())
    rows = []
    for row in entries.columns.to_pylist():
        inner = {f"x{i}": as_map(row[name]) for name, (i, _) in columns.items()}
        rows.append(
            {name: row[name] for name in outer} | {"data_file": {**inner, "partition": {"region": row["p1000"]}}}
        )
    schema = pa.schema([*(field(n, kind, i) for n, (i, kind) in outer.items()), field("data_file", data_file, 2)])
    pq.write_table(pa.Table.from_pylist(rows, schema), v4.local(path), store_schema=False)


def as_map(value: object) -> object:
    return [(p["key"], p["value"]) for p in value] if isinstance(value, list) else value


def strip(t: Kit, *names: str, **values: object) -> None:
    """Take columns out of the root, as a writer leaves them who does not know them; set others."""
    path = v4.local(t.head().root_manifest)
    table, schema = pq.read_table(path), pq.read_schema(path)
    kept = [i for i, f in enumerate(schema) if f.name not in names]
    columns = [
        pa.array([values[schema.field(i).name]] * table.num_rows, schema.field(i).type)
        if schema.field(i).name in values
        else table.column(i)
        for i in kept
    ]
    pq.write_table(pa.table(columns, schema=pa.schema([schema.field(i) for i in kept])), path, store_schema=False)


def test_a_root_without_our_ranges_and_specs_is_read_all_the_same(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    files = plus(t.data("a"), t.data("b", region="us"))
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v", files.take([1]), [2])))
    strip(t, "partition_ranges", "content_stats", spec_id=None)
    assert t.names() == {"a", "b"}
    assert t.deleted_positions() == {"b": [2]}
    found = plan_snapshot_scan(t.io, t.metadata, t.head(), where=EqualTo("region", "us"))
    assert [name_of(p) for p in found.files["file_path"].to_pylist()] == ["b"]
    assert found.stats.delete_files == 1
    t.ok(DeleteFiles(removed(files.take([0]))))
    assert t.names() == {"b"}


def test_the_seeds_value_of_the_version_means_version_4(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a")))
    strip(t, format_version=1)
    assert t.names() == {"a"}


class TestPruning:
    @pytest.fixture
    def t(self, tmp_path: Path) -> Kit:
        t = Kit.create(tmp_path, 4)
        t.ok(Append(t.data("low", ids=(1, 9)), fast=True))
        t.ok(Append(t.data("high", ids=(100, 200)), fast=True))
        t.ok(Append(t.data("bucket", spec=1, bucket=3), fast=True))
        return t

    def test_statistics_on_leaves_skip_whole_leaves(self, t: Kit):
        found = plan_snapshot_scan(t.io, t.metadata, t.head(), where=GreaterThan("id", 50))
        assert {name_of(p) for p in found.files["file_path"].to_pylist()} == {"high", "bucket"}
        assert found.stats.manifests_pruned == 1
        assert found.stats.files_considered == 2, "the leaf of low was not opened"

    def test_ranges_of_buckets_skip_whole_leaves(self, t: Kit):
        spec = next(s for s in t.metadata.partition_specs if s.spec_id == 1)
        bucket = spec.fields[1].transform.transform(LongType())
        other = next(i for i in range(1000, 2000) if bucket(i) != 3)
        found = plan_snapshot_scan(t.io, t.metadata, t.head(), where=EqualTo("id", other))
        assert found.stats.manifests_pruned == 3
        same = next(i for i in range(1000, 2000) if bucket(i) == 3)
        found = plan_snapshot_scan(t.io, t.metadata, t.head(), where=EqualTo("id", same))
        assert {name_of(p) for p in found.files["file_path"].to_pylist()} == {"bucket"}

    def test_statistics_of_files_come_back_as_they_were(self, t: Kit):
        rows = t.entries(all_details=True).columns.to_pylist()
        low = next(r for r in rows if name_of(r["file_path"]) == "low")
        assert low["lower_bounds"] == [{"key": 1, "value": to_bytes(LongType(), 1)}]
        assert low["upper_bounds"] == [{"key": 1, "value": to_bytes(LongType(), 9)}]
        assert low["value_counts"] == [{"key": 1, "value": 10}]
        assert low["null_value_counts"] == [{"key": 1, "value": 0}]
        bucket = next(r for r in rows if name_of(r["file_path"]) == "bucket")
        assert bucket["lower_bounds"] is None, "a file without statistics keeps its tuple"
        assert (bucket["p1000"], bucket["p1001"]) == ("eu", 3)

    def test_a_conflict_is_found_in_a_leaf_whatever_its_statistics(self, t: Kit):
        start = t.head_id
        t.ok(DeleteFiles(removed(t.data("low", ids=(1, 9)))))
        file = t.data("low", ids=(1, 9))
        late = RowDelta(added_deletes=t.vector("v", file, [1]), start_snapshot_id=start, check_deleted_files=True)
        t.refused(late, Check.REQUIRED_FILES)


def test_new_equality_deletes_are_refused(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a")))
    conflict = t.refused(RowDelta(added_deletes=t.equality("e")), Check.DELETE_KIND)
    assert "by position only" in conflict.message


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_of_an_older_version_still_apply_after_the_upgrade(tmp_path: Path, version: int):
    t = Kit.create(tmp_path, version)
    files = t.data("a", "b")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.equality("e")))
    t.upgrade(4)
    t.ok(RowDelta(t.new("c"), t.vector("v", files.take([0]), [1])))
    assert t.attached() == {"a": {"e", "v"}, "b": {"e"}}
    assert t.by_name("sequence_number", deletes=False) == {"a": 1, "b": 1, "c": 3}


def test_the_snapshot_names_a_root_and_no_list(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a")))
    row = json.loads(v4.local(t.table.metadata_location).read_text())["snapshots"][0]
    assert "manifest-list" not in row
    assert row["root-manifest"].startswith(t.location)
    footer = v4.footer_of(row["root-manifest"])
    assert (footer["format-version"], footer["parent-snapshot-id"], footer["first-row-id"]) == ("4", "null", "0")
    assert (footer["snapshot-id"], footer["sequence-number"]) == (str(t.head_id), "1")
    (leaf,) = t.manifests()
    footer = v4.footer_of(leaf.file)
    assert (footer["format-version"], footer["content"], footer["schema-id"]) == ("4", "data", "0")
    assert json.loads(footer["iceberg.schema"])["type"] == "struct"


def test_values_of_a_dropped_source_column_keep_their_type(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a", region="eu")))
    with t.table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("amount")
    t.default_spec(2)
    with t.table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("region")
    t.__dict__.pop("specs", None)
    t.ok(Append(t.new("b")))
    t.ok(
        RowDelta(
            added_deletes=t.vector(
                "v",
                t.live(deletes=False).filter(
                    [n.endswith("/a.parquet") for n in t.live(deletes=False)["file_path"].to_pylist()]
                ),
                [1],
            )
        )
    )
    assert {r["spec_id"]: r["p1000"] for r in t.live(deletes=False).columns.to_pylist()} == {0: "eu", 2: None}
    assert t.live(deletes=True).of_content(Content.POSITION_DELETES)["p1000"].to_pylist() == ["eu"]

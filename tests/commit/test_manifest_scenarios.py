"""What appends, merges and rewrites do to manifests when the partition spec changes: one scenario each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.manifest import read_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddPartitionSpecUpdate, AddSchemaUpdate, SetCurrentSchemaUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import BucketTransform

from neve.commit.actions import (
    Append,
    DeleteFiles,
    Overwrite,
    RemovedFiles,
    ReplacePartitions,
    RewriteManifests,
    RowDelta,
)
from neve.commit.outcome import Check
from neve.errors import UnknownName
from neve.model.partition import PartitionKey
from neve.model.spec_evolution import evolved_spec
from neve.plan.manifests import cluster_by_partition
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.read import read_entries
from tests.support.metadata_tables import SCHEMA, Kit, name_of, plus, removed

CARRIED = ("file_path", "snapshot_id", "sequence_number", "file_sequence_number", "first_row_id", *DETAIL.names)


def append_each(t: Kit, *files: EntryTable) -> None:
    """Append files in one commit each, without merging."""
    for file in files:
        t.ok(Append(file, fast=True))


def live_in(t: Kit, manifests: Sequence[Manifest]) -> EntryTable:
    return read_entries(t.table.io, manifests, t.specs, detail=DETAIL.names, live_only=True)


def rewriting(t: Kit, manifests: Sequence[Manifest], pieces: int = 1, **asked: Any) -> RewriteManifests:
    """The rewrite of manifests of one spec into some new ones."""
    groups = cluster_by_partition(live_in(t, manifests), manifests[0].spec_id, pieces, **asked)
    return RewriteManifests(frozenset(m.path for m in manifests), groups)


def order(t: Kit) -> list[str]:
    """The names of all files in the order of the manifest list and of the manifests."""
    return [name_of(p) for p in t.entries()["file_path"].to_pylist()]


def holding(t: Kit) -> list[tuple[int, list[str]]]:
    """For each manifest its spec and the names of its files, in order."""
    return [
        (m.spec_id, [name_of(p) for p in read_entries(t.table.io, [m], t.specs)["file_path"].to_pylist()])
        for m in t.manifests()
    ]


def facts(entries: EntryTable, names: Sequence[str] = CARRIED) -> dict[str, list[Any]]:
    """What is said of each file, by its name."""
    rows = zip(*(entries[name].to_pylist() for name in names), strict=True)
    return {name_of(row[0]): list(row[1:]) for row in rows}


def tuples_by_pyiceberg(t: Kit) -> dict[str, tuple[int, tuple[Any, ...]]]:
    """The spec and the partition of each live file as PyIceberg reads them."""
    io = t.table.io
    return {
        name_of(entry.data_file.file_path): (m.partition_spec_id, tuple(entry.data_file.partition))
        for m in read_manifest_list(io.new_input(t.head().manifest_list))
        for entry in m.fetch_manifest_entry(io)
    }


def partition_field_ids(t: Kit, manifest: Manifest) -> tuple[list[int], list[int]]:
    """The ids of the partition fields as the Avro schema of a manifest and as its header state them."""
    with t.table.io.new_input(manifest.path).open() as stream:
        metadata = fastavro.reader(stream).metadata
    fields = {f["name"]: f for f in json.loads(metadata["avro.schema"])["fields"]}
    of_file = {f["name"]: f for f in fields["data_file"]["type"]["fields"]}
    in_schema = [f["field-id"] for f in of_file["partition"]["type"]["fields"]]
    return in_schema, [f["field-id"] for f in json.loads(metadata["partition-spec"])]


class TestAppending:
    def test_append_two_specs(self, in_avro: Kit):
        t = in_avro
        t.ok(Append(plus(t.data("a"), t.data("b", spec=1, bucket=3), t.data("c", region="us"))))
        assert [(m.spec_id, m.added_files) for m in t.manifests()] == [(1, 1), (0, 2)]
        assert tuples_by_pyiceberg(t) == {"a": (0, ("eu",)), "b": (1, ("eu", 3)), "c": (0, ("us",))}
        assert {m.sequence_number for m in t.manifests()} == {t.head().sequence_number or 0}

    def test_append_manifest_with_deleted_refused(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b")))
        new = t.manifests()
        t.ok(DeleteFiles(removed(t.data("a"))))
        deleted = t.manifests()
        t.ok(rewriting(t, deleted))
        existing = t.manifests()
        assert [m.existing_files for m in existing] == [1]
        for manifests in (deleted, existing, [*new, *existing]):
            conflict = t.refused(Append(manifests=tuple(manifests)), Check.ARGUMENTS)
            assert set(conflict.files) == {m.path for m in manifests}
        t.ok(DeleteFiles(removed(t.data("b"))))
        t.ok(Append(manifests=tuple(new)))
        assert t.statuses() == {"a": "ADDED", "b": "ADDED"}

    def test_append_manifest_of_delete_files_refused(self, with_deletes: Kit):
        """An append is not looked at by those who ask for new deletes."""
        t = with_deletes
        t.ok(Append(t.data("a")))
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("a"))))
        (manifest,) = t.manifests(deletes=True)
        assert t.refused(Append(manifests=(manifest,)), Check.ARGUMENTS).files == (manifest.path,)

    def test_partition_summaries_limit(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        two = plus(t.data("a"), t.data("b", spec=1, bucket=3))
        t.ok(Append(two))
        assert not [key for key in t.summary() if key.startswith("partition")], "no limit, no summaries"
        t.set(write__summary__partition_limit="2")
        t.ok(Append(plus(t.data("c", "d"), t.data("e", spec=1, bucket=3))))
        summary = t.summary()
        assert summary["partition-summaries-included"] == "true" and summary["changed-partition-count"] == "2"
        assert summary["partitions.region=eu"] == "added-data-files=2,added-records=20,added-files-size=2000"
        assert summary["partitions.region=eu/id_bucket=3"].startswith("added-data-files=1,")
        t.ok(Append(plus(*(t.data(name, region=name) for name in ("x", "y", "z")))))
        assert t.summary()["changed-partition-count"] == "3"
        assert not [key for key in t.summary() if key.startswith("partition")]


class TestMerging:
    def test_spec_changed_manifest_kept(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.set(commit__manifest__min_count_to_merge="1")
        t.ok(Append(t.data("a")))
        (old,) = t.manifests()
        t.default_spec(1)
        t.ok(Append(t.data("b", spec=1)))
        assert holding(t) == [(1, ["b"]), (0, ["a"])]
        assert t.manifests()[1] == old

    def test_spec_changed_merge_existing(self, in_avro: Kit):
        t = in_avro
        append_each(t, t.data("a"), t.data("b", region="us"))
        t.default_spec(1)
        t.ok(Append(t.data("c", spec=1)))
        assert holding(t) == [(1, ["c"]), (0, ["b", "a"])], "old bins merge at any count, the newest waits"
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(t.data("d", spec=1)))
        assert holding(t) == [(1, ["d", "c"]), (0, ["b", "a"])]
        assert tuples_by_pyiceberg(t) == {
            "a": (0, ("eu",)),
            "b": (0, ("us",)),
            "c": (1, ("eu", 0)),
            "d": (1, ("eu", 0)),
        }

    def test_merge_min_count(self, any_version: Kit):
        t = any_version
        t.set(commit__manifest__min_count_to_merge="4")
        for name in "abc":
            t.ok(Append(t.data(name)))
        assert holding(t) == [(0, [name]) for name in "cba"]
        t.ok(Append(t.data("d")))
        assert holding(t) == [(0, ["d", "c", "b", "a"])]
        assert t.statuses() == {"a": "EXISTING", "b": "EXISTING", "c": "EXISTING", "d": "ADDED"}
        (merged,) = t.manifests()
        assert (merged.added_files, merged.existing_files, merged.deleted_files) == (1, 3, 0)
        assert (merged.added_rows, merged.existing_rows) == (10, 30)

    def test_merge_size_target(self, any_version: Kit):
        t = any_version
        append_each(t, *(t.data(name) for name in "abcde"))
        lengths = {name: m.length for (_, (name,)), m in zip(holding(t), t.manifests(), strict=True)}
        target = 5 * max(lengths.values()) // 2
        t.set(commit__manifest__min_count_to_merge="2", commit__manifest__target_size_bytes=str(target))
        t.ok(Append(t.data("f")))
        assert holding(t) == [(0, ["f", "e"]), (0, ["d", "c"]), (0, ["b", "a"])]
        full = t.manifests()
        assert all(m.length <= target for m in full)
        t.set(commit__manifest__target_size_bytes=str(max(m.length for m in full)))
        t.ok(Append(t.data("g")))
        assert holding(t)[0] == (0, ["g"]) and t.manifests()[1:] == full, "full manifests stay as they are"

    def test_merge_after_delete(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b", ids=(1, 2))))
        t.ok(DeleteFiles(removed(t.data("a"))))
        assert t.statuses() == {"a": "DELETED", "b": "EXISTING"}
        before = facts(t.entries(all_details=True))["b"]
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(t.data("c")))
        assert t.statuses() == {"b": "EXISTING", "c": "ADDED"}
        assert facts(t.entries(all_details=True))["b"] == before
        assert [m.deleted_files for m in t.manifests()] == [0]
        assert t.names_by_pyiceberg() == {"b", "c"}
        t.ok(Overwrite(t.data("d"), removed(t.data("b"))))
        assert t.statuses() == {"b": "DELETED", "c": "EXISTING", "d": "ADDED"}, "its own tombstone stays in a merge"
        assert len(t.manifests()) == 1

    def test_merge_order_stable(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.set(commit__manifest__min_count_to_merge="3")
        names = [f"f{i:03}" for i in (*range(150, 300), *range(150))]
        t.ok(Append(t.data(*names)))
        t.ok(Append(t.data("x", "w")))
        t.ok(Append(t.data("z", "y")))
        assert len(t.manifests()) == 1
        assert order(t) == ["z", "y", "x", "w", *names], "newest first, inside a commit as given"
        t.ok(DeleteFiles(RemovedFiles.of(t.path("w"), t.path("f000"))))
        assert [n for n in order(t) if n not in ("w", "f000")] == ["z", "y", "x", *(n for n in names if n != "f000")]


class TestSpecs:
    def test_v1_spec_change_field_ids(self, tmp_path: Path):
        t = Kit.create(tmp_path, 1)
        t.ok(Append(t.data("a")))
        (first,) = t.manifests()
        spec = evolved_spec(t.metadata, add=["bucket(8, id)"], drop=["region"])
        t.update(AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1))
        assert [(f.field_id, f.name, str(f.transform)) for f in t.metadata.spec().fields] == [
            (1000, "region", "void"),
            (1002, "id_bucket_8", "bucket[8]"),
        ], "1001 was given to another field of an earlier spec"
        t.ok(Append(t.data("b", spec=spec.spec_id, p1002=5)))
        new, old = t.manifests()
        assert old == first
        assert partition_field_ids(t, old) == ([1000], [1000])
        assert partition_field_ids(t, new) == ([1000, 1002], [1000, 1002])
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(plus(t.data("c", region="us"), t.data("d", spec=spec.spec_id, p1002=6))))
        assert [partition_field_ids(t, m)[0] for m in t.manifests()] == [[1000, 1002], [1000]]
        assert tuples_by_pyiceberg(t) == {
            "a": (0, ("eu",)),
            "b": (spec.spec_id, (None, 5)),
            "c": (0, ("us",)),
            "d": (spec.spec_id, (None, 6)),
        }

    def test_v1_spec_change_one_field_id_for_two_fields(self, tmp_path: Path):
        """Early writers numbered the fields of every spec from 1000 on."""
        t = Kit.create(tmp_path, 1)
        clash = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "id_bucket_8"), spec_id=4)
        t.update(AddPartitionSpecUpdate(spec=clash), SetDefaultSpecUpdate(spec_id=-1))
        t.ok(Append(plus(t.data("a"), t.data("b", spec=4, p1000s4=5))))
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(plus(t.data("c"), t.data("d", spec=4, p1000s4=6))))
        assert [partition_field_ids(t, m)[0] for m in t.manifests()] == [[1000], [1000]]
        live = t.live()
        keys = {name_of(p): live.partition_key(i) for i, p in enumerate(live["file_path"].to_pylist())}
        assert keys == {
            "a": PartitionKey(0, ("eu",)),
            "b": PartitionKey(4, (5,)),
            "c": PartitionKey(0, ("eu",)),
            "d": PartitionKey(4, (6,)),
        }
        t.ok(ReplacePartitions(t.data("e", spec=4, p1000s4=5)))
        assert t.names() == {"a", "c", "d", "e"}
        t.upgrade(2)
        next_spec = evolved_spec(t.metadata, add=["region"])
        assert [f.field_id for f in next_spec.fields] == [1000, 1002], "the id region had belongs to another field here"

    def test_dropped_source_column_old_spec(self, in_avro: Kit):
        t = in_avro
        t.default_spec(2)
        t.ok(Append(plus(t.data("a", ids=(1, 2)), t.data("b", region="us"), t.data("c", spec=1, bucket=3))))
        without = Schema(*(f for f in SCHEMA.fields if f.name != "region"), schema_id=1)
        t.update(AddSchemaUpdate(schema_=without), SetCurrentSchemaUpdate(schema_id=-1))
        assert [f.name for f in t.metadata.schema().fields] == ["id", "amount"]

        t.ok(Append(t.data("late", region="asia")))
        t.ok(DeleteFiles(removed(t.data("b", region="us"))))
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(t.data("d", spec=1, region="us", bucket=1)))
        t.ok(rewriting(t, [m for m in t.manifests() if m.spec_id == 0]))
        expected = {
            "a": (0, ("eu",)),
            "late": (0, ("asia",)),
            "c": (1, ("eu", 3)),
            "d": (1, ("us", 1)),
        }
        assert tuples_by_pyiceberg(t) == expected
        live = t.live()
        keys = {name_of(p): live.partition_key(i) for i, p in enumerate(live["file_path"].to_pylist())}
        assert {name: (key.spec_id, key.values) for name, key in keys.items()} == expected
        ranges = {m.spec_id: m.partitions[0] for m in t.manifests()}
        assert (ranges[0].lower_bound, ranges[0].upper_bound) == (b"asia", b"eu")


class TestRewriting:
    def test_manifests_rewrite_two_specs(self, any_version: Kit):
        t = any_version
        append_each(t, t.data("a"), t.data("b", spec=1), t.data("c"), t.data("d", spec=1))
        before, others = facts(t.entries(all_details=True)), [m for m in t.manifests() if m.spec_id == 1]
        t.ok(rewriting(t, [m for m in t.manifests() if m.spec_id == 0]))
        assert holding(t)[0] == (0, ["c", "a"]) and t.manifests()[1:] == others
        assert facts(t.entries(all_details=True)) == before
        assert (t.summary()["operation"], t.summary()["entries-processed"]) == ("replace", "2")
        assert [t.summary()[f"manifests-{what}"] for what in ("created", "kept", "replaced")] == ["1", "2", "2"]

    def test_manifests_rewrite_concurrent_append(self, any_version: Kit):
        t = any_version
        append_each(t, t.data("a"), t.data("b"))
        action = rewriting(t, t.manifests())
        append_each(t, t.data("c"), t.data("d", spec=1))
        before = facts(t.entries(all_details=True))
        t.ok(action)
        assert holding(t) == [(0, ["b", "a"]), (1, ["d"]), (0, ["c"])]
        assert facts(t.entries(all_details=True)) == before
        assert t.names_by_pyiceberg() == {"a", "b", "c", "d"}

    def test_manifests_rewrite_concurrent_delete_conflict(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        append_each(t, t.data("a", "b"), t.data("c", region="us"))
        action = rewriting(t, t.manifests())
        gone = next(m for m in t.manifests() if m.added_files == 2)
        t.ok(DeleteFiles(removed(t.data("a"))))
        conflict = t.refused(action, Check.MANIFESTS)
        assert (conflict.files, conflict.snapshot_id) == ((gone.path,), t.head_id)
        assert t.names() == {"b", "c"}

    def test_manifests_rewrite_count_mismatch(self, with_deletes: Kit):
        t = with_deletes
        t.ok(Append(t.data("a", "b")))
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("a"))))
        data, deletes = live_in(t, t.manifests(deletes=False)), live_in(t, t.manifests(deletes=True))
        paths = frozenset(m.path for m in t.manifests(deletes=False))
        for groups in ((data.take([0]),), (data, data.take([0])), (data.take([0]), deletes)):
            assert t.refused(RewriteManifests(paths, groups), Check.MANIFESTS).files == tuple(paths)
        t.refused(RewriteManifests(paths), Check.MANIFESTS)
        t.ok(RewriteManifests(paths, (data,)))

    def test_manifests_rewrite_keeps_deletes(self, with_delete_entries: Kit):
        t = with_delete_entries
        append_each(t, t.data("a"), t.data("b"))
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("a"))))
        t.ok(RowDelta(added_deletes=t.equality("e")))
        before, kept = facts(t.entries(all_details=True)), t.manifests(deletes=True)
        t.ok(rewriting(t, t.manifests(deletes=False)))
        assert t.manifests(deletes=True) == kept and len(t.manifests(deletes=False)) == 1
        t.ok(rewriting(t, t.manifests(deletes=True)))
        (rewritten,) = t.manifests(deletes=True)
        assert (rewritten.is_deletes, rewritten.existing_files, rewritten.first_row_id) == (True, 2, None)
        assert facts(t.entries(all_details=True)) == before, "numbers too, so each delete applies to what it did"
        assert t.summary()["total-delete-files"] == "2"

    def test_manifests_rewrite_first_row_id(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3)
        append_each(t, t.data("a", "b", rows=5), t.data("c", rows=7), t.data("d", spec=1, rows=2))
        t.ok(DeleteFiles(removed(t.data("a"))))
        before = facts(t.live(), ("file_path", "first_row_id"))
        assert before == {"b": [5], "c": [10], "d": [17]}
        t.ok(rewriting(t, [m for m in t.manifests() if m.spec_id == 0], pieces=2))
        assert len(t.manifests()) == 3 and None not in [m.first_row_id for m in t.manifests()]
        assert facts(t.live(), ("file_path", "first_row_id")) == before
        t.ok(Append(t.data("e", rows=1)))
        assert facts(t.live(), ("file_path", "first_row_id"))["e"][0] >= 19, "no id is given twice"

    def test_manifests_rewrite_first_row_id_after_an_upgrade(self, tmp_path: Path):
        """Files from before have no ids yet: the rewrite gives them some, beside files that have theirs."""
        t = Kit.create(tmp_path, 2)
        t.ok(Append(t.data("a", "b", rows=5)))
        t.upgrade(3)
        t.ok(rewriting(t, t.manifests()))
        assert facts(t.live(), ("file_path", "first_row_id")) == {"a": [0], "b": [5]}
        append_each(t, t.data("c", rows=7))
        before = facts(t.live(), ("file_path", "first_row_id"))
        assert before["c"][0] >= 10
        t.ok(rewriting(t, t.manifests()))
        assert facts(t.live(), ("file_path", "first_row_id")) == before

    def test_manifests_rewrite_sort_by(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        files = [(region, bucket) for bucket in (2, 0, 3, 1) for region in ("us", "eu", None)]
        append_each(t, *(t.data(f"{r}{b}", spec=1, region=r, bucket=b) for r, b in files))
        t.ok(rewriting(t, t.manifests(), pieces=3, sort_by=["region"]))
        regions = [(s.contains_null, s.lower_bound, s.upper_bound) for s in (m.partitions[0] for m in t.manifests())]
        assert regions == [(False, b"eu", b"eu"), (False, b"us", b"us"), (True, None, None)]
        t.ok(rewriting(t, t.manifests(), pieces=4, sort_by=["id_bucket", "region"]))
        bounds = [m.partitions[1].lower_bound for m in t.manifests()]
        assert bounds == [m.partitions[1].upper_bound for m in t.manifests()] and len(set(bounds)) == 4
        assert [names for _, names in holding(t)] == [[f"eu{b}", f"us{b}", f"None{b}"] for b in range(4)]
        t.ok(rewriting(t, t.manifests()))
        assert order(t) == [f"{r}{b}" for r in ("eu", "us", None) for b in range(4)], "all fields in spec order"
        with pytest.raises(UnknownName, match=r"partition field 'bucket'.*spec 1.*'id_bucket'"):
            rewriting(t, t.manifests(), sort_by=["region", "bucket"])

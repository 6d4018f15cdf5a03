"""What a commit does to manifests: tombstones, carried entries, shed deletes, merging, row ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import fastavro
import pytest
from pyiceberg.expressions import EqualTo

from neve.commit.actions import (
    Append,
    DeleteFiles,
    Overwrite,
    RemovedFiles,
    ReplacePartitions,
    RewriteFiles,
    RewriteManifests,
    RowDelta,
)
from neve.commit.manifest_edits import pack_from_end
from neve.commit.outcome import Check
from neve.tree.entries import DETAIL, Manifest
from neve.tree.read import read_entries
from tests.support.metadata_tables import Kit, plus, removed


class Opened:
    """Counts the manifests that are opened."""

    def __init__(self, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        from neve.tree import read
        from neve.tree.v4 import leaf

        def counting(original: Callable[..., object]) -> Callable[..., object]:
            def run(source: object, path: str, *rest: object) -> object:
                self.paths.append(path)
                return original(source, path, *rest)

            return run

        monkeypatch.setattr(read, "read_file", counting(read.read_file))
        monkeypatch.setattr(leaf, "open_id_table", counting(leaf.open_id_table))

    @property
    def manifests(self) -> int:
        return sum("-m" in p.rsplit("/", 1)[-1] for p in self.paths)


class TestRemoving:
    def test_a_removed_file_becomes_a_tombstone_of_this_snapshot(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b")))
        first = t.head_id
        t.ok(DeleteFiles(RemovedFiles.of(t.path("a"))))
        assert t.statuses() == {"a": "DELETED", "b": "EXISTING"}
        entries = t.entries()
        assert dict(zip(entries["status"].to_pylist(), entries["snapshot_id"].to_pylist(), strict=True)) == {
            2: t.head_id,
            0: first,
        }

    def test_a_manifest_without_the_file_is_kept_as_it_is(self, any_version: Kit):
        t = any_version
        t.ok(Append(plus(t.data("a"), t.data("b", spec=1))))
        kept = next(m for m in t.manifests() if m.spec_id == 1)
        t.ok(DeleteFiles(removed(t.data("a"))))
        assert kept in t.manifests()

    def test_tombstones_are_dropped_by_the_next_snapshot(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a")))
        t.ok(DeleteFiles(removed(t.data("a"))))
        assert [m.deleted_files for m in t.manifests()] == [1]
        t.ok(Append(t.data("b")))
        assert t.statuses() == {"b": "ADDED"}

    def test_nothing_to_remove_makes_no_snapshot_and_no_file(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a")))
        before, files = t.head_id, t.files_on_disk()
        outcome = t.ok(DeleteFiles(RemovedFiles.of(t.path("nowhere"))))
        assert outcome.snapshot_id is None and t.head_id == before
        assert t.files_on_disk() == files

    def test_an_empty_append_makes_no_snapshot(self, any_version: Kit):
        outcome = any_version.ok(Append())
        assert outcome.snapshot_id is None and any_version.head() is None

    def test_statistics_survive_the_rewrite_of_a_manifest(self, any_version: Kit):
        t = any_version
        t.ok(Append(plus(t.data("a"), t.data("b", ids=(3, 7)))))
        before = t.entries(all_details=True)
        t.ok(DeleteFiles(removed(t.data("a"))))
        after = t.entries(all_details=True).live()
        for name in DETAIL.names:
            assert after[name].to_pylist() == before[name].to_pylist()[1:], name

    def test_a_path_in_another_spelling_is_the_same_file(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b")))
        t.ok(DeleteFiles(RemovedFiles.of(t.path("a").removeprefix("file://")), must_exist=True))
        assert t.names() == {"b"}

    def test_only_manifests_that_may_hold_the_partition_are_opened(
        self, any_version: Kit, monkeypatch: pytest.MonkeyPatch
    ):
        t = any_version
        for region in ("eu", "us", "asia"):
            t.ok(Append(t.data(region, region=region), fast=True))
        opened = Opened(t, monkeypatch)
        t.ok(DeleteFiles(removed(t.data("us", region="us"))))
        assert len({p for p in opened.paths if "-m" in p}) == 1

    def test_only_the_known_manifest_is_opened(self, any_version: Kit, monkeypatch: pytest.MonkeyPatch):
        t = any_version
        for name in "abc":
            t.ok(Append(t.data(name), fast=True))
        manifests = t.manifests()
        entries = read_entries(t.table.io, manifests, t.specs)
        b = entries.filter([p.endswith("/b.parquet") for p in entries["file_path"].to_pylist()])
        opened = Opened(t, monkeypatch)
        t.ok(DeleteFiles(removed(b, manifests=[m.path for m in manifests])))
        assert len({p for p in opened.paths if "-m" in p}) == 1
        assert t.names() == {"a", "c"}

    def test_a_known_manifest_that_was_merged_meanwhile_is_no_obstacle(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a"), fast=True))
        t.ok(Append(t.data("b"), fast=True))
        manifests = t.manifests()
        entries = read_entries(t.table.io, manifests, t.specs)
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(t.data("c")))
        assert len(t.manifests()) == 1
        t.ok(DeleteFiles(removed(entries, manifests=[m.path for m in manifests])))
        assert t.names() == {"c"}


class TestShedding:
    def test_a_removing_commit_sheds_deletes_older_than_all_data(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        t.ok(Append(t.data("a")))
        t.ok(RowDelta(added_deletes=t.equality("e")))
        t.ok(Append(t.data("b")))
        t.ok(DeleteFiles(removed(t.data("a"))))
        assert t.names(deletes=True) == set()

    def test_a_delete_that_may_apply_is_kept(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        t.ok(Append(t.data("a", "old")))
        t.ok(RowDelta(added_deletes=t.equality("e")))
        t.ok(DeleteFiles(removed(t.data("a"))))
        assert t.names(deletes=True) == {"e"}

    def test_an_append_sheds_nothing(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        t.ok(RowDelta(added_deletes=t.equality("e")))
        t.ok(Append(t.data("a"), fast=True))
        t.ok(Append(t.data("b")))
        assert t.names(deletes=True) == {"e"}

    def test_a_compaction_that_keeps_its_number_protects_younger_deletes(self, tmp_path: Path):
        """All data left has a higher number than the delete; only the added files, which keep theirs, still need it."""
        t = Kit.create(tmp_path)
        t.ok(Append(t.data("a")))
        start, number = t.head_id, t.head().sequence_number
        t.ok(RowDelta(added_deletes=t.equality("e")))
        t.ok(Append(t.data("young")))
        t.ok(RewriteFiles(removed(t.data("a")), t.data("b"), data_sequence_number=number, start_snapshot_id=start))
        assert t.names(deletes=True) == {"e"}
        live = t.live(deletes=False)
        numbers = dict(zip(live["file_path"].to_pylist(), live["sequence_number"].to_pylist(), strict=True))
        assert numbers[t.path("b")] == number < t.head().sequence_number
        assert (
            dict(zip(live["file_path"].to_pylist(), live["file_sequence_number"].to_pylist(), strict=True))[t.path("b")]
            == t.head().sequence_number
        )

    def test_file_scoped_deletes_leave_with_their_file(self, tmp_path: Path):
        """Known by reference; the lowest number is kept low by another file."""
        t = Kit.create(tmp_path)
        a, b = t.data("a"), t.data("b")
        t.ok(Append(plus(a, b)))
        t.ok(RowDelta(added_deletes=plus(t.positions("da", of=a), t.positions("db", of=b))))
        t.ok(DeleteFiles(removed(a)))
        assert t.names(deletes=True) == {"db"}

    def test_file_scoped_deletes_are_known_by_their_bounds_too(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        a, b = t.data("a"), t.data("b")
        t.ok(Append(plus(a, b)))
        path = [{"key": 2147483546, "value": t.path("a").encode()}]
        deletes = t.positions("da", lower_bounds=path, upper_bounds=path)
        t.ok(RowDelta(added_deletes=deletes))
        t.ok(DeleteFiles(removed(a)))
        assert t.names(deletes=True) == set()

    def test_vectors_leave_with_their_file(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3)
        a, b = t.data("a"), t.data("b", region="us")
        t.ok(Append(plus(a, b)))
        t.ok(RowDelta(added_deletes=plus(t.vector("va", a), t.vector("vb", b))))
        t.ok(DeleteFiles(row_filter=EqualTo("region", "eu")))
        assert t.names(deletes=True) == {"vb"}

    def test_one_vector_of_a_shared_puffin_file_leaves_alone(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3)
        a, b = t.data("a"), t.data("b")
        t.ok(Append(plus(a, b)))
        va = t.vector("shared", a, content_offset=4)
        vb = t.vector("shared", b, content_offset=50)
        t.ok(RowDelta(added_deletes=plus(va, vb)))
        t.ok(RowDelta(added_deletes=t.vector("new", a), removed_deletes=removed(va), start_snapshot_id=t.head_id))
        assert t.names(deletes=True) == {"shared", "new"}
        live = t.live(deletes=True)
        assert set(live["content_offset"].to_pylist()) == {4, 50}


class TestReplacePartitions:
    def test_only_the_partitions_of_its_spec_are_replaced(self, any_version: Kit):
        t = any_version
        t.ok(Append(plus(t.data("a"), t.data("b", region="us"), t.data("c", spec=1))))
        t.ok(ReplacePartitions(t.data("new")))
        assert t.names() == {"new", "b", "c"}

    def test_null_is_a_partition_of_its_own(self, any_version: Kit):
        t = any_version
        t.ok(Append(plus(t.data("a"), t.data("n", region=None))))
        t.ok(ReplacePartitions(t.data("new", region=None)))
        assert t.names() == {"new", "a"}

    @pytest.mark.parametrize("spec", [2, 3])
    def test_an_unpartitioned_or_void_spec_replaces_everything(self, any_version: Kit, spec: int):
        t = any_version
        t.ok(Append(plus(t.data("a"), t.data("b", spec=1))))
        t.ok(ReplacePartitions(t.data("new", spec=spec)))
        assert t.names() == {"new"}

    def test_deletes_of_a_replaced_partition_leave(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        t.ok(Append(plus(t.data("a"), t.data("b", region="us"))))
        t.ok(RowDelta(added_deletes=plus(t.equality("eu"), t.equality("us", region="us"))))
        t.ok(ReplacePartitions(t.data("new")))
        assert t.names(deletes=True) == {"us"}

    def test_append_only_refuses_a_partition_that_has_files(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a")))
        t.refused(ReplacePartitions(t.data("new"), append_only=True), Check.NEW_DATA)
        t.ok(ReplacePartitions(t.data("new", region="us"), append_only=True))


class TestMerging:
    def test_below_the_minimum_nothing_merges_and_at_the_minimum_all_do(self, any_version: Kit):
        t = any_version
        t.set(commit__manifest__min_count_to_merge="3")
        for name in "ab":
            t.ok(Append(t.data(name)))
        assert [m.added_files for m in t.manifests()] == [1, 1]
        t.ok(Append(t.data("c")))
        (merged,) = t.manifests()
        assert (merged.added_files, merged.existing_files) == (1, 2)
        assert t.statuses() == {"a": "EXISTING", "b": "EXISTING", "c": "ADDED"}

    def test_merging_keeps_numbers_ids_and_snapshots(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3, commit__manifest__min_count_to_merge="3")
        for name in "abc":
            t.ok(Append(t.data(name)))
        entries = t.entries()
        facts = ("sequence_number", "file_sequence_number", "first_row_id", "snapshot_id")
        rows = {
            p[-9]: r
            for p, *r in zip(entries["file_path"].to_pylist(), *(entries[f].to_pylist() for f in facts), strict=False)
        }
        ids = [s.snapshot_id for s in t.metadata.snapshots]
        assert rows["a"] == [1, 1, 0, ids[0]]
        assert rows["b"] == [2, 2, 10, ids[1]]
        assert rows["c"][:2] == [3, 3] and rows["c"][3] == ids[2]
        assert rows["c"][2] == t.manifests()[0].first_row_id

    def test_specs_and_kinds_never_mix(self, tmp_path: Path):
        t = Kit.create(tmp_path, commit__manifest__min_count_to_merge="2")
        for i in range(3):
            a = t.data(f"a{i}")
            t.ok(Append(plus(a, t.data(f"b{i}", spec=1))))
            t.ok(RowDelta(added_deletes=plus(t.positions(f"d{i}", of=a), t.equality(f"e{i}", spec=2))))
        assert sorted((m.is_deletes, m.spec_id) for m in t.manifests()) == [
            (False, 0),
            (False, 1),
            (True, 0),
            (True, 2),
        ]
        assert len(t.live()) == 12

    def test_a_fast_append_merges_nothing(self, any_version: Kit):
        t = any_version
        t.set(commit__manifest__min_count_to_merge="2")
        for name in "abc":
            t.ok(Append(t.data(name), fast=True))
        assert len(t.manifests()) == 3

    def test_merging_can_be_switched_off(self, any_version: Kit):
        t = any_version
        t.set(commit__manifest__min_count_to_merge="2", commit__manifest_merge__enabled="false")
        for name in "abc":
            t.ok(Append(t.data(name)))
        assert len(t.manifests()) == 3

    def test_manifests_that_were_merged_away_are_deleted_again(self, any_version: Kit):
        t = any_version
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(Append(t.data("a")))
        t.ok(Append(t.data("b")))
        written = {f for f in t.files_on_disk() if "-m" in f.rsplit("/", 1)[-1]}
        assert len(written) == 2, "the manifest of the first snapshot and the merged one"

    def test_an_explicit_number_survives_a_merge(self, tmp_path: Path):
        t = Kit.create(tmp_path)
        t.ok(Append(t.data("a")))
        number, start = t.head().sequence_number, t.head_id
        t.set(commit__manifest__min_count_to_merge="2")
        t.ok(RewriteFiles(removed(t.data("a")), t.data("b"), data_sequence_number=number, start_snapshot_id=start))
        t.ok(Append(t.data("c")))
        live = t.live()
        numbers = dict(zip(live["file_path"].to_pylist(), live["sequence_number"].to_pylist(), strict=True))
        assert numbers == {t.path("b"): 1, t.path("c"): 3}

    def test_bins_are_filled_from_the_oldest(self):
        def manifest(length: int) -> Manifest:
            return Manifest(f"m{length}", length, 0, False, 1, 1, 1, 1, 0, 0, 1, 0, 0)

        sizes = [[m.length for m in b] for b in pack_from_end([manifest(n) for n in (3, 4, 5, 6, 1)], 10)]
        assert sizes == [[3], [4, 5], [6, 1]]


class TestRowIds:
    def test_each_snapshot_reserves_the_ids_of_its_new_rows(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3)
        t.ok(Append(plus(t.data("a", rows=5), t.data("b", rows=7))))
        assert (t.head().first_row_id, t.head().added_rows, t.metadata.next_row_id) == (0, 12, 12)
        t.ok(Append(t.data("c", rows=2)))
        assert (t.head().first_row_id, t.head().added_rows, t.metadata.next_row_id) == (12, 2, 14)
        live = t.live()
        assert dict(zip(live["file_path"].to_pylist(), live["first_row_id"].to_pylist(), strict=True)) == {
            t.path("a"): 0,
            t.path("b"): 5,
            t.path("c"): 12,
        }

    def test_carried_files_keep_their_ids_and_new_ones_get_others(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3)
        t.ok(Append(t.data("a", "b", "c")))
        t.ok(Overwrite(t.data("d"), removed(t.data("b"))))
        live = t.live()
        ids = dict(zip(live["file_path"].to_pylist(), live["first_row_id"].to_pylist(), strict=True))
        assert ids[t.path("a")] == 0 and ids[t.path("c")] == 20
        assert ids[t.path("d")] >= 30
        assert t.metadata.next_row_id >= ids[t.path("d")] + 10
        tombstone = t.entries().filter([p == t.path("b") for p in t.entries()["file_path"].to_pylist()])
        assert tombstone["first_row_id"].to_pylist() == [10]

    def test_the_first_commit_after_an_upgrade_numbers_everything(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.ok(Append(t.data("a", "b")))
        t.ok(Append(t.data("c")))
        t.upgrade(3)
        t.ok(Append(t.data("d")))
        assert None not in [m.first_row_id for m in t.manifests()]
        starts = sorted(t.live()["first_row_id"].to_pylist())
        assert starts == [0, 10, 20, 30] and t.metadata.next_row_id == 40

    def test_a_rewrite_after_an_upgrade_numbers_everything_once(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.ok(Append(t.data("a", "b", "c")))
        t.upgrade(3)
        t.ok(Overwrite(t.data("d"), removed(t.data("b"))))
        starts = sorted(t.live()["first_row_id"].to_pylist())
        assert len(set(starts)) == 3 and None not in starts
        assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(starts))


class TestUpgradedTables:
    def test_a_v1_table_goes_on_as_v2(self, tmp_path: Path):
        t = Kit.create(tmp_path, 1)
        t.ok(Append(plus(t.data("a"), t.data("b", spec=1))))
        t.upgrade(2)
        t.ok(RowDelta(t.data("c"), t.positions("d", of=t.data("a"))))
        live = t.live()
        numbers = dict(zip(live["file_path"].to_pylist(), live["sequence_number"].to_pylist(), strict=True))
        assert numbers == {t.path("a"): 0, t.path("b"): 0, t.path("c"): 1, t.path("d"): 1}
        t.ok(DeleteFiles(removed(t.data("a"))))
        assert t.names() == {"b", "c"} and t.names(deletes=True) == set()

    def test_v1_manifests_are_v1(self, tmp_path: Path):
        t = Kit.create(tmp_path, 1)
        t.ok(Append(t.data("a")))
        with t.table.io.new_input(t.manifests()[0].path).open() as stream:
            reader = fastavro.reader(stream)
            (entry,) = reader
        assert reader.metadata["format-version"] == "1" and "content" not in reader.metadata
        assert "sequence_number" not in entry and entry["snapshot_id"] == t.head_id
        assert t.head().sequence_number in (None, 0)


class TestRewriteManifests:
    def rewrite(self, t: Kit, manifests: list[Manifest], *groups: slice) -> RewriteManifests:
        entries = read_entries(t.table.io, manifests, t.specs, detail=DETAIL.names, live_only=True)
        rows = [range(len(entries))[g] for g in groups or [slice(None)]]
        return RewriteManifests(frozenset(m.path for m in manifests), tuple(entries.take(list(r)) for r in rows))

    def test_entries_are_carried_with_all_their_facts(self, any_version: Kit):
        t = any_version
        for name in "abc":
            t.ok(Append(t.data(name, ids=(1, 2)), fast=True))
        before = t.entries(all_details=True)
        t.ok(self.rewrite(t, t.manifests()))
        after = t.entries(all_details=True)
        assert len(t.manifests()) == 1 and t.manifests()[0].existing_files == 3
        for name in (
            "file_path",
            "snapshot_id",
            "sequence_number",
            "file_sequence_number",
            "first_row_id",
            *DETAIL.names,
        ):
            assert after[name].to_pylist() == before[name].to_pylist(), name
        assert t.summary()["operation"] == "replace"
        assert t.summary()["entries-processed"] == "3"
        assert t.summary()["total-data-files"] == "3"

    def test_one_group_is_one_manifest(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b", "c")))
        t.ok(self.rewrite(t, t.manifests(), slice(0, 1), slice(1, 3)))
        assert [m.existing_files for m in t.manifests()] == [1, 2]

    def test_manifests_of_a_concurrent_append_survive(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a"), fast=True))
        t.ok(Append(t.data("b"), fast=True))
        action = self.rewrite(t, t.manifests())
        t.ok(Append(t.data("c"), fast=True))
        t.ok(action)
        assert t.names() == {"a", "b", "c"} and len(t.manifests()) == 2

    def test_a_manifest_that_is_gone_is_a_conflict(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b")))
        action = self.rewrite(t, t.manifests())
        t.ok(DeleteFiles(removed(t.data("a"))))
        t.refused(action, Check.MANIFESTS)

    def test_other_counts_are_refused(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b")))
        t.refused(self.rewrite(t, t.manifests(), slice(0, 1)), Check.MANIFESTS)

    def test_a_rewrite_of_nothing_makes_no_snapshot(self, any_version: Kit):
        assert any_version.ok(RewriteManifests(frozenset())).snapshot_id is None


class TestAppendedManifests:
    def test_files_of_a_prepared_manifest_are_added(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a"), fast=True))
        (prepared,) = t.manifests()
        t.ok(DeleteFiles(removed(t.data("a"))))
        t.ok(Append(manifests=(prepared,)))
        assert t.names() == {"a"}
        assert t.live()["snapshot_id"].to_pylist() == [t.head_id]

    def test_a_manifest_with_tombstones_is_refused(self, any_version: Kit):
        t = any_version
        t.ok(Append(t.data("a", "b")))
        t.ok(DeleteFiles(removed(t.data("a"))))
        t.refused(Append(manifests=tuple(t.manifests())), Check.ARGUMENTS)

"""The tree that adapts: files listed in the root itself, leaves made when they are many, rows hidden by the root."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neve.commit.actions import Append, DeleteFiles, RemovedFiles, RewriteManifests, RowDelta
from neve.commit.outcome import Check
from neve.errors import MissingFile
from neve.ops.plan_scan import plan_snapshot_scan
from neve.tree.entries import DETAIL, Content
from neve.tree.read import manifests_of, read_entries
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, name_of, plus, removed

INLINE = {"neve__root__inline_files": "4"}
HIDING = {"neve__manifest_vectors__enabled": "true"}
WAYS = {"leaves": {}, "inline": INLINE, "hiding": HIDING, "both": INLINE | HIDING}


def root_rows(t: Kit) -> list[v4.Row]:
    return v4.rows_of(t.head().root_manifest)


def leaves(t: Kit) -> set[str]:
    return {row["100"] for row in root_rows(t) if row[v4.CONTENT] > 2}


class TestRowsInTheRoot:
    def test_a_small_append_writes_no_leaf(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **INLINE)
        t.ok(Append(t.data("a", "b")))
        t.ok(Append(t.data("c")))
        assert not [f for f in t.files_on_disk() if "-m" in f]
        found = {(name_of(r["100"]), r[v4.STATUS], r[v4.NUMBER], r[v4.ROW_ID]) for r in root_rows(t)}
        assert found == {("a", 0, 1, 0), ("b", 0, 1, 10), ("c", 1, 2, 20)}
        assert t.metadata.next_row_id == 30

    def test_a_large_append_writes_leaves(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **INLINE)
        t.ok(Append(t.data("a", "b", "c", "d", "e")))
        assert [r[v4.CONTENT] for r in root_rows(t)] == [3]

    def test_rows_move_to_a_leaf_when_the_root_holds_too_many(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, neve__root__inline_rows="5", **INLINE)
        t.ok(Append(t.data("a", "b", "c")))
        t.ok(Append(t.data("d", "e", "f")))
        assert [r[v4.CONTENT] for r in root_rows(t)] == [3]
        assert t.statuses() == {**dict.fromkeys("abc", "EXISTING"), **dict.fromkeys("def", "ADDED")}
        assert sorted(t.by_name("first_row_id").values()) == [0, 10, 20, 30, 40, 50]
        assert t.by_name("sequence_number") == {**dict.fromkeys("abc", 1), **dict.fromkeys("def", 2)}

    def test_a_row_of_the_root_that_goes_stays_visible_for_one_snapshot(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **INLINE)
        files = t.data("a", "b")
        t.ok(Append(files))
        t.ok(DeleteFiles(removed(files.take([0]))))
        assert t.statuses() == {"a": "DELETED", "b": "EXISTING"}
        t.ok(Append(t.data("c"), fast=True))
        assert t.statuses() == {"b": "EXISTING", "c": "ADDED"}

    def test_a_vector_changes_the_row_in_the_root(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **INLINE)
        files = t.data("a", "b")
        t.ok(Append(files))
        t.ok(RowDelta(added_deletes=t.vector("v", files.take([1]), [4])))
        assert [(name_of(r["100"]), r[v4.STATUS]) for r in root_rows(t)] == [("a", 0), ("b", 3), ("b", 4)]
        assert t.deleted_positions() == {"b": [4]}
        assert t.summary()["added-dvs"] == "1"

    def test_the_root_mixes_leaves_of_older_versions_and_files(self, tmp_path: Path):
        t = Kit.create(tmp_path, 3, **INLINE)
        t.ok(Append(t.data("a")))
        t.upgrade(4)
        t.ok(Append(t.data("b")))
        assert [(r[v4.CONTENT], r[v4.VERSION]) for r in root_rows(t)] == [(3, 0), (0, 4)]
        assert t.names() == {"a", "b"}


class TestHiddenRows:
    def test_a_deleted_file_is_hidden_and_its_leaf_left_alone(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **HIDING)
        files = t.data("a", "b", "c")
        t.ok(Append(files))
        before = leaves(t)
        t.ok(DeleteFiles(removed(files.take([1]))))
        assert leaves(t) == before
        (row,) = root_rows(t)
        assert (row[v4.STATUS], row["147.5"], row["150.523"]) == (4, t.head_id, 1)
        assert v4._bits(row["150.522"]) == v4._bits(row["147.6"]) == {1}
        assert (row["150.504"], row["150.506"]) == (3, 0), "counts are those of the file"
        assert t.names() == {"a", "c"}
        t.ok(Append(t.data("d"), fast=True))
        carried = next(r for r in root_rows(t) if r["100"] in before)
        assert carried[v4.STATUS] == 0
        assert "147.6" not in carried, "positions are of the snapshot that hid them"
        assert v4._bits(carried["150.522"]) == {1}

    def test_other_writers_see_what_was_hidden_as_removed(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **HIDING)
        files = t.data("a", "b")
        t.ok(Append(files))
        start = t.head_id
        t.ok(DeleteFiles(removed(files.take([0]))))
        late = RowDelta(
            added_deletes=t.vector("v", files.take([0]), [1]), start_snapshot_id=start, check_deleted_files=True
        )
        conflict = t.refused(late, Check.REQUIRED_FILES)
        assert [name_of(f) for f in conflict.files] == ["a"]

    def test_the_new_state_of_a_hidden_row_lies_in_the_root(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **HIDING)
        files = t.data("a", "b")
        t.ok(Append(files))
        t.ok(RowDelta(added_deletes=t.vector("v", files.take([0]), [1])))
        leaf, moved = root_rows(t)
        assert v4._bits(leaf["147.7"]) == {0}, "replaced, not deleted"
        assert "147.6" not in leaf
        assert (moved[v4.STATUS], name_of(moved["100"]), moved[v4.ROW_ID]) == (4, "a", 0)
        assert t.deleted_positions() == {"a": [1]}
        assert t.by_name("first_row_id", deletes=False) == {"a": 0, "b": 10}, "the other row keeps its row ids"

    def test_a_leaf_of_which_nothing_is_left_is_dropped_by_the_next_snapshot(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **HIDING)
        files = t.data("a", "b")
        t.ok(Append(files))
        t.ok(DeleteFiles(removed(files)))
        assert len(leaves(t)) == 1, "its removed rows are visible"
        t.ok(Append(t.data("c")))
        assert [r[v4.STATUS] for r in root_rows(t)] == [1]

    def test_an_older_snapshot_still_has_what_a_newer_one_hid(self, tmp_path: Path):
        t = Kit.create(tmp_path, 4, **HIDING)
        files = t.data("a", "b")
        t.ok(Append(files))
        first = t.head()
        t.ok(DeleteFiles(removed(files.take([0]))))
        manifests = manifests_of(t.io, t.metadata, first)
        live = read_entries(t.io, manifests, t.specs, live_only=True)
        assert {name_of(p) for p in live["file_path"].to_pylist()} == {"a", "b"}
        assert {m.path for m in manifests}.isdisjoint(m.path for m in t.manifests()), "not the same manifest to anyone"


class TestRewriting:
    @pytest.mark.parametrize("way", WAYS)
    def test_a_rewrite_of_all_manifests_keeps_files_and_vectors(self, tmp_path: Path, way: str):
        t = Kit.create(tmp_path, 3, **WAYS[way])
        files = t.data("a", "b", "c")
        t.ok(Append(files))
        t.ok(RowDelta(added_deletes=t.vector("v1", files.take([0]), [1])))
        t.upgrade(4)
        t.ok(Append(t.data("d", "e"), fast=True))
        t.ok(RowDelta(added_deletes=t.vector("v2", t.data("d"), [2])))
        before, positions = facts(t), t.deleted_positions()
        manifests = [m for m in t.manifests() if m.may_hold_live_files]
        live = read_entries(t.io, manifests, t.specs, detail=DETAIL.names, live_only=True)
        groups = (live.of_content(Content.DATA), live.of_content(Content.POSITION_DELETES))
        t.ok(RewriteManifests(frozenset(m.path for m in manifests), groups))
        assert facts(t) == before
        assert t.deleted_positions() == positions == {"a": [1], "d": [2]}
        rows = root_rows(t)
        assert [(r[v4.CONTENT], r[v4.VERSION]) for r in rows] == [(3, 4)], "vectors lie beside their files now"


def facts(t: Kit) -> list[tuple]:
    columns = ("file_path", "sequence_number", "file_sequence_number", "snapshot_id", "first_row_id", "spec_id")
    return sorted(tuple(row[c] for c in columns) for row in t.live(deletes=False).columns.to_pylist())


class TestWhereFilesWereSeen:
    """A statement knows in which leaves it has read the files that get vectors, and looks for them nowhere else."""

    def seen(self, t: Kit, name: str) -> dict[str, object]:
        found = plan_snapshot_scan(t.io, t.metadata, t.head())
        mask = [name_of(path) == name for path in found.files["file_path"].to_pylist()]
        return {
            "vector_targets": RemovedFiles(found.files.filter(mask), manifests=found.manifests),
            "start_snapshot_id": t.head_id,
        }

    @pytest.mark.parametrize("way", WAYS)
    def test_other_leaves_are_not_opened(self, tmp_path: Path, way: str):
        t = Kit.create(tmp_path, 4, **WAYS[way])
        files = [t.data(*(f"{name}{n}" for n in range(6))) for name in "ab"]
        for file in files:
            t.ok(Append(file, fast=True))
        known = self.seen(t, "a1")
        (other,) = (leaf for leaf in leaves(t) if "b1" in v4_names(t, leaf))
        os.unlink(tmp_path / "db" / "t" / other)
        delta = RowDelta(added_deletes=t.vector("v", files[0].take([1]), [4]))
        with pytest.raises(MissingFile):
            t.commit(delta)
        t.ok(replace(delta, **known))

    @pytest.mark.parametrize("way", WAYS)
    def test_a_row_that_has_moved_meanwhile_is_found(self, tmp_path: Path, way: str):
        t = Kit.create(tmp_path, 4, **WAYS[way])
        files = t.data("a", "b", "c", "d", "e")
        t.ok(Append(files))
        known = self.seen(t, "b")
        t.ok(RowDelta(added_deletes=t.vector("v1", files.take([1]), [1]), merge_vectors=True))
        t.ok(RowDelta(added_deletes=t.vector("v2", files.take([1]), [4]), merge_vectors=True, **known))
        assert t.deleted_positions() == {"b": [1, 4]}


def v4_names(t: Kit, leaf: str) -> set[str]:
    return {name_of(row["100"]) for row in v4.rows_of(f"{t.location}/{leaf}")}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [7])
def test_random_histories_agree_with_a_model_and_with_the_other_reader(tmp_path: Path, way: str, seed: int):
    """Appends, drops, vectors, upgrades of vectors, evolution, flattening and merging in any order."""
    random = np.random.default_rng(seed)
    more = {"neve__root__inline_rows": "6", "commit__manifest__min_count_to_merge": "3"}
    t = Kit.create(tmp_path, 4, **WAYS[way], **more)
    model: dict[str, set[int]] = {}
    files: dict[str, object] = {}
    vectors: dict[str, object] = {}
    row_ids: dict[str, int] = {}
    for step in range(16):
        what = random.choice(["append", "append", "drop", "vector", "vector", "unvector"])
        names = sorted(model)
        if what == "append" or not names:
            fresh = [f"f{step}x{i}" for i in range(random.integers(1, 7))]
            made = [t.data(n, spec=int(random.integers(0, 4)), bucket=int(random.integers(0, 4))) for n in fresh]
            files |= dict(zip(fresh, made, strict=True))
            t.ok(Append(plus(*made), fast=bool(random.integers(0, 2))))
            model |= {n: set() for n in fresh}
        elif what == "drop":
            gone = random.choice(names, min(len(names), 2), replace=False)
            t.ok(DeleteFiles(removed(*(files[n] for n in gone))))
            for n in gone:
                model.pop(n)
                vectors.pop(n, None)
        elif what == "vector":
            chosen = random.choice(names, min(len(names), 2), replace=False)
            for n in chosen:
                model[n] |= {int(random.integers(0, 10))}
            new = {n: t.vector(f"v{step}{n}", files[n], sorted(model[n])) for n in chosen}
            old = [vectors[n] for n in chosen if n in vectors]
            t.ok(
                RowDelta(
                    added_deletes=plus(*new.values()),
                    removed_deletes=removed(*old) if old else removed(t.vector("none", files[chosen[0]])),
                    start_snapshot_id=t.head_id,
                )
            )
            vectors |= new
        elif vectors:
            n = str(random.choice(sorted(vectors)))
            t.ok(RowDelta(removed_deletes=removed(vectors.pop(n)), start_snapshot_id=t.head_id))
            model[n] = set()
        check(t, model, row_ids)
    assert t.names_by_pyiceberg() == set(model), "and PyIceberg finds them in an export"


def check(t: Kit, model: dict[str, set[int]], row_ids: dict[str, int]) -> None:
    assert t.names() == set(model)
    assert t.deleted_positions() == {n: sorted(p) for n, p in model.items() if p}
    live = t.live(deletes=False)
    ours = sorted(
        zip(
            *(live[c].to_pylist() for c in ("file_path", "sequence_number", "snapshot_id", "first_row_id")), strict=True
        )
    )
    other = v4.live_files(t.head().root_manifest, t.location)
    assert ours == sorted((f.location, f.number, f.snapshot_id, f.first_row_id) for f in other)
    assert {name_of(f.location) for f in other if f.vector} == {n for n, p in model.items() if p}
    found = t.by_name("first_row_id", deletes=False)
    assert all(found[n] == row_ids.setdefault(n, found[n]) for n in found), "row ids are for life"
    assert len(set(found.values())) == len(found)
    summary = t.summary()
    assert summary["total-data-files"] == str(len(model))
    assert summary["total-delete-files"] == str(sum(bool(p) for p in model.values()))

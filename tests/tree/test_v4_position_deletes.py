"""Position delete files given to version 4 tables: they become vectors in the rows of their data files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.commit.actions import Append, RowDelta
from neve.commit.environment import Environment, Phase
from neve.commit.outcome import Check
from neve.tree.entries import EntryTable
from tests.support import v4_trees as v4
from tests.support.metadata_tables import Kit, name_of, plus, removed

ID = b"PARQUET:field_id"
FIELDS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {ID: b"2147483546"}),
        pa.field("pos", pa.int64(), False, {ID: b"2147483545"}),
    ]
)
WAYS = {
    "leaves": {},
    "adaptive": {"neve__root__inline_files": "1", "neve__manifest_vectors__enabled": "true"},
}


def positions(t: Kit, name: str, rows: dict[str, list[int]], **stated: object) -> EntryTable:
    """A position delete file that exists: the rows it deletes of each data file."""
    pairs = [(t.path(file), at) for file, own in sorted(rows.items()) for at in own]
    made = t.positions(name, rows=len(pairs), **stated)
    path = v4.local(t.path(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays([pa.array(c) for c in zip(*pairs, strict=True)], schema=FIELDS), path)
    return made


@pytest.mark.parametrize("way", WAYS)
def test_a_position_delete_file_becomes_vectors_of_the_files_it_names(tmp_path: Path, way: str):
    t = Kit.create(tmp_path, 4, **WAYS[way])
    t.ok(Append(t.data("a", "b", "c")))
    t.ok(RowDelta(added_deletes=positions(t, "d", {"a": [3, 1], "c": [0]})))
    assert t.deleted_positions() == {"a": [1, 3], "c": [0]}
    assert {r["file_format"] for r in t.live(deletes=True).columns.to_pylist()} == {"PUFFIN"}
    summary = t.summary()
    assert (summary["operation"], summary["added-dvs"], summary["added-position-deletes"]) == ("delete", "2", "3")
    assert "added-position-delete-files" not in summary
    files = v4.live_files(t.head().root_manifest, t.location)
    assert {name_of(f.location): f.vector and f.vector[3] for f in files} == {"a": 2, "b": None, "c": 1}


@pytest.mark.parametrize("way", WAYS)
def test_the_vector_a_file_had_is_taken_in_and_leaves(tmp_path: Path, way: str):
    t = Kit.create(tmp_path, 4, **WAYS[way])
    files = t.data("a", "b")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=t.vector("v", files.take([0]), [7])))
    t.ok(RowDelta(added_deletes=positions(t, "d", {"a": [2]})))
    assert t.deleted_positions() == {"a": [2, 7]}
    summary = t.summary()
    assert (summary["added-dvs"], summary["removed-dvs"], summary["total-position-deletes"]) == ("1", "1", "2")


def test_rows_and_deletes_of_an_update_come_together(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a")))
    t.ok(RowDelta(t.data("b"), positions(t, "d", {"a": [4]})))
    assert (t.names(), t.deleted_positions()) == ({"a", "b"}, {"a": [4]})


def test_position_deletes_from_before_the_upgrade_are_in_the_vector(tmp_path: Path):
    t = Kit.create(tmp_path, 2)
    files = t.data("a", "b")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=positions(t, "d1", {"a": [5], "b": [6]})))
    t.upgrade(4)
    t.ok(RowDelta(added_deletes=positions(t, "d2", {"a": [1]})))
    vectors = {name: at for name, at in t.attached().items() if name == "a"}
    (vector,) = (r for r in t.live(deletes=True).columns.to_pylist() if r["file_format"] == "PUFFIN")
    assert (vector["record_count"], name_of(vector["referenced_data_file"])) == (2, "a")
    assert vectors == {"a": {name_of(vector["file_path"])}}
    assert t.attached()["b"] == {"d1"}, "what is left of the older delete file still applies"


def test_a_file_that_is_not_live_is_refused(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a")))
    delta = RowDelta(added_deletes=positions(t, "d", {"a": [1], "gone": [1]}))
    assert [name_of(f) for f in t.refused(delta, Check.REQUIRED_FILES).files] == ["gone"]


def test_files_in_orc_are_refused(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    t.ok(Append(t.data("a")))
    conflict = t.refused(RowDelta(added_deletes=t.positions("d", file_format="ORC")), Check.DELETE_KIND)
    assert "Parquet or Avro" in conflict.message


def test_a_later_attempt_takes_in_what_others_deleted_meanwhile(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    files = t.data("a", "b")
    t.ok(Append(files))
    delta = RowDelta(added_deletes=positions(t, "d", {"a": [1]}))
    meanwhile = iter([lambda: t.ok(RowDelta(added_deletes=t.vector("v", files.take([0]), [8])))])

    def observe(phase: Phase, attempt: int) -> None:
        if phase == Phase.SWAP:
            next(meanwhile, lambda: None)()

    outcome = t.ok(delta, environment=Environment(sleep=lambda seconds: None, observe=observe))
    assert outcome.attempts == 2
    assert t.deleted_positions() == {"a": [1, 8]}
    made = [name for name in t.files_on_disk() if "-vectors-" in name]
    assert len(made) == 1, "the vector of the attempt that lost is gone"


def test_a_row_that_leaves_an_older_leaf_keeps_its_vector_in_its_old_state(tmp_path: Path):
    t = Kit.create(tmp_path, 3)
    file = t.data("a")
    t.ok(Append(file))
    first = t.vector("v1", file, [1])
    t.ok(RowDelta(added_deletes=first))
    by = t.head_id
    t.upgrade(4)
    second = t.vector("v2", file, [1, 5])
    t.ok(RowDelta(added_deletes=second, removed_deletes=removed(first), start_snapshot_id=t.head_id))
    (leaf,) = (r for r in v4.rows_of(t.head().root_manifest) if r[v4.VERSION] == 4)
    before, after = v4.rows_of(f"{t.location}/{leaf[v4.LOCATION]}")
    assert (before[v4.STATUS], name_of(before[v4.VECTOR[0]]), before[v4.CHANGED]) == (3, "v1", by)
    assert (after[v4.STATUS], name_of(after[v4.VECTOR[0]]), after[v4.CHANGED]) == (4, "v2", t.head_id)
    assert t.deleted_positions() == {"a": [1, 5]}


def test_deletes_of_both_kinds_for_one_file_are_united(tmp_path: Path):
    t = Kit.create(tmp_path, 4)
    files = t.data("a", "b")
    t.ok(Append(files))
    t.ok(RowDelta(added_deletes=plus(t.vector("v", files.take([0]), [9]), positions(t, "d", {"a": [2]}))))
    assert t.deleted_positions() == {"a": [2, 9]}

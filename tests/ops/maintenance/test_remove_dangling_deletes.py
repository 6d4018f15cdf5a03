"""Delete files go when they apply to no live data file, and only then, whoever commits meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetSnapshotRefUpdate

from neve.commit.actions import Append, DeleteFiles, RemovedFiles, RewriteFiles, RowDelta
from neve.commit.outcome import Check
from neve.errors import CommitConflict, UnknownName
from neve.model.snapshots import AddSnapshot
from neve.tree.write import ManifestListHeader, write_manifest_list
from tests.ops.maintenance.test_rewrite_manifests import table_of
from tests.support.metadata_tables import Kit, name_of, plus, removed


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit.create(tmp_path)


def replace(kit: Kit, old: Any, new: Any, number: int | None = None) -> None:
    """Compact a file whose deletes were applied."""
    kit.ok(RewriteFiles(removed(old), new, data_sequence_number=number, start_snapshot_id=kit.head_id))


def forget(kit: Kit, *names: str) -> None:
    """Take data files out as another writer does, who leaves their deletes where they are."""
    deletes = kit.manifests(deletes=True)
    kit.ok(DeleteFiles(RemovedFiles.of(*map(kit.path, names))))
    head, metadata = kit.head(), kit.metadata
    number, path = metadata.last_sequence_number + 1, f"{kit.location}/metadata/by-hand.avro"
    first = getattr(metadata, "next_row_id", None)
    made = head.model_copy(
        update={
            "snapshot_id": head.snapshot_id ^ 1,
            "parent_snapshot_id": head.snapshot_id,
            "sequence_number": number,
            "manifest_list": path,
            "first_row_id": first,
            "added_rows": None if first is None else 0,
        }
    )
    header = ManifestListHeader(made.snapshot_id, head.snapshot_id, number, first)
    write_manifest_list(kit.io, path, [*kit.manifests(deletes=False), *deletes], header, metadata.format_version)
    move = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=made.snapshot_id)
    kit.update(AddSnapshot(snapshot=made), move)


def remains(kit: Kit, *others: Any, **asked: Any) -> set[str]:
    """The delete files that are left after dangling ones were removed."""
    verb = table_of(kit, *others).remove_dangling_deletes()
    verb.execute()
    return kit.names(deletes=True)


def test_dangling_lower_number(kit: Kit):
    """A position delete of a partition whose files are all newer."""
    a, other = kit.data("a"), kit.data("o", region="us")
    kit.ok(Append(plus(a, other)))
    kit.ok(RowDelta(added_deletes=kit.positions("low")))
    kit.ok(RowDelta(added_deletes=kit.positions("us", region="us")))
    replace(kit, a, kit.data("b"))
    kit.ok(RowDelta(added_deletes=kit.positions("high")))
    plan = table_of(kit).remove_dangling_deletes().plan()
    assert [name_of(p) for p in plan.files] == ["low"], "the number of another partition does not count"
    assert "remove 1 of 3 delete files\n  position deletes of spec 0:" in plan.explain()
    done = table_of(kit).remove_dangling_deletes().snapshot_property("why", "tidy").execute()
    assert (done.delete_files_removed, done.equality_delete_files_removed, done.summary) == (
        1,
        0,
        "1 delete file removed",
    )
    assert kit.names(deletes=True) == {"us", "high"} and kit.attached() == {"o": {"us"}, "b": {"high"}}
    said = kit.summary()
    assert (said["operation"], said["removed-delete-files"], said["why"]) == ("replace", "1", "tidy")


def test_dangling_equal_number(kit: Kit):
    """Both kinds have the number of the oldest file: an equality delete applies to older files only."""
    kit.ok(Append(kit.data("a")))
    kit.ok(RowDelta(kit.data("b"), plus(kit.equality("equal"), kit.positions("position"))))
    assert table_of(kit).remove_dangling_deletes().execute().snapshot_id is None, "both apply to a"
    kit.ok(DeleteFiles(RemovedFiles.of(kit.path("a"))))
    assert kit.names(deletes=True) == {"equal", "position"}
    done = table_of(kit).remove_dangling_deletes().execute()
    assert (done.delete_files_removed, done.equality_delete_files_removed) == (1, 1)
    assert kit.names(deletes=True) == {"position"} and kit.attached() == {"b": {"position"}}


def test_dangling_file_scoped_above_min(kit: Kit):
    """The file it names is gone, while an older file keeps the lowest number of the partition down."""
    old, gone = kit.data("old"), kit.data("gone")
    kit.ok(Append(old))
    kit.ok(Append(gone))
    kit.ok(RowDelta(added_deletes=plus(kit.positions("of-gone", of=gone), kit.positions("of-old", of=old))))
    path = kit.path("gone")
    bounds = [[{"key": 2147483546, "value": path.encode()}]]
    by_bounds = kit.positions("bounds").with_columns(lower_bounds=bounds, upper_bounds=bounds)
    kit.ok(RowDelta(added_deletes=by_bounds))
    forget(kit, "gone")
    assert kit.names(deletes=True) == {"of-gone", "of-old", "bounds"}
    assert remains(kit) == {"of-old"}


def test_dangling_vectors(tmp_path: Path):
    """The vector of a file that is gone goes, also out of a Puffin file it shares with others."""
    kit = Kit.create(tmp_path, 3)
    a, b, c = (kit.data(name) for name in "abc")
    kit.ok(Append(plus(a, b, c)))
    shared = kit.vector("v", b).with_columns(content_offset=[60])
    kit.ok(RowDelta(added_deletes=plus(kit.vector("v", a), shared, kit.vector("alone", c))))
    forget(kit, "a")
    assert kit.names() == {"b", "c"} and len(kit.live(deletes=True)) == 3
    done = table_of(kit).remove_dangling_deletes().execute()
    assert (done.delete_files_removed, done.vectors_removed) == (1, 1)
    assert kit.attached() == {"b": {"v"}, "c": {"alone"}} and kit.summary()["removed-dvs"] == "1"


def test_a_global_equality_delete_stays_when_all_data_moved_to_a_partitioned_spec(kit: Kit):
    """Nothing lives in its own spec, and yet it applies to every older file of the table."""
    whole = kit.data("a", spec=2)
    kit.ok(Append(whole))
    kit.ok(RowDelta(added_deletes=kit.equality("everywhere", spec=2, region=None)))
    start = kit.head().sequence_number
    replace(kit, whole, kit.data("b"), number=start - 1)
    assert kit.attached() == {"b": {"everywhere"}}
    assert table_of(kit).remove_dangling_deletes().execute().snapshot_id is None
    replace(kit, kit.data("b"), kit.data("c"))
    kit.ok(RowDelta(added_deletes=kit.positions("p")))
    assert remains(kit) == {"p"}


def test_deletes_of_equal_tuples_in_another_spec_are_told_apart(kit: Kit):
    kit.ok(Append(kit.data("a", region="eu", spec=1)))
    kit.ok(RowDelta(added_deletes=plus(kit.positions("other", region="eu"), kit.positions("own", spec=1))))
    assert remains(kit) == {"own"}


def test_an_equality_delete_of_values_no_file_has_is_dangling(kit: Kit):
    kit.ok(Append(kit.data("a", ids=(1, 9))))
    kit.ok(RowDelta(added_deletes=plus(kit.equality("below", ids=(-5, 0)), kit.equality("within", ids=(5, 50)))))
    assert remains(kit) == {"within"}


def test_nothing_to_remove_makes_no_snapshot(kit: Kit):
    verb = table_of(kit).remove_dangling_deletes()
    assert verb.execute().summary == "nothing to remove" and kit.head_id is None
    kit.ok(Append(kit.data("a")))
    kit.ok(RowDelta(added_deletes=kit.positions("p")))
    head = kit.head_id
    assert verb.execute().snapshot_id is None and kit.head_id == head
    assert verb.explain() == "nothing to remove: 1 delete file, all of live data files"


def test_a_branch_is_looked_at_alone(kit: Kit):
    a = kit.data("a")
    kit.ok(Append(a))
    kit.ok(RowDelta(added_deletes=kit.positions("p", of=a)))
    kit.branch("audit")
    kit.ok(Append(kit.data("b")), branch="audit")
    action = RewriteFiles(removed(a), kit.data("c"), start_snapshot_id=kit.head("audit").snapshot_id)
    kit.ok(action, branch="audit")
    kit.ok(RowDelta(added_deletes=kit.positions("q")), branch="audit")
    assert table_of(kit).remove_dangling_deletes().execute().snapshot_id is None
    table_of(kit).remove_dangling_deletes().branch("audit").execute()
    assert kit.names(deletes=True, branch="audit") == {"q"} and kit.names(deletes=True) == {"p"}
    with pytest.raises(UnknownName, match="'nowhere'"):
        table_of(kit).remove_dangling_deletes().branch("nowhere").plan()


# --- against brute force ----------------------------------------------------------------------------------------------


def applies(delete: dict[str, Any], file: dict[str, Any]) -> bool:
    """Whether a delete file applies to a data file, by the rules of the format."""
    older = delete["sequence_number"] > file["sequence_number"]
    same = (delete["spec_id"], delete["p1000"], delete["p1001"]) == (file["spec_id"], file["p1000"], file["p1001"])
    if delete["content"] == 2:
        return older and (same or delete["spec_id"] >= 2)
    as_old = delete["sequence_number"] >= file["sequence_number"]
    if delete["referenced_data_file"] is not None:
        return as_old and delete["referenced_data_file"] == file["file_path"]
    return as_old and same


def some_file(kit: Kit, chance: random.Random, make: Any, name: str) -> Any:
    spec = chance.choice([0, 1, 2])
    if spec == 2:
        return make(name, spec=2, region=None)
    return make(name, spec=spec, region=chance.choice(["eu", "us"]), bucket=chance.randrange(2))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_dangling_equals_brute_force(kit: Kit, seed: int):
    chance = random.Random(seed)
    for step in range(16):
        live = kit.live(deletes=False)
        match chance.choice(["data", "data", "positions", "named", "equality", "rewrite"]):
            case "positions":
                kit.ok(RowDelta(added_deletes=some_file(kit, chance, kit.positions, f"p{step}")))
            case "named" if len(live):
                of = live.take([chance.randrange(len(live))])
                kit.ok(RowDelta(added_deletes=kit.positions(f"n{step}", of=of)))
            case "equality":
                kit.ok(RowDelta(added_deletes=some_file(kit, chance, kit.equality, f"e{step}")))
            case "rewrite" if len(live):
                old = live.take([chance.randrange(len(live))])
                number = chance.choice([None, kit.head().sequence_number])
                replace(kit, old, some_file(kit, chance, kit.data, f"r{step}"), number)
            case _:
                kit.ok(Append(some_file(kit, chance, kit.data, f"d{step}")))
    data, deletes = (kit.live(deletes=kind).columns.to_pylist() for kind in (False, True))
    needed = {name_of(d["file_path"]) for d in deletes if any(applies(d, f) for f in data)}
    attached = kit.attached()
    assert remains(kit) == needed and kit.attached() == attached


# --- others at the same time ------------------------------------------------------------------------------------------


def dangling_table(kit: Kit) -> int:
    """A table whose equality delete applies to nothing; the number of that delete."""
    a = kit.data("a")
    kit.ok(Append(plus(a, kit.data("us", region="us"))))
    kit.ok(RowDelta(added_deletes=kit.equality("e")))
    number = kit.head().sequence_number
    replace(kit, a, kit.data("b"))
    kit.ok(RowDelta(added_deletes=kit.positions("p")))
    assert kit.attached() == {"b": {"p"}} and kit.names(deletes=True) == {"e", "p"}
    return number


def test_a_file_with_an_old_number_that_came_meanwhile_keeps_its_delete(kit: Kit):
    """Another writer commits a file under an earlier number: the delete applies to it, and must not go."""
    number = dangling_table(kit)

    def late() -> None:
        replace(kit, kit.data("b"), kit.data("old"), number - 1)

    assert remains(kit, late) == {"e", "p"}
    assert kit.attached()["old"] == {"e", "p"}


def test_an_append_meanwhile_is_in_nobodys_way(kit: Kit):
    dangling_table(kit)
    done = table_of(kit, lambda: kit.ok(Append(kit.data("late")))).remove_dangling_deletes().execute()
    assert (done.reruns, done.delete_files_removed) == (0, 1) and kit.names() == {"b", "us", "late"}


def test_a_rollback_meanwhile_keeps_the_delete(kit: Kit):
    """Main goes back to the snapshot in which the old file was live, and the delete applied to it."""
    dangling_table(kit)
    before = kit.metadata.snapshots[1].snapshot_id
    back = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=before)
    assert remains(kit, lambda: kit.update(back)) == {"e"} and kit.attached() == {"a": {"e"}}


def test_a_delete_that_is_gone_meanwhile_is_planned_again(kit: Kit):
    dangling_table(kit)
    done = table_of(kit, lambda: remains(kit)).remove_dangling_deletes().execute()
    assert (done.snapshot_id, done.reruns) == (None, 1) and kit.names(deletes=True) == {"p"}


def test_it_gives_up_after_as_many_conflicts_as_the_table_says(kit: Kit):
    number = dangling_table(kit)
    kit.set(**{"neve.commit.reruns": "0"})

    def late() -> None:
        replace(kit, kit.data("b"), kit.data("old"), number - 1)

    with pytest.raises(CommitConflict, match="apply to data files that were not there") as failure:
        table_of(kit, late).remove_dangling_deletes().execute()
    (conflict,) = failure.value.conflicts
    assert conflict.rule == Check.NOT_DANGLING and [name_of(f) for f in conflict.files] == ["e"]
    assert kit.names(deletes=True) == {"e", "p"}

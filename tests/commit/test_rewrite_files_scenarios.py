"""Rewriting files: what may be replaced by what, numbers and rows that must not change, and what a failure leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.commit.actions import Append, DeleteFiles, Overwrite, RemovedFiles, RewriteFiles, RowDelta
from neve.commit.environment import Phase
from neve.commit.outcome import Check, Rejected
from neve.tree.entries import EntryTable
from tests.commit.test_protocol import during, orphans
from tests.support.metadata_tables import Kit, name_of, plus, removed


def compaction(t: Kit, start: int | None, *, numbered: bool, added: EntryTable | None = None) -> RewriteFiles:
    """The file eu1 replaced by eu9, as planned on a snapshot, with or without the number of that snapshot."""
    number = t.metadata.snapshot_by_id(start).sequence_number if numbered else None
    copy = t.data("eu9") if added is None else added
    return RewriteFiles(removed(t.data("eu1")), copy, data_sequence_number=number, start_snapshot_id=start)


def test_rewrite_empty_table(any_version: Kit):
    t = any_version
    t.refused(RewriteFiles(), Check.ARGUMENTS)
    t.refused(RewriteFiles(added_data=t.data("b")), Check.ARGUMENTS)
    for gone in (removed(t.data("a")), RemovedFiles.of(t.path("a"))):
        conflict = t.refused(RewriteFiles(gone, t.data("b")), Check.MISSING_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("a"),), None)
    assert t.head() is None


def test_rewrite_add_only(grown: Kit):
    t = grown
    d = t.deletes("d", t.data("eu1"))
    t.ok(RowDelta(added_deletes=d))
    start = {"start_snapshot_id": t.head_id}
    t.refused(RewriteFiles(added_data=t.new("eu3"), **start), Check.ARGUMENTS)
    t.refused(RewriteFiles(added_data=t.new("eu3"), removed_deletes=removed(d), **start), Check.ARGUMENTS)
    new = t.deletes("d2", t.data("eu1"))
    t.refused(RewriteFiles(added_deletes=new, **start), Check.ARGUMENTS)
    t.refused(RewriteFiles(removed(t.data("eu2")), t.new("eu3"), added_deletes=new, **start), Check.ARGUMENTS)


def test_rewrite_delete_only(any_version: Kit):
    """All rows of a file were deleted, so nothing is left of it to write."""
    t = any_version
    t.ok(Append(plus(t.data("a", "b"), t.data("c", spec=1))))
    t.ok(RewriteFiles(removed(t.data("a"), t.data("c", spec=1)), start_snapshot_id=t.head_id))
    summary = t.summary()
    assert (summary["operation"], summary["deleted-data-files"], summary["total-records"]) == ("replace", "2", "10")
    assert t.statuses() == {"a": "DELETED", "b": "EXISTING", "c": "DELETED"}
    assert "added-data-files" not in summary


def test_rewrite_replace(any_version: Kit):
    t = any_version
    t.ok(Append(plus(t.data("a"), t.data("b", region="us"))))
    old = t.head_id
    t.default_spec(1)
    t.ok(RewriteFiles(removed(t.data("a")), t.new("c", "d", rows=5), start_snapshot_id=old))
    summary = t.summary()
    assert summary["operation"] == "replace"
    assert (summary["added-data-files"], summary["deleted-data-files"]) == ("2", "1")
    assert (summary["added-records"], summary["deleted-records"], summary["total-records"]) == ("10", "10", "20")
    assert t.statuses() == {"a": "DELETED", "b": "EXISTING", "c": "ADDED", "d": "ADDED"}
    entries = t.entries()
    names = (name_of(path) for path in entries["file_path"].to_pylist())
    written_by = dict(zip(names, entries["snapshot_id"].to_pylist(), strict=True))
    assert written_by == {"a": t.head_id, "b": old, "c": t.head_id, "d": t.head_id}
    assert sorted((m.spec_id, m.added_files, m.deleted_files) for m in t.manifests()) == [(0, 0, 1), (1, 2, 0)]


def test_rewrite_data_and_deletes(grown_with_delete_entries: Kit):
    t = grown_with_delete_entries
    eu1, eu2 = t.data("eu1"), t.data("eu2")
    d1, d2 = t.deletes("d1", eu1), t.deletes("d2", eu2)
    t.ok(RowDelta(added_deletes=plus(d1, d2)))
    start, number = t.head_id, t.head().sequence_number
    d3 = t.deletes("d3", eu2).with_columns(sequence_number=number)
    deletes = {"removed_deletes": removed(d1, d2), "added_deletes": d3}
    t.ok(RewriteFiles(removed(eu1), t.new("eu3", rows=9), **deletes, start_snapshot_id=start))
    summary = t.summary()
    assert summary["operation"] == "replace"
    assert [summary[f"{what}-data-files"] for what in ("added", "deleted", "total")] == ["1", "1", "3"]
    assert [summary[f"{what}-delete-files"] for what in ("added", "removed", "total")] == ["1", "2", "1"]
    assert t.statuses() == {
        "eu1": "DELETED",
        "d1": "DELETED",
        "d2": "DELETED",
        "eu2": "EXISTING",
        "us1": "EXISTING",
        "eu3": "ADDED",
        "d3": "ADDED",
    }
    assert t.attached() == {"eu2": {"d3"}}
    assert t.by_name("sequence_number")["d3"] == number, "a rewritten delete is as old as what it replaces"


def test_rewrite_keeps_old_number(grown_with_delete_entries: Kit):
    t = grown_with_delete_entries
    start, number = t.head_id, t.head().sequence_number
    t.ok(Append(t.new("eu3")))
    t.ok(compaction(t, start, numbered=True))
    head = t.head()
    assert t.by_name("sequence_number")["eu9"] == number
    assert t.by_name("file_sequence_number")["eu9"] == head.sequence_number == number + 2
    assert t.by_name("snapshot_id")["eu9"] == head.snapshot_id
    (written,) = (m for m in t.manifests() if m.added_files and m.added_snapshot_id == head.snapshot_id)
    assert (written.sequence_number, written.min_sequence_number) == (head.sequence_number, number)
    theirs = {
        e.data_file.file_path: (e.sequence_number, e.file_sequence_number)
        for m in head.manifests(t.io)
        for e in m.fetch_manifest_entry(t.io)
    }
    assert theirs[t.path("eu9")] == (number, head.sequence_number), "PyIceberg reads the same"


def test_rewrite_missing_file(any_version: Kit):
    t = any_version
    t.ok(Append(t.data("a")))
    for gone in (removed(t.data("a"), t.data("never")), RemovedFiles.of(t.path("a"), t.path("never"))):
        action = RewriteFiles(gone, t.data("b"), start_snapshot_id=t.head_id)
        conflict = t.refused(action, Check.MISSING_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("never"),), t.head_id)
        assert t.commit(action).written == frozenset()
    other_spec = RewriteFiles(removed(t.data("other", spec=1)), t.data("b"), start_snapshot_id=t.head_id)
    t.refused(other_spec, Check.MISSING_FILES)


def test_rewrite_already_deleted(grown: Kit):
    t = grown
    start, us1 = t.head_id, removed(t.data("us1", region="us"))
    gone = {
        "eu1": DeleteFiles(removed(t.data("eu1"))),
        "eu2": RewriteFiles(removed(t.data("eu2")), t.new("eu3"), start_snapshot_id=start),
        "us1": Overwrite(t.new("us2", region="us"), us1),
    }
    for name, theirs in gone.items():
        t.ok(theirs)
        assert t.statuses()[name] == "DELETED"
        region = name[:2]
        mine = RewriteFiles(removed(t.data(name, region=region)), t.new("mine", region=region), start_snapshot_id=start)
        conflict = t.refused(mine, Check.MISSING_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path(name),), t.head_id)
    assert "eu1" not in t.statuses(), "also without its tombstone"
    t.refused(compaction(t, start, numbered=True), Check.MISSING_FILES)


def test_rewrite_new_delete_arrived(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(RowDelta(added_deletes=t.deletes("beside", t.data("eu2"))))
    t.ok(RowDelta(added_deletes=t.deletes("hit", t.data("eu1"))))
    for numbered in (False, True):
        conflict = t.refused(compaction(t, start, numbered=numbered), Check.NEW_DELETES_FOR_FILES)
        assert (conflict.files, conflict.snapshot_id, conflict.spec_ids) == ((t.path("eu1"),), t.head_id, (0,))
    other = RewriteFiles(removed(t.data("us1", region="us")), t.new("us2", region="us"), start_snapshot_id=start)
    t.ok(other)
    t.ok(compaction(t, t.head_id, numbered=True))
    assert t.attached() == {"eu2": {"beside"}}
    if t.metadata.format_version == 2:
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.positions("somewhere")))
        whole_partition = RewriteFiles(removed(t.data("eu2")), t.new("eu4"), start_snapshot_id=start)
        assert t.refused(whole_partition, Check.NEW_DELETES_FOR_FILES).files == (t.path("eu2"),)


def test_rewrite_equality_delete_arrived_with_number(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(RowDelta(added_deletes=plus(t.equality("e"), t.equality("everywhere", spec=2))))
    t.ok(compaction(t, start, numbered=True))
    assert t.names() == {"eu2", "us1", "eu9"}
    both = {"e", "everywhere"}
    assert t.attached() == {"eu2": both, "eu9": both, "us1": {"everywhere"}}


def test_rewrite_equality_delete_arrived_without_number(grown: Kit):
    t = grown
    for name, spec in (("e", 0), ("everywhere", 2)):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.equality(name, spec=spec)))
        conflict = t.refused(compaction(t, start, numbered=False), Check.NEW_DELETES_FOR_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)
    start = t.head_id
    t.ok(RowDelta(added_deletes=t.equality("elsewhere", region="us")))
    t.ok(compaction(t, start, numbered=False))


def test_rewrite_retry_reuses_manifests(with_deletes: Kit):
    t = with_deletes
    t.ok(Append(plus(t.data("eu1", "eu2"), t.data("fine", spec=1))))
    written: list[set[str]] = []

    def other_commit() -> None:
        t.ok(Append(t.data("theirs"), fast=True))
        written.append(orphans(t))

    both = removed(t.data("eu1"), t.data("fine", spec=1))
    action = RewriteFiles(both, t.data("eu9", rows=20), start_snapshot_id=t.head_id)
    environment = during(t, Phase.SWAP, other_commit, lambda: written.append(orphans(t)))
    assert t.ok(action, environment=environment).attempts == 2
    first, second = ({f for f in files if "/snap-" not in f} for files in written)
    assert first == second and len(first) == 3, "one manifest of the new file, one rewritten per spec"
    listed = {m.path.removeprefix(f"{t.location}/") for m in t.manifests()}
    assert first <= listed
    assert orphans(t) == set(), "also the list of the first attempt is gone"
    assert t.names() == {"eu2", "eu9", "theirs"}


def test_rewrite_failure_cleans(grown: Kit):
    t = grown
    t.set(commit__retry__num_retries="2")
    action = compaction(t, t.head_id, numbered=True)
    seen: list[set[str]] = []

    def lose() -> None:
        t.ok(Append(t.data(f"theirs{len(seen)}"), fast=True))
        seen.append(orphans(t))

    outcome = t.commit(action, environment=during(t, Phase.SWAP, lose, lose, lose))
    assert isinstance(outcome, Rejected)
    assert (outcome.conflicts[0].rule, outcome.attempts) == (Check.ATTEMPTS, 3)
    assert len(seen[-1]) == 5, "two manifests and the lists of three attempts"
    assert {f"{t.location}/{f}" for f in seen[-1]} <= outcome.written
    assert orphans(t) == set()
    assert t.names() == {"eu1", "eu2", "us1", "theirs0", "theirs1", "theirs2"}


def test_rewrite_eq_to_position(with_delete_entries: Kit):
    t = with_delete_entries
    old, other = t.data("old"), t.data("other", region="us")
    t.ok(Append(plus(old, other)))
    equality = t.equality("e")
    t.ok(RowDelta(added_deletes=equality))
    number = t.head().sequence_number
    t.ok(Append(t.data("young")))
    assert t.attached() == {"old": {"e"}}
    position = t.deletes("p", old).with_columns(sequence_number=number)
    t.ok(RewriteFiles(removed_deletes=removed(equality), added_deletes=position, start_snapshot_id=t.head_id))
    assert t.attached() == {"old": {"p"}}, "the same rows are deleted as before"
    assert t.names() == {"old", "other", "young"} and t.by_name("sequence_number")["p"] == number
    summary = t.summary()
    assert (summary["operation"], summary["total-records"]) == ("replace", "30")
    assert (summary["removed-equality-deletes"], summary["added-position-deletes"]) == ("1", "1")
    assert (summary["total-equality-deletes"], summary["total-position-deletes"]) == ("0", "1")


def test_rewrite_more_rows_than_removed(with_deletes: Kit):
    t = with_deletes
    t.ok(Append(plus(t.data("a"), t.data("b", spec=1))))
    gone = removed(t.data("a"), t.data("b", spec=1))
    conflict = t.refused(RewriteFiles(gone, t.data("c", "d", rows=11)), Check.ROW_GROWTH)
    assert "20" in conflict.message and "22" in conflict.message
    t.refused(RewriteFiles(removed(t.data("a")), t.data("c", "d", rows=6)), Check.ROW_GROWTH)
    t.ok(RewriteFiles(gone, plus(t.data("c", rows=11), t.data("d", rows=9))))


def test_rewrite_of_files_whose_rows_nobody_counted(with_deletes: Kit):
    """Old imports of Avro files state -1."""
    t = with_deletes
    t.ok(Append(plus(t.data("a"), t.data("b", rows=-1))))
    t.ok(RewriteFiles(removed(t.data("a"), t.data("b", rows=-1)), t.data("c", rows=15)))


@pytest.mark.parametrize("spec", [1, 2])
def test_rewrite_drops_vector(tmp_path: Path, spec: int):
    t = Kit.create(tmp_path, 3, default_spec=spec)
    a, b = t.new("a"), t.new("b")
    t.ok(Append(plus(a, b)))
    shared = (t.vector("v", a, content_offset=4), t.vector("v", b, content_offset=50))
    t.ok(RowDelta(added_deletes=plus(*shared)))
    t.default_spec(0)
    t.ok(RewriteFiles(removed(a), t.new("c", rows=9), start_snapshot_id=t.head_id))
    deletes = t.live(deletes=True)
    assert deletes["referenced_data_file"].to_pylist() == [t.path("b")]
    assert deletes["content_offset"].to_pylist() == [50], "the other vector of the same file stays"
    summary = t.summary()
    assert (summary["removed-dvs"], summary["removed-position-deletes"], summary["total-delete-files"]) == ("1",) * 3
    assert t.attached() == {"b": {"v"}}


def test_rewrite_duplicate_entries(in_avro: Kit):
    t = in_avro
    t.ok(Append(t.data("a"), fast=True))
    t.ok(Append(t.data("a"), fast=True))
    t.set(commit__manifest__min_count_to_merge="3")
    t.ok(Append(t.data("b")))
    (manifest,) = t.manifests()
    assert (manifest.added_files, manifest.existing_files) == (1, 2)
    t.ok(RewriteFiles(removed(t.data("a")), t.data("c"), start_snapshot_id=t.head_id))
    assert t.names() == {"b", "c"}
    assert [(m.added_files, m.existing_files, m.deleted_files) for m in t.manifests()] == [(1, 0, 0), (0, 1, 2)]
    assert t.statuses() == {"a": "DELETED", "b": "EXISTING", "c": "ADDED"}
    summary = t.summary()
    assert (summary["deleted-data-files"], summary["deleted-duplicate-files"]) == ("1", "1")
    assert (summary["deleted-records"], summary["added-records"]) == ("10", "10")


def test_rewrite_spec_changed_eq_delete(grown: Kit):
    """A delete of one partition misses rows that leave it, and would hit rows that come to it."""
    t = grown
    t.ok(Append(t.data("fine", spec=1, bucket=3)))
    start = t.head_id
    t.ok(RowDelta(added_deletes=t.equality("e")))
    moved, kept = t.data("eu8", spec=1, rows=5), t.data("eu9", rows=5)
    for added in (moved, t.data("eu8", spec=2), plus(moved, kept)):
        conflict = t.refused(compaction(t, start, numbered=True, added=added), Check.NEW_DELETES_FOR_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)
    start = t.head_id
    t.ok(RowDelta(added_deletes=plus(t.equality("e2", spec=1, bucket=3), t.equality("everywhere", spec=2))))
    assert t.attached()["eu1"] == {"e", "everywhere"}
    conflict = t.refused(
        compaction(t, start, numbered=True, added=t.data("eu9", spec=1, bucket=3)), Check.NEW_DELETES_FOR_FILES
    )
    assert (conflict.files, conflict.snapshot_id) == ((t.path("e2"),), t.head_id)
    t.ok(compaction(t, start, numbered=True, added=t.data("eu9", spec=1, bucket=2, rows=9)))
    assert t.attached()["eu9"] == {"everywhere"}, "a delete of the whole table applies wherever rows go"

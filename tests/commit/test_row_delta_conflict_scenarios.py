"""Row deltas beside other commits: which of them get along, and what the loser is told.

Everything between `start` and the delta happens after the delta was planned. A refusal also proves that nothing
changed and no file was left behind.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, LessThan

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
from neve.commit.isolation import Isolation, RowCommand, with_conflict_checks
from neve.commit.outcome import Check, require_committed
from neve.errors import CommitConflict, UnknownName, UserError
from neve.plan.delete_index import PATH_FIELD_ID
from neve.tree.entries import EntryTable
from tests.support.metadata_tables import Kit, name_of, plus, removed

EU, US = EqualTo("region", "eu"), EqualTo("region", "us")
SERIALIZABLE, SNAPSHOT = Isolation.SERIALIZABLE, Isolation.SNAPSHOT
COMMANDS = (RowCommand.DELETE, RowCommand.MERGE)  # updates are checked as merges are


@pytest.fixture
def v3(tmp_path: Path) -> Kit:
    """A table that knows vectors, with two files of one partition and one of another."""
    t = Kit.create(tmp_path, 3)
    t.ok(Append(plus(t.data("eu1", "eu2"), t.data("us1", region="us"))))
    return t


def delta(t: Kit, start: int | None, *, name: str = "mine", of: EntryTable | None = None, **asked: Any) -> RowDelta:
    """A change of eu1, or of another file, that was planned on a snapshot."""
    file = t.data("eu1") if of is None else of
    asked.setdefault("conflict_filter", EU)
    referenced = frozenset(file["file_path"].to_pylist())
    return RowDelta(
        added_deletes=t.deletes(name, file), referenced_data_files=referenced, start_snapshot_id=start, **asked
    )


def command(t: Kit, start: int | None, kind: RowCommand, isolation: Isolation, **asked: Any) -> RowDelta:
    """The same as a command commits it: an update or a merge also writes new rows."""
    copies = {} if kind is RowCommand.DELETE else {"added_data": t.new("copy")}
    return with_conflict_checks(delta(t, start, **copies, **asked), kind, isolation)


def refused_for_required_file(t: Kit, start: int | None) -> None:
    """Every command that changes rows of eu1 is refused at both levels, since the file is no longer there."""
    for kind in COMMANDS:
        for isolation in Isolation:
            conflict = t.refused(command(t, start, kind, isolation), Check.REQUIRED_FILES)
            assert (conflict.files, conflict.snapshot_id, conflict.spec_ids) == ((t.path("eu1"),), t.head_id, (0,))


def test_required_file_removed_by_rewrite(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(RewriteFiles(removed(t.data("eu1")), t.new("eu3"), start_snapshot_id=start))
    refused_for_required_file(t, start)


def test_required_file_removed_by_overwrite(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(Overwrite(t.new("eu3"), removed(t.data("eu1"))))
    refused_for_required_file(t, start)


def test_required_file_removed_by_replace_partitions(grown: Kit):
    """Its own partition is replaced, or the whole table under a spec that has no partitions."""
    t = grown
    start, spec = t.head_id, 2 if t.metadata.default_spec_id else 0
    t.ok(ReplacePartitions(t.data("eu3", spec=spec)))
    assert t.names() == ({"eu3", "us1"} if spec == 0 else {"eu3"})
    refused_for_required_file(t, start)


def test_required_file_removed_by_delete_default(grown_with_delete_entries: Kit):
    """Whoever deletes rows of a file that was dropped meanwhile has nothing left to delete."""
    t = grown_with_delete_entries
    start, us1 = t.head_id, t.data("us1", region="us")
    t.ok(DeleteFiles(removed(t.data("eu1"))))
    t.ok(DeleteFiles(row_filter=US))
    t.ok(command(t, start, RowCommand.DELETE, SERIALIZABLE))
    t.ok(command(t, start, RowCommand.DELETE, SERIALIZABLE, name="other", of=us1, conflict_filter=US))
    assert t.names() == {"eu2"} and t.attached() == {}


def test_required_file_removed_by_delete_strict(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(DeleteFiles(removed(t.data("eu1"))))
    strict = [command(t, start, kind, level) for kind in (RowCommand.UPDATE, RowCommand.MERGE) for level in Isolation]
    for action in (delta(t, start, check_deleted_files=True), *strict):
        conflict = t.refused(action, Check.REQUIRED_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)


def test_required_file_removed_before_start(grown_with_delete_entries: Kit):
    t = grown_with_delete_entries
    before = t.head_id
    t.ok(Overwrite(t.new("eu3"), removed(t.data("eu1"))))
    start = t.head_id
    t.ok(Append(t.new("us2", region="us")))
    t.refused(delta(t, before), Check.REQUIRED_FILES)
    t.ok(command(t, start, RowCommand.MERGE, SERIALIZABLE))


def test_required_file_outside_filter(grown_with_delete_entries: Kit):
    t = grown_with_delete_entries
    wide = t.data("wide", spec=2, ids=(0, 9))
    t.ok(Append(wide))
    start, us1 = t.head_id, t.data("us1", region="us")
    t.ok(Overwrite(t.new("us2", region="us"), removed(us1, wide)))
    for file, inside, outside in ((us1, US, EU), (wide, LessThan("id", 5), GreaterThan("id", 9))):
        conflict = t.refused(delta(t, start, of=file, conflict_filter=inside), Check.REQUIRED_FILES)
        assert conflict.files == tuple(file["file_path"].to_pylist())
        t.ok(delta(t, start, of=file, conflict_filter=outside, name=f"d{outside}"))


def test_new_data_matching_filter_serializable(grown: Kit):
    t = grown
    start, spec = t.head_id, t.metadata.default_spec_id
    t.ok(Append(t.new("eu3", "eu4")))
    found_in = t.head_id
    t.ok(Append(t.new("us2", region="us")))
    for kind in COMMANDS:
        conflict = t.refused(command(t, start, kind, SERIALIZABLE), Check.NEW_DATA)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu3"), t.path("eu4")), found_in)
        assert conflict.spec_ids == (spec,)


def test_new_data_matching_filter_snapshot(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(Append(t.new("eu3")))
    t.ok(command(t, start, RowCommand.UPDATE, SNAPSHOT))
    t.ok(command(t, start, RowCommand.DELETE, SNAPSHOT, name="other", of=t.data("eu2")))
    assert t.attached() == {"eu1": {"mine"}, "eu2": {"other"}}


def test_new_data_not_matching_filter(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(Append(plus(t.data("us2", region="us"), t.data("us3", region="us", spec=1), t.data("none", region=None))))
    t.ok(Append(t.data("wide", spec=2, ids=(0, 9))))
    by_both = EU & GreaterThan("id", 9)
    t.ok(command(t, start, RowCommand.MERGE, SERIALIZABLE, conflict_filter=by_both))
    assert t.attached() == {"eu1": {"mine"}}


def test_new_deletes_matching(grown: Kit):
    t = grown
    for theirs in (t.deletes("p", t.data("eu2")), t.equality("e"), t.equality("everywhere", spec=2)):
        start = t.head_id
        t.ok(RowDelta(added_deletes=theirs))
        conflict = t.refused(delta(t, start, no_conflicting_deletes=True), Check.NEW_DELETES)
        assert (conflict.files, conflict.snapshot_id) == (tuple(theirs["file_path"].to_pylist()), t.head_id)
        assert conflict.spec_ids == tuple(theirs.spec_ids())
    t.ok(delta(t, start))
    assert t.attached()["eu1"] == {"mine", "e", "everywhere"}


def test_concurrent_deletes_disjoint(grown: Kit):
    t = grown
    start = t.head_id
    us1 = t.data("us1", region="us")
    theirs = RowDelta(
        t.new("us2", region="us"),
        plus(t.deletes("theirs", us1), t.equality("e", region="us")),
        referenced_data_files=frozenset([t.path("us1")]),
        conflict_filter=US,
        start_snapshot_id=start,
    )
    t.ok(with_conflict_checks(theirs, RowCommand.MERGE, SERIALIZABLE))
    t.ok(command(t, start, RowCommand.MERGE, SERIALIZABLE))
    assert t.attached() == {"us1": {"theirs", "e"}, "eu1": {"mine"}}
    assert (t.summary()["total-data-files"], t.summary()["total-delete-files"]) == ("5", "3")


def test_start_not_ancestor(grown: Kit):
    t = grown
    shared = t.head_id
    t.branch("side")
    t.ok(Append(t.new("eu3")), branch="side")
    side = t.head("side").snapshot_id
    for start in (side, 4711):
        conflict = t.refused(delta(t, start), Check.ANCESTRY)
        assert conflict.snapshot_id == start and str(start) in conflict.message
        with pytest.raises(UserError, match="not in the history of 'main'"):
            require_committed(t.commit(delta(t, start)))
    t.ok(delta(t, side), branch="side")
    t.ok(delta(t, shared))


def test_no_start_walks_all(grown: Kit):
    t = grown
    first = t.head_id
    t.ok(Append(t.new("eu3")))
    t.ok(Overwrite(t.new("eu4"), removed(t.data("eu1"))))
    replaced = t.head_id
    t.ok(Append(t.new("us2", region="us")))
    conflict = t.refused(delta(t, None), Check.REQUIRED_FILES)
    assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), replaced)
    whole = delta(t, None, of=t.data("eu2"), no_conflicting_data=True)
    assert t.refused(whole, Check.NEW_DATA).files == tuple(map(t.path, ("eu1", "eu2", "eu3", "eu4")))
    since = delta(t, first, of=t.data("eu2"), no_conflicting_data=True)
    assert t.refused(since, Check.NEW_DATA).files == (t.path("eu3"), t.path("eu4"))


def test_history_expired(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(RewriteFiles(removed(t.data("eu1")), t.new("eu3"), start_snapshot_id=start))
    between = t.head_id
    t.ok(Append(t.new("us2", region="us")))
    t.expire(between)
    actions = (
        delta(t, start),
        delta(t, None),
        command(t, start, RowCommand.MERGE, SERIALIZABLE),
        RowDelta(t.new("eu4"), start_snapshot_id=start),
    )
    for action in actions:
        conflict = t.refused(action, Check.HISTORY)
        assert conflict.snapshot_id == t.head_id and "expired" in conflict.message
    with pytest.raises(CommitConflict, match="Plan it again"):
        require_committed(t.commit(delta(t, start)))
    t.ok(delta(t, t.head_id, of=t.data("eu2")))


def test_remove_and_delete_same_file(grown: Kit):
    t = grown
    eu1 = t.data("eu1")
    deletes = t.deletes("d", eu1)
    both = [
        RowDelta(added_deletes=deletes, removed_data=removed(eu1)),
        RowDelta(t.new("eu3"), deletes, removed_data=RemovedFiles.of(t.path("eu1"), t.path("eu2"))),
        RowDelta(t.new("eu3"), removed_data=removed(eu1), referenced_data_files=frozenset([t.path("eu1")])),
    ]
    if t.metadata.format_version == 2:
        path = [{"key": PATH_FIELD_ID, "value": t.path("eu1").encode()}]
        by_bounds = t.positions("d", lower_bounds=path, upper_bounds=path)
        both.append(RowDelta(added_deletes=by_bounds, removed_data=removed(eu1)))
    for action in both:
        assert t.refused(action, Check.SELF_REFERENCE).files == (t.path("eu1"),)
    with pytest.raises(UserError):
        require_committed(t.commit(both[0]))
    t.ok(RowDelta(added_deletes=deletes, removed_data=removed(t.data("eu2"))))


def test_removed_file_got_new_deletes(grown: Kit):
    t = grown
    eu1 = t.data("eu1")
    for theirs in (t.deletes("p", eu1), t.equality("e"), t.equality("everywhere", spec=2)):
        copy = {"added_data": t.new("copy"), "start_snapshot_id": t.head_id, "conflict_filter": US}
        t.ok(RowDelta(added_deletes=theirs))
        for gone in (removed(eu1), RemovedFiles.of(t.path("eu1"))):
            asked = RowDelta(**copy, removed_data=gone, no_conflicting_deletes=True)
            conflict = t.refused(asked, Check.NEW_DELETES_FOR_FILES)
            assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)
    t.ok(RowDelta(**copy, removed_data=removed(eu1)))
    assert t.names() == {"eu2", "us1", "copy"}


@pytest.mark.parametrize("kind", [RowCommand.DELETE, RowCommand.MERGE])
def test_both_rewrite_same_delete_file(tmp_path: Path, kind: RowCommand):
    t = Kit.create(tmp_path, 2)
    t.ok(Append(t.data("eu1", "eu2")))
    old = t.positions("old", of=t.data("eu1"), rows=3)
    t.ok(RowDelta(added_deletes=old))
    start = t.head_id
    first, second = (command(t, start, kind, SNAPSHOT, name=n, removed_deletes=removed(old)) for n in ("one", "two"))
    t.ok(first)
    if kind is RowCommand.MERGE:
        assert t.refused(second, Check.NEW_DELETES).files == (t.path("one"),)
        conflict = t.refused(replace(second, no_conflicting_deletes=False), Check.MISSING_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("old"),), t.head_id)
    else:
        t.ok(second)
        assert t.attached() == {"eu1": {"one", "two"}}
        summary = t.summary()
        assert "removed-delete-files" not in summary, "the first of them removed it"
        assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("2", "2")


def test_manifests_rewritten_meanwhile(grown: Kit):
    t = grown
    t.ok(RowDelta(t.new("eu3"), t.deletes("old", t.data("eu1"))))
    start, manifests, planned = t.head_id, t.manifests(), t.entries().live()
    t.ok(RewriteManifests(frozenset(m.path for m in manifests), (t.entries(all_details=True).live(),)))
    assert not {m.path for m in manifests} & {m.path for m in t.manifests()}
    gone = {
        name: planned.filter([name_of(p) == name for p in planned["file_path"].to_pylist()]) for name in ("eu2", "old")
    }
    known = [m.path for m in manifests]
    merge = command(
        t,
        start,
        RowCommand.MERGE,
        SERIALIZABLE,
        removed_data=removed(gone["eu2"], manifests=known),
        removed_deletes=removed(gone["old"], manifests=known),
    )
    t.ok(merge)
    assert t.names() == {"eu1", "eu3", "us1", "copy"}
    assert t.attached() == {"eu1": {"mine"}}


@pytest.mark.parametrize("first", ["delta", "compaction"])
def test_delta_vs_compaction_with_number(grown: Kit, first: str):
    t = grown
    start, number = t.head_id, t.head().sequence_number
    compaction = RewriteFiles(
        removed(t.data("eu1", "eu2")), t.data("eu9", rows=20), data_sequence_number=number, start_snapshot_id=start
    )
    upsert = RowDelta(t.new("eu3"), t.equality("e"), start_snapshot_id=start, conflict_filter=EU)
    upsert = with_conflict_checks(upsert, RowCommand.MERGE, SERIALIZABLE)
    for action in (upsert, compaction) if first == "delta" else (compaction, upsert):
        t.ok(action)
    assert t.names() == {"eu9", "us1", "eu3"}
    assert t.attached() == {"eu9": {"e"}}, "it deletes from the copies, and not from the rows that came with it"


def test_delta_vs_compaction_position(grown: Kit):
    t = grown
    start, number = t.head_id, t.head().sequence_number
    copy = t.data("eu9", rows=20)
    t.ok(RewriteFiles(removed(t.data("eu1", "eu2")), copy, data_sequence_number=number, start_snapshot_id=start))
    named_by_itself = RowDelta(added_deletes=t.deletes("mine", t.data("eu1")), start_snapshot_id=start)
    for action in (delta(t, start), named_by_itself, command(t, start, RowCommand.MERGE, SNAPSHOT)):
        conflict = t.refused(action, Check.REQUIRED_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)
    t.ok(delta(t, start, of=t.data("us1", region="us")))
    assert t.attached() == {"us1": {"mine"}}


def test_merge_manifests_after_number(grown: Kit):
    t = grown
    start, number = t.head_id, t.head().sequence_number
    t.ok(RowDelta(added_deletes=t.equality("e")))
    t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu9"), data_sequence_number=number, start_snapshot_id=start))
    compacted = t.head()
    t.set(commit__manifest__min_count_to_merge="2")
    t.ok(Append(t.data("eu3")))
    (merged,) = t.manifests(deletes=False)
    assert merged.min_sequence_number == number
    assert t.by_name("sequence_number")["eu9"] == number
    assert t.by_name("file_sequence_number")["eu9"] == compacted.sequence_number
    assert t.by_name("snapshot_id")["eu9"] == compacted.snapshot_id
    assert t.attached() == {"eu2": {"e"}, "eu9": {"e"}}
    t.ok(DeleteFiles(removed(t.data("eu2"))))
    assert t.attached() == {"eu9": {"e"}}, "the manifest still says how old its oldest file is"


def test_concurrent_vectors_same_file(v3: Kit):
    t = v3
    start = t.head_id
    t.ok(delta(t, start, name="theirs"))
    found_in = t.head_id
    t.ok(Append(t.data("us2", region="us")))
    seconds = [
        delta(t, start),
        delta(t, start, conflict_filter=US),
        RowDelta(added_deletes=t.vector("mine", t.data("eu1"))),
        RowDelta(
            t.data("copy"), plus(t.vector("x", t.data("eu2")), t.vector("mine", t.data("eu1"))), start_snapshot_id=start
        ),
    ]
    for second in seconds:
        conflict = t.refused(second, Check.NEW_VECTORS)
        assert (conflict.files, conflict.snapshot_id, conflict.spec_ids) == ((t.path("eu1"),), found_in, (0,))
    merge = command(t, start, RowCommand.MERGE, SNAPSHOT)
    t.refused(merge, Check.NEW_DELETES)
    assert t.attached() == {"eu1": {"theirs"}}


def test_concurrent_vectors_other_partition(v3: Kit):
    t = v3
    start = t.head_id
    t.ok(delta(t, start, name="theirs", of=t.data("us1", region="us"), conflict_filter=US))
    t.ok(command(t, start, RowCommand.MERGE, SERIALIZABLE))
    assert t.attached() == {"us1": {"theirs"}, "eu1": {"mine"}}


@pytest.mark.parametrize("spec", [1, 2])
def test_concurrent_vectors_spec_changed(v3: Kit, spec: int):
    t = v3
    start = t.head_id
    t.default_spec(spec)
    t.ok(RowDelta(t.new("copy", region="us"), t.vector("theirs", t.data("eu1")), start_snapshot_id=start))
    mine = delta(t, start)
    conflict = t.refused(mine, Check.NEW_VECTORS)
    assert (conflict.files, conflict.snapshot_id, conflict.spec_ids) == ((t.path("eu1"),), t.head_id, (0,))
    t.refused(delta(t, start, conflict_filter=US), Check.NEW_VECTORS)
    t.ok(delta(t, start, of=t.data("eu2")))


@pytest.mark.parametrize("spec", [1, 2])
def test_duplicate_vectors_merged(tmp_path: Path, spec: int):
    t = Kit.create(tmp_path, 3, default_spec=spec)
    a, b = t.new("a"), t.new("b")
    t.ok(Append(plus(a, b)))
    vectors = [t.vector("v1", a, [1, 5]), t.vector("v2", a, [5, 9]), t.vector("v3", a, [0]), t.vector("v4", b, [7])]
    before = t.files_on_disk()
    t.ok(RowDelta(added_deletes=plus(*vectors), start_snapshot_id=t.head_id))
    assert t.deleted_positions() == {"a": [0, 1, 5, 9], "b": [7]}
    live = t.live(deletes=True)
    assert live.spec_ids() == [spec] and len({live.partition_key(i) for i in range(len(live))}) == 1
    summary = t.summary()
    assert (summary["added-dvs"], summary["added-position-deletes"], summary["total-delete-files"]) == ("2", "5", "2")
    assert len([f for f in t.files_on_disk() - before if f.endswith(".puffin")]) == 1


def test_duplicate_vectors_mismatch(v3: Kit):
    t = v3
    eu1 = t.data("eu1")
    others = {
        "number": t.vector("v2", eu1, [2]).with_columns(sequence_number=1),
        "spec": t.vector("v3", eu1, [2]).with_columns(spec_id=2, p1000=None),
        "partition": t.vector("v4", eu1, [2]).with_columns(p1000=["us"]),
    }
    first = t.vector("v1", eu1, [1])
    for what, other in others.items():
        action = RowDelta(added_deletes=plus(first, other), start_snapshot_id=t.head_id)
        conflict = t.refused(action, Check.ARGUMENTS)
        assert conflict.files == (t.path("eu1"),) and what in conflict.message
        with pytest.raises(UserError):
            require_committed(t.commit(action))


def test_case_insensitive_filter(grown: Kit):
    t = grown
    start = t.head_id
    t.ok(Append(t.new("eu3")))
    files = t.files_on_disk()
    shouted = {"conflict_filter": EqualTo("REGION", "eu"), "no_conflicting_data": True}
    conflict = t.refused(delta(t, start, **shouted, case_sensitive=False), Check.NEW_DATA)
    assert conflict.files == (t.path("eu3"),)
    with pytest.raises(UnknownName, match="'REGION'"):
        t.commit(delta(t, start, **shouted))
    assert t.files_on_disk() == files
    elsewhere = {"conflict_filter": EqualTo("REGION", "us"), "no_conflicting_data": True}
    t.ok(delta(t, start, of=t.data("us1", region="us"), **elsewhere, case_sensitive=False))

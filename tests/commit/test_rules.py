"""Every conflict check, A to N: one change that must be refused, and a near miss that must not.

Each case commits something between the plan (`start`) and the commit. Refusals also prove that nothing was left behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThan, LessThan

from neve.commit.actions import (
    Append,
    DeleteFiles,
    Overwrite,
    RemovedFiles,
    ReplacePartitions,
    RewriteFiles,
    RowDelta,
)
from neve.commit.outcome import Check
from neve.errors import UnknownName
from tests.support.metadata_tables import Kit, plus, removed

EU, US = EqualTo("region", "eu"), EqualTo("region", "us")


@pytest.fixture
def t(with_deletes: Kit) -> Kit:
    """A table with one file in each of two regions."""
    kit = with_deletes
    kit.ok(Append(plus(kit.data("eu1", region="eu"), kit.data("us1", region="us"))))
    return kit


class TestANoNewData:
    def test_an_append_that_may_match_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("eu2", region="eu")))
        delta = RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_data=True)
        conflict = t.refused(delta, Check.NEW_DATA)
        assert conflict.snapshot_id == t.head_id
        assert conflict.files == (t.path("eu2"),)
        assert conflict.spec_ids == (0,)

    def test_an_append_to_another_partition_is_none(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("us2", region="us")))
        t.ok(RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_data=True))

    def test_an_append_under_another_spec_is_judged_by_that_spec(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("us2", region="us", spec=1)))
        delta = RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_data=True)
        t.ok(delta)
        t.ok(Append(t.data("eu4", region="eu", spec=1)))
        assert t.refused(delta, Check.NEW_DATA).spec_ids == (0, 1)

    def test_an_append_outside_the_statistics_is_none(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("u1", spec=2, ids=(0, 9))))
        asked = {"start_snapshot_id": start, "no_conflicting_data": True}
        t.ok(RowDelta(t.data("eu3"), conflict_filter=GreaterThan("id", 9), **asked))
        t.refused(RowDelta(t.data("eu4"), conflict_filter=LessThan("id", 5), **asked), Check.NEW_DATA)

    def test_a_compaction_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2")))
        t.ok(RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_data=True))

    def test_entries_of_carried_manifests_are_none(self, t: Kit):
        """A merge writes old entries into a manifest of the new snapshot; they are EXISTING, not new."""
        t.set(commit__manifest__min_count_to_merge="2")
        start = t.head_id
        t.ok(Append(t.data("us2", region="us")))
        assert len(t.manifests()) == 1
        t.ok(RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_data=True))

    def test_replaced_partitions_compare_spec_and_tuple(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("eu2", region="eu", spec=1)))
        action = ReplacePartitions(t.data("eu3", region="eu"), start_snapshot_id=start, no_conflicting_data=True)
        t.ok(action)
        t.ok(Append(t.data("eu4", region="eu")))
        t.refused(action, Check.NEW_DATA)

    def test_replacing_everything_conflicts_with_any_append(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("us2", region="us")))
        t.refused(ReplacePartitions(t.data("u", spec=2), start, no_conflicting_data=True), Check.NEW_DATA)


class TestBNoNewDeletes:
    def test_a_delete_file_that_may_match_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
        delta = RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_deletes=True)
        assert t.refused(delta, Check.NEW_DELETES).snapshot_id == t.head_id

    def test_a_delete_file_of_another_partition_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("us1", region="us"))))
        t.ok(RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_deletes=True))

    def test_a_delete_file_from_before_the_start_is_none(self, t: Kit):
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
        start = t.head_id
        t.ok(RowDelta(t.data("eu3"), conflict_filter=EU, start_snapshot_id=start, no_conflicting_deletes=True))

    def test_an_equality_delete_without_partition_meets_every_replaced_partition(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.equality("e", spec=2)))
        t.refused(ReplacePartitions(t.data("eu3"), start, no_conflicting_deletes=True), Check.NEW_DELETES)

    def test_an_equality_delete_of_another_partition_meets_none(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.equality("e", region="us")))
        t.ok(ReplacePartitions(t.data("eu3"), start, no_conflicting_deletes=True))


class TestCNoNewDeletesForRemovedFiles:
    def test_a_compacted_file_that_gained_deletes_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
        action = RewriteFiles(removed(t.data("eu1")), t.data("eu2"), start_snapshot_id=start)
        conflict = t.refused(action, Check.NEW_DELETES_FOR_FILES)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)

    def test_a_neighbour_that_gained_deletes_is_none(self, t: Kit):
        t.ok(Append(t.data("eu9")))
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu9"))))
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2"), start_snapshot_id=start))

    def test_deletes_from_before_the_plan_are_none(self, t: Kit):
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2", rows=9), start_snapshot_id=t.head_id))

    def test_the_window_starts_at_the_plan_and_not_at_the_commit(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
        t.ok(Append(t.data("us2", region="us")))
        action = RewriteFiles(removed(t.data("eu1")), t.data("eu2"), start_snapshot_id=start)
        t.refused(action, Check.NEW_DELETES_FOR_FILES)

    def test_a_file_known_by_its_path_is_checked_too(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.deletes("d", t.data("eu1"))))
        delta = RowDelta(
            t.data("eu2"),
            removed_data=RemovedFiles.of(t.path("eu1")),
            start_snapshot_id=start,
            no_conflicting_deletes=True,
        )
        t.refused(delta, Check.NEW_DELETES_FOR_FILES)

    def test_an_equality_delete_is_none_when_the_number_is_kept(self, t: Kit):
        start, number = t.head_id, t.head().sequence_number
        t.ok(RowDelta(added_deletes=t.equality("e")))
        files = {"removed_data": removed(t.data("eu1")), "added_data": t.data("eu2"), "start_snapshot_id": start}
        t.refused(RewriteFiles(**files), Check.NEW_DELETES_FOR_FILES)
        t.ok(RewriteFiles(**files, data_sequence_number=number))
        assert t.names(deletes=True) == {"e"}, "it is younger than the files that replaced its targets"

    def test_an_equality_delete_is_a_conflict_when_the_rows_change_their_partition(self, t: Kit):
        """It belongs to the old spec and partition, so it would miss the copies."""
        start, number = t.head_id, t.head().sequence_number
        t.ok(RowDelta(added_deletes=t.equality("e")))
        files = {"removed_data": removed(t.data("eu1")), "start_snapshot_id": start, "data_sequence_number": number}
        t.refused(RewriteFiles(**files, added_data=t.data("eu2", spec=1)), Check.NEW_DELETES_FOR_FILES)
        t.refused(RewriteFiles(**files, added_data=t.data("eu2", spec=2)), Check.NEW_DELETES_FOR_FILES)

    def test_an_equality_delete_of_all_partitions_still_applies_after_a_move(self, t: Kit):
        start, number = t.head_id, t.head().sequence_number
        t.ok(RowDelta(added_deletes=t.equality("e", spec=2)))
        moved = t.data("eu2", spec=1)
        t.ok(RewriteFiles(removed(t.data("eu1")), moved, start_snapshot_id=start, data_sequence_number=number))


class TestDNoRemovedData:
    def overwrite(self, t: Kit, start: int | None) -> Overwrite:
        return Overwrite(t.data("eu5"), row_filter=EU, start_snapshot_id=start, no_conflicting_deletes=True)

    def test_a_removed_file_that_may_match_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        assert t.refused(self.overwrite(t, start), Check.REMOVED_DATA).files == (t.path("eu1"),)

    def test_a_removed_file_of_another_partition_is_none(self, t: Kit):
        start = t.head_id
        t.ok(DeleteFiles(removed(t.data("us1", region="us"))))
        t.ok(self.overwrite(t, start))

    def test_a_removed_file_of_a_replaced_partition_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        t.ok(ReplacePartitions(t.data("us2", region="us"), start, no_conflicting_deletes=True))
        t.refused(ReplacePartitions(t.data("eu2"), start, no_conflicting_deletes=True), Check.REMOVED_DATA)


class TestEReferencedFilesStillExist:
    def delta(self, t: Kit, start: int | None, **asked: bool) -> RowDelta:
        file = t.data("eu1")
        deletes = t.deletes("d", file)
        return RowDelta(
            added_deletes=deletes, referenced_data_files=frozenset([t.path("eu1")]), start_snapshot_id=start, **asked
        )

    def test_a_file_rewritten_meanwhile_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2")))
        assert t.refused(self.delta(t, start), Check.REQUIRED_FILES).files == (t.path("eu1"),)

    def test_another_file_rewritten_meanwhile_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("us1", region="us")), t.data("us2", region="us")))
        t.ok(self.delta(t, start))

    def test_a_file_dropped_meanwhile_is_a_conflict_only_when_asked(self, t: Kit):
        start = t.head_id
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        t.refused(self.delta(t, start, check_deleted_files=True), Check.REQUIRED_FILES)
        if t.head().manifest_list is not None:  # a tree that keeps vectors beside their files cannot keep this one
            t.ok(self.delta(t, start))


class TestFRemovedFilesAreFound:
    def test_a_file_removed_twice_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2")))
        action = RewriteFiles(removed(t.data("eu1")), t.data("eu3"), start_snapshot_id=start)
        assert t.refused(action, Check.MISSING_FILES).files == (t.path("eu1"),)

    def test_a_tombstone_does_not_count_as_there(self, t: Kit):
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        assert t.statuses()["eu1"] == "DELETED"
        t.refused(DeleteFiles(RemovedFiles.of(t.path("eu1")), must_exist=True), Check.MISSING_FILES)

    def test_a_missing_file_is_none_when_nobody_asks(self, t: Kit):
        t.ok(DeleteFiles(RemovedFiles.of(t.path("eu1"), t.path("never"))))
        assert t.names() == {"us1"}

    def test_disjoint_rewrites_both_land(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2")))
        us = t.data("us1", region="us")
        t.ok(RewriteFiles(removed(us), t.data("us2", region="us"), start_snapshot_id=start))
        assert t.names() == {"eu2", "us2"}


class TestGOneVectorPerFile:
    @pytest.fixture
    def t(self, tmp_path: Path) -> Kit:
        kit = Kit.create(tmp_path, 3)
        kit.ok(Append(plus(kit.data("eu1", "eu2"), kit.data("us1", region="us"))))
        return kit

    def test_a_vector_for_the_same_file_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.vector("v1", t.data("eu1"))))
        mine = RowDelta(added_deletes=t.vector("v2", t.data("eu1")), start_snapshot_id=start)
        assert t.refused(mine, Check.NEW_VECTORS).files == (t.path("eu1"),)

    def test_a_vector_for_a_neighbour_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.vector("v1", t.data("eu1"))))
        t.ok(RowDelta(added_deletes=t.vector("v2", t.data("eu2")), start_snapshot_id=start))

    def test_a_vector_known_to_the_plan_is_none(self, t: Kit):
        old = t.vector("v1", t.data("eu1"))
        t.ok(RowDelta(added_deletes=old))
        new = t.vector("v2", t.data("eu1"))
        t.ok(RowDelta(added_deletes=new, removed_deletes=removed(old), start_snapshot_id=t.head_id))
        assert t.names(deletes=True) == {"v2"}

    def test_a_rewrite_of_deletes_adds_no_second_vector(self, tmp_path: Path):
        """A position delete file of a whole partition becomes vectors, while one of its data files gets another."""
        t = Kit.create(tmp_path, 2)
        t.ok(Append(t.data("a", "b")))
        old = t.positions("old")
        t.ok(RowDelta(added_deletes=old))
        t.upgrade(3)
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.vector("theirs", t.data("a")), start_snapshot_id=start))

        def rewrite(name: str) -> RewriteFiles:
            vector = t.vector("mine", t.data(name), sequence_number=2)
            return RewriteFiles(removed_deletes=removed(old), added_deletes=vector, start_snapshot_id=start)

        assert t.refused(rewrite("a"), Check.NEW_VECTORS).files == (t.path("a"),)
        t.ok(rewrite("b"))
        assert t.attached() == {"a": {"theirs"}, "b": {"mine"}}

    def test_a_change_of_the_default_spec_hides_no_vector(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.vector("v1", t.data("eu1"))))
        t.default_spec(2)
        mine = RowDelta(added_deletes=t.vector("v2", t.data("eu1")), start_snapshot_id=start, conflict_filter=EU)
        t.refused(mine, Check.NEW_VECTORS)


class TestHNoSelfReference:
    def test_removing_a_file_and_deleting_from_it_is_refused(self, t: Kit):
        file = t.data("eu1")
        t.refused(RowDelta(added_deletes=t.deletes("d", file), removed_data=removed(file)), Check.SELF_REFERENCE)

    def test_removing_one_and_deleting_from_another_is_fine(self, t: Kit):
        eu, us = t.data("eu1"), t.data("us1", region="us")
        t.ok(RowDelta(added_deletes=t.deletes("d", us), removed_data=removed(eu)))


class TestIStartIsAnAncestor:
    def test_a_snapshot_of_another_branch_is_refused(self, t: Kit):
        t.branch("side")
        t.ok(Append(t.data("x")), branch="side")
        other = t.head("side").snapshot_id
        t.refused(RowDelta(t.data("y"), start_snapshot_id=other), Check.ANCESTRY)
        t.refused(RowDelta(t.data("y"), start_snapshot_id=123), Check.ANCESTRY)

    def test_a_snapshot_both_branches_share_is_fine(self, t: Kit):
        start = t.head_id
        t.branch("side")
        t.ok(Append(t.data("x")), branch="side")
        t.ok(RowDelta(t.data("y"), start_snapshot_id=start))


class TestJDeleteKinds:
    @pytest.mark.parametrize(
        ("version", "kind", "fits"),
        [
            (1, "positions", False),
            (1, "vector", False),
            (1, "equality", False),
            (2, "positions", True),
            (2, "vector", False),
            (2, "equality", True),
            (3, "positions", False),
            (3, "vector", True),
            (3, "equality", True),
            (4, "vector", True),
        ],
    )
    def test_each_version_knows_its_own(self, tmp_path: Path, version: int, kind: str, fits: bool):
        t = Kit.create(tmp_path, version)
        file = t.data("a")
        t.ok(Append(file))
        made = {"positions": lambda: t.positions("d", of=file), "vector": lambda: t.vector("d", file)}
        delta = RowDelta(added_deletes=made.get(kind, lambda: t.equality("d"))())
        if fits:
            t.ok(delta)
        else:
            assert t.refused(delta, Check.DELETE_KIND).files

    def test_an_upgrade_between_plan_and_commit_is_noticed(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.ok(Append(t.data("a")))
        delta = RowDelta(added_deletes=t.positions("d", of=t.data("a")), start_snapshot_id=t.head_id)
        t.upgrade(3)
        t.refused(delta, Check.DELETE_KIND)


class TestKSpecsAreKnown:
    def test_an_unknown_spec_is_refused_with_its_id_and_the_file(self, t: Kit):
        stray = t.data("stray").with_columns(spec_id=99)
        conflict = t.refused(Append(plus(t.data("fine"), stray)), Check.UNKNOWN_SPEC)
        assert conflict.spec_ids == (99,)
        assert "99" in str(conflict) and t.path("stray") in str(conflict)

    def test_every_known_spec_is_fine(self, t: Kit):
        t.ok(Append(plus(*(t.data(f"s{spec}", spec=spec) for spec in (0, 1, 2, 3)))))
        assert [m.spec_id for m in t.manifests()] == [3, 2, 1, 0, 0]


class TestLNoGrowth:
    def test_more_rows_than_removed_is_refused(self, t: Kit):
        t.refused(RewriteFiles(removed(t.data("eu1")), t.data("eu2", rows=11)), Check.ROW_GROWTH)

    def test_as_many_rows_is_fine(self, t: Kit):
        t.ok(RewriteFiles(removed(t.data("eu1")), t.data("eu2", rows=10)))


class TestMAddedFilesMatch:
    def overwrite(self, t: Kit, where: object, **file: object) -> Overwrite:
        return Overwrite(t.data("new", **file), row_filter=where, added_match_filter=True)

    def test_a_file_outside_the_filter_is_refused(self, t: Kit):
        t.refused(self.overwrite(t, EU, region="us"), Check.OUTSIDE_FILTER)

    def test_a_file_inside_by_its_partition_is_fine(self, t: Kit):
        t.ok(self.overwrite(t, EU, region="eu"))

    def test_a_file_inside_by_its_statistics_is_fine(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.ok(self.overwrite(t, LessThan("id", 10), spec=2, ids=(0, 9)))

    def test_a_file_that_may_lie_across_is_refused(self, tmp_path: Path):
        t = Kit.create(tmp_path, 2)
        t.refused(self.overwrite(t, LessThan("id", 9), spec=2, ids=(0, 9)), Check.OUTSIDE_FILTER)
        t.refused(self.overwrite(t, LessThan("id", 9), spec=2), Check.OUTSIDE_FILTER)


class TestNNoPartialMatch:
    def test_a_file_partly_inside_is_refused(self, t: Kit):
        t.ok(Append(t.data("u", spec=2, ids=(0, 9))))
        conflict = t.refused(DeleteFiles(row_filter=LessThan("id", 5)), Check.PARTIAL_MATCH)
        assert t.path("u") in conflict.files

    def test_files_entirely_inside_are_dropped(self, t: Kit):
        t.ok(DeleteFiles(row_filter=EU))
        assert t.names() == {"us1"}

    def test_a_file_named_beside_the_filter_is_no_partial_match(self, t: Kit):
        u = t.data("u", spec=2, ids=(0, 9))
        t.ok(Append(u))
        t.ok(Overwrite(removed=removed(u), row_filter=EU))
        assert t.names() == {"us1"}

    def test_everything_matches_true(self, t: Kit):
        t.ok(DeleteFiles(row_filter=AlwaysTrue()))
        assert t.names() == set()


class TestUpdatesBesideADelete:
    """A row deleted here must not live on in the copy that a concurrent update made of it."""

    @pytest.fixture
    def t(self, tmp_path: Path) -> Kit:
        kit = Kit.create(tmp_path, 2)
        kit.ok(Append(kit.data("eu1", "eu2")))
        return kit

    def delete(self, t: Kit, start: int | None) -> RowDelta:
        deletes = t.positions("mine", of=t.data("eu1"))
        return RowDelta(added_deletes=deletes, start_snapshot_id=start, no_conflicting_updates=True)

    def test_an_update_of_the_same_file_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(t.data("copy"), t.positions("theirs", of=t.data("eu1"))))
        t.refused(self.delete(t, start), Check.CONCURRENT_UPDATE)

    def test_an_update_of_another_file_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(t.data("copy"), t.positions("theirs", of=t.data("eu2"))))
        t.ok(self.delete(t, start))

    def test_a_delete_from_the_same_file_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.positions("theirs", of=t.data("eu1"))))
        t.ok(self.delete(t, start))

    def drop(self, t: Kit, start: int | None) -> RowDelta:
        """All rows of a file were found to match, so it leaves without a delete file."""
        return RowDelta(removed_data=removed(t.data("eu1")), start_snapshot_id=start, no_conflicting_updates=True)

    def test_a_file_that_leaves_and_was_compacted_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("eu1", "eu2")), t.data("copy", rows=20), start_snapshot_id=start))
        assert t.refused(self.drop(t, start), Check.REQUIRED_FILES).files == (t.path("eu1"),)

    def test_a_file_that_leaves_and_was_copied_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(Overwrite(t.data("copy"), removed(t.data("eu1")), start_snapshot_id=start))
        t.refused(self.drop(t, start), Check.REQUIRED_FILES)

    def test_a_file_that_leaves_and_was_updated_is_a_conflict(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(t.data("copy"), t.positions("theirs", of=t.data("eu1"))))
        t.refused(self.drop(t, start), Check.CONCURRENT_UPDATE)

    def test_a_file_that_leaves_and_was_deleted_or_lost_rows_is_none(self, t: Kit):
        start = t.head_id
        t.ok(RowDelta(added_deletes=t.positions("theirs", of=t.data("eu1"))))
        t.ok(self.drop(t, start))
        assert t.names() == {"eu2"}
        start = t.head_id
        t.ok(Append(t.data("eu1")))
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        t.ok(self.drop(t, start))


class TestHistory:
    def test_a_snapshot_expired_in_between_is_an_error_and_no_silent_pass(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("eu2")))
        between = t.head_id
        t.ok(Append(t.data("us2", region="us")))
        t.expire(between)
        action = Overwrite(t.data("eu3"), row_filter=US, start_snapshot_id=start, no_conflicting_data=True)
        assert t.refused(action, Check.HISTORY).snapshot_id == t.head_id

    def test_an_expired_start_is_fine_as_long_as_the_link_to_it_remains(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("eu2")))
        t.expire(start)
        t.ok(Overwrite(t.data("us3", region="us"), row_filter=US, start_snapshot_id=start, no_conflicting_data=True))

    def test_without_a_start_the_whole_history_counts(self, t: Kit):
        delta = RowDelta(t.data("eu3"), conflict_filter=EU, no_conflicting_data=True)
        assert t.refused(delta, Check.NEW_DATA).files == (t.path("eu1"),)


class TestArguments:
    def test_a_rewrite_removes_something(self, t: Kit):
        t.refused(RewriteFiles(), Check.ARGUMENTS)
        t.refused(RewriteFiles(added_data=t.data("x")), Check.ARGUMENTS)
        deletes = t.equality("e")
        t.refused(RewriteFiles(removed(t.data("eu1")), added_deletes=deletes), Check.ARGUMENTS)

    def test_partitions_of_two_specs_are_not_replaced_at_once(self, t: Kit):
        conflict = t.refused(ReplacePartitions(plus(t.data("x"), t.data("y", spec=1))), Check.ARGUMENTS)
        assert conflict.spec_ids == (0, 1)

    def test_an_unknown_branch_is_named(self, t: Kit):
        with pytest.raises(UnknownName, match=r"'mian'.*'main'"):
            t.commit(Append(t.data("x")), branch="mian")

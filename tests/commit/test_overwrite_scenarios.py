"""Overwriting by filter, dropping whole files and replacing partitions: one scenario each.

Where a scenario is about another writer, that writer commits between the plan (`start`) and the commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, And, EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, Or

from neve.commit.actions import Append, DeleteFiles, Overwrite, RemovedFiles, ReplacePartitions, RewriteFiles, RowDelta
from neve.commit.isolation import Isolation, RowCommand, with_conflict_checks
from neve.commit.outcome import Check
from tests.support.metadata_tables import Kit, plus, removed

EU, US = EqualTo("region", "eu"), EqualTo("region", "us")
CAREFUL = {"no_conflicting_data": True, "no_conflicting_deletes": True}


def one_file_each(t: Kit) -> Kit:
    """A table with one file in each of two regions; ids 0 to 9 are in one, 10 to 19 in the other."""
    t.ok(Append(plus(t.data("eu1", ids=(0, 9)), t.data("us1", region="us", ids=(10, 19)))))
    return t


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def t(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """A table without delete files, with and without sequence numbers."""
    return one_file_each(Kit.create(tmp_path, request.param))


@pytest.fixture
def d(with_deletes: Kit) -> Kit:
    """A table that may have delete files of either form."""
    return one_file_each(with_deletes)


@pytest.fixture
def v2(tmp_path: Path) -> Kit:
    """A table whose version makes no difference to what is shown."""
    return one_file_each(Kit.create(tmp_path, 2))


def us_file(t: Kit, name: str, **stated: Any) -> Any:
    return t.data(name, region="us", **stated)


class TestByFilter:
    def test_overwrite_by_filter_whole_files(self, t: Kit):
        t.ok(Append(plus(t.data("eu2", spec=1, bucket=3, ids=(0, 9)), us_file(t, "us2", spec=1, ids=(10, 19)))))
        t.ok(Overwrite(t.data("eu3", ids=(0, 9)), row_filter=EU))
        assert t.names() == t.names_by_pyiceberg() == {"eu3", "us1", "us2"}, "inside under either spec"
        assert t.summary()["operation"] == "overwrite" and t.summary()["deleted-data-files"] == "2"
        t.ok(Append(plus(t.data("low", spec=2, ids=(20, 24)), t.data("high", spec=2, ids=(25, 29)))))
        twenties = And(GreaterThanOrEqual("id", 20), LessThan("id", 25))
        t.ok(Overwrite(t.data("new", spec=2, ids=(20, 24)), row_filter=twenties))
        assert t.names() == {"eu3", "us1", "us2", "new", "high"}, "inside by statistics alone"

    def test_overwrite_by_filter_inside_by_partition_and_statistics(self, v2: Kit):
        """One half of the condition is proven by the partition, the other by statistics."""
        v2.ok(Overwrite(v2.data("new"), row_filter=And(EU, LessThan("id", 10))))
        assert v2.names() == {"new", "us1"}
        everything = Or(EU, And(US, GreaterThan("id", 9)))
        v2.ok(Overwrite(row_filter=everything))
        assert v2.names() == set()

    def test_overwrite_partial_file(self, t: Kit):
        conflict = t.refused(Overwrite(t.data("new"), row_filter=LessThan("id", 5)), Check.PARTIAL_MATCH)
        assert conflict.files == (t.path("eu1"),)
        assert t.refused(Overwrite(row_filter=Or(US, LessThan("id", 5))), Check.PARTIAL_MATCH).files == conflict.files
        t.ok(Overwrite(t.data("new"), row_filter=LessThan("id", 10)))
        assert t.names() == {"new", "us1"}

    def test_overwrite_added_outside_filter(self, t: Kit):
        outside = Overwrite(plus(t.data("in"), us_file(t, "out")), row_filter=EU, added_match_filter=True)
        assert t.refused(outside, Check.OUTSIDE_FILTER).files == (t.path("out"),)
        unproven = Overwrite(t.data("new", spec=2, ids=(0, 12)), row_filter=LessThan("id", 10), added_match_filter=True)
        t.refused(unproven, Check.OUTSIDE_FILTER)
        t.ok(Overwrite(us_file(t, "unasked"), row_filter=EU))
        assert t.names() == {"us1", "unasked"}

    def test_overwrite_added_inside_by_metrics(self, t: Kit):
        new = t.data("new", spec=2, ids=(3, 9))
        t.ok(Overwrite(new, row_filter=LessThan("id", 10), added_match_filter=True))
        assert t.names() == {"new", "us1"}
        both = And(US, GreaterThan("id", 9))
        t.ok(Overwrite(us_file(t, "us2", ids=(10, 12)), row_filter=both, added_match_filter=True))
        assert t.names() == {"new", "us2"}


class TestBesideOtherWriters:
    def overwrite(self, t: Kit, start: int | None, **asked: Any) -> Overwrite:
        stated = {"added": t.data("new"), "row_filter": EU, "start_snapshot_id": start, **CAREFUL}
        return Overwrite(**{**stated, **asked})

    def test_overwrite_concurrent_append_matching(self, t: Kit):
        action = Overwrite(t.data("new"), row_filter=EU, start_snapshot_id=t.head_id)
        t.ok(Append(t.data("theirs", spec=1)))
        serializable = with_conflict_checks(action, RowCommand.OVERWRITE, Isolation.SERIALIZABLE)
        conflict = t.refused(serializable, Check.NEW_DATA)
        assert (conflict.files, conflict.snapshot_id, conflict.spec_ids) == ((t.path("theirs"),), t.head_id, (1,))
        t.ok(with_conflict_checks(action, RowCommand.OVERWRITE, Isolation.SNAPSHOT))
        assert t.names() == {"us1", "new"}, "the condition met what was there when it landed"

    def test_overwrite_concurrent_append_elsewhere(self, t: Kit):
        action = self.overwrite(t, t.head_id)
        t.ok(Append(plus(us_file(t, "us2"), us_file(t, "us3", spec=1))))
        t.ok(action)
        assert t.names() == {"us1", "us2", "us3", "new"}

    def test_overwrite_concurrent_delete_of_target(self, t: Kit):
        by_filter = self.overwrite(t, t.head_id)
        by_name = Overwrite(t.data("new"), removed(t.data("eu1")), start_snapshot_id=t.head_id, **CAREFUL)
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        conflict = t.refused(by_filter, Check.REMOVED_DATA)
        assert (conflict.files, conflict.snapshot_id) == ((t.path("eu1"),), t.head_id)
        assert t.refused(by_name, Check.MISSING_FILES).files == (t.path("eu1"),)

    def test_overwrite_concurrent_compaction(self, t: Kit):
        start = t.head_id
        t.ok(RewriteFiles(removed(us_file(t, "us1")), us_file(t, "us2")))
        assert t.summary()["operation"] == "replace"
        t.ok(self.overwrite(t, start))
        assert t.names() == {"new", "us2"}
        start = t.head_id
        t.ok(RewriteFiles(removed(t.data("new")), t.data("compacted")))
        again = self.overwrite(t, start, added=t.data("newer"))
        assert t.refused(again, Check.REMOVED_DATA).files == (t.path("new"),), "its own target was compacted"

    def test_overwrite_expired_between(self, t: Kit):
        start = t.head_id
        t.ok(Append(us_file(t, "us2")))
        t.expire(start)
        t.ok(self.overwrite(t, start))
        assert t.names() == {"us1", "us2", "new"}

        start = t.head_id
        t.ok(Append(us_file(t, "us3")))
        between = t.head_id
        t.ok(Append(us_file(t, "us4")))
        t.expire(between)
        conflict = t.refused(self.overwrite(t, start), Check.HISTORY)
        assert str(start) in conflict.message and conflict.snapshot_id == t.head_id

    def test_overwrite_position_delete_arrived(self, d: Kit):
        start = d.head_id
        d.ok(RowDelta(added_deletes=d.deletes("elsewhere", us_file(d, "us1"))))
        by_name = Overwrite(d.data("new"), removed(d.data("eu1")), start_snapshot_id=start, no_conflicting_deletes=True)
        d.ok(RowDelta(added_deletes=d.deletes("d", d.data("eu1"))))
        conflict = d.refused(self.overwrite(d, start), Check.NEW_DELETES)
        assert (d.path("d") in conflict.files or d.path("d", "puffin") in conflict.files) and len(conflict.files) == 1
        assert d.refused(by_name, Check.NEW_DELETES_FOR_FILES).files == (d.path("eu1"),)
        d.ok(self.overwrite(d, d.head_id))
        assert d.names(deletes=True) == {"elsewhere"}

    @pytest.mark.parametrize("spec", [0, 2])
    def test_overwrite_equality_delete_arrived(self, d: Kit, spec: int):
        """By the ranges of the delete file, under a partitioned spec and under one whose deletes apply everywhere."""
        start, inside = d.head_id, And(EU, LessThan("id", 10)) if spec == 0 else LessThan("id", 10)
        d.ok(RowDelta(added_deletes=d.equality("beyond", spec=spec, ids=(100, 200))))
        d.ok(self.overwrite(d, start, row_filter=inside))
        start = d.head_id
        d.ok(Append(d.data("eu2", ids=(0, 9))))
        d.ok(RowDelta(added_deletes=d.equality("within", spec=spec, ids=(5, 200))))
        overwrite = self.overwrite(d, start, row_filter=inside, no_conflicting_data=False)
        assert d.refused(overwrite, Check.NEW_DELETES).files == (d.path("within"),)

    @pytest.mark.parametrize("by_path", [False, True])
    def test_overwrite_equality_delete_arrived_for_named_files(self, d: Kit, by_path: bool):
        named = RemovedFiles.of(d.path("eu1")) if by_path else removed(d.data("eu1", ids=(0, 9)))
        asked = {"removed": named, "row_filter": None, "no_conflicting_data": False}
        start = d.head_id
        d.ok(RowDelta(added_deletes=d.equality("within", ids=(5, 200))))
        assert d.refused(self.overwrite(d, start, **asked), Check.NEW_DELETES_FOR_FILES).files == (d.path("eu1"),)
        start = d.head_id
        d.ok(RowDelta(added_deletes=d.equality("beyond", ids=(100, 200))))
        d.ok(self.overwrite(d, start, **asked))
        assert d.names() == {"new", "us1"}

    @pytest.mark.parametrize("isolation", Isolation)
    def test_overwrite_equality_delete_arrived_for_rows_that_are_only_copied(self, d: Kit, isolation: Isolation):
        """A copy holds all rows of its file, also those that the statement had no reason to look at."""
        start, ninth = d.head_id, EqualTo("id", 9)
        d.ok(RowDelta(added_deletes=d.equality("third", ids=(3, 3))))
        eu1 = removed(d.data("eu1", ids=(0, 9)))
        copied = Overwrite(d.data("new"), eu1, conflict_filter=ninth, start_snapshot_id=start)
        refused = d.refused(with_conflict_checks(copied, RowCommand.UPDATE, isolation), Check.NEW_DELETES_FOR_FILES)
        assert refused.files == (d.path("eu1"),)

    def test_overwrite_inherits_filter(self, t: Kit):
        start = t.head_id
        t.ok(Append(us_file(t, "us2")))
        t.ok(self.overwrite(t, start))
        t.ok(Append(t.data("eu2")))
        t.refused(self.overwrite(t, start, added=t.data("new2")), Check.NEW_DATA)
        elsewhere = self.overwrite(t, start, added=t.data("new3"), conflict_filter=EqualTo("region", "asia"))
        t.ok(elsewhere)
        start = t.head_id
        by_name = Overwrite(t.data("new4"), removed(t.data("new3")), row_filter=EU, start_snapshot_id=start, **CAREFUL)
        t.ok(Append(us_file(t, "us3")))
        assert t.refused(by_name, Check.NEW_DATA).files == (t.path("us3"),), "named files: no filter to go by"


class TestOperations:
    def test_overwrite_removes_only_is_delete(self, t: Kit):
        t.ok(Overwrite(row_filter=EU))
        assert t.summary()["operation"] == "delete" and t.names() == {"us1"}
        t.ok(Overwrite(removed=removed(us_file(t, "us1"))))
        assert t.summary()["operation"] == "delete" and t.names() == set()

    def test_overwrite_adds_only_is_append(self, t: Kit):
        t.ok(Overwrite(t.data("eu2")))
        assert t.summary()["operation"] == "append"
        assert t.names() == {"eu1", "us1", "eu2"}


class TestWholeFileDeletes:
    def test_metadata_delete_with_position_deletes(self, d: Kit):
        eu, us = d.data("eu1"), us_file(d, "us1")
        d.ok(Append(d.data("eu2")))
        d.ok(RowDelta(added_deletes=plus(*(d.deletes(f"d-{n}", f) for n, f in (("eu", eu), ("us", us))))))
        d.ok(RowDelta(added_deletes=d.deletes("d-eu2", d.data("eu2"))))
        d.ok(DeleteFiles(RemovedFiles.of(d.path("eu1"))))
        assert d.names() == {"eu2", "us1"}
        assert d.names(deletes=True) == {"d-eu2", "d-us"}, "only the deletes of the file that left"
        d.ok(DeleteFiles(row_filter=EU))
        assert d.names() == {"us1"} and d.names(deletes=True) == {"d-us"}
        assert (d.summary()["operation"], d.summary()["removed-position-deletes"]) == ("delete", "1")
        assert d.summary()["total-delete-files"] == "1"

    def test_delete_by_path_missing(self, t: Kit):
        paths = RemovedFiles.of(t.path("eu1"), t.path("never"))
        conflict = t.refused(DeleteFiles(paths, must_exist=True), Check.MISSING_FILES)
        assert conflict.files == (t.path("never"),)
        t.ok(DeleteFiles(paths))
        assert t.names() == {"us1"} and t.summary()["deleted-data-files"] == "1"

    def test_delete_on_branches_independent(self, t: Kit):
        t.branch("side")
        t.ok(DeleteFiles(row_filter=EU), branch="side")
        assert (t.names(branch="side"), t.names()) == ({"us1"}, {"eu1", "us1"})
        t.ok(DeleteFiles(row_filter=US))
        assert (t.names(branch="side"), t.names()) == ({"us1"}, {"eu1"})
        t.ok(DeleteFiles(RemovedFiles.of(t.path("us1")), must_exist=True), branch="side")
        assert (t.names(branch="side"), t.names()) == (set(), {"eu1"})


class TestDynamic:
    def test_dynamic_overwrite_one_partition(self, t: Kit):
        t.ok(Append(plus(t.data("eu2"), t.data("eu_of_spec_1", spec=1))))
        t.ok(ReplacePartitions(t.data("new")))
        assert t.names() == t.names_by_pyiceberg() == {"new", "us1", "eu_of_spec_1"}
        t.ok(ReplacePartitions(plus(t.data("newer"), t.data("asia", region="asia"))))
        assert t.names() == {"newer", "asia", "us1", "eu_of_spec_1"}
        assert (t.summary()["operation"], t.summary()["replace-partitions"]) == ("overwrite", "true")

    def test_dynamic_overwrite_unpartitioned(self, t: Kit):
        t.ok(Append(plus(t.data("a", spec=1), t.data("b", spec=2))))
        t.ok(ReplacePartitions(t.data("new", spec=2)))
        assert t.names() == {"new"}

    def test_dynamic_overwrite_null_partition(self, t: Kit):
        t.ok(Append(plus(t.data("nowhere", region=None), t.data("empty", region=""))))
        t.ok(ReplacePartitions(t.data("new", region=None)))
        assert t.names() == {"eu1", "us1", "empty", "new"}
        t.ok(ReplacePartitions(t.data("eu2")))
        assert t.names() == {"eu2", "us1", "empty", "new"}
        start = t.head_id
        t.ok(Append(t.data("theirs", region=None)))
        t.ok(ReplacePartitions(t.data("eu3"), start, **CAREFUL))
        t.refused(ReplacePartitions(t.data("newer", region=None), start, **CAREFUL), Check.NEW_DATA)

    def test_dynamic_overwrite_void_field(self, t: Kit):
        t.ok(Append(plus(t.data("a", spec=1), t.data("b", spec=2))))
        start = t.head_id
        t.ok(Append(us_file(t, "us2")))
        t.refused(ReplacePartitions(t.data("new", spec=3), start, **CAREFUL), Check.NEW_DATA)
        t.ok(ReplacePartitions(t.data("new", spec=3)))
        assert t.names() == {"new"}

    def test_dynamic_overwrite_conflict_append(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("theirs")))
        asked = ReplacePartitions(t.data("new"), start, no_conflicting_data=True)
        assert t.refused(asked, Check.NEW_DATA).files == (t.path("theirs"),)
        t.ok(ReplacePartitions(t.data("new"), start))
        assert t.names() == {"new", "us1"}

    def test_dynamic_overwrite_conflict_delete(self, t: Kit):
        start = t.head_id
        t.ok(Append(t.data("eu2")))
        t.ok(DeleteFiles(removed(t.data("eu1"))))
        asked = ReplacePartitions(t.data("new"), start, no_conflicting_deletes=True)
        assert t.refused(asked, Check.REMOVED_DATA).files == (t.path("eu1"),)
        t.ok(ReplacePartitions(t.data("new"), start))
        assert t.names() == {"new", "us1"}

    @pytest.mark.parametrize("kind", ["positions", "equality", "equality everywhere"])
    def test_dynamic_overwrite_conflict_delete_of_rows(self, d: Kit, kind: str):
        start = d.head_id
        made = {"positions": lambda: d.deletes("d", d.data("eu1")), "equality": lambda: d.equality("d")}
        d.ok(RowDelta(added_deletes=made.get(kind, lambda: d.equality("d", spec=2))()))
        d.refused(ReplacePartitions(d.data("new"), start, no_conflicting_deletes=True), Check.NEW_DELETES)
        d.ok(ReplacePartitions(d.data("new"), start))
        assert d.names() == {"new", "us1"}

    def test_dynamic_overwrite_other_partition(self, d: Kit):
        start = d.head_id
        d.ok(Append(plus(us_file(d, "us2"), d.data("eu_of_spec_1", spec=1))))
        d.ok(RowDelta(added_deletes=plus(d.deletes("d", us_file(d, "us1")), d.equality("e", region="us"))))
        d.ok(DeleteFiles(removed(us_file(d, "us2"))))
        d.ok(ReplacePartitions(d.data("new"), start, **CAREFUL))
        assert d.names() == {"new", "us1", "eu_of_spec_1"} and d.names(deletes=True) == {"d", "e"}

    def test_dynamic_overwrite_drops_vectors(self, d: Kit):
        eu, us = d.data("eu1"), us_file(d, "us1")
        d.ok(RowDelta(added_deletes=plus(d.deletes("d-eu", eu), d.deletes("d-us", us))))
        d.ok(ReplacePartitions(d.data("new"), d.head_id, **CAREFUL))
        assert d.names() == {"new", "us1"} and d.names(deletes=True) == {"d-us"}
        assert d.statuses(deletes=True)["d-eu"] == "DELETED"
        assert d.summary()["removed-delete-files"] == "1"
        assert ("removed-dvs" in d.summary()) == (d.metadata.format_version >= 3)
        d.ok(ReplacePartitions(d.data("all", spec=2)))
        assert d.names() == {"all"} and d.names(deletes=True) == set()

    def test_dynamic_overwrite_append_only_check(self, t: Kit):
        action = ReplacePartitions(plus(t.data("new"), t.data("asia", region="asia")), append_only=True)
        assert t.refused(action, Check.NEW_DATA).files == (t.path("eu1"),)
        t.refused(ReplacePartitions(t.data("new", spec=2), append_only=True), Check.NEW_DATA)
        t.ok(ReplacePartitions(t.data("asia", region="asia"), append_only=True))
        t.ok(ReplacePartitions(t.data("eu_of_spec_1", spec=1), append_only=True))
        assert t.names() == {"eu1", "us1", "asia", "eu_of_spec_1"}


def test_everything_is_overwritten_by_a_filter_that_is_always_true(t: Kit):
    t.ok(Overwrite(t.data("new", spec=2), row_filter=AlwaysTrue()))
    assert t.names() == {"new"}

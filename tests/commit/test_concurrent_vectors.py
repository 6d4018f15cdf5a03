"""Deletes committed side by side: vectors of one data file are united, and nothing else is let through by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neve.commit.actions import Append, RewriteFiles, RowDelta
from neve.commit.environment import Phase
from neve.commit.isolation import Isolation, RowCommand, with_conflict_checks
from neve.commit.outcome import Check
from tests.commit.test_protocol import during
from tests.support.metadata_tables import Kit, plus, removed


@pytest.fixture
def t(tmp_path: Path) -> Kit:
    kit = Kit.create(tmp_path, 3)
    kit.ok(Append(plus(kit.data("a", "b"), kit.data("c", spec=1, bucket=2))))
    return kit


def delete(t: Kit, name: str, start: int | None, positions: list[int], of: str = "a", **spec: int) -> RowDelta:
    file = t.data(of, **spec)
    delta = RowDelta(
        added_deletes=t.vector(name, file, positions),
        referenced_data_files=frozenset([t.path(of)]),
        start_snapshot_id=start,
    )
    return with_conflict_checks(delta, RowCommand.DELETE, Isolation.SNAPSHOT)


def test_two_deletes_of_one_file_are_both_done(t: Kit):
    start = t.head_id
    t.ok(delete(t, "theirs", start, [1, 2]))
    t.ok(delete(t, "mine", start, [2, 7]))
    assert t.deleted_positions() == {"a": [1, 2, 7]}
    summary = t.summary()
    assert (summary["added-dvs"], summary["removed-dvs"], summary["total-position-deletes"]) == ("1", "1", "3")


def test_the_united_vector_keeps_spec_and_partition(t: Kit):
    start = t.head_id
    t.ok(delete(t, "theirs", start, [1], of="c", spec=1, bucket=2))
    t.ok(delete(t, "mine", start, [3], of="c", spec=1, bucket=2))
    live = t.live(deletes=True)
    assert (live.partition_key(0).spec_id, live.partition_key(0).values) == (1, ("eu", 2))


def test_a_chain_of_deletes_is_united_with_the_last(t: Kit):
    first = delete(t, "known", t.head_id, [0])
    t.ok(first)
    start, known = t.head_id, first.added_deletes
    for name, positions in (("x", [0, 1]), ("y", [0, 2]), ("z", [0, 3])):
        t.ok(replace(delete(t, name, start, positions), removed_deletes=removed(known)))
    assert t.deleted_positions() == {"a": [0, 1, 2, 3]}


def test_other_files_are_left_alone(t: Kit):
    start = t.head_id
    t.ok(delete(t, "theirs", start, [5], of="b"))
    t.ok(delete(t, "mine", start, [6]))
    assert t.deleted_positions() == {"b": [5], "a": [6]}


def test_a_delete_that_arrives_between_two_attempts_is_united_too(t: Kit):
    start = t.head_id
    mine, steps = delete(t, "mine", start, [9]), [delete(t, f"their{i}", start, [i]) for i in range(2)]
    before = len([f for f in t.files_on_disk() if f.endswith(".puffin")])
    environment = during(t, Phase.SWAP, *(lambda s=s: t.ok(s) for s in steps))
    assert t.ok(mine, environment=environment).attempts == 3
    assert t.deleted_positions() == {"a": [0, 1, 9]}
    united = len([f for f in t.files_on_disk() if f.endswith(".puffin")]) - before
    assert united == 2, "one that the second of them united and the one in use; those of lost attempts are gone"


def test_a_delete_that_was_rolled_back_between_two_attempts_is_not_united(t: Kit):
    start = t.head_id
    t.ok(delete(t, "theirs", start, [1, 2]))
    environment = during(t, Phase.SWAP, lambda: t.branch("main", start))
    assert t.ok(delete(t, "mine", start, [7]), environment=environment).attempts == 2
    assert t.deleted_positions() == {"a": [7]}
    assert t.summary()["added-position-deletes"] == "1"
    assert not [f for f in t.files_on_disk() if "-vectors-" in f], "what the first attempt united is gone"


def test_an_update_in_between_is_a_conflict(t: Kit):
    start = t.head_id
    t.ok(RowDelta(t.data("copy"), t.vector("theirs", t.data("a"), [1])))
    outcome = t.commit(delete(t, "mine", start, [2]))
    assert outcome.conflicts[0].rule in (Check.NEW_VECTORS, Check.CONCURRENT_UPDATE)


def test_a_compaction_in_between_is_a_conflict(t: Kit):
    start = t.head_id
    t.ok(RewriteFiles(removed(t.data("a")), t.data("new")))
    t.refused(delete(t, "mine", start, [2]), Check.REQUIRED_FILES)


def test_an_update_does_not_unite(t: Kit):
    start = t.head_id
    t.ok(delete(t, "theirs", start, [1]))
    vector = t.vector("mine", t.data("a"), [2])
    update = RowDelta(t.data("copy"), vector, start_snapshot_id=start, merge_vectors=True)
    t.refused(update, Check.NEW_VECTORS)

"""Rewritten manifests hold the same files with the same numbers, clustered by partition; nothing is done twice."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import StringType

import neve
from neve.commit.actions import Append, DeleteFiles, RemovedFiles, RowDelta
from neve.commit.environment import Environment, Phase
from neve.errors import CommitConflict, UnknownName, UserError
from neve.ops.context import TableContext
from neve.tree.entries import DETAIL
from tests.support.coverage import on_versions
from tests.support.metadata_tables import Kit, name_of, plus

VERSIONS = on_versions(1, 2, 3, 4)
CARRIED = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id", "spec_id", *DETAIL.names)


def table_of(kit: Kit, *others: Any) -> neve.Table:
    """The table; each of the others commits when an attempt of ours is about to check, one an attempt."""
    waiting = list(others)

    def observe(phase: Phase, attempt: int) -> None:
        if phase is Phase.REFRESH and waiting:
            waiting.pop(0)()

    environment = Environment(sleep=lambda seconds: None, observe=observe)
    return neve.Table(TableContext(kit.catalog, kit.table, lambda: None, environment=environment))


def append(kit: Kit, *names: str, branch: str = "main", **stated: Any) -> None:
    kit.ok(Append(kit.data(*names, **stated), fast=True), branch=branch)


def facts(kit: Kit, branch: str = "main") -> dict[str, tuple[Any, ...]]:
    """All that is said of each live file."""
    live = kit.entries(all_details=True, branch=branch).live()
    rows = zip(live["file_path"].to_pylist(), *(live[n].to_pylist() for n in CARRIED), strict=True)
    return {name_of(path): tuple(map(repr, said)) for path, *said in rows}


def regions(kit: Kit) -> list[tuple[int, str, str]]:
    """The spec and the range of regions of each data manifest."""
    found = [(m.spec_id, m.partitions[0]) for m in kit.manifests(deletes=False) if m.spec_id in (0, 1)]
    return [(s, *(from_bytes(StringType(), b) for b in (p.lower_bound, p.upper_bound))) for s, p in found]


@VERSIONS
def test_every_spec_is_rewritten_and_files_stay_what_they_are(tmp_path: Path, version: int):
    kit = Kit.create(tmp_path, version, commit__manifest_merge__enabled="false")
    for at, region in enumerate(["us", "eu", "asia", "eu"]):
        append(kit, f"a{at}", region=region, ids=(at, at + 1))
        append(kit, f"b{at}", region=region, spec=1, bucket=at)
        append(kit, f"c{at}", spec=2)
    kit.ok(DeleteFiles(RemovedFiles.of(kit.path("a0"))))
    before, start = facts(kit), kit.head_id
    plan = table_of(kit).rewrite_manifests().plan()
    assert [(g.spec_id, g.is_deletes, len(g.manifests), g.pieces) for g in plan.groups] == [
        (0, False, 4, 1),
        (1, False, 4, 1),
        (2, False, 4, 1),
    ]
    assert kit.head_id == start, "a plan changes nothing"
    done = table_of(kit).rewrite_manifests().snapshot_property("why", "tidy").execute()
    assert (done.manifests_rewritten, done.manifests_added, done.manifests_kept, done.files) == (12, 3, 0, 11)
    assert done.snapshot_id == kit.head_id and done.summary == "12 manifests with 11 files rewritten to 3"
    assert [(m.spec_id, m.existing_files, m.added_files, m.deleted_files) for m in kit.manifests()] == [
        (0, 3, 0, 0),
        (1, 4, 0, 0),
        (2, 4, 0, 0),
    ]
    assert facts(kit) == before and (version > 3 or kit.names_by_pyiceberg() == set(before))
    said = kit.summary()
    assert (said["operation"], said["why"], said["total-data-files"]) == ("replace", "tidy", "11")
    assert [said[f"manifests-{what}"] for what in ("created", "kept", "replaced")] == ["3", "0", "12"]
    assert table_of(kit).verify(data=False).is_sound


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_manifest_of_files_that_have_gone_is_dropped(tmp_path: Path, version: int):
    """It is all that is left of an old spec, which could never be removed otherwise."""
    kit = Kit.create(tmp_path, version, commit__manifest_merge__enabled="false")
    append(kit, "old")
    append(kit, "new", spec=1)
    kit.ok(DeleteFiles(RemovedFiles.of(kit.path("old"))))
    before, table = facts(kit), table_of(kit)
    assert "drop 1 data manifest of spec 0: they list no live files" in table.rewrite_manifests().explain()
    table.rewrite_manifests().execute()
    assert {m.spec_id for m in kit.manifests(deletes=False)} == {1}
    assert facts(kit).items() >= before.items() and kit.names() == {"new"}
    assert not table_of(kit).rewrite_manifests().plan().groups


@VERSIONS
def test_nothing_to_do_makes_no_snapshot(tmp_path: Path, version: int):
    kit = Kit.create(tmp_path, version)
    assert table_of(kit).rewrite_manifests().execute().snapshot_id is None, "no snapshot yet"
    append(kit, "a")
    append(kit, "b", spec=1)
    rewrite, location = table_of(kit).rewrite_manifests(), kit.table.metadata_location
    done = rewrite.execute()
    assert (done.snapshot_id, done.manifests_kept, done.summary) == (None, 2, "nothing to rewrite")
    assert "2 manifests, all in good shape" in rewrite.explain() and kit.table.metadata_location == location
    append(kit, "c")
    assert rewrite.execute().manifests_rewritten == 2 and rewrite.execute().snapshot_id is None


def test_vectors_that_lie_beside_their_files_come_along(tmp_path: Path):
    kit = Kit.create(tmp_path, 4)
    files = [kit.data(name) for name in "abc"]
    for file in files:
        kit.ok(Append(file, fast=True))
    for at, file in enumerate(files[:2]):
        kit.ok(RowDelta(added_deletes=kit.vector(f"v{at}", file)))
    before, attached = facts(kit), kit.attached()
    rewrite = table_of(kit).rewrite_manifests()
    assert [g.is_deletes for g in rewrite.plan().groups] == [False]
    assert rewrite.execute().files == 3 and rewrite.execute().snapshot_id is None
    assert facts(kit) == before and kit.attached() == attached == {"a": {"v0"}, "b": {"v1"}}


def test_delete_manifests_are_rewritten_apart(tmp_path: Path):
    kit = Kit.create(tmp_path, 3)
    files = [kit.data(name, region=region) for name, region in (("a", "eu"), ("b", "us"), ("c", "eu"))]
    kit.ok(Append(plus(*files)))
    for at, file in enumerate(files):
        kit.ok(RowDelta(added_deletes=kit.vector(f"v{at}", file)))
    kit.ok(RowDelta(added_deletes=kit.equality("e")))
    before, attached = facts(kit), kit.attached()
    done = table_of(kit).rewrite_manifests().execute()
    assert (done.manifests_rewritten, done.manifests_added, done.manifests_kept) == (4, 1, 1), "one of data files stays"
    assert facts(kit) == before and kit.attached() == attached
    assert [(m.is_deletes, m.existing_files) for m in kit.manifests(deletes=True)] == [(True, 4)]


def test_one_spec_only_when_asked(tmp_path: Path):
    kit = Kit.create(tmp_path)
    for name in "ab":
        append(kit, name)
        append(kit, f"{name}1", spec=1)
    kept = [m for m in kit.manifests() if m.spec_id == 0]
    done = table_of(kit).rewrite_manifests().spec(1).execute()
    assert (done.manifests_rewritten, done.manifests_added, done.manifests_kept) == (2, 1, 2)
    assert [m for m in kit.manifests() if m.spec_id == 0] == kept
    with pytest.raises(UnknownName, match="partition spec 9"):
        table_of(kit).rewrite_manifests().spec(9).plan()


def test_large_manifests_are_split_by_partition(tmp_path: Path):
    kit, chance = Kit.create(tmp_path), random.Random(1)
    for at in range(2):
        files = [kit.data(*(f"{r}{at}{chance.random()}" for _ in range(500)), region=r) for r in ("us", "eu", "af")]
        kit.ok(Append(plus(*files), fast=True))
    kit.set(commit__manifest__target_size_bytes="10000")
    before = facts(kit)
    assert {r[1:] for r in regions(kit)} == {("af", "us")}, "every filter on a region opens every manifest"
    rewrite = table_of(kit).rewrite_manifests()
    assert rewrite.plan().groups[0].reason == "some are large"
    done = rewrite.execute()
    found = sorted(r[1:] for r in regions(kit))
    assert done.manifests_added == len(found) > 3 and facts(kit) == before
    assert all(high <= low for (_, high), (low, _) in pairwise(found)), "ranges follow each other"
    assert rewrite.execute().snapshot_id is None, "and once is enough"


def test_manifests_that_overlap_are_rewritten_though_they_are_of_a_good_size(tmp_path: Path):
    kit = Kit.create(tmp_path)
    for at in range(2):
        kit.ok(Append(plus(*(kit.data(f"{r}{at}", region=r) for r in ("af", "eu", "us"))), fast=True))
    size = max(m.length for m in kit.manifests())
    kit.set(commit__manifest__target_size_bytes=str(size))
    rewrite = table_of(kit).rewrite_manifests()
    assert rewrite.plan().groups[0].reason == "their partitions overlap"
    assert rewrite.execute().manifests_added == 2
    assert sorted(r[1:] for r in regions(kit)) == [("af", "eu"), ("eu", "us")]
    assert rewrite.execute().snapshot_id is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((), ["f3", "f2", "f0", "f1", "g3", "g0"]),
        (("region",), ["f3", "f2", "f1", "f0", "g3", "g0"]),
        (("id_bucket",), ["f0", "f2", "f1", "f3", "g3", "g0"]),
        (("id_bucket", "region"), ["f0", "f2", "f1", "f3", "g3", "g0"]),
    ],
)
def test_fields_to_cluster_by(tmp_path: Path, fields: tuple[str, ...], expected: list[str]):
    """Under spec 1 by region and bucket, under spec 0 by region: it takes what it has."""
    kit = Kit.create(tmp_path)
    for name, region, bucket in (("f0", "us", 0), ("f1", "us", 2), ("f2", "eu", 1), ("f3", "af", 3)):
        append(kit, name, region=region, spec=1, bucket=bucket)
    append(kit, "g0", region="us")
    append(kit, "g3", region="af")
    rewrite = table_of(kit).rewrite_manifests()
    done = (rewrite.cluster_by(*fields) if fields else rewrite).execute()
    held = [name_of(p) for p in kit.live()["file_path"].to_pylist()]
    assert done.manifests_added == 2 and sorted(held, key=lambda name: name[0]) == expected
    with pytest.raises(UnknownName, match=r"partition field 'regoin' in the table.*'region'"):
        rewrite.cluster_by("regoin").plan()
    with pytest.raises(UnknownName, match="'id_bucket' in partition spec 0"):
        rewrite.spec(0).cluster_by("id_bucket").plan()
    with pytest.raises(UserError, match="leave cluster_by out"):
        rewrite.cluster_by()


def test_a_branch_is_rewritten_and_main_is_not(tmp_path: Path):
    kit = Kit.create(tmp_path)
    append(kit, "a")
    kit.branch("audit")
    append(kit, "b", branch="audit")
    append(kit, "c", branch="audit")
    main, before = kit.head_id, facts(kit, "audit")
    done = table_of(kit).rewrite_manifests().branch("audit").execute()
    assert done.snapshot_id == kit.head("audit").snapshot_id and kit.head_id == main
    assert facts(kit, "audit") == before and len(kit.manifests(branch="audit")) == 1
    with pytest.raises(UnknownName, match="'nowhere'"):
        table_of(kit).rewrite_manifests().branch("nowhere").execute()


@VERSIONS
def test_an_append_between_plan_and_commit_is_kept_beside(tmp_path: Path, version: int):
    kit = Kit.create(tmp_path, version)
    append(kit, "a")
    append(kit, "b")
    table = table_of(kit, lambda: append(kit, "late"))
    done = table.rewrite_manifests().execute()
    assert (done.reruns, done.manifests_added) == (0, 1), "nothing had to be planned again"
    assert kit.names() == {"a", "b", "late"} and len(kit.manifests()) == 2
    assert version > 3 or kit.names_by_pyiceberg() == kit.names()


def test_a_manifest_that_is_gone_is_planned_again(tmp_path: Path):
    kit = Kit.create(tmp_path)
    for name in "abc":
        append(kit, name)
    table = table_of(kit, lambda: kit.ok(DeleteFiles(RemovedFiles.of(kit.path("b")))))
    done = table.rewrite_manifests().execute()
    assert (done.reruns, done.manifests_added, kit.names()) == (1, 1, {"a", "c"}), "b does not come back"
    assert [m.existing_files for m in kit.manifests()] == [2]


def test_two_rewrites_at_once_leave_one(tmp_path: Path):
    kit = Kit.create(tmp_path)
    append(kit, "a")
    append(kit, "b")
    done = table_of(kit, lambda: table_of(kit).rewrite_manifests().execute()).rewrite_manifests().execute()
    assert (done.snapshot_id, done.reruns) == (None, 1), "the other one did it"
    assert kit.names() == {"a", "b"} and len(kit.manifests()) == 1


def test_it_gives_up_after_as_many_conflicts_as_the_table_says(tmp_path: Path):
    kit = Kit.create(tmp_path, **{"neve.commit.reruns": "1"})
    for at in range(6):
        append(kit, f"f{at}")
    others = [lambda at=at: kit.ok(DeleteFiles(RemovedFiles.of(kit.path(f"f{at}")))) for at in range(2)]
    files = set()

    def last() -> None:
        others[1]()
        files.update(kit.files_on_disk())

    table = table_of(kit, others[0], last)
    with pytest.raises(CommitConflict, match="no longer in the table"):
        table.rewrite_manifests().execute()
    assert kit.names() == {"f2", "f3", "f4", "f5"} and kit.files_on_disk() == files, "nothing is left behind"


def test_a_snapshot_cannot_be_told_what_it_did(tmp_path: Path):
    with pytest.raises(UserError, match="'operation'"):
        table_of(Kit.create(tmp_path)).rewrite_manifests().snapshot_property("operation", "append")

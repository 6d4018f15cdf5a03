"""Expiry keeps what it was asked to keep, and deletes exactly what nothing leads to any more."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
)
from pyiceberg.types import LongType, NestedField, StringType

import neve
from neve.catalog import open_catalog
from neve.catalog.swap import MaybeSwapped
from neve.commit.actions import Append, DeleteFiles, Overwrite, RemovedFiles, RewriteFiles, RewriteManifests, RowDelta
from neve.errors import CommitUnknown, MissingFile, UnknownName, UserError
from neve.model.snapshots import AddSnapshot
from neve.tree.entries import DETAIL
from neve.tree.read import read_entries
from tests.support.aged_tables import DAY, Aged
from tests.support.coverage import on_versions
from tests.support.metadata_tables import Kit, plus, removed
from tests.support.servers import rest_server
from tests.support.tables import local

VERSIONS = on_versions(1, 2, 3, 4)


@pytest.fixture
def aged(tmp_path: Path) -> Aged:
    return Aged.create(tmp_path)


def point(aged: Aged, name: str, snapshot_id: int, kind: SnapshotRefType = SnapshotRefType.BRANCH, **ages: int) -> None:
    aged.kit.update(SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=snapshot_id, **ages))


# --- which snapshots go -----------------------------------------------------------------------------------------------


@VERSIONS
def test_expire_older_than_retain(tmp_path: Path, version: int):
    aged = Aged.create(tmp_path, version)
    ids = [aged.append(name) for name in "abcdef"]
    third = aged.kit.metadata.snapshot_by_id(ids[2]).timestamp_ms
    expire = aged.table.expire_snapshots()
    assert expire.older_than(third).plan().snapshot_ids == tuple(ids[:2]), "the cut-off itself is not older"
    assert expire.older_than(third + 1).plan().snapshot_ids == tuple(ids[:3])
    assert expire.older_than(aged.now_ms + 1).plan().kept == (ids[-1],)
    assert expire.older_than(aged.now_ms + 1).retain_last(4).plan().kept == tuple(ids[2:])
    assert expire.older_than(third).retain_last(10).plan().snapshot_ids == ()
    when = datetime.fromtimestamp(third / 1000, UTC)
    assert expire.older_than(when).plan() == expire.older_than(third).plan()
    assert expire.older_than(third).retain_last(1).execute().snapshot_ids == tuple(ids[:2])
    assert aged.snapshot_ids == ids[2:] and aged.table.verify(data=False).is_sound


def test_the_table_says_how_old_and_how_many_unless_asked(aged: Aged):
    ids = [aged.append(name) for name in "abcdefgh"]
    assert aged.table.expire_snapshots().plan().kept == tuple(ids[-6:]), "five days"
    aged.kit.set(**{"history.expire.max-snapshot-age-ms": str(2 * DAY)})
    assert aged.table.expire_snapshots().plan().kept == tuple(ids[-3:])
    aged.kit.set(**{"history.expire.min-snapshots-to-keep": "5"})
    assert aged.table.expire_snapshots().plan().kept == tuple(ids[-5:])
    assert aged.table.expire_snapshots().retain_last(1).plan().kept == tuple(ids[-3:])


def test_expire_by_id_referenced(aged: Aged):
    ids = [aged.append(name) for name in "abcd"]
    aged.kit.branch("first", ids[0], "tag")
    expire = aged.table.expire_snapshots()
    with pytest.raises(UserError, match=rf"snapshot {ids[3]}: the branch 'main' points at it"):
        expire.snapshot_ids(ids[1], ids[3]).plan()
    with pytest.raises(UserError, match=rf"snapshot {ids[0]}: the tag 'first' points at it"):
        expire.snapshot_ids(ids[0]).execute()
    with pytest.raises(UnknownName, match="snapshot 77"):
        expire.snapshot_ids(77).execute()
    assert aged.snapshot_ids == ids
    assert expire.snapshot_ids(ids[1], ids[2]).execute().snapshot_ids == (ids[1], ids[2]), "young ones too"
    assert aged.snapshot_ids == [ids[0], ids[3]] and aged.kit.names() == set("abcd")


def test_expire_tags_branches(aged: Aged):
    ids = [aged.append(name) for name in "abc"]
    point(aged, "old-tag", ids[0], SnapshotRefType.TAG, max_ref_age_ms=4 * DAY)
    point(aged, "tag", ids[1], SnapshotRefType.TAG)
    point(aged, "short", ids[2], max_ref_age_ms=DAY)
    point(aged, "kept", ids[2], min_snapshots_to_keep=2, max_snapshot_age_ms=1)
    more = [aged.append(name, branch="kept") for name in "xyz"]
    last = aged.append("d")
    plan = aged.table.expire_snapshots().older_than(aged.now_ms - DAY // 2).plan()
    assert plan.refs == ("old-tag", "short"), "each by its own age; main never"
    assert plan.kept == (ids[1], *more[1:], last), "the tag, two of the branch, the head of main"
    done = aged.table.expire_snapshots().older_than(aged.now_ms - DAY // 2).execute()
    assert (done.refs, done.snapshot_ids) == (plan.refs, plan.snapshot_ids)
    assert set(aged.kit.metadata.refs) == {"tag", "kept", "main"}
    assert aged.kit.metadata.refs["kept"].min_snapshots_to_keep == 2
    assert aged.on_disk() == aged.in_use()


def test_the_table_limits_the_age_of_names_that_say_nothing(aged: Aged):
    first, _ = aged.append("a"), aged.append("b")
    aged.kit.branch("t", first, "tag")
    aged.day(10)
    aged.kit.set(**{"history.expire.max-ref-age-ms": str(5 * DAY)})
    done = aged.table.expire_snapshots().execute()
    assert (done.refs, done.snapshot_ids) == (("t",), (first,)), "main is older too, and stays"


@pytest.mark.parametrize("age", [1, 10])
def test_expire_staged(aged: Aged, age: int):
    """Snapshots that no name leads to: staged for an audit, or left by a dropped branch."""
    aged.append("a")
    aged.kit.branch("audit")
    staged = aged.append("b", branch="audit")
    aged.kit.update(RemoveSnapshotRefUpdate(ref_name="audit"))
    aged.day(age)
    head = aged.append("c")
    plan = aged.table.expire_snapshots().plan()
    assert (staged in plan.kept) == (age < 5) and head in plan.kept
    aged.table.expire_snapshots().execute()
    assert ("data/b.parquet" in aged.on_disk()) == (age < 5)


def test_an_old_rollback_expires_what_was_rolled_back(aged: Aged):
    first, second = aged.append("a"), aged.append("b")
    aged.table.rollback(first)
    aged.day(10)
    done = aged.table.expire_snapshots().execute()
    assert done.snapshot_ids == (second,) and aged.on_disk() == aged.in_use() and aged.kit.names() == {"a"}


def test_a_table_without_snapshots_has_nothing_to_expire(aged: Aged):
    before = aged.kit.table.metadata_location
    done = aged.table.expire_snapshots().clean_expired_metadata(False).execute()
    assert done.summary == "nothing to expire" and aged.kit.table.metadata_location == before


# --- which files go ---------------------------------------------------------------------------------------------------


def lived(aged: Aged, version: int) -> None:
    """Appends, overwrites, deletes of every kind, a compaction, rewritten manifests, a branch."""
    kit = aged.kit
    files = {name: kit.data(name) for name in "abcdefgh"}
    aged.commit(Append(plus(*(files[n] for n in "abc"))), *(files[n] for n in "abc"))
    aged.commit(Append(files["d"]), files["d"])
    aged.commit(Overwrite(files["e"], removed(files["a"])), files["e"])
    if version > 1:
        pair = plus(kit.deletes("p", files["b"]), kit.deletes("p", files["c"]).with_columns(content_offset=[60]))
        pair = pair if version > 2 else plus(kit.deletes("p", files["b"]), kit.deletes("q", files["c"]))
        aged.commit(RowDelta(added_deletes=pair), pair)
    if version in (2, 3):
        equal = kit.equality("eq")
        aged.commit(RowDelta(added_deletes=equal), equal)
    aged.kit.branch("kept")
    aged.append("x", branch="kept", spec=1)
    small = kit.data("small", rows=10)
    aged.commit(RewriteFiles(removed(files["b"]), small, start_snapshot_id=kit.head_id), small)
    live = read_entries(kit.io, kit.manifests(deletes=False), kit.specs, detail=DETAIL.names, live_only=True)
    aged.commit(RewriteManifests(frozenset(m.path for m in kit.manifests(deletes=False)), (live,)))
    aged.commit(DeleteFiles(RemovedFiles.of(kit.path("d"))))
    statistics(aged, kit.head_id, "head")


def statistics(aged: Aged, snapshot_id: int, name: str) -> None:
    paths = [f"{aged.kit.location}/metadata/{name}.{suffix}" for suffix in ("stats", "parquet")]
    for path in paths:
        local(path).write_bytes(b"file")
    numbers = {"snapshot-id": snapshot_id, "file-size-in-bytes": 4}
    table = {"statistics-path": paths[0], "file-footer-size-in-bytes": 1, "blob-metadata": [], **numbers}
    partitions = {"statistics-path": paths[1], **numbers}
    aged.kit.update(
        SetStatisticsUpdate(statistics=StatisticsFile.model_validate(table)),
        SetPartitionStatisticsUpdate(partition_statistics=PartitionStatisticsFile.model_validate(partitions)),
    )


@VERSIONS
def test_expire_cleans_files(tmp_path: Path, version: int):
    aged = Aged.create(tmp_path, version)
    lived(aged, version)
    statistics(aged, aged.snapshot_ids[0], "first")
    assert aged.on_disk() == aged.in_use()
    before, names = aged.on_disk(), aged.kit.names(deletes=None)
    done = aged.table.expire_snapshots().older_than(aged.now_ms + 1).execute()
    assert set(aged.snapshot_ids) == {aged.kit.head_id, aged.kit.head("kept").snapshot_id}
    assert aged.on_disk() == aged.in_use(), "all that is needed, and nothing else"
    assert done.files_deleted == len(before) - len(aged.on_disk()) and not done.files_kept
    assert len(done.deleted.data_files) == 1, "a; b and d live on in the branch"
    assert len(done.deleted.lists) == len(done.snapshot_ids)
    assert len(done.deleted.statistics) == 2
    assert aged.kit.names(deletes=None) == names and aged.kit.names(branch="kept") == set("bcdex")
    aged.table.drop_branch("kept")
    aged.day(10)
    aged.append("last")
    aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert aged.on_disk() == aged.in_use()


def test_a_file_of_several_vectors_stays_while_one_of_them_is_live(tmp_path: Path):
    aged = Aged.create(tmp_path, 3)
    kit = aged.kit
    files = [kit.data(name) for name in "ab"]
    aged.commit(Append(plus(*files)), *files)
    vectors = plus(kit.vector("v", files[0]), kit.vector("v", files[1]).with_columns(content_offset=[60]))
    aged.commit(RowDelta(added_deletes=vectors), vectors)
    aged.commit(Overwrite(None, removed(files[0])))
    aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert "data/v.puffin" in aged.on_disk() and aged.on_disk() == aged.in_use()
    aged.commit(Overwrite(None, removed(files[1])))
    done = aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert len(done.deleted.position_deletes) == 1 and aged.on_disk() == aged.in_use()


@pytest.mark.parametrize("seed", range(5))
def test_random_lives_leave_no_file_too_many_and_none_too_few(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    aged = Aged.create(tmp_path, [2, 1, 3, 4, 2][seed])
    for step in range(14):
        branch = chance.choice(sorted(aged.kit.metadata.refs) or ["main"])
        names = sorted(aged.kit.names(branch=branch)) if aged.kit.metadata.refs else []
        match chance.choice(["append", "append", "drop", "branch", "rollback", "expire"]):
            case "drop" if len(names) > 1:
                aged.commit(DeleteFiles(RemovedFiles.of(aged.kit.path(chance.choice(names)))), branch=branch)
            case "branch" if names:
                aged.kit.branch(f"b{step}", chance.choice(aged.snapshot_ids))
            case "rollback" if names:
                point(aged, branch, chance.choice(aged.snapshot_ids))
            case "expire":
                expire = aged.table.expire_snapshots().older_than(aged.now_ms - chance.randrange(4) * DAY)
                plan, before = expire.plan(), aged.on_disk()
                kept = aged.in_use(plan.kept)
                expire.execute()
                assert before - aged.on_disk() == aged.relative(plan.files) and kept <= aged.on_disk()
                assert aged.on_disk() == aged.in_use()
            case _:
                aged.append(f"f{step}", branch=branch, spec=chance.choice([0, 1, 2]))


@VERSIONS
def test_expire_dry_run_equals_run(tmp_path: Path, version: int):
    aged = Aged.create(tmp_path, version)
    lived(aged, version)
    before, location = aged.on_disk(), aged.kit.table.metadata_location
    expire = aged.table.expire_snapshots().older_than(aged.now_ms).retain_last(2)
    plan, said = expire.plan(), expire.explain()
    assert aged.on_disk() == before and aged.kit.table.metadata_location == location, "a plan changes nothing"
    done = expire.execute()
    assert before - aged.on_disk() == aged.relative(plan.files)
    assert done.deleted == plan.left and done.snapshot_ids == plan.snapshot_ids
    assert f"expire {len(plan.snapshot_ids)} of" in said and f"delete {len(plan.left.lists)} manifest lists" in said


@pytest.mark.parametrize(("level", "suffixes"), [("all", {"parquet", "avro"}), ("metadata", {"avro"}), ("none", set())])
def test_the_level_of_cleaning_says_what_is_deleted(aged: Aged, level: str, suffixes: set[str]):
    aged.append("a")
    gone = aged.kit.data("b")
    aged.commit(Overwrite(gone, RemovedFiles.of(aged.kit.path("a"))), gone)
    before = aged.on_disk()
    done = aged.table.expire_snapshots().older_than(aged.now_ms).cleanup(level).execute()
    assert len(done.snapshot_ids) == 1 and len(aged.snapshot_ids) == 1
    assert {f.rsplit(".", 1)[1] for f in before - aged.on_disk()} == suffixes
    with pytest.raises(UnknownName, match="clean-up level 'some'"):
        aged.table.expire_snapshots().cleanup("some")


def test_files_outside_the_places_of_the_table_stay_and_are_named(aged: Aged, tmp_path: Path):
    foreign = tmp_path / "imported.parquet"
    foreign.write_bytes(b"file")
    brought = aged.kit.data("x").with_columns(file_path=[f"file://{foreign}"])
    aged.commit(Append(brought))
    aged.commit(DeleteFiles(RemovedFiles.of(f"file://{foreign}")))
    aged.append("a")
    expire = aged.table.expire_snapshots().older_than(aged.now_ms)
    assert expire.plan().left.outside == (f"file://{foreign}",) and "keep 1 file outside" in expire.explain()
    assert expire.execute().files_kept == {f"file://{foreign}": "it lies outside the table"}
    assert foreign.exists() and aged.on_disk() == aged.in_use()


def test_what_is_gone_already_hinders_nothing(aged: Aged):
    ids = [aged.append(name) for name in "abc"]
    gone = aged.kit.metadata.snapshot_by_id(ids[0]).manifest_list
    local(gone).unlink()
    expire = aged.table.expire_snapshots().older_than(aged.now_ms)
    assert expire.plan().left.missing == (gone,) and "is missing already" in expire.explain()
    expire.execute()
    assert aged.snapshot_ids == [ids[2]] and aged.on_disk() == aged.in_use()


def test_a_snapshot_that_stays_and_cannot_be_read_stops_everything(aged: Aged):
    first = aged.append("a")
    aged.commit(DeleteFiles(RemovedFiles.of(aged.kit.path("a"))))
    aged.append("b")
    local(aged.kit.manifests()[0].path).unlink()
    before, location = aged.on_disk(), aged.kit.table.metadata_location
    with pytest.raises(MissingFile):
        aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert aged.on_disk() == before and aged.kit.table.metadata_location == location and first in aged.snapshot_ids


# --- specs and schemas ------------------------------------------------------------------------------------------------


@VERSIONS
def test_expire_specs_schemas(tmp_path: Path, version: int):
    aged = Aged.create(tmp_path, version)
    kit = aged.kit
    wider = Schema(*kit.metadata.schema().fields, NestedField(4, "note", StringType(), required=False), schema_id=1)
    aged.append("a", spec=1)
    kit.update(AddSchemaUpdate(schema=wider), SetCurrentSchemaUpdate(schema_id=-1))
    both = aged.append("b", spec=2)
    kit.default_spec(3)
    aged.commit(DeleteFiles(RemovedFiles.of(kit.path("a"))))
    kept = aged.table.expire_snapshots().older_than(aged.now_ms)
    assert (kept.plan().expiry.spec_ids, kept.plan().expiry.schema_ids) == ((), ()), "only when asked for"
    plan = kept.clean_expired_metadata().plan()
    assert (plan.expiry.spec_ids, plan.expiry.schema_ids) == ((0,), (0,)), "the tombstone of a still names spec 1"
    done = kept.clean_expired_metadata().execute()
    assert (done.spec_ids, done.schema_ids, both in done.snapshot_ids) == ((0,), (0,), True)
    metadata = kit.metadata
    assert {s.spec_id for s in metadata.partition_specs} == {1, 2, 3} and metadata.default_spec_id == 3
    assert [s.schema_id for s in metadata.schemas] == [1] and aged.table.verify(data=False).is_sound
    kit.__dict__.pop("specs", None)
    aged.commit(Append(kit.data("c", spec=2)))
    assert aged.table.expire_snapshots().older_than(aged.now_ms).clean_expired_metadata().execute().spec_ids == (1,)
    assert kit.names() == {"b", "c"} and aged.on_disk() | {"data/c.parquet"} == aged.in_use()


def test_schemas_that_type_a_spec_or_an_equality_delete_stay(aged: Aged):
    """A column that was dropped still types what old specs and delete files say about it."""
    kit = aged.kit
    aged.append("a")
    equal = kit.equality("eq", equality_ids=[3])
    aged.commit(RowDelta(added_deletes=equal), equal)
    kit.default_spec(2)
    kit.update(
        AddSchemaUpdate(schema=Schema(NestedField(1, "id", LongType(), required=True), schema_id=1)),
        SetCurrentSchemaUpdate(schema_id=-1),
    )
    aged.append("b", spec=2)
    plan = aged.table.expire_snapshots().older_than(aged.now_ms).clean_expired_metadata().plan()
    assert plan.expiry.schema_ids == () and plan.expiry.spec_ids == (1, 3)
    done = aged.table.expire_snapshots().older_than(aged.now_ms).clean_expired_metadata().execute()
    assert done.summary.startswith("2 snapshots and 2 specs expired")
    assert aged.table.scan("id > 0").plan().files.spec_ids() == [0, 2]


# --- others at the same time ------------------------------------------------------------------------------------------


def test_expire_gc_disabled(aged: Aged):
    aged.append("a")
    aged.append("b")
    aged.kit.set(**{"gc.enabled": "false"})
    before = aged.on_disk()
    for run in (aged.table.expire_snapshots().plan, aged.table.expire_snapshots().execute):
        with pytest.raises(UserError, match=r"db\.t: its property gc\.enabled is false"):
            run()
    assert aged.on_disk() == before


def test_an_append_meanwhile_is_looked_at_again(aged: Aged):
    ids = [aged.append(name) for name in "abc"]
    aged.before_swap.append(lambda: aged.append("d"))
    done = aged.table.expire_snapshots().older_than(aged.now_ms + 10 * DAY).execute()
    assert done.attempts == 2 and done.snapshot_ids == tuple(ids), "what was the head is now an old snapshot"
    assert aged.kit.names() == set("abcd") and aged.on_disk() == aged.in_use()


def test_a_tag_put_on_an_old_snapshot_meanwhile_keeps_it(aged: Aged):
    ids = [aged.append(name) for name in "abc"]
    aged.before_swap.append(lambda: aged.kit.branch("precious", ids[0], "tag"))
    done = aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert (done.snapshot_ids, done.attempts) == ((ids[1],), 2)
    assert "precious" in aged.kit.metadata.refs and aged.on_disk() == aged.in_use()


def test_a_rollback_meanwhile_keeps_what_it_went_back_to(aged: Aged):
    ids = [aged.append(name) for name in "abc"]
    aged.before_swap.append(lambda: aged.table.rollback(ids[0]))
    aged.table.expire_snapshots().older_than(aged.now_ms + 10 * DAY).execute()
    assert aged.kit.head_id == ids[0] and aged.kit.names() == {"a"} and aged.on_disk() == aged.in_use()


def test_a_snapshot_that_somebody_else_expired_meanwhile_is_no_error(aged: Aged):
    ids = [aged.append(name) for name in "abc"]
    aged.before_swap.append(lambda: aged.kit.expire(ids[1]))
    done = aged.table.expire_snapshots().snapshot_ids(ids[0], ids[1]).execute()
    assert done.snapshot_ids == (ids[0],) and aged.snapshot_ids == [ids[2]]


def test_nothing_is_deleted_when_the_answer_is_lost(aged: Aged):
    aged.append("a")
    aged.append("b")
    before, kit = aged.on_disk(), aged.kit

    def lost() -> Any:
        base = kit.metadata
        raise MaybeSwapped("The answer was lost.", ("db", "t"), base, "elsewhere", None, ())

    aged.before_swap.append(lost)
    with pytest.raises(CommitUnknown):
        aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert aged.on_disk() == before and len(aged.snapshot_ids) == 2


def test_a_table_of_a_server_expires_too(tmp_path: Path):
    kit = Kit.create(tmp_path / "lake")
    for name in "abc":
        kit.ok(Append(kit.data(name), fast=True))
    with rest_server(kit.catalog) as server:
        catalog = open_catalog("rest", type="rest", uri=server.uri)
        table = neve.Lake(catalog).table("db.t")
        done = table.expire_snapshots().older_than(datetime.now(UTC)).execute()
    assert len(done.snapshot_ids) == 2 and len(done.deleted.lists) == 2
    assert len(kit.metadata.snapshots) == 1 and kit.names() == set("abc")
    assert len([f for f in kit.files_on_disk() if "/snap-" in f]) == 1


def test_files_of_a_snapshot_that_is_staged_meanwhile_stay(tmp_path: Path):
    """A server checks branches and tags; a snapshot without a name is added under an expiry that does not know it."""
    aged = Aged.create(tmp_path)
    first = aged.append("a")
    aged.commit(Overwrite(removed=removed(aged.kit.data("a"))))
    aged.append("b")

    def stage(handler: Any, method: str, path: str) -> bool:
        if method == "POST" and path.endswith("/tables/t"):
            server.fault, metadata = None, aged.kit.metadata
            number = {"sequence_number": metadata.last_sequence_number + 1, "timestamp_ms": aged.now_ms}
            staged = metadata.snapshot_by_id(first).model_copy(update={"snapshot_id": 77, **number})
            aged.kit.update(AddSnapshot(snapshot=staged))
        return False

    with rest_server(aged.kit.catalog) as server:
        table = neve.Lake(open_catalog("rest", type="rest", uri=server.uri)).table("db.t")
        server.fault = stage
        table.expire_snapshots().older_than(aged.now_ms).execute()
    assert 77 in aged.snapshot_ids and first not in aged.snapshot_ids
    assert aged.in_use() <= aged.on_disk()


def test_a_file_that_lives_on_under_another_spelling_stays(aged: Aged):
    aged.append("a")
    aged.commit(Overwrite(removed=removed(aged.kit.data("a"))))
    aged.commit(Append(aged.kit.data("a", file_path=aged.kit.path("a").replace("file:///", "file:/")), fast=True))
    aged.append("b")
    done = aged.table.expire_snapshots().older_than(aged.now_ms).execute()
    assert len(done.snapshot_ids) == 3 and not done.deleted.data_files
    assert local(aged.kit.path("a")).exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda e: e.retain_last(0), "last 0 snapshots"),
        (lambda e: e.older_than("yesterday"), "older_than as a datetime"),
    ],
)
def test_wrong_input_is_refused(aged: Aged, wrong: Any, says: str):
    with pytest.raises(UserError, match=says):
        wrong(aged.table.expire_snapshots())

"""Others commit while a compaction runs: groups they did not touch land as they are, the others are planned again.

The other writer comes right before the checks of a commit, or while groups are being rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neve import Table
from neve.errors import CommitConflict
from tests.support.compaction_tables import ALL, COLUMNS, NEWEST, PARTIAL, VERSIONS, WITH_DELETES, Place, some_rows
from tests.support.coverage import on_versions
from tests.support.tables import (
    append,
    delete_equal,
    delete_rows,
    deletes_of,
    files_of,
    head,
    ids_of,
    per_partition,
    rows_of,
)


def three(place: Place, version: int = NEWEST, files: int = 4) -> Table:
    """Files in each of the regions a, b and c; the ids of b are from 100 on."""

    def make() -> Table:
        table = place.create(version, by=["region"])
        for file in range(files):
            append(table, [r for n in range(3) for r in some_rows(100 * n + 10 * file, 5, "abc"[n])])
        return table

    return place.again((version, files), make)


def snapshots_of(table: Table) -> dict[str, set[int]]:
    """By which snapshots the files of each region were added."""
    files = files_of(table)
    found: dict[str, set[int]] = {}
    for i, snapshot_id in enumerate(files["snapshot_id"].to_pylist()):
        found.setdefault(files.partition_key(i).values[0], set()).add(snapshot_id)
    return found


@on_versions(*WITH_DELETES)
def test_only_the_group_that_lost_is_rewritten_again(place: Place, version: int):
    table = three(place, version)
    expected = [i for i in ids_of(table) if i != 112]
    done: list[Any] = []

    def meanwhile(progress: Any) -> None:
        if not done:
            done.append(delete_rows(place.other(table), 112))

    result = table.rewrite_data_files().options(ALL).on_progress(meanwhile).execute()
    first, second = result.snapshot_ids
    assert snapshots_of(table) == {"a": {first}, "b": {second}, "c": {first}}
    assert (result.races, len(result.groups), result.files_rewritten, result.files_added) == (1, 3, 12, 3)
    assert ids_of(table) == expected and not len(deletes_of(table)) and table.verify().is_sound
    assert not place.left_behind(table)


def test_groups_of_the_same_partition_are_not_drawn_into_a_race(place: Place):
    """With rewrite-all every file is a candidate again: what has just been written, and what comes next, is left."""
    table = three(place)
    files = table.scan(columns=["id", "_file"]).to_arrow(engine="arrow").to_pylist()
    (hit,) = {row["_file"] for row in files if row["id"] == 112}
    options = {**ALL, **PARTIAL, "max-file-group-input-files": 2, "partial-progress.max-commits": 1}
    rewrite = table.rewrite_data_files().where("region = 'b'").options(options)
    groups = [set(g.files["file_path"].to_pylist()) for g in rewrite.plan().groups]
    assert [len(g) for g in groups] == [2, 2] and sum(hit in g for g in groups) == 1
    place.interrupt(lambda: delete_rows(place.other(table), 112))
    result = rewrite.execute()
    assert (result.races, len(result.snapshot_ids), result.files_rewritten) == (1, 2, 4)
    assert per_partition(table)[0, ("b",)] == 2
    assert {len(s) for s in snapshots_of(table).values()} == {4, 2}
    assert 112 not in ids_of(table) and len(ids_of(table)) == 59


def test_every_group_may_lose_once(place: Place):
    """A race in each of two commits: both groups are planned again, one after the other."""
    table = three(place)
    other = place.other(table)
    place.interrupt(lambda: delete_rows(other, 112), lambda: delete_rows(other, 212))
    result = table.rewrite_data_files().options(ALL).execute()
    assert len(snapshots_of(table)["a"]) == 1 and result.files_rewritten == 12
    assert len({group.group_id for group in result.groups}) == len(result.groups) == 3
    assert set(ids_of(table)) & {112, 212} == set() and len(ids_of(table)) == 58
    assert per_partition(table) == {(0, (c,)): 1 for c in "abc"} and table.verify().is_sound


def test_a_race_that_is_lost_again_and_again_is_given_up(place: Place):
    table = three(place)
    table.set_properties(**{"neve.commit.reruns": "1"})
    other = place.other(table)
    acts = [lambda i=i: delete_rows(other, i) for i in (100, 110)]
    retried, others = None, None  # what lost its swap is checked again, then the rest of the batch lands
    place.interrupt(acts[0], retried, others, acts[1])
    with pytest.raises(CommitConflict, match="Run it again later"):
        table.rewrite_data_files().options(ALL).execute()
    assert per_partition(table) == {(0, ("a",)): 1, (0, ("b",)): 4, (0, ("c",)): 1}
    assert len(ids_of(table)) == 58 and not place.left_behind(table) and table.verify().is_sound


@on_versions(*VERSIONS)
def test_a_file_that_was_rewritten_meanwhile_is_left_to_the_other(place: Place, version: int):
    """A copy-on-write update took one of four files: the other three are compacted without it."""
    table = three(place, version)
    other = place.other(table).set_properties(**{"write.update.mode": "copy-on-write"})
    place.interrupt(lambda: other.update().set("note", "'new'").where("id = 112").execute())
    result = table.rewrite_data_files().where("region = 'b'").options(ALL).execute()
    assert (result.races, result.files_rewritten, per_partition(table)[0, ("b",)]) == (1, 3, 2)
    notes = table.scan("id = 112").to_arrow(engine="arrow")["note"].to_pylist()
    assert notes == ["new"] and len(ids_of(table)) == 60 and not place.left_behind(table)


MEANWHILE: dict[str, Callable[[Table], Any]] = {
    "compacted": lambda other: other.rewrite_data_files().options(ALL).execute(),
    "updated": lambda other: other.update().set("note", "'new'").where("id = 112").execute(),
}


@pytest.mark.parametrize("how", MEANWHILE)
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@on_versions(*WITH_DELETES)
def test_rows_of_a_file_that_a_delete_empties_do_not_live_on_in_a_copy(place: Place, version: int, mode: str, how: str):
    """All five rows of a file match, which only reading it shows: it leaves without a delete file that names it."""
    table = three(place, version)
    modes = {f"write.{command}.mode": mode for command in ("delete", "update")}
    other = place.other(table).set_properties(**modes)
    place.interrupt(lambda: MEANWHILE[how](other))
    result = table.refresh().delete().where("id IN (110, 111, 112, 113, 114)").execute()
    assert (result.rows_deleted, result.reruns) == (5, 1)
    assert not set(ids_of(table)) & set(range(110, 115)) and len(ids_of(table)) == 55


@on_versions(*WITH_DELETES)
def test_without_the_starting_number_an_equality_delete_is_a_race(place: Place, version: int):
    """New files would be younger than the delete, and its rows come back."""
    table = three(place, version)
    place.interrupt(lambda: delete_equal(place.other(table), 112, partition=["b"]))
    rewrite = table.rewrite_data_files().where("region = 'b'").options(ALL)
    result = rewrite.option("use-starting-sequence-number", False).execute()
    assert result.races == 1 and 112 not in ids_of(table) and len(ids_of(table)) == 59
    numbers = [
        f["sequence_number"] for f in files_of(table).columns.to_pylist() if f["snapshot_id"] == head(table).snapshot_id
    ]
    assert numbers == [head(table).sequence_number]


def _another_schema(table: Table) -> None:
    with table.evolve_schema() as change:
        change.rename_column("amount", "price")
        change.delete_column("note")


HARMLESS: dict[str, Callable[[Table], Any]] = {
    "another partition": lambda t: delete_rows(t, 3),
    "an append": lambda t: append(t, some_rows(900, 2, "b")),
    "another spec": lambda t: t.evolve_partitions(add=["bucket(2, id)"]),
    "another schema": _another_schema,
    "rewritten manifests": lambda t: t.rewrite_manifests().execute(),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_does_not_touch_the_files_is_in_nobodys_way(place: Place, what: str):
    table = three(place)
    place.interrupt(lambda: HARMLESS[what](place.other(table)))
    result = table.rewrite_data_files().where("region = 'b'").options(ALL).execute()
    assert result.races == 0 and place.interruption.acts == []
    expected = {"another partition": 59, "an append": 62}.get(what, 60)
    assert len(ids_of(table)) == expected and table.verify().is_sound
    assert per_partition(table)[0, ("b",)] == (2 if what == "an append" else 1)


def _swapped_names(table: Table) -> None:
    for old, new in (("note", "aside"), ("remark", "note"), ("aside", "remark")):
        with table.refresh().evolve_schema() as change:
            change.rename_column(old, new)


@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "in place"])
@pytest.mark.parametrize("what", ["names swapped", "another spec"])
def test_batches_after_a_lost_race_go_by_the_table_they_were_planned_on(place: Place, what: str, is_sorted: bool):
    """The first batch loses a race to a table with another schema or spec; the second keeps to the plan of all."""
    table = place.create(NEWEST, by=["region"], columns=f"{COLUMNS}, remark string")
    for n in range(2):
        append(table, [r | {"remark": f"remark {r['id']}"} for r in some_rows(100 * n, 5, "ab"[n])])
    before = _by_id(table, "note", "remark")
    rewrite = table.refresh().rewrite_data_files().options({**ALL, **PARTIAL, "partial-progress.max-commits": 2})
    rewrite = rewrite.sort("id DESC") if is_sorted else rewrite
    gone = {"a": 2, "b": 102}[rewrite.plan().groups[0].partition.values[0]]

    def meanwhile() -> None:
        other = place.other(table)
        delete_rows(other, gone)
        _swapped_names(other) if what == "names swapped" else other.refresh().evolve_partitions(add=["bucket(2, id)"])

    place.interrupt(meanwhile)
    result = rewrite.execute()
    assert (result.races, result.files_rewritten, result.failed_groups) == (1, 2, ())
    names = ["note", "remark"] if what == "another spec" else ["remark", "note"]
    assert _by_id(table, *names) == {i: values for i, values in before.items() if i != gone}
    assert table.verify().is_sound


def _by_id(table: Table, *names: str) -> dict[int, tuple[Any, ...]]:
    rows = table.refresh().scan().to_arrow(engine="arrow").to_pylist()
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


def test_the_other_writer_wins_against_a_compaction_in_no_other_way(place: Place):
    """The compaction comes first: a merge-on-read change of a row it moved is run again, and finds the row."""
    table = three(place)
    table.set_properties(**{"write.delete.mode": "merge-on-read"})
    compaction = place.other(table).rewrite_data_files().where("region = 'b'").options(ALL)
    place.interrupt(compaction.execute)
    done = table.delete().where("id = 112").execute()
    assert done.reruns == 1 and 112 not in ids_of(table) and len(ids_of(table)) == 59


def test_serializable_statements_do_not_see_a_compaction_of_other_files(place: Place):
    """What a compaction adds are no new rows, and the manifests it carries along are not its own (trap 7)."""
    table = three(place)
    before = rows_of(table)
    place.interrupt(place.other(table).rewrite_data_files().where("region = 'c'").options(ALL).execute)
    done = table.delete().where("region = 'a' AND id < 3").isolation("serializable").mode("merge-on-read").execute()
    assert done.reruns == 0 and sum((before - rows_of(table)).values()) == 3

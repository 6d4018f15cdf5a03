"""What compactions are known to get wrong, each as a whole compaction; each fails on the naive version.

The same rules at the level of single commits and plans:

1.  Shedding must count the files being added: commit/test_draft.py, a compaction that keeps its number.
2.  The starting number across specs: commit/test_rules.py, when the rows change their partition;
    commit/test_rewrite_files_scenarios.py, rewrite_spec_changed_eq_delete.
3.  Dangling by the partition alone: ops/test_remove_dangling_deletes.py, a global equality delete stays.
4.  Deletes of files that are gone: commit/test_draft.py, file-scoped deletes leave with their file;
    ops/test_remove_dangling_deletes.py, dangling_file_scoped_above_min.
5.  Phantom failures: test_commit_scenarios.py here, compact_partial_no_phantom_failures.
6.  Partitions without their spec: commit/test_rules.py, replaced partitions compare spec and tuple;
    plan/test_rewrite_scenarios.py, plan_mixed_unpartitioned.
7.  History over carried manifests: commit/test_rules.py, entries of carried manifests; test_races.py here,
    serializable statements do not see a compaction of other files.
8.  Replacing without a look at new deletes: commit/test_rules.py, a compacted file that gained deletes.
9.  A tombstone taken for a file: commit/test_rules.py, a tombstone does not count as there.
10. Delete manifests under the default spec: commit/test_draft.py, specs and kinds never mix.
11. Row ids of mixed groups: commit/test_draft.py, a rewrite after an upgrade numbers everything once;
    test_commit_scenarios.py here, compact_lineage.
"""

from __future__ import annotations

import pytest

from neve import Table
from tests.support.compaction_tables import ALL, NEWEST, VERSIONS, WITH_DELETES, Place, some_rows
from tests.support.coverage import on_versions, own
from tests.support.tables import (
    append,
    delete_equal,
    delete_rows,
    deletes_of,
    files_of,
    head,
    ids_of,
    paths_of,
    per_partition,
)

WITH_POSITIONS = on_versions(*WITH_DELETES)


def by_region(place: Place, version: int, files: int = 3) -> Table:
    def make() -> Table:
        table = place.create(version, by=["region"])
        for file in range(files):
            append(table, some_rows(10 * file, 10))
        return table

    return place.again((version, files), make)


@WITH_POSITIONS
def test_trap_1_an_equality_delete_that_came_meanwhile_is_not_shed(place: Place, version: int):
    """Naive: all live data that is kept is younger than the delete, so it goes, and row 5 comes back."""
    table = place.table(version, some_rows(0, 10), some_rows(10, 10))
    other = place.other(table)

    def meanwhile() -> None:
        delete_equal(other, 5)
        append(other, some_rows(20, 10))

    place.interrupt(meanwhile)
    result = table.rewrite_data_files().options(ALL).execute()
    assert (result.races, result.files_rewritten) == (0, 2)
    assert len(deletes_of(table)) == 1 and ids_of(table) == [i for i in range(30) if i != 5]


@pytest.mark.parametrize(("version", "how"), [*((v, "moved") for v in own("moved", WITH_DELETES)), (NEWEST, "sorted")])
def test_trap_2_an_equality_delete_of_the_old_partition_is_not_lost_when_rows_move(
    place: Place, version: int, how: str
):
    """Naive: the number is high enough, but no file is left in the partition of the delete, and row 3 comes back."""
    table = by_region(place, version)
    table.evolve_partitions(drop=["region"])
    place.interrupt(lambda: delete_equal(place.other(table), 3, spec_id=0, partition=["eu"]))
    rewrite = table.rewrite_data_files().upgrade_spec()
    result = (rewrite.sort("id") if how == "sorted" else rewrite).execute()
    assert result.races >= 1 and ids_of(table) == [i for i in range(30) if i != 3]
    assert {spec for spec, _ in per_partition(table)} == {1}


def test_trap_2_global_equality_deletes_follow_the_rows(place: Place):
    """No race: the delete of no partition applies wherever the rows go."""
    table = place.table(NEWEST, some_rows(0, 10), some_rows(10, 10))
    table.evolve_partitions(add=["region"])
    place.interrupt(lambda: delete_equal(place.other(table), 3, spec_id=0))
    result = table.rewrite_data_files().upgrade_spec().execute()
    assert result.races == 0 and ids_of(table) == [i for i in range(20) if i != 3]


@WITH_POSITIONS
def test_trap_3_a_global_equality_delete_without_data_of_its_spec_still_counts(place: Place, version: int):
    """Naive: no live data under the spec of the delete, so it is dangling, and row 12 of another spec comes back."""
    table = place.table(version, some_rows(0, 5), some_rows(5, 5))
    table.evolve_partitions(add=["region"])
    append(table, some_rows(10, 10))
    delete_equal(table, 3, 12, spec_id=0)
    rewrite = table.rewrite_data_files().upgrade_spec().option("remove-dangling-deletes", True)
    result = rewrite.execute()
    assert result.delete_files_removed == 0
    assert ids_of(table) == [i for i in range(20) if i not in (3, 12)] and len(deletes_of(table)) == 1


def test_trap_4_deletes_of_files_that_are_gone_leave(place: Place):
    """Naive: files of other regions keep the lowest number low, so that no number tells, and both deletes stay.

    A delete of the snapshot that was planned on is as old as files that take its number, and formally applies to them;
    files that take their own number leave it behind.
    """
    table = by_region(place, 2)
    delete_rows(table, 3, 6)  # names its file
    delete_rows(table, 18, by_partition=True)
    options = {**ALL, "use-starting-sequence-number": False, "remove-dangling-deletes": True}
    result = table.rewrite_data_files().where("region = 'eu'").options(options).execute()
    assert not len(deletes_of(table)) and result.delete_files_removed == 2, "one with its file, one after it"
    assert ids_of(table) == [i for i in range(30) if i not in (3, 6, 18)]


@on_versions(*VERSIONS)
def test_trap_6_equal_tuples_of_two_specs_are_two_partitions(place: Place, version: int):
    """Naive: (1) of the bucket and (1) of the number are one group, and one new file holds rows of both."""
    table = place.create(version, ["bucket(4, id)"], "id bigint, n int")
    for i in range(40):
        if i % 10 == 0:
            table.append([{"id": i + k, "n": 1} for k in range(10)])
    table.evolve_partitions(drop=["bucket(4, id)"], add=["n"])
    for i in (40, 45):
        table.append([{"id": i + k, "n": 1} for k in range(5)])
    rewrite = table.rewrite_data_files().keep_spec().options(ALL)
    assert len({(g.partition.spec_id, g.partition.values) for g in rewrite.plan().groups}) == 5
    if version > 1:  # an equality delete of one of the two is no race for the other
        rewrite = rewrite.where("n = 1").option("use-starting-sequence-number", False)
        place.interrupt(lambda: delete_equal(place.other(table), 47, spec_id=1, partition=[1]))
    result = rewrite.execute()
    assert table.verify().is_sound
    assert set(per_partition(table).values()) == {1} and {s for s, _ in per_partition(table)} == {0, 1}
    assert ids_of(table) == [i for i in range(50) if version == 1 or i != 47]
    assert result.races == (version > 1) and result.files_added == 5
    if version > 1:
        early = {
            f["spec_id"] for f in files_of(table).columns.to_pylist() if f["snapshot_id"] == result.snapshot_ids[0]
        }
        assert early == {0}, "only the group of spec 1 was in the way of the delete"


@WITH_POSITIONS
def test_trap_8_rows_deleted_while_files_are_rewritten_stay_deleted(place: Place, version: int):
    """Naive: the new files were read before the delete, and nobody looks again."""
    table = by_region(place, version)
    done: list[None] = []

    def meanwhile(progress: object) -> None:
        if not done:
            done.append(delete_rows(place.other(table), 3, 4, 5))

    table.rewrite_data_files().options(ALL).on_progress(meanwhile).execute()
    assert ids_of(table) == [i for i in range(30) if i not in (3, 4, 5)]


def test_trap_9_files_compacted_by_another_are_not_taken_for_live(place: Place):
    """Naive: the path is found in a manifest, as a tombstone, and rows are doubled."""
    table = by_region(place, NEWEST)
    place.interrupt(lambda: place.other(table).rewrite_data_files().options(ALL).execute())
    result = table.rewrite_data_files().where("region = 'eu'").options(ALL).execute()
    assert result.races == 1 and ids_of(table) == list(range(30))


@WITH_POSITIONS
def test_trap_10_deletes_that_stay_keep_their_spec(place: Place, version: int):
    """Naive: what is left of a delete manifest is written under the default spec, and deletes nothing any more."""
    table = by_region(place, version)
    delete_rows(table, 3, 4)  # eu and us, in one manifest under spec 0
    table.evolve_partitions(add=["bucket(2, id)"])
    append(table, some_rows(30, 10))
    delete_rows(table, 33)
    table.rewrite_data_files().keep_spec().where("region = 'eu' AND id < 30").options(ALL).execute()
    left = deletes_of(table)
    assert {left.partition_key(i).values[0] for i in range(len(left)) if left["spec_id"][i].as_py() == 0} == {"us"}
    assert ids_of(table) == [i for i in range(40) if i not in (3, 4, 33)] and table.verify().is_sound


def test_a_second_compaction_finds_nothing_to_do(place: Place):
    table = by_region(place, NEWEST, files=5)
    table.rewrite_data_files().execute()
    before, start = paths_of(table), head(table).snapshot_id
    assert table.rewrite_data_files().execute().summary == "nothing to rewrite"
    assert (paths_of(table), head(table).snapshot_id) == (before, start)

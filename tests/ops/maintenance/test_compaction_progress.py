"""A compaction tells how far it is, can be stopped at any time, and goes on where it was stopped."""

from __future__ import annotations

from typing import Any

import pytest

from neve import Table
from neve.ops.maintenance.rewrite_data_files import Progress
from tests.support.compaction_tables import ALL, NEWEST, PARTIAL, Place, some_rows
from tests.support.coverage import on_versions
from tests.support.tables import append, away, delete_rows, files_of, head, ids_of, per_partition, rows_of, unchanged


class Stop(BaseException):
    """Someone has had enough: no error, like an interrupt from the keyboard."""


def by_letter(place: Place, letters: str = "abcdefghij", files: int = 2, version: int = NEWEST) -> Table:
    """Two files in each of ten regions."""

    def make() -> Table:
        table = place.create(version, by=["region"])
        for file in range(files):
            append(table, [r for n, c in enumerate(letters) for r in some_rows(100 * n + 10 * file, 3, c)])
        return table

    return place.again((letters, files, version), make)


def watched(rewrite: Any) -> tuple[Any, list[Progress]]:
    told: list[Progress] = []
    return rewrite.on_progress(told.append).execute(), told


def is_steady(told: list[Progress]) -> bool:
    """Whether nothing ever goes back, and all is done in the end."""
    done = [(p.groups_done, p.bytes_done, p.seconds) for p in told]
    ends = (told[-1].groups_done, told[-1].bytes_done) == (told[-1].groups, told[-1].bytes)
    return done == sorted(done) and len({d[0] for d in done}) == len(done) and ends


def test_progress_counts_up_to_the_plan(place: Place):
    table = by_letter(place)
    rewrite = table.rewrite_data_files().option("min-input-files", 2)
    plan = rewrite.plan()
    result, told = watched(rewrite)
    assert is_steady(told) and len(told) == 2, "ten groups are two waves on two cores"
    assert {(p.groups, p.bytes) for p in told} == {(10, plan.bytes)}
    assert result.bytes_rewritten == told[-1].bytes_done


def test_sorted_groups_are_told_one_by_one(place: Place):
    table = by_letter(place)
    rewrite = table.rewrite_data_files().where("region < 'd'").options(ALL).sort("id")
    _, told = watched(rewrite.option("max-concurrent-file-group-rewrites", 2))
    assert [p.groups_done for p in told] == [1, 2, 3] and is_steady(told)


def test_groups_that_fail_are_through_as_well(place: Place):
    table = by_letter(place, "abc")
    broken = next(p for p in files_of(table)["file_path"].to_pylist() if "region=b/" in p)
    with away(broken):
        result, told = watched(
            table.rewrite_data_files().options({**ALL, **PARTIAL, "partial-progress.max-commits": 1})
        )
    assert len(result.failed_groups) == 1 and is_steady(told) and told[-1].groups == 3


def test_a_group_that_is_rewritten_again_counts_again(place: Place):
    table = by_letter(place, "abc")
    place.interrupt(lambda: delete_rows(place.other(table), 101))
    result, told = watched(table.rewrite_data_files().options(ALL))
    assert result.races == 1 and is_steady(told)
    assert [p.groups for p in told] == [3, 4]


# --- cancelling ---


@pytest.mark.parametrize(("how", "error"), [("in_place", Stop), ("sorted", Stop), ("moved", RuntimeError)])
def test_a_compaction_that_is_stopped_leaves_the_table_as_it_was(place: Place, how: str, error: type[BaseException]):
    table = by_letter(place)
    rewrite = table.rewrite_data_files().options(ALL)
    if how == "sorted":
        rewrite = rewrite.sort("id").where("region < 'e'")
    if how == "moved":
        table.evolve_partitions(add=["bucket(2, id)"])

    def enough(progress: Progress) -> None:
        raise error("enough")

    with unchanged(table), pytest.raises(error, match="enough"):
        rewrite.on_progress(enough).execute()


def test_batches_committed_before_a_stop_stay(place: Place):
    table = by_letter(place, "abc")
    before = rows_of(table)

    def enough(progress: Progress) -> None:
        if progress.groups_done == 2:
            raise Stop("enough")

    rewrite = table.rewrite_data_files().options({**ALL, **PARTIAL, "partial-progress.max-commits": 3})
    with pytest.raises(Stop):
        rewrite.on_progress(enough).execute()
    assert per_partition(table) == {(0, ("a",)): 1, (0, ("b",)): 2, (0, ("c",)): 2}
    assert rows_of(table) == before and not place.left_behind(table) and table.verify().is_sound


# --- going on ---


@on_versions(1, NEWEST)
def test_an_upgrade_of_the_spec_goes_on_where_it_was_left(place: Place, version: int):
    """One partition fails at first; the second run takes what is left under the old spec and nothing else."""
    table = by_letter(place, "abc", version=version)
    table.evolve_partitions(drop=["region"])
    before = rows_of(table)
    rewrite = table.rewrite_data_files().upgrade_spec().options({**PARTIAL, "partial-progress.max-commits": 3})
    broken = next(p for p in files_of(table)["file_path"].to_pylist() if "region=b/" in p)
    with away(broken):
        first = rewrite.execute()
    assert [g.partition.values for g in first.failed_groups] == [("b",)] and len(first.snapshot_ids) == 2
    done = {p for p in files_of(table)["file_path"].to_pylist() if "region=b/" not in p}
    plan = rewrite.plan()
    assert [g.partition.values for g in plan.groups] == [("b",)] and plan.files == 2
    second = rewrite.execute()
    assert (second.files_rewritten, second.failed_groups) == (2, ())
    assert {spec for spec, _ in per_partition(table)} == {1} and rows_of(table) == before
    assert done <= set(files_of(table)["file_path"].to_pylist()), "what was done is not done again"
    assert rewrite.plan().is_empty and rewrite.execute().snapshot_ids == ()


def test_a_file_limit_leaves_the_rest_for_the_next_run(place: Place):
    table = by_letter(place, "abc")
    ids, start = ids_of(table), head(table).snapshot_id
    result = table.rewrite_data_files().options({**ALL, "max-files-to-rewrite": 3}).execute()
    assert result.files_rewritten == 3 and len(files_of(table)) == 5
    assert ids_of(table) == ids and head(table).parent_snapshot_id == start

"""Compactions by scenario: what is committed when groups or commits fail, or others get in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neve import Table
from neve.commit.actions import Append
from neve.errors import CommitConflict, CommitUnknown, TableError, UnknownName
from neve.ops.context import TableContext
from neve.ops.maintenance.rewrite_run import _batches
from tests.support.compaction_tables import NEWEST, PARTIAL, VERSIONS, WITH_DELETES, Place, some_rows
from tests.support.coverage import on_versions
from tests.support.metadata_tables import Kit, plus
from tests.support.tables import (
    append,
    away,
    delete_equal,
    delete_rows,
    deletes_of,
    files_of,
    head,
    ids_of,
    lineage_of,
    local,
    on_disk,
    paths_of,
    per_partition,
    rows_of,
    summary_of,
    unchanged,
)

EVERY_VERSION = on_versions(*VERSIONS)
AT_ONCE = {"neve.commit.reruns": "0"}


def by_region(place: Place, version: int, regions: int = 3, files: int = 5) -> Table:
    """Some files in each of the regions a, b, c…; ids of region n are from 100 n on."""

    def make() -> Table:
        table = place.create(version, by=["region"])
        for file in range(files):
            append(table, [r for n in range(regions) for r in some_rows(100 * n + 10 * file, 10, "abcdefghij"[n])])
        return table

    return place.again(("by_region", version, regions, files), make)


def sound(table: Table) -> bool:
    audit = table.verify()
    assert audit.is_sound, str(audit)
    return True


def path_in(table: Table, region: str) -> str:
    """A data file of a region."""
    files = files_of(table)
    return next(p for i, p in enumerate(files["file_path"].to_pylist()) if files.partition_key(i).values == (region,))


# --- partial progress ---


def test_compact_partial_progress(place: Place):
    table = by_region(place, NEWEST, regions=5)
    before, snapshots = rows_of(table), len(table.context.metadata.snapshots)
    rewrite = table.rewrite_data_files().options(PARTIAL).option("partial-progress.max-commits", 3)
    result = rewrite.execute()
    assert len(result.snapshot_ids) == len(table.refresh().context.metadata.snapshots) - snapshots == 3
    assert (len(result.groups), result.files_rewritten, result.files_added) == (5, 25, 5)
    assert rows_of(table) == before and set(per_partition(table).values()) == {1}


@on_versions(1, NEWEST)
def test_compact_partial_group_failure(place: Place, version: int):
    table = by_region(place, version)
    before, broken = rows_of(table), path_in(table, "b")
    with away(broken):
        result = table.rewrite_data_files().options({**PARTIAL, "partial-progress.max-commits": 1}).execute()
        assert not place.left_behind(table)
    (failed,) = result.failed_groups
    assert (failed.partition.values, failed.files_rewritten, failed.files_added) == (("b",), 5, 0)
    assert Path(broken).name in failed.failure
    assert [g.partition.values for g in result.groups] == [("a",), ("c",)]
    assert (result.files_failed, result.files_rewritten, result.failed_commits) == (5, 10, 0)
    assert per_partition(table) == {(0, ("a",)): 1, (0, ("b",)): 5, (0, ("c",)): 1}
    assert rows_of(table) == before and sound(table)


def always_hit(place: Place, table: Table, *ids: int) -> None:
    """Have the other writer delete a row of the first commit's files whenever it is about to be checked."""
    place.interrupt(*(lambda i=i: delete_rows(place.other(table), i) for i in ids))


def test_compact_partial_commit_failure(place: Place):
    """The batch of a is lost; those of b and c land."""
    table = by_region(place, NEWEST)
    table.set_properties(**AT_ONCE)
    inputs = {p for p in paths_of(table) if "region=a/" in p}
    always_hit(place, table, 5)
    result = table.rewrite_data_files().options({**PARTIAL, "partial-progress.max-commits": 3}).execute()
    assert (result.failed_commits, len(result.snapshot_ids), result.files_failed) == (1, 2, 5)
    (failed,) = result.failed_groups
    assert failed.partition.values == ("a",) and "gained deletes" in failed.failure
    assert inputs <= paths_of(table) and not place.left_behind(table)
    assert 5 not in ids_of(table) and len(ids_of(table)) == 149 and sound(table)


@pytest.mark.parametrize("options", [PARTIAL, {}], ids=["partial", "whole"])
def test_a_commit_that_breaks_leaves_no_file_and_does_not_end_partial_progress(place: Place, options: dict[str, str]):
    table = by_region(place, NEWEST)
    inputs = paths_of(table)

    def breaks() -> None:
        raise TableError("The storage is full.")

    place.interrupt(breaks)
    rewrite = table.rewrite_data_files().options({**options, "partial-progress.max-commits": 3})
    if not options:
        with pytest.raises(TableError, match="full"):
            rewrite.execute()
        assert paths_of(table) == inputs and not place.left_behind(table)
        return
    result = rewrite.execute()
    assert (result.failed_commits, len(result.snapshot_ids), result.files_failed) == (1, 2, 5)
    assert "full" in result.failed_groups[0].failure
    assert per_partition(table) == {(0, ("a",)): 5, (0, ("b",)): 1, (0, ("c",)): 1}
    assert not place.left_behind(table) and sound(table)


def test_compact_partial_max_failed(place: Place):
    table = by_region(place, NEWEST)
    table.set_properties(**AT_ONCE)
    options = {**PARTIAL, "partial-progress.max-commits": 3, "partial-progress.max-failed-commits": 1}
    always_hit(place, table, 5, 105, 205)
    with pytest.raises(CommitConflict, match=r"gave up: 2 batches failed"):
        table.rewrite_data_files().options(options).execute()
    assert set(per_partition(table).values()) == {5} and not place.left_behind(table)


def test_compact_partial_no_phantom_failures(place: Place, tmp_path: Path):
    """70 groups and 20 commits are 18 batches of 4: the 2 commits that were not needed did not fail."""
    kit = Kit.create(tmp_path)
    kit.ok(Append(plus(*(kit.data(f"{n}-{m}", region=f"r{n}") for n in range(70) for m in range(2)))))
    planned = Table(TableContext(kit.catalog, kit.table, lambda: None))  # type: ignore[arg-type, return-value]
    options = {**PARTIAL, "min-input-files": 2}
    plan = planned.rewrite_data_files().options({**options, "partial-progress.max-commits": 20}).plan()
    batches = [len(batch) for batch in _batches(plan)]
    assert (len(plan.groups), len(batches), sum(batches)) == (70, 18, 70)

    table = by_region(place, NEWEST, regions=7, files=2)
    result = table.rewrite_data_files().options({**options, "partial-progress.max-commits": 5}).execute()
    assert (len(result.snapshot_ids), result.failed_commits, result.failed_groups) == (4, 0, ())


# --- failures ---


@pytest.mark.parametrize("how", ["in_place", "sorted", "moved"])
def test_compact_single_failure_cleans(place: Place, how: str):
    """Groups that were written before the one that fails are deleted again."""
    table = by_region(place, NEWEST, regions=10, files=2)
    broken = path_in(table, "j")
    rewrite = table.rewrite_data_files().option("min-input-files", 2)
    if how == "sorted":
        rewrite = rewrite.sort("id").where("region in ('a', 'b', 'j')")
    if how == "moved":
        table.evolve_partitions(add=["bucket(2, id)"])
    with unchanged(table), away(broken):
        files = on_disk(table)
        with pytest.raises(Exception, match=Path(broken).name):
            rewrite.execute()
        assert on_disk(table) == files


@pytest.mark.parametrize("how", ["landed", "lost"])
def test_compact_state_unknown(place: Place, how: str):
    """The catalog does not answer: the new files are kept, since the table may have them."""
    table = by_region(place, NEWEST)
    before, files = rows_of(table), on_disk(table)
    place.catalog.forgets = how
    try:
        with pytest.raises(CommitUnknown, match="Cannot tell whether the compaction landed"):
            table.rewrite_data_files().execute()
    finally:
        place.catalog.forgets, place.catalog.lost = None, False
    assert len(on_disk(table) - files) == 3
    assert rows_of(table) == before and sound(table)
    assert len(paths_of(table)) == (3 if how == "landed" else 15)


def test_compact_commit_conflict_message(place: Place):
    table = by_region(place, NEWEST)
    table.set_properties(**AT_ONCE)
    hit: list[tuple[int, str]] = []

    def delete() -> None:
        other = place.other(table)
        delete_rows(other, 105)
        (path,) = deletes_of(other)["referenced_data_file"].to_pylist()
        hit.append((head(other).snapshot_id, path))

    place.interrupt(delete)
    with pytest.raises(CommitConflict) as failure:
        table.rewrite_data_files().where("region = 'b'").execute()
    ((snapshot, path),) = hit
    assert str(snapshot) in str(failure.value) and path in str(failure.value)
    (conflict,) = failure.value.conflicts
    assert (conflict.snapshot_id, conflict.files, conflict.spec_ids) == (snapshot, (path,), (0,))
    assert not place.left_behind(table)


# --- beside others ---


@EVERY_VERSION
def test_compact_concurrent_append(place: Place, version: int):
    table = by_region(place, version)
    place.interrupt(lambda: append(place.other(table), some_rows(900, 10, "b")))
    result = table.rewrite_data_files().execute()
    assert result.races == 0 and ids_of(table)[-10:] == list(range(900, 910)) and len(ids_of(table)) == 160
    assert per_partition(table) == {(0, ("a",)): 1, (0, ("b",)): 2, (0, ("c",)): 1} and sound(table)


@on_versions(*WITH_DELETES)
def test_compact_concurrent_position_delete(place: Place, version: int):
    """Planned again, the group leaves the deleted row out; without a second plan it does not land."""
    table = by_region(place, version)
    expected = [i for i in ids_of(table) if i != 105]
    place.interrupt(lambda: delete_rows(place.other(table), 105))
    result = table.rewrite_data_files().where("region = 'b'").execute()
    assert (result.races, result.files_rewritten, len(result.snapshot_ids)) == (1, 5, 1)
    assert ids_of(table) == expected and sound(table)
    assert per_partition(table)[0, ("b",)] == 1 and not place.left_behind(table)


@on_versions(*WITH_DELETES)
def test_compact_concurrent_equality_delete(place: Place, version: int):
    table = by_region(place, version)
    start = head(table).sequence_number
    expected = [i for i in ids_of(table) if i != 105]
    place.interrupt(lambda: delete_equal(place.other(table), 105, partition=["b"]))
    result = table.rewrite_data_files().where("region = 'b'").execute()
    assert (result.races, result.files_rewritten) == (0, 5)
    assert ids_of(table) == expected and len(deletes_of(table)) == 1 and sound(table)
    new = [r for r in files_of(table).columns.to_pylist() if r["snapshot_id"] == result.snapshot_ids[0]]
    assert [r["sequence_number"] for r in new] == [start]


@pytest.mark.parametrize("reruns", ["0", "3"])
def test_compact_concurrent_compaction(place: Place, reruns: str):
    """The first to commit wins; the other fails, or finds nothing left to do, and leaves no file behind."""
    table = by_region(place, NEWEST)
    table.set_properties(**{"neve.commit.reruns": reruns})
    before = rows_of(table)
    place.interrupt(lambda: place.other(table).rewrite_data_files().where("region = 'b'").execute())
    rewrite = table.rewrite_data_files().where("region = 'b'")
    if reruns == "0":
        with pytest.raises(CommitConflict, match="F"):
            rewrite.execute()
    else:
        result = rewrite.execute()
        assert (result.races, result.snapshot_ids, result.groups) == (1, (), ())
    assert rows_of(table) == before and not place.left_behind(table) and sound(table)
    assert per_partition(table)[0, ("b",)] == 1


# --- what it is told, and tells ---


def test_compact_special_chars(place: Place):
    columns = "`a b` bigint, `c.d` string, `é-ü` double, `x``y` string, `100%` int"
    name = ("db", "we ird-täble")
    table = place.theirs.create_table(name, columns, ["`c.d`", "bucket(2, `a b`)"], format_version=NEWEST)
    for n in range(6):
        table.append([{"a b": n, "c.d": "p/q=r s%", "é-ü": n / 2, "x`y": "y" * n, "100%": n}])
    before = rows_of(table)
    mine = place.mine.table(name)
    result = (
        mine.rewrite_data_files().where("`c.d` = 'p/q=r s%' AND `a b` >= 0").options({"min-input-files": 2}).execute()
    )
    assert result.files_rewritten == 6 and rows_of(mine) == before and sound(mine)
    mine.rewrite_data_files().option("rewrite-all", True).sort("`é-ü` DESC", "bucket(3, `a b`)").verify_rows().execute()
    assert rows_of(mine) == before and sound(mine)


def test_compact_snapshot_properties(place: Place):
    table = by_region(place, 2)
    options = {**PARTIAL, "partial-progress.max-commits": 2}
    rewrite = table.rewrite_data_files().options(options).snapshot_property("why", "tidy").snapshot_property("who", "é")
    for snapshot_id in rewrite.execute().snapshot_ids:
        said = table.refresh().context.metadata.snapshot_by_id(snapshot_id).summary
        assert (said["why"], said["who"], said.operation.value) == ("tidy", "é", "replace")
    with unchanged(table), pytest.raises(Exception, match="operation"):
        table.rewrite_data_files().snapshot_property("operation", "append").execute()


@on_versions(1, NEWEST)
def test_compact_branch(place: Place, version: int):
    """Rows of the branch alone are compacted to the branch alone."""
    table = by_region(place, version)
    table.create_branch("audit")
    table.append(some_rows(500, 10, "a"), branch="audit")
    main, audit, start = head(table).snapshot_id, rows_of(table, "audit"), paths_of(table)
    result = table.rewrite_data_files().branch("audit").execute()
    assert head(table).snapshot_id == main and paths_of(table) == start
    assert head(table, "audit").snapshot_id == result.snapshot_ids[-1]
    assert rows_of(table, "audit") == audit and len(paths_of(table, "audit")) == 3 and sound(table)


def test_compact_branch_unknown(place: Place):
    table = by_region(place, NEWEST)
    with unchanged(table), pytest.raises(UnknownName, match="adit"):
        table.rewrite_data_files().branch("adit").execute()


def test_compact_table_without_snapshot(place: Place):
    table = place.create(NEWEST)
    with unchanged(table):
        result = table.rewrite_data_files().sort("id").verify_rows().execute()
    assert (result.summary, result.snapshot_ids) == ("nothing to rewrite", ())


LIVES: dict[str, Callable[[Place], Table]] = {
    "from_version_3": lambda place: _lived(place, 3, None),
    "upgraded_before_the_last_append": lambda place: _lived(place, 2, 3),
    "upgraded_after_the_last_append": lambda place: _lived(place, 2, 6),
    "from_version_1": lambda place: _lived(place, 1, 3),
}


def _lived(place: Place, version: int, upgraded_at: int | None) -> Table:
    table = place.create(version)
    for n in range(6):
        if n == upgraded_at:
            table.upgrade(NEWEST)
        append(table, some_rows(10 * n, 10, "eu"))
    return table.upgrade(NEWEST) if upgraded_at == 6 else table


@pytest.mark.parametrize(
    ("life", "how"),
    [
        *((life, "in_place") for life in LIVES),
        ("from_version_3", "sorted"),
        ("upgraded_before_the_last_append", "moved"),
    ],
)
def test_compact_lineage(place: Place, life: str, how: str):
    """Each row keeps its id and number through two compactions, also where a group mixes files with and without ids."""
    table = place.again(life, lambda: LIVES[life](place))
    if table.context.metadata.format_version >= 3 and life != "upgraded_after_the_last_append":
        delete_rows(table, 33)
    before = lineage_of(table)
    rewrite = table.rewrite_data_files()
    if how == "sorted":
        rewrite = rewrite.sort("id DESC")
    if how == "moved":
        table.evolve_partitions(add=["bucket(2, id)"])
    rewrite.execute()
    after = lineage_of(table)
    ids = [row_id for row_id, _ in after.values()]
    assert None not in ids and len(set(ids)) == len(after) == len(before)
    if life == "upgraded_after_the_last_append":
        assert {row_id for row_id, _ in before.values()} == {None}, "no commit has numbered the rows yet"
    else:
        assert after == before
    append(table, some_rows(60, 5, "eu"))
    new = {i: of for i, of in lineage_of(table).items() if i >= 60}
    assert not {row_id for row_id, _ in new.values()} & set(ids)
    assert sound(table)


def test_compact_case_insensitive_filter(place: Place):
    table = by_region(place, NEWEST)
    rewrite = table.rewrite_data_files().where("REGION = 'a'")
    with unchanged(table), pytest.raises(UnknownName, match="REGION"):
        rewrite.execute()
    assert rewrite.case_sensitive(False).execute().files_rewritten == 5
    assert per_partition(table)[0, ("a",)] == 1


@EVERY_VERSION
def test_compact_summary_counts(place: Place, version: int):
    table = by_region(place, version)
    if version > 1:
        delete_rows(table, 5, 17)
    result = table.rewrite_data_files().execute()
    said, files = summary_of(table), files_of(table).columns.to_pylist()
    assert said["deleted-data-files"] == str(result.files_rewritten) == "15"
    assert said["added-data-files"] == str(result.files_added) == "3"
    assert said["removed-files-size"] >= str(result.bytes_rewritten) if version > 2 else True
    assert said["added-files-size"] == str(result.bytes_added) == str(sum(f["file_size_in_bytes"] for f in files))
    assert said["deleted-records"] == str(sum(g.rows_before for g in result.groups)) == "150"
    assert said["added-records"] == said["total-records"] == ("150" if version == 1 else "148")
    assert said["total-data-files"] == "3"
    assert [(g.group_id, g.index_in_partition, g.files_added) for g in result.groups] == [(n, 0, 1) for n in range(3)]
    assert result.summary == "15 files rewritten to 3 in 3 groups"
    assert result.bytes_rewritten == sum(g.bytes_rewritten for g in result.groups)
    assert all(local(f["file_path"]).stat().st_size == f["file_size_in_bytes"] for f in files)

"""Delete files are replaced by fewer, by vectors, or by positions, and the same rows are deleted as before."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest

from neve import Table
from neve.commit.actions import RemovedFiles, RewriteFiles
from neve.errors import CorruptFile, UserError
from neve.io.deletion_vectors import PositionSet
from neve.ops.maintenance.rewrite_position_deletes import _positions_not_live
from neve.run.read.tasks import with_ordinals
from neve.tree.entries import Content, EntryTable
from tests.support.compaction_tables import WITH_DELETES, Place, some_rows
from tests.support.coverage import on_versions
from tests.support.tables import (
    append,
    commit_to,
    delete_equal,
    delete_rows,
    deletes_of,
    files_of,
    head,
    ids_of,
    lineage_of,
    local,
    rows_of,
    summary_of,
    unchanged,
)

MANY = {"min-input-files": 2}


def two_regions(place: Place, version: int) -> Table:
    """Four rows in each of two partitions, two files each."""
    files = [some_rows(at, 4, region) for at, region in ((0, "eu"), (4, "eu"), (8, "us"), (12, "us"))]
    return place.table(version, *files, by=["region"])


@pytest.mark.parametrize("by_partition", [True, False], ids=["by partition", "by file"])
def test_posdel_compact(place: Place, by_partition: bool) -> None:
    table = two_regions(place, 2)
    table.context.iceberg.transaction().set_properties({"write.delete.granularity": "partition"}).commit_transaction()
    for i in (0, 1, 4, 5):
        delete_rows(table, i, by_partition=by_partition)
    before = rows_of(table)
    result = table.refresh().rewrite_position_deletes().options(MANY).execute()
    assert (result.delete_files_removed, result.delete_files_added) == (4, 1)
    assert rows_of(table) == before
    assert summary_of(table)["operation"] == "replace"
    assert table.verify().is_sound


@on_versions(*WITH_DELETES)
def test_posdel_filter(place: Place, version: int) -> None:
    table = place.again("old deletes", lambda: _with_old_deletes(place))
    if version > 2:
        table.upgrade(format_version=version)
    before = rows_of(table)
    plan = table.rewrite_position_deletes().options(MANY).where("region = 'eu'").plan()
    assert {plan.replaced.partition_key(i).values for i in range(len(plan.replaced))} == {("eu",)}
    old = set(deletes_of(table)["file_path"].to_pylist())
    table.rewrite_position_deletes().options(MANY).where("region = 'eu'").execute()
    left = set(deletes_of(table)["file_path"].to_pylist())
    assert old - left == set(plan.replaced["file_path"].to_pylist())
    assert len(old & left) == 2
    assert rows_of(table) == before


def test_posdel_drops_dead_rows(place: Place) -> None:
    table = two_regions(place, 2)
    delete_rows(table, 0, 4, by_partition=True)
    delete_rows(table, 1, 5, by_partition=True)
    table.rewrite_data_files().where("region = 'us'").options({"rewrite-all": True}).execute()
    table.rewrite_data_files().where("region = 'eu'").options(
        {"rewrite-all": True, "max-files-to-rewrite": 1}
    ).execute()
    before = rows_of(table)
    table.rewrite_position_deletes().options({"rewrite-all": True}).execute()
    deletes = deletes_of(table)
    live = set(table.inspect.files()["file_path"].to_pylist())
    assert sum(deletes["record_count"].to_pylist()) == 2
    assert set(deletes["referenced_data_file"].to_pylist()) <= live
    assert rows_of(table) == before


@pytest.mark.parametrize("change", [{"add": ["bucket(2, id)"]}, {"drop": ["region"]}], ids=["added", "removed"])
def test_posdel_spec_add_remove(place: Place, change: dict[str, list[str]]) -> None:
    table = two_regions(place, 2)
    delete_rows(table, 0)
    delete_rows(table, 1)
    table.refresh().evolve_partitions(**change)
    append(table, some_rows(16, 4, "eu"))
    delete_rows(table.refresh(), 16)
    before, specs = rows_of(table), set(deletes_of(table)["spec_id"].to_pylist())
    table.refresh().rewrite_position_deletes().option("rewrite-all", True).execute()
    assert rows_of(table) == before
    assert set(deletes_of(table)["spec_id"].to_pylist()) == specs == {0, 1}
    assert table.verify().is_sound


def test_posdel_max_number(place: Place) -> None:
    table = two_regions(place, 2)
    delete_rows(table, 0)
    delete_rows(table, 1)
    newest = max(deletes_of(table)["sequence_number"].to_pylist())
    append(table, some_rows(20, 1, "eu"))
    table.refresh().rewrite_position_deletes().options(MANY).execute()
    assert deletes_of(table)["sequence_number"].to_pylist() == [newest]
    assert newest < head(table).sequence_number


def _with_old_deletes(place: Place) -> Table:
    table = two_regions(place, 2)
    for i in (0, 4, 8, 12):
        delete_rows(table, i, by_partition=i in (0, 8))
    return table


def test_posdel_to_vectors(place: Place) -> None:
    table = place.again("old deletes", lambda: _with_old_deletes(place))
    table.upgrade(format_version=3)
    before = rows_of(table)
    result = table.rewrite_position_deletes().execute()
    deletes = deletes_of(table)
    assert set(deletes["file_format"].to_pylist()) == {"PUFFIN"}
    assert (result.delete_files_removed, result.delete_files_added, len(deletes)) == (4, 4, 4)
    assert rows_of(table) == before
    assert table.verify().is_sound
    with unchanged(table):
        assert table.rewrite_position_deletes().execute().summary == "nothing to rewrite"


@on_versions(*WITH_DELETES)
def test_equality_deletes_become_positions(place: Place, version: int) -> None:
    """Partition-scoped ones, those of an unpartitioned spec which reach everywhere, and files newer than they are."""
    table = two_regions(place, version)
    delete_rows(table, 2)
    delete_equal(table, 0, 8, spec_id=0, partition=["eu"])  # 8 is in the other partition and stays
    table.evolve_partitions(drop=["region"])
    delete_equal(table, 5, 9, 30)
    append(table, some_rows(30, 2, "eu"))  # newer than the delete: 30 stays
    before, lineage = rows_of(table), lineage_of(table) if version > 2 else None
    assert ids_of(table) == [1, 3, 4, 6, 7, 8, *range(10, 16), 30, 31]
    table.rewrite_position_deletes().equality_deletes().options(MANY).execute()
    deletes = deletes_of(table)
    assert not len(deletes.of_content(Content.EQUALITY_DELETES))
    assert rows_of(table) == before
    assert lineage is None or lineage_of(table) == lineage
    assert table.verify().is_sound


@pytest.mark.parametrize("version", WITH_DELETES)
def test_a_file_with_positions_only_may_come_before_one_with_equality_deletes(place: Place, version: int) -> None:
    """Rows are counted by the number of a file in the whole plan, and the files with equality deletes are a part."""
    table = place.table(2, some_rows(0, 4))
    delete_equal(table, 2)
    append(table, some_rows(10, 4))
    delete_rows(table.refresh(), 10)
    if version > 2:
        table.refresh().upgrade(format_version=version)
    rewrite = table.refresh().rewrite_position_deletes().equality_deletes().option("rewrite-all", True)
    assert [_ids_in(rewrite.plan().scan.files.take([at])) for at in (0, 1)] == [[10, 11, 12, 13], [0, 1, 2, 3]]
    rewrite.execute()
    assert ids_of(table) == [0, 1, 3, 11, 12, 13]
    assert not len(deletes_of(table).of_content(Content.EQUALITY_DELETES)) and table.verify().is_sound


def test_live_rows_of_no_known_file_are_never_taken_for_dead(place: Place) -> None:
    files = with_ordinals(files_of(place.table(2, some_rows(0, 4), some_rows(10, 4))))
    live = {0: PositionSet.of([0, 3]), 1: PositionSet.of([1])}
    assert [list(dead.positions()) for dead in _positions_not_live(files, live)] == [[1, 2], [0, 2, 3]]
    for wrong in ({2: PositionSet.of([0])}, {1: PositionSet.of([4])}):
        with pytest.raises(CorruptFile, match="4 rows"):
            _positions_not_live(files, live | wrong)


@on_versions(*WITH_DELETES)
def test_a_compaction_that_keeps_an_old_number_meanwhile_brings_nothing_back(place: Place, version: int) -> None:
    """Its files are older than the equality delete that is about to go, and hold the rows it deletes."""
    table = two_regions(place, version)
    start, old = head(table), files_of(table).take([0])
    [row] = [i for i in (0, 4, 8, 12) if i in _ids_in(old)]
    delete_equal(table, row, spec_id=0, partition=[old.partition_key(0).values[0]])
    want = ids_of(table)
    copy = f"{old['file_path'][0].as_py()}.copy.parquet"
    shutil.copy(local(old["file_path"][0].as_py()), local(copy))
    action = RewriteFiles(
        removed_data=RemovedFiles(old),
        added_data=old.with_columns(file_path=copy),
        data_sequence_number=start.sequence_number,
        start_snapshot_id=start.snapshot_id,
    )
    theirs = place.other(table)
    place.interrupt(lambda: commit_to(theirs, action))
    result = table.refresh().rewrite_position_deletes().equality_deletes().execute()
    assert result.reruns == 1
    assert ids_of(table) == want
    assert not len(deletes_of(table).of_content(Content.EQUALITY_DELETES))


def _ids_in(file: EntryTable) -> list[int]:
    return list(pq.read_table(local(file["file_path"][0].as_py()))["id"].to_pylist())


def test_options_of_other_verbs_are_refused(place: Place) -> None:
    table = two_regions(place, 2)
    with pytest.raises(UserError, match="rewrite_data_files"):
        table.rewrite_position_deletes().option("delete-ratio-threshold", 0.5)
    with pytest.raises(UserError, match="min-input-files"):
        table.rewrite_position_deletes().option("min-input-file", 2)


def test_a_table_without_deletes_or_snapshot_has_nothing_to_rewrite(place: Place) -> None:
    empty = place.create(2)
    assert empty.rewrite_position_deletes().plan().is_empty
    with unchanged(empty):
        assert empty.rewrite_position_deletes().equality_deletes().execute().snapshot_id is None


def test_deletes_that_lie_one_beside_each_data_file_are_as_they_should_be(place: Place) -> None:
    table = place.table(2, *(some_rows(10 * n, 4) for n in range(6)))
    for n in range(6):
        delete_rows(table, 10 * n)
    assert len(deletes_of(table)) == 6
    assert table.refresh().rewrite_position_deletes().plan().is_empty
    assert len(table.refresh().rewrite_position_deletes().option("rewrite-all", True).plan().replaced) == 6
    for n in range(6):
        delete_rows(table, 10 * n + 1)
    result = table.refresh().rewrite_position_deletes().execute()
    assert (result.delete_files_removed, result.delete_files_added) == (12, 6)
    assert table.refresh().rewrite_position_deletes().plan().is_empty

"""Compactions by scenario: the rows stay the same, whatever specs, deletes and sizes the files have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from neve import Table
from neve.errors import UnknownName, UserError
from tests.peers.known_bugs import witnesses
from tests.peers.readers import for_peers
from tests.support.compaction_tables import ALL, NEWEST, REGIONS, VERSIONS, WITH_DELETES, Place, some_rows
from tests.support.coverage import on_versions, own
from tests.support.spark_oracle import multiset
from tests.support.tables import (
    append,
    delete_equal,
    delete_rows,
    deletes_of,
    files_of,
    head,
    ids_of,
    live_entries,
    on_disk,
    parquet_rows,
    paths_of,
    per_partition,
    rows_of,
    summary_of,
    unchanged,
)

EVERY_VERSION = on_versions(*VERSIONS)


def compacted(table: Table, rewrite: Any = None) -> Any:
    """Run a compaction, and check what holds for every one: the same rows, and a sound table."""
    before, columns = rows_of(table), table.schema
    result = (rewrite or table.rewrite_data_files()).execute()
    assert rows_of(table) == before
    assert table.schema == columns
    audit = table.verify()
    assert audit.is_sound, str(audit)
    return result


def six_files(place: Place, version: int, **options: Any) -> Table:
    return place.table(version, *(some_rows(10 * n, 10) for n in range(6)), **options)


@EVERY_VERSION
def test_compact_unpartitioned(place: Place, version: int):
    table = six_files(place, version)
    before = parquet_rows(table)
    result = compacted(table)
    assert (result.files_rewritten, result.files_added, len(paths_of(table))) == (6, 1, 1)
    assert parquet_rows(table) == before
    shown = for_peers(table)
    for name, read in witnesses(shown).items():
        assert multiset(read(shown)) == before, name
    assert summary_of(table)["operation"] == "replace"


@EVERY_VERSION
def test_compact_partitioned(place: Place, version: int):
    table = six_files(place, version, by=["region"])
    result = compacted(table)
    assert per_partition(table) == {(0, (region,)): 1 for region in REGIONS}
    assert [g.partition.values for g in result.groups] == [("asia",), ("eu",), ("us",)]
    assert table.rewrite_data_files().plan().is_empty, "done once is done"


def test_compact_where_partition(place: Place):
    table = six_files(place, NEWEST, by=["region"])
    result = compacted(table, table.rewrite_data_files().where("region = 'eu'"))
    assert per_partition(table) == {(0, ("eu",)): 1, (0, ("us",)): 6, (0, ("asia",)): 6}
    assert [g.partition.values for g in result.groups] == [("eu",)]


def test_compact_where_non_partition_column(place: Place):
    """One row matches in each of two files: all 20 rows of both are kept, and no other file is touched."""
    table = six_files(place, 2)
    before = paths_of(table)
    rewrite = table.rewrite_data_files().where("id = 7 OR id = 52").option("min-input-files", 2)
    result = compacted(table, rewrite)
    assert (result.files_rewritten, len(paths_of(table) & before)) == (2, 4)
    assert summary_of(table)["added-records"] == summary_of(table)["deleted-records"] == "20"


def test_compact_where_bucket_expression(place: Place):
    """Files of other buckets may be taken, because no column compares with the function; none is left out."""
    table = six_files(place, 2, by=["bucket(4, id)"])
    rewrite = table.rewrite_data_files().where("bucket(4, id) = 1 AND id < 30").option("min-input-files", 2)
    chosen = rewrite.plan().reasons().filter(pc.field("is_chosen"))["file_path"].to_pylist()
    files = files_of(table)
    first = {p for i, p in enumerate(files["file_path"].to_pylist()) if files.partition_key(i).values == (1,)}
    needed = {p for p in first if min(ids_in(table, p)) < 30}
    assert needed and needed <= set(chosen)
    compacted(table, rewrite)


def ids_in(table: Table, path: str) -> list[int]:
    found = table.scan(columns=["id", "_file"]).to_arrow(engine="arrow")
    return found.filter(pc.equal(found["_file"], path))["id"].to_pylist()


def test_compact_where_false_true(place: Place):
    table = six_files(place, NEWEST)
    with unchanged(table):
        result = table.rewrite_data_files().where("false").execute()
    assert (result.snapshot_ids, result.summary) == ((), "nothing to rewrite")
    compacted(table, table.rewrite_data_files().where("true"))
    assert len(paths_of(table)) == 1


HISTORIES = {
    "none_then_region": ((), {"add": ["region"]}),
    "region_then_bucket": (["region"], {"drop": ["region"], "add": ["bucket(2, id)"]}),
    "region_then_both": (["region"], {"add": ["bucket(2, id)"]}),
    "region_then_none": (["region"], {"drop": ["region"]}),
}


@pytest.mark.parametrize(
    ("version", "history"), [(1, "region_then_none"), (2, "region_then_bucket"), *((NEWEST, h) for h in HISTORIES)]
)
def test_compact_after_spec_change(place: Place, version: int, history: str):
    by, change = HISTORIES[history]
    table = six_files(place, version, by=by)
    table.evolve_partitions(**change)
    compacted(table)
    assert {spec for spec, _ in per_partition(table)} == {table.context.metadata.default_spec_id}
    wanted = {"none_then_region": 3, "region_then_bucket": 2, "region_then_both": 6, "region_then_none": 1}[history]
    assert len(per_partition(table)) == wanted
    assert rows_fit_their_partition(table)


def rows_fit_their_partition(table: Table) -> bool:
    """Whether the audit, which computes every tuple anew from the rows, finds nothing wrong."""
    return table.verify(data=True).is_sound


def two_specs(place: Place, version: int) -> Table:
    """Five files by region under spec 0, then five by region and bucket under spec 1."""

    def make() -> Table:
        table = place.table(version, *(some_rows(10 * n, 10, "eu") for n in range(5)), by=["region"])
        table.evolve_partitions(add=["bucket(2, id)"])
        for n in range(5, 10):
            append(table, some_rows(10 * n, 10, "eu"))
        return table

    return place.again(("two_specs", version), make)


@EVERY_VERSION
def test_compact_keep_spec(place: Place, version: int):
    table = two_specs(place, version)
    result = compacted(table, table.rewrite_data_files().keep_spec())
    assert per_partition(table) == {(0, ("eu",)): 1, (1, ("eu", 0)): 1, (1, ("eu", 1)): 1}
    assert [(g.partition.spec_id, g.files_rewritten) for g in result.groups] == [(0, 5), (1, 5), (1, 5)]


def test_compact_output_spec_older(place: Place):
    table = two_specs(place, 2)
    compacted(table, table.rewrite_data_files().option("output-spec-id", 0))
    assert {spec for spec, _ in per_partition(table)} == {0}
    assert rows_fit_their_partition(table)


def test_compact_output_spec_unknown(place: Place):
    table = two_specs(place, 2)
    with unchanged(table), pytest.raises(UnknownName, match=r"partition spec.* 7"):
        table.rewrite_data_files().option("output-spec-id", 7).execute()


@on_versions(1, NEWEST)
def test_compact_output_unpartitioned(place: Place, version: int):
    """Version 1 keeps a void field where the region was; both are one partition of all rows."""
    table = six_files(place, version, by=["region"])
    table.evolve_partitions(drop=["region"])
    table.evolve_partitions(add=["bucket(2, id)"])
    assert table.context.specs.is_unpartitioned(1) and table.context.metadata.default_spec_id == 2
    compacted(table, table.rewrite_data_files().option("output-spec-id", 1))
    assert {spec for spec, _ in per_partition(table)} == {1}


# --- deletes ---


@pytest.mark.parametrize("by_partition", [False, True], ids=["of_a_file", "of_a_partition"])
def test_compact_position_deletes_applied(place: Place, by_partition: bool):
    table = six_files(place, 2)
    delete_rows(table, 3, 17, 18, by_partition=by_partition)
    compacted(table)
    said = summary_of(table)
    assert (said["added-records"], said["deleted-records"]) == ("57", "60")
    (path,) = paths_of(table)
    assert set(ids_in(table, path)) == set(range(60)) - {3, 17, 18}


@on_versions(3, NEWEST)
def test_compact_vectors_applied_and_removed(place: Place, version: int):
    table = six_files(place, version, by=["region"])
    delete_rows(table, 3, 17, 18)
    assert len(deletes_of(table)) == 3
    result = compacted(table)
    assert len(result.snapshot_ids) == 1 and result.snapshot_ids[0] == head(table).snapshot_id
    assert not len(deletes_of(table)), "they leave in the same commit"
    assert summary_of(table)["removed-dvs"] == "3"
    assert len(parquet_rows(table)) == 57


@on_versions(*WITH_DELETES)
def test_compact_all_rows_deleted(place: Place, version: int):
    """The partition has no file any more, and no file was written for it."""
    table = six_files(place, version, by=["region"])
    delete_rows(table, *(i for i in range(60) if REGIONS[i % 3] == "eu"))
    before = on_disk(table)
    result = compacted(table, table.rewrite_data_files().where("region = 'eu'"))
    assert (result.files_rewritten, result.files_added, on_disk(table)) == (6, 0, before)
    assert set(per_partition(table)) == {(0, ("us",)), (0, ("asia",))}


@on_versions(*WITH_DELETES)
def test_compact_dangling_position_after_spec_change(place: Place, version: int):
    """The rows move to another spec, the deletes of their old partition stay behind and apply to nothing.

    Files of other partitions keep the lowest number of live data low, so that no number tells.
    """
    table = six_files(place, version, by=["region"])
    delete_rows(table, 3, 18, by_partition=True)
    table.evolve_partitions(add=["bucket(2, id)"])
    snapshots = len(table.context.metadata.snapshots)
    rewrite = table.rewrite_data_files().upgrade_spec().where("region = 'eu'").option("remove-dangling-deletes", True)
    result = compacted(table, rewrite)
    assert not len(deletes_of(table))
    made = len(table.context.metadata.snapshots) - snapshots
    assert (made, result.delete_files_removed) == ((2, 2) if version == 2 else (1, 0))


@on_versions(*WITH_DELETES)
def test_compact_dangling_equality_after_spec_change(place: Place, version: int):
    table = six_files(place, version, by=["region"])
    delete_equal(table, 3, 6, partition=["eu"])
    table.evolve_partitions(drop=["region"])
    append(table, some_rows(60, 1))
    rewrite = table.rewrite_data_files().upgrade_spec().option("use-starting-sequence-number", False)
    compacted(table, rewrite.option("remove-dangling-deletes", True))
    assert not len(deletes_of(table))
    assert ids_of(table) == sorted(set(range(61)) - {3, 6})


@on_versions(*WITH_DELETES)
def test_compact_dangling_global_equality_kept(place: Place, version: int):
    """No data is left under the unpartitioned spec of the delete, and it still applies to a file of another spec."""
    table = place.table(version, *(some_rows(10 * n, 10) for n in range(5)))
    table.evolve_partitions(add=["region"])
    append(table, some_rows(50, 10, "eu"))
    delete_equal(table, 4, 55, spec_id=0)
    rewrite = table.rewrite_data_files().upgrade_spec().option("remove-dangling-deletes", True)
    compacted(table, rewrite)
    assert {spec for spec, _ in per_partition(table)} == {1}
    assert len(deletes_of(table)) == 1
    assert ids_of(table) == sorted(set(range(60)) - {4, 55})


# --- numbers and sizes ---


@pytest.mark.parametrize(("version", "keeps"), [*((v, True) for v in own("starts", WITH_DELETES)), (NEWEST, False)])
def test_compact_starting_number(place: Place, version: int, keeps: bool):
    table = six_files(place, version)
    start = head(table).sequence_number
    compacted(table, table.rewrite_data_files().option("use-starting-sequence-number", keeps))
    (file,) = live_entries(table).columns.to_pylist()
    assert file["sequence_number"] == (start if keeps else start + 1)
    assert file["file_sequence_number"] == start + 1 == head(table).sequence_number


def test_compact_v1(place: Place):
    table = six_files(place, 1, by=["region"])
    compacted(table, table.rewrite_data_files().option("use-starting-sequence-number", True))
    assert table.iceberg.metadata.format_version == 1
    assert set(live_entries(table)["sequence_number"].to_pylist()) == {0}


SMALL_ROW_GROUPS = {"write.parquet.row-group-size-bytes": str(40 << 10)}  # a file is split between row groups


def wide_rows(start: int, number: int) -> pa.Table:
    """Rows of about 100 bytes each that no codec makes smaller."""
    values = pc.random(number * 12, initializer=start).to_numpy().tobytes().hex()
    notes = [values[at : at + 180] for at in range(0, 180 * number, 180)]
    ids = list(range(start, start + number))
    return pa.table({"id": ids, "region": ["eu"] * number, "amount": [0.5] * number, "note": notes[:number]})


@on_versions(2, NEWEST)
def test_compact_split_large(place: Place, version: int):
    table = place.create(version, properties=SMALL_ROW_GROUPS)
    table.append(wide_rows(0, 8000))
    (size,) = files_of(table)["file_size_in_bytes"].to_pylist()
    target = size // 4
    compacted(table, table.rewrite_data_files().option("target-file-size-bytes", target))
    sizes = files_of(table)["file_size_in_bytes"].to_pylist()
    assert len(sizes) in (4, 5)
    assert all(0.5 * target < s < 1.8 * target for s in sizes), (target, sizes)
    assert table.rewrite_data_files().option("target-file-size-bytes", target).plan().is_empty


def test_compact_mix(place: Place):
    table = place.create(2, properties=SMALL_ROW_GROUPS)
    table.append(wide_rows(0, 8000))
    for n in range(4):
        table.append(wide_rows(8000 + 500 * n, 500))
    target = max(files_of(table)["file_size_in_bytes"].to_pylist()) // 3
    compacted(table, table.rewrite_data_files().option("target-file-size-bytes", target))
    sizes = files_of(table)["file_size_in_bytes"].to_pylist()
    assert len(sizes) in (3, 4)
    assert max(sizes) < 2 * min(sizes), sizes
    assert ids_of(table) == list(range(10_000))


def test_a_strategy_a_spec_mode_and_an_output_spec_are_chosen_once(place: Place):
    rewrite = two_specs(place, 2).rewrite_data_files()
    for build in (
        lambda: rewrite.sort("id").zorder("id", "amount"),
        lambda: rewrite.keep_spec().upgrade_spec(),
        lambda: rewrite.keep_spec().option("output-spec-id", 0).plan(),
    ):
        with pytest.raises(UserError, match="Choose one"):
            build()


def test_options_of_rewrite_all_choose_every_file(place: Place):
    table = two_specs(place, 2)
    assert table.rewrite_data_files().options(ALL).plan().files == 15

"""Rows counted and summed up before and after: reported for each group, and what differs is never committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neve import Table
from neve.errors import TableError
from neve.run.row_checksum import Checksum
from neve.run.spark.rewrite import RewriteJob, RewrittenGroups
from tests.ops.maintenance.test_order_scenarios import typed_table
from tests.support.compaction_tables import ALL, NEWEST, PARTIAL, Place, some_rows
from tests.support.coverage import on_versions
from tests.support.tables import append, delete_equal, delete_rows, per_partition, rows_of, unchanged


def by_region(place: Place) -> Table:
    """Version 2, whose files hold nothing but the columns; deletes of both kinds."""

    def make() -> Table:
        table = place.create(2, by=["region"])
        for n in range(3):
            append(table, some_rows(30 * n, 30))
        delete_rows(table, 3, 17)
        delete_equal(table, 30, 33, partition=["eu"])
        return table

    return place.again("by_region", make)


def sum_of(table: Table, region: str) -> str:
    """The sum of the live rows of a region, read beside any compaction."""
    rows = table.scan(f"region = '{region}'").to_arrow(engine="arrow")
    return str(Checksum.of_batches(rows.to_batches()))


def test_the_sum_of_every_group_is_that_of_its_live_rows(place: Place):
    table = by_region(place)
    before = {region: sum_of(table, region) for region in ("eu", "us", "asia")}
    result = table.rewrite_data_files().options(ALL).verify_rows().execute()
    assert {g.partition.values[0]: g.checksum for g in result.groups} == before
    assert before["eu"].startswith("27 rows") and before["us"].startswith("30 rows")
    assert {region: sum_of(table, region) for region in before} == before
    again = table.rewrite_data_files().options(ALL).sort("amount").verify_rows().execute()
    assert {g.partition.values[0]: g.checksum for g in again.groups} == before


def test_groups_that_move_together_have_one_sum(place: Place):
    table = by_region(place)
    whole = str(Checksum.of_batches(table.scan().to_arrow(engine="arrow").to_batches()))
    table.evolve_partitions(drop=["region"], add=["bucket(2, id)"])
    result = table.rewrite_data_files().upgrade_spec().verify_rows().execute()
    assert [g.checksum for g in result.groups] == [whole] * 3


def test_nothing_is_summed_up_unless_asked(place: Place):
    result = by_region(place).rewrite_data_files().where("region = 'us'").options(ALL).execute()
    assert [g.checksum for g in result.groups] == [None]


@on_versions(2, NEWEST)
def test_rows_of_every_type_are_found_the_same(place: Place, version: int):
    """No false alarm: rows as read, as Spark hands them on, and as the new files hold them, give one sum."""
    table = typed_table(place, version)
    first = table.rewrite_data_files().verify_rows().execute()
    second = table.rewrite_data_files().options(ALL).sort("s").verify_rows().execute()
    assert first.groups[0].checksum == second.groups[0].checksum


def with_wrong_sums(monkeypatch: pytest.MonkeyPatch, region: str, **wrong: Any) -> None:
    """Have the rewriting of one region find other rows than there were."""
    honest = RewriteJob.rewrite_in_place

    def in_place(self: RewriteJob, groups: Any) -> list[RewrittenGroups]:
        made = honest(self, groups)
        return [replace(m, **wrong) if m.groups[0].partition.values == (region,) else m for m in made]

    monkeypatch.setattr(RewriteJob, "rewrite_in_place", in_place)


@pytest.mark.parametrize(
    "wrong",
    [
        {"checksum_after": Checksum(30, 1)},  # a value is another
        {"checksum_before": Checksum(29, 1), "checksum_after": Checksum(29, 1)},  # a row was not read: the sums agree
    ],
    ids=["changed", "unread"],
)
def test_a_difference_is_refused_and_leaves_the_table_as_it_was(place: Place, monkeypatch: Any, wrong: Any):
    table = by_region(place)
    with_wrong_sums(monkeypatch, "us", **wrong)
    with unchanged(table), pytest.raises(TableError, match=r"differ before .* and after"):
        table.rewrite_data_files().options(ALL).verify_rows().execute()


def test_with_partial_progress_only_the_group_that_differs_is_left(place: Place, monkeypatch: pytest.MonkeyPatch):
    table = by_region(place)
    before = rows_of(table)
    with_wrong_sums(monkeypatch, "us", checksum_after=Checksum(30, 1))
    result = table.rewrite_data_files().options({**ALL, **PARTIAL}).verify_rows().execute()
    assert [g.partition.values for g in result.failed_groups] == [("us",)]
    assert "differ" in result.failed_groups[0].failure
    assert per_partition(table) == {(0, ("asia",)): 1, (0, ("eu",)): 1, (0, ("us",)): 3}
    assert rows_of(table) == before and not place.left_behind(table)

"""What a table needs is found, done in the order it pays, and a second look finds nothing."""

from __future__ import annotations

import pytest

from neve import Table
from neve.errors import UserError
from tests.support.compaction_tables import Place, some_rows
from tests.support.tables import append, delete_equal, delete_rows, deletes_of, files_of, rows_of

VERBS = {
    "rewrite_position_deletes",
    "rewrite_data_files",
    "upgrade_spec",
}


def neglected(place: Place, version: int) -> Table:
    """Small files under two specs, deletes of two kinds, and a compaction that was never finished."""
    batches = [*(some_rows(4 * n, 4, "eu") for n in range(6)), some_rows(200, 4, "asia")]
    table = place.table(version, *batches, by=["region"])
    delete_equal(table, 3, 9, spec_id=0, partition=["eu"])
    delete_rows(table, 1)
    table.refresh().evolve_partitions(add=["bucket(2, id)"])
    for n in range(6, 8):
        append(table.refresh(), some_rows(4 * n, 4, "us"))
    return table.refresh()


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_neglected_table_is_put_right_and_needs_nothing_then(place: Place, version: int) -> None:
    table = neglected(place, version)
    before = rows_of(table)
    plan = table.maintain().plan()
    assert {step.verb for step in plan.steps} >= VERBS
    (upgrade,) = [step for step in plan.steps if step.verb == "upgrade_spec"]
    assert upgrade.why.startswith("1 file, "), "compaction takes the others, and brings them to the current spec"
    of_files = [s.pays for s in plan.steps if s.verb in VERBS]
    assert of_files == sorted(of_files, reverse=True)
    assert all(s.verb in VERBS for s in plan.steps[: len(of_files)]), "manifests come after the files they list"
    result = table.maintain().execute()
    assert [verb for verb, _ in result.results] == [s.verb for s in plan.steps]
    assert rows_of(table) == before
    assert not len(deletes_of(table))
    assert set(files_of(table)["spec_id"].to_pylist()) == {1}
    assert table.refresh().maintain().plan().is_empty, table.maintain().explain()


def test_a_budget_of_bytes_leaves_out_what_does_not_fit(place: Place) -> None:
    table = neglected(place, 2)
    least = min(s.bytes_read for s in table.maintain().plan().steps)
    plan = table.maintain().budget(bytes=least).plan()
    assert sum(s.bytes_read for s in plan.steps) <= least
    assert plan.left_out
    assert "beyond the budget" in plan.explain()


def test_a_budget_of_seconds_that_is_used_up_starts_nothing_more(place: Place) -> None:
    table = neglected(place, 2)
    result = table.maintain().budget(seconds=1e-9).execute()
    assert not result.results
    assert result.not_done


def test_a_budget_of_nothing_is_refused(place: Place) -> None:
    with pytest.raises(UserError, match="0 bytes"):
        place.create(2).maintain().budget(bytes=0)


def test_a_table_without_snapshot_needs_nothing(place: Place) -> None:
    assert place.create(2).maintain().explain() == "nothing to do"

"""Notebook output of tables, plans and results: small, escaped, without scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.expressions import AlwaysTrue

import neve
from neve.display.html import replace_unprintable
from neve.ops.maintenance.expire_snapshots import ExpireResult
from neve.ops.maintenance.maintain import MaintenancePlan, MaintenanceResult, Proposal
from neve.ops.results import GroupResult, MergeResult, RewriteResult, UpdateResult, WriteResult
from neve.plan.partition_filter import FilterStats
from neve.plan.row_change import ChangePlan
from tests.support.html_pages import Reading
from tests.support.report_tables import HOSTILE

SCRIPT = HOSTILE[0]


def visible_text(value: Any) -> Reading:
    html = value._repr_html_()
    assert len(html) < 20_000
    reading = Reading.of(html)
    reading.assert_harmless()
    assert not reading.all("script") and not reading.all("style")
    return reading


def test_a_table_shows_its_name_size_and_columns(old: neve.Table):
    text = visible_text(old).text()
    for expected in ("shop.sales", "856 data files", "version 2, 3 specs", "id_bucket_16 (bucket[16])", "price double"):
        assert expected in text


def test_an_empty_table_is_shown_too(tmp_path: Path):
    table = neve.connect(tmp_path).create_table("db.new", "id bigint")
    assert "nothing yet" in visible_text(table).text()


def test_names_of_a_hostile_table_are_text(hostile: neve.Table):
    assert SCRIPT in visible_text(hostile).text()


def test_plans_show_what_they_explain(hostile: neve.Table):
    scan = hostile.scan(f"`{SCRIPT}` = 'eu'").plan()
    nothing = scan.only(np.zeros(len(scan.files), bool))
    statement, everything = f"DELETE WHERE x = '{SCRIPT}'", AlwaysTrue()
    change = ChangePlan(statement, "copy-on-write", "snapshot", 2, 0, scan, nothing, False, everything, everything)
    rewrite = hostile.rewrite_data_files().plan_with_stats()
    for plan in (scan, change, rewrite.plan, rewrite, hostile.maintain().plan(), hostile.rewrite_manifests().plan()):
        reading = visible_text(plan)
        assert replace_unprintable(plan.explain().splitlines()[0])[:60] in reading.text(), plan
    assert SCRIPT in visible_text(change).text()
    assert SCRIPT in visible_text(scan).text()


def test_results_show_their_summary_and_what_they_hold():
    text = visible_text(
        UpdateResult(1 << 60, rows_updated=12_345, files_added_by_spec={2: 7}, seconds={"run": 1.5})
    ).text()
    for expected in ("UpdateResult", "12,345 rows updated", "files added by spec", "2: 7", str(1 << 60)):
        assert expected in text
    assert "rows deleted" not in text


@pytest.mark.parametrize(
    "result",
    [
        WriteResult(1, rows_added=3),
        MergeResult(None),
        RewriteResult(failed_groups=(GroupResult(1, 1, neve.PartitionKey(0, (SCRIPT,)), 3, None, failure=SCRIPT),)),
        MaintenancePlan((Proposal("verb", SCRIPT, 1, 1),)),
        MaintenanceResult((("verb", ExpireResult((1,), (SCRIPT,))),)),
        FilterStats(1, 2, 3, 4),
    ],
    ids=lambda r: type(r).__name__,
)
def test_results_of_every_verb_show(result: Any):
    assert type(result).__name__ in visible_text(result).text()


def test_what_is_long_is_cut():
    reading = visible_text(MaintenancePlan(tuple(Proposal("verb", "x" * 999, 1, 1) for _ in range(500))))
    assert "and 476 more lines" in reading.text()

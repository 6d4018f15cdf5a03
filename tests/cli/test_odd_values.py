"""Values that are difficult for Python, a terminal or JSON are shown correctly."""

from __future__ import annotations

import json
from datetime import date
from io import StringIO

import pyarrow as pa
import pytest
from rich.console import Console

import neve
from neve.cli.console import Screen
from neve.display.terminal import render_arrow_table
from neve.errors import UserError
from tests.support.command_line import Lake

TEN_THOUSAND = 2_932_897  # the days from 1970 to 10000-01-01


def rendered(table: pa.Table, width: int = 80) -> str:
    console = Console(width=width, record=True, file=StringIO())
    console.print(render_arrow_table(table, "t", width=width))
    return console.export_text()


def test_columns_of_one_name_keep_their_values(capsys: pytest.CaptureFixture[str]):
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert [cell.strip() for cell in rendered(twice).splitlines()[4].strip("│").split("│")] == ["1", "2"]
    with pytest.raises(UserError, match="two columns are called 'a'"):
        Screen(as_json=True).print_rows(twice, "t", 10)
    assert capsys.readouterr().out == ""


def test_keys_of_maps_are_text_and_nulls_in_them_show():
    kind = pa.map_(pa.string(), pa.string())
    output = rendered(pa.table({"m": pa.array([[("\x1b[31mk", "v"), ("n", None)]], kind)}))
    assert "\x1b" not in output and "[31mk=v n=·" in output


def test_maps_with_nested_keys_are_shown_and_printed(capsys: pytest.CaptureFixture[str]):
    kind = pa.map_(pa.struct([("a", pa.int32())]), pa.binary())
    table = pa.table({"m": pa.array([[({"a": 1}, b"\xff")]], kind)})
    assert "a=1=ff" in rendered(table)
    Screen(as_json=True).print_rows(table, "t", 10)
    assert json.loads(capsys.readouterr().out) == {"m": [{"key": {"a": 1}, "value": "ff"}]}


def test_keys_that_are_bytes_are_hexadecimal(capsys: pytest.CaptureFixture[str]):
    Screen(as_json=True).print_rows(pa.table({"m": pa.array([[(b"x", 1)]], pa.map_(pa.binary(), pa.int32()))}), "t", 10)
    assert json.loads(capsys.readouterr().out) == {"m": {"78": 1}}


def test_a_long_name_leaves_room_for_values():
    output = rendered(pa.table({"id": [7], "n" * 90: [8], "c": ["some words"]}))
    assert all(value in output for value in ("7", "8", "some words"))


def test_a_wide_table_without_rows_shows_that_it_is_empty():
    assert "no rows" in rendered(pa.table({f"a_long_name_{n}": pa.array([], pa.string()) for n in range(20)}))


def test_times_beyond_pythons_calendar_are_shown(lake: Lake):
    table = neve.connect(lake.folder).create_table("db.far", "id bigint, d date, ts timestamp", ["d", "hours(ts)"])
    late = pa.array([10**18], pa.timestamp("us", "UTC"))
    table.append(pa.table({"id": [1], "d": pa.array([TEN_THOUSAND], pa.date32()), "ts": late}))
    assert "10000-01-01" in lake.run("scan", "db.far").out
    assert lake.run("scan", "db.far", "--json").document == {
        "id": 1,
        "d": "10000-01-01",
        "ts": "33658-09-27T01:46:40.000000+00:00",
    }
    for view in ("overview", "manifests", "partitions", "files"):
        lake.run("inspect", "db.far", view)
    (manifest,) = table.refresh().inspect.manifests().to_pylist()
    assert [s["lower_bound"] for s in manifest["partition_summaries"]] == ["10000-01-01", "33658-09-27-01"]
    assert "d=10000-01-01" in table.report(lake.folder / "report.html").read_text()


def test_partitions_beyond_pythons_calendar_are_written_and_rewritten(lake: Lake):
    days = pa.array([4_000_000, 20_000], pa.date32())
    table = neve.connect(lake.folder).create_table(
        "db.far", "id bigint, d date", ["d", "days(d)"], properties={"write.summary.partition-limit": "10"}
    )
    for _ in range(2):
        table.append(pa.table({"id": [1, 2], "d": days}))
    summary = table.refresh().context.metadata.current_snapshot().summary.additional_properties
    assert {key for key in summary if key.startswith("partitions.")} == {
        "partitions.d=12921-08-18/d_day=12921-08-18",
        "partitions.d=2024-10-04/d_day=2024-10-04",
    }
    plan = table.rewrite_data_files().option("rewrite-all", True).plan()
    assert {g.partition.values for g in plan.groups} == {(4_000_000,) * 2, (date(2024, 10, 4),) * 2}
    table.rewrite_data_files().option("rewrite-all", True).execute()
    assert len(table.refresh().inspect.files()) == 2
    assert table.to_arrow()["d"].cast(pa.int32()).to_pylist().count(4_000_000) == 2


def test_a_view_is_cut_at_a_limit_for_programs_too(lake: Lake):
    lake.lived()
    assert len(lake.run("inspect", "db.events", "snapshots", "--json").lines) == 3
    assert len(lake.run("inspect", "db.events", "snapshots", "--json", "--limit", "1").lines) == 1
    assert "has no --limit" in lake.run("inspect", "db.events", "--limit", "1", code=2).err


def test_a_time_before_all_calendars_is_wrong_input(lake: Lake):
    lake.lived()
    assert "Cannot read the time '1000000d'" in lake.run("expire", "db.events", "--older-than", "1000000d", code=2).err


def test_the_versions_that_can_be_had_are_named(lake: Lake):
    lake.lived(version=3)
    assert "Give 4." in lake.run("upgrade", "db.events", "--to", "9", code=2).err
    lake.run("upgrade", "db.events", "--to", "4")
    assert "There is no later one." in lake.run("upgrade", "db.events", "--to", "3", code=2).err


def test_a_comment_of_a_new_column_is_kept(lake: Lake):
    lake.lived()
    lake.run("evolve", "db.events", "--add-column", "note string COMMENT 'by hand'")
    lake.run("evolve", "db.events", "--widen", "id bigint COMMENT 'key'")
    schema = lake.table().schema
    assert (schema.find_field("note").doc, schema.find_field("id").doc) == ("by hand", "key")

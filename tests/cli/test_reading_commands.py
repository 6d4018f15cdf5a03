"""Commands that read: the same words as the API, readable on a terminal, and JSON for programs."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import neve
from neve.cli import app
from neve.model.metadata_table_names import METADATA_TABLES


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("cli") / "lake"
    table = neve.connect(folder).create_table("db.events", "id bigint, region string", partition_by=["region"])
    table.append(pa.table({"id": [1, 2], "region": ["eu", "[red]\x1b[31mus"]}))
    table.create_tag("first")
    table.evolve_partitions(drop=["region"])
    table.append(pa.table({"id": [3], "region": ["eu"]}))
    return str(folder)


def run_command(*arguments: str, ok: bool = True) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == (0 if ok else 2), done.output
    return done.output


def test_tables_are_listed(lake):
    assert run_command("tables", "--lake", lake) == "db.events\n"


@pytest.mark.parametrize("view", METADATA_TABLES)
def test_every_view_is_shown_and_printed_as_json(lake, view):
    rendered = run_command("inspect", "db.events", view, "--lake", lake)
    assert f"db.events: {view}" in rendered
    rows = [
        json.loads(line) for line in run_command("inspect", "db.events", view, "--lake", lake, "--json").splitlines()
    ]
    assert len(rows) == getattr(neve.connect(lake).table("db.events").inspect, view)().num_rows


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("view", METADATA_TABLES)
def test_every_view_is_readable_in_its_width(lake, view, width, monkeypatch):
    """No line is cut, and no name, number or word is broken."""
    monkeypatch.setenv("COLUMNS", str(width))
    rendered = run_command("inspect", "db.events", view, "--lake", lake)
    assert max(map(len, rendered.splitlines())) <= width
    words = set(re.findall(r"[^\s│┃]+", rendered))
    found = getattr(neve.connect(lake).table("db.events").inspect, view)()
    for name in found.schema.names:
        assert (
            {name, f"{name},"} & words
            or all(piece in words for piece in re.findall(r"[^_]+_?", name))
            or all(value in (None, []) for value in found[name].to_pylist())
        ), name
    numbers = [str(v) for c in found.columns if pa.types.is_int64(c.type) for v in c.to_pylist() if v]
    assert set(numbers) <= words


def test_the_overview_shows_the_parts_of_the_table(lake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rendered = run_command("inspect", "db.events", "--lake", lake)
    assert max(map(len, rendered.splitlines())) <= 80
    assert re.search(r"│ 0 +│ region +│ +2 │ +2 │", rendered) and re.search(r"│ 1 \* +│ not partitioned +│", rendered)
    result = json.loads(run_command("inspect", "db.events", "--lake", lake, "--json"))
    assert result["data"]["rows"] == 3 and result["refs"].keys() == {"main", "first"} and result["snapshots"] == 2
    assert [s["data"]["files"] for s in result["specs"]] == [2, 1] and result["columns"][0]["name"] == "id"


def test_a_snapshot_can_be_looked_at(lake):
    first = neve.connect(lake).table("db.events").inspect.snapshots()["snapshot_id"][0].as_py()
    rendered = run_command("inspect", "db.events", "files", "--snapshot", str(first), "--lake", lake, "--json")
    assert len(rendered.splitlines()) == 2


def test_a_title_is_not_broken_by_a_narrow_table(lake):
    assert "db.events: specs" in run_command("inspect", "db.events", "specs", "--lake", lake).splitlines()[0]


def test_wide_rows_are_shown_one_value_a_line(lake):
    rendered = run_command("inspect", "db.events", "files", "--lake", lake)
    assert re.search(r"file_size_in_bytes │ \d+", rendered) and re.search(r"lower_bounds +│ 1=0", rendered)


def test_a_struct_of_structs_has_a_line_for_each(lake):
    rendered = run_command("inspect", "db.events", "files", "--lake", lake)
    lines = [line for line in rendered.splitlines() if "column_size=" in line]
    assert len(lines) == 6 and all(re.search(r"│ (id|region)=column_size=\d+ value_count=1", line) for line in lines)


def test_columns_that_hold_nothing_are_named_below(lake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    rendered = run_command("inspect", "db.events", "partitions", "--lake", lake)
    assert "nothing in position_delete_record_count" in rendered


def test_text_from_a_table_cannot_drive_the_terminal(lake):
    rendered = run_command("inspect", "db.events", "partitions", "--lake", lake)
    assert "\x1b[31m" not in rendered
    assert "[red]" in rendered


def test_a_scan_is_explained_without_reading(lake):
    rendered = run_command("scan", "db.events", "--where", "region = 'eu'", "--explain", "--lake", lake)
    assert "2 of 3, 1 pruned by partition" in rendered


def files_read(lake: str, *options: str) -> int:
    rendered = run_command("scan", "db.events", "--explain", "--lake", lake, *options)
    return int(re.search(r"files +(\d+) of", rendered)[1])


def test_a_scan_reads_a_snapshot_a_tag_or_a_time(lake):
    first, second = neve.connect(lake).table("db.events").inspect.snapshots().to_pylist()
    assert files_read(lake) == files_read(lake, "--snapshot", str(second["snapshot_id"])) == 3
    assert files_read(lake, "--snapshot", str(first["snapshot_id"])) == files_read(lake, "--ref", "first") == 2
    then, later = first["committed_at"], second["committed_at"]
    assert files_read(lake, "--as-of", then.isoformat()) == 2
    assert files_read(lake, "--as-of", then.replace(tzinfo=None).isoformat()) == 2, "without a zone it is UTC"
    assert files_read(lake, "--as-of", later.isoformat()) == 3


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (("--ref", "furst"), "first"),
        (("--snapshot", "7"), "Unknown snapshot"),
        (("--as-of", "yesterday"), "Cannot read the time"),
        (("--as-of", "2001-01-01"), "no snapshot as old"),
        (("--ref", "first", "--snapshot", "7"), "Choose one"),
    ],
)
def test_a_scan_of_an_unknown_snapshot_or_ref_is_rejected(lake, options, output):
    assert output in run_command("scan", "db.events", "--lake", lake, "--explain", *options, ok=False).replace(
        "\n", " "
    )


def test_a_sound_table_passes_the_audit(lake):
    assert run_command("verify", "db.events", "--lake", lake).startswith("Sound")
    assert json.loads(run_command("verify", "db.events", "--lake", lake, "--json"))["is_sound"] is True


def test_an_unknown_view_is_rejected(lake):
    assert "Unknown view" in run_command("inspect", "db.events", "fils", "--lake", lake, ok=False)
    assert "view of a snapshot" in run_command(
        "inspect", "db.events", "refs", "--snapshot", "1", "--lake", lake, ok=False
    )


def test_markup_in_an_error_is_text(lake):
    assert "x[/y]" in run_command("scan", "db.events", "--where", "x[/y]", "--lake", lake, ok=False)


def test_a_scan_prints_rows(lake, spark):
    rows = run_command(
        "scan", "db.events", "--where", "id > 1", "--columns", "id", "--lake", lake, "--json"
    ).splitlines()
    assert sorted(json.loads(r)["id"] for r in rows) == [2, 3]


def test_a_page_is_written(lake, tmp_path):
    page = tmp_path / "events.html"
    result = json.loads(run_command("report", "db.events", str(page), "--lake", lake, "--json"))
    assert result["bytes"] == page.stat().st_size and "db.events" in page.read_text()

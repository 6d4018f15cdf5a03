"""The page: one self-contained file for any table content."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

import neve
from neve.display.html import replace_unprintable, shorten_middle
from neve.errors import UserError
from neve.report import Report, gather_report, render_page
from tests.support.html_pages import Reading
from tests.support.report_tables import HOSTILE


@pytest.fixture(scope="module")
def hostile_report(hostile: neve.Table) -> Report:
    return gather_report(hostile.context)


def parse_page(found: Report) -> Reading:
    reading = Reading.of(render_page(found))
    reading.assert_harmless()
    return reading


def test_the_file_is_written_and_its_path_returned(tmp_path: Path):
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint")
    written = table.report(tmp_path / "t.html")
    assert written == tmp_path / "t.html"
    assert written.read_text("utf-8").startswith('<!doctype html>\n<html lang="en">')
    assert "db.t" in Reading.of(written.read_text("utf-8")).text()


def test_a_symbolic_link_is_replaced_not_followed(tmp_path: Path):
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint")
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "t.html").symlink_to("precious")
    assert table.report(tmp_path / "t.html").read_text("utf-8").startswith("<!doctype html>")
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "t.html").is_symlink()
    table.report(tmp_path / "t.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "precious", "t.html"]


def test_a_path_that_cannot_be_written_is_rejected(tmp_path: Path):
    table = neve.connect(tmp_path / "lake").create_table("db.t", "id bigint")
    with pytest.raises(UserError, match="Cannot write the report"):
        table.report(tmp_path / "nowhere" / "t.html")


def test_the_policy_allows_this_style_and_this_script_and_nothing_else(report: Report):
    reading = parse_page(report)
    (policy,) = (a["content"] for a in reading.all("meta", http_equiv="Content-Security-Policy"))
    for kind, tag in (("style-src", "style"), ("script-src", "script")):
        (text,) = reading.texts[tag]
        assert f"{kind} 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
        assert len(reading.all(tag)) == 1
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    assert not [a for _, a in reading.elements if "style" in a]


def test_every_section_is_there_and_can_be_reached(report: Report):
    reading = parse_page(report)
    ids = [a["id"] for _, a in reading.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = {a["href"] for a in reading.all("a")}
    assert links <= {f"#{i}" for i in ids}
    for section in ("upkeep", "map", "sizes", "deletes", "life", "tree", "filters", "schema", "names"):
        assert f"#{section}" in links
        assert reading.all("section", id=section, aria_labelledby=f"{section}-title")


def test_what_is_drawn_and_what_scrolls_has_a_label(report: Report):
    reading = parse_page(report)
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in reading.all("svg"))
    assert all(a["aria-label"] for a in reading.all("div", tabindex="0"))
    squares = reading.all("i", role="option")
    assert len(squares) == report.partitions
    assert all(a["aria-label"] for a in squares)


def test_what_was_planted_comes_out_as_text(hostile_report: Report):
    reading = parse_page(hostile_report)
    text = reading.text()
    for text_ in HOSTILE[:7]:
        assert replace_unprintable(text_) in text
    assert replace_unprintable(shorten_middle(HOSTILE[7], 240)) in text
    labels = " ".join(a["aria-label"] or "" for a in reading.all("i", role="option"))
    assert replace_unprintable(shorten_middle(HOSTILE[0], 60)) in labels


def test_names_beyond_any_measure_are_cut(hostile_report: Report):
    names = {"location": "l" * 100_000, "properties": {"p" * 90_000: "v" * 90_000}}
    found = replace(hostile_report, name="n" * 100_000, metadata=hostile_report.metadata.model_copy(update=names))
    assert len(render_page(found)) < 400_000


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_table_without_a_snapshot_has_a_page(tmp_path: Path, version: int):
    table = neve.connect(tmp_path).create_table("db.new", "id bigint", format_version=version)
    assert "Nobody has written to this table yet." in parse_page(gather_report(table.context)).text()

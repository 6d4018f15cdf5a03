"""Names and values are never interpreted as SQL, terminal commands, paths or markup.

Each check also runs on a product that escapes nothing (`PLANTS`) and must fail there.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

import neve
from neve.display.html import escape, replace_unprintable
from neve.display.terminal import render_arrow_table
from neve.errors import CorruptFile, NeveError, UserError
from neve.ops.audit.verify import Finding
from tests.proof.results_ledger import new_tally
from tests.support.spark_sessions import names_in

GUARANTEE = "hostile names and values: nothing is injected"
PLANTED = "planted faults are caught: names and values that act"
NAMES = (
    "it's",
    'say "hi"',
    "back`tick",
    "a; DROP TABLE iceberg_tables; --",
    "x' OR '1'='1",
    "${spark.app.name}",
    "{0.__class__}",
    "%s%n%(x)s",
    "<script>alert(1)</script>",
    "a\\b",
    "select",
    "é 漢 🧊",
    "/* comment */",
    "-- comment",
)
CONTROL_TEXTS = ("\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\r\nfake line", "\u202edesrever", "a\x00b", "\x08\x08")
MARKUP = ("<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", "'\"><svg/onload=x>", "&lt;")
PATH_VALUES = ("..", ".", "../../x", "a/b", "a=b", "%2e%2e", "#", "?x=1", "", " ")

Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


# --- the catalog ---


@pytest.mark.parametrize("name", NAMES)
def test_names_are_values_to_the_catalog(lake: neve.Lake, name: str):
    lake.create_table("db.other", "id bigint")
    with new_tally(GUARANTEE) as tally, tally.case(f"{name} in the catalog"):
        try:
            table = lake.create_table(("db", name), "id bigint", properties={name: name})
        except UserError:
            assert lake.tables() == ["db.other"]
            return
        table.append([{"id": 1}], snapshot_properties={name: name})
        table.create_tag(name).create_branch(f"b{name}")
        found = lake.table(("db", name))
        assert found.scan(ref=name).to_arrow(engine="arrow").to_pylist() == [{"id": 1}]
        assert found.context.metadata.properties[name] == name
        lake.drop_table(("db", name))
        assert lake.tables() == ["db.other"]


# --- Spark ---


def table_with_columns(lake: neve.Lake, names: Iterable[str]) -> tuple[neve.Table, list[Row]]:
    """Create a table with a column of every name, whose values are the names in turn."""
    names = list(names)
    schema = pa.schema([("id", pa.int64()), *((n, pa.string()) for n in names)])
    table = lake.create_table("db.t", schema, properties={"write.delete.mode": "merge-on-read"})
    rows = [{"id": i, **{n: names[(i + at) % len(names)] for at, n in enumerate(names)}} for i in range(len(names))]
    table.append(pa.Table.from_pylist(rows, schema))
    return table, rows


def condition_fault(table: neve.Table, rows: list[Row], name: str, engine: str) -> str:
    """Return how a condition on a column was misinterpreted; an empty text if it was not."""
    value = rows[1][name]
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    try:
        scan = table.scan(f"`{name.replace('`', '``')}` = '{text}'", columns=["id", name])
        found = scan.to_arrow(engine=engine)["id"].to_pylist()
    except Exception as e:
        return f"{name} is {value}: {type(e).__name__}: {e}"
    expected = [r["id"] for r in rows if r[name] == value]
    return "" if found == expected else f"{name} is {value}: {found} instead of {expected}"


def test_names_and_values_are_values_to_spark(spark: SparkSession, tmp_path: Path):
    spark = spark.newSession()  # without the views of other tests
    table, rows = table_with_columns(neve.connect(tmp_path / "lake", spark=spark), [n for n in NAMES if n != "select"])
    names = [name for name in rows[0] if name != "id"]
    with new_tally(GUARANTEE) as tally:
        for at, name in enumerate(names):
            for engine in ("arrow", "spark") if at < 4 else ("arrow",):
                with tally.case(f"{name} in a condition, {engine}"):
                    assert condition_fault(table, rows, name, engine) == ""
        with tally.case("names in statements"):
            change_and_compare(table, rows)
            assert names_in(spark) == set()


def change_and_compare(table: neve.Table, rows: list[Row]) -> None:
    """Check that statements change only the rows that match."""
    done = table.update().set("it's", "concat(`it's`, '!')").where("`back``tick` = 'back`tick' OR id = 3").execute()
    changed = {r["id"] for r in rows if r["back`tick"] == "back`tick" or r["id"] == 3}
    assert done.rows_updated == len(changed)
    assert table.delete().where("`back``tick` = 'nobody'").execute().rows_deleted == 0
    after = {r["id"]: r for r in table.scan().to_arrow(engine="arrow").to_pylist()}
    assert after == {r["id"]: {**r, "it's": r["it's"] + "!"} if r["id"] in changed else r for r in rows}


def test_a_name_that_is_not_quoted_for_spark_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table, rows = table_with_columns(neve.connect(tmp_path / "lake", spark=spark.newSession()), ["it's", "back`tick"])
    monkeypatch.setattr("neve.ops.scan.column_by_name", lambda name, qualifier=None: F.col(f"`{name}`"))
    with new_tally(PLANTED) as tally, tally.case("a name that ends the quotes around it"):
        assert "[INVALID_ATTRIBUTE_NAME_SYNTAX]" in condition_fault(table, rows, "back`tick", "spark")
        tally.figure("found")


# --- paths ---


def partitioned_table(lake: neve.Lake) -> neve.Table:
    """Create a table with a partition for each value that could change a path."""
    table = lake.create_table("db.t", "id bigint, region string", ["region"])
    table.append([{"id": i, "region": value} for i, value in enumerate((*NAMES, *PATH_VALUES))])
    return table


def paths_outside_table(table: neve.Table) -> list[str]:
    """Return the data files whose path is not plainly inside the table."""
    below = f"{table.context.metadata.location}/data/"
    paths = table.inspect.files()["file_path"].to_pylist()
    return [p for p in paths if not p.startswith(below) or "/../" in p or "/./" in p or p[len(below) :].count("/") != 1]


def test_partition_values_are_values_in_paths_and_conditions(lake: neve.Lake):
    table = partitioned_table(lake)
    with new_tally(GUARANTEE) as tally:
        with tally.case("values of partitions"):
            found = table.scan().to_arrow(engine="arrow").to_pylist()
            assert sorted((r["id"], r["region"]) for r in found) == list(enumerate((*NAMES, *PATH_VALUES)))
        with tally.case("paths of partitions"):
            assert paths_outside_table(table) == []
            assert table.verify().is_sound


# --- terminals and errors ---


def control_characters(text: str) -> list[str]:
    """Return the unprintable characters of a text, except line breaks."""
    return [c for c in text if not c.isprintable() and c != "\n"]


def rendered_on_terminal(text: str) -> str:
    """Return the terminal output for a text as a value, a column name, a title, in a list and in a struct."""
    table = pa.table({"name": [text], f"c{text}": ["x"], "paths": [[text]], "pairs": [{"k": text}]})
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, color_system=None)
    console.print(render_arrow_table(table, f"title {text}", 10, 200))
    return out.getvalue()


def error_texts(text: str) -> str:
    """Return error messages that contain a text."""
    return "\n".join(map(str, (CorruptFile(f"/x/{text}", text, text), UserError(text), NeveError(f"a {text} b"))))


@pytest.mark.parametrize("text", CONTROL_TEXTS)
def test_a_terminal_shows_text_and_executes_none_of_it(text: str):
    with new_tally(GUARANTEE) as tally, tally.case(f"{text!r} on a terminal"):
        assert control_characters(rendered_on_terminal(text)) == []
        assert replace_unprintable(text).isprintable()
        assert str(Finding("kind", text, text)).isprintable()


@pytest.mark.parametrize("text", CONTROL_TEXTS)
def test_errors_contain_no_control_characters(text: str, lake: neve.Lake):
    with new_tally(GUARANTEE) as tally, tally.case(f"{text!r} in errors"):
        assert control_characters(error_texts(text)) == []
        assert "\n" not in str(CorruptFile(f"/x/{text}", text, text)), "a path is on one line"
        with pytest.raises(NeveError) as raised:
            lake.table(("db", f"t{text}"))
        assert control_characters(str(raised.value)) == []


# --- pages ---


def pages(lake: neve.Lake) -> Iterator[tuple[str, str]]:
    """Yield notebook pages of a table whose properties, summaries and values are markup; reports: tests/report."""
    texts = {text: text for text in (*NAMES, *CONTROL_TEXTS, *MARKUP)}
    table = lake.create_table("db.t", pa.schema([("id", pa.int64()), ("x", pa.string())]), properties=texts)
    table.append([{"id": i, "x": text} for i, text in enumerate(texts)], snapshot_properties=texts)
    for value in (table.scan("x = '<script>alert(1)</script>'").plan(), table.rewrite_manifests().plan(), table):
        yield type(value).__name__, getattr(value, "_repr_html_", str)()


def elements_of(page: str) -> list[str]:
    """Return the elements that only a value can have added."""
    return [each for each in ("<script", "<img", "<svg") if each in page]


def test_markup_has_no_effect_on_a_page(lake: neve.Lake):
    with new_tally(GUARANTEE) as tally:
        with tally.case("values escaped"):
            assert not [text for text in (*NAMES, *CONTROL_TEXTS, *MARKUP) if set(escape(text)) & set("<>\"'`")]
        for what, page in pages(lake):
            with tally.case(f"markup in {what}"):
                assert elements_of(page) == []


# --- the checks ---

Plant = Callable[[pytest.MonkeyPatch], None]

PLANTS: dict[str, tuple[Plant, Callable[[neve.Lake], Iterable[str]], str]] = {
    "markup as it is": (
        lambda patch: patch.setattr("neve.display.html._ESCAPES", {}),
        lambda lake: [each for _, page in pages(lake) for each in elements_of(page)],
        "<script",
    ),
    "escapes as they are": (
        lambda patch: patch.setattr("neve.display.html.category", lambda character: "Zs"),
        lambda lake: control_characters(rendered_on_terminal("\x1b[2J")),
        "\x1b",
    ),
    "escapes in errors": (
        lambda patch: patch.setattr("neve.errors._sanitize_message", lambda text: text),
        lambda lake: control_characters(error_texts("\x1b[2J")),
        "\x1b",
    ),
    "partition values as folders": (
        lambda patch: patch.setattr("neve.model.partition.quote_plus", lambda text: text),
        lambda lake: (
            path.split("/data/")[1].rsplit("/", 1)[0] for path in paths_outside_table(partitioned_table(lake))
        ),
        "region=../../x",
    ),
}


@pytest.mark.parametrize("planted", PLANTS)
def test_what_is_not_escaped_is_noticed(planted: str, lake: neve.Lake, monkeypatch: pytest.MonkeyPatch):
    plant, check, expected = PLANTS[planted]
    plant(monkeypatch)
    with new_tally(PLANTED) as tally, tally.case(planted):
        assert expected in check(lake)
        tally.figure("found")

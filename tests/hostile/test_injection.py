"""Names and values are never taken for SQL, for commands of a terminal or for markup."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import neve
from neve.errors import CorruptFile, NeveError, UserError
from neve.markup import escape
from neve.ops.verify import Finding
from neve.show import arrow_table, plain
from tests.sessions import names_in

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
ACTING = ("\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\r\nfake line", "\u202edesrever", "a\x00b", "\x08\x08")


@pytest.fixture
def lake(tmp_path: Path) -> neve.Lake:
    return neve.connect(tmp_path / "lake")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_values_to_the_catalog(lake: neve.Lake, name: str):
    lake.create_table("db.other", "id bigint")
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


def test_names_and_values_are_values_to_spark(spark: SparkSession, tmp_path: Path):
    spark = spark.newSession()  # without the views of other tests
    lake = neve.connect(tmp_path / "lake", spark=spark)
    names = [n for n in NAMES if n not in ("select",)]
    schema = pa.schema([("id", pa.int64()), *((n, pa.string()) for n in names)])
    table = lake.create_table("db.t", schema, properties={"write.delete.mode": "merge-on-read"})
    rows = [{"id": i, **{n: names[(i + at) % len(names)] for at, n in enumerate(names)}} for i in range(len(names))]
    table.append(pa.Table.from_pylist(rows, schema))
    for at, name in enumerate(names):
        quoted, value = f"`{name.replace('`', '``')}`", names[(at + 1) % len(names)]
        text = value.replace("\\", "\\\\").replace("'", "\\'")
        expected = [r["id"] for r in rows if r[name] == value]
        for engine in ("arrow", "spark") if at < 4 else ("arrow",):
            found = table.scan(f"{quoted} = '{text}'").to_arrow(engine=engine)
            assert found["id"].to_pylist() == expected, (name, value, engine)
    done = table.update().set(names[0], "concat(`it's`, '!')").where("`back``tick` = 'back`tick' OR id = 3").execute()
    changed = {r["id"] for r in rows if r["back`tick"] == "back`tick" or r["id"] == 3}
    assert done.rows_updated == len(changed)
    assert table.delete().where("`back``tick` = 'nobody'").execute().rows_deleted == 0
    after = {r["id"]: r for r in table.scan().to_arrow(engine="arrow").to_pylist()}
    assert after == {r["id"]: {**r, "it's": r["it's"] + "!"} if r["id"] in changed else r for r in rows}
    assert names_in(spark) == set()


def test_partition_values_are_values_in_paths_and_conditions(lake: neve.Lake):
    table = lake.create_table("db.t", "id bigint, region string", ["region"])
    values = [*NAMES, "..", ".", "../../x", "a/b", "a=b", "%2e%2e", "#", "?x=1", "", " "]
    table.append([{"id": i, "region": v} for i, v in enumerate(values)])
    found = table.scan().to_arrow(engine="arrow").to_pylist()
    assert sorted((r["id"], r["region"]) for r in found) == list(enumerate(values))
    paths = table.inspect.files()["file_path"].to_pylist()
    location = table.context.metadata.location
    assert all(p.startswith(f"{location}/data/") and "/../" not in p and "/./" not in p for p in paths)
    assert table.verify().is_sound


@pytest.mark.parametrize("text", ACTING)
def test_a_terminal_shows_text_and_obeys_none_of_it(text: str):
    table = pa.table({"name": [text], f"c{text}": ["x"], "paths": [[text]], "pairs": [{"k": text}]})
    out = io.StringIO()
    Console(file=out, width=200, force_terminal=True, color_system=None).print(
        arrow_table(table, f"title {text}", 10, 200)
    )
    assert not [c for c in out.getvalue() if not c.isprintable() and c != "\n"]
    assert plain(text).isprintable()
    assert str(Finding("kind", text, text)).isprintable()


@pytest.mark.parametrize("text", ACTING)
def test_errors_show_text_and_let_none_of_it_act(text: str, lake: neve.Lake):
    for error in (CorruptFile(f"/x/{text}", text, text), UserError(text), NeveError(f"a {text} b")):
        assert str(error).replace("\n", "").isprintable()
    assert "\n" not in str(CorruptFile(f"/x/{text}", text, text)), "a path is on one line"
    with pytest.raises(NeveError) as raised:
        lake.table(("db", f"t{text}"))
    assert str(raised.value).replace("\n", "").isprintable()


def test_markup_has_no_effect_on_a_page(lake: neve.Lake):
    texts = [*NAMES, *ACTING, "</td><img src=x onerror=alert(1)>", "'\"><svg/onload=x>", "&lt;"]
    assert not [text for text in texts if set(escape(text)) & set("<>\"'`")]
    named = {text: text for text in texts}
    table = lake.create_table("db.t", pa.schema([("id", pa.int64()), ("x", pa.string())]), properties=named)
    table.append([{"id": i, "x": text} for i, text in enumerate(texts)], snapshot_properties=named)
    for said in (table.scan("x = '<script>alert(1)</script>'").plan(), table.rewrite_manifests().plan(), table):
        page = getattr(said, "_repr_html_", str)()
        assert "<script" not in page and "<img" not in page and "<svg" not in page

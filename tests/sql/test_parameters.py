"""Parameters of statements mean what they mean in Spark, and can be nothing but values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import neve
from neve.errors import UserError
from neve.sql.parameters import bind_parameters, sql_literal

VALUES = [
    None,
    True,
    False,
    0,
    -7,
    1 << 40,
    -(1 << 63),
    (1 << 63) - 1,
    0.1,
    -1e300,
    float("inf"),
    float("-inf"),
    "",
    "plain",
    "it's",
    'double "quotes"',
    "back\\slash\\",
    "'; DROP TABLE t --",
    "${spark.master} \n\t ü 雪 \0",
    b"",
    b"\x00\xff",
    bytearray(b"ab"),
    Decimal("12.50"),
    Decimal("-0.001"),
    Decimal("1E+3"),
    Decimal("9" * 38),
    date(2026, 1, 31),
    date(1000, 1, 1),
    datetime(2026, 1, 31, 1, 2, 3, 456, tzinfo=UTC),
    datetime(2026, 1, 31, 1, 2, 3, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    [1, 2, 3],
    ["a", "it's"],
]


@pytest.fixture
def lake(spark: SparkSession, tmp_path) -> neve.Lake:
    lake = neve.connect(tmp_path / "lake", spark=spark)
    lake.create_table("db.t", "id bigint, s string", ["id"]).append([{"id": i, "s": f"{i}"} for i in range(4)])
    return lake


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_the_same_as_in_spark(lake, spark, value):
    text = "SELECT :v AS v, typeof(:v) AS kind"
    ours, theirs = lake.sql(text, {"v": value}).first(), spark.sql(text, args={"v": value}).first()
    assert ours == theirs
    assert lake.sql("SELECT ? AS v, typeof(?) AS kind", [value, value]).first() == theirs


def test_a_number_that_is_none_and_a_time_without_a_zone(lake, spark):
    assert lake.sql("SELECT isnan(:v)", {"v": float("nan")}).first()[0]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        row = lake.sql("SELECT unix_seconds(:t)", {"t": datetime(1970, 1, 1, 9)}).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert row[0] == 0, "it is in the time zone of the session"


@given(st.text())
def test_text_never_ends_its_literal(text):
    bound = bind_parameters("SELECT :a, 'b'", {"a": text})
    inside = bound.removeprefix("SELECT ").removesuffix(", 'b'")
    quoted = inside.removeprefix("CAST(X").removesuffix(" AS STRING)")
    assert quoted[0] == quoted[-1] == "'" and not {*"'\\\"`$\n"} & {*quoted[1:-1]}


@pytest.mark.parametrize(
    "settings", [{"spark.sql.parser.escapedStringLiterals": "true"}, {"spark.sql.ansi.doubleQuotedIdentifiers": "true"}]
)
def test_settings_of_the_session_change_no_value(lake, spark, settings):
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        for value in (v for v in VALUES if isinstance(v, str)):
            assert lake.sql("SELECT :v", {"v": value}).first()[0] == value
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_markers_in_strings_comments_and_types_are_none(lake):
    text = "SELECT ':a ?', `:a`, -- :a ?\n CAST(NULL AS struct<a:int,b :array<struct<c : int>>>), /* ? */ x -:a, y::int"
    bound = bind_parameters(text, {"a": -1})
    assert bound == text.replace("x -:a", "x -(-1)")
    assert bind_parameters("SELECT m['?'], a ? :b", None) == "SELECT m['?'], a ? :b"


@pytest.mark.parametrize(
    "text",
    [
        *("CASE WHEN:a THEN:a ELSE:a END", "id BETWEEN:a AND:a", "s LIKE:a OR:a", "NOT:a", "s RLIKE:a", "id DIV:a"),
        *("EXISTS (SELECT:a WHERE:a LIMIT:a)", "s ILIKE:a ESCAPE '/'", "CASE:a WHEN:a THEN 1 END", "count(DISTINCT:a)"),
    ],
)
def test_a_marker_may_touch_the_keyword_before_it(text):
    assert bind_parameters(text, {"a": 1}) == text.replace(":a", " 1")
    assert bind_parameters(text.replace(":a", "?"), [1] * text.count(":a")) == text.replace(":a", " 1")


def test_a_path_touches_the_name_before_it():
    text = "v:a, t.then:a, `and`:a, f(v):a, v[0]:a, v:a.b, v::int"
    assert bind_parameters(f"{text}, :a", {"a": 1}) == f"{text}, 1"


def test_parameters_rule_out_files(lake):
    found = lake.sql("EXPLAIN SELECT * FROM db.t WHERE id = :id", {"id": 2}).first()[0]
    assert "files      1 of 4" in found


def test_every_statement_takes_parameters(lake):
    lake.sql("INSERT INTO db.t VALUES (:id, :s)", {"id": 9, "s": "it's"})
    lake.sql("INSERT INTO db.t PARTITION (id = ?) VALUES (?)", [8, "eight"])
    lake.sql("UPDATE db.t SET s = ? WHERE id = ?", ["new", 1])
    lake.sql("DELETE FROM db.t WHERE array_contains(:ids, id)", {"ids": [2, 3]})
    merge = (
        "MERGE INTO db.t USING (SELECT :id AS id) s ON t.id = s.id WHEN MATCHED AND s.id < :max THEN UPDATE SET s = :s"
    )
    lake.sql(merge, {"id": 0, "max": 5, "s": "merged"})
    lake.sql("CREATE TABLE db.u AS SELECT :x AS x", {"x": Decimal("1.5")})
    found = lake.sql("SELECT id, s FROM db.t ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(0, "merged"), (1, "new"), (8, "eight"), (9, "it's")]
    first = lake.table("db.t").inspect.snapshots()["snapshot_id"][0].as_py()
    assert lake.sql("SELECT count(*) FROM db.t VERSION AS OF :v", {"v": first}).first()[0] == 4
    lake.sql("CALL system.rollback_to_snapshot(?, ?)", ["db.t", first])
    assert lake.table("db.t").scan().count() == 4


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        ("SELECT :a + :b", {"a": 1}, r"args has no value for :b at line 1, column 13"),
        ("SELECT :a", {"a": 1, "b": 2}, "has no parameter :b"),
        ("SELECT 1", {"a": 1}, "has no parameter :a"),
        ("SELECT ?, ?", [1], "args has only 1 values"),
        ("SELECT ?", [1, 2], "has 1 parameters, but args has 2"),
        ("SELECT ?", {"a": 1}, "args is a dict"),
        ("SELECT :a", [1], "args is a list"),
        ("SELECT :a", "x", "not as str"),
        ("SELECT :a", {"a": object()}, "Cannot pass :a of type object"),
        ("SELECT :a", {"a": 1 << 63}, "64 bits"),
        ("SELECT ?", [Decimal("1" * 39)], "parameter 1 .* 38 digits"),
        ("SELECT :a", {"a": Decimal("NaN")}, "38 digits"),
        ("SELECT :a", {"a": [timedelta(1)]}, "of type timedelta"),
        ("SELECT :a", {"a": "b\ud800"}, r"Cannot pass :a: '\\ud800' in the text is half of a character"),
        ("SELECT ?", [["b", "\udfff"]], "parameter 1: .* half of a character"),
        ("DELETE FROM db.t WHERE s = :a", {"a": "\udc00\ud800"}, "half of a character"),
    ],
)
def test_a_wrong_parameter_is_an_error(lake, text, args, message):
    with pytest.raises(UserError, match=message):
        lake.sql(text, args)


def test_a_missing_args_leaves_the_error_to_spark(lake):
    with pytest.raises(UserError, match=r"(?i)parameter"):
        lake.sql("SELECT :a")
    assert sql_literal("a", "x") == "'a'"

"""UPDATE, DELETE, MERGE and INSERT as values: the frame is read, the rest stays as written."""

from __future__ import annotations

import pytest

from neve.errors import UserError
from neve.sql import parse
from neve.sql.change_rows import Assignment, Delete, Update
from neve.sql.insert import Insert
from neve.sql.merge import Merge, WhenClause
from neve.sql.query import Query


def pairs(**values: str) -> tuple[Assignment, ...]:
    return tuple(Assignment(column, value) for column, value in values.items())


T = ("db", "t")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("UPDATE db.t SET a = b, b = a", Update(T, pairs(a="b", b="a"))),
        ("update db.t as x set x.a = x.b + 1 where x.c > 1;", Update(T, pairs(**{"x.a": "x.b + 1"}), "x.c > 1", "x")),
        ("UPDATE db.t x SET s.f = 'WHERE, SET'", Update(T, pairs(**{"s.f": "'WHERE, SET'"}), None, "x")),
        (
            "UPDATE db.t SET a = CASE WHEN b THEN f(1, 2) ELSE (SELECT max(x) FROM u WHERE f(y, z)) END, "
            "`c d` = m['k, l']\nWHERE a IN (SELECT a FROM db.t WHERE b) -- why",
            Update(
                T,
                pairs(
                    **{
                        "a": "CASE WHEN b THEN f(1, 2) ELSE (SELECT max(x) FROM u WHERE f(y, z)) END",
                        "`c d`": "m['k, l']",
                    }
                ),
                "a IN (SELECT a FROM db.t WHERE b)",
            ),
        ),
        ("UPDATE `my db`.`t.1` SET end = 1 WHERE end > 0", Update(("my db", "t.1"), pairs(end="1"), "end > 0")),
        ("UPDATE db.t.branch_audit SET a = 1", Update(("db", "t", "branch_audit"), pairs(a="1"))),
        ("UPDATE db.t SET a  =  1 /* , b = 2 */ + 3", Update(T, pairs(a="1 /* , b = 2 */ + 3"))),
        ("DELETE FROM db.t", Delete(T)),
        ("DELETE FROM db.t AS x WHERE x.a = 'it''s;'", Delete(T, "x.a = 'it''s;'", "x")),
        ("delete from db.t where a = 1 OR (b AND c)", Delete(T, "a = 1 OR (b AND c)")),
    ],
)
def test_updates_and_deletes_are_read(text, found):
    assert parse(text) == found


WHENS = {
    "WHEN MATCHED THEN DELETE": WhenClause("matched", "delete"),
    "WHEN MATCHED AND s.op = 'd' THEN DELETE": WhenClause("matched", "delete", "s.op = 'd'"),
    "WHEN MATCHED AND CASE WHEN a THEN b END THEN UPDATE SET *": WhenClause(
        "matched", "update all", "CASE WHEN a THEN b END"
    ),
    "WHEN MATCHED THEN UPDATE SET t.v = CASE WHEN s.v > 0 THEN s.v END, w = f(s.w, 1)": WhenClause(
        "matched", "update", None, pairs(**{"t.v": "CASE WHEN s.v > 0 THEN s.v END", "w": "f(s.w, 1)"})
    ),
    "WHEN NOT MATCHED THEN INSERT *": WhenClause("not matched", "insert all"),
    "WHEN NOT MATCHED BY TARGET AND s.v > (SELECT 1) THEN INSERT (id, v) VALUES (s.id, f(s.v, 2))": WhenClause(
        "not matched", "insert", "s.v > (SELECT 1)", pairs(id="s.id", v="f(s.v, 2)")
    ),
    "WHEN NOT MATCHED BY SOURCE THEN DELETE": WhenClause("not matched by source", "delete"),
    "WHEN NOT MATCHED BY SOURCE AND t.live THEN UPDATE SET live = false": WhenClause(
        "not matched by source", "update", "t.live", pairs(live="false")
    ),
}


@pytest.mark.parametrize("clause", WHENS)
def test_every_clause_of_a_merge_is_read(clause):
    found = parse(f"MERGE INTO db.t t USING db.s s ON t.id = s.id {clause}")
    assert found == Merge(T, "db.s", "t.id = s.id", (WHENS[clause],), ("t", "s"))


def test_clauses_stay_in_order():
    found = parse(f"MERGE INTO db.t USING db.s ON true {' '.join(WHENS)}")
    assert isinstance(found, Merge)
    assert found.clauses == tuple(WHENS.values())


@pytest.mark.parametrize(
    ("source", "query", "alias"),
    [
        ("db.s", "db.s", "s"),
        ("db.s AS x", "db.s", "x"),
        ("`my db`.s x", "`my db`.s", "x"),
        ("db.s.branch_audit", "db.s.branch_audit", "s"),
        ("db.s VERSION AS OF 3 x", "SELECT * FROM db.s VERSION AS OF 3", "x"),
        (
            "db.s TIMESTAMP AS OF now() - INTERVAL 1 DAY",
            "SELECT * FROM db.s TIMESTAMP AS OF now() - INTERVAL 1 DAY",
            "s",
        ),
        ("(SELECT * FROM u WHERE a) x", "SELECT * FROM u WHERE a", "x"),
        ("(VALUES (1, 'a')) AS x(id, v)", "SELECT * FROM (VALUES (1, 'a')) AS `x`(`id`, `v`)", "x"),
        ("db.s x(id, v)", "SELECT * FROM db.s AS `x`(`id`, `v`)", "x"),
        ("(SELECT 1 AS id)", "SELECT 1 AS id", "source"),
    ],
)
def test_a_merge_takes_tables_and_queries(source, query, alias):
    found = parse(f"MERGE WITH SCHEMA EVOLUTION INTO db.t USING {source} ON t.id = {alias}.id WHEN MATCHED THEN DELETE")
    clauses = (WhenClause("matched", "delete"),)
    query = query or f"SELECT * FROM {source}"
    assert found == Merge(T, query, f"t.id = {alias}.id", clauses, ("t", alias), evolves_schema=True)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INSERT INTO db.t VALUES (1, 'a'), (2, 'b')", Insert(T, "VALUES (1, 'a'), (2, 'b')")),
        ("INSERT INTO TABLE db.t (id, `v w`) SELECT 1, 2", Insert(T, "SELECT 1, 2", ("id", "v w"))),
        ("INSERT INTO db.t (SELECT 1)", Insert(T, "(SELECT 1)")),
        ("INSERT INTO db.t (a) (SELECT 1)", Insert(T, "(SELECT 1)", ("a",))),
        ("INSERT INTO db.t TABLE db.u", Insert(T, "SELECT * FROM db.u")),
        ("INSERT INTO db.t BY NAME SELECT 1 AS a", Insert(T, "SELECT 1 AS a", matches_by_name=True)),
        (
            "INSERT INTO db.t PARTITION (a = 'x', `b c`) (d) SELECT 1",
            Insert(T, "SELECT 1", ("d",), partition={"a": "'x'", "b c": None}),
        ),
        ("INSERT OVERWRITE db.t SELECT * FROM u", Insert(T, "SELECT * FROM u", overwrites_partitions=True)),
        ("INSERT OVERWRITE TABLE db.t FROM u SELECT a", Insert(T, "FROM u SELECT a", overwrites_partitions=True)),
        (
            "INSERT INTO db.t REPLACE WHERE day = DATE '2026-01-01' AND x IN (1, 2) SELECT * FROM u",
            Insert(T, "SELECT * FROM u", replace_where="day = DATE '2026-01-01' AND x IN (1, 2)"),
        ),
        ("WITH x AS (SELECT 1 AS a) INSERT INTO db.t SELECT * FROM x", None),
    ],
)
def test_inserts_are_read(text, found):
    assert parse(text) == (found or Insert(T, "WITH x AS (SELECT 1 AS a) SELECT * FROM x"))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("DELETE FROM db.t WHERE id IN (SELECT id FROM X)", "DELETE FROM db.t WHERE id IN ({w} SELECT id FROM X)"),
        (
            "UPDATE db.t SET a = (WITH y AS (SELECT * FROM x) SELECT max(id) FROM y), x = 1",
            "UPDATE db.t SET a = ({w}, y AS (SELECT * FROM x) SELECT max(id) FROM y), x = 1",
        ),
        (
            "MERGE INTO db.t USING x ON t.id = x.id WHEN MATCHED THEN DELETE",
            "MERGE INTO db.t USING ({w} SELECT * FROM `x`) x ON t.id = x.id WHEN MATCHED THEN DELETE",
        ),
        (
            "MERGE INTO db.t USING x AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "MERGE INTO db.t USING ({w} SELECT * FROM `x`) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        ),
        ("DELETE FROM db.t WHERE id IN (SELECT id FROM other)", "DELETE FROM db.t WHERE id IN (SELECT id FROM other)"),
    ],
)
def test_common_table_expressions_go_to_the_queries_that_name_them(text, same):
    ctes = "WITH x(id) AS (SELECT 1)"
    assert parse(f"{ctes} {text}") == parse(same.format(w=ctes))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM db.t WHERE a = ';'",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "WITH x AS (SELECT 1) (SELECT * FROM x)",
        "FROM db.t SELECT a",
        "VALUES (1)",
        "(SELECT 1) UNION (SELECT 2)",
    ],
)
def test_a_query_is_left_as_it_is(text):
    assert parse(f" {text} ; ") == Query(text)


@pytest.mark.parametrize(
    ("text", "message", "marked"),
    [
        ("UPDATE db.t SE a = 1", "expected SET", "a = 1"),
        ("UPDATE db.t SET a == 1", "expected =", "== 1"),
        ("UPDATE db.t SET a = WHERE x", "expected an expression", "WHERE x"),
        ("UPDATE db.t SET a = 1 WHERE", "expected a condition", ""),
        ("UPDATE db.t SET a = (1", "closing \\) is missing", ""),
        ("UPDATE db.t SET a = 1)", "unexpected '\\)'", ")"),
        ("UPDATE 5 SET a = 1", "expected the name of a table", "5 SET a = 1"),
        ("DELETE db.t", "expected FROM", "db.t"),
        ("DELETE FROM db.t x y", "unexpected 'y'", "y"),
        ("MERGE INTO db.t USING db.s WHEN MATCHED THEN DELETE", "expected ON", "WHEN MATCHED THEN DELETE"),
        ("MERGE INTO db.t USING db.s ON a", "expected WHEN", ""),
        (
            "MERGE INTO db.t USING db.s ON a WHEN MATCHED THEN INSERT *",
            "cannot insert all.* UPDATE,.* DELETE",
            "INSERT *",
        ),
        ("MERGE INTO db.t USING db.s ON a WHEN NOT MATCHED THEN DELETE", "allowed are INSERT", "DELETE"),
        (
            "MERGE INTO db.t USING db.s ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)",
            "2 columns, but 1 values",
            "VALUES (1)",
        ),
        ("UPDATE db.t SET a = 1, b = 2, A = 3", "'A' is assigned twice", "A = 3"),
        (
            "MERGE INTO db.t USING db.s ON a WHEN NOT MATCHED THEN INSERT (a, A) VALUES (1, 2)",
            "listed twice",
            "VALUES (1, 2)",
        ),
        ("MERGE INTO db.t USING lake.t ON a WHEN MATCHED THEN DELETE", "both 't'", None),
        ("INSERT db.t VALUES (1)", "expected INTO", "db.t VALUES (1)"),
        ("INSERT INTO db.t", "expected VALUES or a query", ""),
        ("INSERT OVERWRITE db.t PARTITION (a = 1, A) SELECT 1", "PARTITION names 'A' twice", "A) SELECT 1"),
        ("INSERT INTO db.t PARTITION (a = 1) IF NOT EXISTS SELECT 1", "IF NOT EXISTS", "IF NOT EXISTS SELECT 1"),
        ("WITH x AS 1 DELETE FROM db.t", r"expected \(", None),
        ("SELECT 1; SELECT 2", "one statement at a time", "; SELECT 2"),
        ("VACUUM db.t", "unknown statement 'VACUUM': expected SELECT, .*MERGE.*ALTER TABLE", None),
        ("", "there is no statement", None),
        ("SELECT 'x", "closing ' is missing", "'x"),
        ("UPDATE db.t SET total = price qty", "unexpected alias 'qty'", "qty"),
        ("UPDATE db.t SET a = 1 WHERE b c", "unexpected alias 'c'", "c"),
        ("DELETE FROM db.t WHERE b AS c", "unexpected alias 'c'", "c"),
        ("MERGE INTO db.t USING db.s ON a b WHEN MATCHED THEN DELETE", "alias 'b'", "b WHEN MATCHED THEN DELETE"),
        ("MERGE INTO db.t USING db.s ON a WHEN MATCHED AND s.x y THEN DELETE", "alias 'y'", "y THEN DELETE"),
        ("MERGE INTO db.t USING db.s ON a WHEN MATCHED THEN UPDATE SET a = s.b c", "alias 'c'", "c"),
        ("MERGE INTO db.t USING db.s ON a WHEN NOT MATCHED THEN INSERT (a) VALUES (s.id z)", "alias 'z'", "z)"),
        ("INSERT INTO db.t REPLACE WHERE b c SELECT 1", "unexpected alias 'c'", "c SELECT 1"),
        (
            "INSERT INTO db.t BY NAME (a, b) SELECT 1 AS a, 2 AS b",
            "BY NAME takes no list",
            "(a, b) SELECT 1 AS a, 2 AS b",
        ),
        ("UPDATE db.t\nSET a = 1,\n    b = c +\nWHERE d", r"missing near '\+' at line 3, column 11", "+"),
        ("DELETE FROM db.t\nWHERE a\n  = (b c d)", "line 3, column 10", "d)"),
        ("WITH x AS (SELECT 1)\nUPDATE db.t SET a = b c", "alias 'c' at line 2, column 23", "c"),
        ("WITH x AS (SELECT 1)\nDELETE db.t", "expected FROM at line 2", "db.t"),
        ("WITH x AS (SELECT 1) DELETE FROM db.t y z", "unexpected 'z'", "z"),
        (
            "WITH x AS (SELECT 1 AS a) MERGE INTO db.t USING x ON a WHEN MATCHED THEN UPDATE SET",
            "expected a column",
            "",
        ),
    ],
)
def test_an_error_points_at_its_position(text, message, marked):
    with pytest.raises(UserError, match=message) as caught:
        parse(text)
    *_, line, mark = str(caught.value).splitlines()
    assert marked is None or line[mark.index("^") :] == marked


def test_a_statement_that_is_no_text_is_rejected():
    with pytest.raises(UserError, match="not as int"):
        parse(5)  # type: ignore[arg-type]

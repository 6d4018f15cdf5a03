"""Tables in SQL text: found where they are read, replaced without touching the rest."""

from __future__ import annotations

import pytest

from neve.errors import UserError
from neve.predicate.sql_features import features_of
from neve.predicate.sql_text import tokenize_sql
from neve.predicate.table_references import TableName, replace_tables, tables_in
from neve.predicate.time_travel import find_time_travels


def names(text: str) -> list[str]:
    return [table.name for table in tables_in(text)]


def with_views(text: str) -> str:
    """Replace every table of `db` by a view; keep other tables."""
    return replace_tables(text, lambda t: f"`view_{t.parts[1]}`" if t.parts[0] == "db" else None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("id > 5", []),
        ("id IN (SELECT id FROM db.gone)", ["db.gone"]),
        ("EXISTS (SELECT 1 FROM db.a JOIN b ON a.x = b.x) AND v = (SELECT max(v) FROM c.d.e)", ["db.a", "b", "c.d.e"]),
        (
            "SELECT * FROM db.a, (SELECT * FROM db.b) x, LATERAL (SELECT 1 FROM c WHERE c.i = a.i)",
            ["db.a", "db.b", "c"],
        ),
        ("SELECT * FROM `my db`.`the``table` AS x", ["my db.the`table"]),
        ("SELECT * FROM (db.a JOIN db.b ON a.i = b.i)", ["db.a", "db.b"]),
        ("FROM db.a SELECT x", ["db.a"]),
        ("SELECT 1 FROM db.a UNION ALL (SELECT 2 FROM db.b) EXCEPT SELECT 3 FROM db.a", ["db.a", "db.b", "db.a"]),
        ("SELECT x.id, explode(y), db.z.id FROM db.x LATERAL VIEW explode(x.y) e AS z", ["db.x"]),
        ("SELECT * FROM range(10), explode(array(1)), VALUES (1, 2) AS v(a, b)", []),
        ("SELECT /*+ BROADCAST(b) */ * FROM db.b", ["db.b"]),
        ("SELECT '-- FROM db.a' /* FROM db.b */ -- FROM db.c\nFROM db.d", ["db.d"]),
        ("VALUES (1), ((SELECT max(v) FROM db.a))", ["db.a"]),
        ("exists(tags, x -> x > 1)", []),
    ],
)
def test_tables_are_found_where_they_are_read(text, found):
    assert names(text) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a -- b\n c", "a c"),
        ("a -- b\r c", "a c"),
        ("a -- b \\\n c\n d", "a d"),
        ("a -- b \\\r\n c", "a c"),
        ("a -- b \\\n", "a"),
        ("a --\\\\\n b -- \\ \n c", "a c"),
        ("a - - b '--' `--` \"--\"", "a - - b '--' `--` \"--\""),
        ("a /* b /* c */ d */ e", "a e"),
        ("a /*/* b */ c */ d", "a d"),
        ("a /*/ b */ c", "a c"),
        ("a /* ' */ b", "a b"),
        ("a /* -- */ b", "a b"),
        ("a -- /* b\n c", "a c"),
        ("a /* /*+ */ b", "a b"),
        ("a /*+ b('*/', `*/`, \"*/\", r'\\') -- */\n /* */ */ c", "a c"),
        (r"a r'\' -- '", r"a r'\'"),
        (r"bar'\' -- '", r"bar '\' -- '"),
        (r"a 'it''s -- \' -- ' -- b", r"a 'it''s -- \' -- '"),
    ],
)
def test_comments_and_hints_end_where_spark_ends_them(text, expected):
    assert " ".join(token.text for token in tokenize_sql(text)) == expected


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("'a''b'", ["a'b"]),
        ("''''", ["'"]),
        ("'a''''b''c'", ["a''b'c"]),
        ('"a""b"', ['a"b']),
        (r"'a\''''", ["a''"]),
        ("'a' 'b'", ["a", "b"]),
        ("'a'\"b\"", ["a", "b"]),
        ("r'a''b'", ["a", "b"]),
        ("r'a'r'b'", ["a", "b"]),
    ],
)
def test_a_doubled_quote_is_a_quote_in_a_string(text, values):
    assert [token.value for token in tokenize_sql(text)] == values


@pytest.mark.parametrize("text", ["a /* b", "a /* b /* c */", "a /*+ b", "a /*+ b /* */", "a /*+ b '*/'"])
def test_a_comment_that_is_not_closed_is_an_error(text):
    with pytest.raises(UserError, match="not closed"):
        tokenize_sql(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("WITH x AS (SELECT 1 FROM db.a) SELECT * FROM X", ["db.a"]),
        ("WITH x AS (SELECT 1 FROM x) SELECT * FROM x", ["x"]),
        ("WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT * FROM x) SELECT * FROM x", []),
        ("WITH x AS (SELECT 1), y AS (SELECT * FROM x) SELECT * FROM y, db.x", ["db.x"]),
        ("WITH y AS (SELECT * FROM x), x AS (SELECT 1) SELECT * FROM y", ["x"]),
        ("id IN (WITH x AS (SELECT 1) SELECT * FROM x) AND id IN (SELECT * FROM x)", ["x"]),
        ("WITH x AS (SELECT 1) SELECT (SELECT max(v) FROM x WHERE i IN (SELECT i FROM x)) FROM db.a", ["db.a"]),
        ("SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x) JOIN x", ["x"]),
    ],
)
def test_a_common_table_expression_is_no_table_where_it_is_in_scope(text, found):
    assert names(text) == found


@pytest.mark.parametrize(
    ("clause", "version", "timestamp"),
    [
        ("VERSION AS OF 123", 123, None),
        ("FOR VERSION AS OF 123", 123, None),
        ("version  as\nof 'audit'", "audit", None),
        ("FOR SYSTEM_VERSION AS OF 'v1'", "v1", None),
        ("SYSTEM_VERSION AS OF 7", 7, None),
        ("TIMESTAMP AS OF '2026-01-01'", None, "'2026-01-01'"),
        ("FOR TIMESTAMP AS OF TIMESTAMP '2026-01-01'", None, "TIMESTAMP '2026-01-01'"),
        ("FOR SYSTEM_TIME AS OF now() - INTERVAL 1 DAY", None, "now() - INTERVAL 1 DAY"),
        (
            "TIMESTAMP AS OF current_date - INTERVAL '1' DAY TO HOUR",
            None,
            "current_date - INTERVAL '1' DAY TO HOUR",
        ),
        ("TIMESTAMP AS OF date_sub(current_date(), 1)", None, "date_sub(current_date(), 1)"),
        ("TIMESTAMP AS OF (1700000000 + 5)", None, "(1700000000 + 5)"),
    ],
)
@pytest.mark.parametrize("tail", ["", " x", " AS x", " WHERE a = 1", " x JOIN db.o USING (i)", "\n-- end"])
def test_time_travel_belongs_to_the_table_before_it(clause, version, timestamp, tail):
    text = f"SELECT * FROM db.a {clause}{tail}"
    found = tables_in(text)[0]
    assert (found.version, found.timestamp) == (version, timestamp)
    assert text[found.start : found.end] == f"db.a {clause}"
    assert found.alias == ("x" if "x" in tail else None)


@pytest.mark.parametrize("between", [" /* c */ ", "/* c */", " -- c\n", " /* VERSION AS OF 1 */\n"])
def test_a_comment_may_stand_before_time_travel(between):
    (found,) = tables_in(f"SELECT * FROM `db`.`a`{between}VERSION AS OF 3 x")
    assert (found.name, found.version, found.alias) == ("db.a", 3, "x")
    assert with_views(f"SELECT id FROM db.a{between}VERSION AS OF 3 x") == "SELECT id FROM `view_a` x"


def test_columns_named_like_time_travel_are_columns():
    text = "SELECT timestamp AS of FROM (SELECT version AS of, timestamp AS of FROM db.a version)"
    assert not find_time_travels(text, tokenize_sql(text))
    assert tables_in("SELECT version AS v FROM db.a version") == (TableName(("db", "a"), 25, 29, alias="version"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id IN (SELECT  id\tFROM db.gone /* x */)", "id IN (SELECT  id\tFROM `view_gone` AS `gone` /* x */)"),
        ("SELECT gone.id FROM db.gone", "SELECT gone.id FROM `view_gone` AS `gone`"),
        ("SELECT db.gone.id FROM db.gone", "SELECT `gone`.id FROM `view_gone` AS `gone`"),
        ("SELECT db.gone.* FROM db.gone", "SELECT `gone`.* FROM `view_gone` AS `gone`"),
        ("SELECT g.id FROM db.gone g", "SELECT g.id FROM `view_gone` g"),
        ("SELECT * FROM db.a VERSION AS OF 3 x, other.b", "SELECT * FROM `view_a` x, other.b"),
        (
            "SELECT * FROM db.a TABLESAMPLE (5 ROWS) REPEATABLE (3) WHERE x",
            "SELECT * FROM `view_a` TABLESAMPLE (5 ROWS) REPEATABLE (3) AS `a` WHERE x",
        ),
        (
            "SELECT * FROM db.a PIVOT (sum(x) FOR y IN (1))",
            "SELECT * FROM `view_a` AS `a` PIVOT (sum(x) FOR y IN (1))",
        ),
        ("SELECT a.s.f FROM db.a", "SELECT a.s.f FROM `view_a` AS `a`"),
        (
            "SELECT (SELECT max(v) FROM other.o WHERE o.i = db.a.i) FROM db.a",
            "SELECT (SELECT max(v) FROM other.o WHERE o.i = `a`.i) FROM `view_a` AS `a`",
        ),
        (
            "WITH a AS (SELECT db.a.i FROM db.a) SELECT a.i FROM a",
            "WITH a AS (SELECT `db.a`.i FROM `view_a` AS `db.a`) SELECT a.i FROM a",
        ),
        (
            "SELECT db.x FROM db.a JOIN other.db USING (i)",
            "SELECT db.x FROM `view_a` AS `a` JOIN other.db USING (i)",
        ),
        ("é = (SELECT max(`ü`) FROM db.a)", "é = (SELECT max(`ü`) FROM `view_a` AS `a`)"),
    ],
)
def test_only_the_tables_change(text, expected):
    assert with_views(text) == expected


def test_two_tables_of_one_name_stay_distinct():
    text = "SELECT db.t.i, lake.t.i FROM db.t JOIN lake.t ON db.t.i = lake.t.i"
    found = replace_tables(text, lambda t: f"`{t.parts[0]}_view`")
    assert found == (
        "SELECT `db.t`.i, `lake.t`.i FROM `db_view` AS `db.t` JOIN `lake_view` AS `lake.t` ON `db.t`.i = `lake.t`.i"
    )


def test_a_text_without_replacements_is_the_same_text():
    text = "SELECT  a.b, 'x\\'y' , 1L FROM  a.b VERSION AS OF 3 -- done\n"
    assert replace_tables(text, lambda _: None) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT * FROM a.t", None),
        ("SELECT * FROM a.t WHERE x = 1 AND y", "x = 1 AND y"),
        ("SELECT x FROM a.t u WHERE u.x = 1 GROUP BY x HAVING count(*) > 1", "u.x = 1"),
        ("SELECT * FROM a.t LEFT JOIN b ON t.i = b.i WHERE t.x = 1", "t.x = 1 *"),
        ("SELECT * FROM a.t LEFT ANTI JOIN b ON t.i = b.i WHERE t.x = 1", "t.x = 1 *"),
        ("SELECT * FROM b JOIN a.t ON t.i = b.i CROSS JOIN c WHERE t.x = 1", "t.x = 1 *"),
        ("SELECT * FROM a.t LATERAL VIEW explode(y) e AS z WHERE t.x = 1", "t.x = 1 *"),
        ("SELECT * FROM b WHERE EXISTS (SELECT 1 FROM a.t WHERE t.i = b.i)", "t.i = b.i"),
        ("SELECT * FROM b LEFT JOIN a.t ON t.i = b.i WHERE t.x IS NULL", None),
        ("SELECT * FROM b FULL JOIN a.t ON t.i = b.i WHERE t.x IS NULL", None),
        ("SELECT * FROM a.t RIGHT JOIN b ON t.i = b.i WHERE t.x IS NULL", None),
        ("SELECT * FROM b LEFT SEMI JOIN a.t ON t.i = b.i WHERE x = 1", None),
        ("SELECT * FROM (a.t LEFT JOIN b ON t.i = b.i) WHERE t.x = 1", None),
        ("SELECT * FROM a.t TABLESAMPLE (5 ROWS) WHERE x = 1", None),
        ("SELECT * FROM a.t PIVOT (sum(v) FOR k IN (1)) WHERE x = 1", None),
        ("SELECT * FROM a.t AS u(p, q) WHERE p = 1", None),
        ("SELECT * FROM (SELECT * FROM a.t) WHERE x = 1", None),
        ("SELECT y + 1 AS x FROM a.t |> WHERE x = 1", None),
        ("FROM a.t |> LIMIT 5 |> WHERE x = 1", None),
        ("FROM a.t |> AGGREGATE max(x) AS x |> WHERE x = 1", None),
        ("SELECT * FROM (FROM a.t |> SELECT y AS x |> WHERE x = 1)", None),
    ],
)
def test_the_condition_on_a_table_is_one_that_can_come_first(text, found):
    """A star marks that other tables are read as well."""
    (restriction,) = [t.restriction for t in tables_in(text) if t.name == "a.t"]
    condition = restriction and restriction.condition.sql("spark") + (" *" if restriction.has_other_tables else "")
    assert condition == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id IN (SELECT id FORM db.a)", r"(?s)at line 1, column \d+:\n  id IN \(SELECT id FORM db.a\)\n +\^"),
        ("v = (\n  SELECT max(v) FROM db.a", r"(?s)line 2, column \d+:\n    SELECT max"),
        ("id = 'x", r"(?s)closing ' is missing at line 1, column 6:\n  id = 'x\n       \^$"),
        ("id = 1 /* why", "column 8"),
        ("", "not one expression"),
        ("SELECT 1; SELECT 2", "not one expression"),
        ("INSERT INTO t SELECT 1", "unexpected 'INTO' at line 1, column 8"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT 1", "not one expression"),
        ("SHOW TABLES", "unexpected alias 'TABLES' at line 1, column 6"),
        ("a) OR (b", r"unexpected '\)' at line 1, column 2"),
        ("comment) OR (b", r"unexpected '\)' at line 1, column 8"),
        ("load =\n  5 +", r"(?s)missing near '\+' at line 2, column 5"),
        ("b c", "unexpected alias 'c' at line 1, column 3"),
        ("b\n AS `c d`", "unexpected alias 'c d' at line 2, column 5"),
        ("f(m) AS (k, v)", "unexpected alias 'k' at line 1, column 10"),
        ("a IN (SELECT a FROM t VERSION AS OF 3 WHERE)", r"(?s)VERSION AS OF 3 WHERE\)\n +\^$"),
        ("(" * 2000 + "1" + ")" * 2000, "nested too deeply"),
    ],
)
def test_a_parse_error_points_at_its_position(text, message):
    with pytest.raises(UserError, match=message):
        tables_in(text)
    with pytest.raises(UserError, match=message):
        features_of(text)


def test_the_mark_is_below_the_error_position():
    with pytest.raises(UserError) as caught:
        tables_in("SELECT a,\n  b c d\nFROM t")
    *_, line, mark = str(caught.value).splitlines()
    assert line[mark.index("^") :] == "d"
    long = "a = 1 AND " * 50 + "b c d" + " AND a = 1" * 50
    with pytest.raises(UserError) as caught:
        tables_in(long)
    *_, line, mark = str(caught.value).splitlines()
    assert line[mark.index("^") :].startswith("d AND")
    assert len(line) < 110


def features(text: str) -> set[str]:
    found = features_of(text)
    return {name for name in ("has_subquery", "has_aggregate", "has_window", "has_generator") if getattr(found, name)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a + 1", set()),
        ("a IN (1, 2)", set()),
        ("a IN (SELECT max(x) FROM t)", {"has_subquery"}),
        ("(SELECT count(*) OVER () FROM t)", {"has_subquery"}),
        ("EXISTS (SELECT 1 FROM t)", {"has_subquery"}),
        ("EXISTS(tags, x -> x > 1)", set()),
        ("sum(a) > 3", {"has_aggregate"}),
        ("COUNT_IF(a > 1)", {"has_aggregate"}),
        ("sum(a) OVER (PARTITION BY b)", {"has_window"}),
        ("sum(a) FILTER (WHERE b) OVER (ORDER BY c)", {"has_window"}),
        ("last(a) IGNORE NULLS OVER w", {"has_window"}),
        ("row_number() OVER (ORDER BY max(a))", {"has_window", "has_aggregate"}),
        ("sum(a) FILTER (WHERE b > 1)", {"has_aggregate"}),
        ("explode(a)", {"has_generator"}),
        ("posexplode_outer(a)", {"has_generator"}),
        ("name LIKE ANY ('a%', 'b%')", set()),
        ("name NOT ILIKE SOME ('a%', 'b%')", set()),
        ("name LIKE max(b)", {"has_aggregate"}),
        ("name ILIKE ANY (max(b), 'b%')", {"has_aggregate"}),
        ("name LIKE `any`(b)", {"has_aggregate"}),
        ("array_max(a) + greatest(a, b) + element_at(map('k', 1), 'k')", set()),
        ("'sum(a)'", set()),
        ("count", set()),
        ("(map('a', 1))['a'] = 1", set()),
    ],
)
def test_features_are_those_outside_of_subqueries(text, found):
    assert features(text) == found


def test_functions_of_chance_are_named_outside_of_subqueries_only():
    assert features_of("rand() + UUID() > (SELECT randn() FROM t)").nondeterministic == ("rand", "uuid")
    assert features_of("a > random(3) OR input_file_name() = monotonically_increasing_id()").nondeterministic == (
        "input_file_name",
        "monotonically_increasing_id",
        "random",
    )
    assert features_of("a LIKE uuid() AND b ILIKE randstr(3)").nondeterministic == ("randstr", "uuid")
    assert features_of("random = 'rand()' AND current_date() > x").nondeterministic == ()


@pytest.mark.parametrize(
    "name",
    [
        *("alter", "analyze", "begin", "cache", "call", "comment", "commit", "copy", "create", "delete", "desc"),
        *("describe", "drop", "explain", "grant", "insert", "kill", "load", "merge", "refresh", "revoke", "rollback"),
        *("set", "show", "truncate", "update", "use"),
    ],
)
def test_a_text_may_begin_with_a_column_named_like_a_statement(name):
    for text in (name, f"{name} = 'x' AND a", f"/* why */ {name}.b > 5", f"{name} IN (SELECT a FROM db.t)"):
        assert features_of(text).columns[0][0] == name
        assert tokenize_sql(text)[0].text == name
    assert with_views(f"{name} IN (SELECT a FROM db.t u)") == f"{name} IN (SELECT a FROM `view_t` u)"


@pytest.mark.parametrize("word", ["show", "fetch", "execute", "rename", "add jar", "explain", "call", "use", "kill"])
def test_no_word_hides_what_follows_it(word):
    text = f"begin {word}, f(x), 'y'"
    assert " ".join(token.text for token in tokenize_sql(text)) == f"begin {word} , f ( x ) , 'y'"


def test_columns_are_those_outside_of_subqueries():
    found = features_of("t.a = s.b.c AND `x y` IN (SELECT z FROM q WHERE q.i = t.i) AND f(u) AND m['k'].v = 1 AND t.a")
    assert found.columns == (("t", "a"), ("s", "b", "c"), ("x y",), ("u",), ("m",))
    assert features_of("filter(tags, x -> X.f > exists(x.g, z -> z = y.x))").columns == (("tags",), ("y", "x"))
    assert features_of("SELECT a, max(b) FROM (SELECT c FROM t) WHERE d > 1").columns == (("a",), ("b",), ("d",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT id FROM a.t WHERE EXISTS (SELECT 1 FROM b.t WHERE b.t.id = a.t.id AND t.x = 1)",
            "SELECT id FROM `a_t` AS `a.t` WHERE EXISTS "
            "(SELECT 1 FROM `b_t` AS `b.t` WHERE `b.t`.id = `a.t`.id AND `b.t`.x = 1)",
        ),
        (
            "SELECT t.v FROM a.t WHERE a.t.id IN (SELECT t.id FROM b.t)",
            "SELECT `a.t`.v FROM `a_t` AS `a.t` WHERE `a.t`.id IN (SELECT t.id FROM `b_t` AS `t`)",
        ),
        (
            "WITH t AS (SELECT 1 AS id) SELECT a.t.id FROM a.t",
            "WITH t AS (SELECT 1 AS id) SELECT `a.t`.id FROM `a_t` AS `a.t`",
        ),
    ],
    ids=["a query inside", "a list inside", "a common table expression"],
)
def test_tables_of_one_last_name_stay_distinct_in_all_queries_of_a_text(text: str, expected: str):
    assert replace_tables(text, lambda name: f"`{'_'.join(name.parts)}`") == expected

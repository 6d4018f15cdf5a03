"""Texts that are almost statements: each is parsed, or rejected with a message that points into it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from neve.errors import UserError
from neve.predicate.sql_features import features_of
from neve.predicate.table_references import replace_tables, tables_in
from neve.sql import parse

STATEMENTS = [
    "UPDATE db.t AS x SET x.a = CASE WHEN b THEN ( 1 ) ELSE 2 END , c = m [ 'k' ] WHERE x.a > 1 ;",
    "DELETE FROM `my db`.t WHERE a IN ( SELECT a FROM db.u VERSION AS OF 3 v WHERE v.b = 'x' )",
    "MERGE WITH SCHEMA EVOLUTION INTO db.t t USING ( SELECT 1 AS id ) s ( id ) ON t.id = s.id WHEN MATCHED AND a THEN "
    "UPDATE SET * WHEN NOT MATCHED THEN INSERT ( a , b ) VALUES ( 1 , 2 ) WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "WITH x AS ( SELECT 1 ) INSERT INTO db.t ( a ) SELECT * FROM x",
    "INSERT INTO db.t REPLACE WHERE a = 1 SELECT explode ( b ) FROM db.u TIMESTAMP AS OF now ( ) - INTERVAL 1 DAY",
    "CREATE TABLE IF NOT EXISTS db.t ( id bigint NOT NULL , s struct < a : int > ) USING iceberg PARTITIONED BY ( "
    "days ( ts ) ) TBLPROPERTIES ( 'a' = 'b' ) LOCATION 'x'",
    "ALTER TABLE db.t ADD COLUMNS ( a int DEFAULT 5 FIRST , s.b map < string , int > AFTER c )",
    "ALTER TABLE db.t REPLACE PARTITION FIELD a WITH bucket ( 16 , id ) AS b",
    "ALTER TABLE db.t CREATE TAG IF NOT EXISTS v AS OF VERSION 3",
    "CALL system.rewrite_data_files ( table => 'db.t' , options => map ( 'a' , 'b' ) , where => 'id > 5' )",
    "CALL system.expire_snapshots ( 'db.t' , TIMESTAMP '2026-01-01' , 5 , snapshot_ids => array ( 1 , - 2L ) )",
    "SELECT db.t.a , sum ( b ) OVER ( ORDER BY c ) FROM db.t LEFT JOIN u ON t.a = u.a WHERE EXISTS ( FROM v SELECT 1 )",
]
WORDS = sorted({word for text in STATEMENTS for word in text.split()} | {"'", "`", "/*", "--", "\\", "é", "\x00", "1L"})


@st.composite
def damaged_statements(draw: st.DrawFn) -> str:
    """A statement in which some words are removed, repeated, exchanged or replaced."""
    words = draw(st.sampled_from(STATEMENTS)).split()
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(words)))
        new = draw(st.lists(st.sampled_from(WORDS), max_size=2))
        words[at : at + draw(st.integers(0, 3))] = new
    return draw(st.sampled_from([" ", "\n", "\t "])).join(words)


def error_message_of(read: Callable[[str], object], text: str) -> str:
    """Return the error message for a text; empty if it can be parsed."""
    try:
        read(text)
    except UserError as e:
        return str(e)
    return ""


@given(damaged_statements())
def test_a_text_is_a_statement_or_rejected(text):
    assert error_message_of(parse, text).startswith(("Cannot parse SQL", "SQL nested")) or parse(text) == parse(text)


@given(damaged_statements())
@example("map(1)")
def test_a_text_is_a_query_or_rejected(text):
    message = error_message_of(tables_in, text)
    assert bool(message) == bool(error_message_of(features_of, text))
    if message:
        assert message.startswith(("Cannot parse SQL", "SQL nested"))
        return
    assert replace_tables(text, lambda _: None) == text
    assert [t.name for t in tables_in(replace_tables(text, lambda _: "`v`"))] == ["v"] * len(tables_in(text))

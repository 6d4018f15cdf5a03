"""Schemas and partition fields in text: what is read, and what is refused before anything is made."""

from __future__ import annotations

import pytest

from neve.errors import UserError
from neve.model.ddl import schema_of_ddl, spec_of_terms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fixed(16)", "fixed[16]"),
        ("array<fixed(3)>", "list<fixed[3]>"),
        ("timestamp_ns", "timestamp_ns"),
        ("timestamptz_ns", "timestamptz_ns"),
        ("decimal", "decimal(10, 0)"),
        ("numeric(5)", "decimal(5, 0)"),
        ("decimal(38, 38)", "decimal(38, 38)"),
        ("varchar(4)", "string"),
        ("map<string, array<int>>", "map<string, list<int>>"),
    ],
)
def test_types_are_those_of_spark_and_iceberg(text, found):
    assert str(schema_of_ddl(f"fixed int, timestamp_ns string, c {text}").find_type("c")) == found


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        ("''''", "'"),
        ('"a""b\'c"', "a\"b'c"),
        ('\'a"b""c\'', 'a"b""c'),
        (r"'tab\t'", "tab\t"),
    ],
)
def test_quotes_in_a_comment_are_doubled_or_escaped(text, comment):
    columns = f"c int comment {text}, s struct<f: int comment {text}>"
    assert [schema_of_ddl(columns).find_field(name).doc for name in ("c", "s.f")] == [comment, comment]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("decimal(39, 2)", "1 to 38 digits"),
        ("decimal(9, 12)", "no more after the point"),
        ("decimal(a)", "1 to 38 digits"),
        ("decimal(5, 2, 1)", "Unknown column type"),
        ("map<string>", "Unknown column type"),
        ("array", "Unknown column type"),
        ("struct", "Unknown column type"),
        ("array<int, int>", "Unknown column type"),
        ("fixed(0)", "Unknown column type"),
        ("fixed(99999999999)", "Unknown column type"),
        ("int(11)", "Unknown column type"),
        ("int8", "at 'int8'"),  # one byte for some, eight for others
        ("money", "at 'money'"),
        ("struct<a: int, A: int>", "Cannot name two columns 'A'"),
        ("int, C string", "Cannot name two columns 'C'"),
    ],
)
def test_other_types_are_one_error(text, said):
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        schema_of_ddl(f"c {text}")


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ("bucket(2147483648, a)", "Cannot read the partition field"),
        ("truncate(99999999999, a)", "Cannot read the partition field"),
        ("bucket(4, a) AS b", "Cannot name a partition field 'b'"),
        ("a AS b", "Cannot name a partition field 'b'"),
    ],
)
def test_partition_fields_that_no_table_takes_are_one_error(term, said):
    with pytest.raises(UserError, match=said):
        spec_of_terms([term], schema_of_ddl("a int, b int"))


def test_the_largest_bucket_is_taken():
    assert str(spec_of_terms(["bucket(2147483647, a)"], schema_of_ddl("a int")).fields[0].transform) == (
        "bucket[2147483647]"
    )

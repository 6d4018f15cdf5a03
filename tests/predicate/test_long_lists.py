"""Lists of IN that are too long for a parser mean the same as short ones, wherever they stand."""

from __future__ import annotations

import pickle

import pytest
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType

from neve.errors import UserError
from neve.predicate import columns_of, parse
from neve.predicate.normalize import normalize_and_bind
from neve.predicate.sql_features import features_of
from neve.predicate.sql_text import shorten_lists

KINDS = {"n": LongType(), "i": IntegerType(), "s": StringType(), "d": DoubleType(), "day": DateType()}
SCHEMA = Schema(*(NestedField(n + 1, name, kind, required=False) for n, (name, kind) in enumerate(KINDS.items())))
NUMBERS = ", ".join(str(n) for n in range(-600, 600))
WORDS = " ,".join(f"'w {n}'" for n in range(1200))
LARGE = ",".join(str(n * 10_000_000) for n in range(1000))


def by_the_parser(text: str) -> BooleanExpression:
    """The condition as sqlglot reads all of it: a comment keeps lists from being taken out."""
    assert not shorten_lists(f"{text} /* */").lists
    return parse(f"{text} /* */", SCHEMA).expression


@pytest.mark.parametrize(
    "text",
    [
        f"n IN ({NUMBERS})",
        f"n in ( {NUMBERS} )",
        f"n NOT IN ({NUMBERS})",
        f"i IN ({LARGE})",
        f"s IN ({WORDS})",
        f"NOT (s IN ({WORDS}) OR n IN ({NUMBERS}))",
        f"n = 5 AND (i IN ({NUMBERS}) OR upper(s) = 'A')",
        f"d IN ({NUMBERS})",
        f"day IN ({', '.join(repr(f'2024-01-{1 + n % 28:02}') for n in range(1200))})",
        f"n IN ({', '.join(['7'] * 1200)})",
        f"abs(n) IN ({NUMBERS})",
    ],
)
def test_a_long_list_means_what_the_parser_says(text: str):
    assert shorten_lists(text).lists
    found = parse(text, SCHEMA)
    assert found.expression == by_the_parser(text)
    assert str(normalize_and_bind(found.expression, SCHEMA)) == str(normalize_and_bind(by_the_parser(text), SCHEMA))
    assert pickle.loads(pickle.dumps(found.expression)) == found.expression
    assert columns_of(text) == columns_of(f"{text} /* */")
    assert features_of(text) == features_of(f"{text} /* */")


@pytest.mark.parametrize(
    "text",
    [
        f"s = 'IN ({NUMBERS})'",
        f's = "IN ({NUMBERS})"',
        f"s = '\\' IN ({NUMBERS})'",
        f"`IN ({NUMBERS})` = 1",
        f"n = 1 -- IN ({NUMBERS})",
        f"s = r'\\' OR s = ' IN ({NUMBERS})'",
        f"s IN ('__neve_list_0') OR n IN ({NUMBERS})",
        f"s IN ({WORDS}, 'it''s')",
        f"n IN ({NUMBERS}, NULL)",
    ],
)
def test_what_is_no_plain_list_is_left_to_the_parser(text: str):
    assert shorten_lists(text).text == text


def test_errors_point_into_the_text_as_it_was_written():
    before = f"n IN ({NUMBERS}) AND n "
    with pytest.raises(UserError, match=rf"unexpected 'n' at line 1, column {len(before) + 6}:"):
        parse(f"{before}FORM n", SCHEMA)

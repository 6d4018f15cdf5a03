"""Check that a query reads nothing but tables of the lake.

Spark SQL reaches further than tables: it reads any file by its path (``csv.`/etc/passwd` ``), calls methods of Java
classes (`reflect`), runs programs (`TRANSFORM … USING`), and calls functions that the session has registered. A query
is checked by its text before Spark sees it. Whatever the text does not show to be harmless is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import SparkSession

from neve.errors import UserError
from neve.predicate.sql_features import parse_fragment
from neve.predicate.sql_text import SqlToken, TokenKind

_OUTSIDE_FUNCTIONS = frozenset({"reflect", "try_reflect", "java_method", "from_protobuf", "to_protobuf", "identifier"})
_ADVICE = "A restricted query reads only tables of the lake."


def refuse_outside_calls(spark: SparkSession, text: str) -> None:
    """Reject calls of functions that reach beyond their arguments, and of programs."""
    tokens = parse_fragment(text).tokens
    called = _called_functions(tokens)
    system = frozenset(row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()) if called else frozenset()
    for name in called:
        if name in _OUTSIDE_FUNCTIONS:
            raise UserError(f"Cannot call {name} here. {_ADVICE}")
        if name not in system and spark.catalog.functionExists(name):
            raise UserError(f"Cannot call {name} here: the session has registered it. {_ADVICE}")
    for token, following in pairwise(tokens):
        if token.matches("USING") and following.kind is TokenKind.STRING:
            raise UserError(f"Cannot run a program with USING {following.text}. {_ADVICE}")


def _called_functions(tokens: Sequence[SqlToken]) -> list[str]:
    """Return the names before parentheses; a qualified one is a function of a catalog."""
    names: dict[str, None] = {}
    for at in range(len(tokens) - 1):
        if tokens[at].is_name and tokens[at + 1].matches("("):
            if at > 0 and tokens[at - 1].matches("."):
                raise UserError(f"Cannot call {tokens[at].name} of a catalog here. {_ADVICE}")
            names[tokens[at].name.lower()] = None
    return list(names)

"""Column names: quote and split them, find them in a schema, and add or shorten table qualifiers in SQL text.

>>> qualify_columns("id + coalesce(v, t.v)", ["id", "v"], "s")
'`s`.id + coalesce(`s`.v, t.v)'
>>> find_equalities("t.id = s.key AND t.v > 3", "t")
((Equality(target='id', source=('s', 'key'), is_null_safe=False),), False)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from sqlglot import exp

from neve.errors import UserError
from neve.predicate.sql_features import apply_edits, parse_fragment
from neve.predicate.sql_text import name_parts

_PART = re.compile(r"`(?:[^`]|``)+`(?=\.|$)|[^.]+")


def quote_name(name: str) -> str:
    """Put a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def join_name(parts: Iterable[str]) -> str:
    """Join the parts of a name with dots; parts that are not plain identifiers are put in backticks.

    >>> join_name(["place", "zip.code"])
    'place.`zip.code`'
    """
    return ".".join(part if part.isidentifier() else quote_name(part) for part in parts)


def split_name(name: str) -> tuple[str, ...]:
    """Split a name into its parts, without the backticks around them.

    >>> split_name("place.`zip.code`")
    ('place', 'zip.code')
    """
    return tuple(part[1:-1].replace("``", "`") if part[0] == "`" else part for part in _PART.findall(name)) or (name,)


def find_column(schema: Schema, name: str, case_sensitive: bool) -> NestedField | None:
    """Find a column or nested field by its full name, or None; an exact match wins over one in another case."""
    for exact in (True,) if case_sensitive else (True, False):
        try:
            field = schema.find_field(name, case_sensitive=exact)
        except ValueError:
            continue
        matches = [] if exact else [n for n in schema.column_names if n.lower() == name.lower()]
        if len(matches) > 1:
            raise UserError(f"Column {name!r} is ambiguous: the table has {' and '.join(map(repr, matches))}.")
        return field
    return None


def find_reference(
    schema: Schema, parts: Sequence[str], case_sensitive: bool, alias: str | None, *, only_qualified: bool = False
) -> NestedField | None:
    """Return the column that SQL text refers to by these names, or None; a first name that can be the alias is it."""
    is_qualified = len(parts) > 1 and alias is not None and parts[0].lower() == alias.lower()
    for names in (parts[1:] if is_qualified else (), () if only_qualified else parts):
        if names and (field := find_column(schema, ".".join(names), case_sensitive)) is not None:
            return field
    return None


@dataclass(frozen=True, slots=True)
class Equality:
    """A column of the target that must equal a column of another table."""

    target: str
    source: tuple[str, ...]  # as written in the text
    is_null_safe: bool = False


def qualify_columns(text: str, columns: Collection[str], alias: str, other_aliases: Collection[str] = ()) -> str:
    """Put the alias before every unqualified column in `columns`; subqueries are not changed.

    A column that begins with the alias, or with one of the other aliases, is already qualified.
    """
    aliases = {name.lower() for name in (alias, *other_aliases)}
    column_names = {name.lower() for name in columns}
    starts = []
    for column in _columns_outside_subqueries(parse_fragment(text).root):
        first, start = str(column.parts[0].name).lower(), column.parts[0].meta.get("start")
        is_qualified = len(column.parts) > 1 and first in aliases
        if first in column_names and not is_qualified and start is not None:
            starts.append(int(start))
    return apply_edits(text, ((start, start, f"{quote_name(alias)}.") for start in starts))


def shorten_table_qualifiers(text: str, table: Sequence[str]) -> str:
    """Replace the full table name before a column by its last part; subqueries are not changed.

    >>> shorten_table_qualifiers("db.t.id = 3 AND a IN (SELECT db.t.id FROM db.t)", ["db", "t"])
    '`t`.id = 3 AND a IN (SELECT db.t.id FROM db.t)'
    """
    try:
        columns = list(_columns_outside_subqueries(parse_fragment(text).root))
    except UserError:  # running the text reports what is wrong
        return text
    name = [part.lower() for part in table]
    qualified = [c.parts for c in columns if [str(p.name).lower() for p in c.parts[:-1]][: len(name)] == name]
    spans = [(p[0].meta["start"], p[len(name) - 1].meta["end"] + 1) for p in qualified if "start" in p[0].meta]
    return apply_edits(text, ((start, end, quote_name(table[-1])) for start, end in spans))


def find_equalities(text: str, alias: str) -> tuple[tuple[Equality, ...], bool]:
    """Find the columns of the table called `alias` that a condition requires to equal a column of another table.

    Returns also whether the condition requires nothing else.
    """
    equalities: list[Equality] = []
    waiting, requires_more = [parse_fragment(text).root], False
    while waiting:
        node = waiting.pop().unnest()
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        elif (equality := _parse_equality(node, alias)) is not None:
            equalities.append(equality)
        else:
            requires_more = True
    return tuple(equalities), not requires_more


def _columns_outside_subqueries(root: exp.Expression) -> Iterator[exp.Column]:
    """Yield the column references outside of subqueries and lambda functions."""
    nodes = root.dfs(prune=lambda node: isinstance(node, exp.Query | exp.Lambda))
    return (node for node in nodes if isinstance(node, exp.Column))


def _parse_equality(node: exp.Expr, alias: str) -> Equality | None:
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = name_parts(node.this), name_parts(node.expression)
    if left is None or right is None:
        return None
    is_target = [len(parts) > 1 and parts[0].lower() == alias.lower() for parts in (left, right)]
    if is_target == [False, True]:
        left, right, is_target = right, left, [True, False]
    if is_target != [True, False]:
        return None
    return Equality(".".join(left[1:]), tuple(right), isinstance(node, exp.NullSafeEQ))

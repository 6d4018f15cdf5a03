"""Names of columns in SQL text that say of which table they are.

>>> qualified("id + coalesce(v, t.v)", ["id", "v"], "s")
'`s`.id + coalesce(`s`.v, t.v)'
>>> equalities("t.id = s.key AND t.v > 3", "t")
(Equality(target='id', source=('s', 'key'), is_null_safe=False),)

Names of columns, as SQL spells them and as a table finds them.
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
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def join_name(parts: Iterable[str]) -> str:
    """A name of several parts, each in backticks where it would be read otherwise.

    >>> spelled(["place", "zip.code"])
    'place.`zip.code`'
    """
    return ".".join(part if part.isidentifier() else quote_name(part) for part in parts)


def split_name(name: str) -> tuple[str, ...]:
    """The parts of a name, without the backticks around them.

    >>> parted("place.`zip.code`")
    ('place', 'zip.code')
    """
    return tuple(part[1:-1].replace("``", "`") if part[0] == "`" else part for part in _PART.findall(name)) or (name,)


def find_column(schema: Schema, name: str, case_sensitive: bool) -> NestedField | None:
    """A column or field by its full name, in its own case first; nothing when there is none."""
    for exactly in (True,) if case_sensitive else (True, False):
        try:
            found = schema.find_field(name, case_sensitive=exactly)
        except ValueError:
            continue
        alike = [] if exactly else [n for n in schema.column_names if n.lower() == name.lower()]
        if len(alike) > 1:
            raise UserError(f"Column {name!r} is ambiguous: the table has {' and '.join(map(repr, alike))}.")
        return found
    return None


@dataclass(frozen=True, slots=True)
class Equality:
    """A column of the target that must equal a column of another table."""

    target: str
    source: tuple[str, ...]  # as the text says it
    is_null_safe: bool = False


def qualify_columns(text: str, columns: Collection[str], alias: str, other_aliases: Collection[str] = ()) -> str:
    """The text with the alias before every column of that name that has no qualifier; subqueries stay as they are.

    What begins with the alias, or one of the others, has one.
    """
    aliases = {name.lower() for name in (alias, *other_aliases)}
    known = {name.lower() for name in columns}
    given = parse_fragment(text)
    places = [
        p
        for column in _columns_outside_subqueries(given.root)
        if (p := _qualifier_position(column, known, aliases)) is not None
    ]
    return apply_edits(text, ((start, start, f"{quote_name(alias)}.") for start in places))


def shorten_table_qualifiers(text: str, table: Sequence[str]) -> str:
    """The text with the last part of the name of a table before columns that have the whole; subqueries stay.

    >>> shortened("db.t.id = 3 AND a IN (SELECT db.t.id FROM db.t)", ["db", "t"])
    '`t`.id = 3 AND a IN (SELECT db.t.id FROM db.t)'
    """
    try:
        columns = list(_columns_outside_subqueries(parse_fragment(text).root))
    except UserError:  # whoever runs it says what is wrong
        return text
    name = [part.lower() for part in table]
    long = [c.parts for c in columns if [str(p.name).lower() for p in c.parts[:-1]][: len(name)] == name]
    places = [(p[0].meta["start"], p[len(name) - 1].meta["end"] + 1) for p in long if "start" in p[0].meta]
    return apply_edits(text, ((start, end, quote_name(table[-1])) for start, end in places))


def find_equalities(text: str, alias: str) -> tuple[Equality, ...]:
    """The columns of the table with an alias that a condition requires to equal a column of another table."""
    return tuple(e for part in _conjuncts(parse_fragment(text).root) if (e := _parse_equality(part, alias)) is not None)


def _columns_outside_subqueries(root: exp.Expression) -> Iterator[exp.Column]:
    """The column references outside of subqueries and lambda functions."""
    waiting: list[exp.Expression] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Query | exp.Lambda):
            continue
        if isinstance(node, exp.Column):
            yield node
        waiting += [child for child in node.iter_expressions() if isinstance(child, exp.Expression)]


def _qualifier_position(column: exp.Column, column_names: Collection[str], aliases: Collection[str]) -> int | None:
    """Where a column begins that is named without a table, or whose first part is a struct column."""
    first = column.parts[0]
    if len(column.parts) > 1 and str(first.name).lower() in aliases:
        return None
    if str(first.name).lower() not in column_names or first.meta.get("start") is None:
        return None
    return int(first.meta["start"])


def _conjuncts(root: exp.Expression) -> Iterator[exp.Expression]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            yield node


def _parse_equality(node: exp.Expression, alias: str) -> Equality | None:
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = name_parts(node.this), name_parts(node.expression)
    if left is None or right is None:
        return None
    of_target = [len(parts) > 1 and parts[0].lower() == alias.lower() for parts in (left, right)]
    if of_target == [False, True]:
        left, right, of_target = right, left, [True, False]
    if of_target != [True, False]:
        return None
    return Equality(".".join(left[1:]), tuple(right), isinstance(node, exp.NullSafeEQ))

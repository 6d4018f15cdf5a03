"""The tables that SQL text reads, and the text with other names in their places.

The text is an expression, a condition or a whole query. What is not replaced stays as it was written, character for
character.

>>> [t.name for t in tables_in("id IN (SELECT id FROM db.gone VERSION AS OF 3)")]
['db.gone']
>>> with_tables("SELECT o.id, gone.at FROM db.orders o JOIN db.gone USING (id)", lambda t: f"`v_{t.parts[-1]}`")
'SELECT o.id, gone.at FROM `v_orders` o JOIN `v_gone` AS `gone` USING (id)'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlglot import exp

from neve.predicate.features import Features, features_of
from neve.predicate.fragment import Edit, Fragment, edited, fragment
from neve.predicate.temporal import after_group

__all__ = ["Features", "Restriction", "TableName", "features_of", "quoted", "tables_in", "with_tables"]


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """What the query around a table requires of every row that it uses of it."""

    condition: exp.Expression
    has_others: bool  # the query reads other tables too


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as SQL text names it, and where."""

    parts: tuple[str, ...]
    start: int
    end: int  # exclusive; behind the time travel
    version: int | str | None = None  # VERSION AS OF: a snapshot, or a branch or tag
    timestamp: str | None = None  # TIMESTAMP AS OF: an expression
    alias: str | None = None
    restriction: Restriction | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The parts with dots between them."""
        return ".".join(self.parts)

    @property
    def called(self) -> str:
        """What columns are qualified with."""
        return self.alias or self.parts[-1]


def tables_in(text: str) -> tuple[TableName, ...]:
    """The tables that a text reads, in its order; names of common table expressions are none."""
    return tuple(name for _, name in _Text.of(text).tables)


def with_tables(text: str, names: Callable[[TableName], str | None]) -> str:
    """The text with tables replaced by what `names` says, and the others as they are.

    The new name is put in as given. A table without an alias gets its old name as one, so that columns may be qualified
    with it as before.
    """
    given = _Text.of(text)
    new = {id(node): names(name) for node, name in given.tables}
    replaced = [(node, name) for node, name in given.tables if new[id(node)] is not None]
    edits: list[Edit] = []
    for node, name in replaced:
        edits.append((name.start, name.end, str(new[id(node)])))
        if name.alias is None:
            edits += given.aliased(node, name)
    return edited(text, edits)


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


class _Text(Fragment):
    """A text in which tables are found."""

    @classmethod
    def of(cls, text: str) -> _Text:
        given = fragment(text)
        return cls(given.text, given.words, given.travels, given.root)

    @cached_property
    def tables(self) -> list[tuple[exp.Table, TableName]]:
        nodes = [node for node in self.root.find_all(exp.Table) if _is_table(node)]
        return sorted(((node, self._name(node)) for node in nodes), key=lambda found: found[1].start)

    def aliased(self, node: exp.Table, name: TableName) -> Iterator[Edit]:
        """The edits that keep the old name of a table valid for columns."""
        references = [column for column in self._columns if _source(column) is node]
        alone = len([t for t in _sources(_select(node)) if t.alias_or_name.lower() == name.parts[-1].lower()]) == 1
        alias = quoted(name.parts[-1] if alone or not references else name.name)
        at = self._behind_sample(name.end)
        yield at, at, f" AS {alias}"
        for column in references:
            qualifier = column.parts[: _qualified(column, node)]
            yield qualifier[0].meta["start"], qualifier[-1].meta["end"] + 1, alias

    @cached_property
    def _columns(self) -> list[exp.Column]:
        """The columns qualified with more than the name of a table or an alias."""
        return [column for column in self.root.find_all(exp.Column) if len(column.parts) > 2]

    def _name(self, node: exp.Table) -> TableName:
        start, end = node.parts[0].meta["start"], node.parts[-1].meta["end"] + 1
        parts = tuple(part.name for part in node.parts)
        name = TableName(parts, start, end, alias=node.alias or None, restriction=_restriction(node))
        for travel in self.travels:
            if end <= travel.start and not self.text[end : travel.start].strip():
                return replace(name, end=travel.end, version=travel.version, timestamp=travel.timestamp)
        return name

    def _behind_sample(self, end: int) -> int:
        """Where the alias of a table goes: behind TABLESAMPLE (…) REPEATABLE (…)."""
        at: int | None = next((i for i, word in enumerate(self.words) if word.start >= end), len(self.words))
        while at is not None and at + 1 < len(self.words) and self.words[at].says("TABLESAMPLE", "REPEATABLE"):
            at = after_group(self.words, at + 1)
            end = end if at is None else self.words[at - 1].end
        return end


def _is_table(node: exp.Table) -> bool:
    """Whether a node is a table in a catalog: no function, no hint, no common table expression."""
    is_named = all(isinstance(part, exp.Identifier) and "start" in part.meta for part in node.parts)
    return is_named and node.find_ancestor(exp.Hint) is None and not (len(node.parts) == 1 and _is_cte(node))


def _is_cte(node: exp.Table) -> bool:
    """Whether a common table expression of this name is in scope: one of a query around it, or an earlier sibling."""
    at: Any = node
    while (parent := at.parent) is not None:
        if isinstance(parent, exp.With) and isinstance(at, exp.CTE):
            position = parent.expressions.index(at) + bool(parent.recursive)
            visible = parent.expressions[:position]
            parent = parent.parent or parent
        else:
            visible = getattr(parent, "ctes", [])
        if node.name.lower() in {cte.alias.lower() for cte in visible}:
            return True
        at = parent
    return False


def _restriction(node: exp.Table) -> Restriction | None:
    """The condition of the query that reads a table, if a row that fails it can be left out before anything else."""
    select = _select(node)
    where = None if select is None else select.args.get("where")
    is_direct = isinstance(node.parent, exp.From | exp.Join) and node.parent.parent is select
    is_plain = not any(node.args.get(part) for part in ("joins", "pivots", "sample", "laterals"))
    if where is None or not is_direct or not is_plain or node.alias_column_names or not _commutes(node, select):
        return None
    return Restriction(where.this, len(_sources(select)) > 1)


def _commutes(node: exp.Table, select: Any) -> bool:
    """Whether a condition on the rows of a table may come before the joins: they make no row of nulls for it."""
    joins = select.args.get("joins") or []
    sides = {(join.args.get("side") or "").upper() for join in joins}
    kinds = {(join.args.get("kind") or "").upper() for join in joins}
    if isinstance(node.parent, exp.From):
        return sides <= {"", "LEFT"}
    return sides <= {""} and kinds <= {"", "INNER", "CROSS"}


def _select(node: exp.Expression) -> exp.Select | None:
    return node.find_ancestor(exp.Select)


def _sources(select: exp.Select | None) -> list[exp.Expression]:
    """What a SELECT reads from: tables, subqueries and lateral views."""
    if select is None:
        return []
    kinds = (exp.Table, exp.Subquery, exp.Lateral, exp.Values)
    return [n for n in select.find_all(*kinds) if _select(n) is select and n.find_ancestor(exp.Hint) is None]


def _source(column: exp.Column) -> exp.Expression | None:
    """The source a qualified column belongs to: the nearest around it that answers to the qualifier."""
    select = _select(column)
    while select is not None:
        matching = [(_qualified(column, source), source) for source in _sources(select)]
        length, source = max(matching, key=lambda found: found[0], default=(0, None))
        if length:
            return source if length > 1 else None
        select = _select(select)
    return None


def _qualified(column: exp.Column, source: exp.Expression) -> int:
    """How many parts of a column's name are the name of a source; the longest way to read it counts."""
    parts = [part.name.lower() for part in column.parts]
    if source.alias or not isinstance(source, exp.Table):
        return int(parts[0] == source.alias.lower())
    name = [part.name.lower() for part in source.parts]
    lengths = range(min(len(parts) - 1, len(name)), 0, -1)
    return next((n for n in lengths if parts[:n] == name[-n:]), 0)

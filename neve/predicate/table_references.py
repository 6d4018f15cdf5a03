"""Find the tables that SQL text reads, and replace their names.

The text is an expression, a condition or a whole query. Everything that is not replaced stays exactly as written.

>>> [t.name for t in tables_in("id IN (SELECT id FROM db.gone VERSION AS OF 3)")]
['db.gone']
>>> replace_tables("SELECT o.id, gone.at FROM db.orders o JOIN db.gone USING (id)", lambda t: f"`v_{t.parts[-1]}`")
'SELECT o.id, gone.at FROM `v_orders` o JOIN `v_gone` AS `gone` USING (id)'

Hidden columns can be excluded from `*`:

>>> exclude_columns_from_star("SELECT *, _file FROM db.t", ["_file"])
'SELECT * EXCEPT (`_file`), _file FROM db.t'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlglot import exp

from neve.errors import UserError
from neve.predicate.column_names import quote_name
from neve.predicate.sql_features import Edit, Fragment, apply_edits, parse_fragment
from neve.predicate.sql_text import tokenize_sql
from neve.predicate.time_travel import end_of_parentheses


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """A condition that the query around a table requires of every row that it uses from the table."""

    condition: exp.Expression
    has_other_tables: bool  # the query reads other tables too


@dataclass(frozen=True, slots=True)
class TableName:
    """A table name in SQL text, and its position."""

    parts: tuple[str, ...]
    start: int
    end: int  # exclusive; after the time travel clause
    version: int | str | None = None  # VERSION AS OF: a snapshot, or a branch or tag
    timestamp: str | None = None  # TIMESTAMP AS OF: an expression
    alias: str | None = None
    restriction: Restriction | None = field(default=None, compare=False, repr=False)
    # columns with a leading underscore that the query may read from the table, in lower case
    underscore_columns: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    joins_naturally: bool = field(default=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The parts joined by dots."""
        return ".".join(self.parts)

    @property
    def qualifier(self) -> str:
        """The name that qualifies columns of the table."""
        return self.alias or self.parts[-1]


def tables_in(text: str) -> tuple[TableName, ...]:
    """Return the tables that a text reads, in order; names of common table expressions are not tables."""
    return tuple(name for _, name in _FragmentWithTables.of(text).tables)


def replace_tables(text: str, replacement_for: Callable[[TableName], str | None]) -> str:
    """Replace each table name by what `replacement_for` returns for it; None leaves the table as it is.

    The new name is inserted as given. A table without an alias gets its old name as alias, so that columns that are
    qualified with it stay valid.
    """
    fragment = _FragmentWithTables.of(text)
    edits: list[Edit] = []
    for node, name in fragment.tables:
        if (new_name := replacement_for(name)) is not None:
            edits.append((name.start, name.end, new_name))
            if name.alias is None:
                edits += fragment.alias_edits(node, name)
    return apply_edits(text, edits)


class _FragmentWithTables(Fragment):
    """A text with the tables that it reads."""

    @classmethod
    def of(cls, text: str) -> _FragmentWithTables:
        fragment = parse_fragment(text)
        return cls(fragment.text, fragment.tokens, fragment.time_travels, fragment.root)

    @cached_property
    def tables(self) -> list[tuple[exp.Table, TableName]]:
        tables = []
        for node in self.root.find_all(exp.Table):
            is_named = all(isinstance(part, exp.Identifier) and "start" in part.meta for part in node.parts)
            # functions and common table expressions are no tables in a catalog
            if is_named and not (len(node.parts) == 1 and _is_cte(node)):
                tables.append((node, self._table_name(node)))
        return sorted(tables, key=lambda table: table[1].start)

    def alias_edits(self, node: exp.Table, name: TableName) -> Iterator[Edit]:
        """Yield the edits that keep the old name of a table valid, in full if another table has the same last name."""
        references = [(column, length) for column, source, length in self._qualified_columns if source is node]
        is_long = any(length > 1 for _, length in references)
        is_alone = self._source_names.count(name.parts[-1].lower()) == 1
        alias = quote_name(name.name if is_long and not is_alone else name.parts[-1])
        end = name.end  # the alias goes after TABLESAMPLE (…) REPEATABLE (…)
        at: int | None = next((i for i, token in enumerate(self.tokens) if token.start >= end), len(self.tokens))
        while at is not None and at + 1 < len(self.tokens) and self.tokens[at].matches("TABLESAMPLE", "REPEATABLE"):
            at = end_of_parentheses(self.tokens, at + 1)
            end = end if at is None else self.tokens[at - 1].end
        yield end, end, f" AS {alias}"
        for column, length in references:
            if length > 1 or (is_long and not is_alone):
                yield column.parts[0].meta["start"], column.parts[length - 1].meta["end"] + 1, alias

    @cached_property
    def _qualified_columns(self) -> list[tuple[exp.Column, exp.Expression, int]]:
        """The qualified columns, each with its source and the number of name parts that qualify it."""
        columns = (column for column in self.root.find_all(exp.Column) if len(column.parts) > 1)
        return [(column, *source) for column in columns if (source := _source_of_column(column)) is not None]

    @cached_property
    def _source_names(self) -> list[str]:
        """The names of the sources of all queries in the text."""
        kinds = (exp.Table, exp.Subquery, exp.CTE, exp.Lateral, exp.Values)
        return [source.alias_or_name.lower() for source in self.root.find_all(*kinds)]

    def _underscore_columns(self, node: exp.Table) -> frozenset[str]:
        """Return the names with a leading underscore that may be columns of a table."""
        qualified = {id(column): (source, length) for column, source, length in self._qualified_columns}
        names = set()
        for column in self.root.find_all(exp.Column):
            source, length = qualified.get(id(column), (None, 0))
            name = column.parts[length].name.lower()
            if name.startswith("_") and (source is node or (source is None and _may_be_column_of(column, node, name))):
                names.add(name)
        return frozenset(names)

    def _table_name(self, node: exp.Table) -> TableName:
        start, end = node.parts[0].meta["start"], node.parts[-1].meta["end"] + 1
        select = node.find_ancestor(exp.Select)
        joins = [] if select is None else select.args.get("joins") or []
        is_piped = any(token.matches("|>") for token in self.tokens)  # the tree merges the conditions of all steps
        name = TableName(
            tuple(part.name for part in node.parts),
            start,
            end,
            alias=node.alias or None,
            restriction=None if is_piped else _restriction(node),
            underscore_columns=self._underscore_columns(node),
            joins_naturally=any((join.args.get("method") or "").upper() == "NATURAL" for join in joins),
        )
        next_start = next((token.start for token in self.tokens if token.start >= end), None)
        for travel in self.time_travels:
            if travel.start == next_start:
                return replace(name, end=travel.end, version=travel.version, timestamp=travel.timestamp)
        return name


def _is_cte(node: exp.Table) -> bool:
    """Return whether a common table expression of this name is in scope: of an outer query, or an earlier sibling."""
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
    """Return the condition of the query that reads a table, if rows that fail it can be dropped first."""
    select = node.find_ancestor(exp.Select)
    where = None if select is None else select.args.get("where")
    is_direct = isinstance(node.parent, exp.From | exp.Join) and node.parent.parent is select
    is_plain = not any(node.args.get(part) for part in ("joins", "pivots", "sample", "laterals"))
    if select is None or where is None or not is_direct or not is_plain or node.alias_column_names:
        return None
    joins = select.args.get("joins") or []
    sides = {(join.args.get("side") or "").upper() for join in joins}
    kinds = {(join.args.get("kind") or "").upper() for join in joins}
    is_first = isinstance(node.parent, exp.From)
    makes_no_nulls = sides <= {"", "LEFT"} if is_first else sides <= {""} and kinds <= {"", "INNER", "CROSS"}
    if not makes_no_nulls:  # rows of nulls that a join makes for the table would not be filtered
        return None
    return Restriction(where.this, len(_sources_of_select(select)) > 1)


def _sources_of_select(select: exp.Select) -> list[exp.Expression]:
    """Return the sources of a SELECT: tables, subqueries and lateral views."""
    nodes = select.find_all(exp.Table, exp.Subquery, exp.Lateral, exp.Values)
    return [n for n in nodes if n.find_ancestor(exp.Select) is select]


def _source_of_column(column: exp.Column) -> tuple[exp.Expression, int] | None:
    """Return the nearest source that the qualifier of a column names, and the length of the qualifier."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        matching = [(source, _qualifier_length(column, source)) for source in _sources_of_select(select)]
        best = max(matching, key=lambda match: match[1], default=None)
        if best is not None and best[1]:
            return best
        select = select.find_ancestor(exp.Select)
    return None


def _may_be_column_of(column: exp.Column, node: exp.Table, name: str) -> bool:
    """Return whether the query of an unqualified column reads the table, and gives its name to nothing else."""
    select = node.find_ancestor(exp.Select)
    if select is None or column.find_ancestor(exp.Select) is not select:
        return False
    aliases = [e for e in select.expressions if isinstance(e, exp.Alias) and e.alias.lower() == name]
    return all(isinstance(e.this, exp.Column) and e.this.name.lower() == name for e in aliases)


def _qualifier_length(column: exp.Column, source: exp.Expression) -> int:
    """Return how many parts of a column name are the name of a source, in the longest possible reading."""
    parts = [part.name.lower() for part in column.parts]
    if source.alias or not isinstance(source, exp.Table):
        return int(parts[0] == source.alias.lower())
    name = [part.name.lower() for part in source.parts]
    lengths = range(min(len(parts) - 1, len(name)), 0, -1)
    return next((n for n in lengths if parts[:n] == name[-n:]), 0)


_BEFORE_A_STAR = ("SELECT", "DISTINCT", "ALL", ",", ".", "(")


def exclude_columns_from_star(text: str, hidden: Collection[str]) -> str:
    """Exclude hidden columns from `*`; in a query that is too complex for that, the caller must name the columns."""
    tokens = tokenize_sql(text)
    stars = []  # those that stand for columns, and not for a product or for all rows
    for at in range(1, len(tokens)) if hidden else ():
        is_count = at > 1 and tokens[at - 1].matches("(") and tokens[at - 2].matches("COUNT")
        if tokens[at].text == "*" and tokens[at - 1].matches(*_BEFORE_A_STAR) and not is_count:
            stars.append(at)
    is_plain = sum(t.matches("SELECT") for t in tokens) == 1 and not any(t.matches("JOIN", "EXCEPT") for t in tokens)
    if stars and not (is_plain and all(tokens[at - 1].matches("SELECT", "DISTINCT", "ALL", ",", ".") for at in stars)):
        raise UserError(
            f"Cannot tell whether * means {', '.join(sorted(hidden))} too in this query. Name the columns instead of *."
        )
    exclusion = f" EXCEPT ({', '.join(quote_name(name) for name in hidden)})"
    return apply_edits(text, ((tokens[at].end, tokens[at].end, exclusion) for at in stars))

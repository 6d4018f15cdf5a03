"""MERGE INTO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from neve.ops.context import LakeContext
from neve.ops.results import MergeResult
from neve.predicate.column_names import join_name, quote_name
from neve.predicate.sql_text import tokenize_sql
from neve.sql.change_rows import Assignment, parse_set_clause
from neve.sql.query import QUERY_KEYWORDS, prepare_text
from neve.sql.reader import Reader
from neve.sql.statement import Name, StatementOptions, default_alias, shorten_qualified_names, table_and_branch

RowMatch = Literal["matched", "not matched", "not matched by source"]
MergeAction = Literal["update", "update all", "delete", "insert", "insert all"]

_ALLOWED_ACTIONS: dict[RowMatch, tuple[MergeAction, ...]] = {
    "matched": ("update", "update all", "delete"),
    "not matched": ("insert", "insert all"),
    "not matched by source": ("update", "delete"),
}


@dataclass(frozen=True)
class WhenClause:
    """A WHEN clause: which rows, under which condition, and what happens to them."""

    rows: RowMatch
    action: MergeAction
    condition: str | None = None
    assignments: tuple[Assignment, ...] = ()

    def add_to(self, statement: Any, prepare: Callable[[str], str]) -> Any:
        """Add this clause to a builder; `prepare` makes its expressions ready for the builder."""
        add_clause = getattr(statement, f"when_{self.rows}_{self.action}".replace(" ", "_"))
        values = {each.column: prepare(each.value) for each in self.assignments}
        arguments = (values,) if self.assignments else ()
        return add_clause(*arguments, condition=None if self.condition is None else prepare(self.condition))

    def with_short_names(self, table: Name) -> WhenClause:
        """Replace the full name of a table before columns by its last part."""
        values = tuple(each.with_short_names(table) for each in self.assignments)
        condition = None if self.condition is None else shorten_qualified_names(self.condition, table)
        return replace(self, condition=condition, assignments=values)


@dataclass(frozen=True)
class Merge:
    """`MERGE INTO t USING s ON … WHEN …`."""

    table: Name
    source: str  # the name of a table, or a query
    on: str
    clauses: tuple[WhenClause, ...]
    aliases: tuple[str, str]
    evolves_schema: bool = False

    def run(self, lake: LakeContext, options: StatementOptions) -> MergeResult:
        """Merge the rows."""
        return self.builder(lake, options).execute()

    def builder(self, lake: LakeContext, options: StatementOptions) -> Any:
        """Return the statement as a builder of the API, not yet executed."""
        table, branch = table_and_branch(lake, self.table)
        prepare = partial(prepare_text, lake, outer_from=self._from_clause)
        query = prepare_text(lake, self._source_query)
        source = self.source if query == self._source_query else query  # it reads a view
        statement = options.on_branch(branch).apply_to(table.merge(source, on=prepare(self.on), aliases=self.aliases))
        for clause in self.clauses:
            statement = clause.add_to(statement, prepare)
        return statement.with_schema_evolution() if self.evolves_schema else statement

    @property
    def _from_clause(self) -> str:
        """The tables whose columns the expressions name."""
        target, other = map(quote_name, self.aliases)
        return f"FROM {join_name(self.table)} AS {target} CROSS JOIN ({self._source_query}) AS {other}"

    @property
    def _source_query(self) -> str:
        is_query = tokenize_sql(self.source)[0].matches(*QUERY_KEYWORDS)
        return self.source if is_query else f"SELECT * FROM {self.source}"  # noqa: S608


def parse_merge(reader: Reader) -> Merge:
    """Parse a MERGE."""
    reader.expect("MERGE")
    evolves_schema = reader.take_if_next("WITH", "SCHEMA", "EVOLUTION")
    reader.expect("INTO")
    table, alias = reader.table_name(), reader.alias()
    reader.expect("USING")
    source, source_alias, names = _parse_source(reader)
    reader.expect("ON")
    on = reader.expression("WHEN", what="a condition")
    clauses = [_parse_when(reader)]
    while reader.word is not None:
        clauses.append(_parse_when(reader))
    aliases = alias or default_alias(table), source_alias
    if aliases[0].lower() == aliases[1].lower():
        raise reader.syntax_error(
            f"target and source are both {aliases[1]!r}: give one of them an alias", reader.words[0]
        )
    for name in [*names, *([table] if alias is None else [])]:
        on, clauses = shorten_qualified_names(on, name), [clause.with_short_names(name) for clause in clauses]
    return Merge(table, source, on, tuple(clauses), aliases, evolves_schema)


def _parse_source(reader: Reader) -> tuple[str, str, list[Name]]:
    """Return the source as a table name or a query, its alias, and its full name if it has no alias."""
    names: list[Name] = []
    if reader.sees("("):
        query = reader.bracketed_text("a query")
        relation = f"({query})"
    else:
        start = reader.position
        names.append(reader.table_name())
        travels = reader.skip_time_travel()
        relation = reader.text[reader.words[start].start : reader.words[reader.position - 1].end]
        query = f"SELECT * FROM {relation}" if travels else relation  # noqa: S608
    own_alias = reader.alias()
    alias = own_alias or (default_alias(names[0]) if names else "source")
    if reader.sees("("):
        columns = ", ".join(quote_name(c) for c in reader.bracketed_list(lambda: reader.name("a column")))
        query = f"SELECT * FROM {relation} AS {quote_name(alias)}({columns})"  # noqa: S608
    return query, alias, [] if own_alias else names


def _parse_when(reader: Reader) -> WhenClause:
    reader.expect("WHEN")
    rows: RowMatch = "matched"
    if not reader.take_if_next("MATCHED"):
        reader.expect("NOT", "MATCHED")
        rows = "not matched by source" if reader.take_if_next("BY", "SOURCE") else "not matched"
        if rows == "not matched":
            reader.take_if_next("BY", "TARGET")
    condition = reader.expression("THEN", what="a condition") if reader.take_if_next("AND") else None
    reader.expect("THEN")
    at = reader.word
    action, assignments = _parse_action(reader)
    if action not in (allowed := _ALLOWED_ACTIONS[rows]):
        raise reader.syntax_error(f"WHEN {rows.upper()} cannot {action}: allowed are {', '.join(allowed).upper()}", at)
    return WhenClause(rows, action, condition, assignments)


def _parse_action(reader: Reader) -> tuple[MergeAction, tuple[Assignment, ...]]:
    if reader.take_if_next("DELETE"):
        return "delete", ()
    if reader.take_if_next("UPDATE", "SET", "*"):
        return "update all", ()
    if reader.take_if_next("UPDATE", "SET"):
        return "update", parse_set_clause(reader, "WHEN")
    if reader.take_if_next("INSERT", "*"):
        return "insert all", ()
    if not reader.take_if_next("INSERT"):
        raise reader.syntax_error("expected UPDATE SET, DELETE or INSERT")
    columns = reader.bracketed_list(lambda: join_name(reader.dotted_name("a column")))
    at = reader.word
    if len({c.lower() for c in columns}) < len(columns):
        raise reader.syntax_error("a column is listed twice before VALUES", at)
    reader.expect("VALUES")
    values = reader.bracketed_list(lambda: reader.expression(",", ")", what="an expression"))
    if len(columns) != len(values):
        raise reader.syntax_error(f"{len(columns)} columns, but {len(values)} values", at)
    return "insert", tuple(Assignment(column, value) for column, value in zip(columns, values, strict=True))

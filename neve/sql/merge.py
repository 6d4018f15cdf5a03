"""MERGE INTO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from neve.ops.context import LakeContext
from neve.ops.results import MergeResult
from neve.predicate.column_names import quoted, spelled
from neve.sql.reader import Reader
from neve.sql.statement import Name, Options, called_short, own_name, table_and_branch
from neve.sql.update_delete import Assignment, assignments

Rows = Literal["matched", "not matched", "not matched by source"]
Deed = Literal["update", "update all", "delete", "insert", "insert all"]

# What a clause may do with which rows, in the words of the builder.
_VERBS: dict[tuple[Rows, Deed], str] = {
    ("matched", "update"): "when_matched_update",
    ("matched", "update all"): "when_matched_update_all",
    ("matched", "delete"): "when_matched_delete",
    ("not matched", "insert"): "when_not_matched_insert",
    ("not matched", "insert all"): "when_not_matched_insert_all",
    ("not matched by source", "update"): "when_not_matched_by_source_update",
    ("not matched by source", "delete"): "when_not_matched_by_source_delete",
}


@dataclass(frozen=True)
class When:
    """One clause: which rows, on which condition, and what becomes of them."""

    rows: Rows
    deed: Deed
    condition: str | None = None
    assignments: tuple[Assignment, ...] = ()

    def added_to(self, statement: Any) -> Any:
        """The builder with this clause."""
        verb: Callable[..., Any] = getattr(statement, _VERBS[self.rows, self.deed])
        values = {each.column: each.value for each in self.assignments}
        return verb(values, condition=self.condition) if self.assignments else verb(condition=self.condition)

    def calling_short(self, table: Name) -> When:
        """The same clause with the last part of the name of a table in place of the whole."""
        values = tuple(each.calling_short(table) for each in self.assignments)
        return replace(self, condition=called_short(self.condition, table), assignments=values)


@dataclass(frozen=True)
class Merge:
    """`MERGE INTO t USING s ON … WHEN …`."""

    table: Name
    source: str  # the name of a table, or a query
    on: str
    clauses: tuple[When, ...]
    aliases: tuple[str, str]
    evolves_schema: bool = False

    def run(self, lake: LakeContext, options: Options) -> MergeResult:
        """Merge the rows."""
        return self.builder(lake, options).execute()

    def builder(self, lake: LakeContext, options: Options) -> Any:
        """The statement as the API builds it; nothing has happened yet."""
        table, branch = table_and_branch(lake, self.table)
        statement = options.on_branch(branch).applied(table.merge(self.source, on=self.on, aliases=self.aliases))
        for clause in self.clauses:
            statement = clause.added_to(statement)
        return statement.with_schema_evolution() if self.evolves_schema else statement


def merge(reader: Reader) -> Merge:
    """Read a MERGE."""
    reader.expect("MERGE")
    evolves_schema = reader.took("WITH", "SCHEMA", "EVOLUTION")
    reader.expect("INTO")
    table, alias = reader.table_name(), reader.alias()
    reader.expect("USING")
    source, source_alias, names = _source(reader)
    reader.expect("ON")
    on = reader.expression("WHEN", what="a condition")
    clauses = [_when(reader)]
    while reader.word is not None:
        clauses.append(_when(reader))
    aliases = alias or own_name(table), source_alias
    if aliases[0].lower() == aliases[1].lower():
        raise reader.wrong(f"target and source are both {aliases[1]!r}: give one of them an alias", reader.words[0])
    for name in [*names, *([table] if alias is None else [])]:
        on, clauses = called_short(on, name), [clause.calling_short(name) for clause in clauses]
    return Merge(table, source, on, tuple(clauses), aliases, evolves_schema)


def _source(reader: Reader) -> tuple[str, str, list[Name]]:
    """The source as the name of a table or as a query, its alias, and the whole name it has without one."""
    names: list[Name] = []
    if reader.sees("("):
        query = reader.bracketed_text("a query")
        relation = f"({query})"
    else:
        name, relation, query = _table(reader)
        names.append(name)
    given = reader.alias()
    alias = given or (own_name(names[0]) if names else "source")
    if reader.sees("("):
        columns = ", ".join(quoted(c) for c in reader.in_brackets(lambda: reader.name("a column")))
        query = f"SELECT * FROM {relation} AS {quoted(alias)}({columns})"  # noqa: S608
    return query, alias, [] if given else names


def _table(reader: Reader) -> tuple[Name, str, str]:
    """A table to merge from: its name, its text, and the same as a source."""
    start, name = reader.at, reader.table_name()
    travel = reader.time_travel()
    relation = reader.text[reader.words[start].start : reader.words[reader.at - 1].end]
    return name, relation, f"SELECT * FROM {relation}" if travel else relation  # noqa: S608


def _when(reader: Reader) -> When:
    reader.expect("WHEN")
    rows = _rows(reader)
    condition = reader.expression("THEN", what="a condition") if reader.took("AND") else None
    reader.expect("THEN")
    deed, assigned = _deed(reader, rows)
    return When(rows, deed, condition, assigned)


def _rows(reader: Reader) -> Rows:
    if reader.took("MATCHED"):
        return "matched"
    reader.expect("NOT", "MATCHED")
    if reader.took("BY", "SOURCE"):
        return "not matched by source"
    reader.took("BY", "TARGET")
    return "not matched"


def _deed(reader: Reader, rows: Rows) -> tuple[Deed, tuple[Assignment, ...]]:
    at = reader.word
    deed, assigned = _said(reader)
    if (rows, deed) in _VERBS:
        return deed, assigned
    possible = [name.upper() for of, name in _VERBS if of == rows]
    raise reader.wrong(f"rows {rows} cannot {deed}: possible are {', '.join(possible)}", at)


def _said(reader: Reader) -> tuple[Deed, tuple[Assignment, ...]]:
    if reader.took("DELETE"):
        return "delete", ()
    if reader.took("UPDATE", "SET", "*"):
        return "update all", ()
    if reader.took("UPDATE", "SET"):
        return "update", assignments(reader, "WHEN")
    if reader.took("INSERT", "*"):
        return "insert all", ()
    if not reader.took("INSERT"):
        raise reader.wrong("expected UPDATE SET, DELETE or INSERT")
    return "insert", _inserted(reader)


def _inserted(reader: Reader) -> tuple[Assignment, ...]:
    """`(columns) VALUES (expressions)`."""
    columns = reader.in_brackets(lambda: spelled(reader.dotted("a column")))
    at = reader.word
    if len({c.lower() for c in columns}) < len(columns):
        raise reader.wrong("a column is named twice before it", at)
    reader.expect("VALUES")
    values = reader.in_brackets(lambda: reader.expression(",", ")", what="an expression"))
    if len(columns) != len(values):
        raise reader.wrong(f"{len(columns)} columns, but {len(values)} values", at)
    return tuple(Assignment(column, value) for column, value in zip(columns, values, strict=True))

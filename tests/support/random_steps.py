"""What may happen to a table, one step at a time: each is done to the table and foreseen by the model.

A step is a value that prints as what it does. It is made for a `Shape`, what is known of a table without its rows, and
says which shape it leaves; so a whole sequence is known before anything is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType

from neve import Table
from neve.model.ddl import schema_of_ddl
from neve.ops.results import ChangeResult
from tests.support.expressions import Expression
from tests.support.row_model import Clause, ColumnDef, Model, Values
from tests.support.text_rows import arrow_type, quoted

OP = "op"  # a column that sources have beside those of the table
TIMES = ("years", "months", "days", "hours")


@dataclass(frozen=True)
class Field:
    """A partition field: the column it is made from, and how."""

    key: int
    transform: str  # identity, bucket(4), days, …

    def term(self, name: str) -> str:
        """The field in the words of the table, for the name its column has."""
        word, _, size = self.transform.removesuffix(")").partition("(")
        arguments = f"{size}, {quoted(name)}" if size else quoted(name)
        return f"{word}({arguments})"

    def name(self, column: str, *, is_first: bool) -> str:
        """The name the field gets; those of the first spec do not carry sizes."""
        word, _, size = self.transform.removesuffix(")").partition("(")
        if word == "identity":
            return column
        stem = {"truncate": "trunc"}.get(word, word.removesuffix("s"))
        return f"{column}_{stem}" + (f"_{size}" if size and not is_first else "")


@dataclass(frozen=True)
class Shape:
    """A table without its rows."""

    version: int
    columns: tuple[ColumnDef, ...]
    fields: tuple[Field, ...] = ()
    past: frozenset[Field] = frozenset()  # of all specs
    names: frozenset[tuple[str, int, bool]] = frozenset()  # of all fields, with their column; held for ever or not
    properties: Mapping[str, str] = field(default_factory=dict)

    def column(self, key: int) -> ColumnDef:
        return next(c for c in self.columns if c.key == key)

    def is_free(self, name: str) -> bool:
        """Whether a new column, or one that is renamed, may have a name."""
        live = {c.key for c in self.columns}
        held = {n for n, key, is_held in self.names if is_held or key in live}
        return name not in held and name not in {c.name for c in self.columns}

    def fits(self, new: Field, *, is_first: bool = False) -> bool:
        """Whether a field can be added: it is not there, and its name belongs to no other column."""
        name = new.name(self.column(new.key).name, is_first=is_first)
        return new not in self.fields and all(key == new.key for n, key, _ in self.names if n == name)

    def partitioned(self, fields: tuple[Field, ...], *, is_first: bool = False) -> Shape:
        """The shape under another spec."""
        new = [f for f in fields if f not in self.fields]
        names = {(f.name(self.column(f.key).name, is_first=is_first), f.key, self.version == 1) for f in new}
        return replace(self, fields=fields, past=self.past | set(fields), names=self.names | names)

    def with_column(self, key: int, **changes: Any) -> Shape:
        return replace(self, columns=tuple(replace(c, **changes) if c.key == key else c for c in self.columns))

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(c.name)} {c.kind}" for c in self.columns)

    @property
    def terms(self) -> list[str]:
        return [f.term(self.column(f.key).name) for f in self.fields]

    def __str__(self) -> str:
        return f"v{self.version} ({self.ddl}) partitioned by [{', '.join(self.terms)}]"


class Step:
    """Something that happens to a table."""

    def take(self, table: Table) -> ChangeResult | None:
        """Do it to the table."""
        raise NotImplementedError

    def foresee(self, model: Model) -> None:
        """Do it to the model."""

    def after(self, shape: Shape) -> Shape:
        """What the table is like afterwards."""
        return shape


# --- rows ---


@dataclass(frozen=True)
class Append(Step):
    """Rows are added."""

    columns: tuple[ColumnDef, ...]
    rows: tuple[Values, ...]

    def __str__(self) -> str:
        return f"append {shown(self.rows)}"

    def take(self, table: Table) -> None:
        table.append(arrow(self.rows, {c.name: c.kind for c in self.columns}))

    def foresee(self, model: Model) -> None:
        model.append(self.rows)


@dataclass(frozen=True)
class How:
    """How a statement is run, where it differs from what the properties of the table say."""

    mode: str | None = None
    isolation: str | None = None

    def applied(self, statement: Any) -> Any:
        if self.mode is not None:
            statement = statement.mode(self.mode)
        return statement if self.isolation is None else statement.isolation(self.isolation)

    def __str__(self) -> str:
        said = ", ".join(filter(None, (self.mode, self.isolation)))
        return f"   [{said}]" if said else ""


@dataclass(frozen=True)
class Update(Step):
    """Rows that match are changed."""

    assignments: Mapping[str, Expression]
    where: Expression | None
    how: How

    def __str__(self) -> str:
        said = ", ".join(f"{quoted(name)} = {new.sql}" for name, new in self.assignments.items())
        return f"UPDATE SET {said}{_where(self.where)}{self.how}"

    def take(self, table: Table) -> ChangeResult:
        update = table.update().set({name: new.sql for name, new in self.assignments.items()})
        return self.how.applied(update if self.where is None else update.where(self.where.sql)).execute()

    def foresee(self, model: Model) -> None:
        model.update(self.assignments, self.where)


@dataclass(frozen=True)
class Delete(Step):
    """Rows that match are deleted."""

    where: Expression | None
    how: How

    def __str__(self) -> str:
        return f"DELETE{_where(self.where)}{self.how}"

    def take(self, table: Table) -> ChangeResult:
        delete = table.delete()
        return self.how.applied(delete if self.where is None else delete.where(self.where.sql)).execute()

    def foresee(self, model: Model) -> None:
        model.delete(self.where)


@dataclass(frozen=True)
class Merge(Step):
    """Rows of a source meet those of the table."""

    columns: tuple[ColumnDef, ...]
    rows: tuple[Values, ...]
    on: Expression
    clauses: tuple[Clause, ...]
    how: How

    def __str__(self) -> str:
        said = "".join(f"\n       WHEN {c.kind.upper()}{_and(c)} THEN {_action(c)}" for c in self.clauses)
        return f"MERGE USING {shown(self.rows)}\n       ON {self.on.sql}{said}{self.how}"

    def take(self, table: Table) -> ChangeResult:
        kinds = {**{c.name: c.kind for c in self.columns}, OP: "string"}
        merge = table.merge(arrow(self.rows, kinds), on=self.on.sql)
        for clause in self.clauses:
            merge = _with(merge, clause)
        return self.how.applied(merge).execute()

    def foresee(self, model: Model) -> None:
        model.merge(self.rows, self.on, self.clauses)


def _with(merge: Any, clause: Clause) -> Any:
    condition = None if clause.condition is None else clause.condition.sql
    verb = f"when_{clause.kind.replace(' ', '_')}_"
    if clause.is_delete:
        return getattr(merge, f"{verb}delete")(condition=condition)
    word = "insert" if clause.kind == "not matched" else "update"
    if clause.is_all:
        return getattr(merge, f"{verb}{word}_all")(condition=condition)
    assignments = {name: new.sql for name, new in (clause.assignments or {}).items()}
    return getattr(merge, f"{verb}{word}")(assignments, condition=condition)


def _and(clause: Clause) -> str:
    return "" if clause.condition is None else f" AND {clause.condition.sql}"


def _action(clause: Clause) -> str:
    if clause.is_delete:
        return "DELETE"
    word = "INSERT" if clause.kind == "not matched" else "UPDATE SET"
    said = ", ".join(f"{quoted(name)} = {new.sql}" for name, new in (clause.assignments or {}).items())
    return f"{word} {'*' if clause.is_all else said}"


def _where(condition: Expression | None) -> str:
    return "" if condition is None else f" WHERE {condition.sql}"


# --- columns ---


@dataclass(frozen=True)
class Rename(Step):
    """A column gets another name."""

    key: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"rename column {self.old!r} to {self.new!r}"

    def take(self, table: Table) -> None:
        with table.evolve_schema() as change:
            change.rename_column((self.old,), self.new)

    def foresee(self, model: Model) -> None:
        model.rename(self.old, self.new)

    def after(self, shape: Shape) -> Shape:
        return shape.with_column(self.key, name=self.new)


@dataclass(frozen=True)
class AddColumn(Step):
    """A column is added, from version 3 on perhaps with a default."""

    column: ColumnDef

    def __str__(self) -> str:
        default = "" if self.column.default is None else f" default {self.column.default!r}"
        return f"add column {self.column.name!r} {self.column.kind}{default}"

    def take(self, table: Table) -> None:
        with table.evolve_schema() as change:
            change.add_column((self.column.name,), kind_of(self.column.kind), default_value=self.column.default)

    def foresee(self, model: Model) -> None:
        model.add(self.column)

    def after(self, shape: Shape) -> Shape:
        return replace(shape, columns=(*shape.columns, self.column))


@dataclass(frozen=True)
class DropColumn(Step):
    """A column is dropped."""

    key: int
    name: str

    def __str__(self) -> str:
        return f"drop column {self.name!r}"

    def take(self, table: Table) -> None:
        with table.evolve_schema() as change:
            change.delete_column((self.name,))

    def foresee(self, model: Model) -> None:
        model.drop(self.name)

    def after(self, shape: Shape) -> Shape:
        return replace(shape, columns=tuple(c for c in shape.columns if c.key != self.key))


@dataclass(frozen=True)
class Promote(Step):
    """A column gets a wider type."""

    key: int
    name: str
    kind: str

    def __str__(self) -> str:
        return f"promote column {self.name!r} to {self.kind}"

    def take(self, table: Table) -> None:
        with table.evolve_schema() as change:
            change.update_column((self.name,), kind_of(self.kind))

    def foresee(self, model: Model) -> None:
        model.promote(self.name, self.kind)

    def after(self, shape: Shape) -> Shape:
        return shape.with_column(self.key, kind=self.kind)


# --- the table ---


@dataclass(frozen=True)
class Repartition(Step):
    """Partition fields are added and dropped."""

    add: tuple[Field, ...]
    drop: tuple[Field, ...]
    names: Mapping[int, str]  # of columns by key

    def __str__(self) -> str:
        return f"partitions: add [{', '.join(self._terms(self.add))}], drop [{', '.join(self._terms(self.drop))}]"

    def _terms(self, fields: tuple[Field, ...]) -> list[str]:
        return [f.term(self.names[f.key]) for f in fields]

    def take(self, table: Table) -> None:
        table.evolve_partitions(add=self._terms(self.add), drop=self._terms(self.drop))

    def after(self, shape: Shape) -> Shape:
        return shape.partitioned((*(f for f in shape.fields if f not in self.drop), *self.add))


@dataclass(frozen=True)
class Upgrade(Step):
    """The table moves to the next format version."""

    version: int

    def __str__(self) -> str:
        return f"upgrade to v{self.version}"

    def take(self, table: Table) -> None:
        table.upgrade(self.version)

    def after(self, shape: Shape) -> Shape:
        return replace(shape, version=self.version)


@dataclass(frozen=True)
class SetProperties(Step):
    """Properties are set."""

    properties: Mapping[str, str]

    def __str__(self) -> str:
        return f"set {dict(self.properties)}"

    def take(self, table: Table) -> None:
        table.set_properties(**self.properties)

    def after(self, shape: Shape) -> Shape:
        return replace(shape, properties={**shape.properties, **self.properties})


def kind_of(kind: str) -> IcebergType:
    """The type that a DDL word stands for."""
    return schema_of_ddl(f"x {kind}").find_field("x").field_type


def arrow(rows: tuple[Values, ...], kinds: Mapping[str, str]) -> pa.Table:
    """Rows in the types given."""
    arrays = [pa.array([row[name] for row in rows], arrow_type(kind)) for name, kind in kinds.items()]
    return pa.table(arrays, pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()]))


def shown(rows: tuple[Values, ...]) -> str:
    """Rows to be read: the names once, then the values."""
    names = ", ".join(rows[0]) if rows else ""
    lines = "".join(f"\n       ({', '.join(_short(v) for v in row.values())})" for row in rows)
    return f"{len(rows)} rows of ({names}):{lines}"


def _short(value: Any) -> str:
    match value:
        case str() if len(value) > 15:
            return f"{value[:5]!r}…{value[-1]!r} ({len(value)})"
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
    return repr(value)

"""The steps of random histories in SQL, for another engine."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.expressions import Expression, literal_text
from tests.support.random_steps import (
    OP,
    AddColumn,
    Append,
    Delete,
    DropColumn,
    Field,
    Merge,
    Promote,
    Rename,
    Repartition,
    SetProperties,
    Shape,
    Step,
    Update,
    Upgrade,
)
from tests.support.row_model import Clause, ColumnDef, Values
from tests.support.text_rows import quoted

KINDS = ("matched", "not matched", "not matched by source")  # the order of Spark's grammar; the kinds are disjoint
MODE = {Delete: "write.delete.mode", Update: "write.update.mode", Merge: "write.merge.mode"}


def create_statement(shape: Shape, table: str) -> str:
    """Return the statement that creates a table of a shape."""
    by = f" PARTITIONED BY ({', '.join(map(_spark_term, shape.terms))})" if shape.terms else ""
    return f"CREATE TABLE {table} ({shape.ddl}) USING iceberg{by} TBLPROPERTIES ('format-version' = '{shape.version}')"


def _spark_term(term: str) -> str:
    """Return a partition term in Spark's syntax: an identity field is the bare column."""
    return term.removeprefix("identity(").removesuffix(")") if term.startswith("identity(") else term


def can_express(step: Step, shape: Shape) -> bool:
    """Return whether Spark with Iceberg can express a step on a table of this shape."""
    match step:
        case AddColumn(column):
            return column.default is None
        case Promote(kind=kind):
            return kind != "timestamp_ntz"
        case Upgrade(version):
            return version < 4
        case Delete() | Update() | Merge():  # version 1 has no delete files
            return shape.version > 1 or shape.properties.get(MODE[type(step)]) != "merge-on-read"
    return True


def sql_statements(step: Step, table: str) -> list[str]:
    """Return the Spark SQL statements of a step."""
    match step:
        case Append(columns, rows):
            names = ", ".join(quoted(c.name) for c in columns)
            return [f"INSERT INTO {table} ({names}) VALUES {_values(columns, rows)}"]
        case Update(assignments, where):
            return [f"UPDATE {table} SET {_set(assignments.items())}{_where(where)}"]
        case Delete(where):
            return [f"DELETE FROM {table}{_by_rows(where)}"]
        case Merge():
            return [_merge_statement(step, table)]
        case Repartition():
            return list(_partition_statements(step, table))
    return [f"ALTER TABLE {table} {_alter_clause(step)}"]


def _alter_clause(step: Step) -> str:
    match step:
        case Rename(_, old, new):
            return f"RENAME COLUMN {quoted(old)} TO {quoted(new)}"
        case AddColumn(column):
            return f"ADD COLUMN {quoted(column.name)} {column.kind}"
        case DropColumn(_, name):
            return f"DROP COLUMN {quoted(name)}"
        case Promote(_, name, kind):
            return f"ALTER COLUMN {quoted(name)} TYPE {kind}"
        case Upgrade(version):
            return f"SET TBLPROPERTIES ('format-version' = '{version}')"
        case SetProperties(properties):
            properties_text = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            return f"SET TBLPROPERTIES ({properties_text})"
    raise AssertionError(f"No SQL for {step}")


def _partition_statements(step: Repartition, table: str) -> Iterable[str]:
    def term(field: Field) -> str:
        return _spark_term(field.term(step.names[field.key]))

    for field in step.drop:
        yield f"ALTER TABLE {table} DROP PARTITION FIELD {term(field)}"
    for field in step.add:
        yield f"ALTER TABLE {table} ADD PARTITION FIELD {term(field)}"


def _merge_statement(step: Merge, table: str) -> str:
    columns = (*step.columns, ColumnDef(OP, "string", 0))
    names = ", ".join(quoted(c.name) for c in columns)
    source = f"SELECT * FROM (VALUES {_values(columns, step.rows)}) AS v({names})"
    clauses = sorted(step.clauses, key=lambda clause: KINDS.index(clause.kind))
    return f"MERGE INTO {table} AS t USING ({source}) AS s ON {step.on.sql} {' '.join(map(_clause, clauses))}"


def _clause(clause: Clause) -> str:
    condition = "" if clause.condition is None else f" AND {clause.condition.sql}"
    return f"WHEN {clause.kind.upper()}{condition} THEN {_action(clause)}"


def _action(clause: Clause) -> str:
    if clause.is_delete:
        return "DELETE"
    assignments = clause.assignments or {}
    if clause.kind != "not matched":
        return "UPDATE SET *" if clause.is_all else f"UPDATE SET {_set(assignments.items())}"
    names, values = ", ".join(map(quoted, assignments)), ", ".join(new.sql for new in assignments.values())
    return "INSERT *" if clause.is_all else f"INSERT ({names}) VALUES ({values})"


def _set(assignments: Iterable[tuple[str, Expression]]) -> str:
    return ", ".join(f"{quoted(name)} = {new.sql}" for name, new in assignments)


def _by_rows(condition: Expression | None) -> str:
    """Return a condition that Iceberg cannot evaluate on partitions: it does so wrongly for nulls (`SPARK_FAULTS`)."""
    return "" if condition is None else f" WHERE coalesce({condition.sql}, false)"


def _where(condition: Expression | None) -> str:
    return "" if condition is None else f" WHERE {condition.sql}"


def _values(columns: Iterable[ColumnDef], rows: Iterable[Values]) -> str:
    kinds = [(c.name, c.kind) for c in columns]
    return ", ".join(
        f"({', '.join(f'CAST({literal_text(row[name], kind)} AS {kind})' for name, kind in kinds)})" for row in rows
    )

"""The columns of a table, now and in the past, told by their field ids: names may change, ids do not.

The schema with its field ids and what became of each column, the references, and the properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from pyiceberg.schema import Schema

from neve.display.format import plural
from neve.display.html import Markup, shorten_middle
from neve.model.metadata import TableMetadata
from neve.model.pyiceberg_private import fields_by_id
from neve.report.html import NumberCell, number_cell, panel, table, time_cell
from neve.report.values import ColumnFacts, Report

_MAX_CHANGES = 6
_LONGEST = 400


def schemas_in_order(metadata: TableMetadata) -> list[Schema]:
    """The schemas as they came, the oldest first."""
    return sorted(metadata.schemas, key=lambda s: s.schema_id)


def columns_of(metadata: TableMetadata) -> tuple[ColumnFacts, ...]:
    """The columns of the current schema in its order, then those that are gone."""
    schemas, current = schemas_in_order(metadata), metadata.schema()
    live = list(fields_by_id(current))
    gone = {i: None for schema in reversed(schemas) for i in fields_by_id(schema) if i not in fields_by_id(current)}
    return tuple(_column_facts(field_id, schemas, current) for field_id in (*live, *sorted(gone)))


def schema_changes(schemas: Sequence[Schema]) -> Iterator[tuple[bool, str]]:
    """What each schema changed: whether there was one before it, and the change in words."""
    for before, after in zip((None, *schemas[:-1]), schemas, strict=True):
        if before is None:
            yield False, f"{len(after.fields):,} columns"
            continue
        words = [
            word for i in {**fields_by_id(before), **fields_by_id(after)} for word in _field_changes(i, before, after)
        ]
        more = [f"{len(words) - _MAX_CHANGES} more"] if len(words) > _MAX_CHANGES else []
        yield True, ", ".join([*words[:_MAX_CHANGES], *more]) or _otherwise(before, after)


def _otherwise(before: Schema, after: Schema) -> str:
    """What changed when no column did."""
    if list(fields_by_id(before)) != list(fields_by_id(after)):
        return "columns in another order"
    return "other identifier fields" if before.identifier_field_ids != after.identifier_field_ids else "nothing"


def _column_facts(field_id: int, schemas: Sequence[Schema], current: Schema) -> ColumnFacts:
    is_live = field_id in fields_by_id(current)
    told = current if is_live else next(s for s in reversed(schemas) if field_id in fields_by_id(s))
    field = told.find_field(field_id)
    default = "" if field.initial_default is None else str(field.initial_default)
    return ColumnFacts(
        field_id,
        _column_name(told, field_id),
        shorten_middle(str(field.field_type), _LONGEST),
        field.required,
        is_live,
        shorten_middle(default, _LONGEST),
        shorten_middle(field.doc or "", _LONGEST),
        tuple(_history(field_id, schemas)),
    )


def _history(field_id: int, schemas: Sequence[Schema]) -> Iterator[str]:
    """What happened to one column; that it was there from the beginning is no event."""
    for before, after in pairwise(schemas):
        for word in _field_changes(field_id, before, after, is_named=False):
            yield f"{word} in schema {after.schema_id}"


def _field_changes(field_id: int, before: Schema, after: Schema, *, is_named: bool = True) -> Iterator[str]:
    was, now = field_id in fields_by_id(before), field_id in fields_by_id(after)
    if not (was and now):
        if was != now:
            name = f" {_column_name(after if now else before, field_id)}" if is_named else ""
            yield f"{'added' if now else 'dropped'}{name}"
        return
    old, new = before.find_field(field_id), after.find_field(field_id)
    about = f"{_column_name(after, field_id)} " if is_named else ""
    if _column_name(before, field_id) != _column_name(after, field_id):
        yield f"{about}renamed from {_column_name(before, field_id)}"
    if old.field_type.is_primitive and old.field_type != new.field_type:
        yield f"{about}changed from {old.field_type} to {new.field_type}"
    if old.required != new.required:
        yield f"{about}{'required' if new.required else 'optional'}"
    if old.doc != new.doc:
        yield f"{about}described anew"
    if (old.initial_default, old.write_default) != (new.initial_default, new.write_default):
        yield f"{about}with another default"


def _column_name(schema: Schema, field_id: int) -> str:
    return shorten_middle(schema.find_column_name(field_id) or f"#{field_id}", _LONGEST)


def schema_section(report: Report) -> Markup:
    """The columns of the table, with those that are gone."""
    live = sum(column.is_live for column in report.columns)
    gone = len(report.columns) - live
    lede = f"{plural(live, 'column')}, nested ones counted, after {plural(report.schemas, 'schema')}"
    lede += f"; {gone:,} more {'is' if gone == 1 else 'are'} gone." if gone else "."
    heads = ("Id", "Column", "Type", "Null", "Default", "History", "Comment")
    order = f" Sort order: {report.sort_order}." if report.sort_order else ""
    return panel("schema", "Schema", lede + order, table("Columns", heads, map(_column_row, report.columns)))


def _column_row(column: ColumnFacts) -> tuple[NumberCell | str, ...]:
    history = "; ".join(column.history) or "as it was"
    null = "required" if column.is_required else "optional"
    return (
        number_cell(column.field_id),
        column.name,
        column.type,
        null if column.is_live else "gone",
        column.default or "–",
        history,
        column.doc or "–",
    )


def properties_section(report: Report) -> Markup:
    """Branches, tags and properties."""
    refs = ((r.name, r.kind, time_cell(r.at_ms), str(r.snapshot_id)) for r in report.history.refs)
    found = table("Branches and tags", ("Name", "Kind", "At (UTC)", "Snapshot"), refs)
    rows = table("Properties", ("Property", "Value"), sorted(report.properties.items()))
    lede = "Branches and tags keep snapshots from expiring; properties say how the table is written."
    return panel("names", "Names and properties", lede, found, rows)

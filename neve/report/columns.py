"""The sections about columns, references and properties.

The current and former columns of a table are identified by their field ids: names may change, ids do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from pyiceberg.schema import Schema

from neve.display.format import plural
from neve.display.html import Markup, shorten_middle
from neve.model.metadata import TableMetadata
from neve.model.pyiceberg_private import fields_by_id
from neve.report.html import panel, table, time_cell
from neve.report.values import ColumnFacts, Report

_MAX_CHANGES = 6
_MAX_LENGTH = 400  # of names, types, defaults and comments


def schemas_in_order(metadata: TableMetadata) -> list[Schema]:
    """Return the schemas, the oldest first."""
    return sorted(metadata.schemas, key=lambda s: s.schema_id)


def columns_of(metadata: TableMetadata) -> tuple[ColumnFacts, ...]:
    """Return the columns of the current schema in its order, then the dropped ones."""
    schemas, current = schemas_in_order(metadata), metadata.schema()
    live, columns = fields_by_id(current), []
    dropped = {i for schema in schemas for i in fields_by_id(schema) if i not in live}
    for field_id in (*live, *sorted(dropped)):
        schema = current if field_id in live else next(s for s in reversed(schemas) if field_id in fields_by_id(s))
        field = schema.find_field(field_id)
        default = "" if field.initial_default is None else str(field.initial_default)
        history = (  # a column of the first schema has no event for being added
            f"{change} in schema {after.schema_id}"
            for before, after in pairwise(schemas)
            for change in _field_changes(field_id, before, after, is_named=False)
        )
        column = ColumnFacts(
            field_id,
            _column_name(schema, field_id),
            shorten_middle(str(field.field_type), _MAX_LENGTH),
            field.required,
            field_id in live,
            shorten_middle(default, _MAX_LENGTH),
            shorten_middle(field.doc or "", _MAX_LENGTH),
            tuple(history),
        )
        columns.append(column)
    return tuple(columns)


def schema_changes(schemas: Sequence[Schema]) -> Iterator[str]:
    """Yield what each schema changed, in words that follow its name."""
    for before, after in zip((None, *schemas[:-1]), schemas, strict=True):
        if before is None:
            yield f", {len(after.fields):,} columns"
            continue
        field_ids = {**fields_by_id(before), **fields_by_id(after)}
        changes = [change for i in field_ids for change in _field_changes(i, before, after)]
        if len(changes) > _MAX_CHANGES:
            changes = [*changes[:_MAX_CHANGES], f"{len(changes) - _MAX_CHANGES} more"]
        elif not changes and list(fields_by_id(before)) != list(fields_by_id(after)):
            changes = ["columns in another order"]
        elif not changes:
            has_same_identifiers = before.identifier_field_ids == after.identifier_field_ids
            changes = ["nothing" if has_same_identifiers else "other identifier fields"]
        yield f": {', '.join(changes)}"


def _field_changes(field_id: int, before: Schema, after: Schema, *, is_named: bool = True) -> Iterator[str]:
    existed, exists = field_id in fields_by_id(before), field_id in fields_by_id(after)
    if not (existed and exists):
        if existed != exists:
            name = f" {_column_name(after if exists else before, field_id)}" if is_named else ""
            yield f"{'added' if exists else 'dropped'}{name}"
        return
    old, new = before.find_field(field_id), after.find_field(field_id)
    prefix = f"{_column_name(after, field_id)} " if is_named else ""
    if _column_name(before, field_id) != _column_name(after, field_id):
        yield f"{prefix}renamed from {_column_name(before, field_id)}"
    if old.field_type.is_primitive and old.field_type != new.field_type:
        yield f"{prefix}changed from {old.field_type} to {new.field_type}"
    if old.required != new.required:
        yield f"{prefix}{'required' if new.required else 'optional'}"
    if old.doc != new.doc:
        yield f"{prefix}with a new description"
    if (old.initial_default, old.write_default) != (new.initial_default, new.write_default):
        yield f"{prefix}with another default"


def _column_name(schema: Schema, field_id: int) -> str:
    return shorten_middle(schema.find_column_name(field_id) or f"#{field_id}", _MAX_LENGTH)


def schema_section(report: Report) -> Markup:
    """Render the columns of the table, including dropped ones."""
    live = sum(column.is_live for column in report.columns)
    dropped = len(report.columns) - live
    lede = f"{plural(live, 'column')}, including nested ones, after {plural(len(report.metadata.schemas), 'schema')}"
    lede += f"; {plural(dropped, 'more column')} dropped." if dropped else "."
    heads = ("Id", "Column", "Type", "Null", "Default", "History", "Comment")
    rows = (
        (
            column.field_id,
            column.name,
            column.type,
            "dropped" if not column.is_live else "required" if column.is_required else "optional",
            column.default or "–",
            "; ".join(column.history) or "unchanged",
            column.doc or "–",
        )
        for column in report.columns
    )
    order = f" Sort order: {report.sort_order}." if report.sort_order else ""
    return panel("schema", "Schema", lede + order, table("Columns", heads, rows))


def properties_section(report: Report) -> Markup:
    """Render branches, tags and properties."""
    refs = ((r.name, r.kind, time_cell(r.at_ms), str(r.snapshot_id)) for r in report.history.refs)
    ref_table = table("Branches and tags", ("Name", "Kind", "At (UTC)", "Snapshot"), refs)
    property_table = table("Properties", ("Property", "Value"), sorted(report.metadata.properties.items()))
    lede = "Branches and tags keep snapshots from expiring; properties configure how the table is written."
    return panel("names", "Names and properties", lede, ref_table, property_table)

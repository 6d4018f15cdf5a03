"""The schema with its field ids and what became of each column, the references, and the properties."""

from __future__ import annotations

from neve.display.format import several
from neve.display.html import Markup
from neve.report.parts.pieces import Amount, amount, at, panel, table
from neve.report.values import Column, Report

__all__ = ["properties", "section"]


def section(report: Report) -> Markup:
    """The columns of the table, with those that are gone."""
    live = sum(column.is_live for column in report.columns)
    gone = len(report.columns) - live
    lede = f"{several(live, 'column')}, nested ones counted, after {several(report.schemas, 'schema')}"
    lede += f"; {gone:,} more {'is' if gone == 1 else 'are'} gone." if gone else "."
    heads = ("Id", "Column", "Type", "Null", "Default", "History", "Comment")
    order = f" Sort order: {report.sort_order}." if report.sort_order else ""
    return panel("schema", "Schema", lede + order, table("Columns", heads, map(_row, report.columns)))


def _row(column: Column) -> tuple[Amount | str, ...]:
    history = "; ".join(column.history) or "as it was"
    null = "required" if column.is_required else "optional"
    return (
        amount(column.field_id),
        column.name,
        column.type,
        null if column.is_live else "gone",
        column.default or "–",
        history,
        column.doc or "–",
    )


def properties(report: Report) -> Markup:
    """Branches, tags and properties."""
    refs = ((r.name, r.kind, at(r.at_ms), str(r.snapshot_id)) for r in report.life.refs)
    found = table("Branches and tags", ("Name", "Kind", "At (UTC)", "Snapshot"), refs)
    rows = table("Properties", ("Property", "Value"), sorted(report.properties.items()))
    lede = "Branches and tags keep snapshots from expiring; properties say how the table is written."
    return panel("names", "Names and properties", lede, found, rows)

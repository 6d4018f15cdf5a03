"""What a notebook shows of a table: its name, its size and its columns, as far as metadata at hand tells."""

from __future__ import annotations

from neve.display.format import moment, several
from neve.display.html import Markup, card, joined, pairs, shortened, tag
from neve.ops.context import TableContext
from neve.report.life import spec_in_words

__all__ = ["table_card"]

_MOST_COLUMNS = 20
_LONGEST = 60
_TOTALS = (("total-records", "row"), ("total-data-files", "data file"), ("total-delete-files", "delete file"))


def table_card(context: TableContext) -> str:
    """The card of a table; no file is read for it."""
    metadata = context.metadata
    told = {
        "holds": _held(context),
        "format": f"version {metadata.format_version}, {several(len(metadata.partition_specs), 'spec')}",
        "partitioned by": shortened(spec_in_words(metadata.spec()), 200),
        "location": metadata.location,
        "columns": _columns(context),
    }
    return card("Table", context.name, pairs(told))


def _held(context: TableContext) -> str:
    snapshot = context.metadata.current_snapshot()
    if snapshot is None:
        return "nothing yet"
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    counts = [several(int(n), name) for key, name in _TOTALS if (n := summary.get(key, "")).isdecimal() and n != "0"]
    return ", ".join([*counts, f"since {moment(snapshot.timestamp_ms)} UTC"])


def _columns(context: TableContext) -> Markup:
    fields = context.metadata.schema().fields
    shown = [
        tag("code", f"{shortened(f.name, _LONGEST)} {shortened(str(f.field_type), _LONGEST)}")
        for f in fields[:_MOST_COLUMNS]
    ]
    more = [f"and {len(fields) - _MOST_COLUMNS:,} more"] if len(fields) > _MOST_COLUMNS else []
    return joined((*shown, *more), ", ")

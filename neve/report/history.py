"""The life of a table: its commits, and when its schema and its partitioning changed.

Metadata does not say when a schema or a spec was added. A schema is first seen with the first snapshot written under
it, a spec with the oldest file that is still live.

The life of the table: commits, files, and changes of schema and partitioning on one line of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionSpec

from neve.display.format import format_day, format_time, plural
from neve.display.html import Markup, tag
from neve.model.metadata import TableMetadata
from neve.report.columns import schema_changes, schemas_in_order
from neve.report.html import NumberCell, legend, name_markup, number_cell, panel, table, time_cell
from neve.report.values import Commit, HistoryEvent, Period, Ref, Report, TableHistory

_MOST_PERIODS = 96
_MOST_COMMITS = 200
_MAX_TIME_MS = 1 << 62  # a time beyond it is not one


def history_of(metadata: TableMetadata, first_seen: Mapping[int, int]) -> TableHistory:
    """What happened, from the snapshots that are left; `first_seen` tells since when there are files of each spec."""
    rows: Sequence[Mapping[str, Any]] = metadata.lazy_snapshots.rows
    ancestors = _ancestors(rows, metadata.current_snapshot_id)
    commits = sorted(
        (_parse_commit(row, ancestors) for row in rows), key=lambda c: (c.at_ms, c.snapshot_id in ancestors)
    )
    times = {c.snapshot_id: c.at_ms for c in commits}
    refs = tuple(
        Ref(name, str(ref.snapshot_ref_type.value), ref.snapshot_id, times.get(ref.snapshot_id))
        for name, ref in sorted(metadata.refs.items())
    )
    changes = [*_schema_events(metadata, commits), *_specs(metadata, first_seen), *_names(refs)]
    return TableHistory(
        len(commits),
        tuple(reversed(commits[-_MOST_COMMITS:])),
        tuple(_periods(commits)),
        tuple(sorted(changes, key=lambda c: _MAX_TIME_MS if c.at_ms is None else c.at_ms)),
        refs,
        commits[0].at_ms if commits else None,
        commits[-1].at_ms if commits else None,
    )


def describe_spec(spec: PartitionSpec) -> str:
    """What a spec partitions by."""
    said = [f"{f.name} ({f.transform})" for f in spec.fields if str(f.transform) != "void"]
    return ", ".join(said) or "not partitioned"


def _parse_commit(row: Mapping[str, Any], ancestors: set[int]) -> Commit:
    summary: Mapping[str, Any] = row.get("summary") or {}
    return Commit(
        int(row["snapshot-id"]),
        _parse_number(row.get("timestamp-ms")) or 0,
        str(summary.get("operation") or "unknown"),
        row.get("schema-id"),
        row["snapshot-id"] in ancestors,
        _parse_number(summary.get("added-data-files")),
        _parse_number(summary.get("deleted-data-files")),
        _parse_number(summary.get("added-records")),
        _parse_number(summary.get("total-data-files")),
        _parse_number(summary.get("total-delete-files")),
    )


def _parse_number(text: Any) -> int | None:
    """A number another engine wrote as text, if it is one."""
    try:
        found = int(text)
    except (TypeError, ValueError):
        return None
    return found if abs(found) < _MAX_TIME_MS else None


def _ancestors(rows: Iterable[Mapping[str, Any]], current: int | None) -> set[int]:
    parents = {row["snapshot-id"]: row.get("parent-snapshot-id") for row in rows}
    found: set[int] = set()
    while current is not None and current in parents and current not in found:
        found.add(current)
        current = parents[current]
    return found


def _periods(commits: Sequence[Commit]) -> Iterator[Period]:
    """The time from the first to the last commit in even stretches; file counts stay until they change."""
    if not commits:
        return
    first, last = commits[0].at_ms, commits[-1].at_ms
    count = _MOST_PERIODS if last > first else 1
    width = max((last - first) / count, 1.0)
    held: dict[int, list[Commit]] = {}
    for commit in commits:
        held.setdefault(min(int((commit.at_ms - first) / width), count - 1), []).append(commit)
    files = deletes = None
    for number in range(count):
        inside = held.get(number, [])
        for commit in inside:
            if commit.is_ancestor and commit.total_files is not None:
                files, deletes = commit.total_files, commit.total_deletes
        yield Period(int(first + number * width), Counter(c.operation for c in inside), files, deletes)


def _schema_events(metadata: TableMetadata, commits: Sequence[Commit]) -> Iterator[HistoryEvent]:
    seen: dict[int | None, int] = {}
    for commit in commits:
        seen.setdefault(commit.schema_id, commit.at_ms)
    schemas = schemas_in_order(metadata)
    for schema, (before, words) in zip(schemas, schema_changes(schemas), strict=True):
        what = f"schema {schema.schema_id}: {words}" if before else f"schema {schema.schema_id}, {words}"
        yield HistoryEvent("schema", seen.get(schema.schema_id), what)


def _specs(metadata: TableMetadata, first_seen: Mapping[int, int]) -> Iterator[HistoryEvent]:
    for spec in sorted(metadata.partition_specs, key=lambda s: s.spec_id):
        yield HistoryEvent("spec", first_seen.get(spec.spec_id), f"spec {spec.spec_id}: {describe_spec(spec)}")


def _names(refs: Iterable[Ref]) -> Iterator[HistoryEvent]:
    for ref in refs:
        if ref.name != "main":
            yield HistoryEvent(ref.kind, ref.at_ms, f"{ref.kind} {ref.name}")


_OPERATIONS = ("append", "overwrite", "delete", "replace")
_KINDS = (*_OPERATIONS, "other")
_LANES = ("schema", "spec", "branch", "tag")
_COMMITS_HEIGHT, _FILES_HEIGHT, _LANE_HEIGHT = 56, 84, 36  # heights
_MAX_BAR_PERCENT = 2.5  # percent of the width that a bar of commits takes at most


def history_section(report: Report) -> Markup:
    """The time line, the changes in words, and the newest snapshots."""
    life = report.history
    if life.first_ms is None or life.last_ms is None:
        return panel("life", "Life", "Nobody has written to this table yet.", _changes_table(life.changes))
    lede = (
        f"{plural(life.snapshots, 'snapshot')} {_span(life.first_ms, life.last_ms)}, as far as the metadata "
        "remembers. A schema or a spec is shown where it was first used."
    )
    keys = legend((f"op-{op}", op) for op in _KINDS if any(_commit_count(p, op) for p in life.periods))
    drawn = _timeline_chart(life, life.first_ms, life.last_ms)
    return panel("life", "Life", lede, keys, drawn, _changes_table(life.changes), _commits(life))


def _span(first: int, last: int) -> str:
    return (
        f"of {format_day(first)}"
        if format_day(first) == format_day(last)
        else f"from {format_day(first)} to {format_day(last)}"
    )


def _commit_count(period: Period, operation: str) -> int:
    if operation == "other":
        return sum(count for op, count in period.commits.items() if op not in _OPERATIONS)
    return period.commits.get(operation, 0)


def _timeline_chart(life: TableHistory, first: int, last: int) -> Markup:
    lanes = [lane for lane in _LANES if any(c.kind == lane and c.at_ms is not None for c in life.changes)]
    top = _COMMITS_HEIGHT + _FILES_HEIGHT + 56
    height = top + _LANE_HEIGHT * len(lanes) + 20
    drawn = [*_commit_bars(life, 18), *_file_bars(life, _COMMITS_HEIGHT + 44)]
    for number, lane in enumerate(lanes):
        drawn += _draw_lane(lane, life.changes, top + number * _LANE_HEIGHT, first, last)
    drawn += _date_labels(first, last, height - 4)
    label = f"Time line of {plural(life.snapshots, 'snapshot')}; the tables below hold the same."
    return tag("svg", *drawn, width="100%", height=height, role="img", aria_label=label, class_="chart life")


def _commit_bars(life: TableHistory, top: int) -> Iterator[Markup]:
    slot, most = 100 / len(life.periods), max(sum(p.commits.values()) for p in life.periods)
    yield tag("text", f"commits (at most {most:,} together)", x="0", y=top - 6, class_="caption")
    for place, period in enumerate(life.periods):
        foot = float(top + _COMMITS_HEIGHT)
        for operation in _KINDS:
            count = _commit_count(period, operation)
            tall = max(_COMMITS_HEIGHT * count / most, 3.0) if count else 0.0
            foot -= tall
            if tall:
                title = f"{format_time(period.start_ms)}: {count:,} {operation}"
                yield _rect(place * slot, min(slot, _MAX_BAR_PERCENT), foot, tall, f"op-{operation}", title)
    yield tag("line", x1="0", x2="100%", y1=top + _COMMITS_HEIGHT, y2=top + _COMMITS_HEIGHT, class_="axis")


def _file_bars(life: TableHistory, top: int) -> Iterator[Markup]:
    most = max((p.total_files or 0 for p in life.periods), default=0)
    slot = 100 / len(life.periods)
    yield tag("text", f"live data files (at most {most:,})", x="0", y=top - 6, class_="caption")
    for place, period in enumerate(life.periods):
        if period.total_files and most:
            tall = max(_FILES_HEIGHT * period.total_files / most, 1.0)
            title = f"{format_day(period.start_ms)}: {plural(period.total_files, 'file')}"
            yield _rect(place * slot, slot, top + _FILES_HEIGHT - tall, tall, "held", title, gap=0.0)
    yield tag("line", x1="0", x2="100%", y1=top + _FILES_HEIGHT, y2=top + _FILES_HEIGHT, class_="axis")


def _rect(left: float, slot: float, top: float, tall: float, colour: str, title: str, gap: float = 0.12) -> Markup:
    place = {"x": f"{left + slot * gap:.2f}%", "width": f"{slot * (1 - gap) + (0.05 if not gap else 0):.2f}%"}
    return tag("rect", tag("title", title), y=f"{top:.1f}", height=f"{tall:.1f}", class_=colour, **place)


def _draw_lane(lane: str, changes: Iterable[HistoryEvent], top: int, first: int, last: int) -> Iterator[Markup]:
    middle = top + _LANE_HEIGHT - 12
    yield tag("line", x1="0", x2="100%", y1=middle, y2=middle, class_="lane")
    yield tag("text", f"{lane}s" if lane != "branch" else "branches", x="0", y=middle - 11, class_="caption")
    for change in changes:
        if change.kind == lane and change.at_ms is not None:
            part = (change.at_ms - first) / (last - first) if last > first else 0.5
            place = f"{1 + 98 * min(max(part, 0.0), 1.0):.2f}%"
            title = tag("title", f"{format_day(change.at_ms)}: {change.what}")
            yield tag("circle", title, cx=place, cy=middle, r="5", class_=f"dot {lane}")


def _date_labels(first: int, last: int, foot: int) -> Iterator[Markup]:
    yield tag("text", format_day(first), x="0", y=foot)
    if last > first:
        yield tag("text", format_day((first + last) // 2), x="50%", y=foot, text_anchor="middle", class_="wide")
        yield tag("text", format_day(last), x="100%", y=foot, text_anchor="end")


def _changes_table(changes: Iterable[HistoryEvent]) -> Markup:
    rows = ((time_cell(c.at_ms), c.kind, name_markup(c.what, 400)) for c in changes)
    return table("Changes", ("First seen (UTC)", "Of", "What"), rows)


def _commits(life: TableHistory) -> Markup:
    heads = ("Committed (UTC)", "Operation", "Files added", "Files removed", "Rows added", "Files in all", "Snapshot")
    note = f"The newest {len(life.commits):,} of {life.snapshots:,}." if len(life.commits) < life.snapshots else ""
    return table("Snapshots", heads, map(_snapshot_row, life.commits), note)


def _snapshot_row(commit: Commit) -> tuple[NumberCell | str, ...]:
    aside = "" if commit.is_ancestor else " (elsewhere)"
    return (
        time_cell(commit.at_ms),
        f"{commit.operation}{aside}",
        _optional_number_cell(commit.added_files),
        _optional_number_cell(commit.removed_files),
        _optional_number_cell(commit.added_rows),
        _optional_number_cell(commit.total_files),
        tag("code", commit.snapshot_id),
    )


def _optional_number_cell(number: int | None) -> NumberCell:
    return NumberCell(0, "–") if number is None else number_cell(number)

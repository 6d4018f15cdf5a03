"""The section about history: commits, file counts, and changes of schema and partitioning on one timeline.

Metadata does not record when a schema or a spec was added. A schema is dated by the first snapshot written with it, a
spec by its oldest live file.
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
from neve.report.html import legend, name_markup, panel, table, time_cell
from neve.report.values import Commit, HistoryEvent, Period, Ref, Report, TableHistory

_MOST_PERIODS = 96
_MOST_COMMITS = 200
_MAX_TIME_MS = 1 << 62  # larger numbers are not valid


def history_of(metadata: TableMetadata, first_seen: Mapping[int, int]) -> TableHistory:
    """Return the history from the existing snapshots; `first_seen` is the time of the oldest file of each spec."""
    commits = _commits(metadata.lazy_snapshots.rows, metadata.current_snapshot_id)
    times = {c.snapshot_id: c.at_ms for c in commits}
    refs = tuple(
        Ref(name, str(ref.snapshot_ref_type.value), ref.snapshot_id, times.get(ref.snapshot_id))
        for name, ref in sorted(metadata.refs.items())
    )
    specs = {spec.spec_id: describe_spec(spec) for spec in sorted(metadata.partition_specs, key=lambda s: s.spec_id)}
    first_used: dict[int | None, int] = {}
    for commit in commits:
        first_used.setdefault(commit.schema_id, commit.at_ms)
    schemas = schemas_in_order(metadata)
    changes = [
        HistoryEvent("schema", first_used.get(schema.schema_id), f"schema {schema.schema_id}{change}")
        for schema, change in zip(schemas, schema_changes(schemas), strict=True)
    ]
    changes += [HistoryEvent("spec", first_seen.get(i), f"spec {i}: {text}") for i, text in specs.items()]
    changes += [HistoryEvent(ref.kind, ref.at_ms, f"{ref.kind} {ref.name}") for ref in refs if ref.name != "main"]
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
    """Return the partition fields of a spec, in words."""
    fields = [f"{f.name} ({f.transform})" for f in spec.fields if str(f.transform) != "void"]
    return ", ".join(fields) or "not partitioned"


def _commits(rows: Sequence[Mapping[str, Any]], current: int | None) -> list[Commit]:
    """Return the commits in the order of time; of the same time, the ancestors of the current one last."""
    parents = {row["snapshot-id"]: row.get("parent-snapshot-id") for row in rows}
    ancestors: set[int] = set()
    while current is not None and current in parents and current not in ancestors:
        ancestors.add(current)
        current = parents[current]
    commits = []
    for row in rows:
        summary: Mapping[str, Any] = row.get("summary") or {}
        commit = Commit(
            int(row["snapshot-id"]),
            _parse_number(row.get("timestamp-ms")) or 0,
            str(summary.get("operation") or "unknown"),
            row.get("schema-id"),
            row["snapshot-id"] in ancestors,
            _parse_number(summary.get("added-data-files")),
            _parse_number(summary.get("deleted-data-files")),
            _parse_number(summary.get("added-records")),
            _parse_number(summary.get("total-data-files")),
        )
        commits.append(commit)
    return sorted(commits, key=lambda c: (c.at_ms, c.snapshot_id in ancestors))


def _parse_number(text: Any) -> int | None:
    """Return a number from a snapshot's summary; None if the writer put something else there."""
    try:
        number = int(text)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < _MAX_TIME_MS else None


def _periods(commits: Sequence[Commit]) -> Iterator[Period]:
    """Divide the time from the first to the last commit evenly; a period without commits repeats the file counts."""
    if not commits:
        return
    first, last = commits[0].at_ms, commits[-1].at_ms
    count = _MOST_PERIODS if last > first else 1
    width = max((last - first) / count, 1.0)
    by_period: dict[int, list[Commit]] = {}
    for commit in commits:
        by_period.setdefault(min(int((commit.at_ms - first) / width), count - 1), []).append(commit)
    files = None
    for number in range(count):
        period_commits = by_period.get(number, [])
        for commit in period_commits:
            if commit.is_ancestor and commit.total_files is not None:
                files = commit.total_files
        yield Period(int(first + number * width), Counter(c.operation for c in period_commits), files)


_OPERATIONS = ("append", "overwrite", "delete", "replace")
_KINDS = (*_OPERATIONS, "other")
_LANES = ("schema", "spec", "branch", "tag")
_COMMITS_HEIGHT, _FILES_HEIGHT, _LANE_HEIGHT = 56, 84, 36  # pixels
_MAX_BAR_PERCENT = 2.5  # the largest width of a bar of commits, in percent of the chart


def history_section(report: Report) -> Markup:
    """Render the timeline, the changes in words, and the newest snapshots."""
    history = report.history
    if history.first_ms is None or history.last_ms is None:
        return panel("life", "History", "Nobody has written to this table yet.", _changes_table(history.changes))
    first, last = format_day(history.first_ms), format_day(history.last_ms)
    lede = (
        f"{plural(history.snapshots, 'snapshot')} {f'of {first}' if first == last else f'from {first} to {last}'}, "
        "according to the metadata. A schema or a spec is shown at its first use."
    )
    keys = legend((f"op-{op}", op) for op in _KINDS if any(_commit_count(p, op) for p in history.periods))
    chart = _timeline_chart(history, history.first_ms, history.last_ms)
    heads = ("Committed (UTC)", "Operation", "Files added", "Files removed", "Rows added", "Total files", "Snapshot")
    rows = (
        (
            time_cell(commit.at_ms),
            commit.operation if commit.is_ancestor else f"{commit.operation} (not in current history)",
            commit.added_files,
            commit.removed_files,
            commit.added_rows,
            commit.total_files,
            tag("code", commit.snapshot_id),
        )
        for commit in history.commits
    )
    shown, total = len(history.commits), history.snapshots
    note = f"The newest {shown:,} of {total:,}." if shown < total else ""
    snapshots = table("Snapshots", heads, rows, note)
    return panel("life", "History", lede, keys, chart, _changes_table(history.changes), snapshots)


def _commit_count(period: Period, operation: str) -> int:
    if operation == "other":
        return sum(count for op, count in period.commits.items() if op not in _OPERATIONS)
    return period.commits.get(operation, 0)


def _timeline_chart(history: TableHistory, first: int, last: int) -> Markup:
    lanes = [lane for lane in _LANES if any(c.kind == lane and c.at_ms is not None for c in history.changes)]
    top = _COMMITS_HEIGHT + _FILES_HEIGHT + 56
    height = top + _LANE_HEIGHT * len(lanes) + 20
    shapes = [*_commit_bars(history, 18), *_file_bars(history, _COMMITS_HEIGHT + 44)]
    for number, lane in enumerate(lanes):
        middle = top + (number + 1) * _LANE_HEIGHT - 12
        shapes.append(tag("line", x1="0", x2="100%", y1=middle, y2=middle, class_="lane"))
        title = f"{lane}s" if lane != "branch" else "branches"
        shapes.append(tag("text", title, x="0", y=middle - 11, class_="caption"))
        for change in history.changes:
            if change.kind == lane and change.at_ms is not None:
                share = (change.at_ms - first) / (last - first) if last > first else 0.5
                x = f"{1 + 98 * min(max(share, 0.0), 1.0):.2f}%"
                tooltip = tag("title", f"{format_day(change.at_ms)}: {change.what}")
                shapes.append(tag("circle", tooltip, cx=x, cy=middle, r="5", class_=f"dot {lane}"))
    foot = height - 4
    shapes.append(tag("text", format_day(first), x="0", y=foot))
    if last > first:
        day = format_day((first + last) // 2)
        shapes.append(tag("text", day, x="50%", y=foot, text_anchor="middle", class_="wide"))
        shapes.append(tag("text", format_day(last), x="100%", y=foot, text_anchor="end"))
    label = f"Timeline of {plural(history.snapshots, 'snapshot')}; the tables below contain the same data."
    return tag("svg", *shapes, width="100%", height=height, role="img", aria_label=label, class_="chart life")


def _commit_bars(history: TableHistory, top: int) -> Iterator[Markup]:
    slot, most = 100 / len(history.periods), max(sum(p.commits.values()) for p in history.periods)
    yield tag("text", f"commits (at most {most:,} together)", x="0", y=top - 6, class_="caption")
    for index, period in enumerate(history.periods):
        y = float(top + _COMMITS_HEIGHT)
        for operation in _KINDS:
            count = _commit_count(period, operation)
            height = max(_COMMITS_HEIGHT * count / most, 3.0) if count else 0.0
            y -= height
            if height:
                title = f"{format_time(period.start_ms)}: {count:,} {operation}"
                yield _rect(index * slot, min(slot, _MAX_BAR_PERCENT), y, height, f"op-{operation}", title)
    yield tag("line", x1="0", x2="100%", y1=top + _COMMITS_HEIGHT, y2=top + _COMMITS_HEIGHT, class_="axis")


def _file_bars(history: TableHistory, top: int) -> Iterator[Markup]:
    most = max((p.total_files or 0 for p in history.periods), default=0)
    slot = 100 / len(history.periods)
    yield tag("text", f"live data files (at most {most:,})", x="0", y=top - 6, class_="caption")
    for index, period in enumerate(history.periods):
        if period.total_files and most:
            height = max(_FILES_HEIGHT * period.total_files / most, 1.0)
            title = f"{format_day(period.start_ms)}: {plural(period.total_files, 'file')}"
            yield _rect(index * slot, slot, top + _FILES_HEIGHT - height, height, "held", title, gap=0.0)
    yield tag("line", x1="0", x2="100%", y1=top + _FILES_HEIGHT, y2=top + _FILES_HEIGHT, class_="axis")


def _rect(left: float, slot: float, top: float, height: float, colour: str, title: str, gap: float = 0.12) -> Markup:
    x, width = f"{left + slot * gap:.2f}%", f"{slot * (1 - gap) + (0.05 if not gap else 0):.2f}%"
    return tag("rect", tag("title", title), y=f"{top:.1f}", height=f"{height:.1f}", class_=colour, x=x, width=width)


def _changes_table(changes: Iterable[HistoryEvent]) -> Markup:
    rows = ((time_cell(c.at_ms), c.kind, name_markup(c.what, 400)) for c in changes)
    return table("Changes", ("First seen (UTC)", "Kind", "Change"), rows)

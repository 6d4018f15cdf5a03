"""The life of a table: its commits, and when its schema and its partitioning changed.

Metadata does not say when a schema or a spec was added. A schema is first seen with the first snapshot written under
it, a spec with the oldest file that is still live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PartitionSpec

from neve.model.metadata import TableMetadata
from neve.report.columns import schema_changes, schemas_in_order
from neve.report.values import Change, Commit, Life, Period, Ref

__all__ = ["life_of", "spec_in_words"]

_MOST_PERIODS = 96
_MOST_COMMITS = 200
_FARTHEST = 1 << 62  # a time beyond it is not one


def life_of(metadata: TableMetadata, first_seen: Mapping[int, int]) -> Life:
    """What happened, from the snapshots that are left; `first_seen` tells since when there are files of each spec."""
    rows: Sequence[Mapping[str, Any]] = metadata.lazy_snapshots.rows
    ancestors = _ancestors(rows, metadata.current_snapshot_id)
    commits = sorted((_commit(row, ancestors) for row in rows), key=lambda c: (c.at_ms, c.snapshot_id in ancestors))
    times = {c.snapshot_id: c.at_ms for c in commits}
    refs = tuple(
        Ref(name, str(ref.snapshot_ref_type.value), ref.snapshot_id, times.get(ref.snapshot_id))
        for name, ref in sorted(metadata.refs.items())
    )
    changes = [*_schemas(metadata, commits), *_specs(metadata, first_seen), *_names(refs)]
    return Life(
        len(commits),
        tuple(reversed(commits[-_MOST_COMMITS:])),
        tuple(_periods(commits)),
        tuple(sorted(changes, key=lambda c: _FARTHEST if c.at_ms is None else c.at_ms)),
        refs,
        commits[0].at_ms if commits else None,
        commits[-1].at_ms if commits else None,
    )


def spec_in_words(spec: PartitionSpec) -> str:
    """What a spec partitions by."""
    said = [f"{f.name} ({f.transform})" for f in spec.fields if str(f.transform) != "void"]
    return ", ".join(said) or "not partitioned"


def _commit(row: Mapping[str, Any], ancestors: set[int]) -> Commit:
    summary: Mapping[str, Any] = row.get("summary") or {}
    return Commit(
        int(row["snapshot-id"]),
        _number(row.get("timestamp-ms")) or 0,
        str(summary.get("operation") or "unknown"),
        row.get("schema-id"),
        row["snapshot-id"] in ancestors,
        _number(summary.get("added-data-files")),
        _number(summary.get("deleted-data-files")),
        _number(summary.get("added-records")),
        _number(summary.get("total-data-files")),
        _number(summary.get("total-delete-files")),
    )


def _number(said: Any) -> int | None:
    """A number another engine wrote as text, if it is one."""
    try:
        found = int(said)
    except (TypeError, ValueError):
        return None
    return found if abs(found) < _FARTHEST else None


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
    for at in range(count):
        inside = held.get(at, [])
        for commit in inside:
            if commit.is_ancestor and commit.total_files is not None:
                files, deletes = commit.total_files, commit.total_deletes
        yield Period(int(first + at * width), Counter(c.operation for c in inside), files, deletes)


def _schemas(metadata: TableMetadata, commits: Sequence[Commit]) -> Iterator[Change]:
    seen: dict[int | None, int] = {}
    for commit in commits:
        seen.setdefault(commit.schema_id, commit.at_ms)
    schemas = schemas_in_order(metadata)
    for schema, (before, words) in zip(schemas, schema_changes(schemas), strict=True):
        what = f"schema {schema.schema_id}: {words}" if before else f"schema {schema.schema_id}, {words}"
        yield Change("schema", seen.get(schema.schema_id), what)


def _specs(metadata: TableMetadata, first_seen: Mapping[int, int]) -> Iterator[Change]:
    for spec in sorted(metadata.partition_specs, key=lambda s: s.spec_id):
        yield Change("spec", first_seen.get(spec.spec_id), f"spec {spec.spec_id}: {spec_in_words(spec)}")


def _names(refs: Iterable[Ref]) -> Iterator[Change]:
    for ref in refs:
        if ref.name != "main":
            yield Change(ref.kind, ref.at_ms, f"{ref.kind} {ref.name}")

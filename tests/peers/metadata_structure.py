"""The metadata of a table as two engines show it, and the claims that must hold in it.

Spark with Iceberg has metadata tables, Névé has `inspect`; both are converted to one form. The claims are then checked
on the output of Spark, and on the manifests themselves, read record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fastavro

from neve import Table
from tests.peers.spark import Spark

Row = dict[str, Any]

_COUNTS = tuple(
    f"{status}_{kind}_files_count" for kind in ("data", "delete") for status in ("added", "existing", "deleted")
)
_MANIFESTS = f"path, length, partition_spec_id, added_snapshot_id, content, {', '.join(_COUNTS)}, partition_summaries"
_ENTRY = ("status", "snapshot_id", "sequence_number", "file_sequence_number")
_FILE = ("content", "file_path", "file_format", "spec_id", "record_count", "file_size_in_bytes", "sort_order_id")
_NEWER = ("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
_SNAPSHOTS = "snapshot_id, parent_id, operation, manifest_list, map_entries(summary) AS summary"
_TOTALS = ("total-data-files", "total-records", "total-delete-files", "total-position-deletes", "total-files-size")
ADDED, EXISTING, DELETED = 1, 0, 2
PARTS = ("snapshots", "manifests", "entries")


@dataclass(frozen=True)
class Structure:
    """The manifests and entries of the current snapshot, and all snapshots, in one form for every engine."""

    manifests: tuple[Row, ...]
    entries: tuple[Row, ...]
    snapshots: tuple[Row, ...]

    @cached_property
    def live(self) -> list[Row]:
        return [e for e in self.entries if e["status"] != DELETED]

    @cached_property
    def data(self) -> dict[str, Row]:
        """Live data files by their paths."""
        return {e["file_path"]: e for e in self.live if e["content"] == 0}

    @cached_property
    def deletes(self) -> list[Row]:
        return [e for e in self.live if e["content"] != 0]


def by_spark(spark: Spark, name: str) -> Structure:
    """Return the structure that Spark with Iceberg shows."""
    manifests = spark.sql(f"SELECT {_MANIFESTS} FROM {name}.manifests").to_pylist()
    entries = spark.sql(f"SELECT * FROM {name}.entries").to_pylist()
    snapshots = spark.sql(f"SELECT {_SNAPSHOTS} FROM {name}.snapshots").to_pylist()
    return Structure(
        _sorted_rows(map(_manifest, manifests), "path"),
        _sorted_rows((_entry({**e, **e["data_file"]}) for e in entries), "file_path"),
        _sorted_rows(
            (_snapshot(s, {pair["key"]: pair["value"] for pair in s["summary"]}) for s in snapshots), "snapshot_id"
        ),
    )


def by_neve(table: Table) -> Structure:
    """Return the structure that Névé shows."""
    inspect = table.inspect
    return Structure(
        _sorted_rows(map(_manifest, inspect.manifests().to_pylist()), "path"),
        _sorted_rows((_entry({**e, **e["data_file"]}) for e in inspect.entries().to_pylist()), "file_path"),
        _sorted_rows((_snapshot(s, dict(s["summary"])) for s in inspect.snapshots().to_pylist()), "snapshot_id"),
    )


def _manifest(row: Row) -> Row:
    summaries = row["partition_summaries"] or ()
    bounds = [(s["contains_null"], _bound(s["lower_bound"]), _bound(s["upper_bound"])) for s in summaries]
    return {name: row[name] for name in _MANIFESTS.split(", ")[:-1]} | {"partition_summaries": bounds}


def _bound(text: str | None) -> str | float | None:
    """Return a bound in a common form: Spark shows no bound as `null`, and numbers have several text forms."""
    try:
        return None if text is None or text == "null" else float(text)
    except ValueError:
        return text


def _entry(row: Row) -> Row:
    partition = {name: value for name, value in (row.get("partition") or {}).items() if value is not None}
    return {n: row[n] for n in (*_ENTRY, *_FILE)} | {n: row.get(n) for n in _NEWER} | {"partition": partition}


def _snapshot(row: Row, summary: Mapping[str, str]) -> Row:
    return {n: row[n] for n in ("snapshot_id", "parent_id", "operation", "manifest_list")} | {"summary": dict(summary)}


def _sorted_rows(rows: Iterable[Row], by: str) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row[by], repr(row))))


def describe_difference(theirs: Sequence[Row], ours: Sequence[Row]) -> str:
    """Return how a part of two structures differs, one line per value; empty if it does not."""
    if len(theirs) != len(ours):
        return f"{len(theirs)} rows, but Névé has {len(ours)}"
    lines = [
        f"\n  {name}: {one[name]!r}, but Névé has {other[name]!r}"
        for one, other in zip(theirs, ours, strict=True)
        for name in one
        if repr(one[name]) != repr(other[name])
    ]
    return "".join(lines)


# --- claims ---
#
# A claim returns a text for each item that it checks: what is wrong, or "". Without items it returns an empty list.


@dataclass(frozen=True)
class StructureView:
    """A structure, and the metadata it is checked against."""

    shown: Structure
    metadata: Any

    def fields(self, spec_id: int) -> list[int]:
        """Return the ids of the fields of a spec."""
        return [f.field_id for spec in self.metadata.partition_specs if spec.spec_id == spec_id for f in spec.fields]

    @property
    def head(self) -> Any:
        return self.metadata.current_snapshot()


def manifests_hold_one_spec(view: StructureView) -> list[str]:
    """The header, tuples and summary of a manifest match the spec in the manifest list."""
    wrong = []
    for m in view.shown.manifests:
        header, tuple_ids = _header(m["path"])
        stated = int(header["partition-spec-id"]), tuple_ids, len(m["partition_summaries"])
        wanted = m["partition_spec_id"], view.fields(m["partition_spec_id"]), len(tuple_ids)
        wrong.append("" if stated == wanted else f"{m['path']} is of spec {wanted}, but states {stated}")
    return wrong


def manifests_count_their_entries(view: StructureView) -> list[str]:
    """The counts in the list are those of the entries."""
    wrong = []
    for m in view.shown.manifests:
        kind = "delete" if m["content"] else "data"
        stated = {
            status: m[f"{word}_{kind}_files_count"] for status, word in enumerate(("existing", "added", "deleted"))
        }
        found = Counter(row["status"] for row in _records(m["path"]))
        wrong.append("" if Counter(stated) == found else f"{m['path']} has {dict(found)}, the list states {stated}")
    return wrong


def deletes_have_the_spec_of_their_file(view: StructureView) -> list[str]:
    """A delete file that names its data file has its spec and its partition, and came not before it."""
    wrong = []
    for delete in view.shown.deletes:
        of = view.shown.data.get(delete["referenced_data_file"] or "")
        if of is None:
            continue
        same = all(delete[n] == of[n] for n in ("spec_id", "partition"))
        fits = same and delete["sequence_number"] >= of["sequence_number"]
        wrong.append("" if fits else f"{delete} does not fit {of}")
    return wrong


def numbers_are_those_of_the_snapshot(view: StructureView) -> list[str]:
    """Files of the newest snapshot have its number; no file has a later one, no data number is above the file's."""
    if view.metadata.format_version == 1 or view.head is None:
        return []
    latest, wrong = view.head.sequence_number, []
    for e in view.shown.entries:
        is_new = e["status"] == ADDED and e["snapshot_id"] == view.head.snapshot_id
        file_number, number = e["file_sequence_number"], e["sequence_number"]
        fits = number <= file_number <= latest and (file_number == latest or not is_new)
        wrong.append("" if fits else f"{e['file_path']}: numbers {number}, {file_number} in a snapshot of {latest}")
    return wrong


def totals_are_those_of_the_files(view: StructureView) -> list[str]:
    """The totals in the newest summary are what the live files add up to."""
    data, deletes = view.shown.data.values(), view.shown.deletes
    sums = (
        len(data),
        _rows(data),
        len(deletes),
        _rows(d for d in deletes if d["content"] == 1),
        _size(view.shown.live),
    )
    newest = [s["summary"] for s in view.shown.snapshots if view.head and s["snapshot_id"] == view.head.snapshot_id]
    summary: Row = newest[0] if newest else {}
    stated = {name: summary.get(name) for name in _TOTALS if newest}
    wanted = {name: str(value) for name, value in zip(_TOTALS, sums, strict=True)}
    return [
        "" if stated[name] == wanted[name] else f"{name} is {stated[name]}, but the files say {wanted[name]}"
        for name in stated
    ]


def row_ids_do_not_overlap(view: StructureView) -> list[str]:
    """From version 3 on every data file has a range of row ids of its own, below the table's next."""
    if view.metadata.format_version < 3 or view.head is None or view.head.first_row_id is None:
        return []
    files = sorted(view.shown.data.values(), key=lambda e: -1 if e["first_row_id"] is None else e["first_row_id"])
    firsts = [e["first_row_id"] for e in files]
    if None in firsts:
        return [f"{e['file_path']} has no row ids" for e in files if e["first_row_id"] is None]
    ends = [e["first_row_id"] + e["record_count"] for e in files]
    limits = [*firsts[1:], view.metadata.next_row_id]
    return [
        "" if end <= limit else f"{f['file_path']} has row ids up to {end}, beyond {limit}"
        for f, end, limit in zip(files, ends, limits, strict=False)
    ]


CLAIMS: tuple[Callable[[StructureView], list[str]], ...] = (
    manifests_hold_one_spec,
    manifests_count_their_entries,
    deletes_have_the_spec_of_their_file,
    numbers_are_those_of_the_snapshot,
    totals_are_those_of_the_files,
    row_ids_do_not_overlap,
)


def _rows(files: Iterable[Row]) -> int:
    return sum(f["record_count"] for f in files)


def _size(files: Iterable[Row]) -> int:
    """The bytes of files; of a vector only its own part of the file."""
    return sum(
        f["file_size_in_bytes"] if f["content_size_in_bytes"] is None else f["content_size_in_bytes"] for f in files
    )


def _header(path: str) -> tuple[Mapping[str, str], list[int]]:
    """The header of a manifest, and the ids of the fields of its tuples."""
    with local(path).open("rb") as stream:
        reader: Any = fastavro.reader(stream)
        fields = {f["name"]: f["type"] for f in reader.writer_schema["fields"]}
        data_file = {f["name"]: f["type"] for f in fields["data_file"]["fields"]}
        return reader.metadata, [f["field-id"] for f in data_file["partition"]["fields"]]


def _records(path: str) -> list[Any]:
    with local(path).open("rb") as stream:
        return list(fastavro.reader(stream))


def local(path: str) -> Path:
    """Return a local path; Spark writes one slash after the scheme, others three."""
    return Path("/" + path.removeprefix("file:").lstrip("/"))

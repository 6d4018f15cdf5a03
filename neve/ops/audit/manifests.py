"""Check a manifest against its row in the manifest list: header, entries, counts and partition summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import FileIO
from pyiceberg.types import DoubleType, FloatType, IcebergType, UnknownType

from neve.errors import UnsupportedFeature
from neve.io.avro import AvroHeader
from neve.io.paths import refuse_unreadable
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.values import decode_comparable, to_comparable
from neve.ops.audit.findings import Finding, error_finding, findings_for_rows
from neve.tree.entries import LIVE_STATUSES, Content, EntryTable, FieldSummary, Manifest, Status
from neve.tree.read import header_of, read_manifest

AUDIT_DETAIL = ("key_metadata",)
"""The columns that the audit reads of every entry, beyond the core."""

_REQUIRED = ("status", "content", "file_path", "file_format", "record_count", "file_size_in_bytes", "snapshot_id")
_COUNTED_STATUSES = {"added": Status.ADDED, "existing": Status.EXISTING, "deleted": Status.DELETED}


@dataclass(frozen=True)
class AuditedManifest:
    """A manifest with its findings; without entries if it could not be read."""

    manifest: Manifest
    entries: EntryTable | None
    findings: tuple[Finding, ...]
    bytes: int = 0


@dataclass(frozen=True)
class OpenedManifest:
    """A manifest that could be read: its row in the list, its header and its entries."""

    manifest: Manifest
    header: AvroHeader
    length: int
    entries: EntryTable
    format_version: int  # of the table

    @property
    def is_live(self) -> NDArray[np.bool_]:
        """The mask of the entries that are part of the table."""
        return np.isin(self.entries.numpy("status"), LIVE_STATUSES)


Rule = Callable[[OpenedManifest], Iterator[Finding]]


def audit_manifest(
    io: FileIO, manifest: Manifest, ordinal: int, specs: Specs, metadata: TableMetadata
) -> AuditedManifest:
    """Read a manifest and check it against its row in the list; an error while reading becomes a finding."""
    try:
        refuse_unreadable(pa.array([manifest.file]), metadata.location)
        header, length = header_of(io, manifest)
        # Read the whole file: a wrong length in the list is a finding of its own.
        entries = read_manifest(
            io, replace(manifest, length=length), specs, ordinal=ordinal, detail=AUDIT_DETAIL, as_is=True
        )
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        encrypted = manifest.key_metadata is not None
        error = UnsupportedFeature(f"Cannot read {manifest.path}: it is encrypted.") if encrypted else e
        return AuditedManifest(manifest, None, (error_finding(manifest.file, error),))
    # Incomplete entries are set aside: they would break every other check.
    absent = {name: entries[name].is_null().to_numpy() for name in _REQUIRED}
    incomplete = np.logical_or.reduce(list(absent.values())) if len(entries) else np.zeros(0, bool)

    def message(row: int) -> str:
        names = ", ".join(name for name, mask in absent.items() if mask[row])
        return f"Row {row} of manifest {manifest.path} has no {names}."

    findings = list(findings_for_rows("entry", entries, incomplete, message))
    complete = entries.filter(pa.array(~incomplete)) if incomplete.any() else entries
    opened = OpenedManifest(manifest, header, length, complete, metadata.format_version)
    rules = RULES if len(complete) == len(entries) else (length_is_stated, header_agrees)
    findings += [f for rule in rules for f in rule(opened)]
    return AuditedManifest(manifest, complete, tuple(findings), 0 if manifest.is_view else length)


def length_is_stated(opened: OpenedManifest) -> Iterator[Finding]:
    """Check the length in the list: readers request that many bytes."""
    if opened.length != opened.manifest.length:
        message = f"Is {opened.length} bytes long; the list says {opened.manifest.length}."
        yield Finding("manifest-length", opened.manifest.file, message)


def header_agrees(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that the header has the spec and the content of the list, and no version above the table's."""
    manifest, stated = opened.manifest, opened.header.metadata
    expected = {
        "partition-spec-id": {str(manifest.spec_id).encode()},
        "content": {b"deletes" if manifest.is_deletes else b"data"},
        "format-version": {str(v).encode() for v in range(1, opened.format_version + 1)},
    }
    for key, allowed in expected.items():
        if key in stated and stated[key] not in allowed:
            options = " or ".join(sorted(a.decode() for a in allowed))
            message = f"The header says {key} {stated[key].decode(errors='replace')}; expected {options}."
            yield Finding("manifest-header", manifest.file, message)


def tuple_fits_spec(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that the partition record has the fields of the manifest's spec."""
    record: Any = opened.header.schema
    for step in ("data_file", "partition"):
        fields = record.get("fields", []) if isinstance(record, dict) else []
        record = next((f.get("type") for f in fields if f.get("name") == step), None)
    if not isinstance(record, dict) or record.get("fields") is None:
        return
    spec_ids = [f.field_id for f in opened.entries.specs[opened.manifest.spec_id].fields]
    field_ids = [f.get("field-id") for f in record["fields"]]
    # Manifests of early writers have no field ids; their partition fields are read by position.
    fits = len(field_ids) == len(spec_ids) and (None in field_ids or set(field_ids) == set(spec_ids))
    if not fits:
        message = f"Partitions have the fields {field_ids}; spec {opened.manifest.spec_id} has {spec_ids}."
        yield Finding("partition-tuple", opened.manifest.file, message)


def content_fits(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that a data manifest has only data files, and a delete manifest only delete files."""
    deletes = (Content.POSITION_DELETES, Content.EQUALITY_DELETES)
    content = opened.entries.numpy("content")
    wrong = ~np.isin(content, deletes if opened.manifest.is_deletes else (Content.DATA,))
    where = f"manifest {opened.manifest.path} of {'deletes' if opened.manifest.is_deletes else 'data'}"
    yield from findings_for_rows(
        "entry-content", opened.entries, wrong, lambda row: f"Content {content[row]} in {where}."
    )


def values_are_possible(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that statuses are valid and that no count or size is negative."""
    entries, where = opened.entries, f"in manifest {opened.manifest.path}"
    status = entries.numpy("status")
    unknown = ~np.isin(status, list(Status))
    yield from findings_for_rows("entry", entries, unknown, lambda row: f"Status {status[row]} {where}.")
    for name in ("record_count", "file_size_in_bytes"):
        numbers = entries.numpy(name)
        for row in np.flatnonzero(numbers < 0):
            yield Finding("entry", entries["file_path"][int(row)].as_py(), f"{name} {numbers[row]} {where}.")


def entry_sequence_numbers_fit(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that only new entries inherit their sequence numbers, and that none is above its manifest's."""
    kind, entries = "entry-sequence-number", opened.entries
    own, where = opened.manifest.sequence_number, f"in manifest {opened.manifest.path}"
    for name in ("sequence_number", "file_sequence_number"):
        absent, numbers = entries[name].is_null().to_numpy(), entries[name].fill_null(0).to_numpy()
        yield from findings_for_rows(kind, entries, absent, f"No {name} {where}, though the entry is not new.")
        for row in np.flatnonzero(numbers > own):
            message = f"The {name} {numbers[row]} {where} is above the manifest's own {own}."
            yield Finding(kind, entries["file_path"][int(row)].as_py(), message)


def counts_agree(opened: OpenedManifest) -> Iterator[Finding]:
    """Check the number of entries of each status in the list, and their rows; v1 lists may omit counts."""
    if opened.manifest.is_view or opened.manifest.hides_entries:  # the counts include the entries that the list hides
        return
    status, rows = opened.entries.numpy("status"), opened.entries.numpy("record_count")
    status = np.where(status == Status.MODIFIED, Status.EXISTING, status)
    for adjective, value in _COUNTED_STATUSES.items():
        mask = status == value
        for unit, actual in (("files", int(mask.sum())), ("rows", int(rows[mask].sum()))):
            stated = getattr(opened.manifest, f"{adjective}_{unit}")
            if stated is not None and stated != actual:
                message = f"Holds {actual} {adjective} {unit}; the list says {stated}."
                yield Finding("manifest-counts", opened.manifest.file, message)


def oldest_number_is_stated(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that no live entry has a lower sequence number than the list says."""
    if opened.manifest.is_view:
        return  # the list has the number of the data files here, not of the deletes stored with them
    numbers = opened.entries["sequence_number"].fill_null(opened.manifest.sequence_number).to_numpy()
    live = numbers[opened.is_live]
    if not len(live):
        return
    stated, oldest = opened.manifest.min_sequence_number, int(live.min())
    if stated > oldest:
        message = f"The oldest live file is numbered {oldest}; the list says {stated}."
        yield Finding("min-sequence-number", opened.manifest.file, message)
    elif stated < int(numbers.min()):  # only a note: readers open the manifest in vain
        message = f"The oldest file is numbered {int(numbers.min())}; the list says {stated}."
        yield Finding("min-sequence-number", opened.manifest.file, message, "note")


def summaries_bound_values(opened: OpenedManifest) -> Iterator[Finding]:
    """Check that no live file is outside the partition summaries: readers skip the manifest by them."""
    manifest, specs = opened.manifest, opened.entries.specs
    if manifest.partitions is None:
        return
    fields, columns = specs.partition_type(manifest.spec_id).fields, specs.columns(manifest.spec_id)
    if len(manifest.partitions) != len(fields):
        message = f"The list summarises {len(manifest.partitions)} partition fields; the spec has {len(fields)}."
        yield Finding("partition-summary", manifest.file, message)
        return
    live = opened.entries.filter(pa.array(opened.is_live))
    for column, field, summary in zip(columns, fields, manifest.partitions, strict=True):
        for what in _values_outside_summary(live[column], field.field_type, summary):
            yield Finding("partition-summary", manifest.file, f"Partition field {field.name!r}: {what}.")


def _values_outside_summary(column: pa.ChunkedArray, kind: IcebergType, summary: FieldSummary) -> Iterator[str]:
    if isinstance(kind, UnknownType) or not len(column):
        return
    if column.null_count and not summary.contains_null:
        yield "a null, which the list denies"
    if isinstance(kind, FloatType | DoubleType) and summary.contains_nan is False and pc.any(pc.is_nan(column)).as_py():
        yield "a NaN, which the list denies"
    values = to_comparable(column, kind).drop_null()
    if not len(values):
        return
    ends, stated = pc.min_max(values), (summary.lower_bound, summary.upper_bound)
    if None in stated:
        yield "values, for which the list has no bounds"
        return
    lower, upper = decode_comparable(pa.array(stated, pa.binary()), kind)
    if pc.less(ends["min"], lower).as_py() or pc.greater(ends["max"], upper).as_py():
        yield "values outside the bounds in the list"


RULES: tuple[Rule, ...] = (
    length_is_stated,
    header_agrees,
    tuple_fits_spec,
    content_fits,
    values_are_possible,
    entry_sequence_numbers_fit,
    counts_agree,
    oldest_number_is_stated,
    summaries_bound_values,
)

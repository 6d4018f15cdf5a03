"""Data and delete files where they are stored: each is there, as long as stated, parses, and has the rows stated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from neve.errors import TableError, UnsupportedFeature
from neve.io import files as storage
from neve.io.paths import refuse_unreadable
from neve.ops.audit.findings import Finding, error_finding
from neve.ops.audit.snapshot_index import Ints, Mask, SnapshotIndex
from neve.ops.audit.statistics import AUDITED_STATISTICS, ColumnRange, column_findings, column_ranges
from neve.ops.events import Step, emit
from neve.run.read.formats import open_file
from neve.run.read.parquet import ParquetData
from neve.run.table_facts import TableFacts
from neve.tree.entries import EntryTable
from neve.tree.read import with_detail

_THREADS = 16
_PROGRESS_INTERVAL = 64  # files between two words about how far it is
_BATCH_FILES = 4096  # files whose footers are in memory at once


@dataclass(frozen=True, slots=True)
class FilesAudit:
    """What was found, and how many bytes the files looked at have."""

    findings: tuple[Finding, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Probe:
    """One file as it was found."""

    size: int | None = None
    rows: int | None = None
    columns: tuple[ColumnRange, ...] = ()
    findings: tuple[Finding, ...] = ()


def audit_files(io: FileIO, index: SnapshotIndex, facts: TableFacts) -> FilesAudit:
    """Look at every file that is live in some snapshot, once; no row is read."""
    rows = index.first_row_per_file(index.is_live)
    sizes, counts = (np.full(len(index.paths), -1, np.int64) for _ in range(2))
    findings: list[Finding] = []
    seen = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        for batch in _batches(index, rows):
            chosen = index.entries.take(batch)
            found = pool.map(lambda task: _probe(io, facts, *task), _tasks(chosen, index.is_encrypted[batch]))
            probes = list(_report_probes(found, seen, len(rows)))
            seen += len(probes)
            sizes[index.file_numbers[batch]] = [-1 if p.size is None else p.size for p in probes]
            counts[index.file_numbers[batch]] = [-1 if p.rows is None else p.rows for p in probes]
            findings += [f for p in probes for f in p.findings]
            findings += _statistics_findings(io, index, batch, [p.columns for p in probes], facts)
    findings += _disagreements(index, sizes, counts)
    return FilesAudit(tuple(findings), int(np.maximum(sizes, 0).sum()))


def _report_probes(probes: Iterator[Probe], before: int, total: int) -> Iterator[Probe]:
    """The same probes; how many files have been looked at is told now and then."""
    for number, probe in enumerate(probes, before):
        if number % _PROGRESS_INTERVAL == 0:
            emit(Step("look at the files", number, total, "files"))
        yield probe


def _batches(index: SnapshotIndex, rows: Ints) -> Iterator[Ints]:
    """Rows in the order of their manifests, so that each batch needs few of them."""
    in_order = rows[np.argsort(index.entries.numpy("manifest")[rows], kind="stable")]
    return (in_order[at : at + _BATCH_FILES] for at in range(0, len(in_order), _BATCH_FILES))


def _tasks(files: EntryTable, is_encrypted: Mask) -> Iterator[tuple[str, str, bool]]:
    return zip(files["file_path"].to_pylist(), files["file_format"].to_pylist(), is_encrypted.tolist(), strict=True)


def _statistics_findings(
    io: FileIO, index: SnapshotIndex, rows: Ints, footers: Sequence[Sequence[ColumnRange]], facts: TableFacts
) -> Iterator[Finding]:
    """The columns of some files; their statistics are read only now: those of all files would not fit in memory."""
    try:
        # However long the lists say they are: that is a finding of its own.
        manifests = [replace(m, length=0) for m in index.manifests]
        files = with_detail(io, index.entries.take(rows), manifests, AUDITED_STATISTICS)
    except TableError as e:  # a manifest that could be read before
        yield error_finding(str(getattr(e, "path", facts.location)), e)
    else:
        yield from column_findings(files, footers, facts)


def _probe(io: FileIO, facts: TableFacts, path: str, file_format: str, is_encrypted: bool) -> Probe:
    size = None
    try:
        refuse_unreadable(pa.array([path]), facts.location)
        size = storage.file_size(io, path)
        if is_encrypted:
            raise UnsupportedFeature(f"Cannot look into {path}: it is encrypted.")
        if file_format == "PUFFIN":
            return Probe(size)
        with open_file(io, path, file_format, None, None) as data:
            columns = column_ranges(data, facts) if isinstance(data, ParquetData) else ()
            return Probe(size, data.record_count, columns)
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        return Probe(size, findings=(error_finding(path, e),))


def _disagreements(index: SnapshotIndex, sizes: Ints, counts: Ints) -> Iterator[Finding]:
    """Entries that state another size or another count than their file has; every entry is asked, not one per file."""
    for kind, name, word, found in (
        ("file-size", "file_size_in_bytes", "bytes", sizes),
        ("row-count", "record_count", "rows", counts),
    ):
        stated, actual = index.entries.numpy(name), found[index.file_numbers]
        wrong = index.is_live & index.has_size & (actual >= 0) & (stated != actual)
        for row in np.flatnonzero(wrong):
            message = f"Has {actual[row]} {word}; the manifest says {stated[row]}."
            yield Finding(kind, index.entries["file_path"][int(row)].as_py(), message)

"""Check a table: every file that can be reached exists, parses and agrees with the metadata that names it.

All snapshots are looked at, those of branches and tags included, and each file once. Manifests are read in full; of
data files only the size and the footer, of deletion vectors every blob. A file that is missing or damaged becomes a
finding, and the audit goes on with the others.

Isolation: one state of the metadata. A file that another writer expires meanwhile is reported as missing.
Writes: nothing.

>>> print(t.verify())
Sound: 1 snapshot, 1 manifest, 2 data files, 0 delete files, 0 vectors, 3 rows, ... bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pyiceberg.io import FileIO

from neve.errors import CorruptFile
from neve.io.files import file_size
from neve.io.untrusted import translate_parse_errors
from neve.model.snapshots import Snapshot, tree_root_location
from neve.ops.audit.deletes import delete_findings, pair_deletes_with_files, vector_findings
from neve.ops.audit.files import audit_files
from neve.ops.audit.findings import Audit, Finding, error_finding
from neve.ops.audit.metadata import metadata_findings
from neve.ops.audit.snapshot_index import SnapshotIndex, SnapshotRoot, build_snapshot_index, root_findings
from neve.ops.audit.snapshots import snapshot_findings
from neve.ops.context import TableContext
from neve.ops.events import Step, emit
from neve.tree.read import read_manifests_with_header

_THREADS = 8


def verify(context: TableContext, *, data: bool = True) -> Audit:
    """Audit one state of a table; without `data` only metadata files are opened."""
    with translate_parse_errors(context.iceberg.metadata_location, "a table that can be audited"):
        return _audit_table(context, data)


def _audit_table(context: TableContext, data: bool) -> Audit:
    metadata, io, path = context.metadata, context.io, context.iceberg.metadata_location
    try:
        findings = list(metadata_findings(metadata, path))
    except CorruptFile as e:  # a snapshot is looked at late, and may turn out to be none
        return Audit((error_finding(path, e),))
    if any(f.kind in ("unknown-schema", "unknown-spec") for f in findings):
        return Audit(tuple(findings))  # nothing below can be typed
    emit(Step("read the snapshots", total=len(metadata.snapshots), unit="snapshots"))
    roots, more = _read_all_roots(context)
    emit(Step("read the manifests", total=len({m.file for r in roots for m in r.manifests}), unit="manifests"))
    findings += more
    forest, manifests = build_snapshot_index(io, roots, context.specs, metadata)
    findings += [f for m in manifests for f in m.findings]
    findings += snapshot_findings(forest, getattr(metadata, "next_row_id", None))
    pairs = pair_deletes_with_files(forest)
    findings += delete_findings(forest, pairs, context.specs)
    looked_at = sum(r.bytes for r in roots) + sum(m.bytes for m in manifests)
    if data:
        files = audit_files(io, forest, context.facts)
        findings += [*files.findings, *vector_findings(io, forest, pairs, metadata.location), *_statistics(context)]
        looked_at += files.bytes
    return _audit_result(findings, forest, len(roots), looked_at)


def _read_all_roots(context: TableContext) -> tuple[list[SnapshotRoot], list[Finding]]:
    """The root of every snapshot, checked; one that cannot be read lists nothing."""
    numbers = {s.snapshot_id: s.sequence_number or 0 for s in context.metadata.snapshots}
    with ThreadPoolExecutor(_THREADS) as pool:
        read = list(pool.map(lambda s: _read_root(context, s), context.metadata.snapshots))
    findings = [f for root, found in read for f in (found or root_findings(root, numbers, context.specs))]
    return [root for root, _ in read], findings


def _read_root(context: TableContext, snapshot: Snapshot) -> tuple[SnapshotRoot, list[Finding]]:
    path = tree_root_location(snapshot) or context.iceberg.metadata_location
    try:
        root = SnapshotRoot(snapshot, path, *read_manifests_with_header(context.io, context.metadata, snapshot))
        _read_statistics(root)
        return root, []
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        return SnapshotRoot(snapshot, path, is_readable=False), [error_finding(path, e)]


def _read_statistics(root: SnapshotRoot) -> None:
    """Read what a root says about the values in its leaves: it is read late, by scans that have a condition."""
    sources = {id(source): source for m in root.manifests if m.statistics is not None for source in m.statistics[:1]}
    for source in sources.values():
        source.read()


def _statistics(context: TableContext) -> Iterator[Finding]:
    """Statistics files are there and as long as stated; readers do without them, so this is only worth a note."""
    for file in (*context.metadata.statistics, *context.metadata.partition_statistics):
        yield from _check_stated_size(context.io, file.statistics_path, file.file_size_in_bytes)


def _check_stated_size(io: FileIO, path: str, stated: int) -> Iterator[Finding]:
    try:
        found = file_size(io, path)
    except Exception as e:
        yield Finding("statistics-file", path, str(e), "note")
        return
    if found != stated:
        yield Finding("statistics-file", path, f"Is {found} bytes long; the metadata says {stated}.", "note")


def _audit_result(findings: Iterable[Finding], index: SnapshotIndex, snapshots: int, bytes_read: int) -> Audit:
    live = index.is_live
    data = index.first_row_per_file(live & index.is_data)
    vectors = index.is_vector & live
    places = np.stack([index.file_numbers, index.entries["content_offset"].fill_null(-1).to_numpy()])
    return Audit(
        tuple(dict.fromkeys(findings)),
        snapshots=snapshots,
        manifests=len({m.file for m in index.manifests if not m.is_inline}),
        data_files=len(data),
        delete_files=len(index.first_row_per_file(live & ~index.is_data & ~index.is_vector)),
        vectors=np.unique(places[:, vectors], axis=1).shape[1],
        rows=int(index.entries.numpy("record_count")[data].sum()),
        bytes=bytes_read,
    )

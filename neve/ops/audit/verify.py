"""Check that every reachable file exists, parses and agrees with the metadata that names it.

The audit covers all snapshots, including those of branches and tags, and checks each file once. It reads manifests in
full, the size and the footer of data files, and every blob of deletion vectors. A missing or damaged file becomes a
finding, and the audit goes on with the other files.

Isolation: one state of the metadata. A file that a concurrent writer expires is reported as missing.
Writes: nothing.

>>> print(t.verify())
Sound: 1 snapshot, 1 manifest, 2 data files, 0 delete files, 0 vectors, 3 rows, ... bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from neve.errors import CorruptFile
from neve.io.files import file_size
from neve.io.parallel import map_in_threads
from neve.io.untrusted import translate_parse_errors
from neve.model.snapshots import Snapshot, tree_root_location
from neve.ops.audit.deletes import delete_findings, pair_deletes_with_files, vector_findings
from neve.ops.audit.files import audit_files
from neve.ops.audit.findings import Audit, Finding, error_finding
from neve.ops.audit.metadata import metadata_findings, snapshot_findings
from neve.ops.audit.snapshot_index import SnapshotIndex, SnapshotRoot, build_snapshot_index, root_findings
from neve.ops.context import TableContext
from neve.ops.events import Step, emit
from neve.tree.read import read_manifests_with_header

_THREADS = 8


def verify(context: TableContext, *, data: bool = True) -> Audit:
    """Audit one state of a table; without `data` only metadata files are opened."""
    path = context.iceberg.metadata_location
    with translate_parse_errors(path, "a table that can be audited"):
        metadata, io = context.metadata, context.io
        try:
            findings = list(metadata_findings(metadata, path))
        except CorruptFile as e:  # snapshots are parsed on first use, and one may be invalid
            return Audit((error_finding(path, e),))
        if any(f.kind in ("unknown-schema", "unknown-spec") for f in findings):
            return Audit(tuple(findings))  # without them no entry has a type
        snapshots: list[Any] = list(metadata.snapshots)
        emit(Step("read the snapshots", total=len(snapshots), unit="snapshots"))
        numbers = {s.snapshot_id: s.sequence_number or 0 for s in snapshots}
        results = map_in_threads(lambda s: _read_root(context, s), snapshots, _THREADS)
        findings += [f for root, errors in results for f in (errors or root_findings(root, numbers, context.specs))]
        roots = [root for root, _ in results]
        emit(Step("read the manifests", total=len({m.file for r in roots for m in r.manifests}), unit="manifests"))
        index, manifests = build_snapshot_index(io, roots, context.specs, metadata)
        findings += [f for m in manifests for f in m.findings]
        findings += snapshot_findings(index, getattr(metadata, "next_row_id", None))
        pairs = pair_deletes_with_files(index)
        findings += delete_findings(index, pairs, context.specs)
        bytes_read = sum(r.bytes for r in roots) + sum(m.bytes for m in manifests)
        if data:
            file_findings, file_bytes = audit_files(io, index, context.facts)
            findings += [*file_findings, *vector_findings(io, index, pairs, metadata.location)]
            findings += _statistics_file_findings(context)
            bytes_read += file_bytes
        return _audit_result(findings, index, len(roots), bytes_read)


def _read_root(context: TableContext, snapshot: Snapshot) -> tuple[SnapshotRoot, list[Finding]]:
    """Read the root of a snapshot; an unreadable one lists no manifests."""
    path = tree_root_location(snapshot) or context.iceberg.metadata_location
    try:
        root = SnapshotRoot(snapshot, path, *read_manifests_with_header(context.io, context.metadata, snapshot))
        # Only scans with a condition read the statistics in a root. Read each here, to see that it parses.
        sources = {id(m.statistics[0]): m.statistics[0] for m in root.manifests if m.statistics is not None}
        for source in sources.values():
            source.read()
        return root, []
    except Exception as e:  # whatever the bytes do to a reader, the audit goes on
        return SnapshotRoot(snapshot, path, is_readable=False), [error_finding(path, e)]


def _statistics_file_findings(context: TableContext) -> Iterator[Finding]:
    """Check that statistics files exist and have the stated size; a note only, as readers do without them."""
    for file in (*context.metadata.statistics, *context.metadata.partition_statistics):
        path, stated = file.statistics_path, file.file_size_in_bytes
        try:
            actual = file_size(context.io, path)
        except Exception as e:
            yield Finding("statistics-file", path, str(e), "note")
            continue
        if actual != stated:
            yield Finding("statistics-file", path, f"Is {actual} bytes long; the metadata says {stated}.", "note")


def _audit_result(findings: Iterable[Finding], index: SnapshotIndex, snapshots: int, bytes_read: int) -> Audit:
    live = index.is_live
    data = index.first_row_per_file(live & index.is_data)
    blobs = np.stack([index.file_numbers, index.entries["content_offset"].fill_null(-1).to_numpy()])
    return Audit(
        tuple(dict.fromkeys(findings)),
        snapshots=snapshots,
        manifests=len({m.file for m in index.manifests if not m.is_inline}),
        data_files=len(data),
        delete_files=len(index.first_row_per_file(live & ~index.is_data & ~index.is_vector)),
        vectors=np.unique(blobs[:, index.is_vector & live], axis=1).shape[1],
        rows=int(index.entries.numpy("record_count")[data].sum()),
        bytes=bytes_read,
    )

"""Write the metadata of a table again in an earlier format version, over the same data files.

Engines that cannot read a version 4 tree can open the table by the metadata file that this returns: every branch and
tag in its current state, with deletion vectors as entries of their own. The table itself does not change, and later
commits do not show in the export.

Isolation: one state of the metadata.
Writes: manifests, manifest lists and a metadata file, in a folder of their own below the metadata of the table. Nothing
references them, so maintenance takes them for orphans once they are old.

>>> t.upgrade(format_version=4).export_metadata(format_version=3)
'.../metadata/v3-.../00000.metadata.json'
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.commit.window import CommitBase
from neve.commit.written_files import metadata_folder
from neve.errors import UserError
from neve.io.files import file_size, write_new_file
from neve.model.metadata import TableMetadata, metadata_from_json, serialise_metadata
from neve.model.partition import Specs
from neve.model.snapshots import Snapshot
from neve.ops.context import TableContext
from neve.tree.entries import DETAIL, Content, EntryTable, Manifest, Status
from neve.tree.group_by_spec import deletion_vector_mask
from neve.tree.read import manifests_of, read_entries
from neve.tree.tree_writer import assign_row_ids
from neve.tree.write import ManifestContext, ManifestListHeader, write_manifest_list, write_manifests

_EXPORT_VERSION = 3


def export_metadata(context: TableContext, format_version: int = _EXPORT_VERSION) -> str:
    """Write the tree of a table in version 3; returns the path of the metadata file."""
    metadata = context.metadata
    if format_version != _EXPORT_VERSION or metadata.format_version < _EXPORT_VERSION:
        raise UserError(
            f"Cannot export version {metadata.format_version} metadata as version {format_version}; only 3 and later "
            "as 3."
        )
    folder = f"{metadata_folder(CommitBase(context.io, metadata))}/v{format_version}-{uuid4()}"
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    # Without snapshots at first, and without facts about snapshots that are left out.
    document = json.loads(metadata.model_dump_json())
    document |= {"format-version": format_version, "snapshots": [], "refs": {}, "metadata-log": []}
    document.pop("current-snapshot-id", None)
    for name in ("snapshot-log", "statistics", "partition-statistics"):
        document[name] = [row for row in document.get(name) or () if row["snapshot-id"] in heads]
    target = metadata_from_json(document, metadata.location)
    target = target.model_copy(update={"refs": metadata.refs, "current_snapshot_id": metadata.current_snapshot_id})
    export = _Export(context.io, metadata, target, folder, count())
    rows = [export.snapshot_row(s) for s in metadata.lazy_snapshots if s.snapshot_id in heads]
    path = f"{folder}/00000.metadata.json"
    document = {**json.loads(target.model_dump_json()), "snapshots": rows}
    write_new_file(context.io, path, serialise_metadata(metadata_from_json(document, path), path))
    return path


@dataclass(frozen=True)
class _Export:
    """One export: the table, its exported metadata, and the folder of its files."""

    io: FileIO
    source: TableMetadata
    target: TableMetadata
    folder: str
    file_numbers: Iterator[int]

    def snapshot_row(self, snapshot: Snapshot) -> dict[str, Any]:
        """Export a snapshot; returns its JSON in the exported metadata."""
        document: dict[str, Any] = snapshot.model_dump(mode="json", by_alias=True, exclude_none=True)
        if snapshot.root_manifest is None:
            return document
        document.pop("root-manifest")
        manifests, _ = assign_row_ids(
            list(self._export_manifests(snapshot)), getattr(self.source, "next_row_id", None) or 0
        )
        path = f"{self.folder}/snap-{snapshot.snapshot_id}-{next(self.file_numbers)}.avro"
        header = ManifestListHeader(
            snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number or 0, snapshot.first_row_id
        )
        write_manifest_list(self.io, path, manifests, header, _EXPORT_VERSION)
        return document | {"manifest-list": path}

    def _export_manifests(self, snapshot: Snapshot) -> Iterator[Manifest]:
        """Return manifests that version 3 can read, unchanged, and write the entries of the others to new ones."""
        others = []
        for manifest in manifests_of(self.io, self.source, snapshot):
            if manifest.is_tracked:
                others.append(manifest)
            else:
                yield replace(manifest, leaf=None, statistics=None)
        entries = read_entries(self.io, others, Specs.of(self.source), detail=DETAIL.names, live_only=True)
        context = ManifestContext(
            self.target,
            entries.specs,
            snapshot.snapshot_id,
            lambda: f"{self.folder}/m{next(self.file_numbers)}.avro",
        )
        yield from write_manifests(self.io, self._existing_entries(entries.of_content(Content.DATA)), context)
        deletes = entries.of_content(Content.POSITION_DELETES, Content.EQUALITY_DELETES)
        # Vectors in the order of their offsets: DuckDB would mix them up otherwise.
        sort_keys = [(name, "ascending") for name in ("file_path", "content_offset")]
        in_order = deletes.take(pc.sort_indices(deletes.columns, sort_keys=sort_keys))
        for spec_id in pc.unique(in_order["spec_id"]).to_pylist():
            of_spec = in_order.filter(pc.equal(in_order["spec_id"], spec_id))
            yield from write_manifests(self.io, self._existing_entries(of_spec), context)

    def _existing_entries(self, entries: EntryTable) -> EntryTable:
        """Mark entries as existing; a vector gets the size of its file."""
        is_vector = pa.array(deletion_vector_mask(entries))
        paths = pc.unique(entries["file_path"].filter(is_vector))
        sizes = pa.array([file_size(self.io, path) for path in paths.to_pylist()], pa.int64())
        of_vectors = sizes.take(pc.index_in(entries["file_path"], value_set=paths))
        file_sizes = pc.if_else(is_vector, of_vectors, entries["file_size_in_bytes"])
        return entries.with_columns(status=int(Status.EXISTING), file_size_in_bytes=file_sizes)

"""Write the metadata tree of a snapshot, with one interface for all format versions.

`tree_writer_for` returns the writer for a table. A commit passes in new files, edits of manifests, and manifests to be
merged, numbered and listed. Only this module decides how entries and their deletes are stored together.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from neve.io.files import write_new_file
from neve.io.mumbling import encode_positions
from neve.io.paths import canonical_path_all
from neve.tree.entries import DETAIL, LIVE_STATUSES, Content, EntryTable, Leaf, Manifest, Status
from neve.tree.group_by_spec import deletion_vector_mask
from neve.tree.read import read_manifest
from neve.tree.v4.commit_rows import (
    VECTOR_COLUMNS,
    apply_row_changes,
    join_new_vectors,
    live_rows_as_existing,
    rows_from_entries,
    vector_column_values,
)
from neve.tree.v4.leaf import hidden_rows, leaf_of, read_complete_rows
from neve.tree.v4.root import inline_manifests
from neve.tree.v4.rows import concat_rows, make_rows, set_where
from neve.tree.v4.write import encode_root, write_leaves
from neve.tree.write import (
    UNASSIGNED,
    ManifestContext,
    ManifestListHeader,
    copy_entries,
    write_manifest_list,
    write_manifests,
)

_NO_ROW_ID_YET = -(1 << 62)


@dataclass(frozen=True, slots=True)
class ManifestEdit:
    """Changes to the entries of one manifest file: removed entries, and data files that get a vector."""

    removed_entries: EntryTable
    vector_targets: EntryTable | None = None
    vectors: EntryTable | None = None  # the new vector of each of the `vector_targets`, in their order
    removed_vectors: EntryTable | None = None  # of the whole commit, also those of data files in other manifests

    @property
    def identity_key(self) -> Hashable:
        """A value that is equal for equal edits of one file."""
        parts: list[Hashable] = [self.removed_entries.numpy(name).tobytes() for name in ("row", "content")]
        if self.vector_targets is not None and self.vectors is not None:
            parts += [self.vector_targets.numpy("row").tobytes(), self.vectors.blob_names()]
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class ManifestTreeWriter:
    """Versions 1 to 3: manifests of entries of one kind and spec in Avro, and a list of them."""

    suffix: str = ".avro"  # the file extension of manifest lists and roots
    joins_vectors: bool = False  # a vector is stored in the row of its data file, so that the row must be found

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        """Write new files to manifests."""
        return write_manifests(io, added, context)

    def write_edited(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        """Write the entries of a manifest as they are after an edit."""
        live = read_manifest(io, manifest, context.specs).live()
        is_removed = np.isin(live.numpy("row"), edit.removed_entries.numpy("row"))
        status = np.where(is_removed, Status.DELETED, Status.EXISTING)
        snapshot_ids = pc.if_else(pa.array(is_removed), context.snapshot_id, live["snapshot_id"])
        entries = live.with_columns(status=status, snapshot_id=snapshot_ids)
        if edit.vector_targets is not None:
            moved = pc.is_in(pa.array(live.numpy("row")), value_set=pa.array(edit.vector_targets.numpy("row")))
            entries = entries.filter(pc.invert(moved))
        return copy_entries(io, entries, [manifest], context) if len(entries) else []

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        """Write the entries of several manifests of one kind and one spec to one manifest.

        Tombstones of earlier snapshots are dropped, and files added by earlier snapshots become existing ones. Changes
        of this commit stay visible.
        """
        tables = [_read_as_written(io, m, i, context) for i, m in enumerate(manifests)]
        entries = EntryTable.concat(tables, context.specs)
        status, is_ours = entries.numpy("status"), pc.equal(entries["snapshot_id"], context.snapshot_id).to_numpy()
        entries = entries.with_columns(status=np.where((status == Status.ADDED) & ~is_ours, Status.EXISTING, status))
        return copy_entries(io, entries.filter(pa.array((status != Status.DELETED) | is_ours)), manifests, context)

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        """Write the live entries of the replaced manifests to new ones, each group to a manifest."""
        existing = (group.with_columns(status=int(Status.EXISTING)) for group in groups)
        return [m for group in existing for m in write_manifests(io, group, context)]

    def can_merge(self, manifest: Manifest) -> bool:
        """Check whether a manifest may be merged with others."""
        return True

    def manifests_to_list(
        self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext
    ) -> tuple[Manifest, ...]:
        """Return the manifests as they will be listed."""
        return tuple(manifests)

    def write_list_or_root(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], header: ManifestListHeader, context: ManifestContext
    ) -> dict[str, str]:
        """Write the file that lists the manifests of a snapshot; return the snapshot field that names it."""
        write_manifest_list(io, path, manifests, header, context.format_version)
        return {"manifest_list": path}


def _read_as_written(io: FileIO, manifest: Manifest, ordinal: int, context: ManifestContext) -> EntryTable:
    """Return the entries of a manifest; one of this commit has no numbers yet, so nothing is inherited from it."""
    if manifest.sequence_number != UNASSIGNED:
        return read_manifest(io, manifest, context.specs, ordinal=ordinal)
    row_id = None if manifest.is_deletes else _NO_ROW_ID_YET
    entries = read_manifest(io, replace(manifest, first_row_id=row_id), context.specs, ordinal=ordinal)
    null = pa.scalar(None, pa.int64())
    columns = {name: entries[name] for name in ("sequence_number", "file_sequence_number", "first_row_id")}
    return entries.with_columns(**{name: pc.if_else(pc.less(c, 0), null, c) for name, c in columns.items()})


@dataclass(frozen=True, slots=True)
class V4TreeWriter:
    """Version 4: rows of tracked files in Parquet leaves or in the root, each with its deletion vector.

    Manifests of older versions are kept. One that must be rewritten is written in the last version that had them,
    except for data files that get a vector: these move to rows of tracked files.
    """

    suffix: str = ".parquet"
    joins_vectors: bool = True
    older_writer: ManifestTreeWriter = ManifestTreeWriter()

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        files = added.of_content(Content.DATA)
        is_vector = deletion_vector_mask(added)
        others = added.filter(pa.array((added.numpy("content") != Content.DATA) & ~is_vector))
        manifests = self.older_writer.write_added(io, others, context) if len(others) else []
        if not len(files):
            return manifests
        vectors = added.filter(pa.array(is_vector))
        rows = rows_from_entries(files, context.specs, context.metadata.location)
        rows = join_new_vectors(rows, files, vectors, context.metadata.location, context.snapshot_id)
        if rows.num_rows <= context.inline_files:
            return [self._inline_manifest(rows, context), *manifests]
        return [*write_leaves(io, rows, context), *manifests]

    @staticmethod
    def _inline_manifest(rows: pa.Table, context: ManifestContext) -> Manifest:
        shared = Leaf("", location=context.metadata.location)
        return next(inline_manifests(rows, "", shared, context.snapshot_id, UNASSIGNED))

    def write_edited(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        if not manifest.is_tracked:
            return self._write_edited_older(io, manifest, edit, context)
        rows, hidden = read_complete_rows(io, manifest, context.specs), hidden_rows(manifest)
        deleted, replaced, vectors = self._mark_changed_rows(rows, edit, context)
        if context.hides_rows and not manifest.is_inline:
            # Hide changed rows of the leaf, and put the new versions of those with a new vector into the root.
            hidden = np.union1d(hidden, np.flatnonzero(deleted | replaced))
            deleted_bitmap, replaced_bitmap = (
                encode_positions(np.flatnonzero(m)) if m.any() else None for m in (deleted, replaced)
            )
            leaf = replace(
                leaf_of(manifest),
                hidden_bitmap=encode_positions(hidden),
                hidden_count=len(hidden),
                removed_bitmaps=(deleted_bitmap, replaced_bitmap),
                hidden_by=context.snapshot_id,
            )
            manifests = [replace(manifest, leaf=leaf)]
            if replaced.any():
                changed = _replace_all_vectors(rows.filter(pa.array(replaced)), vectors, context)
                new_rows = changed.filter(pc.equal(changed["status"], int(Status.MODIFIED)))
                manifests.append(self._inline_manifest(new_rows, context))
            return manifests
        live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
        live[hidden] = False
        live_rows = rows.filter(pa.array(live))
        new_rows = apply_row_changes(
            live_rows, context.snapshot_id, deleted=deleted[live], replaced=replaced[live], vectors=vectors
        )
        if manifest.is_inline:
            return [self._inline_manifest(new_rows, context)]
        return write_leaves(io, new_rows, context)

    def _mark_changed_rows(
        self, rows: pa.Table, edit: ManifestEdit, context: ManifestContext
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
        """Return masks of the deleted rows and of those whose vector changes, and the new vectors of the latter."""
        content, removed = edit.removed_entries.numpy("content"), edit.removed_entries.numpy("row")
        deleted, replaced = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        deleted[removed[content != Content.POSITION_DELETES]] = True
        replaced[removed[content == Content.POSITION_DELETES]] = True
        vectors, numbers = edit.vectors or EntryTable.empty(context.specs), np.full(rows.num_rows, -1)
        if edit.vector_targets is not None:
            targets = edit.vector_targets.numpy("row")
            replaced[targets], numbers[targets] = True, np.arange(len(targets))
        replaced &= ~deleted
        own = pa.array(numbers[replaced], mask=numbers[replaced] < 0)  # a row without a new vector loses its old one
        columns = pa.table(vector_column_values(vectors, context.metadata.location)).take(own)
        return deleted, replaced, {name: columns[name] for name in VECTOR_COLUMNS}

    def _write_edited_older(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        manifests = self.older_writer.write_edited(io, manifest, edit, context)
        if edit.vector_targets is None or edit.vectors is None:
            return manifests
        location = context.metadata.location
        entries = read_manifest(io, manifest, context.specs, detail=DETAIL.names)
        numbers = pc.index_in(pa.array(edit.vector_targets.numpy("row")), value_set=entries["row"].combine_chunks())
        targets = entries.take(numbers)
        rows = rows_from_entries(targets, context.specs, location)
        if edit.removed_vectors is not None:
            rows = join_new_vectors(rows, targets, edit.removed_vectors, location)
        new_rows = _replace_all_vectors(rows, vector_column_values(edit.vectors, location), context)
        return [*write_leaves(io, new_rows, context), *manifests]

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        return write_leaves(io, concat_rows(_merged_rows(io, m, context) for m in manifests), context)

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        tracked = [m for m in replaced if m.is_tracked and not m.is_view]
        tables = [_merged_rows(io, m, context) for m in tracked if not m.is_deletes]
        old_rows = concat_rows(tables) if tables else make_rows({}, 0, context.specs)
        vectors = EntryTable.concat([g.filter(pa.array(deletion_vector_mask(g))) for g in groups], context.specs)
        data_files = [g.of_content(Content.DATA) for g in groups]
        manifests = [m for files in data_files for m in self._write_group(io, files, old_rows, vectors, context)]
        views = [m for m in replaced if m.is_view and m.is_deletes]
        in_rows = [read_manifest(io, m, context.specs)["referenced_data_file"].combine_chunks() for m in views]
        paths = EntryTable.concat(data_files, context.specs)["file_path"].combine_chunks()
        # Delete files that are not stored in the row of a data file stay entries of an older version.
        others = [g.filter(pa.array(g.numpy("content") != Content.DATA)) for g in groups]
        deletes = EntryTable.concat(others, context.specs)
        if len(deletes):
            named = canonical_path_all(deletes["referenced_data_file"])
            known = canonical_path_all(pa.concat_arrays([paths, *in_rows]))
            in_row = pc.is_in(named, value_set=known).to_numpy(zero_copy_only=False)
            deletes = deletes.filter(pa.array(~(deletion_vector_mask(deletes) & in_row)))
        existing = deletes.with_columns(status=int(Status.EXISTING))
        return [*manifests, *(self.older_writer.write_added(io, existing, context) if len(existing) else [])]

    def _write_group(
        self, io: FileIO, files: EntryTable, old_rows: pa.Table, vectors: EntryTable, context: ManifestContext
    ) -> list[Manifest]:
        """Write data files as rows: old rows unchanged, entries as new rows with the vectors that name them."""
        if not len(files):
            return []
        location = context.metadata.location
        new_rows = rows_from_entries(files.with_columns(status=int(Status.EXISTING)), context.specs, location)
        new_rows = join_new_vectors(new_rows, files, vectors, location)
        numbers = pc.index_in(new_rows["location"], value_set=old_rows["location"].combine_chunks())
        tables = [old_rows.take(numbers.drop_null().combine_chunks()), new_rows.filter(numbers.is_null())]
        return write_leaves(io, concat_rows(tables), context)

    def can_merge(self, manifest: Manifest) -> bool:
        return manifest.is_tracked and not manifest.is_inline and not manifest.is_deletes

    def manifests_to_list(
        self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext
    ) -> tuple[Manifest, ...]:
        """Merge the rows in the root into one manifest, or move them to leaves if they are too many."""
        inline = [m for m in manifests if m.is_inline and not m.is_view]
        leaves = [m for m in manifests if not m.is_inline and not m.is_view]
        if not inline:
            return tuple(leaves)
        rows = concat_rows(_merged_rows(io, m, context) for m in inline)
        if rows.num_rows > context.inline_rows:
            return (*write_leaves(io, rows, context), *leaves)
        return (*leaves, *([self._inline_manifest(rows, context)] if rows.num_rows else []))

    def write_list_or_root(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], header: ManifestListHeader, context: ManifestContext
    ) -> dict[str, str]:
        write_new_file(io, path, encode_root(manifests, header, context.specs, context.metadata.location))
        return {"root_manifest": path}


TreeWriter: TypeAlias = ManifestTreeWriter | V4TreeWriter


def tree_writer_for(metadata: TableMetadata) -> TreeWriter:
    """Return the writer for new snapshots of a table."""
    return V4TreeWriter() if int(metadata.format_version) >= 4 else ManifestTreeWriter()


def assign_row_ids(manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
    """Assign row ids to data manifests, or rows of a root, without any, and return the next free id.

    A manifest of copied entries needs a range too: readers ignore the ids of its entries otherwise.
    """
    assigned = list(manifests)
    for at, manifest in enumerate(manifests):
        leaf = leaf_of(manifest)
        if leaf.rows is not None:
            # Each row of the root gets its ids: there is no list above it to inherit them from.
            rows: pa.Table = leaf.rows
            live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
            is_data = rows["content_type"].to_numpy() == Content.DATA
            waiting = rows["first_row_id"].is_null().to_numpy() & is_data & live
            taken = np.where(waiting, rows["record_count"].to_numpy(), 0)
            first = next_row_id + np.cumsum(taken) - taken
            rows = set_where(rows, waiting, first_row_id=first[waiting])
            assigned[at] = replace(manifest, leaf=replace(leaf, rows=rows))
            next_row_id += int(taken.sum())
        elif not manifest.is_deletes and manifest.first_row_id is None:
            assigned[at] = replace(manifest, first_row_id=next_row_id)
            live_rows = (manifest.added_rows or 0) + (manifest.existing_rows or 0)
            next_row_id += live_rows if leaf.rows_without_ids is None else leaf.rows_without_ids
    return assigned, next_row_id


def _replace_all_vectors(rows: pa.Table, vectors: dict[str, Any], context: ManifestContext) -> pa.Table:
    """Return each row twice: as it was, marked as replaced, and with its new vector."""
    replaced = np.ones(rows.num_rows, bool)
    return apply_row_changes(rows, context.snapshot_id, deleted=~replaced, replaced=replaced, vectors=vectors)


def _merged_rows(io: FileIO, manifest: Manifest, context: ManifestContext) -> pa.Table:
    """Return the rows of a leaf for a merged one: those of this commit unchanged, older live ones as existing."""
    rows = read_complete_rows(io, manifest, context.specs)
    return rows if manifest.sequence_number == UNASSIGNED else live_rows_as_existing(rows, hidden_rows(manifest))

"""How the tree of a table is spelled: what a commit asks for, the same for every format version.

`read_field_ids_of_file` chooses. A commit hands over new files, what becomes of the entries of a manifest, and manifests to be
merged, numbered and listed; how entries and their deletes lie beside one another is decided here and nowhere above.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from neve.io.files import write_new_file
from neve.io.mumbling import encode_positions
from neve.io.paths import canonical_path_all
from neve.model.partition import Specs
from neve.tree.copy_entries import copy_entries
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
from neve.tree.v4.fields import ContentType
from neve.tree.v4.leaf import hidden_rows, leaf_of, read_complete_rows
from neve.tree.v4.root import inline_manifests
from neve.tree.v4.rows import concat_rows, set_where
from neve.tree.v4.write import encode_root, write_leaves
from neve.tree.write import UNASSIGNED, ManifestContext, assign_row_ids, write_manifest_list, write_manifests

_NO_ROW_ID_YET = -(1 << 62)
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class ManifestEdit:
    """What becomes of the entries of one file of the tree: those that leave, and data files that get a vector."""

    removed_entries: EntryTable
    vector_targets: EntryTable | None = None
    vectors: EntryTable | None = None
    """The new vector of each holder, in their order."""
    removed_vectors: EntryTable | None = None
    """Vectors that leave with the commit, also those of holders that lie elsewhere."""

    @property
    def identity_key(self) -> Hashable:
        """What tells two edits of one file apart."""
        parts: list[Hashable] = [
            self.removed_entries.numpy("row").tobytes(),
            self.removed_entries.numpy("content").tobytes(),
        ]
        if self.vector_targets is not None and self.vectors is not None:
            places = (self.vectors["file_path"].to_pylist(), self.vectors["content_offset"].to_pylist())
            parts += [self.vector_targets.numpy("row").tobytes(), tuple(zip(*places, strict=True))]
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class ManifestListHeader:
    """What the file that lists the manifests of a snapshot says about itself."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None


class TreeWriter(Protocol):
    """The spelling of a tree."""

    @property
    def suffix(self) -> str:
        """How the names of the files that list manifests end."""

    @property
    def joins_vectors(self) -> bool:
        """Whether a deletion vector lies in the row of its data file, so that the row must be found."""

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        """Write new files to manifests."""

    def write_edited(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        """Write what an edit leaves of the entries of a manifest."""

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        """Write the entries of several manifests of one kind and one spec to one."""

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        """Write live entries of the manifests replaced to new ones, a group to a manifest."""

    def can_merge(self, manifest: Manifest) -> bool:
        """Whether a manifest may be merged with others."""

    def manifests_to_list(
        self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext
    ) -> tuple[Manifest, ...]:
        """The manifests as they are to be listed."""

    def assign_row_ids(self, manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
        """Give row ids to what has none, and return the first id still free."""

    def write_list_or_root(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], header: ManifestListHeader, context: ManifestContext
    ) -> dict[str, str]:
        """Write the file that lists the manifests of a snapshot; the answer is how the snapshot names it."""


def tree_writer_for(metadata: TableMetadata) -> TreeWriter:
    """The spelling that new snapshots of a table have."""
    return V4TreeWriter() if int(metadata.format_version) >= 4 else ManifestTreeWriter()


@dataclass(frozen=True, slots=True)
class ManifestTreeWriter:
    """Versions 1 to 3: manifests of entries of one kind and spec in Avro, and a list of them."""

    suffix: str = ".avro"
    joins_vectors: bool = False

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        return write_manifests(io, added, context)

    def write_edited(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        live = read_manifest(io, manifest, context.specs).live()
        goes = np.isin(live.numpy("row"), edit.removed_entries.numpy("row"))
        status = np.where(goes, Status.DELETED, Status.EXISTING)
        snapshot_ids = pc.if_else(pa.array(goes), context.snapshot_id, live["snapshot_id"])
        entries = live.with_columns(status=status, snapshot_id=snapshot_ids)
        if edit.vector_targets is not None:
            moved = pc.is_in(pa.array(live.numpy("row")), value_set=pa.array(edit.vector_targets.numpy("row")))
            entries = entries.filter(pc.invert(moved))
        return copy_entries(io, entries, [manifest], context) if len(entries) else []

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        return copy_entries(io, merged_entries(io, manifests, context), manifests, context)

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        existing = (group.with_columns(status=int(Status.EXISTING)) for group in groups)
        return [m for group in existing for m in write_manifests(io, group, context)]

    def can_merge(self, manifest: Manifest) -> bool:
        return True

    def manifests_to_list(
        self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext
    ) -> tuple[Manifest, ...]:
        return tuple(manifests)

    def assign_row_ids(self, manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
        return assign_row_ids(manifests, next_row_id)

    def write_list_or_root(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], header: ManifestListHeader, context: ManifestContext
    ) -> dict[str, str]:
        write_manifest_list(
            io,
            path,
            manifests,
            format_version=context.format_version,
            snapshot_id=header.snapshot_id,
            parent_snapshot_id=header.parent_snapshot_id,
            sequence_number=header.sequence_number,
            first_row_id=header.first_row_id,
        )
        return {"manifest_list": path}


def merged_entries(io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> EntryTable:
    """The entries of several manifests as one merged manifest holds them.

    Tombstones of earlier snapshots vanish, files that earlier snapshots added are carried; what this commit did stays
    visible.
    """
    entries = EntryTable.concat([_read_as_written(io, m, i, context) for i, m in enumerate(manifests)], context.specs)
    status, is_ours = entries.numpy("status"), pc.equal(entries["snapshot_id"], context.snapshot_id).to_numpy()
    entries = entries.with_columns(status=np.where((status == Status.ADDED) & ~is_ours, Status.EXISTING, status))
    return entries.filter(pa.array((status != Status.DELETED) | is_ours))


def _read_as_written(io: FileIO, manifest: Manifest, ordinal: int, context: ManifestContext) -> EntryTable:
    """The entries of a manifest; from one of this commit, which has no numbers yet, nothing may be inherited."""
    if manifest.sequence_number != UNASSIGNED:
        return read_manifest(io, manifest, context.specs, ordinal=ordinal)
    row_id = None if manifest.is_deletes else _NO_ROW_ID_YET
    entries = read_manifest(io, replace(manifest, first_row_id=row_id), context.specs, ordinal=ordinal)
    names = ("sequence_number", "file_sequence_number", "first_row_id")
    return entries.with_columns(**{name: _unless_negative(entries[name]) for name in names})


def _unless_negative(column: pa.ChunkedArray) -> Any:
    return pc.if_else(pc.less(column, 0), pa.scalar(None, column.type), column)


@dataclass(frozen=True, slots=True)
class V4TreeWriter:
    """Version 4: rows of tracked files in Parquet leaves or in the root, each with its deletion vector.

    Manifests of older versions stay what they are: those that must be rewritten are written in the last version that
    had them, except for data files that get a vector, which move to rows of their own.
    """

    suffix: str = ".parquet"
    joins_vectors: bool = True
    older_writer: ManifestTreeWriter = ManifestTreeWriter()

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        files = added.of_content(Content.DATA)
        vectors = added.filter(pa.array(deletion_vector_mask(added)))
        others = added.filter(pa.array((added.numpy("content") != Content.DATA) & ~deletion_vector_mask(added)))
        found = self.older_writer.write_added(io, others, context) if len(others) else []
        if not len(files):
            return found
        rows = rows_from_entries(files, context.specs, context.metadata.location)
        rows = join_new_vectors(rows, files, vectors, context.metadata.location, context.snapshot_id)
        return [*self._placed(io, rows, context), *found]

    def _placed(self, io: FileIO, rows: pa.Table, context: ManifestContext) -> list[Manifest]:
        """Rows in leaves, or in the root when they are few."""
        if rows.num_rows <= context.inline_files:
            return [self._inline_manifest(rows, context)]
        return write_leaves(io, rows, context)

    @staticmethod
    def _inline_manifest(rows: pa.Table, context: ManifestContext) -> Manifest:
        shared = Leaf("", location=context.metadata.location)
        return next(inline_manifests(rows, "", shared, context.snapshot_id, UNASSIGNED))

    def write_edited(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        if manifest.leaf is None or not manifest.leaf.is_tracked:
            return self._write_edited_older(io, manifest, edit, context)
        rows = read_complete_rows(io, manifest, context.specs)
        live = np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
        live[hidden_rows(manifest)] = False
        deleted, replaced, vectors = self._mark_changed_rows(rows, edit, context)
        if context.hides_rows and not manifest.is_inline:
            return self._hide_rows(io, manifest, rows, deleted, replaced, vectors, context)
        kept = rows.filter(pa.array(live))
        after = apply_row_changes(
            kept, context.snapshot_id, deleted=deleted[live], replaced=replaced[live], vectors=vectors
        )
        if manifest.is_inline:
            return [self._inline_manifest(after, context)]
        return write_leaves(io, after, context)

    def _mark_changed_rows(
        self, rows: pa.Table, edit: ManifestEdit, context: ManifestContext
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
        """Which rows are deleted, which get another vector or lose theirs, and what they have then."""
        content, leaving = edit.removed_entries.numpy("content"), edit.removed_entries.numpy("row")
        deleted, replaced = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        deleted[leaving[content != Content.POSITION_DELETES]] = True
        replaced[leaving[content == Content.POSITION_DELETES]] = True
        vectors = {name: pa.nulls(rows.num_rows, rows.schema.field(name).type) for name in VECTOR_COLUMNS}
        table = pa.table(vectors)
        if edit.vector_targets is not None and edit.vectors is not None:
            at = edit.vector_targets.numpy("row")
            replaced[at] = True
            mask = np.zeros(rows.num_rows, bool)
            mask[at] = True
            new = pa.table(vector_column_values(edit.vectors, context.metadata.location)).take(pa.array(np.argsort(at)))
            table = set_where(table, mask, **{name: new[name] for name in VECTOR_COLUMNS})
        replaced &= ~deleted
        own = table.filter(pa.array(replaced))
        return deleted, replaced, {name: own[name] for name in VECTOR_COLUMNS}

    def _hide_rows(
        self,
        io: FileIO,
        manifest: Manifest,
        rows: pa.Table,
        deleted: np.ndarray[Any, Any],
        replaced: np.ndarray[Any, Any],
        vectors: dict[str, Any],
        context: ManifestContext,
    ) -> list[Manifest]:
        """The same leaf with rows hidden, and the new states of those that changed as rows of the root."""
        gone = np.union1d(hidden_rows(manifest), np.flatnonzero(deleted | replaced))
        of_deleted, of_replaced = (
            encode_positions(np.flatnonzero(m)) if m.any() else None for m in (deleted, replaced)
        )
        leaf = replace(
            leaf_of(manifest),
            hidden_bitmap=encode_positions(gone),
            hidden_count=len(gone),
            removed_bitmaps=(of_deleted, of_replaced),
            hidden_by=context.snapshot_id,
        )
        found = [replace(manifest, leaf=leaf)]
        if replaced.any():
            own = rows.filter(pa.array(replaced))
            nothing, every = np.zeros(own.num_rows, bool), np.ones(own.num_rows, bool)
            both = apply_row_changes(own, context.snapshot_id, deleted=nothing, replaced=every, vectors=vectors)
            found.append(self._inline_manifest(both.filter(pc.equal(both["status"], int(Status.MODIFIED))), context))
        return found

    def _write_edited_older(
        self, io: FileIO, manifest: Manifest, edit: ManifestEdit, context: ManifestContext
    ) -> list[Manifest]:
        found = self.older_writer.write_edited(io, manifest, edit, context)
        if edit.vector_targets is None or edit.vectors is None:
            return found
        entries = read_manifest(io, manifest, context.specs, detail=DETAIL.names)
        place = pc.index_in(pa.array(edit.vector_targets.numpy("row")), value_set=entries["row"].combine_chunks())
        own = entries.take(place)
        rows = rows_from_entries(own, context.specs, context.metadata.location)
        if edit.removed_vectors is not None:
            rows = _join_existing_vectors(rows, own, edit.removed_vectors, context.metadata.location)
        every, nothing = np.ones(len(own), bool), np.zeros(len(own), bool)
        vectors = vector_column_values(edit.vectors, context.metadata.location)
        after = apply_row_changes(rows, context.snapshot_id, deleted=nothing, replaced=every, vectors=vectors)
        return [*write_leaves(io, after, context), *found]

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        return write_leaves(io, concat_rows(_merged_rows(io, m, context) for m in manifests), context)

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        tracked = [m for m in replaced if m.leaf is not None and m.leaf.is_tracked and not m.is_view]
        known = [_merged_rows(io, m, context) for m in tracked if not m.is_deletes]
        whole = concat_rows(known) if known else None
        vectors = [group.filter(pa.array(deletion_vector_mask(group))) for group in groups]
        loose = EntryTable.concat(vectors, context.specs)
        found: list[Manifest] = []
        for group in groups:
            found += self._write_group(io, group.of_content(Content.DATA), whole, loose, context)
        joined = EntryTable.concat([g.of_content(Content.DATA) for g in groups], context.specs)
        views = [m for m in replaced if m.is_view and m.is_deletes]
        beside = [read_manifest(io, m, context.specs)["referenced_data_file"].combine_chunks() for m in views]
        rest = _deletes_without_data_file(
            groups, pa.concat_arrays([joined["file_path"].combine_chunks(), *beside]), context.specs
        )
        existing = rest.with_columns(status=int(Status.EXISTING))
        return [*found, *(self.older_writer.write_added(io, existing, context) if len(rest) else [])]

    def _write_group(
        self, io: FileIO, files: EntryTable, known_rows: pa.Table | None, vectors: EntryTable, context: ManifestContext
    ) -> list[Manifest]:
        """Data files as rows: those that were rows as they were, the others anew with the vectors that name them."""
        if not len(files):
            return []
        location = context.metadata.location
        fresh = rows_from_entries(files.with_columns(status=int(Status.EXISTING)), context.specs, location)
        fresh = _join_existing_vectors(fresh, files, vectors, location)
        if known_rows is None:
            return write_leaves(io, fresh, context)
        place = pc.index_in(fresh["location"], value_set=known_rows["location"].combine_chunks())
        known = place.is_valid().to_numpy()
        tables = [known_rows.take(place.drop_null().combine_chunks())] if known.any() else []
        tables += [fresh.filter(pa.array(~known))] if not known.all() else []
        return write_leaves(io, concat_rows(tables), context)

    def can_merge(self, manifest: Manifest) -> bool:
        leaf = manifest.leaf
        return leaf is not None and leaf.is_tracked and not leaf.is_inline and not manifest.is_deletes

    def manifests_to_list(
        self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext
    ) -> tuple[Manifest, ...]:
        """One set of rows in the root at most; they move to leaves when they are too many."""
        inline = [m for m in manifests if m.is_inline and not m.is_view]
        leaves = [m for m in manifests if not m.is_inline and not m.is_view]
        if not inline:
            return tuple(leaves)
        rows = concat_rows(_merged_rows(io, m, context) for m in inline)
        if rows.num_rows > context.inline_rows:
            return (*write_leaves(io, rows, context), *leaves)
        return (*leaves, *([self._inline_manifest(rows, context)] if rows.num_rows else []))

    def assign_row_ids(self, manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
        assigned = list(manifests)
        for at, manifest in enumerate(manifests):
            if manifest.is_inline:
                assigned[at], next_row_id = _assign_explicit_row_ids(manifest, next_row_id)
            elif not manifest.is_deletes and manifest.first_row_id is None:
                assigned[at] = replace(manifest, first_row_id=next_row_id)
                waiting = manifest.leaf.rows_without_ids if manifest.leaf is not None else None
                live = (manifest.added_rows or 0) + (manifest.existing_rows or 0)
                next_row_id += live if waiting is None else waiting
        return assigned, next_row_id

    def write_list_or_root(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], header: ManifestListHeader, context: ManifestContext
    ) -> dict[str, str]:
        data = encode_root(
            manifests,
            context.specs,
            context.metadata.location,
            snapshot_id=header.snapshot_id,
            parent_snapshot_id=header.parent_snapshot_id,
            sequence_number=header.sequence_number,
            first_row_id=header.first_row_id,
        )
        write_new_file(io, path, data)
        return {"root_manifest": path}


def _merged_rows(io: FileIO, manifest: Manifest, context: ManifestContext) -> pa.Table:
    """The rows of a leaf as another holds them: those of this commit as they are, older live ones as existing."""
    rows = read_complete_rows(io, manifest, context.specs)
    return rows if manifest.sequence_number == UNASSIGNED else live_rows_as_existing(rows, hidden_rows(manifest))


def _assign_explicit_row_ids(manifest: Manifest, next_row_id: int) -> tuple[Manifest, int]:
    """Rows in the root have row ids of their own: nothing above them could give them any."""
    leaf = leaf_of(manifest)
    rows: pa.Table = leaf.rows
    is_data = rows["content_type"].to_numpy() == ContentType.DATA
    waiting = rows["first_row_id"].is_null().to_numpy() & is_data & np.isin(rows["status"].to_numpy(), LIVE_STATUSES)
    taken = np.where(waiting, rows["record_count"].to_numpy(), 0)
    first = next_row_id + np.cumsum(taken) - taken
    rows = set_where(rows, waiting, first_row_id=first[waiting])
    return replace(manifest, leaf=replace(leaf, rows=rows)), next_row_id + int(taken.sum())


def _join_existing_vectors(rows: pa.Table, files: EntryTable, vectors: EntryTable, location: str) -> pa.Table:
    """Rows of existing files with the vectors of theirs that lay elsewhere; a vector keeps its snapshot."""
    if not len(vectors):
        return rows
    place = pc.index_in(
        canonical_path_all(files["file_path"]), value_set=canonical_path_all(vectors["referenced_data_file"])
    )
    has = place.is_valid().to_numpy(zero_copy_only=False)
    own = vectors.take(place.drop_null())
    return set_where(rows, has, dv_snapshot_id=own["snapshot_id"], **vector_column_values(own, location))


def _deletes_without_data_file(groups: Sequence[EntryTable], data_file_paths: pa.Array, specs: Specs) -> EntryTable:
    """The delete files of groups that no row of a data file holds: they stay entries of an older version."""
    deletes = [g.filter(pa.array(g.numpy("content") != Content.DATA)) for g in groups]
    found = EntryTable.concat(deletes, specs)
    if not len(found):
        return found
    named = canonical_path_all(found["referenced_data_file"])
    held = pc.is_in(named, value_set=canonical_path_all(data_file_paths)).to_numpy(zero_copy_only=False)
    return found.filter(pa.array(~(deletion_vector_mask(found) & held)))

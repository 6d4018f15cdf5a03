"""How the tree of a table is spelled: what a commit asks for, the same for every format version.

`shape_of` chooses. A commit hands over new files, what becomes of the entries of a manifest, and manifests to be
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

from neve.io.files import write_new
from neve.io.mumbling import encode
from neve.io.paths import canonical_all
from neve.model.partition import Specs
from neve.tree.copy_entries import write_carried
from neve.tree.entries import DETAIL, LIVE, Content, EntryTable, Leaf, Manifest, Status
from neve.tree.group_by_spec import vectors_in
from neve.tree.read import read_manifest
from neve.tree.v4.commit_rows import VECTOR_COLUMNS, as_existing, born_with, changed, rows_of, vectors_of
from neve.tree.v4.fields import ContentType
from neve.tree.v4.leaf import hidden_rows, leaf_of, whole_rows
from neve.tree.v4.root import inline_manifests
from neve.tree.v4.rows import concat, put
from neve.tree.v4.write import encode_root, write_leaves
from neve.tree.write import UNASSIGNED, ManifestContext, assign_row_ids, write_list, write_manifests

_NO_ROW_ID_YET = -(1 << 62)
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of the entries of one file of the tree: those that leave, and data files that get a vector."""

    leaving: EntryTable
    holders: EntryTable | None = None
    vectors: EntryTable | None = None
    """The new vector of each holder, in their order."""
    before: EntryTable | None = None
    """Vectors that leave with the commit, also those of holders that lie elsewhere."""

    @property
    def token(self) -> Hashable:
        """What tells two edits of one file apart."""
        parts: list[Hashable] = [self.leaving.numpy("row").tobytes(), self.leaving.numpy("content").tobytes()]
        if self.holders is not None and self.vectors is not None:
            places = (self.vectors["file_path"].to_pylist(), self.vectors["content_offset"].to_pylist())
            parts += [self.holders.numpy("row").tobytes(), tuple(zip(*places, strict=True))]
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class Listing:
    """What the file that lists the manifests of a snapshot says about itself."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None


class Shape(Protocol):
    """The spelling of a tree."""

    @property
    def suffix(self) -> str:
        """How the names of the files that list manifests end."""

    @property
    def joins_vectors(self) -> bool:
        """Whether a deletion vector lies in the row of its data file, so that the row must be found."""

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        """Write new files to manifests."""

    def write_edited(self, io: FileIO, manifest: Manifest, edit: Edit, context: ManifestContext) -> list[Manifest]:
        """Write what an edit leaves of the entries of a manifest."""

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        """Write the entries of several manifests of one kind and one spec to one."""

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        """Write live entries of the manifests replaced to new ones, a group to a manifest."""

    def can_merge(self, manifest: Manifest) -> bool:
        """Whether a manifest may be merged with others."""

    def settled(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> tuple[Manifest, ...]:
        """The manifests as they are to be listed."""

    def assign_row_ids(self, manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
        """Give row ids to what has none, and return the first id still free."""

    def write_listing(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], listing: Listing, context: ManifestContext
    ) -> dict[str, str]:
        """Write the file that lists the manifests of a snapshot; the answer is how the snapshot names it."""


def shape_of(metadata: TableMetadata) -> Shape:
    """The spelling that new snapshots of a table have."""
    return TrackedShape() if int(metadata.format_version) >= 4 else EntryShape()


@dataclass(frozen=True, slots=True)
class EntryShape:
    """Versions 1 to 3: manifests of entries of one kind and spec in Avro, and a list of them."""

    suffix: str = ".avro"
    joins_vectors: bool = False

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        return write_manifests(io, added, context)

    def write_edited(self, io: FileIO, manifest: Manifest, edit: Edit, context: ManifestContext) -> list[Manifest]:
        live = read_manifest(io, manifest, context.specs).live()
        goes = np.isin(live.numpy("row"), edit.leaving.numpy("row"))
        status = np.where(goes, Status.DELETED, Status.EXISTING)
        snapshot_ids = pc.if_else(pa.array(goes), context.snapshot_id, live["snapshot_id"])
        entries = live.with_columns(status=status, snapshot_id=snapshot_ids)
        if edit.holders is not None:
            moved = pc.is_in(pa.array(live.numpy("row")), value_set=pa.array(edit.holders.numpy("row")))
            entries = entries.filter(pc.invert(moved))
        return write_carried(io, entries, [manifest], context) if len(entries) else []

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        return write_carried(io, carried(io, manifests, context), manifests, context)

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        existing = (group.with_columns(status=int(Status.EXISTING)) for group in groups)
        return [m for group in existing for m in write_manifests(io, group, context)]

    def can_merge(self, manifest: Manifest) -> bool:
        return True

    def settled(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> tuple[Manifest, ...]:
        return tuple(manifests)

    def assign_row_ids(self, manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
        return assign_row_ids(manifests, next_row_id)

    def write_listing(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], listing: Listing, context: ManifestContext
    ) -> dict[str, str]:
        write_list(
            io,
            path,
            manifests,
            format_version=context.format_version,
            snapshot_id=listing.snapshot_id,
            parent_snapshot_id=listing.parent_snapshot_id,
            sequence_number=listing.sequence_number,
            first_row_id=listing.first_row_id,
        )
        return {"manifest_list": path}


def carried(io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> EntryTable:
    """The entries of several manifests as one merged manifest holds them.

    Tombstones of earlier snapshots vanish, files that earlier snapshots added are carried; what this commit did stays
    visible.
    """
    entries = EntryTable.concat([_as_written(io, m, i, context) for i, m in enumerate(manifests)], context.specs)
    status, is_ours = entries.numpy("status"), pc.equal(entries["snapshot_id"], context.snapshot_id).to_numpy()
    entries = entries.with_columns(status=np.where((status == Status.ADDED) & ~is_ours, Status.EXISTING, status))
    return entries.filter(pa.array((status != Status.DELETED) | is_ours))


def _as_written(io: FileIO, manifest: Manifest, ordinal: int, context: ManifestContext) -> EntryTable:
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
class TrackedShape:
    """Version 4: rows of tracked files in Parquet leaves or in the root, each with its deletion vector.

    Manifests of older versions stay what they are: those that must be rewritten are written in the last version that
    had them, except for data files that get a vector, which move to rows of their own.
    """

    suffix: str = ".parquet"
    joins_vectors: bool = True
    older: EntryShape = EntryShape()

    def write_added(self, io: FileIO, added: EntryTable, context: ManifestContext) -> list[Manifest]:
        files = added.of_content(Content.DATA)
        vectors = added.filter(pa.array(vectors_in(added)))
        others = added.filter(pa.array((added.numpy("content") != Content.DATA) & ~vectors_in(added)))
        found = self.older.write_added(io, others, context) if len(others) else []
        if not len(files):
            return found
        rows = rows_of(files, context.specs, context.metadata.location)
        rows = born_with(rows, files, vectors, context.metadata.location, context.snapshot_id)
        return [*self._placed(io, rows, context), *found]

    def _placed(self, io: FileIO, rows: pa.Table, context: ManifestContext) -> list[Manifest]:
        """Rows in leaves, or in the root when they are few."""
        if rows.num_rows <= context.inline_files:
            return [self._inline(rows, context)]
        return write_leaves(io, rows, context)

    @staticmethod
    def _inline(rows: pa.Table, context: ManifestContext) -> Manifest:
        shared = Leaf("", location=context.metadata.location)
        return next(inline_manifests(rows, "", shared, context.snapshot_id, UNASSIGNED))

    def write_edited(self, io: FileIO, manifest: Manifest, edit: Edit, context: ManifestContext) -> list[Manifest]:
        if manifest.leaf is None or not manifest.leaf.is_tracked:
            return self._edited_older(io, manifest, edit, context)
        rows = whole_rows(io, manifest, context.specs)
        live = np.isin(rows["status"].to_numpy(), LIVE)
        live[hidden_rows(manifest)] = False
        deleted, replaced, vectors = self._marks(rows, edit, context)
        if context.hides_rows and not manifest.is_inline:
            return self._hidden(io, manifest, rows, deleted, replaced, vectors, context)
        kept = rows.filter(pa.array(live))
        after = changed(kept, context.snapshot_id, deleted=deleted[live], replaced=replaced[live], vectors=vectors)
        if manifest.is_inline:
            return [self._inline(after, context)]
        return write_leaves(io, after, context)

    def _marks(
        self, rows: pa.Table, edit: Edit, context: ManifestContext
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, Any]]:
        """Which rows are deleted, which get another vector or lose theirs, and what they have then."""
        content, leaving = edit.leaving.numpy("content"), edit.leaving.numpy("row")
        deleted, replaced = np.zeros(rows.num_rows, bool), np.zeros(rows.num_rows, bool)
        deleted[leaving[content != Content.POSITION_DELETES]] = True
        replaced[leaving[content == Content.POSITION_DELETES]] = True
        vectors = {name: pa.nulls(rows.num_rows, rows.schema.field(name).type) for name in VECTOR_COLUMNS}
        table = pa.table(vectors)
        if edit.holders is not None and edit.vectors is not None:
            at = edit.holders.numpy("row")
            replaced[at] = True
            mask = np.zeros(rows.num_rows, bool)
            mask[at] = True
            new = pa.table(vectors_of(edit.vectors, context.metadata.location)).take(pa.array(np.argsort(at)))
            table = put(table, mask, **{name: new[name] for name in VECTOR_COLUMNS})
        replaced &= ~deleted
        own = table.filter(pa.array(replaced))
        return deleted, replaced, {name: own[name] for name in VECTOR_COLUMNS}

    def _hidden(
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
        of_deleted, of_replaced = (encode(np.flatnonzero(m)) if m.any() else None for m in (deleted, replaced))
        leaf = replace(
            leaf_of(manifest),
            hidden=encode(gone),
            hidden_count=len(gone),
            removed=(of_deleted, of_replaced),
            hidden_by=context.snapshot_id,
        )
        found = [replace(manifest, leaf=leaf)]
        if replaced.any():
            own = rows.filter(pa.array(replaced))
            nothing, every = np.zeros(own.num_rows, bool), np.ones(own.num_rows, bool)
            both = changed(own, context.snapshot_id, deleted=nothing, replaced=every, vectors=vectors)
            found.append(self._inline(both.filter(pc.equal(both["status"], int(Status.MODIFIED))), context))
        return found

    def _edited_older(self, io: FileIO, manifest: Manifest, edit: Edit, context: ManifestContext) -> list[Manifest]:
        found = self.older.write_edited(io, manifest, edit, context)
        if edit.holders is None or edit.vectors is None:
            return found
        entries = read_manifest(io, manifest, context.specs, detail=DETAIL.names)
        place = pc.index_in(pa.array(edit.holders.numpy("row")), value_set=entries["row"].combine_chunks())
        own = entries.take(place)
        rows = rows_of(own, context.specs, context.metadata.location)
        if edit.before is not None:
            rows = _joined(rows, own, edit.before, context.metadata.location)
        every, nothing = np.ones(len(own), bool), np.zeros(len(own), bool)
        vectors = vectors_of(edit.vectors, context.metadata.location)
        after = changed(rows, context.snapshot_id, deleted=nothing, replaced=every, vectors=vectors)
        return [*write_leaves(io, after, context), *found]

    def write_merged(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> list[Manifest]:
        return write_leaves(io, concat(_carried(io, m, context) for m in manifests), context)

    def write_groups(
        self, io: FileIO, groups: Sequence[EntryTable], replaced: Sequence[Manifest], context: ManifestContext
    ) -> list[Manifest]:
        tracked = [m for m in replaced if m.leaf is not None and m.leaf.is_tracked and not m.is_view]
        known = [_carried(io, m, context) for m in tracked if not m.is_deletes]
        whole = concat(known) if known else None
        vectors = [group.filter(pa.array(vectors_in(group))) for group in groups]
        loose = EntryTable.concat(vectors, context.specs)
        found: list[Manifest] = []
        for group in groups:
            found += self._group(io, group.of_content(Content.DATA), whole, loose, context)
        joined = EntryTable.concat([g.of_content(Content.DATA) for g in groups], context.specs)
        views = [m for m in replaced if m.is_view and m.is_deletes]
        beside = [read_manifest(io, m, context.specs)["referenced_data_file"].combine_chunks() for m in views]
        rest = _without_home(groups, pa.concat_arrays([joined["file_path"].combine_chunks(), *beside]), context.specs)
        existing = rest.with_columns(status=int(Status.EXISTING))
        return [*found, *(self.older.write_added(io, existing, context) if len(rest) else [])]

    def _group(
        self, io: FileIO, files: EntryTable, whole: pa.Table | None, vectors: EntryTable, context: ManifestContext
    ) -> list[Manifest]:
        """Data files as rows: those that were rows as they were, the others anew with the vectors that name them."""
        if not len(files):
            return []
        location = context.metadata.location
        fresh = rows_of(files.with_columns(status=int(Status.EXISTING)), context.specs, location)
        fresh = _joined(fresh, files, vectors, location)
        if whole is None:
            return write_leaves(io, fresh, context)
        place = pc.index_in(fresh["location"], value_set=whole["location"].combine_chunks())
        known = place.is_valid().to_numpy()
        tables = [whole.take(place.drop_null().combine_chunks())] if known.any() else []
        tables += [fresh.filter(pa.array(~known))] if not known.all() else []
        return write_leaves(io, concat(tables), context)

    def can_merge(self, manifest: Manifest) -> bool:
        leaf = manifest.leaf
        return leaf is not None and leaf.is_tracked and not leaf.is_inline and not manifest.is_deletes

    def settled(self, io: FileIO, manifests: Sequence[Manifest], context: ManifestContext) -> tuple[Manifest, ...]:
        """One set of rows in the root at most; they move to leaves when they are too many."""
        inline = [m for m in manifests if m.is_inline and not m.is_view]
        leaves = [m for m in manifests if not m.is_inline and not m.is_view]
        if not inline:
            return tuple(leaves)
        rows = concat(_carried(io, m, context) for m in inline)
        if rows.num_rows > context.inline_rows:
            return (*write_leaves(io, rows, context), *leaves)
        return (*leaves, *([self._inline(rows, context)] if rows.num_rows else []))

    def assign_row_ids(self, manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
        assigned = list(manifests)
        for at, manifest in enumerate(manifests):
            if manifest.is_inline:
                assigned[at], next_row_id = _with_explicit_ids(manifest, next_row_id)
            elif not manifest.is_deletes and manifest.first_row_id is None:
                assigned[at] = replace(manifest, first_row_id=next_row_id)
                waiting = manifest.leaf.waiting_rows if manifest.leaf is not None else None
                live = (manifest.added_rows or 0) + (manifest.existing_rows or 0)
                next_row_id += live if waiting is None else waiting
        return assigned, next_row_id

    def write_listing(
        self, io: FileIO, path: str, manifests: Sequence[Manifest], listing: Listing, context: ManifestContext
    ) -> dict[str, str]:
        data = encode_root(
            manifests,
            context.specs,
            context.metadata.location,
            snapshot_id=listing.snapshot_id,
            parent_snapshot_id=listing.parent_snapshot_id,
            sequence_number=listing.sequence_number,
            first_row_id=listing.first_row_id,
        )
        write_new(io, path, data)
        return {"root_manifest": path}


def _carried(io: FileIO, manifest: Manifest, context: ManifestContext) -> pa.Table:
    """The rows of a leaf as another holds them: those of this commit as they are, older live ones as existing."""
    rows = whole_rows(io, manifest, context.specs)
    return rows if manifest.sequence_number == UNASSIGNED else as_existing(rows, hidden_rows(manifest))


def _with_explicit_ids(manifest: Manifest, next_row_id: int) -> tuple[Manifest, int]:
    """Rows in the root have row ids of their own: nothing above them could give them any."""
    leaf = leaf_of(manifest)
    rows: pa.Table = leaf.rows
    is_data = rows["content_type"].to_numpy() == ContentType.DATA
    waiting = rows["first_row_id"].is_null().to_numpy() & is_data & np.isin(rows["status"].to_numpy(), LIVE)
    taken = np.where(waiting, rows["record_count"].to_numpy(), 0)
    first = next_row_id + np.cumsum(taken) - taken
    rows = put(rows, waiting, first_row_id=first[waiting])
    return replace(manifest, leaf=replace(leaf, rows=rows)), next_row_id + int(taken.sum())


def _joined(rows: pa.Table, files: EntryTable, vectors: EntryTable, location: str) -> pa.Table:
    """Rows of existing files with the vectors of theirs that lay elsewhere; a vector keeps its snapshot."""
    if not len(vectors):
        return rows
    place = pc.index_in(canonical_all(files["file_path"]), value_set=canonical_all(vectors["referenced_data_file"]))
    has = place.is_valid().to_numpy(zero_copy_only=False)
    own = vectors.take(place.drop_null())
    return put(rows, has, dv_snapshot_id=own["snapshot_id"], **vectors_of(own, location))


def _without_home(groups: Sequence[EntryTable], homes: pa.Array, specs: Specs) -> EntryTable:
    """The delete files of groups that no row of a data file holds: they stay entries of an older version."""
    deletes = [g.filter(pa.array(g.numpy("content") != Content.DATA)) for g in groups]
    found = EntryTable.concat(deletes, specs)
    if not len(found):
        return found
    named = canonical_all(found["referenced_data_file"])
    held = pc.is_in(named, value_set=canonical_all(homes)).to_numpy(zero_copy_only=False)
    return found.filter(pa.array(~(vectors_in(found) & held)))

"""The metadata tables of one state of a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import pyarrow as pa

from neve.commit.reachable_files import manifests_by_snapshot
from neve.io.untrusted import translate_parse_errors
from neve.model.partition import Specs
from neve.ops.context import TableContext
from neve.ops.inspect.files import entries_table, files_table
from neve.ops.inspect.history import history_table, metadata_log_table, refs_table, snapshots_table, specs_table
from neve.ops.inspect.manifests import all_manifests_table, manifests_table, tree_table
from neve.ops.inspect.partitions import partitions_table
from neve.ops.inspect.position_deletes import PositionDeletes
from neve.run.read.types import ArrowFlavor
from neve.tree.entries import DETAIL, EntryTable, Manifest
from neve.tree.manifest_union import unite_manifests
from neve.tree.partition_types import infer_partition_types
from neve.tree.read import manifests_of, read_entries

View = TypeVar("View", bound=Callable[..., pa.Table])


def _with_untrusted_metadata(view: View) -> View:
    """Report whatever goes wrong in a view of untrusted metadata as an error about the table's metadata."""

    @wraps(view)
    def view_or_table_error(self: Inspect, *args: Any, **kwargs: Any) -> pa.Table:
        with translate_parse_errors(self.context.iceberg.metadata_location, "a table whose metadata can be shown"):
            return view(self, *args, **kwargs)

    return cast(View, view_or_table_error)


@dataclass(frozen=True)
class Inspect:
    """The metadata tables of one state of a table."""

    context: TableContext
    flavor: ArrowFlavor = ArrowFlavor.EXACT  # of partition values, bounds and rows, whose types are the table's

    @_with_untrusted_metadata
    def files(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the live files, data and deletes, with their statistics."""
        return self._files(self._manifests(snapshot_id))

    @_with_untrusted_metadata
    def data_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the live data files."""
        return self._files(m for m in self._manifests(snapshot_id) if not m.is_deletes)

    @_with_untrusted_metadata
    def delete_files(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the live position delete files, deletion vectors and equality delete files."""
        return self._files(m for m in self._manifests(snapshot_id) if m.is_deletes)

    @_with_untrusted_metadata
    def entries(self, snapshot_id: int | None = None) -> pa.Table:
        """Return every manifest entry, tombstones included, with inherited values filled in."""
        return self._entries(self._manifests(snapshot_id))

    @_with_untrusted_metadata
    def manifests(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the manifests of a snapshot, each with the range of every partition field of its spec."""
        manifests = self._manifests(snapshot_id)
        return manifests_table(manifests, self._specs_of(manifests))

    @_with_untrusted_metadata
    def partitions(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the files, rows and bytes of data in each partition, its delete files and its last change, by spec."""
        live = self._read(self._manifests(snapshot_id), live_only=True)
        return partitions_table(live, self.context.metadata, self.flavor)

    @_with_untrusted_metadata
    def position_deletes(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the rows that position delete files and deletion vectors delete; they are read in this process."""
        return PositionDeletes.of(self.context, self.context.snapshot(snapshot_id)).read(self.flavor)

    @_with_untrusted_metadata
    def all_files(self) -> pa.Table:
        """Return the files that are live in the manifests of any snapshot; each manifest is read once."""
        return self._files(self._manifests_of_all_snapshots())

    @_with_untrusted_metadata
    def all_data_files(self) -> pa.Table:
        """Return the data files that are live in the manifests of any snapshot."""
        return self._files(m for m in self._manifests_of_all_snapshots() if not m.is_deletes)

    @_with_untrusted_metadata
    def all_delete_files(self) -> pa.Table:
        """Return the delete files that are live in the manifests of any snapshot."""
        return self._files(m for m in self._manifests_of_all_snapshots() if m.is_deletes)

    @_with_untrusted_metadata
    def all_entries(self) -> pa.Table:
        """Return the entries of the manifests of all snapshots; each manifest is read once."""
        return self._entries(self._manifests_of_all_snapshots())

    @_with_untrusted_metadata
    def all_manifests(self) -> pa.Table:
        """Return the manifests of every snapshot; `reference_snapshot_id` says which snapshot lists one."""
        by_snapshot = manifests_by_snapshot(self.context.io, self.context.metadata)
        distinct = unite_manifests(m for _, manifests in by_snapshot for m in manifests)
        return all_manifests_table(by_snapshot, self._specs_of(distinct))

    @_with_untrusted_metadata
    def snapshots(self) -> pa.Table:
        """Return all snapshots in the metadata."""
        return snapshots_table(self.context.metadata)

    @_with_untrusted_metadata
    def history(self) -> pa.Table:
        """Return when each snapshot became current, and whether it is an ancestor of the current one."""
        metadata = self.context.metadata
        ancestors = self.context.ancestors(metadata.current_snapshot())
        return history_table(metadata, {s.snapshot_id for s in ancestors})

    @_with_untrusted_metadata
    def refs(self) -> pa.Table:
        """Return branches and tags."""
        return refs_table(self.context.metadata)

    @_with_untrusted_metadata
    def metadata_log_entries(self) -> pa.Table:
        """Return the metadata files of the table, the current one last, and the snapshot that each made current."""
        return metadata_log_table(self.context.metadata, self.context.iceberg.metadata_location)

    @_with_untrusted_metadata
    def specs(self) -> pa.Table:
        """Return the fields of every partition spec of the table, with their types and sources."""
        return specs_table(self.context.specs)

    @_with_untrusted_metadata
    def tree(self, snapshot_id: int | None = None) -> pa.Table:
        """Return the metadata tree from the snapshot down to its manifests, one row per node.

        Counts are of live files and their rows; null if only the entries themselves have them.
        """
        return tree_table(self.context.snapshot(snapshot_id), self._manifests(snapshot_id))

    def _manifests(self, snapshot_id: int | None) -> tuple[Manifest, ...]:
        return manifests_of(self.context.io, self.context.metadata, self.context.snapshot(snapshot_id))

    def _manifests_of_all_snapshots(self) -> list[Manifest]:
        by_snapshot = manifests_by_snapshot(self.context.io, self.context.metadata)
        return unite_manifests(m for _, manifests in by_snapshot for m in manifests)

    def _specs_of(self, manifests: Iterable[Manifest]) -> Specs:
        return infer_partition_types(self.context.io, self.context.specs, manifests)

    def _files(self, manifests: Iterable[Manifest]) -> pa.Table:
        files = self._read(manifests, DETAIL.names, live_only=True)
        return files_table(files, self.context.metadata.schema(), self.flavor)

    def _entries(self, manifests: Iterable[Manifest]) -> pa.Table:
        return entries_table(self._read(manifests, DETAIL.names), self.context.metadata.schema(), self.flavor)

    def _read(
        self, manifests: Iterable[Manifest], detail: Collection[str] = (), *, live_only: bool = False
    ) -> EntryTable:
        needed = tuple(m for m in manifests if m.may_hold_live_files or not live_only)
        return read_entries(self.context.io, needed, self.context.specs, detail=detail, live_only=live_only)

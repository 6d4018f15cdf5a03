"""Drop a table from its catalog, and delete its files on request.

A purge deletes all files that the table's metadata references, over all snapshots: data files, delete files, manifests,
statistics and metadata. Files outside the table's locations, which the table did not write, stay and are reported, and
so do files that another table of the catalog references. A table with another entry in the catalog cannot be purged,
nor one of a catalog with entries that cannot be read, unless the caller allows that.
A REST server deletes the files of its tables itself.

Isolation: none. What a concurrent writer commits after the metadata was read and before the drop is left behind.
Writes: nothing; the table leaves the catalog before the first file is deleted.

>>> lake = t.context.catalog
>>> drop_table(lake, "db.sales", purge=True).summary
'... files deleted'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import neve.catalog as tables
from neve.catalog import NeveCatalog
from neve.catalog.rest import RestCatalogMixin
from neve.commit.cleanup import delete_reachable_files
from neve.commit.neighbours import AllowedNeighbours, find_neighbours
from neve.commit.reachable_files import find_reachable_files, roots_of
from neve.display.format import plural
from neve.display.html import SummaryMixin
from neve.errors import UserError
from neve.model.metadata import to_neve_metadata
from neve.model.properties import properties_of


@dataclass(frozen=True, slots=True)
class DropResult(SummaryMixin):
    """What happened to the files of a dropped table."""

    files_deleted: int = 0
    files_kept: Mapping[str, str] = field(default_factory=dict)  # files that a purge left, with the reason

    @property
    def summary(self) -> str:
        """What happened, in a few words."""
        kept = f", {plural(len(self.files_kept), 'file')} kept" if self.files_kept else ""
        return (
            f"{plural(self.files_deleted, 'file')} deleted{kept}" if self.files_deleted or kept else "no file deleted"
        )


def drop_table(
    catalog: NeveCatalog, name: str | tuple[str, ...], *, purge: bool = False, allow_unreadable: bool = False
) -> DropResult:
    """Drop a table; with `purge` delete its files too, unless its property `gc.enabled` is false."""
    if not purge:
        tables.drop_table(catalog, name)
        return DropResult()
    table = tables.load_table(catalog, name)
    metadata, location = to_neve_metadata(table.metadata), table.metadata_location
    if not properties_of(metadata.properties).gc_enabled:
        raise UserError(
            f"Cannot purge table {'.'.join(table.name())}: its property gc.enabled is false, so its files may belong "
            "to another table. Drop it without purge."
        )
    neighbours = find_neighbours(catalog, table)
    allowed = AllowedNeighbours(unreadable=allow_unreadable)
    neighbours.refuse_deletion(f"purge table {'.'.join(table.name())}", allowed, "Drop the table without purge.")
    if isinstance(catalog, RestCatalogMixin):
        catalog.purge_table(table.name())
        return DropResult()
    reach = find_reachable_files(table.io, metadata, location)
    shared = neighbours.select_shared(chain.from_iterable(reach))
    tables.drop_table(catalog, name)
    kept = delete_reachable_files(table.io, reach.without(shared), roots_of(metadata, location))
    kept |= {path: f"{other} references it" for path, other in shared.items()}
    return DropResult(len(reach) - len(kept), kept)

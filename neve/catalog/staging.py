"""New metadata made ready for a swap: folded from the current, with a location of its own, not yet written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableUpdate

from neve.catalog.files import next_location
from neve.catalog.outcome import RequirementFailed
from neve.model.metadata import TableMetadata
from neve.model.metadata_updates import OutdatedSnapshot, fold
from neve.model.new_table import empty_metadata, new_metadata, validated
from neve.model.properties import properties_of

__all__ = ["Staged", "stage", "stage_new"]


@dataclass(frozen=True, slots=True)
class Staged:
    """Metadata that is to replace `base`; no base for a table that is to be created."""

    base: TableMetadata | None
    base_location: str | None
    metadata: TableMetadata
    location: str

    @property
    def is_unchanged(self) -> bool:
        """Whether the updates changed nothing, so that there is nothing to write."""
        return self.metadata is self.base


def stage(base: TableMetadata | None, base_location: str | None, updates: Sequence[TableUpdate]) -> Staged:
    """Fold updates into the current metadata, or into nothing for a table that is to be created.

    A snapshot whose numbers another branch has used meanwhile is a lost race like any other.
    """
    if base is None:
        created = validated(fold(empty_metadata(), updates))
        return Staged(None, None, created, next_location(created))
    try:
        metadata = fold(base, updates, base_location)
    except OutdatedSnapshot as e:
        raise RequirementFailed(f"{e} Refresh and try again.") from e
    if metadata is base and base_location is not None:
        return Staged(base, base_location, base, base_location)
    return Staged(base, base_location, metadata, next_location(metadata, base_location))


def stage_new(
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    location: str,
    properties: dict[str, str],
    format_version: int,
) -> Staged:
    """Metadata of a new table, its properties checked."""
    properties_of(properties).check()
    metadata = new_metadata(schema, spec, sort_order, location, properties, format_version)
    return Staged(None, None, metadata, next_location(metadata))

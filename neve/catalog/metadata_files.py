"""Metadata files: where the next one goes, writing it so that it stays, reading it without trusting it.

New metadata made ready for a swap: folded from the current, with a location of its own, not yet written.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableUpdate

from neve.catalog.swap import RequirementFailed
from neve.errors import MissingFile, NeveError, TableError
from neve.io.files import is_part_file, read_file, write_new_file
from neve.io.listing import list_some_paths
from neve.io.paths import canonical_path, location_from_property, may_be_table_location
from neve.model import metadata as model
from neve.model.metadata import TableMetadata, parse_metadata, serialise_metadata
from neve.model.metadata_updates import OutdatedSnapshot, apply_updates
from neve.model.new_table import empty_metadata, new_metadata, validate_metadata
from neve.model.properties import properties_of

_VERSION = re.compile(r"v?([0-9]{1,18})[-.]")
_MAX_LEFTOVERS = 20  # leavings worth looking into


def next_metadata_location(metadata: TableMetadata, previous: str | None = None) -> str:
    """A fresh location for this metadata, one version after `previous`.

    Raises TableError when the table claims to lie where it cannot: what is written there would count as its place.
    """
    if previous is not None and not _is_plausible(metadata, previous):
        raise TableError(
            f"Cannot commit to {previous}: it says that the table lies in {metadata.location!r}, which is above it, or "
            "no folder. Set the location of the table right."
        )
    found = _VERSION.match(previous.rsplit("/", 1)[-1]) if previous else None
    version = int(found[1]) + 1 if found else 0
    suffix = ".gz.metadata.json" if properties_of(metadata.properties).metadata_codec == "gzip" else ".metadata.json"
    return f"{_metadata_folder(metadata)}/{version:05d}-{uuid.uuid4()}{suffix}"


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """The metadata at this location. Raises MissingFile, CorruptFile or LimitExceeded, naming it."""
    try:
        raw = read_file(io, location, model.MAX_METADATA_BYTES)
    except MissingFile as e:
        raise MissingFile(location, "the catalog") from e
    return parse_metadata(raw, location)


def write_metadata(io: FileIO, location: str, metadata: TableMetadata) -> None:
    """Write metadata to a fresh location: complete or not at all; local files, and new folders, survive a power cut."""
    write_new_file(io, location, serialise_metadata(metadata, location))


def free_location(io: FileIO, location: str, is_taken: Callable[[str], bool] = lambda location: True) -> str:
    """A place like this one that is empty: a table that was renamed, or dropped without its files, stays there.

    Where `is_taken` knows of no table, what creations that were killed have left does not count.
    """
    found: list[str] = []
    with suppress(NeveError):  # a place that cannot be looked into is taken as it is
        found = list_some_paths(io, location, _MAX_LEFTOVERS + 1)
    if found and (
        len(found) > _MAX_LEFTOVERS
        or is_taken(location)
        or not all(_is_leftover_of_creation(io, path) for path in found)
    ):
        return f"{location.rstrip('/')}-{uuid.uuid4().hex[:8]}"
    return location


def _is_leftover_of_creation(io: FileIO, path: str) -> bool:
    """Whether a file may be of a creation that was killed: a part of a file, or metadata that leads to nothing."""
    try:
        return is_part_file(path) or (".metadata.json" in path and not read_metadata(io, path).snapshots)
    except NeveError:
        return False


def _is_plausible(metadata: TableMetadata, previous: str) -> bool:
    """Whether the table may lie where it says; its metadata may lie deeper where its properties say so."""
    return may_be_table_location(metadata.location, previous) or (
        canonical_path(previous.rsplit("/", 1)[0])
        == canonical_path(_metadata_folder(metadata))
        != canonical_path(f"{metadata.location.rstrip('/')}/metadata")
    )


def _metadata_folder(metadata: TableMetadata) -> str:
    return location_from_property(metadata.location, properties_of(metadata.properties).metadata_path or "metadata")


@dataclass(frozen=True, slots=True)
class StagedMetadata:
    """Metadata that is to replace `base`; no base for a table that is to be created."""

    base: TableMetadata | None
    base_location: str | None
    metadata: TableMetadata
    location: str

    @property
    def is_unchanged(self) -> bool:
        """Whether the updates changed nothing, so that there is nothing to write."""
        return self.metadata is self.base


def stage_updates(
    base: TableMetadata | None, base_location: str | None, updates: Sequence[TableUpdate]
) -> StagedMetadata:
    """Fold updates into the current metadata, or into nothing for a table that is to be created.

    A snapshot whose numbers another branch has used meanwhile is a lost race like any other.
    """
    if base is None:
        created = validate_metadata(apply_updates(empty_metadata(), updates))
        return StagedMetadata(None, None, created, next_metadata_location(created))
    try:
        metadata = apply_updates(base, updates, base_location)
    except OutdatedSnapshot as e:
        raise RequirementFailed(f"{e} Refresh and try again.") from e
    if metadata is base and base_location is not None:
        return StagedMetadata(base, base_location, base, base_location)
    return StagedMetadata(base, base_location, metadata, next_metadata_location(metadata, base_location))


def stage_new_table(
    schema: Schema,
    spec: PartitionSpec,
    sort_order: SortOrder,
    location: str,
    properties: dict[str, str],
    format_version: int,
) -> StagedMetadata:
    """Metadata of a new table, its properties checked."""
    properties_of(properties).check()
    metadata = new_metadata(schema, spec, sort_order, location, properties, format_version)
    return StagedMetadata(None, None, metadata, next_metadata_location(metadata))

"""Metadata files: choose the location of the next one, write it durably, and read it without trusting it.

`stage_updates` prepares a swap: new metadata with a location, not yet written.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table.update import TableUpdate

from neve.catalog.swap import RequirementFailed
from neve.errors import MissingFile, NeveError, TableError
from neve.io.files import is_part_file, read_file, write_new_file
from neve.io.listing import list_some_paths
from neve.io.paths import canonical_path, location_from_property, may_be_table_location
from neve.model import metadata as model
from neve.model.metadata import TableMetadata, parse_metadata, serialise_metadata
from neve.model.metadata_updates import OutdatedSnapshot, apply_updates
from neve.model.new_table import empty_metadata, validate_metadata
from neve.model.properties import properties_of

_VERSION = re.compile(r"v?([0-9]{1,18})[-.]")
_MAX_LEFTOVERS = 20  # a folder with more files is not inspected, but counts as taken


def next_metadata_location(metadata: TableMetadata, previous: str | None = None) -> str:
    """Return a fresh location for this metadata, one version after `previous`.

    Raises TableError if the location in the metadata cannot be that of the table: files written there would count as
    files of this table.
    """
    location, properties = metadata.location, properties_of(metadata.properties)
    folder = location_from_property(location, properties.metadata_path or "metadata")
    if previous is not None and not (
        may_be_table_location(location, previous)
        # Properties may move the metadata files elsewhere.
        or canonical_path(previous.rsplit("/", 1)[0])
        == canonical_path(folder)
        != canonical_path(f"{location.rstrip('/')}/metadata")
    ):
        raise TableError(
            f"Cannot commit to {previous}: its table location {location!r} is above it, or no folder. Correct "
            "the location of the table."
        )
    before = version_of(previous) if previous else None
    version = 0 if before is None else before + 1
    suffix = ".gz.metadata.json" if properties.metadata_codec == "gzip" else ".metadata.json"
    return f"{folder}/{version:05d}-{uuid.uuid4()}{suffix}"


def version_of(metadata_location: str) -> int | None:
    """Return the version in the name of a metadata file; None for a name without one."""
    match = _VERSION.match(metadata_location.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def is_metadata_file(path: str) -> bool:
    """Return whether a file has the name of a metadata file."""
    return path.endswith((".metadata.json", ".metadata.json.gz"))


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Read the metadata at a location. Raises MissingFile, CorruptFile or LimitExceeded with the location."""
    try:
        raw = read_file(io, location, model.MAX_METADATA_BYTES)
    except MissingFile as e:
        raise MissingFile(location, "the catalog") from e
    return parse_metadata(raw, location)


def write_metadata(io: FileIO, location: str, metadata: TableMetadata) -> None:
    """Write metadata to a fresh location, completely or not at all. Local files and new folders survive a power cut."""
    write_new_file(io, location, serialise_metadata(metadata, location))


def free_location(io: FileIO, location: str, is_taken: Callable[[str], bool] = lambda location: True) -> str:
    """Return the location if it is free, or else a similar one.

    Tables that were renamed, or dropped without their files, keep their location. If `is_taken` finds no table there,
    the leftovers of an interrupted creation are ignored.
    """
    paths: list[str] = []
    with suppress(NeveError):  # a location that cannot be listed is used as it is
        paths = list_some_paths(io, location, _MAX_LEFTOVERS + 1)
    is_free = not paths or (
        len(paths) <= _MAX_LEFTOVERS
        and not is_taken(location)
        and all(_is_leftover_of_creation(io, path) for path in paths)
    )
    return location if is_free else f"{location.rstrip('/')}-{uuid.uuid4().hex[:8]}"


def _is_leftover_of_creation(io: FileIO, path: str) -> bool:
    """Check whether an interrupted creation may have left a file: a partial file, or metadata without snapshots."""
    try:
        return is_part_file(path) or (".metadata.json" in path and not read_metadata(io, path).snapshots)
    except NeveError:
        return False


@dataclass(frozen=True, slots=True)
class StagedMetadata:
    """New metadata that will replace `base`; a new table has no base."""

    base: TableMetadata | None
    base_location: str | None
    metadata: TableMetadata
    location: str


def stage_updates(
    base: TableMetadata | None, base_location: str | None, updates: Sequence[TableUpdate]
) -> StagedMetadata:
    """Apply updates to the current metadata; `base` is None for a new table.

    A snapshot with numbers that a concurrent commit to another branch has used raises RequirementFailed: a lost race.
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

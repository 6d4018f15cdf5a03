"""Metadata files: where the next one goes, writing it so that it stays, reading it without trusting it."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress

from pyiceberg.io import FileIO

from neve.errors import MissingFile, NeveError, TableError
from neve.io.files import read_all, write_new
from neve.io.listing import holds_files
from neve.io.paths import canonical, may_be_place_of, named_place
from neve.model import metadata as model
from neve.model.metadata import TableMetadata, parse, serialise
from neve.model.properties import properties_of

__all__ = ["free_place", "next_location", "read_metadata", "write_metadata"]

_VERSION = re.compile(r"v?([0-9]{1,18})[-.]")


def next_location(metadata: TableMetadata, previous: str | None = None) -> str:
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
    return f"{_folder(metadata)}/{version:05d}-{uuid.uuid4()}{suffix}"


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """The metadata at this location. Raises MissingFile, CorruptFile or LimitExceeded, naming it."""
    try:
        raw = read_all(io, location, model.MAX_METADATA_BYTES)
    except MissingFile as e:
        raise MissingFile(location, "the catalog") from e
    return parse(raw, location)


def write_metadata(io: FileIO, location: str, metadata: TableMetadata) -> None:
    """Write metadata to a fresh location: complete or not at all; local files, and new folders, survive a power cut."""
    write_new(io, location, serialise(metadata, location))


def free_place(io: FileIO, location: str) -> str:
    """A place like this one that is empty: a table that was renamed, or dropped without its files, stays there."""
    with suppress(NeveError):  # a place that cannot be looked into is taken as it is
        if holds_files(io, location):
            return f"{location.rstrip('/')}-{uuid.uuid4().hex[:8]}"
    return location


def _is_plausible(metadata: TableMetadata, previous: str) -> bool:
    """Whether the table may lie where it says; its metadata may lie deeper where its properties say so."""
    return may_be_place_of(metadata.location, previous) or (
        canonical(previous.rsplit("/", 1)[0])
        == canonical(_folder(metadata))
        != canonical(f"{metadata.location.rstrip('/')}/metadata")
    )


def _folder(metadata: TableMetadata) -> str:
    return named_place(metadata.location, properties_of(metadata.properties).metadata_path or "metadata")

"""Every file a table's metadata leads to: what may be deleted when the table itself is to go.

Nothing is found by listing a folder: a file that no metadata names may belong to someone else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc
from pyiceberg.io import FileIO

from neve.io.paths import scheme_of
from neve.model.metadata import TableMetadata
from neve.model.partition import Specs
from neve.model.properties import properties_of
from neve.tree.read import manifests_of, read_entries

__all__ = ["Reach", "reachable", "roots_of"]


@dataclass(frozen=True)
class Reach:
    """The files of a table, in the order in which they can go: what leads to a file goes after it."""

    files: tuple[str, ...]  # data files, delete files and vectors
    manifests: tuple[str, ...]
    lists: tuple[str, ...]
    others: tuple[str, ...]  # statistics and table metadata

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter((self.files, self.manifests, self.lists, self.others))

    def __len__(self) -> int:
        return sum(map(len, self))


def reachable(io: FileIO, metadata: TableMetadata, metadata_location: str) -> Reach:
    """The files of all snapshots, tombstones included; a manifest that cannot be read is an error."""
    manifests = {m.path: m for s in metadata.snapshots for m in manifests_of(io, metadata, s)}
    entries = read_entries(io, list(manifests.values()), Specs.of(metadata))
    statistics = [*metadata.statistics, *metadata.partition_statistics]
    return Reach(
        tuple(pc.unique(entries["file_path"]).drop_null().to_pylist()),
        tuple(manifests),
        tuple(s.manifest_list for s in metadata.snapshots if s.manifest_list),
        (
            *(file.statistics_path for file in statistics),
            *(entry.metadata_file for entry in metadata.metadata_log),
            metadata_location,
        ),
    )


def roots_of(metadata: TableMetadata) -> tuple[str, ...]:
    """The places a table writes to; a file elsewhere was brought in, and may be someone else's too."""
    properties = properties_of(metadata.properties)
    asked = [place for place in (properties.data_path, properties.metadata_path) if place]
    return (metadata.location, *(place for place in asked if scheme_of(place) or place.startswith("/")))

"""The files that one commit has written so far, so that later attempts reuse them and a rejection deletes them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from neve.commit.window import CommitBase
from neve.io.paths import location_from_property
from neve.tree.entries import EntryTable, Manifest
from neve.tree.write import ManifestContext

T = TypeVar("T")


@dataclass
class WrittenFiles:
    """The files of one commit. Later attempts reuse manifests; each attempt has its own manifest list.

    A path is recorded before the file is written. A crash in between leaves a path without a file, never a file
    without a path.
    """

    snapshot_id: int
    commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    manifest_paths: list[str] = field(default_factory=list)
    list_paths: list[str] = field(default_factory=list)
    vector_paths: list[str] = field(default_factory=list)
    lost_metadata_paths: list[str] = field(default_factory=list)
    """Metadata files that the catalog wrote for attempts that it reported as lost."""
    manifests_by_key: dict[Hashable, list[Manifest]] = field(default_factory=dict)
    matches: dict[Hashable, Any] = field(default_factory=dict)
    vectors_by_key: dict[Hashable, EntryTable] = field(default_factory=dict)
    merged_vectors_key: Hashable = ()
    """The vectors that the current attempt merges."""
    converted_deletes_key: Hashable = ()
    """The position delete files that the current attempt converts to vectors, and the existing deletes it includes."""
    converted_delete_files: frozenset[str] = frozenset()
    """The paths of these delete files; no table lists them."""
    superseded_files: frozenset[str] = frozenset()
    """Vector files that the current attempt does not list, because all their vectors were merged."""

    def manifest_context(self, base: CommitBase) -> ManifestContext:
        """Return the settings with which manifests of this commit are written."""

        def new_path(stem: str, suffix: str) -> str:
            path = f"{metadata_folder(base)}/{stem}-m{len(self.manifest_paths)}{suffix}"
            self.manifest_paths.append(path)
            return path

        return ManifestContext(
            base.metadata,
            base.specs,
            self.snapshot_id,
            lambda: new_path(self.commit_id, ".avro"),
            base.properties.manifest_target_size,
            # every later root repeats the name of a leaf, so it is short, and only the snapshot id in it is random
            new_leaf_path=lambda: new_path(str(self.snapshot_id), base.tree_writer.suffix),
            inline_files=base.properties.root_inline_files,
            inline_rows=base.properties.root_inline_rows,
            hides_rows=base.properties.manifest_vectors,
        )

    def write_manifests_once(
        self, key: Hashable, base: CommitBase, write: Callable[[], list[Manifest]]
    ) -> list[Manifest]:
        """Write manifests that depend only on the key, the format version and the location; attempts reuse them."""
        return _write_once(self.manifests_by_key, (key, base.format_version, base.metadata.location), write)

    def write_merged_vectors_once(self, vectors: EntryTable, write: Callable[[], EntryTable]) -> EntryTable:
        """Write merged vectors; later attempts that merge the same vectors reuse them."""
        self.merged_vectors_key = vectors.blob_names()
        return _write_once(self.vectors_by_key, self.merged_vectors_key, write)

    def write_converted_vectors_once(
        self, files: EntryTable, existing: EntryTable, write: Callable[[], EntryTable]
    ) -> EntryTable:
        """Write vectors made of position delete files and existing deletes; later attempts with the same reuse them."""
        self.converted_delete_files = frozenset(files["file_path"].to_pylist())
        self.converted_deletes_key = ("collapsed", *files["file_path"].to_pylist(), *existing.blob_names())
        return _write_once(self.vectors_by_key, self.converted_deletes_key, write)

    def new_vector_path(self, base: CommitBase) -> str:
        """Return a new path for a Puffin file of vectors that this commit builds from others."""
        folder = location_from_property(base.metadata.location, base.properties.data_path or "data")
        path = f"{folder}/{self.commit_id}-vectors-{len(self.vector_paths)}.puffin"
        self.vector_paths.append(path)
        return path

    def new_list_path(self, base: CommitBase, attempt: int) -> str:
        """Return the path of the manifest list of an attempt."""
        path = f"{metadata_folder(base)}/snap-{self.snapshot_id}-{attempt}-{self.commit_id}{base.tree_writer.suffix}"
        self.list_paths.append(path)
        return path

    def with_snapshot_id(self, snapshot_id: int) -> WrittenFiles:
        """Return an empty value for another snapshot id that remembers the paths written so far."""
        return WrittenFiles(
            snapshot_id,
            manifest_paths=self.manifest_paths,
            list_paths=self.list_paths,
            vector_paths=self.vector_paths,
            lost_metadata_paths=self.lost_metadata_paths,
        )

    @property
    def unused_vector_paths(self) -> set[str]:
        """Vector files of this commit that only earlier attempts needed."""
        keys = {self.merged_vectors_key, self.converted_deletes_key} & self.vectors_by_key.keys()
        used = {path for key in keys for path in self.vectors_by_key[key]["file_path"].to_pylist()}
        return set(self.vector_paths) - used

    @property
    def all_paths(self) -> frozenset[str]:
        """Every path that this commit may have written."""
        return frozenset([*self.manifest_paths, *self.list_paths, *self.vector_paths, *self.lost_metadata_paths])


def _write_once(written: dict[Hashable, T], key: Hashable, write: Callable[[], T]) -> T:
    if key not in written:
        written[key] = write()
    return written[key]


def metadata_folder(base: CommitBase) -> str:
    """Return the folder for metadata of the table."""
    return location_from_property(base.metadata.location, base.properties.metadata_path or "metadata")

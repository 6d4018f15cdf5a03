"""What one commit has written so far, kept so that a later attempt can use it again and a rejection can remove it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from neve.commit.window import CommitBase
from neve.io.paths import location_from_property
from neve.tree.entries import EntryTable, Manifest
from neve.tree.write import ManifestContext


@dataclass
class WrittenFiles:
    """The files of one commit. Manifests are reused by later attempts; each attempt has a manifest list of its own.

    A path is noted before the file is written, so a crash in between leaves a path without a file, never a file
    without a path.
    """

    snapshot_id: int
    commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    manifest_paths: list[str] = field(default_factory=list)
    list_paths: list[str] = field(default_factory=list)
    vector_paths: list[str] = field(default_factory=list)
    lost_metadata_paths: list[str] = field(default_factory=list)
    """Metadata files that the catalog wrote for attempts it reported as lost."""
    manifests_by_key: dict[Hashable, list[Manifest]] = field(default_factory=dict)
    matches: dict[Hashable, Any] = field(default_factory=dict)
    edited_manifests: dict[Hashable, list[Manifest]] = field(default_factory=dict)
    vectors_by_key: dict[Hashable, EntryTable] = field(default_factory=dict)
    merged_vectors_key: Hashable = ()
    """The vectors that the current attempt unites."""
    converted_deletes_key: Hashable = ()
    """The position delete files that the current attempt turns into vectors, and the deletes it adds to them."""
    converted_delete_files: frozenset[str] = frozenset()
    """Those delete files: no table lists them."""
    superseded_files: frozenset[str] = frozenset()
    """Files of vectors of which the current attempt lists none: all of them were united."""
    merged_manifests: dict[tuple[str, ...], list[Manifest]] = field(default_factory=dict)

    def manifest_context(self, base: CommitBase) -> ManifestContext:
        """How manifests of this commit are written on the table as it is now."""
        return ManifestContext(
            base.metadata,
            base.specs,
            self.snapshot_id,
            lambda: self._manifest_path(base),
            base.properties.manifest_target_size,
            new_leaf_path=lambda: self._leaf_path(base),
            inline_files=base.properties.root_inline_files,
            inline_rows=base.properties.root_inline_rows,
            hides_rows=base.properties.manifest_vectors,
        )

    def write_manifests_once(
        self, key: Hashable, base: CommitBase, write: Callable[[], list[Manifest]]
    ) -> list[Manifest]:
        """Manifests that depend on the action and the format version only: the first attempt writes them."""
        whole_key = (key, base.format_version)
        if whole_key not in self.manifests_by_key:
            self.manifests_by_key[whole_key] = write()
        return self.manifests_by_key[whole_key]

    def write_merged_vectors_once(self, vectors: EntryTable, write: Callable[[], EntryTable]) -> EntryTable:
        """Vectors united from others: written by the first attempt that meets just these."""
        self.merged_vectors_key = tuple(
            zip(vectors["file_path"].to_pylist(), vectors["content_offset"].to_pylist(), strict=True)
        )
        if self.merged_vectors_key not in self.vectors_by_key:
            self.vectors_by_key[self.merged_vectors_key] = write()
        return self.vectors_by_key[self.merged_vectors_key]

    def write_converted_vectors_once(
        self, files: EntryTable, before: EntryTable, write: Callable[[], EntryTable]
    ) -> EntryTable:
        """Vectors made of position delete files and earlier deletes: written by the first attempt that meets them."""
        known = zip(before["file_path"].to_pylist(), before["content_offset"].to_pylist(), strict=True)
        self.converted_delete_files = frozenset(files["file_path"].to_pylist())
        self.converted_deletes_key = ("collapsed", *files["file_path"].to_pylist(), *known)
        if self.converted_deletes_key not in self.vectors_by_key:
            self.vectors_by_key[self.converted_deletes_key] = write()
        return self.vectors_by_key[self.converted_deletes_key]

    def new_vector_path(self, base: CommitBase) -> str:
        """The path of a Puffin file of vectors that this commit makes of others."""
        folder = location_from_property(base.metadata.location, base.properties.data_path or "data")
        path = f"{folder}/{self.commit_id}-vectors-{len(self.vector_paths)}.puffin"
        self.vector_paths.append(path)
        return path

    def new_list_path(self, base: CommitBase, attempt: int) -> str:
        """The path of the manifest list of an attempt."""
        path = f"{metadata_folder(base)}/snap-{self.snapshot_id}-{attempt}-{self.commit_id}{base.tree_writer.suffix}"
        self.list_paths.append(path)
        return path

    def _manifest_path(self, base: CommitBase) -> str:
        return self._note_manifest_path(f"{metadata_folder(base)}/{self.commit_id}-m{len(self.manifest_paths)}.avro")

    def _leaf_path(self, base: CommitBase) -> str:
        """Every later root repeats the name of a leaf, so it is short, and of nothing random but the snapshot's id."""
        return self._note_manifest_path(
            f"{metadata_folder(base)}/{self.snapshot_id}-m{len(self.manifest_paths)}{base.tree_writer.suffix}"
        )

    def _note_manifest_path(self, path: str) -> str:
        self.manifest_paths.append(path)
        return path

    def with_snapshot_id(self, snapshot_id: int) -> WrittenFiles:
        """A new beginning under another snapshot id that remembers what was written under this one."""
        return WrittenFiles(
            snapshot_id,
            manifest_paths=self.manifest_paths,
            list_paths=self.list_paths,
            vector_paths=self.vector_paths,
            lost_metadata_paths=self.lost_metadata_paths,
        )

    @property
    def unused_vector_paths(self) -> set[str]:
        """Files of vectors made here that only earlier attempts needed."""
        used = (
            self.vectors_by_key[key]
            for key in (self.merged_vectors_key, self.converted_deletes_key)
            if key in self.vectors_by_key
        )
        return set(self.vector_paths) - {path for vectors in used for path in vectors["file_path"].to_pylist()}

    @property
    def all_paths(self) -> frozenset[str]:
        """Every path this commit may have written."""
        return frozenset([*self.manifest_paths, *self.list_paths, *self.vector_paths, *self.lost_metadata_paths])


def metadata_folder(base: CommitBase) -> str:
    """Where metadata of the table goes."""
    return location_from_property(base.metadata.location, base.properties.metadata_path or "metadata")

"""What one commit has written so far, kept so that a later attempt can use it again and a rejection can remove it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from neve.commit.window import Base
from neve.io.paths import named_place
from neve.tree.entries import EntryTable, Manifest
from neve.tree.write import ManifestContext


@dataclass
class Scratch:
    """The files of one commit. Manifests are reused by later attempts; each attempt has a manifest list of its own.

    A path is noted before the file is written, so a crash in between leaves a path without a file, never a file
    without a path.
    """

    snapshot_id: int
    commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    manifests: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    vectors: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    """Metadata files that the catalog wrote for attempts it reported as lost."""
    added: dict[Hashable, list[Manifest]] = field(default_factory=dict)
    findings: dict[Hashable, Any] = field(default_factory=dict)
    rewritten: dict[Hashable, list[Manifest]] = field(default_factory=dict)
    made: dict[Hashable, EntryTable] = field(default_factory=dict)
    united: Hashable = ()
    """The vectors that the current attempt unites."""
    collapsed: Hashable = ()
    """The position delete files that the current attempt turns into vectors, and the deletes it adds to them."""
    collapsed_files: frozenset[str] = frozenset()
    """Those delete files: no table lists them."""
    replaced: frozenset[str] = frozenset()
    """Files of vectors of which the current attempt lists none: all of them were united."""
    merged: dict[tuple[str, ...], list[Manifest]] = field(default_factory=dict)

    def context(self, base: Base) -> ManifestContext:
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

    def once(self, key: Hashable, base: Base, write: Callable[[], list[Manifest]]) -> list[Manifest]:
        """Manifests that depend on the action and the format version only: the first attempt writes them."""
        whole_key = (key, base.format_version)
        if whole_key not in self.added:
            self.added[whole_key] = write()
        return self.added[whole_key]

    def unite(self, vectors: EntryTable, write: Callable[[], EntryTable]) -> EntryTable:
        """Vectors united from others: written by the first attempt that meets just these."""
        self.united = tuple(zip(vectors["file_path"].to_pylist(), vectors["content_offset"].to_pylist(), strict=True))
        if self.united not in self.made:
            self.made[self.united] = write()
        return self.made[self.united]

    def collapse(self, files: EntryTable, before: EntryTable, write: Callable[[], EntryTable]) -> EntryTable:
        """Vectors made of position delete files and earlier deletes: written by the first attempt that meets them."""
        known = zip(before["file_path"].to_pylist(), before["content_offset"].to_pylist(), strict=True)
        self.collapsed_files = frozenset(files["file_path"].to_pylist())
        self.collapsed = ("collapsed", *files["file_path"].to_pylist(), *known)
        if self.collapsed not in self.made:
            self.made[self.collapsed] = write()
        return self.made[self.collapsed]

    def vector_path(self, base: Base) -> str:
        """The path of a Puffin file of vectors that this commit makes of others."""
        folder = named_place(base.metadata.location, base.properties.data_path or "data")
        path = f"{folder}/{self.commit_id}-vectors-{len(self.vectors)}.puffin"
        self.vectors.append(path)
        return path

    def list_path(self, base: Base, attempt: int) -> str:
        """The path of the manifest list of an attempt."""
        path = f"{metadata_folder(base)}/snap-{self.snapshot_id}-{attempt}-{self.commit_id}{base.shape.suffix}"
        self.lists.append(path)
        return path

    def _manifest_path(self, base: Base) -> str:
        return self._noted(f"{metadata_folder(base)}/{self.commit_id}-m{len(self.manifests)}.avro")

    def _leaf_path(self, base: Base) -> str:
        """Every later root repeats the name of a leaf, so it is short, and of nothing random but the snapshot's id."""
        return self._noted(f"{metadata_folder(base)}/{self.snapshot_id}-m{len(self.manifests)}{base.shape.suffix}")

    def _noted(self, path: str) -> str:
        self.manifests.append(path)
        return path

    def renamed(self, snapshot_id: int) -> Scratch:
        """A new beginning under another snapshot id that remembers what was written under this one."""
        return Scratch(
            snapshot_id, manifests=self.manifests, lists=self.lists, vectors=self.vectors, metadata=self.metadata
        )

    @property
    def unused_vectors(self) -> set[str]:
        """Files of vectors made here that only earlier attempts needed."""
        used = (self.made[key] for key in (self.united, self.collapsed) if key in self.made)
        return set(self.vectors) - {path for vectors in used for path in vectors["file_path"].to_pylist()}

    @property
    def written(self) -> frozenset[str]:
        """Every path this commit may have written."""
        return frozenset([*self.manifests, *self.lists, *self.vectors, *self.metadata])


def metadata_folder(base: Base) -> str:
    """Where metadata of the table goes."""
    return named_place(base.metadata.location, base.properties.metadata_path or "metadata")

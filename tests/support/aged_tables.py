"""A table whose commits lie days apart and whose files are on disk, and what is in use told by PyIceberg alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.manifest import ManifestEntryStatus

import neve
from neve.commit.actions import Action, Append
from neve.commit.environment import Environment
from neve.model.snapshots import Snapshot
from neve.ops.context import TableContext
from neve.tree.entries import EntryTable
from neve.tree.read import manifests_of, read_entries
from tests.support.metadata_tables import Kit
from tests.support.tables import local

DAY = 24 * 60 * 60 * 1000


@dataclass
class Aged:
    """A table of the commit kit with a clock of its own; it starts today and moves when told."""

    kit: Kit
    now_ms: int
    before_swap: list[Callable[[], Any]] = field(default_factory=list)
    """What others do, one after the other, whenever a change of metadata is about to be swapped in."""

    @classmethod
    def create(cls, folder: Path, version: int = 2, **properties: str) -> Aged:
        aged = cls(Kit.create(folder, version, **properties), time.time_ns() // 1_000_000 + DAY)
        aged.kit.environment = Environment(now_ms=lambda: aged.now_ms, sleep=lambda seconds: None)
        swap = aged.kit.catalog.swap

        def watched(*asked: Any) -> Any:
            if aged.before_swap:
                aged.before_swap.pop(0)()
            return swap(*asked)

        aged.kit.catalog.swap = watched  # type: ignore[method-assign]
        return aged

    @property
    def table(self) -> neve.Table:
        kit = self.kit
        return neve.Table(TableContext(kit.catalog, kit.table, lambda: None, environment=kit.environment))  # type: ignore[arg-type, return-value]

    def day(self, count: int = 1) -> None:
        """Let days pass."""
        self.now_ms += count * DAY

    def commit(self, action: Action, *files: EntryTable, **options: Any) -> int:
        """Commit a day after the last commit, with the files it brings on disk; the id of the snapshot."""
        for path in {p for some in files for p in some["file_path"].to_pylist()}:
            local(path).parent.mkdir(exist_ok=True)
            if not local(path).exists():
                local(path).write_bytes(b"file")
        self.day()
        done = self.kit.ok(action, **options)
        assert done.snapshot_id is not None
        return done.snapshot_id

    def append(self, *names: str, branch: str = "main", **stated: Any) -> int:
        files = self.kit.data(*names, **stated)
        return self.commit(Append(files, fast=True), files, branch=branch)

    # --- looking ---

    @property
    def snapshot_ids(self) -> list[int]:
        return [s.snapshot_id for s in self.kit.metadata.snapshots]

    def on_disk(self) -> set[str]:
        """The files of the table, without its metadata files of all times."""
        return {f for f in self.kit.files_on_disk() if not f.endswith(".metadata.json")}

    def in_use(self, snapshot_ids: Iterable[int] | None = None) -> set[str]:
        """What some snapshots, or all, lead to, walked one by one with PyIceberg's readers where it has some."""
        found: set[str] = set()
        metadata = self.kit.metadata
        for snapshot in metadata.snapshots:
            if snapshot_ids is None or snapshot.snapshot_id in set(snapshot_ids):
                found |= {snapshot.tree_root_location, *self._of_root(snapshot), *self._of_list(snapshot)}
        found |= {f.statistics_path for f in (*metadata.statistics, *metadata.partition_statistics)}
        return self.relative(found)

    def _of_list(self, snapshot: Snapshot) -> set[str]:
        found: set[str] = set()
        for manifest in snapshot.manifests(self.kit.io) if snapshot.manifest_list else ():
            entries = manifest.fetch_manifest_entry(self.kit.io, discard_deleted=False)
            live = {e.data_file.file_path for e in entries if e.status != ManifestEntryStatus.DELETED}
            found |= {manifest.manifest_path, *live}
        return found

    def _of_root(self, snapshot: Snapshot) -> set[str]:
        if snapshot.root_manifest is None:
            return set()
        manifests = manifests_of(self.kit.io, self.kit.metadata, snapshot)
        live = read_entries(self.kit.io, manifests, self.kit.specs, live_only=True)
        return {m.file for m in manifests if not m.is_inline} | set(live["file_path"].to_pylist())

    def relative(self, paths: Iterable[str]) -> set[str]:
        """Paths as seen from the folder of the table."""
        return {str(local(p).relative_to(self.kit.folder / "db" / "t")) for p in paths}
